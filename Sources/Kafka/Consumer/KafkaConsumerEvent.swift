/// Events of a consumer besides records. The consumer reports them inside `KafkaConsumer.poll` and `close`, on the
/// calling thread.
public enum KafkaConsumerEvent: Sendable {
    /// The group assigned these partitions (possibly none) to this member. Nothing is read until the owner answers with
    /// `KafkaConsumer.assign`, now or later.
    case assigned([TopicPartition])
    /// The group revokes these partitions. The member keeps them until the owner answers with `KafkaConsumer.unassign`,
    /// so that records in flight can finish and be committed first. Meanwhile librdkafka delivers no record of any
    /// partition of this consumer, and the other members wait. Keep the delay well below `max.poll.interval.ms`.
    case revoked([TopicPartition])
    /// As `revoked`, but the partitions are already lost, because the session timed out or polling stopped for too
    /// long. Other members may already process them, and a commit fails. Answer with `KafkaConsumer.unassign` at once.
    case lost([TopicPartition])
    /// The result of an asynchronous commit.
    case committed(CommitResult)
    /// A broker, a connection or the client has a problem. librdkafka retries by itself unless the error is fatal.
    case error(KafkaError)
    /// Reading one partition failed, for example because its topic is unknown or not allowed. librdkafka retries.
    case partitionError(TopicPartition, KafkaError)
    /// The partition was read to its end. Only with `enable.partition.eof=true`.
    case endOfPartition(TopicPartition, offset: Int64)
    /// librdkafka's statistics, one JSON document (its STATISTICS.md), every `statistics.interval.ms`.
    case statistics(String)
    /// A log line of librdkafka.
    case log(KafkaLogLine)
}

/// A log line of librdkafka. Record contents are not part of the line.
public struct KafkaLogLine: Sendable, Hashable {
    /// As in syslog: 0 emergency … 3 error, 4 warning, 5 notice, 6 info, 7 debug.
    public let level: Int32
    /// librdkafka's short name for the subject, for example `FAIL` or `SESSTMOUT`.
    public let facility: String
    /// Text of the line.
    public let message: String

    /// Returns `nil` for lines without news. The same properties may serve consumers and producers, and librdkafka logs
    /// each property that concerns only the other kind.
    init?(_ level: Int32, _ facility: UnsafePointer<CChar>?, _ message: UnsafePointer<CChar>?) {
        guard let facility, let message else { return nil }
        self.level = level
        self.facility = String(cString: facility)
        self.message = String(cString: message)
        if self.facility == "CONFWARN", self.message.hasSuffix("instance"),
            self.message.split(separator: " ").contains("ignored")
        {
            return nil
        }
    }
}

/// Result of a commit.
public struct CommitResult: Sendable {
    /// Reference that `KafkaConsumer.commit` returned for this commit.
    public let reference: UInt64
    /// The first error, of the whole request or of one partition. `nil`: every offset is committed.
    public let error: KafkaError?
    /// Committed partitions and offsets, with each partition's own error; nil: its offset is committed.
    public let partitions: [(topicPartition: TopicPartition, offset: Int64, error: KafkaError?)]
}
