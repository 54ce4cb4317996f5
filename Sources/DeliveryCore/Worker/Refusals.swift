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

/// Identifies an outcome or dead letter of a worker. The place alone is not enough: a stored push of an earlier log can
/// have the place of a record of the new log. The offset of a stored push is complete before its outcome.
public struct OutcomePlace: Hashable, Sendable, BitwiseCopyable {
    /// Record of the jobs topic.
    public var place: RecordPlace
    /// True when the record's offset was complete before the outcome.
    public var isOffsetDone: Bool

    public init(_ place: RecordPlace, isOffsetDone: Bool) {
        self.place = place
        self.isOffsetDone = isOffsetDone
    }
}

/// A refused record that is made again.
public struct RefusedRecord: Sendable, Equatable {
    /// Outcome or dead letter that was refused.
    public var outcome: OutcomePlace
    /// Cuts of the next form, at least.
    public var cuts: UInt8
    /// Kafka's name of the error.
    public var reason: String

    public init(outcome: OutcomePlace, cuts: UInt8, reason: String) {
        self.outcome = outcome
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
        var outcome: OutcomePlace
        var topic: String
        var form: ProducedForm
        var fault: KafkaFault
    }

    /// Records that weren't judged yet.
    private var open: [Refusal] = []
    /// Times that records went out as they were although they may be the cause, and the cuts that they had.
    private var spared: [OutcomePlace: (times: Int, cuts: UInt8)] = [:]

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
                let times = spared[refusal.outcome].map { $0.cuts == cuts ? $0.times : 0 } ?? 0
                if times < (cuts >= form.kind.mostCuts ? Self.mostTimes : isKnownToFit ? 1 : 0) {
                    spared[refusal.outcome] = (times + 1, cuts)
                } else {
                    cuts += 1
                }
            }
            if cuts > form.kind.mostCuts {
                hopeless.append(refusal)
            } else {
                again.append(RefusedRecord(outcome: refusal.outcome, cuts: cuts, reason: refusal.fault.name))
            }
        }
        open = []
        return (again, hopeless)
    }

    mutating func delivered(_ outcome: OutcomePlace) {
        if !spared.isEmpty { spared[outcome] = nil }
    }

    /// Forgets the records of a partition that has ended.
    mutating func forget(_ slot: UInt16) {
        open.removeAll { $0.outcome.place.partitionSlot == slot }
        if !spared.isEmpty { spared = spared.filter { $0.key.place.partitionSlot != slot } }
    }
}

extension WorkerMachine {
    /// Returns the refused records to make again, and stops the partitions of those that Kafka takes in no form.
    mutating func judgeRefusals() -> [RefusedRecord] {
        let (again, hopeless) = refusals.judge()
        for refusal in hopeless {
            if transactions == nil { act(.forgetRefused(refusal.outcome)) }
            // The transaction that had the record is aborted already.
            stopPartition(refusal, abortsTransaction: false)
        }
        guard !hopeless.isEmpty else { return again }
        return again.filter { partitions.index(ofSlot: $0.outcome.place.partitionSlot) != nil }
    }

    /// Takes the report that the producer takes a record's outcome or dead letter in no form.
    public mutating func neverFits(
        _ outcome: OutcomePlace, topic: String, _ fault: KafkaFault, at now: UInt64
    ) {
        self.now = max(self.now, now)
        guard drain.phase < .endingShards else { return }
        let form = ProducedForm(kind: .deadLetter, cuts: 0, bytes: 0)
        stopPartition(
            .init(outcome: outcome, topic: topic, form: form, fault: fault), abortsTransaction: true)
        checkRevocation()
        checkDrain()
    }

    /// Stops the partition of a record that can't get an outcome. The other partitions go on. The partition is read
    /// again, from its first record without an outcome, once it is assigned anew.
    private mutating func stopPartition(_ refusal: Refusals.Refusal, abortsTransaction: Bool) {
        let (place, isOffsetDone) = (refusal.outcome.place, refusal.outcome.isOffsetDone)
        let slot = place.partitionSlot
        guard let index = partitions.index(ofSlot: slot) else {
            if !isOffsetDone { finishOrphans(of: slot, 1) }
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
            if !isOffsetDone { gate.release(index, jobs: 1) }
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
