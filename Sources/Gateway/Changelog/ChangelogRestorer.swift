import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel
import StoreEncryption
import Synchronization

/// Reads partitions of the changelog into the store, on its own thread, before their jobs are taken.
// Sendable: only the loop's thread touches the restorer, except for the loop, the store and the counters.
final class ChangelogRestorer: @unchecked Sendable {
    /// A partition to restore, and the position to restore it from.
    struct Start: Sendable {
        var handle: StorePartition
        /// Nil to restore from the beginning, into an empty partition.
        var position: Int64?
    }

    enum Report: Sendable {
        /// The store has all records of the partition up to this offset.
        case restored(StorePartition, position: Int64)
        /// The changelog no longer has a record at the position, so the partition has to begin anew.
        case outOfRange(Int32)
        /// Kafka doesn't answer for the partition, which is to be restored again later.
        case interrupted(Int32, KafkaError)
        /// A failure that is retried by itself.
        case troubled(KafkaError, String)
        /// Kafka can't be used; without an error, the store can't be used.
        case failed(String, KafkaError?)
    }

    private let loop: EventLoop
    /// Loop that waits for Kafka's answers, so that partitions continue while another is asked for.
    private let questions: EventLoop
    private let store: RetryStore
    private let topic: String
    private let properties: KafkaProperties
    private let logger: Logger
    /// Log of what can repeat.
    private let notices: NoticeLog
    /// Extends the changelog. Blocks.
    private let extend: @Sendable () -> Void
    /// Reads the store's keys anew, because a value has a key that the store lacks. Blocks.
    private let renewKeys: @Sendable () -> Void
    private let news: @Sendable (Report) -> Void

    /// A partition whose records are read.
    private final class Restoring {
        let handle: StorePartition
        /// Expected count of records, for a partition that began empty; nil otherwise.
        var expected: Int?
        /// Filter of keys, from the first record on, for a partition that began empty; nil otherwise.
        var keys: RestoreFilter?
        /// Records that wait to be handed over; nil when there are none.
        var chunk: ChangelogChunk?
        /// Items whose values can't be read so far.
        var locked: LockedRecords
        /// Whether the keys were read anew for this partition.
        var hasRenewedKeys = false

        init(_ handle: StorePartition, _ store: RetryStore) {
            self.handle = handle
            locked = LockedRecords(hasher: store.hasher)
        }
    }

    private var reader: ChangelogReader?
    private var restoring: [Int32: Restoring] = [:]
    /// Chunks that keep their memory from the last use, because fresh memory costs a tenth of the time.
    private var spare: [ChangelogChunk] = []
    private let batch = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 1024)
    /// Has the keys of the values, and encrypts the devices' tokens; nil: encryption is off.
    private var cipher: ValueCipher?
    private var isStepping = false
    private var progressReportedAt: MonotonicTime
    /// Chunks on their way into the store.
    private let underWay = Atomic<Int>(0)
    /// Records restored since the start.
    let restored = Atomic<Int>(0)
    /// Records of the changelog that were skipped, because they aren't the store's.
    let skipped = Atomic<Int>(0)
    /// Records that are still to be read.
    let remaining = Atomic<Int>(0)

    /// Milliseconds to wait for the ends of partitions.
    private static let patienceMilliseconds: Int32 = 5_000
    private static let chunkBytes = 1 << 20
    private static let chunkRecords = 8192
    private static let mostChunks = 4
    /// Most bytes of a partition's key filter: ten bits each for 3.3 million items. The reader has at most
    /// sixteen partitions assigned at once.
    private static let mostKeyBytes = 4 << 20

    init(
        store: RetryStore, topic: String, properties: KafkaProperties, logger: Logger,
        extend: @escaping @Sendable () -> Void, renewKeys: @escaping @Sendable () -> Void = {},
        news: @escaping @Sendable (Report) -> Void
    ) throws(SystemError) {
        self.store = store
        self.topic = topic
        self.properties = properties
        self.logger = logger
        self.extend = extend
        self.renewKeys = renewKeys
        self.news = news
        do throws(CipherFailure) {
            if let keyring = store.keyring { cipher = try ValueCipher(keyring) }
        } catch {
            throw SystemError(error)
        }
        loop = try EventLoop(name: "restore")
        notices = NoticeLog(loop: loop, logger: logger)
        questions = try EventLoop(name: "changelog ends")
        progressReportedAt = loop.now
        loop.start()
        questions.start()
    }

    deinit { batch.deallocate() }

    /// Adds these partitions to those being restored. Any thread.
    func restore(_ starts: [Start]) {
        loop.execute { [self] in
            for start in starts { restoring[start.handle.number] = Restoring(start.handle, store) }
            questions.execute { [self] in ask(starts) }
        }
    }

    /// Extends the changelog to as many partitions as the jobs topic has, where that is allowed. Any thread.
    func extendChangelog() { questions.execute(extend) }

    /// Forgets revoked partitions. Any thread.
    func cancel(_ partitions: [Int32]) {
        loop.execute { [self] in
            for partition in partitions { forget(partition) }
            try? reader?.stop(partitions.map { TopicPartition(topic, $0) })
        }
    }

    /// Uses other keys of the store from now on. Any thread.
    func use(_ keyring: StoreKeyring) {
        loop.execute { [self] in take(keyring) }
    }

    /// Ends the thread.
    func close() {
        loop.execute { [self] in
            (restoring, spare) = ([:], [])
            reader?.close()
            reader = nil
        }
        for loop in [loop, questions] {
            loop.stop()
            loop.join()
        }
        notices.end()
    }

    // MARK: On the thread

    private func forget(_ partition: Int32) {
        restoring[partition] = nil
        if restoring.isEmpty { spare = [] }
    }

    /// Asks Kafka for the ends of partitions. Thread of the questions only.
    private func ask(_ starts: [Start]) {
        let result: Result<[TopicPartition: Result<Watermarks, KafkaError>], KafkaError>
        do throws(KafkaError) {
            result = .success(
                try ChangelogReader.ends(
                    of: starts.map { TopicPartition(topic, $0.handle.number) }, properties: properties,
                    timeoutMilliseconds: Self.patienceMilliseconds))
        } catch {
            result = .failure(error)
        }
        loop.execute { [self] in beginRestore(starts, result) }
    }

    private func beginRestore(
        _ starts: [Start], _ ends: Result<[TopicPartition: Result<Watermarks, KafkaError>], KafkaError>
    ) {
        // Partitions revoked meanwhile are left out. Another call asks for partitions that were assigned again.
        let starts = starts.filter { current($0.handle) != nil }
        guard !starts.isEmpty else { return }
        do throws(KafkaError) {
            if reader == nil {
                reader = try ChangelogReader(properties: properties) { [weak self] in self?.handle($0) }
            }
            try reader!.read(
                starts.map { start in
                    TopicPartitionOffset(
                        TopicPartition(topic, start.handle.number),
                        start.position.map { .offset($0) } ?? .beginning)
                }, ends: try ends.get())
        } catch {
            for start in starts { forget(start.handle.number) }
            return news(.failed("the changelog \"\(topic)\" can't be read: \(error)", error))
        }
        for start in starts where start.position == nil {
            let progress = reader?.progress(of: TopicPartition(topic, start.handle.number))
            restoring[start.handle.number]?.expected = progress.map { Int($0.remaining) }
        }
        if !isStepping { step() }
    }

    private func step() {
        isStepping = false
        guard let reader, !restoring.isEmpty else { return }
        let hasRoom = underWay.load(ordering: .relaxed) < Self.mostChunks
        let count = hasRoom ? reader.poll(into: batch, timeoutMilliseconds: 50) : 0
        for index in 0..<count {
            accept(batch[index])
            batch[index].destroy()
        }
        remaining.store(Int(reader.remaining), ordering: .relaxed)
        reportProgress()
        guard !restoring.isEmpty else { return }
        isStepping = true
        if hasRoom {
            loop.execute { [self] in step() }
        } else {
            loop.schedule(after: .milliseconds(1), handler: StepTimer { [self] in step() })
        }
    }

    private func accept(_ record: ConsumedRecord) {
        guard let target = restoring[record.partition] else { return }
        let chunk = target.chunk ?? makeChunk(target.handle)
        target.chunk = chunk
        if target.keys == nil, let expected = target.expected {
            target.keys = RestoreFilter(records: expected, mostBytes: Self.mostKeyBytes)
        }
        target.locked.note(record.key, offset: record.offset, missingKey(of: record, target))
        guard !target.locked.isFull else {
            endLocked(target)
            return
        }
        chunk.append(
            key: record.key, value: record.value, among: &target.keys,
            cipher: cipher?.keyring.encrypts == true ? cipher : nil)
        if let failure = chunk.failure { return end(target, "\(failure)") }
        if chunk.bytes >= Self.chunkBytes || chunk.count >= Self.chunkRecords { submit(target) {} }
    }

    /// Returns the fault of a value whose key is missing. Reads the keys anew at the partition's first fault, because
    /// another worker may have got the key earlier.
    private func missingKey(of record: ConsumedRecord, _ target: Restoring) -> SealedValueError? {
        let fault = ChangelogKey.missingKey(of: record.key, record.value, with: cipher?.keyring)
        guard fault != nil, !target.hasRenewedKeys else { return fault }
        target.hasRenewedKeys = true
        renewKeys()
        if let keyring = store.keyring { take(keyring) }
        return ChangelogKey.missingKey(of: record.key, record.value, with: cipher?.keyring)
    }

    /// Gives a partition up if the latest value of an item can't be read. Returns false when all can be read.
    @discardableResult
    private func endLocked(_ target: Restoring) -> Bool {
        guard let first = target.locked.first else { return false }
        end(
            target,
            "\(target.locked.count) \(target.locked.count == 1 ? "value" : "values") can't be read, the first at offset \(first.offset): \(first.fault)"
        )
        return true
    }

    private func take(_ keyring: StoreKeyring) {
        do throws(CipherFailure) {
            cipher = try ValueCipher(keyring)
        } catch {
            news(.failed("the store's keys can't be used: \(error)", nil))
        }
    }

    /// Gives a partition up, which ends the worker. Nothing of the changelog is lost.
    private func end(_ target: Restoring, _ reason: String) {
        forget(target.handle.number)
        news(
            .failed("partition \(target.handle.number) of the changelog \"\(topic)\": \(reason)", nil))
    }

    private func makeChunk(_ handle: StorePartition) -> ChangelogChunk {
        let chunk = spare.popLast() ?? ChangelogChunk(of: store)
        chunk.begin(handle)
        return chunk
    }

    private func submit(_ source: Restoring, then: @escaping @Sendable () -> Void) {
        let chunk = source.chunk ?? makeChunk(source.handle)
        source.chunk = nil
        if chunk.unknown > 0 {
            skipped.add(chunk.unknown, ordering: .relaxed)
            notices.log(
                .warning, .recordsSkipped, of: Int(source.handle.number),
                "changelog records that are not the store's, or states of devices that can't be read, are skipped",
                metadata: ["partition": "\(source.handle.number)", "records": "\(chunk.unknown)"])
        }
        underWay.add(1, ordering: .relaxed)
        store.restore(chunk) { [self] error in
            underWay.subtract(1, ordering: .relaxed)
            restored.add(chunk.count, ordering: .relaxed)
            chunk.begin(nil)
            loop.execute { [self] in recycle(chunk) }
            if let error {
                return news(.failed("restoring from the changelog \"\(topic)\" failed: \(error)", nil))
            }
            then()
        }
    }

    private func recycle(_ chunk: ChangelogChunk) {
        if !restoring.isEmpty, spare.count < Self.mostChunks { spare.append(chunk) }
    }

    private func handle(_ event: ChangelogEvent) {
        switch event {
        case .complete(let progress):
            guard let handle = restoring[progress.topicPartition.partition]?.handle else { return }
            // The same poll hands over the last records, so completion follows the poll.
            loop.execute { [self] in complete(handle, position: progress.position) }
        case .waitingForTransaction(let progress):
            if let handle = restoring[progress.topicPartition.partition]?.handle {
                loop.execute { [self] in submitWaiting(handle) }
            }
            notices.log(
                .info, .restoreWaits, of: Int(progress.topicPartition.partition),
                "restore waits until an open transaction in the changelog ends",
                metadata: ["partition": "\(progress.topicPartition.partition)"])
        case .outOfRange(let progress, _):
            forget(progress.topicPartition.partition)
            news(.outOfRange(progress.topicPartition.partition))
        case .failed(let partition, let error):
            forget(partition.partition)
            if error.isMendedByStartingOver { return news(.interrupted(partition.partition, error)) }
            news(
                .failed(
                    "partition \(partition.partition) of the changelog \"\(topic)\" can't be read: \(error)",
                    error))
        case .partitionError(let partition, let error): news(.troubled(error, "\(partition)"))
        case .client(.error(let error)) where error.isFatal:
            news(.failed("the changelog \"\(topic)\" can't be read: \(error)", error))
        case .client(.error(let error)): news(.troubled(error, topic))
        case .client: break
        }
    }

    /// Returns the partition being restored; nil when it was revoked meanwhile, even if it was assigned again.
    private func current(_ handle: StorePartition) -> Restoring? {
        restoring[handle.number].flatMap { $0.handle === handle ? $0 : nil }
    }

    private func complete(_ handle: StorePartition, position: Int64) {
        guard let ended = current(handle), !endLocked(ended) else { return }
        submit(ended) { [news] in news(.restored(handle, position: position)) }
        forget(handle.number)
    }

    /// Submits a partition's chunk, because other partitions can use its memory meanwhile.
    private func submitWaiting(_ handle: StorePartition) {
        guard let waiting = current(handle), waiting.chunk != nil else { return }
        submit(waiting) {}
    }

    private func reportProgress() {
        guard loop.now >= progressReportedAt + .seconds(5) else { return }
        progressReportedAt = loop.now
        logger.info(
            "restore from the changelog is in progress",
            metadata: [
                "partitions": "\(restoring.count)", "restored": "\(restored.load(ordering: .relaxed))",
                "remaining": "\(remaining.load(ordering: .relaxed))",
            ])
    }
}

private final class StepTimer: TimerHandler {
    private let body: () -> Void
    init(_ body: @escaping () -> Void) { self.body = body }
    func timerFired(_ timer: TimerID) { body() }
}
