import Foundation
import Kafka
import SluiceModel
import TestSupport

/// The Kafka of a test: `sluice kafka` as its own process, or the brokers that `SLUICE_TEST_BOOTSTRAP_SERVERS` names.
/// Topics and groups have unique names, so that tests don't interfere.
public final class TestKafka {
    public let bootstrapServers: String
    public let suffix: String
    private let cluster: ChildProcess?
    /// The embedded cluster of a test that injects failures; nil for all other tests.
    public let embedded: EmbeddedCluster?
    private let topics: [String]

    public static var realBrokers: String? {
        ProcessInfo.processInfo.environment["SLUICE_TEST_BOOTSTRAP_SERVERS"]
    }

    /// A program that controls broker N of 1 to 3 of ``realBrokers``: `kill N`, `startone N`, `pause N`, `resume N`.
    /// Nil: the brokers can't be controlled.
    public static var brokerCommand: String? {
        realBrokers == nil ? nil : ProcessInfo.processInfo.environment["SLUICE_TEST_BROKER_COMMAND"]
    }

    /// - Parameters:
    ///   - topics: base names with their partitions; ``topic(_:)`` returns the real names. `changelog`, `switches` and
    ///     ledgers are compacted on real brokers.
    ///   - isOwn: excludes the brokers of the environment, for a test that suspends Kafka.
    public init(_ topics: [(name: String, partitions: Int)], isOwn: Bool = false) throws {
        let suffix = String(UInt64.random(in: .min ... .max), radix: 36)
        self.suffix = suffix
        self.topics = topics.map { "\($0.name)-\(suffix)" }
        embedded = nil
        if !isOwn, let brokers = Self.realBrokers {
            bootstrapServers = brokers
            cluster = nil
            let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: brokers))
            try admin.createTopics(
                topics.map {
                    NewTopic(
                        "\($0.name)-\(suffix)", partitions: $0.partitions,
                        configuration: ["changelog", "switches"].contains($0.name)
                            || $0.name.hasSuffix("ledger")
                            ? [(name: "cleanup.policy", value: "compact")] : [])
                })
            return
        }
        let directory = try TemporaryDirectory("kafka")
        let cluster = try ChildProcess(
            Executables.sluice,
            ["kafka", "--port", "0", "--stop-with-input", "--ready-file", directory.file("ready")]
                + topics.flatMap { ["--topic", "\($0.name)-\(suffix):\($0.partitions)"] })
        try cluster.waits(for: "the embedded cluster is ready") { directory.read("ready") != nil }
        bootstrapServers = (directory.read("ready") ?? "").trimmingCharacters(in: .whitespacesAndNewlines)
        self.cluster = cluster
    }

    /// An embedded cluster in this process, which can inject failures. Excludes the brokers of the environment.
    public init(embedding topics: [(name: String, partitions: Int)]) throws {
        let suffix = String(UInt64.random(in: .min ... .max), radix: 36)
        self.suffix = suffix
        self.topics = topics.map { "\($0.name)-\(suffix)" }
        let embedded = try EmbeddedCluster(
            brokers: 1, topics: topics.map { ("\($0.name)-\(suffix)", $0.partitions) })
        self.embedded = embedded
        bootstrapServers = embedded.bootstrapServers
        cluster = nil
    }

    deinit {
        guard cluster == nil, embedded == nil else { return }
        let admin = try? KafkaAdmin(properties: KafkaProperties(bootstrapServers: bootstrapServers))
        try? admin?.deleteTopics(topics)
    }

    public func topic(_ name: String) -> String { "\(name)-\(suffix)" }

    /// The group of the test's workers.
    public var group: String { "workers-\(suffix)" }

    /// Stops Kafka's process, which answers nothing from now on. The cluster must be the test's own.
    public func suspend() {
        precondition(cluster != nil, "other tests need these brokers")
        cluster?.suspend()
    }

    /// Lets a suspended Kafka answer again. The cluster must be the test's own.
    public func resume() { cluster?.signal(SIGCONT) }

    /// Kills Kafka's process for good, suspended or not. The cluster must be the test's own.
    public func kill() throws {
        precondition(cluster != nil, "other tests need these brokers")
        cluster?.signal(SIGKILL)
        try cluster?.wait()
    }

    /// Bytes that clients have sent to Kafka's process and that it has not read: the evidence that a suspended Kafka owes
    /// an answer. Reads the system's tables. 0 for real brokers.
    public var unreadBytes: Int {
        // Foundation's readers by path take one page of such a file.
        guard let cluster, let file = FileHandle(forReadingAtPath: "/proc/net/tcp"),
            let bytes = try? file.readToEnd()
        else { return 0 }
        let table = String(decoding: bytes, as: UTF8.self)
        let files = "/proc/\(cluster.identifier)/fd"
        let sockets = Set(
            ((try? FileManager.default.contentsOfDirectory(atPath: files)) ?? []).compactMap {
                try? FileManager.default.destinationOfSymbolicLink(atPath: "\(files)/\($0)")
            })
        return table.split(separator: "\n").dropFirst().reduce(0) { sum, line in
            // Number, addresses, state (0A: listens), "tx_queue:rx_queue", timers, retransmits, user, timeout, inode.
            let fields = line.split(separator: " ", omittingEmptySubsequences: true)
            guard fields.count > 9, fields[3] != "0A", sockets.contains("socket:[\(fields[9])]"),
                let unread = fields[4].split(separator: ":").last
            else { return sum }
            return sum + (Int(unread, radix: 16) ?? 0)
        }
    }

    /// Properties of a client with short waits.
    public var clientProperties: KafkaProperties {
        var properties = KafkaProperties(bootstrapServers: bootstrapServers)
        properties["group.id"] = "reader-\(suffix)"
        properties["fetch.wait.max.ms"] = "10"
        return properties
    }

    /// Produces records and waits until Kafka has them.
    public func produce(to topic: String, _ records: [NewRecord]) throws {
        let producer = try KafkaProducer(properties: KafkaProperties(bootstrapServers: bootstrapServers))
        let handle = try producer.topic(self.topic(topic))
        var failed: [KafkaError] = []
        for record in records {
            while true {
                let result = Self.withBytes(record.key) { key in
                    Self.withBytes(record.value) { value in
                        producer.produce(
                            handle, key: key, value: value, headers: record.headers, opaque: 0,
                            partition: record.partition)
                    }
                }
                if case .queued = result { break }
                if case .failed(let error) = result { throw error }
                producer.pollDeliveryReports(timeoutMilliseconds: 20) {
                    if let error = $0.error { failed.append(error) }
                }
            }
        }
        try producer.flush(timeoutMilliseconds: 60_000) { if let error = $0.error { failed.append(error) } }
        producer.close()
        if let error = failed.first { throw error }
    }

    private static func withBytes<Result>(
        _ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) throws -> Result
    ) rethrows -> Result {
        guard let bytes else { return try body(nil) }
        return try bytes.withUnsafeBytes { try body($0) }
    }

    /// Returns the sum of the offsets that a group has committed for a topic.
    public func committed(group: String, topic: String, partitions: Int) throws -> Int64 {
        var properties = clientProperties
        properties["group.id"] = group
        let consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
        defer { consumer.close() }
        let offsets = try consumer.committed(
            (0..<Int32(partitions)).map { TopicPartition(self.topic(topic), $0) })
        return offsets.reduce(0) { $0 + ($1.offset ?? 0) }
    }
}

/// A record to produce.
public struct NewRecord: Sendable {
    public var key: [UInt8]?
    public var value: [UInt8]?
    public var headers: [(name: String, value: [UInt8]?)]
    /// -1 leaves the choice to the partitioner.
    public var partition: Int32 = -1

    public init(
        key: String? = nil, value: String? = nil, headers: [(name: String, value: String?)] = [],
        partition: Int32 = -1
    ) {
        self.key = key.map { Array($0.utf8) }
        self.value = value.map { Array($0.utf8) }
        self.headers = headers.map { ($0.name, $0.value.map { Array($0.utf8) }) }
        self.partition = partition
    }

    public init(_ job: EncodedJob) {
        key = job.key
        value = job.value
        headers = job.headers.map { ($0.name, $0.value) }
    }
}

/// A copy of a consumed record.
public struct ReadRecord: Sendable {
    public var key: [UInt8]?
    public var value: [UInt8]?
    public var headers: [(name: String, value: [UInt8]?)] = []
    public var partition: Int32
    public var offset: Int64

    public var keyText: String? { key.map { String(decoding: $0, as: UTF8.self) } }
    public var valueText: String? { value.map { String(decoding: $0, as: UTF8.self) } }

    /// The text of the last header of that name.
    public func header(_ name: String) -> String? {
        headers.last { $0.name == name }?.value.map { String(decoding: $0, as: UTF8.self) }
    }
}

/// Reads a topic from its beginning.
public final class TopicReader {
    private let consumer: KafkaConsumer
    private let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 1000)
    public private(set) var records: [ReadRecord] = []
    private let ends: Ends

    /// Partitions that were read to their ends, which the events of a poll add.
    private final class Ends {
        var partitions: Set<Int32> = []
    }

    public init(_ kafka: TestKafka, _ topic: String, partitions: Int) throws {
        var properties = kafka.clientProperties
        properties["enable.partition.eof"] = "true"
        let ends = Ends()
        self.ends = ends
        consumer = try KafkaConsumer(properties: properties, topics: []) { event in
            if case .endOfPartition(let partition, _) = event { ends.partitions.insert(partition.partition) }
        }
        // Not `.beginning`: librdkafka 2.0.2 would ask for its offset, and a broker may not know the new topic yet.
        // Then `rd_kafka_destroy` may not return (librdkafka's issue 3470).
        try consumer.assign(
            (0..<Int32(partitions)).map {
                TopicPartitionOffset(topic: kafka.topic(topic), partition: $0, start: .offset(0))
            })
    }

    deinit {
        consumer.close()
        buffer.deallocate()
    }

    /// Number of partitions that were read to their ends at least once. Offsets count no records: transactions take some.
    public var endedCount: Int { ends.partitions.count }

    /// Appends new records to ``records``.
    public func poll() {
        let count = consumer.poll(into: buffer, timeoutMilliseconds: 20)
        for index in 0..<count {
            let record = buffer[index]
            var copy = ReadRecord(
                key: record.key.map { Array($0) }, value: record.value.map { Array($0) },
                partition: record.partition,
                offset: record.offset)
            record.forEachHeader { name, value in
                copy.headers.append((String(decoding: name, as: UTF8.self), value.map { Array($0) }))
            }
            records.append(copy)
            record.destroy()
        }
    }
}
