/// What a consumer has to tell besides records. Handed over inside `KafkaConsumer.poll` (and `close`), on the
/// thread that calls it.
public enum KafkaConsumerEvent: Sendable {
    /// The group gives these partitions to this member (possibly none). Nothing is read until the owner
    /// answers with `KafkaConsumer.assign`, now or later.
    case assigned([TopicPartition])
    /// The group takes these partitions away. The member keeps them until the owner answers with
    /// `KafkaConsumer.unassign`, so what is in flight can finish and be committed first. librdkafka delivers
    /// no record of any partition of this consumer meanwhile, and the other members wait: bound the delay,
    /// well below `max.poll.interval.ms`.
    case revoked([TopicPartition])
    /// As `revoked`, but the partitions are gone already (the session timed out, polling stopped for too
    /// long): others may be working on them and a commit fails. Answer with `KafkaConsumer.unassign` at once.
    case lost([TopicPartition])
    /// The result of an asynchronous commit.
    case committed(CommitResult)
    /// A broker, a connection or the client has a problem. librdkafka retries by itself unless the error is
    /// fatal.
    case error(KafkaError)
    /// Reading one partition failed, for example because its topic is unknown or not allowed. Retried as
    /// well.
    case partitionError(TopicPartition, KafkaError)
    /// The partition was read to its end. Only with `enable.partition.eof=true`.
    case endOfPartition(TopicPartition, offset: Int64)
    /// librdkafka's statistics, one JSON document (its STATISTICS.md), every `statistics.interval.ms`.
    case statistics(String)
    case log(KafkaLogLine)
}

/// One log line of librdkafka. Record contents are not part of it.
public struct KafkaLogLine: Sendable, Hashable {
    /// As in syslog: 0 emergency … 3 error, 4 warning, 5 notice, 6 info, 7 debug.
    public let level: Int32
    /// librdkafka's short name for the subject, for example `FAIL` or `SESSTMOUT`.
    public let facility: String
    public let message: String

    /// `nil` for lines that are no news: one set of properties may serve consumers and producers, and
    /// librdkafka remarks on each that concerns only the other.
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

/// How a commit ended.
public struct CommitResult: Sendable {
    /// What `KafkaConsumer.commit` returned for it.
    public let reference: UInt64
    /// The first error, of the whole request or of one partition. `nil`: all of it is committed.
    public let error: KafkaError?
    public let partitions: [(topicPartition: TopicPartition, offset: Int64, error: KafkaError?)]
}
