import CRdkafka

/// Identity that commits offsets within a transaction: a group, a member and the member's generation at one moment
/// (KIP-447).
///
/// The group's coordinator compares the generation. Once the group has rebalanced without this member, the coordinator
/// refuses offsets with the old metadata (`ILLEGAL_GENERATION`, `UNKNOWN_MEMBER_ID`). The transaction can then only be
/// aborted. This check stops a worker that has lost its partitions without knowing. The check covers only transactions
/// that carry offsets. So send the offset of every partition whose changes the transaction holds, even an unchanged
/// offset.
///
/// Create new metadata for each transaction, on the consumer's thread.
public final class ConsumerGroupMetadata: Sendable {
    /// Name of the consumer group.
    public let group: String
    // nonisolated(unsafe): never changed after it was made; librdkafka copies it. Freed in deinit.
    nonisolated(unsafe) let handle: OpaquePointer

    init(_ handle: OpaquePointer, group: String) {
        self.handle = handle
        self.group = group
    }

    /// Creates metadata of a group without members. Commits are not checked against a generation, so nothing stops a
    /// second writer. For tools and tests.
    public convenience init(unfencedGroup group: String) {
        // librdkafka copies the name; out of memory ends the process.
        self.init(rd_kafka_consumer_group_metadata_new(group)!, group: group)
    }

    deinit { rd_kafka_consumer_group_metadata_destroy(handle) }
}

extension KafkaConsumer {
    /// Returns this consumer's current group membership, for `TransactionalProducer.sendOffsets`.
    /// - Throws: when the consumer is closed; `UNKNOWN_MEMBER_ID` when the consumer is no member now. librdkafka clears
    ///   its member before it reports lost partitions. Kafka checks nothing of offsets without a member.
    public func groupMetadata() throws(KafkaError) -> ConsumerGroupMetadata {
        guard !isClosed else { throw .invalid("group metadata of \(group): the consumer is closed") }
        let before = memberID
        guard let handle = rd_kafka_consumer_group_metadata(client) else {
            throw .invalid("group metadata of \(group): the consumer is in no group")
        }
        let metadata = ConsumerGroupMetadata(handle, group: group)
        // A member that leaves never gets the same identifier again: an unchanged identifier proves unbroken
        // membership.
        guard let before, before == memberID else {
            throw KafkaError(
                RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, "group metadata of \(group)",
                detail: "this consumer is not a member now")
        }
        return metadata
    }
}
