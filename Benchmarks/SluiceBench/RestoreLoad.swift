import EventLoop
import Gateway
import Glibc
import Kafka
import Logging
import RetryStore
import SluiceModel
import Synchronization

/// Measures a worker that takes over all partitions of a changelog of held pushes, without a local copy.
struct RestoreLoad {
    var surroundings: WorkerSurroundings
    var settings: RetryStore.Settings
    var items: Int
    var partitions: Int

    private static let longestWait: Int64 = 120_000_000_000

    /// Fills the changelog and restores it.
    /// - Returns: Time and CPU time from the assignment until the last partition is restored, opening included.
    func run() throws -> (seconds: Double, cpuSeconds: Double) {
        try fill()
        var configuration = surroundings.configuration(connections: 1)
        // No transactions, because the embedded cluster only simulates them.
        configuration.store = .init(
            directory: settings.directory, cacheBytes: settings.blockCacheBytes,
            writeBufferBytes: settings.memtableBytes, changelog: .on, transactions: .off)
        let watch = RestoreWatch()
        let logger = Logger(label: "bench", factory: { _ in watch })
        let worker = try Worker(configuration: configuration, logger: logger)
        worker.start()
        let from = MonotonicTime.read()
        while watch.seen.restored < partitions,
            MonotonicTime.read().nanoseconds(since: from) < Self.longestWait
        {
            usleep(1000)
        }
        let seen = watch.seen
        // The estimate is exact without replaced or removed items.
        let stored = worker.store?.statistics().estimatedItems ?? 0
        worker.requestStop()
        _ = worker.waitUntilStopped()
        guard let begin = seen.begin, let end = seen.end, seen.restored == partitions else {
            throw LoadError(description: "\(seen.restored) of \(partitions) partitions are restored")
        }
        guard stored == items else {
            throw LoadError(description: "\(stored) of \(items) items are restored")
        }
        return (Double(end.time.nanoseconds(since: begin.time)) / 1e9, end.cpuSeconds - begin.cpuSeconds)
    }

    private func fill() throws {
        var properties = KafkaProperties(bootstrapServers: surroundings.bootstrapServers)
        // The embedded cluster keeps only 5 MB of a partition.
        properties["compression.type"] = "lz4"
        properties["linger.ms"] = "50"
        properties["batch.size"] = "1000000"
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic("sluice.changelog")
        let jobs = StoreJobs(items: items, partitions: partitions, hasher: IdentityHasher(key0: 1, key1: 2))
        var failure: KafkaError?
        for number in 0..<items {
            let identity = jobs.key(number)
            // A batch holds all of the few different payloads, so that lz4 finds the repetitions.
            jobs.withPush(number % 64, identity, attempts: 1) { push in
                var key = ByteWriter()
                var value = ByteWriter(minimumCapacity: 1024)
                ChangelogKey.item(offset: identity.offset, deviceToken: push.push.deviceToken).encode(
                    into: &key)
                _ = ChangelogKey.encode(push, due: jobs.due(number, state: 0), into: &value)
                while failure == nil {
                    let result = producer.produce(
                        topic, key: key.bytes, value: value.bytes, opaque: 0,
                        partition: Int32(identity.partition))
                    if case .queued = result { break }
                    if case .failed(let error) = result { failure = error }
                    producer.pollDeliveryReports(timeoutMilliseconds: 10) { failure = $0.error ?? failure }
                }
            }
            if number % 1000 == 0 { producer.pollDeliveryReports { failure = $0.error ?? failure } }
            if let failure { throw failure }
        }
        try producer.flush(timeoutMilliseconds: 120_000) { failure = $0.error ?? failure }
        producer.close()
        if let failure { throw failure }
    }
}

/// Reads the times of restoring from a worker's log.
private final class RestoreWatch: LogHandler, Sendable {
    struct Moment: Sendable {
        var time = MonotonicTime.read()
        var cpuSeconds = ProcessUsage.read().cpuSeconds
    }

    struct Seen: Sendable {
        var begin: Moment?
        var end: Moment?
        /// Number of restored partitions.
        var restored = 0
    }

    private let state = Mutex(Seen())

    var seen: Seen { state.withLock { $0 } }

    func log(event: LogEvent) {
        state.withLock { seen in
            if "\(event.message)".hasPrefix("restore of assigned partitions started") {
                seen.begin = seen.begin ?? Moment()
            } else if "\(event.message)" == "partition restored" {
                seen.end = Moment()
                seen.restored += 1
            }
        }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { nil }
        set {}
    }
    var metadata: Logger.Metadata {
        get { [:] }
        set {}
    }
    var logLevel: Logger.Level {
        get { .info }
        set {}
    }
}
