import CRdkafka

/// A partition of a topic.
public struct TopicPartition: Hashable, Sendable, Comparable, CustomStringConvertible {
    public var topic: String
    public var partition: Int32

    public init(_ topic: String, _ partition: Int32) {
        self.topic = topic
        self.partition = partition
    }

    public var description: String { "\(topic)[\(partition)]" }

    /// Partition numbers that a consumer accepts. Its tables are arrays by these numbers, and 16-bit slots identify
    /// them.
    static let numbers: Range<Int32> = 0..<65_535

    /// Whether Kafka accepts this topic name: 1 to 249 of the characters `a-z A-Z 0-9 . _ -`, not `.` or `..`.
    public static func isTopicName(_ name: String) -> Bool {
        guard (1...249).contains(name.utf8.count), name != ".", name != ".." else { return false }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "-"):
                true
            default: false
            }
        }
    }

    public static func < (left: TopicPartition, right: TopicPartition) -> Bool {
        (left.topic, left.partition) < (right.topic, right.partition)
    }
}

/// Place where reading a partition begins.
public enum StartOffset: Hashable, Sendable {
    /// The record with this offset, or the next record that still exists.
    case offset(Int64)
    /// The group's committed offset; without one, `auto.offset.reset` decides (Sluice's default: `earliest`).
    case committed
    /// The first record that still exists.
    case beginning
    /// The end of the log, behind the last record.
    case end

    var value: Int64 {
        switch self {
        case .offset(let offset): offset
        case .committed: Int64(RD_KAFKA_OFFSET_INVALID)
        case .beginning: Int64(RD_KAFKA_OFFSET_BEGINNING)
        case .end: Int64(RD_KAFKA_OFFSET_END)
        }
    }
}

/// A partition that is taken over, and the place where reading begins.
public struct TopicPartitionOffset: Hashable, Sendable {
    public var topicPartition: TopicPartition
    /// Place where reading begins.
    public var start: StartOffset

    public init(_ topicPartition: TopicPartition, _ start: StartOffset = .committed) {
        self.topicPartition = topicPartition
        self.start = start
    }

    /// Creates the place of a partition that is named by topic and number.
    public init(topic: String, partition: Int32, start: StartOffset = .committed) {
        self.init(TopicPartition(topic, partition), start)
    }
}

/// An offset to commit: the first unfinished offset, that is, the last finished offset plus one.
public struct OffsetCommit: Hashable, Sendable {
    public var topicPartition: TopicPartition
    /// Offset of the first unfinished record.
    public var offset: Int64
    /// Metadata, stored by the broker beside the offset. A broker refuses more than `offset.metadata.max.bytes`
    /// (default 4096 bytes) with `OFFSET_METADATA_TOO_LARGE`.
    public var metadata: String

    /// Creates the commit of a partition that is named by topic and number.
    public init(topic: String, partition: Int32, offset: Int64, metadata: String = "") {
        self.topicPartition = TopicPartition(topic, partition)
        self.offset = offset
        self.metadata = metadata
    }
}

/// A group's committed offset for one partition.
public struct CommittedOffset: Hashable, Sendable {
    public let topicPartition: TopicPartition
    /// Committed offset; `nil`: the group has committed nothing for this partition.
    public let offset: Int64?
    /// Metadata that was committed with the offset; may be empty.
    public let metadata: String
}

/// The first offset that still exists and the offset of the next record.
public struct Watermarks: Hashable, Sendable {
    /// First offset that still exists.
    public let low: Int64
    /// Offset of the next record.
    public let high: Int64

    public init(low: Int64, high: Int64) {
        self.low = low
        self.high = high
    }

    /// Returns the number of offsets before a reader whose next record is `offset`.
    public func lag(at offset: Int64) -> Int64 { max(0, high - max(offset, low)) }
}
