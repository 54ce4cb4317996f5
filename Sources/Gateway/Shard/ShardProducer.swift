import APNS
import DeliveryCore
import EventLoop
import Kafka
import Logging
import SluiceModel

/// Produces one shard's outcomes, dead letters and changes of its store: the shell of a ``ProduceOrder``. Encodes
/// records, keeps the bytes of records that wait or may be repeated, and hands records to the producer. Shard's thread
/// only.
final class ShardProducer: TimerHandler {
    private let producer: KafkaProducer
    private let outcomes: KafkaTopic
    private let deadLetters: KafkaTopic
    private let changelog: KafkaTopic?
    private let notices: NoticeLog
    /// Ends the worker after a produce call that can't succeed, because no outcome may be lost.
    private let fail: @Sendable (String, KafkaError) -> Void
    private unowned let loop: EventLoop
    /// Hash that stands in the place of device tokens; nil: tokens in the clear.
    private let tokenHash: DeviceTokenHash?
    /// Whether there is a hash: a single byte to look at for each outcome.
    private let hashesTokens: Bool
    /// Hasher of the device that delivery reports need, because a hashed key doesn't show it; nil without a store.
    private let reportHasher: IdentityHasher?
    private var writer = ByteWriter()
    /// Headers of the outcome that is being written, with the device.
    private var row = ByteWriter()
    /// Hash of the record that is being written. Freed in `deinit`.
    private let hashText = UnsafeMutableRawPointer.allocate(
        byteCount: DeviceTokenHash.textLength, alignment: 8)
    private var timer: TimerID?

    /// Permit without which nothing is produced, because another worker may own the partitions by now. Nil with
    /// transactions, because they fence a worker that was stopped for long.
    private let permit: SendPermit?
    /// Reports outcomes and changes that are not produced, and freezes, to the intake.
    private let report: (ShardReport) -> Void
    /// Called when a blocked writer has room again, and when the next transaction has begun.
    private let resume: () -> Void

    private var order: ProduceOrder
    private var kept = KeptRecords()
    /// Callers of `afterThis` that wait, by their tickets, which count from 0.
    private var waiters: [(ticket: UInt64, body: () -> Void)] = []
    private var nextTicket: UInt64 = 0
    /// The producer's last refusal of a record; nil when it has refused none.
    private var lastError: KafkaError?
    /// Last cause for which a record lost a part.
    private var refusal = ShardProducer.tooLarge

    private static let tooLarge = KafkaFault(
        "MSG_SIZE_TOO_LARGE", .ofRecord, message: "the record is larger than the topic's max.message.bytes")

    /// Producer and topics, shared by all shards of a worker.
    struct Parts: Sendable {
        var producer: KafkaProducer
        var outcomes: KafkaTopic
        var deadLetters: KafkaTopic
        /// Nil when there is no changelog.
        var changelog: KafkaTopic?
        var isTransactional: Bool
        /// Hash that stands in the place of device tokens; nil: tokens in the clear.
        var tokenHash: DeviceTokenHash?
        /// Hasher of the device that delivery reports need; nil without a store.
        var reportHasher: IdentityHasher?
        var permit: SendPermit
        /// Ends the worker after a produce call that can't succeed, because no outcome may be lost.
        var fail: @Sendable (String, KafkaError) -> Void
    }

    init(
        _ parts: Parts, loop: EventLoop, notices: NoticeLog, report: @escaping (ShardReport) -> Void,
        resume: @escaping () -> Void
    ) {
        producer = parts.producer
        outcomes = parts.outcomes
        deadLetters = parts.deadLetters
        changelog = parts.changelog
        tokenHash = parts.tokenHash
        hashesTokens = parts.tokenHash != nil
        reportHasher = parts.reportHasher
        permit = parts.isTransactional ? nil : parts.permit
        fail = parts.fail
        self.loop = loop
        self.notices = notices
        self.report = report
        self.resume = resume
        order = ProduceOrder(isTransactional: parts.isTransactional)
    }

    deinit { hashText.deallocate() }

    /// Whether the shard should send nothing.
    var isBlocked: Bool { order.isBlocked }

    /// Whether changes of the store are also written to a changelog for other replicas.
    var hasChangelog: Bool { changelog != nil }

    /// Whether the records written last wait for the next transaction. True also while frozen, whether or not any was
    /// written.
    var writesForNext: Bool { order.writesForNext }

    /// Records of the open transaction, kept for an abort.
    var retained: Int { order.retained }

    /// Records that are not produced yet.
    var waiting: Int { order.waiting }

    /// Bytes of the records that are kept or wait.
    var keptBytes: Int { kept.byteCount }

    // MARK: Records

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        writer.removeAll()
        // A channel is no device token.
        if hashesTokens, outcome.job != .broadcast { return writeHashed(outcome, source) }
        OutcomeEncoder.encode(outcome, into: &writer)
        put(
            .outcome, outcomes, key: outcome.deviceToken, value: writer.bytes, headers: outcome.passedHeaders,
            opaque: source.opaque, partitionSlot: source.partitionSlot, isJob: !source.isOffsetDone)
    }

    private func writeHashed(_ outcome: borrowing Outcome, _ source: OutcomeSource) {
        guard let tokenHash else { return }
        var headers = outcome.passedHeaders
        if let reportHasher {
            row.removeAll()
            row.append(headers.bytes)
            ReportedDevice.append(reportHasher.device(outcome.deviceToken).low, to: &row)
            headers = PassedHeaders(checking: row.bytes) ?? headers
        }
        tokenHash.write(outcome.deviceToken, to: hashText)
        let hash = UnsafeRawBufferPointer(start: hashText, count: DeviceTokenHash.textLength)
        OutcomeEncoder.encode(outcome, deviceTokenHash: hash, into: &writer)
        put(
            .outcome, outcomes, key: hash, value: writer.bytes, headers: headers, opaque: source.opaque,
            partitionSlot: source.partitionSlot, isJob: !source.isOffsetDone)
    }

    /// Writes the store's value of a key to the changelog; a nil value records the key's removal.
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
        value: UnsafeRawBufferPointer?, headers: PassedHeaders = .none, opaque: UInt, partitionSlot: UInt16,
        isJob: Bool
    ) {
        func keep(_ handle: UInt32) {
            kept.keep(
                handle, kind, partition: partition, key: key, value: value, headers: headers.bytes,
                opaque: opaque)
        }
        switch order.write(kind, partition: partitionSlot, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            let answer =
                fits(topic, key, value, headers.bytes)
                ? answer(produce(topic, partition, key, value, headers, opaque)) : .tooLarge
            if order.answered(handle, answer) { keep(handle) }
        case .wait(let handle): keep(handle)
        case .drop: break
        }
        carryOut()
    }

    /// Returns whether the topic may take the record. A row of headers is at least as large as the headers.
    @inline(__always)
    private func fits(
        _ topic: KafkaTopic, _ key: UnsafeRawBufferPointer?, _ value: UnsafeRawBufferPointer?,
        _ row: UnsafeRawBufferPointer
    ) -> Bool {
        let bytes = (key?.count ?? 0) + (value?.count ?? 0) + row.count
        if bytes <= topic.largestBatch - KafkaTopic.batchOverhead { return true }
        refusal = Self.tooLarge
        return false
    }

    private func produce(
        _ topic: KafkaTopic, _ partition: Int32, _ key: UnsafeRawBufferPointer?,
        _ value: UnsafeRawBufferPointer?, _ headers: PassedHeaders, _ opaque: UInt
    ) -> ProduceResult {
        if headers.isEmpty {
            return producer.produce(topic, key: key, value: value, opaque: opaque, partition: partition)
        }
        var list = HeaderList(capacity: 4)
        headers.forEach { list.append($0.name, $0.value) }
        return producer.produce(
            topic, key: key, value: value, headers: list, opaque: opaque, partition: partition)
    }

    func deadLetter(_ record: JobRecord, error: JobError, source: OutcomeSource) {
        notices.logger.debug(
            "a record is not a valid job; it becomes a dead letter", metadata: Self.metadata(record, error))
        let step = order.write(
            .deadLetter, partition: source.partitionSlot, isJob: !source.isOffsetDone,
            isPermitted: isPermitted)
        if case .wait(let handle) = step {
            writer.removeAll()
            for header in record.headers
            where !DeadLetter.isOwnHeader(header.name)
                && !(hashesTokens && DeadLetter.mayHoldToken(header, key: record.key))
            {
                HeaderBytes.append(header.name, header.value, to: &writer)
            }
            for (name, value) in DeadLetter.headers(for: error, record: record) { appendHeader(name, value) }
            if let tokenHash {
                keepHashed(handle, record, tokenHash, source)
            } else {
                kept.keep(
                    handle, .deadLetter, partition: -1, key: record.key, value: record.value,
                    headers: writer.bytes, opaque: source.opaque)
            }
        }
        carryOut()
    }

    private func appendHeader(_ name: String, _ value: [UInt8]) {
        Array(name.utf8).withUnsafeBytes { name in
            value.withUnsafeBytes { HeaderBytes.append(name, $0, to: &writer) }
        }
    }

    /// Keeps a dead letter whose headers are in the writer, without its value and with the hash of its key. The record at
    /// the source has both.
    private func keepHashed(
        _ handle: UInt32, _ record: JobRecord, _ tokenHash: DeviceTokenHash, _ source: OutcomeSource
    ) {
        appendHeader(DeadLetter.valueOmittedHeader, Array(DeadLetter.hashedReason.utf8))
        let key = record.key.map { RecordKey.address(in: $0) }
        if let reportHasher, let key {
            ReportedDevice.appendHeader(reportHasher.device(key).low, to: &writer)
        }
        if let key { tokenHash.write(key, to: hashText) }
        kept.keep(
            handle, .deadLetter, partition: -1,
            key: key == nil
                ? nil : UnsafeRawBufferPointer(start: hashText, count: DeviceTokenHash.textLength),
            value: nil, headers: writer.bytes, opaque: source.opaque)
    }

    private static func metadata(_ record: JobRecord, _ error: JobError) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "partition": "\(record.partition)", "offset": "\(record.offset)", "field": "\(error.field)",
            "rule": "\(error.rule.rawValue)",
        ]
        if let trace = TraceIdentifier.text(of: record) { metadata["trace"] = "\(trace)" }
        return metadata
    }

    private var isPermitted: Bool { permit?.isValid ?? true }

    private func answer(_ result: ProduceResult) -> ProduceAnswer {
        switch result {
        case .queued: return .queued
        case .queueFull: return .queueFull
        case .noTransaction: return .noTransaction
        case .failed(let error):
            lastError = error
            if error.isRetriable || error.isPartitionUnknown { return .failedForNow }
            guard error.isOfRecord else { return .failed }
            refusal = KafkaFault(error)
            return .tooLarge
        }
    }

    /// Calls `body` once another writer's later records are sure to follow all records written here so far. The order
    /// then also holds after an aborted transaction whose records are produced again.
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
            case .produce(let handle, let cuts):
                _ = order.answered(handle, produce(handle, cuts: cuts))
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
                notices.log(
                    .warning, .transactionRecordRefused,
                    "the producer refuses a record of the open transaction",
                    metadata: ["transaction": "\(number)"])
                report(.refused(number: number))
            case .droppedChange(let handle):
                guard let opaque = kept[handle]?.opaque, let change = ChangeSource(opaque: opaque) else {
                    continue
                }
                report(.droppedChange(ChangeEpoch(shard: change.shard, epoch: change.epoch)))
            case .neverFits(let handle): neverFits(handle)
            case .failed(let handle): failed(handle)
            }
        }
    }

    private func produce(_ handle: UInt32, cuts: UInt8) -> ProduceAnswer {
        guard let entry = kept[handle], let topic = topic(entry.kind) else {
            preconditionFailure("the bytes of waiting record \(handle) are gone")
        }
        let (key, value, row) = kept.parts(of: entry)
        if cuts == 0, !fits(topic, key, value, row) { return .tooLarge }
        // A row of this shard, so the check only bounds it.
        let passed = entry.kind == .deadLetter ? .none : PassedHeaders(checking: row) ?? .none
        guard cuts > 0 || entry.kind == .deadLetter else {
            return answer(produce(topic, entry.partition, key, value, passed, entry.opaque))
        }
        var headers = entry.kind == .deadLetter ? HeaderBytes.decode(row) : []
        passed.forEach { header in
            headers.append((String(decoding: header.name, as: UTF8.self), header.value.map { Array($0) }))
        }
        var record = CutRecord(entry.kind, key: key, value: value, headers: headers)
        record.cut(to: cuts, reason: refusal.name)
        if record.bytes > topic.largestBatch, cuts > 0 {
            refusal = Self.tooLarge
            return .tooLarge
        }
        return answer(
            producer.produce(
                topic, key: record.key, value: record.value, headers: record.headers, opaque: entry.opaque))
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
        // A record that failed as it was written is not kept.
        let name = kept[handle].flatMap { topic($0.kind)?.name }
        fail("a record \(name.map { "for \($0) " } ?? "")can't be produced: \(error)", error)
    }

    /// Has the partition of the record stopped.
    private func neverFits(_ handle: UInt32) {
        guard let entry = kept[handle], let topic = topic(entry.kind) else { return }
        report(.neverFits(OutcomeSource(opaque: entry.opaque).outcome, topic: topic.name, refusal))
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        order.timerDue(isPermitted: isPermitted)
        carryOut()
    }

    /// Produces the records that wait, as far as there is room.
    func flushPending() {
        order.flush(isPermitted: isPermitted)
        carryOut()
    }

    // MARK: Partitions

    /// Without transactions, drops the records that wait for this lost partition, because another worker owns their
    /// outcomes. Does nothing with transactions: the abort of the open transaction handles the records.
    /// - Returns: the number of jobs' outcomes among the dropped records.
    func abandon(partitionSlot: UInt16) -> Int {
        let jobs = order.abandon(partitionSlot)
        carryOut()
        return jobs
    }

    /// Ends a partition: drops its records that wait, and refuses new ones. With transactions an outcome counts only
    /// together with its partition's offset, and the partition is gone. The open transaction is committed or aborted
    /// with the records it has so far. Without transactions, changes of the store are still produced.
    func end(partitionSlot: UInt16) {
        order.endPartition(partitionSlot)
        carryOut()
    }

    /// Begins a partition under this slot: another partition, or the same one once more.
    func begin(partitionSlot: UInt16) {
        order.beginPartition(partitionSlot)
    }

    // MARK: Transactions

    /// Stops producing into the transaction of this number once all records written so far are produced. Records that
    /// belong together are written in one turn, so they are in one transaction.
    /// ``ShardReport/frozen(number:produced:)`` follows.
    ///
    /// - Parameter atOnce: the transaction is about to be aborted, so records not produced yet wait for the next one.
    func freeze(_ number: UInt64, atOnce: Bool) {
        order.freeze(number, atOnce: atOnce)
        carryOut()
    }

    /// Begins the transaction of this number.
    /// - Parameter repeating: nil when the transaction before was committed. Otherwise that transaction was aborted,
    ///   and its records of these partitions are produced again before any newer record.
    /// - Parameter refused: records of the aborted transaction that Kafka has refused, of all shards.
    func thaw(_ number: UInt64, repeating: Set<UInt16>?, refused: [RefusedRecord]) {
        var refusals: [ProduceOrder.Refusal] = []
        if !refused.isEmpty {
            let cuts = Dictionary(refused.map { ($0.outcome, $0.cuts) }, uniquingKeysWith: max)
            kept.forEachRecord { handle, entry in
                guard entry.kind != .change, let cuts = cuts[OutcomeSource(opaque: entry.opaque).outcome]
                else {
                    return
                }
                refusals.append(.init(handle: handle, cuts: cuts))
            }
            refusal = KafkaFault(refused[0].reason, .ofRecord)
        }
        order.thaw(number, repeating: repeating, refused: refusals)
        carryOut()
    }

    /// Stops producing for good.
    func stop() -> ProduceOrder.Ending {
        if let timer { loop.cancel(timer) }
        timer = nil
        let ending = order.stop()
        carryOut()
        return ending
    }
}
