/// An error of Kafka, reduced to what a worker's decisions depend on.
public struct KafkaFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// Properties of an error that decide what follows from it.
    public struct Traits: OptionSet, Sendable, Hashable {
        public let rawValue: UInt16
        public init(rawValue: UInt16) { self.rawValue = rawValue }

        /// The client is unusable; only a new client helps.
        public static let fatal = Traits(rawValue: 1)
        /// The same call may succeed later.
        public static let retriable = Traits(rawValue: 2)
        /// The group is in a rebalance, or has passed a rebalance that this member hasn't heard of.
        public static let rebalance = Traits(rawValue: 4)
        /// The group has moved on without this member.
        public static let membershipLost = Traits(rawValue: 8)
        /// The record itself is refused, in most cases for its size. A smaller form of it may be accepted.
        public static let ofRecord = Traits(rawValue: 16)
        /// The commit's metadata is longer than the brokers accept.
        public static let metadataTooLarge = Traits(rawValue: 32)
        /// A person has to fix the cause: rights, settings, versions. New clients would meet the error again.
        public static let lasting = Traits(rawValue: 64)
        /// Another producer has this producer's transactional identifier.
        public static let fenced = Traits(rawValue: 128)
        /// The topic has no such partition, or there is no such topic.
        public static let unknownPartition = Traits(rawValue: 256)
    }

    /// Properties that decide what follows; empty when none is known.
    public var traits: Traits
    /// Kafka's name of the error code.
    public var name: String
    /// Text for people: what failed, where, and what to do.
    public var message: String

    public init(_ name: String, _ traits: Traits = [], message: String = "") {
        self.name = name
        self.traits = traits
        self.message = message
    }

    public var description: String { message.isEmpty ? name : "\(message) (\(name))" }

    /// The group has assigned the partitions to others.
    public static let partitionsLost = KafkaFault("partitions lost")
    /// A partition's offsets went back, because its topic was recreated or the group's offsets were reset.
    public static let logWentBack = KafkaFault("the partition's offsets went back")
    /// Leaders of partitions don't report where their logs end.
    public static let noLogEnds = KafkaFault("no leader reports where the partitions' logs end", .retriable)
    /// Records of a transaction weren't acknowledged in time.
    public static let reportsMissing = KafkaFault("records of the transaction are not acknowledged")
    /// The producer takes no record of the open transaction.
    public static let transactionRefused = KafkaFault("the transaction accepts no records")
    /// Changes of the store wait for room in the producer, and never get it.
    public static let changesLeft = KafkaFault("changes of the store were not produced")
}
