import CRdkafka
import Glibc

/// Owns one `rd_kafka_topic_partition_list_t`. librdkafka copies its input lists, so a list lives as long as the Swift
/// call that built it.
struct PartitionList: ~Copyable {
    let pointer: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>

    init(capacity: Int) {
        // librdkafka aborts the process when it runs out of memory; it never returns nil here.
        pointer = rd_kafka_topic_partition_list_new(Int32(capacity))!
    }

    init(_ partitions: [TopicPartition]) {
        self.init(capacity: partitions.count)
        for partition in partitions { add(partition) }
    }

    init(_ partitions: [TopicPartitionOffset]) {
        self.init(capacity: partitions.count)
        for partition in partitions {
            add(partition.topicPartition).pointee.offset = partition.start.value
        }
    }

    init(_ commits: [OffsetCommit]) {
        self.init(capacity: commits.count)
        for commit in commits {
            let element = add(commit.topicPartition)
            element.pointee.offset = commit.offset
            var metadata = commit.metadata
            metadata.withUTF8 { bytes in
                guard let source = bytes.baseAddress, !bytes.isEmpty, let copy = malloc(bytes.count) else {
                    return
                }
                // Freed by the list, with free(3).
                memcpy(copy, source, bytes.count)
                element.pointee.metadata = copy
                element.pointee.metadata_size = bytes.count
            }
        }
    }

    deinit { rd_kafka_topic_partition_list_destroy(pointer) }

    @discardableResult
    private func add(_ partition: TopicPartition) -> UnsafeMutablePointer<rd_kafka_topic_partition_t> {
        rd_kafka_topic_partition_list_add(pointer, partition.topic, partition.partition)!
    }

    var elements: UnsafeBufferPointer<rd_kafka_topic_partition_t> { Self.elements(pointer) }

    /// Returns the first element's error, labelled with `what`; nil when no element has an error.
    func firstError(_ what: String) -> KafkaError? {
        for element in elements where element.err != RD_KAFKA_RESP_ERR_NO_ERROR {
            return KafkaError(element.err, "\(what) \(TopicPartition(element))")
        }
        return nil
    }

    static func elements(
        _ list: UnsafePointer<rd_kafka_topic_partition_list_t>
    ) -> UnsafeBufferPointer<rd_kafka_topic_partition_t> {
        UnsafeBufferPointer(start: list.pointee.elems, count: Int(list.pointee.cnt))
    }
}

extension TopicPartition {
    init(_ element: rd_kafka_topic_partition_t) {
        self.init(String(cString: element.topic), element.partition)
    }
}
