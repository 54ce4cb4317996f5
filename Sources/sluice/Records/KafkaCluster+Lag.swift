import Kafka

extension KafkaCluster {
    /// Returns the first and next offsets of a topic's partitions. Blocks for seconds if brokers are away.
    /// - Throws: when there is no such topic, or the brokers don't answer.
    func watermarks(of topic: String) throws(CommandFailure) -> [Watermarks] {
        let count = try partitionCount(of: topic)
        do throws(KafkaError) {
            let admin = try KafkaAdmin(properties: properties)
            return try (0..<Int32(count)).map { (partition) throws(KafkaError) in
                try admin.watermarks(
                    of: TopicPartition(topic, partition), timeoutMilliseconds: limit(10_000))
            }
        } catch {
            throw CommandFailure(
                .unavailable, "can't look up the ends of topic \(topic) at \(bootstrapServers): \(error)")
        }
    }

    /// Returns the number of records that a group's next member would read first.
    /// - Throws: when there is no such topic, or the brokers don't answer.
    func uncommitted(_ topic: String, group: String) throws(CommandFailure) -> Int {
        let marks = try watermarks(of: topic)
        let partitions = marks.indices.map { TopicPartition(topic, Int32($0)) }
        return try committed(partitions, group: group).reduce(0) { sum, offset in
            let mark = marks[Int(offset.topicPartition.partition)]
            return sum + Int(mark.high - max(mark.low, offset.offset ?? mark.low))
        }
    }

    /// Returns the offsets that a group has committed of partitions.
    /// - Throws: when the brokers don't answer.
    func committed(
        _ partitions: [TopicPartition], group: String
    ) throws(CommandFailure) -> [CommittedOffset] {
        do throws(KafkaError) {
            var properties = properties
            properties["group.id"] = group
            let consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
            defer { consumer.close() }
            return try consumer.committed(partitions, timeoutMilliseconds: limit(10_000))
        } catch {
            throw CommandFailure(.unavailable, "Kafka: \(error)")
        }
    }
}
