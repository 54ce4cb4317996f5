import CRdkafka
import Synchronization

/// Queries a consumer group's committed offsets, and the ends of logs. The calls block, so they belong on a thread
/// without other work. Any thread; one call at a time.
// Sendable: librdkafka's functions may be called on any thread. The lock keeps the client open during a call.
public final class GroupOffsets: @unchecked Sendable {
    private let client: OpaquePointer
    private let group: String
    private let isClosed = Mutex(false)

    init(client: OpaquePointer, group: String) {
        self.client = client
        self.group = group
    }

    /// Returns the group's committed offsets. Waits for the transactions that hold offsets of these partitions.
    /// - Throws: the error of the request or of the first partition; `_STATE` when the consumer is closed.
    public func committed(
        _ partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) throws(KafkaError) -> [CommittedOffset] {
        guard !partitions.isEmpty else { return [] }
        return try whileOpen { () throws(KafkaError) in
            try committedOffsets(client, group, partitions, timeoutMilliseconds)
        }
    }

    /// Returns the first offsets and ends of the partitions' logs. An end is one above the last offset, without open
    /// transactions of producers. Partitions whose leaders don't answer in time are missing. Blocks at most a second
    /// more than the given time.
    public func logEnds(
        of partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) -> [TopicPartition: Watermarks] {
        guard !partitions.isEmpty else { return [:] }
        let answers = try? whileOpen { () throws(KafkaError) in
            try Kafka.logEnds(client, partitions, timeoutMilliseconds)
        }
        return (answers ?? [:]).compactMapValues { try? $0.get() }
    }

    /// Returns the partition's first offset whose record has this time or a later one, queried from the leader.
    /// - Parameter milliseconds: time since the epoch.
    /// - Returns: nil: the broker names no such record. The embedded cluster names none.
    public func offset(
        of partition: TopicPartition, from milliseconds: Int64, timeoutMilliseconds: Int32
    ) throws(KafkaError) -> Int64? {
        try whileOpen { () throws(KafkaError) in
            // The offset stands for a time here (Kafka protocol, ListOffsets).
            let list = PartitionList([
                TopicPartitionOffset(partition, .offset(max(0, milliseconds)))
            ])
            let code = rd_kafka_offsets_for_times(client, list.pointer, timeoutMilliseconds)
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                throw KafkaError(code, "read the offset of \(partition) by time")
            }
            if let error = list.firstError("read the offset by time of") { throw error }
            return list.elements.first.flatMap { $0.offset >= 0 ? $0.offset : nil }
        }
    }

    /// Wakes the client's broker threads by a small request to each partition's leader. A thread that has stopped fetching
    /// because the queue was full then looks at the queue again. Blocks at most for the given time. A thread that fetches
    /// from a follower (`client.rack`) isn't woken.
    public func wakeFetching(of partitions: [TopicPartition], timeoutMilliseconds: Int32) {
        guard !partitions.isEmpty else { return }
        _ = try? whileOpen { () throws(KafkaError) in
            try queryOffsets(client, partitions, .end, timeoutMilliseconds)
        }
    }

    private func whileOpen<Value>(_ body: () throws(KafkaError) -> Value) throws(KafkaError) -> Value {
        let result: Result<Value, KafkaError> = isClosed.withLock { isClosed in
            guard !isClosed else {
                return .failure(
                    KafkaError(
                        RD_KAFKA_RESP_ERR__STATE, "read offsets of group \(group)",
                        detail: "the consumer is closed"))
            }
            do throws(KafkaError) { return .success(try body()) } catch { return .failure(error) }
        }
        return try result.get()
    }

    /// Waits for a call in progress, and prevents others.
    func close() { isClosed.withLock { $0 = true } }
}
