import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel
import Synchronization

/// Reads partitions of the changelog into the store, on a thread of its own, before their jobs are taken.
// Sendable: all but the loop, the store and the counters is touched on the loop's thread alone.
final class ChangelogRestorer: @unchecked Sendable {
    /// What is to be restored, and from where.
    struct Start: Sendable {
        var handle: StorePartition
        /// Nil: from the beginning, into an empty partition.
        var position: Int64?
    }

    enum News: Sendable {
        /// All of it is in the store, up to this offset.
        case restored(Int32, position: Int64)
        /// The changelog has no record at the position any more: the partition has to begin anew.
        case outOfRange(Int32)
        /// It is tried again by itself, or (fatal) never.
        case failed(String, isFatal: Bool)
    }

    private let loop: EventLoop
    private let store: RetryStore
    private let topic: String
    private let properties: KafkaProperties
    private let logger: Logger
    private let news: @Sendable (News) -> Void

    private var reader: ChangelogReader?
    private var handles: [Int32: StorePartition] = [:]
    private var chunks: [Int32: ChangelogChunk] = [:]
    private let batch = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 1024)
    private var isStepping = false
    private var told: MonotonicTime
    /// Chunks on their way into the store.
    private let underWay = Atomic<Int>(0)
    /// Records restored since the start.
    let restored = Atomic<Int>(0)
    /// Records that are still to be read.
    let remaining = Atomic<Int>(0)

    private static let chunkBytes = 1 << 20
    private static let chunkRecords = 8192
    private static let mostChunks = 4

    init(
        store: RetryStore, topic: String, properties: KafkaProperties, logger: Logger,
        news: @escaping @Sendable (News) -> Void
    ) throws(SystemError) {
        self.store = store
        self.topic = topic
        self.properties = properties
        self.logger = logger
        self.news = news
        loop = try EventLoop(name: "restore")
        told = loop.now
        loop.start()
    }

    deinit { batch.deallocate() }

    /// Reads these partitions as well. Any thread.
    func restore(_ starts: [Start]) {
        loop.execute { [self] in begin(starts) }
    }

    /// Forgets partitions that were taken away. Any thread.
    func cancel(_ partitions: [Int32]) {
        loop.execute { [self] in
            for partition in partitions { forget(partition) }
            try? reader?.stop(partitions.map { TopicPartition(topic, $0) })
        }
    }

    /// Ends the thread.
    func close() {
        loop.execute { [self] in
            handles = [:]
            reader?.close()
            reader = nil
        }
        loop.stop()
        loop.join()
    }

    // MARK: On the thread

    private func forget(_ partition: Int32) {
        handles[partition] = nil
        _ = chunks.removeValue(forKey: partition)
    }

    private func begin(_ starts: [Start]) {
        for start in starts { handles[start.handle.number] = start.handle }
        do throws(KafkaError) {
            if reader == nil {
                reader = try ChangelogReader(properties: properties) { [unowned self] in handle($0) }
            }
            try reader!.read(
                starts.map { start in
                    TopicPartitionOffset(
                        TopicPartition(topic, start.handle.number),
                        start.position.map { .offset($0) } ?? .beginning)
                })
        } catch {
            for start in starts { forget(start.handle.number) }
            return news(.failed("reading the changelog: \(error)", isFatal: true))
        }
        if !isStepping { step() }
    }

    private func step() {
        isStepping = false
        guard let reader, !handles.isEmpty else { return }
        let hasRoom = underWay.load(ordering: .relaxed) < Self.mostChunks
        let count = hasRoom ? reader.poll(into: batch, timeoutMilliseconds: 50) : 0
        for index in 0..<count {
            take(batch[index])
            batch[index].destroy()
        }
        remaining.store(reader.progress.reduce(0) { $0 + Int($1.remaining) }, ordering: .relaxed)
        tellProgress()
        guard !handles.isEmpty else { return }
        isStepping = true
        if hasRoom {
            loop.execute { [self] in step() }
        } else {
            loop.schedule(after: .milliseconds(1), handler: StepTimer { [self] in step() })
        }
    }

    private func take(_ record: ConsumedRecord) {
        let partition = record.partition
        guard handles[partition] != nil else { return }
        var chunk = chunks.removeValue(forKey: partition) ?? ChangelogChunk(hasher: store.hasher)
        chunk.append(key: record.key, value: record.value)
        if chunk.bytes >= Self.chunkBytes || chunk.count >= Self.chunkRecords {
            submit(chunk, partition) {}
        } else {
            chunks[partition] = chunk
        }
    }

    private func submit(
        _ chunk: consuming ChangelogChunk, _ partition: Int32, then: @escaping @Sendable () -> Void
    ) {
        guard let handle = handles[partition] else { return }
        let count = chunk.count
        if chunk.unknown > 0 {
            logger.warning(
                "records of the changelog that aren't the store's are left out",
                metadata: ["partition": "\(partition)", "records": "\(chunk.unknown)"])
        }
        underWay.add(1, ordering: .relaxed)
        store.restore(handle, chunk) { [self] error in
            underWay.subtract(1, ordering: .relaxed)
            restored.add(count, ordering: .relaxed)
            if let error { return news(.failed("restoring from the changelog: \(error)", isFatal: true)) }
            then()
        }
    }

    private func handle(_ event: ChangelogEvent) {
        switch event {
        case .complete(let progress):
            // The last records are handed over by the same poll: after it.
            loop.execute { [self] in complete(progress) }
        case .waitingForTransaction(let progress):
            logger.info(
                "waiting for a transaction to end in the changelog",
                metadata: ["partition": "\(progress.topicPartition.partition)"])
        case .outOfRange(let progress, _):
            forget(progress.topicPartition.partition)
            news(.outOfRange(progress.topicPartition.partition))
        case .failed(let partition, let error):
            forget(partition.partition)
            news(.failed("the changelog's partition \(partition.partition): \(error)", isFatal: true))
        case .partitionError(let partition, let error):
            news(.failed("the changelog's partition \(partition.partition): \(error)", isFatal: false))
        case .client(.error(let error)): news(.failed("\(error)", isFatal: error.isFatal))
        case .client: break
        }
    }

    private func complete(_ progress: ChangelogProgress) {
        let partition = progress.topicPartition.partition
        guard handles[partition] != nil else { return }
        let chunk = chunks.removeValue(forKey: partition) ?? ChangelogChunk(hasher: store.hasher)
        let (news, position) = (news, progress.position)
        submit(chunk, partition) { news(.restored(partition, position: position)) }
        handles[partition] = nil
    }

    private func tellProgress() {
        guard loop.now >= told + .seconds(5) else { return }
        told = loop.now
        logger.info(
            "restoring from the changelog",
            metadata: [
                "partitions": "\(handles.count)", "restored": "\(restored.load(ordering: .relaxed))",
                "remaining": "\(remaining.load(ordering: .relaxed))",
            ])
    }
}

private final class StepTimer: TimerHandler {
    private let body: () -> Void
    init(_ body: @escaping () -> Void) { self.body = body }
    func timerFired(_ timer: TimerID) { body() }
}
