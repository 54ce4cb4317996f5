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

    /// Returns the ends of the partitions' logs, one above their last offsets, without open transactions of producers.
    /// Partitions whose leaders don't answer in time are missing. Blocks at most a second more than the given time.
    public func logEnds(
        of partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) -> [TopicPartition: Int64] {
        guard !partitions.isEmpty else { return [:] }
        let answers = try? whileOpen { () throws(KafkaError) in
            try Kafka.logEnds(client, partitions, timeoutMilliseconds)
        }
        return (answers ?? [:]).compactMapValues { try? $0.get().high }
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
