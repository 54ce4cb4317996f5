import CRdkafka
import Glibc

/// A topic to create.
public struct NewTopic: Sendable {
    public var name: String
    public var partitions: Int
    /// Copies per partition. -1: the broker's default (Kafka 2.4 or later).
    public var replicationFactor: Int
    /// Topic configuration, for example `cleanup.policy=compact`.
    public var configuration: [(name: String, value: String)]

    public init(
        _ name: String, partitions: Int, replicationFactor: Int = -1,
        configuration: [(name: String, value: String)] = []
    ) {
        self.name = name
        self.partitions = partitions
        self.replicationFactor = replicationFactor
        self.configuration = configuration
    }
}

/// Brokers and topics as the brokers report them.
public struct ClusterMetadata: Sendable {
    /// A broker of the cluster.
    public struct Broker: Sendable, Hashable {
        /// Kafka's number of the broker.
        public let identifier: Int32
        /// Name or address that the broker advertises.
        public let host: String
        public let port: Int32
    }

    /// A topic as the brokers report it.
    public struct Topic: Sendable {
        public let name: String
        public let partitionCount: Int
        /// Partitions without a leader now; records for them wait.
        public let leaderless: [Int32]
        /// Replicas of the partition with the fewest; 0 without a partition.
        public let replicas: Int
        /// Replicas in sync of the partition with the fewest; 0 without a partition.
        public let inSyncReplicas: Int
        /// Error of the topic, for example `UNKNOWN_TOPIC_OR_PART` or `TOPIC_AUTHORIZATION_FAILED`; nil without an
        /// error.
        public let error: KafkaError?
    }

    public let brokers: [Broker]
    public let topics: [Topic]
}

/// Creates and describes topics. Calls block until the brokers have answered or the time is over, so keep them off a
/// loop's thread. Any thread, one call at a time.
public final class KafkaAdmin {
    /// Result of creating a topic.
    public enum Creation: Sendable, Equatable {
        case created
        /// The topic existed before, with its own partitions and configuration.
        case alreadyExists
    }

    /// Client, freed in `deinit`; every other handle here lives within one call.
    let client: OpaquePointer
    let properties: KafkaProperties
    private let reports: ConnectionReports

    /// - Throws: an error that names the property that is missing, unknown or bad.
    public init(properties: KafkaProperties) throws(KafkaError) {
        self.properties = properties
        let configuration = try ClientConfiguration(.admin, properties)
        let reports = ConnectionReports()
        configuration.configure { reports.install(in: $0) }
        self.reports = reports
        client = try configuration.create()
    }

    deinit {
        // The client must not outlive the object that it reports to.
        let isDestroyed = withExtendedLifetime(reports) { ClientDestruction.destroy(client) }
        if !isDestroyed { _ = Unmanaged.passRetained(reports) }
    }

    /// Latest reasons for which connections failed, the latest last.
    public func connectionReasons() -> [String] {
        reports.collect(from: client)
        return reports.reasons
    }

    /// Creates topics; existing topics stay unchanged. Returns when every answering broker knows the topics, or the
    /// time is over. The controller's update reaches the brokers one after another. A broker without the update reports
    /// that there is no such topic.
    ///
    /// - Returns: result per topic, in the given order.
    /// - Throws: when a topic is refused, or the cluster has no topic administration (`sluice kafka` has none). Other
    ///   topics of the same call may have been created.
    @discardableResult
    public func createTopics(
        _ topics: [NewTopic], timeoutMilliseconds: Int32 = 15_000
    ) throws(KafkaError) -> [Creation] {
        guard !topics.isEmpty else { return [] }
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        var handles: [OpaquePointer?] = []
        defer { handles.forEach { rd_kafka_NewTopic_destroy($0) } }
        for topic in topics { handles.append(try Self.handle(for: topic)) }
        let event = try run(RD_KAFKA_ADMIN_OP_CREATETOPICS, "create topics", timeoutMilliseconds) {
            options, queue in
            rd_kafka_CreateTopics(client, &handles, handles.count, options, queue)
        }
        defer { rd_kafka_event_destroy(event) }
        var count = 0
        guard let answer = rd_kafka_event_CreateTopics_result(event),
            let results = rd_kafka_CreateTopics_result_topics(answer, &count)
        else { throw .system("create topics: librdkafka gave no result") }
        var outcome: [String: Creation] = [:]
        for result in UnsafeBufferPointer(start: results, count: count) {
            guard let result else { continue }
            let name = String(cString: rd_kafka_topic_result_name(result))
            switch rd_kafka_topic_result_error(result) {
            case RD_KAFKA_RESP_ERR_NO_ERROR: outcome[name] = .created
            case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS: outcome[name] = .alreadyExists
            case let code:
                let detail = rd_kafka_topic_result_error_string(result).map { String(cString: $0) }
                throw KafkaError(code, "create topic \"\(name)\"", detail: detail)
            }
        }
        try waitUntilKnown(topics.map(\.name), deadline)
        return topics.map { outcome[$0.name] ?? .created }
    }

    /// Adds partitions to a topic. Brokers learn of the partitions a little later.
    /// - Throws: when the topic already has as many, the cluster refuses, or the cluster has no topic administration.
    public func createPartitions(
        of topic: String, total: Int, timeoutMilliseconds: Int32 = 15_000
    ) throws(KafkaError) {
        let what = "extend topic \"\(topic)\" to \(total) partitions"
        var reason = [CChar](repeating: 0, count: 256)
        var handle = rd_kafka_NewPartitions_new(topic, total, &reason, reason.count)
        guard handle != nil else { throw .invalid("\(what): \(ClientConfiguration.text(reason))") }
        defer { rd_kafka_NewPartitions_destroy(handle) }
        let event = try run(RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, what, timeoutMilliseconds) { options, queue in
            rd_kafka_CreatePartitions(client, &handle, 1, options, queue)
        }
        defer { rd_kafka_event_destroy(event) }
        var count = 0
        guard let answer = rd_kafka_event_CreatePartitions_result(event),
            let results = rd_kafka_CreatePartitions_result_topics(answer, &count), count == 1,
            let result = results[0]
        else { throw .system("\(what): librdkafka gave no result") }
        let code = rd_kafka_topic_result_error(result)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(
                code, what, detail: rd_kafka_topic_result_error_string(result).map { String(cString: $0) })
        }
    }

    /// Deletes topics; topics that do not exist are skipped.
    public func deleteTopics(_ names: [String], timeoutMilliseconds: Int32 = 15_000) throws(KafkaError) {
        guard !names.isEmpty else { return }
        var handles = names.map { rd_kafka_DeleteTopic_new($0) }
        defer { handles.forEach { rd_kafka_DeleteTopic_destroy($0) } }
        let event = try run(RD_KAFKA_ADMIN_OP_DELETETOPICS, "delete topics", timeoutMilliseconds) {
            options, queue in
            rd_kafka_DeleteTopics(client, &handles, handles.count, options, queue)
        }
        defer { rd_kafka_event_destroy(event) }
        var count = 0
        guard let answer = rd_kafka_event_DeleteTopics_result(event),
            let results = rd_kafka_DeleteTopics_result_topics(answer, &count)
        else { return }
        for result in UnsafeBufferPointer(start: results, count: count) {
            guard let result else { continue }
            let code = rd_kafka_topic_result_error(result)
            guard code != RD_KAFKA_RESP_ERR_NO_ERROR, code != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART else {
                continue
            }
            throw KafkaError(code, "delete topic \"\(String(cString: rd_kafka_topic_result_name(result)))\"")
        }
    }

    /// Returns brokers and topics: all topics, or only the named topic. The query does not create a topic, except in an
    /// `EmbeddedCluster`.
    public func metadata(
        topic: String? = nil, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> ClusterMetadata {
        var handle: OpaquePointer?
        if let topic {
            handle = rd_kafka_topic_new(client, topic, nil)
            guard handle != nil else { throw KafkaError(rd_kafka_last_error(), "topic \"\(topic)\"") }
        }
        defer { if let handle { rd_kafka_topic_destroy(handle) } }
        var answer: UnsafePointer<rd_kafka_metadata>?
        let code = rd_kafka_metadata(client, topic == nil ? 1 : 0, handle, &answer, timeoutMilliseconds)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, let answer else {
            reports.collect(from: client)
            throw KafkaError(code, "read the cluster's metadata", detail: reports.explain(code))
        }
        defer { rd_kafka_metadata_destroy(answer) }
        return ClusterMetadata(answer.pointee)
    }

    /// Returns a topic's number of partitions; `nil` when the topic does not exist.
    public func partitionCount(
        of topic: String, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> Int? {
        let metadata = try metadata(topic: topic, timeoutMilliseconds: timeoutMilliseconds)
        guard let entry = metadata.topics.first(where: { $0.name == topic }) else { return nil }
        if let error = entry.error {
            if error.isUnknownTopic { return nil }
            throw error
        }
        return entry.partitionCount
    }

    /// Returns a partition's watermarks, queried from its leader.
    public func watermarks(
        of partition: TopicPartition, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> Watermarks {
        try logEnds(client, partition, timeoutMilliseconds)
    }

    private static func handle(for topic: NewTopic) throws(KafkaError) -> OpaquePointer? {
        var reason = [CChar](repeating: 0, count: 256)
        guard
            let handle = rd_kafka_NewTopic_new(
                topic.name, Int32(topic.partitions), Int32(topic.replicationFactor), &reason, reason.count)
        else { throw .invalid("create topic \"\(topic.name)\": \(ClientConfiguration.text(reason))") }
        for (name, value) in topic.configuration {
            let code = rd_kafka_NewTopic_set_config(handle, name, value)
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                rd_kafka_NewTopic_destroy(handle)
                throw KafkaError(code, "create topic \"\(topic.name)\": configuration \"\(name)\"")
            }
        }
        return handle
    }

    /// Sends an administrative request and waits for its event, which the caller destroys.
    func run(
        _ operation: rd_kafka_admin_op_t, _ what: String, _ timeoutMilliseconds: Int32,
        _ send: (_ options: OpaquePointer, _ queue: OpaquePointer) -> Void
    ) throws(KafkaError) -> OpaquePointer {
        try requireController(what, min(timeoutMilliseconds, 2_000))
        let options = rd_kafka_AdminOptions_new(client, operation)!
        let queue = rd_kafka_queue_new(client)!
        defer {
            rd_kafka_queue_destroy(queue)
            rd_kafka_AdminOptions_destroy(options)
        }
        _ = rd_kafka_AdminOptions_set_request_timeout(options, timeoutMilliseconds, nil, 0)
        _ = rd_kafka_AdminOptions_set_operation_timeout(options, timeoutMilliseconds, nil, 0)
        send(options, queue)
        guard let event = rd_kafka_queue_poll(queue, timeoutMilliseconds + 1_000) else {
            throw KafkaError(
                RD_KAFKA_RESP_ERR__TIMED_OUT, what, detail: "no answer within \(timeoutMilliseconds) ms")
        }
        let code = rd_kafka_event_error(event)
        guard code != RD_KAFKA_RESP_ERR_NO_ERROR else { return event }
        defer { rd_kafka_event_destroy(event) }
        throw KafkaError(code, what, detail: rd_kafka_event_error_string(event).map { String(cString: $0) })
    }

    /// Waits until the controller is one of the brokers, because the cluster's controller administers topics. The mock
    /// cluster of librdkafka names a controller that is none of its brokers. Without this check, clients of the mock
    /// would wait for the whole time, and report only a timeout.
    private func requireController(_ what: String, _ timeoutMilliseconds: Int32) throws(KafkaError) {
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        repeat {
            let brokers = try metadata(timeoutMilliseconds: max(1_000, timeoutMilliseconds)).brokers
            let controller = rd_kafka_controllerid(client, max(1, deadline.remainingMilliseconds))
            if brokers.contains(where: { $0.identifier == controller }) { return }
            usleep(50_000)
        } while !deadline.hasPassed
        throw KafkaError(
            RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, what,
            detail:
                "the brokers name no controller, so this cluster has no topic administration. The "
                + "embedded cluster of `sluice kafka` has no topic administration: name its topics and partitions at the "
                + "start. A Kafka cluster that is electing a controller has topic administration again soon")
    }
}

extension ClusterMetadata {
    init(_ metadata: rd_kafka_metadata) {
        brokers = UnsafeBufferPointer(start: metadata.brokers, count: Int(metadata.broker_cnt)).map {
            Broker(identifier: $0.id, host: String(cString: $0.host), port: $0.port)
        }
        topics = UnsafeBufferPointer(start: metadata.topics, count: Int(metadata.topic_cnt)).map { topic in
            let name = String(cString: topic.topic)
            let partitions = UnsafeBufferPointer(start: topic.partitions, count: Int(topic.partition_cnt))
            return Topic(
                name: name, partitionCount: partitions.count,
                leaderless: partitions.filter { $0.leader < 0 }.map(\.id),
                replicas: partitions.map { Int($0.replica_cnt) }.min() ?? 0,
                inSyncReplicas: partitions.map { Int($0.isr_cnt) }.min() ?? 0,
                error: topic.err == RD_KAFKA_RESP_ERR_NO_ERROR
                    ? nil : KafkaError(topic.err, "topic \"\(name)\""))
        }
    }
}
