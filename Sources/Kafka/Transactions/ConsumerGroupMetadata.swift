import CRdkafka

/// Who commits offsets within a transaction: a group, and the member with its generation at the moment this was taken
/// (KIP-447).
///
/// The group's coordinator compares the generation: once the group has rebalanced without this member, offsets that come
/// with its old metadata are refused (`ILLEGAL_GENERATION`, `UNKNOWN_MEMBER_ID`) and the transaction can only be aborted.
/// That is what stops a worker that has lost its partitions without knowing. It works for each transaction that carries
/// offsets, and only for those: send the offset of every partition whose changes the transaction holds, also when it is
/// the same as before.
///
/// Take it anew for each transaction, on the consumer's thread.
public final class ConsumerGroupMetadata: Sendable {
    public let group: String
    // nonisolated(unsafe): never changed after it was made; librdkafka copies it. Freed in deinit.
    nonisolated(unsafe) let handle: OpaquePointer

    init(_ handle: OpaquePointer, group: String) {
        self.handle = handle
        self.group = group
    }

    /// A group of which nobody is a member: its commits are not checked against a generation, so nothing stops a second
    /// writer. For tools and tests.
    public convenience init(unfencedGroup group: String) {
        // Copies the name; out of memory ends the process.
        self.init(rd_kafka_consumer_group_metadata_new(group)!, group: group)
    }

    deinit { rd_kafka_consumer_group_metadata_destroy(handle) }
}

extension KafkaConsumer {
    /// This consumer's group membership as it is now, for `TransactionalProducer.sendOffsets`.
    /// - Throws: when the consumer is closed; `UNKNOWN_MEMBER_ID` when it is no member now. librdkafka forgets its member
    ///   before it tells of lost partitions, and Kafka checks nothing of offsets that come from no member.
    public func groupMetadata() throws(KafkaError) -> ConsumerGroupMetadata {
        guard !isClosed else { throw .invalid("group metadata of \(group): the consumer is closed") }
        let before = memberID
        guard let handle = rd_kafka_consumer_group_metadata(client) else {
            throw .invalid("group metadata of \(group): the consumer is in no group")
        }
        let metadata = ConsumerGroupMetadata(handle, group: group)
        // Who leaves never gets the same identifier again: it was a member all the time.
        guard let before, before == memberID else {
            throw KafkaError(
                RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, "group metadata of \(group)",
                detail: "this consumer is not a member now")
        }
        return metadata
    }
}
