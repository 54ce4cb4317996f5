import DeliveryCore
import EventLoop
import Kafka
import Logging
import SluiceModel

/// Produces one shard's outcomes and dead letters, and the changes of its store: the shell of a ``ProduceOrder``. It encodes
/// records, keeps the bytes of those that wait or may be repeated, and hands them to the producer. Shard's thread only.
final class ShardProducer: TimerHandler {
    private let producer: KafkaProducer
    private let outcomes: KafkaTopic
    private let deadLetters: KafkaTopic
    private let changelog: KafkaTopic?
    private let logger: Logger
    /// A produce call that can't succeed ends the worker: an outcome must not be lost.
    private let fail: @Sendable (String, KafkaError) -> Void
    private unowned let loop: EventLoop
    private var writer = ByteWriter()
    private var timer: TimerID?

    /// Without transactions, which fence a worker that was stopped for long, nothing is produced while it isn't sure to have
    /// its partitions still: what it has to say may be another's to say by now. Nil with transactions.
    private let permit: SendPermit?
    /// Tells the intake of outcomes and changes that are not produced, and of freezes.
    private let report: (ShardReport) -> Void
    /// Called when a blocked writer has room again, and when the next transaction has begun.
    private let resume: () -> Void

    private var order: ProduceOrder
    private var kept = KeptRecords()
    /// Callers of `afterThis` that wait, by their tickets, which count from 0.
    private var waiters: [(ticket: UInt64, body: () -> Void)] = []
    private var nextTicket: UInt64 = 0
    /// Why the producer has refused a record last; nil: it has not.
    private var lastError: KafkaError?
    /// Name of the error for which dead letters went without their values last; empty: none did.
    private var omission = ""

    /// Producer and topics, shared by all shards of a worker.
    struct Parts: Sendable {
        var producer: KafkaProducer
        var outcomes: KafkaTopic
        var deadLetters: KafkaTopic
        /// Nil: there is no changelog.
        var changelog: KafkaTopic?
        var isTransactional: Bool
        var permit: SendPermit
        /// A produce call that can't succeed ends the worker: an outcome must not be lost.
        var fail: @Sendable (String, KafkaError) -> Void
    }

    init(
        _ parts: Parts, loop: EventLoop, logger: Logger, report: @escaping (ShardReport) -> Void,
        resume: @escaping () -> Void
    ) {
        producer = parts.producer
        outcomes = parts.outcomes
        deadLetters = parts.deadLetters
        changelog = parts.changelog
        permit = parts.isTransactional ? nil : parts.permit
        fail = parts.fail
        self.loop = loop
        self.logger = logger
        self.report = report
        self.resume = resume
        order = ProduceOrder(isTransactional: parts.isTransactional)
    }

    /// The shard should send nothing.
    var isBlocked: Bool { order.isBlocked }

    /// What is stored goes to other replicas as well.
    var hasChangelog: Bool { changelog != nil }

    /// Records written last wait for the next transaction. True also while frozen, whether or not any was written.
    var writesForNext: Bool { order.writesForNext }

    /// Records that the open transaction has, kept for an abort.
    var retained: Int { order.retained }

    /// Records that are not produced yet.
    var waiting: Int { order.waiting }

    /// Bytes of the records that are kept or wait.
    var keptBytes: Int { kept.byteCount }

    // MARK: Records

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        writer.removeAll()
        OutcomeEncoder.encode(outcome, into: &writer)
        put(
            .outcome, outcomes, key: outcome.deviceToken, value: writer.bytes, opaque: source.opaque,
            partitionSlot: source.partitionSlot, isJob: !source.isOffsetDone)
    }

    /// Says what the store has under a key, or (nil) that it has nothing any more.
    func change(
        _ partition: Int32, key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?, opaque: UInt,
        partitionSlot: UInt16
    ) {
        guard let changelog else { return }
        put(
            .change, changelog, partition: partition, key: key, value: value, opaque: opaque,
            partitionSlot: partitionSlot, isJob: false)
    }

    private func put(
        _ kind: ProduceOrder.Kind, _ topic: KafkaTopic, partition: Int32 = -1, key: UnsafeRawBufferPointer,
        value: UnsafeRawBufferPointer?, opaque: UInt, partitionSlot: UInt16, isJob: Bool
    ) {
        switch order.write(kind, partition: partitionSlot, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            let result = producer.produce(topic, key: key, value: value, opaque: opaque, partition: partition)
            if order.answered(handle, answer(result)) {
                kept.keep(handle, kind, partition: partition, key: key, value: value, opaque: opaque)
            }
        case .wait(let handle):
            kept.keep(handle, kind, partition: partition, key: key, value: value, opaque: opaque)
        case .drop: break
        }
        carryOut()
    }

    func deadLetter(_ record: JobRecord, error: JobError, source: OutcomeSource) {
        logger.debug(
            "not a job, dead-lettered",
            metadata: [
                "partition": "\(record.partition)", "offset": "\(record.offset)", "field": "\(error.field)",
                "rule": "\(error.rule.rawValue)",
            ])
        let step = order.write(
            .deadLetter, partition: source.partitionSlot, isJob: !source.isOffsetDone,
            isPermitted: isPermitted)
        if case .wait(let handle) = step {
            writer.removeAll()
            for header in record.headers where !DeadLetter.isOwnHeader(header.name) {
                HeaderBytes.append(header.name, header.value, to: &writer)
            }
            for (name, value) in DeadLetter.headers(for: error, record: record) {
                Array(name.utf8).withUnsafeBytes { name in
                    value.withUnsafeBytes { HeaderBytes.append(name, $0, to: &writer) }
                }
            }
            kept.keep(
                handle, .deadLetter, partition: -1, key: record.key, value: record.value,
                headers: writer.bytes, opaque: source.opaque)
        }
        carryOut()
    }

    private var isPermitted: Bool { permit?.isValid ?? true }

    private func answer(_ result: ProduceResult) -> ProduceAnswer {
        switch result {
        case .queued: return .queued
        case .queueFull: return .queueFull
        case .noTransaction: return .noTransaction
        case .failed(let error):
            lastError = error
            return error.isRetriable || error.isPartitionUnknown
                ? .failedForNow : error.isTooLarge ? .tooLarge : .failed
        }
    }

    /// Calls `body` when what another writer produces from then on comes after all that was written here so far: after an
    /// aborted transaction as well, when all is produced once more.
    func afterThis(_ body: @escaping () -> Void) {
        waiters.append((nextTicket, body))
        order.afterThis(ticket: nextTicket)
        nextTicket += 1
        carryOut()
    }

    // MARK: Actions

    private func carryOut() {
        while let action = order.nextAction() {
            switch action {
            case .produce(let handle, let omitsValue):
                _ = order.answered(handle, produce(handle, omitsValue: omitsValue))
            case .forget(let before): kept.forget(before: before)
            case .gaveBack(let partitionSlot, _):
                report(.gaveBack(slot: partitionSlot))
            case .frozen(let number, let produced): report(.frozen(number: number, produced: produced))
            case .released(let ticket):
                guard let index = waiters.firstIndex(where: { $0.ticket == ticket }) else { continue }
                waiters.remove(at: index).body()
            case .armTimer: timer = loop.schedule(after: .milliseconds(5), handler: self)
            case .resumed: resume()
            case .refused(let number):
                logger.warning(
                    "the producer takes no record of the open transaction",
                    metadata: ["transaction": "\(number)"])
                report(.refused(number: number))
            case .droppedChange(let handle):
                guard let opaque = kept[handle]?.opaque, let change = ChangeSource(opaque: opaque) else {
                    continue
                }
                report(.droppedChange(ChangeEpoch(shard: change.shard, epoch: change.epoch)))
            case .failed(let handle): failed(handle)
            }
        }
    }

    private func produce(_ handle: UInt32, omitsValue: Bool) -> ProduceAnswer {
        guard let entry = kept[handle], let topic = topic(entry.kind) else {
            preconditionFailure("the bytes of record \(handle), which waits, are gone")
        }
        let (key, value, row) = kept.parts(of: entry)
        guard entry.kind == .deadLetter else {
            return answer(
                producer.produce(
                    topic, key: key, value: value, opaque: entry.opaque, partition: entry.partition))
        }
        var headers = HeaderBytes.decode(row)
        let isOmitted = omitsValue && value != nil
        if isOmitted {
            headers.append((DeadLetter.valueOmittedHeader, Array(omission.utf8)))
        }
        let result = producer.produce(
            topic, key: key, value: isOmitted ? nil : value, headers: headers, opaque: entry.opaque)
        if case .failed(let error) = result, !isOmitted { omission = error.name }
        return answer(result)
    }

    private func topic(_ kind: ProduceOrder.Kind) -> KafkaTopic? {
        switch kind {
        case .outcome: outcomes
        case .deadLetter: deadLetters
        case .change: changelog
        }
    }

    private func failed(_ handle: UInt32) {
        guard let error = lastError else { return }
        // What failed as it was written is not kept.
        let name = kept[handle].flatMap { topic($0.kind)?.name }
        fail("a record \(name.map { "for \($0) " } ?? "")can't be produced: \(error)", error)
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        order.timerDue(isPermitted: isPermitted)
        carryOut()
    }

    /// Produces what waits, as far as there is room.
    func flushPending() {
        order.flush(isPermitted: isPermitted)
        carryOut()
    }

    // MARK: Partitions

    /// What waits for this partition, which is lost, is for another to say. With transactions that is seen to when the open
    /// one is aborted.
    /// - Returns: how many jobs' outcomes that are.
    func abandon(partitionSlot: UInt16) -> Int {
        let jobs = order.abandon(partitionSlot)
        carryOut()
        return jobs
    }

    /// With transactions: an outcome counts only together with the offset of its partition, which has gone. What is open is
    /// committed or aborted with what was said so far, and nothing more is said.
    func end(partitionSlot: UInt16) {
        order.endPartition(partitionSlot)
        carryOut()
    }

    /// The slot is another partition's, or the same one's once more.
    func begin(partitionSlot: UInt16) {
        order.beginPartition(partitionSlot)
    }

    // MARK: Transactions

    /// The transaction of this number is about to end: nothing more is produced in it, as soon as all is that was written so
    /// far. Records that belong together are written in one turn, and so are in one transaction. ``ShardReport/frozen(number:produced:)``
    /// follows.
    ///
    /// - Parameter atOnce: the transaction is about to be aborted: what isn't produced yet waits for the next one.
    func freeze(_ number: UInt64, atOnce: Bool) {
        order.freeze(number, atOnce: atOnce)
        carryOut()
    }

    /// The transaction of this number has begun.
    /// - Parameter repeating: nil: the one that was thawed before was committed. Otherwise it was aborted, and what is of
    ///   these partitions is produced again, before anything newer.
    /// - Parameter omitsValues: why Kafka has refused dead letters with their values; nil: it hasn't.
    func thaw(_ number: UInt64, repeating: Set<UInt16>?, omitsValues: String?) {
        if let omitsValues { omission = omitsValues }
        order.thaw(number, repeating: repeating, omitsValues: omitsValues != nil)
        carryOut()
    }

    /// Nothing more is produced.
    func end() -> ProduceOrder.Ending {
        if let timer { loop.cancel(timer) }
        timer = nil
        let ending = order.end()
        carryOut()
        return ending
    }
}
