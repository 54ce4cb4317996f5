import Glibc
import Kafka
import Testing

/// Kafka for this module's tests: an embedded cluster for each, or the brokers of `SLUICE_TEST_BOOTSTRAP_SERVERS`.
/// Topics and groups have unique names.
final class KafkaTestBed {
    let cluster: EmbeddedCluster?
    let bootstrapServers: String
    let topic: String
    let partitions: Int
    let group: String

    static var realBrokers: String? { getenv("SLUICE_TEST_BOOTSTRAP_SERVERS").map { String(cString: $0) } }

    init(partitions: Int = 1, brokers: Int = 1) throws {
        let name = "sluice-test-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        topic = name
        group = "group-\(name)"
        self.partitions = partitions
        if let servers = Self.realBrokers {
            cluster = nil
            bootstrapServers = servers
            let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: servers))
            try admin.createTopics([NewTopic(name, partitions: partitions, replicationFactor: -1)])
        } else {
            let cluster = try EmbeddedCluster(brokers: brokers, topics: [(name, partitions)])
            self.cluster = cluster
            bootstrapServers = cluster.bootstrapServers
        }
    }

    deinit {
        guard cluster == nil else { return }
        let admin = try? KafkaAdmin(properties: KafkaProperties(bootstrapServers: bootstrapServers))
        try? admin?.deleteTopics([topic])
    }

    func properties(_ more: [(name: String, value: String)] = []) -> KafkaProperties {
        KafkaProperties(bootstrapServers: bootstrapServers).overridden(by: KafkaProperties(more))
    }

    func consumerProperties(_ more: [(name: String, value: String)] = []) -> KafkaProperties {
        properties([
            ("group.id", group), ("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "500"),
            ("fetch.wait.max.ms", "20"), ("fetch.error.backoff.ms", "20"),
        ]).overridden(by: KafkaProperties(more))
    }

    func producer(
        _ more: [(name: String, value: String)] = [],
        events: @escaping @Sendable (KafkaProducerEvent) -> Void = { _ in }
    ) throws -> KafkaProducer {
        try KafkaProducer(properties: properties([("linger.ms", "1")] + more), events: events)
    }

    func partition(_ number: Int32) -> TopicPartition { TopicPartition(topic, number) }

    /// Produces `values` to one partition, and waits until Kafka acknowledges them.
    func fill(_ partition: Int32 = 0, with values: [String]) throws {
        let producer = try producer()
        let handle = try producer.topic(topic)
        for value in values {
            let result = produce(producer, handle, value: value, partition: partition)
            guard case .queued = result else { throw TestFailure("not queued: \(result)") }
        }
        var failures: [KafkaError] = []
        try producer.flush(timeoutMilliseconds: 20_000) { if let error = $0.error { failures.append(error) } }
        #expect(failures.isEmpty)
    }
}

struct TestFailure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

@discardableResult
func produce(
    _ producer: KafkaProducer, _ topic: KafkaTopic, key: String? = nil, value: String?, opaque: UInt = 0,
    partition: Int32 = -1
) -> ProduceResult {
    withOptionalBytes(key) { key in
        withOptionalBytes(value) { value in
            producer.produce(topic, key: key, value: value, opaque: opaque, partition: partition)
        }
    }
}

func withOptionalBytes<Result>(_ text: String?, _ body: (UnsafeRawBufferPointer?) -> Result) -> Result {
    guard let text else { return body(nil) }
    return Array(text.utf8).withUnsafeBytes { body($0) }
}

/// A copy of a consumed record.
struct Received: Equatable {
    let topic: String
    let partition: Int32
    let offset: Int64
    let key: [UInt8]?
    let value: [UInt8]?
    let headers: [Header]

    struct Header: Equatable {
        let name: String
        let value: [UInt8]?
    }

    init(_ record: ConsumedRecord) {
        topic = String(decoding: record.topicName, as: UTF8.self)
        partition = record.partition
        offset = record.offset
        key = record.key.map { Array($0) }
        value = record.value.map { Array($0) }
        var headers: [Header] = []
        record.forEachHeader { name, value in
            headers.append(
                Header(name: String(decoding: name, as: UTF8.self), value: value.map { Array($0) }))
        }
        self.headers = headers
    }

    var text: String? { value.map { String(decoding: $0, as: UTF8.self) } }
}

/// A consumer that records its events and records.
final class Member {
    /// Rebalances are answered within the event, or by the test.
    enum Answers { case atOnce, byTest }

    private(set) var consumer: KafkaConsumer!
    private(set) var records: [Received] = []
    private(set) var assigned: [[TopicPartition]] = []
    private(set) var revoked: [[TopicPartition]] = []
    private(set) var lost: [[TopicPartition]] = []
    private(set) var commits: [CommitResult] = []
    private(set) var errors: [KafkaError] = []
    private(set) var partitionErrors: [(TopicPartition, KafkaError)] = []
    private(set) var statistics: [String] = []
    private(set) var log: [KafkaLogLine] = []
    private(set) var ends: [TopicPartition] = []
    var answers: Answers

    init(_ properties: KafkaProperties, topics: [String], answers: Answers = .atOnce) throws {
        self.answers = answers
        consumer = try KafkaConsumer(properties: properties, topics: topics) { [weak self] in self?.handle($0)
        }
    }

    private func handle(_ event: KafkaConsumerEvent) {
        switch event {
        case .assigned(let partitions):
            assigned.append(partitions)
            if answers == .atOnce {
                attempt { try consumer.assign(partitions.map { TopicPartitionOffset($0) }) }
            }
        case .revoked(let partitions):
            revoked.append(partitions)
            if answers == .atOnce { attempt { try consumer.unassign(partitions) } }
        case .lost(let partitions):
            lost.append(partitions)
            if answers == .atOnce { attempt { try consumer.unassign(partitions) } }
        case .committed(let result): commits.append(result)
        case .error(let error): errors.append(error)
        case .partitionError(let partition, let error): partitionErrors.append((partition, error))
        case .endOfPartition(let partition, _): ends.append(partition)
        case .statistics(let json): statistics.append(json)
        case .log(let line): log.append(line)
        }
    }

    private func attempt(_ body: () throws -> Void) {
        #expect(throws: Never.self) { try body() }
    }

    /// Polls once. Copies and frees the records.
    @discardableResult
    func poll(limit: Int = 100) -> Int {
        withUnsafeTemporaryAllocation(of: ConsumedRecord.self, capacity: limit) { buffer in
            let count = consumer.poll(into: buffer)
            for record in buffer[..<count] {
                records.append(Received(record))
                record.destroy()
            }
            return count
        }
    }
}
