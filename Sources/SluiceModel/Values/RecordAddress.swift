/// Place of a record in Kafka: the identity of a job, a dead letter or an outcome.
public struct RecordAddress: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Name of the Kafka topic; has no slash by Kafka's rule.
    public var topic: String
    /// Partition of the record, from 0.
    public var partition: Int32
    /// Offset of the record, from 0.
    public var offset: Int64

    public init(topic: String, partition: Int32, offset: Int64) {
        self.topic = topic
        self.partition = partition
        self.offset = offset
    }

    /// Parses the form of ``description``; nil for anything else.
    public init?(text: some StringProtocol) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3, !parts[0].isEmpty, let partition = Int32(parts[1]), partition >= 0,
            let offset = Int64(parts[2]), offset >= 0
        else { return nil }
        self.init(topic: String(parts[0]), partition: partition, offset: offset)
    }

    /// `topic/partition/offset`
    public var description: String { "\(topic)/\(partition)/\(offset)" }

    /// Order by topic, partition and offset, which is the order of reading.
    public static func < (left: RecordAddress, right: RecordAddress) -> Bool {
        (left.topic, left.partition, left.offset) < (right.topic, right.partition, right.offset)
    }
}
