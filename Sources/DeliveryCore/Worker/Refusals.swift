/// Form in which an outcome or dead letter was produced.
public struct ProducedForm: Sendable, Equatable {
    /// `outcome` or `deadLetter`.
    public var kind: ProduceOrder.Kind
    /// Cuts that the record's content shows, see ``ProduceOrder/Kind/mostCuts``.
    public var cuts: UInt8
    /// Bytes of the record in a batch of its own, at most.
    public var bytes: Int
    /// Bytes of the largest batch that the topic takes; `.max`: unknown.
    public var largestBatch: Int

    public init(kind: ProduceOrder.Kind, cuts: UInt8, bytes: Int, largestBatch: Int = .max) {
        self.kind = kind
        self.cuts = cuts
        self.bytes = bytes
        self.largestBatch = largestBatch
    }
}

/// A refused record that is made again.
public struct RefusedRecord: Sendable, Equatable {
    /// Record of the jobs topic.
    public var place: RecordPlace
    /// Cuts of the next form, at least.
    public var cuts: UInt8
    /// Kafka's name of the error.
    public var reason: String

    public init(place: RecordPlace, cuts: UInt8, reason: String) {
        self.place = place
        self.cuts = cuts
        self.reason = reason
    }
}

/// Decides what becomes of records that a broker has refused. The broker refuses whole batches, so that a refusal has
/// innocent records as well.
///
/// Refusals are collected, and judged together once a poll of reports or a transaction has ended:
/// - A record that is larger than its topic's largest batch gets the next cut.
/// - A record of less than half the size of the largest refused one of its topic is innocent, and goes out again as it
///   was. So the largest of each batch gets smaller from time to time, until all fit.
/// - The others get the next cut. A record that is known to fit goes out as it was once before.
/// - A record without a next cut goes out as it was three times, because its batch may be the cause. Then it is hopeless.
struct Refusals: Sendable {
    struct Refusal: Sendable, Equatable {
        var place: RecordPlace
        var isOffsetDone: Bool
        var topic: String
        var form: ProducedForm
        var fault: KafkaFault
    }

    /// Records that weren't judged yet.
    private var open: [Refusal] = []
    /// Times that records went out as they were although they may be the cause, and the cuts that they had.
    private var spared: [RecordPlace: (times: Int, cuts: UInt8)] = [:]

    /// Times that a record without a next cut goes out as it was.
    static let mostTimes = 3

    mutating func add(_ refusal: Refusal) { open.append(refusal) }

    mutating func judge() -> (again: [RefusedRecord], hopeless: [Refusal]) {
        guard !open.isEmpty else { return ([], []) }
        var largest: [String: Int] = [:]
        for refusal in open { largest[refusal.topic] = max(largest[refusal.topic] ?? 0, refusal.form.bytes) }
        var (again, hopeless): ([RefusedRecord], [Refusal]) = ([], [])
        for refusal in open {
            let form = refusal.form
            var cuts = form.cuts
            if form.bytes > form.largestBatch || form.bytes >= largest[refusal.topic]! / 2 {
                let isKnownToFit = form.largestBatch < .max && form.bytes <= form.largestBatch
                let times = spared[refusal.place].map { $0.cuts == cuts ? $0.times : 0 } ?? 0
                if times < (cuts >= form.kind.mostCuts ? Self.mostTimes : isKnownToFit ? 1 : 0) {
                    spared[refusal.place] = (times + 1, cuts)
                } else {
                    cuts += 1
                }
            }
            if cuts > form.kind.mostCuts {
                hopeless.append(refusal)
            } else {
                again.append(RefusedRecord(place: refusal.place, cuts: cuts, reason: refusal.fault.name))
            }
        }
        open = []
        return (again, hopeless)
    }

    mutating func delivered(_ place: RecordPlace) {
        if !spared.isEmpty { spared[place] = nil }
    }

    /// Forgets the records of a partition that has ended.
    mutating func forget(_ slot: UInt16) {
        open.removeAll { $0.place.partitionSlot == slot }
        if !spared.isEmpty { spared = spared.filter { $0.key.partitionSlot != slot } }
    }
}

extension WorkerMachine {
    /// Returns the refused records to make again, and stops the partitions of those that Kafka takes in no form.
    mutating func judgeRefusals() -> [RefusedRecord] {
        let (again, hopeless) = refusals.judge()
        for refusal in hopeless {
            if transactions == nil { act(.forgetRefused(refusal.place)) }
            // The transaction that had the record is aborted already.
            stopPartition(refusal, abortsTransaction: false)
        }
        guard !hopeless.isEmpty else { return again }
        return again.filter { partitions.index(ofSlot: $0.place.partitionSlot) != nil }
    }

    /// Takes the report that the producer takes a record's outcome or dead letter in no form.
    public mutating func neverFits(
        _ record: RecordPlace, isOffsetDone: Bool, topic: String, _ fault: KafkaFault, at now: UInt64
    ) {
        self.now = max(self.now, now)
        guard drain.phase < .endingShards else { return }
        let form = ProducedForm(kind: .deadLetter, cuts: 0, bytes: 0)
        stopPartition(
            .init(place: record, isOffsetDone: isOffsetDone, topic: topic, form: form, fault: fault),
            abortsTransaction: true)
        checkRevocation()
        checkDrain()
    }

    /// Stops the partition of a record that can't get an outcome. The other partitions go on. The partition is read
    /// again, from its first record without an outcome, once it is assigned anew.
    private mutating func stopPartition(_ refusal: Refusals.Refusal, abortsTransaction: Bool) {
        let (place, slot) = (refusal.place, refusal.place.partitionSlot)
        guard let index = partitions.index(ofSlot: slot) else {
            if !refusal.isOffsetDone { finishOrphans(of: slot, 1) }
            return
        }
        let partition = partitions[index].partition
        if !gate.reasons(index).contains(.refused) {
            note(
                .partitionStopped(
                    partition, offset: place.recordOffset, topic: refusal.topic, refusal.fault))
        }
        guard transactions != nil else {
            // The job takes no room, and neither a revocation nor the worker's end waits for it. Its offset stays.
            if !refusal.isOffsetDone { gate.release(index, jobs: 1) }
            gate.refuse(index)
            return followGate()
        }
        // Changes of the store belong to the outcome. So nothing of the partition may be in a transaction any more, as if
        // the group had taken the partition away.
        stopped[partition] = place.recordOffset
        let isRevoked = partitions[index].isEnding
        act(.requestAll(.abandon(slots: [slot], isLost: true)))
        if !remove(index), !isRevoked { act(.pause([partition])) }
        guard abortsTransaction else { return }
        transactions!.partitionsLost(refusal.fault)
        followTransactions()
    }
}
