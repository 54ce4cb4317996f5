import CRdkafka

extension KafkaAdmin {
    /// Returns the first offset of each partition whose record has this timestamp or a later one, queried from the
    /// leaders at the same time. Blocks.
    ///
    /// - Parameter milliseconds: time since the epoch.
    /// - Returns: offsets by partition; nil where the broker names no such record. The embedded cluster names none.
    /// - Throws: the error of the request or of the first partition.
    public func offsets(
        of topic: String, partitions: Int, from milliseconds: Int64, timeoutMilliseconds: Int32 = 15_000
    ) throws(KafkaError) -> [Int64?] {
        guard partitions > 0 else { return [] }
        // The offset stands for a time here (Kafka protocol, ListOffsets).
        let list = PartitionList(
            (0..<Int32(partitions)).map {
                TopicPartitionOffset(topic: topic, partition: $0, start: .offset(max(0, milliseconds)))
            })
        let code = rd_kafka_offsets_for_times(client, list.pointer, timeoutMilliseconds)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(code, "read offsets of topic \"\(topic)\" by time")
        }
        if let error = list.firstError("read the offset by time of") { throw error }
        var offsets = [Int64?](repeating: nil, count: partitions)
        for element in list.elements where element.offset >= 0 {
            let index = Int(element.partition)
            if offsets.indices.contains(index) { offsets[index] = element.offset }
        }
        return offsets
    }
}
