import CRdkafka
import Synchronization

/// Asks Kafka what a consumer's group has committed, and where logs end. The calls block, so they are for a thread that has
/// nothing else to do. Any thread; one call at a time.
// Sendable: librdkafka's functions may be called on any thread, and the lock keeps the client from being closed meanwhile.
public final class GroupOffsets: @unchecked Sendable {
    private let client: OpaquePointer
    private let group: String
    private let isClosed = Mutex(false)

    init(client: OpaquePointer, group: String) {
        self.client = client
        self.group = group
    }

    /// Offsets that the group has committed. Waits for the transactions that hold offsets of these partitions.
    /// - Throws: the error of the request or of the first partition; `_STATE` when the consumer is closed.
    public func committed(
        _ partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) throws(KafkaError) -> [CommittedOffset] {
        guard !partitions.isEmpty else { return [] }
        return try whileOpen { () throws(KafkaError) in
            try committedOffsets(client, group, partitions, timeoutMilliseconds)
        }
    }

    /// Ends of the partitions' logs, one above their last offsets, open transactions of producers left out. Partitions whose leaders
    /// don't answer in time are left out, too. Blocks for a second more than the given time at most.
    public func logEnds(
        of partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) -> [TopicPartition: Int64] {
        guard !partitions.isEmpty else { return [:] }
        let answers = try? whileOpen { () throws(KafkaError) in
            try Kafka.logEnds(client, partitions, timeoutMilliseconds)
        }
        return (answers ?? [:]).compactMapValues { try? $0.get().high }
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

    /// Waits for a call that is under way, and lets no other begin.
    func close() { isClosed.withLock { $0 = true } }
}
