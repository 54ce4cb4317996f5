import EventLoop
import Kafka
import Logging
import SluiceModel

/// Produces one shard's outcomes and dead letters, and the changes of its store. When the producer's queue is full, or
/// between two transactions, they wait here; the shard sends nothing while many do. Shard's thread only.
final class OutcomeWriter: TimerHandler {
    private let producer: KafkaProducer
    private let outcomes: KafkaTopic
    private let deadLetters: KafkaTopic
    private let changelog: KafkaTopic?
    private let logger: Logger
    /// A produce call that can't succeed ends the worker: an outcome must not be lost.
    private let fail: @Sendable (String, KafkaError) -> Void
    private unowned var loop: EventLoop!
    private var writer = ByteWriter()
    private var timer: TimerID?

    /// Without transactions, which fence a worker that was stopped for long, nothing is produced while it isn't sure to have
    /// its partitions still: what it has to say may be another's to say by now. Nil with transactions.
    private let permit: SendPermit?
    /// Called for each outcome that is not produced, as its partition has gone and its offset with it.
    var gaveBack: (_ partitionSlot: UInt16) -> Void = { _ in }
    /// Called when a blocked writer has room again.
    var resume: () -> Void = {}

    private struct Pending {
        var topic: KafkaTopic
        var partition: Int32 = -1
        var key: [UInt8]?
        var value: [UInt8]?
        var headers: [(name: String, value: [UInt8]?)] = []
        var opaque: UInt
        /// Of the jobs' partition.
        var partitionSlot: UInt16

        /// Larger with its headers than Kafka takes: a dead letter must fit without its value.
        mutating func omitValue(_ reason: String) {
            value = nil
            headers.append((DeadLetter.valueOmittedHeader, Array(reason.utf8)))
        }
    }
    private var pending: [Pending] = []

    /// What transactions ask for beside producing.
    private struct Transaction {
        /// Nothing is produced until the next one has begun.
        var isFrozen = true
        /// To be told when all that waits is produced.
        var whenFrozen: (@Sendable (Int) -> Void)?
        /// Records in all transactions so far.
        var produced = 0
        /// To be called when the open transaction is committed, and when the one after it is.
        var whenCommitted: [() -> Void] = []
        var whenNextCommitted: [() -> Void] = []
        var retained = RetainedRecords()
        var retainedLetters: [Pending] = []
        /// Why dead letters go without their values until a transaction is committed; nil: they keep them.
        var omitsValues: String?
        /// Partition slots that have ended, a bit for each: what is still said for them is another worker's to say.
        var ended: [UInt64] = []
    }
    /// Nil without transactions.
    private var transaction: Transaction?
    /// To be called when all that waits is produced, without transactions.
    private var whenProduced: [() -> Void] = []

    /// So many may wait for the next transaction before the shard stops to send.
    private static let mostWaiting = 20_000

    init(
        producer: KafkaProducer, outcomes: KafkaTopic, deadLetters: KafkaTopic, changelog: KafkaTopic? = nil,
        isTransactional: Bool = false, permit: SendPermit, logger: Logger,
        fail: @escaping @Sendable (String, KafkaError) -> Void
    ) {
        self.producer = producer
        self.outcomes = outcomes
        self.deadLetters = deadLetters
        self.changelog = changelog
        if isTransactional { transaction = Transaction() }
        self.permit = isTransactional ? nil : permit
        self.logger = logger
        self.fail = fail
    }

    func attach(to loop: EventLoop) {
        self.loop = loop
    }

    /// The producer takes nothing at the moment.
    var isBlocked: Bool {
        transaction?.isFrozen == true ? pending.count > Self.mostWaiting : !pending.isEmpty
    }

    /// What is written waits until it is told otherwise.
    private var isHeld: Bool {
        if transaction != nil { return transaction!.isFrozen }
        guard let permit else { return false }
        return !permit.isValid
    }

    private var mayProduce: Bool { pending.isEmpty && !isHeld }

    // MARK: Records

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        writer.removeAll()
        OutcomeEncoder.encode(outcome, into: &writer)
        put(
            outcomes, key: outcome.deviceToken, value: writer.bytes, opaque: source.opaque,
            partitionSlot: source.partitionSlot)
    }

    /// What is stored goes to other replicas as well.
    var hasChangelog: Bool { changelog != nil }

    /// Changes are committed together with outcomes and offsets.
    var isTransactional: Bool { transaction != nil }

    /// Nothing is produced until the next transaction begins.
    var isFrozen: Bool { transaction?.isFrozen == true }

    /// Says what the store has under a key, or (nil) that it has nothing any more.
    func change(
        _ partition: Int32, key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?, opaque: UInt,
        partitionSlot: UInt16
    ) {
        guard let changelog else { return }
        put(
            changelog, partition: partition, key: key, value: value, opaque: opaque,
            partitionSlot: partitionSlot)
    }

    private func put(
        _ topic: KafkaTopic, partition: Int32 = -1, key: UnsafeRawBufferPointer,
        value: UnsafeRawBufferPointer?, opaque: UInt, partitionSlot: UInt16
    ) {
        if hasEnded(partitionSlot) {
            if topic !== changelog { giveBack(partitionSlot, opaque) }
            return
        }
        if mayProduce {
            switch producer.produce(topic, key: key, value: value, opaque: opaque, partition: partition) {
            case .queued:
                return retain(
                    topic, partition, key: key, value: value, opaque: opaque, partitionSlot: partitionSlot)
            case .queueFull, .noTransaction: break
            case .failed(let error):
                return fail("a record for \(topic.name) can't be produced: \(error)", error)
            }
        }
        wait(
            Pending(
                topic: topic, partition: partition, key: Array(key), value: value.map { Array($0) },
                opaque: opaque, partitionSlot: partitionSlot))
    }

    private func retain(
        _ topic: KafkaTopic, _ partition: Int32, key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?,
        opaque: UInt, partitionSlot: UInt16
    ) {
        guard transaction != nil else { return }
        transaction!.produced += 1
        transaction!.retained.append(
            topic: topic === outcomes ? 0 : 1, partition: partition, key: key, value: value, opaque: opaque,
            partitionSlot: partitionSlot)
    }

    func deadLetter(_ record: JobRecord, error: JobError, source: OutcomeSource) {
        var headers: [(name: String, value: [UInt8]?)] = record.headers.compactMap { header in
            DeadLetter.isOwnHeader(header.name)
                ? nil : (String(decoding: header.name, as: UTF8.self), header.value.map { Array($0) })
        }
        headers += DeadLetter.headers(for: error, record: record).map { ($0.name, Optional($0.value)) }
        logger.debug(
            "not a job, dead-lettered",
            metadata: [
                "partition": "\(record.partition)", "offset": "\(record.offset)", "field": "\(error.field)",
                "rule": "\(error.rule.rawValue)",
            ])
        let letter = Pending(
            topic: deadLetters, key: record.key.map { Array($0) }, value: record.value.map { Array($0) },
            headers: headers, opaque: source.opaque, partitionSlot: source.partitionSlot)
        if hasEnded(source.partitionSlot) { return giveBack(source.partitionSlot, source.opaque) }
        guard mayProduce else { return wait(letter) }
        switch produce(letter) {
        case .queued: return
        case .queueFull, .noTransaction: wait(letter)
        case .failed(let error): fail("a dead letter can't be produced: \(error)", error)
        }
    }

    private func produce(_ letter: Pending) -> ProduceResult {
        var letter = letter
        if let reason = transaction?.omitsValues, letter.topic === deadLetters, letter.value != nil {
            letter.omitValue(reason)
        }
        var result = tryProduce(letter)
        if case .failed(let error) = result, letter.topic === deadLetters, letter.value != nil {
            // Larger with its headers than the producer takes: without its value it must fit.
            letter.omitValue(error.name)
            result = tryProduce(letter)
        }
        if case .queued = result, transaction != nil { retain(letter) }
        return result
    }

    private func retain(_ letter: Pending) {
        if letter.topic === deadLetters {
            transaction!.produced += 1
            return transaction!.retainedLetters.append(letter)
        }
        withBytes(letter.key) { key in
            withBytes(letter.value) { value in
                retain(
                    letter.topic, letter.partition, key: key ?? UnsafeRawBufferPointer(start: nil, count: 0),
                    value: value, opaque: letter.opaque, partitionSlot: letter.partitionSlot)
            }
        }
    }

    private func tryProduce(_ letter: Pending) -> ProduceResult {
        withBytes(letter.key) { key in
            withBytes(letter.value) { value in
                letter.headers.isEmpty
                    ? producer.produce(
                        letter.topic, key: key, value: value, opaque: letter.opaque,
                        partition: letter.partition)
                    : producer.produce(
                        letter.topic, key: key, value: value, headers: letter.headers, opaque: letter.opaque)
            }
        }
    }

    // MARK: Waiting

    private func wait(_ letter: Pending) {
        pending.append(letter)
        if !isHeld { armTimer() }
    }

    private func armTimer() {
        guard timer == nil else { return }
        timer = loop.schedule(after: .milliseconds(5), handler: self)
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        flushPending()
        if pending.isEmpty { resume() } else if !isHeld { armTimer() }
    }

    /// Produces what waits, as far as there is room.
    func flushPending() {
        guard !pending.isEmpty, !isHeld else { return producedIfEmpty() }
        var done = 0
        var refusesRecords = false
        loop: for letter in pending {
            switch produce(letter) {
            case .queued: done += 1
            case .queueFull: break loop
            case .noTransaction:
                refusesRecords = true
                break loop
            case .failed(let error):
                fail("a record for \(letter.topic.name) can't be produced: \(error)", error)
                break loop
            }
        }
        pending.removeFirst(done)
        producedIfEmpty()
        // The transaction can only be aborted: what waits is for the next one.
        if refusesRecords { freezeNow() }
    }

    /// Calls `body` when what another writer produces from then on comes after all that was written here so far: after an
    /// aborted transaction as well, when all is produced once more.
    func afterThis(_ body: @escaping () -> Void) {
        if transaction != nil {
            if transaction!.isFrozen {
                transaction!.whenNextCommitted.append(body)
            } else {
                transaction!.whenCommitted.append(body)
            }
        } else if pending.isEmpty {
            body()
        } else {
            whenProduced.append(body)
        }
    }

    private func producedIfEmpty() {
        freezeIfEmpty()
        guard pending.isEmpty, !whenProduced.isEmpty else { return }
        for body in exchange(&whenProduced, with: []) { body() }
    }

    /// What waits for this partition, which is lost, is for another to say. With transactions that is seen to when the open
    /// one is aborted.
    /// - Returns: how many jobs' outcomes that are.
    func abandon(partitionSlot: UInt16) -> Int {
        transaction == nil ? drop { $0.partitionSlot == partitionSlot } : 0
    }

    /// With transactions: an outcome counts only together with the offset of its partition, which has gone. What is open is
    /// committed or aborted with what was said so far, and nothing more is said.
    func end(partitionSlot: UInt16) {
        guard transaction != nil else { return }
        let (word, bit) = (Int(partitionSlot) / 64, UInt64(1) << (UInt64(partitionSlot) % 64))
        while transaction!.ended.count <= word { transaction!.ended.append(0) }
        transaction!.ended[word] |= bit
        for letter in pending where letter.partitionSlot == partitionSlot && letter.topic !== changelog {
            giveBack(partitionSlot, letter.opaque)
        }
        pending.removeAll { $0.partitionSlot == partitionSlot }
        freezeIfEmpty()
    }

    /// The slot is another partition's, or the same one's once more.
    func begin(partitionSlot: UInt16) {
        guard hasEnded(partitionSlot) else { return }
        transaction!.ended[Int(partitionSlot) / 64] &= ~(UInt64(1) << (UInt64(partitionSlot) % 64))
    }

    @inline(__always)
    private func hasEnded(_ partitionSlot: UInt16) -> Bool {
        let word = Int(partitionSlot) / 64
        guard transaction != nil, word < transaction!.ended.count else { return false }
        return transaction!.ended[word] & (UInt64(1) << (UInt64(partitionSlot) % 64)) != 0
    }

    private func giveBack(_ partitionSlot: UInt16, _ opaque: UInt) {
        if !OutcomeSource(opaque: opaque).isOffsetDone { gaveBack(partitionSlot) }
    }

    private func drop(_ isDropped: (Pending) -> Bool) -> Int {
        let jobs = pending.count {
            isDropped($0) && $0.topic !== changelog && !OutcomeSource(opaque: $0.opaque).isOffsetDone
        }
        pending.removeAll(where: isDropped)
        return jobs
    }

    // MARK: Transactions

    /// The transaction is about to end: nothing more is produced in it, as soon as all is that was written so far. What
    /// belongs together is written in one turn, and so is in one transaction. Then `done` is called with the number of
    /// records that this writer has produced in all transactions.
    ///
    /// - Parameter atOnce: the transaction is about to be aborted: what isn't produced yet waits for the next one.
    func freeze(atOnce: Bool, _ done: @escaping @Sendable (Int) -> Void) {
        transaction?.whenFrozen = done
        if atOnce { return freezeNow() }
        flushPending()
        if !pending.isEmpty { armTimer() }
    }

    /// Nothing more is produced.
    /// - Returns: how many records were produced in all transactions, and how many changes of the store never will be.
    func end() -> (produced: Int, changesLeft: Int) {
        if let timer { loop.cancel(timer) }
        timer = nil
        transaction?.isFrozen = true
        return (transaction?.produced ?? 0, pending.count { $0.topic === changelog })
    }

    private func freezeIfEmpty() {
        if pending.isEmpty { freezeNow() }
    }

    private func freezeNow() {
        guard let done = transaction?.whenFrozen else { return }
        transaction!.whenFrozen = nil
        transaction!.isFrozen = true
        done(transaction!.produced)
    }

    /// A transaction has begun.
    /// - Parameter repeating: nil: the one before was committed. Otherwise it was aborted, and what is of these partitions is
    ///   produced again, before anything newer.
    /// - Parameter omitsValues: why Kafka has refused dead letters with their values; nil: it hasn't.
    /// - Returns: how many jobs' outcomes that waited here will never be produced, as their partitions went away.
    func thaw(repeating: Set<UInt16>?, omitsValues: String?) -> Int {
        guard transaction != nil else { return 0 }
        var dropped = 0
        let committed = repeating == nil ? exchange(&transaction!.whenCommitted, with: []) : []
        transaction!.whenCommitted += exchange(&transaction!.whenNextCommitted, with: [])
        for body in committed { body() }
        if let repeating {
            let retained = transaction!.retained
            let again = retained.entries.filter { repeating.contains($0.partitionSlot) }.map { entry in
                Pending(
                    topic: entry.topic == 0 ? outcomes : changelog!, partition: entry.partition,
                    key: retained.key(entry), value: retained.value(entry), opaque: entry.opaque,
                    partitionSlot: entry.partitionSlot)
            }
            let letters = transaction!.retainedLetters.filter { repeating.contains($0.partitionSlot) }
            dropped = drop { !repeating.contains($0.partitionSlot) }
            pending = again + letters + pending
        }
        transaction!.retained.removeAll()
        transaction!.retainedLetters = []
        transaction!.omitsValues = omitsValues
        transaction!.isFrozen = false
        flushPending()
        if pending.isEmpty { resume() } else { armTimer() }
        return dropped
    }
}

func withBytes<Result>(_ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) -> Result) -> Result {
    guard let bytes else { return body(nil) }
    return bytes.withUnsafeBytes { body($0) }
}
