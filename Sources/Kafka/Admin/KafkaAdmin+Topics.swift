import CRdkafka
import Glibc

extension KafkaAdmin {
    /// Returns the configuration of topics, defaults included.
    ///
    /// - Returns: configuration per topic, in the given order; `nil` when the topic does not exist.
    /// - Throws: when a topic is refused. `TOPIC_AUTHORIZATION_FAILED`: the right `DescribeConfigs` is missing.
    ///   `UNSUPPORTED_FEATURE`: the cluster has no topic administration, as with `sluice kafka`.
    public func configurations(
        of topics: [String], timeoutMilliseconds: Int32 = 15_000
    ) throws(KafkaError) -> [TopicConfiguration?] {
        guard !topics.isEmpty else { return [] }
        var handles = topics.map { rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, $0) }
        defer { handles.forEach { rd_kafka_ConfigResource_destroy($0) } }
        let event = try run(
            RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, "describe the configuration of topics", timeoutMilliseconds
        ) { options, queue in
            rd_kafka_DescribeConfigs(client, &handles, handles.count, options, queue)
        }
        defer { rd_kafka_event_destroy(event) }
        var count = 0
        guard let answer = rd_kafka_event_DescribeConfigs_result(event),
            let results = rd_kafka_DescribeConfigs_result_resources(answer, &count)
        else { throw .system("describe the configuration of topics: librdkafka gave no result") }
        var found: [String: TopicConfiguration] = [:]
        for result in UnsafeBufferPointer(start: results, count: count) {
            guard let result else { continue }
            let topic = String(cString: rd_kafka_ConfigResource_name(result))
            switch rd_kafka_ConfigResource_error(result) {
            case RD_KAFKA_RESP_ERR_NO_ERROR: found[topic] = Self.configuration(topic, result)
            case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART: break
            case let code:
                let detail = rd_kafka_ConfigResource_error_string(result).map { String(cString: $0) }
                throw KafkaError(code, "describe the configuration of topic \"\(topic)\"", detail: detail)
            }
        }
        return topics.map { found[$0] }
    }

    private static func configuration(_ topic: String, _ resource: OpaquePointer) -> TopicConfiguration {
        var count = 0
        var values: [String: String] = [:]
        if let entries = rd_kafka_ConfigResource_configs(resource, &count) {
            for entry in UnsafeBufferPointer(start: entries, count: count) {
                guard let entry, let value = rd_kafka_ConfigEntry_value(entry) else { continue }
                values[String(cString: rd_kafka_ConfigEntry_name(entry))] = String(cString: value)
            }
        }
        return TopicConfiguration(topic: topic, values: values)
    }

    /// Returns the bytes of the largest batch that each topic takes (`max.message.bytes`). Topics of which the brokers
    /// don't say it are missing, for instance because the right `DescribeConfigs` is missing, or the cluster has no
    /// topic administration. Blocks.
    public func largestBatches(of topics: [String], timeoutMilliseconds: Int32 = 5_000) -> [String: Int] {
        // Without waiting for a controller: the embedded cluster never has one.
        guard let brokers = try? metadata(timeoutMilliseconds: timeoutMilliseconds).brokers,
            case let controller = rd_kafka_controllerid(client, 1_000),
            brokers.contains(where: { $0.identifier == controller }),
            let found = try? configurations(of: topics, timeoutMilliseconds: timeoutMilliseconds)
        else { return [:] }
        return found.compactMap { $0 }.reduce(into: [:]) { batches, found in
            batches[found.topic] = found.values["max.message.bytes"].flatMap { Int($0) }
        }
    }

    /// Returns the topics' partition counts. The embedded cluster creates a topic that it is asked about.
    public func coPartitioning(
        of topics: [String], timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> CoPartitioning {
        var counts: [(topic: String, partitions: Int?)] = []
        for topic in topics {
            counts.append((topic, try partitionCount(of: topic, timeoutMilliseconds: timeoutMilliseconds)))
        }
        return CoPartitioning(counts)
    }

    /// Queries each broker until it knows the topics, or the deadline has passed.
    func waitUntilKnown(_ topics: [String], _ deadline: MonotonicDeadline) throws(KafkaError) {
        for broker in try metadata(timeoutMilliseconds: max(1_000, deadline.remainingMilliseconds)).brokers {
            // A client chooses which of its known brokers to query; a client that knows a single broker queries that
            // broker.
            var alone = properties
            let host = broker.host.contains(":") ? "[\(broker.host)]" : broker.host
            alone["metadata.broker.list"] = nil
            alone["bootstrap.servers"] = "\(host):\(broker.port)"
            let client = try KafkaAdmin(properties: alone)
            for topic in topics {
                while !client.knows(topic, deadline) {
                    guard !deadline.hasPassed else { return }
                    usleep(20_000)
                }
            }
        }
    }

    private func knows(_ topic: String, _ deadline: MonotonicDeadline) -> Bool {
        let timeout = max(1, deadline.remainingMilliseconds)
        // A broker that does not answer is queried until the deadline; others may do without it.
        guard let answer = try? metadata(topic: topic, timeoutMilliseconds: timeout) else { return false }
        guard let found = answer.topics.first(where: { $0.name == topic }) else { return false }
        return found.error == nil && found.partitionCount > 0
    }
}
