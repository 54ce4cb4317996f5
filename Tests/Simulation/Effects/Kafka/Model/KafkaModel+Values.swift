/// A process with its Kafka clients. Numbers aren't used again.
typealias ClientID = Int

/// Partitions of a topic, 64 at most.
struct PartitionSet: Sequence, Hashable, ExpressibleByArrayLiteral {
    var rawValue: UInt64 = 0

    init() {}

    init(rawValue: UInt64) { self.rawValue = rawValue }

    init(arrayLiteral partitions: Int...) {
        for partition in partitions { insert(partition) }
    }

    /// 0..<count
    init(below count: Int) { rawValue = count >= 64 ? .max : (1 << UInt64(count)) - 1 }

    var count: Int { rawValue.nonzeroBitCount }
    var isEmpty: Bool { rawValue == 0 }

    func contains(_ partition: Int) -> Bool { rawValue >> UInt64(partition) & 1 == 1 }
    mutating func insert(_ partition: Int) { rawValue |= 1 << UInt64(partition) }
    mutating func remove(_ partition: Int) { rawValue &= ~(1 << UInt64(partition)) }

    mutating func formUnion(_ other: PartitionSet) { rawValue |= other.rawValue }
    mutating func subtract(_ other: PartitionSet) { rawValue &= ~other.rawValue }
    func union(_ other: PartitionSet) -> PartitionSet { .init(rawValue: rawValue | other.rawValue) }
    func subtracting(_ other: PartitionSet) -> PartitionSet { .init(rawValue: rawValue & ~other.rawValue) }
    func intersection(_ other: PartitionSet) -> PartitionSet { .init(rawValue: rawValue & other.rawValue) }

    struct Iterator: IteratorProtocol {
        fileprivate var rest: UInt64

        mutating func next() -> Int? {
            guard rest != 0 else { return nil }
            let first = rest.trailingZeroBitCount
            rest &= rest - 1
            return first
        }
    }

    func makeIterator() -> Iterator { Iterator(rest: rawValue) }
}

extension KafkaModel {
    enum Topic: Int, CaseIterable {
        case jobs, outcomes, deadLetters, changelog
    }

    enum Size: UInt8 {
        case normal
        /// Refused by the topic, with a failed report.
        case tooLargeForTopic
        /// Refused by the client: nothing is queued.
        case tooLargeForClient
    }

    /// A record, as its producer knows it.
    struct Record {
        /// The caller's handle.
        var payload: Int
        /// Number of a device token or item.
        var key: Int
        var kind: UInt8 = 0
        var isTombstone = false
        var size = Size.normal
        /// Bytes for which the record counts in a batch.
        var bytes = 0
    }

    /// A record, as a reader gets it.
    struct ReadRecord {
        var topic: Topic
        var partition: Int
        var offset: Int64
        var payload: Int
        var key: Int
        var kind: UInt8
        var isTombstone: Bool
        /// The time at which a broker appended it.
        var appendedAt: UInt64
    }

    /// Everything that a call, a report or a step can fail with.
    enum Failure: UInt8 {
        case timedOut, tooLarge, notAuthorised, unknownPartition
        /// An abort removed the record from the queue.
        case purged
        /// The epoch is an older one: another client, or the coordinator, has taken the transactional identifier.
        case fenced
        /// The transaction has a record that was lost.
        case recordLost
        case leaderAway, coordinatorAway
        case rebalanceInProgress, illegalGeneration, unknownMember, fencedInstance
        case metadataTooLarge, unstableOffsets
        case outOfRange
        /// The call doesn't fit the state.
        case misuse

        /// The group has moved on without the member.
        var isMembershipLost: Bool {
            self == .unknownMember || self == .illegalGeneration || self == .fencedInstance
        }
    }

    enum ProduceAnswer: Equatable {
        /// A report follows.
        case queued
        case queueFull
        case noTransaction
        case failed(Failure)
    }

    struct Report {
        /// The caller's handle for the call of `produce`.
        var opaque: Int
        var topic: Topic
        var partition: Int
        /// -1 without an acknowledgement.
        var offset: Int64
        var failure: Failure?
        /// True when a failed record is certainly not in the log.
        var isKnownUnwritten: Bool
    }

    enum TransactionStep: UInt8 {
        case initialize, begin, sendOffsets, commit, abort
    }

    enum StepResult: Equatable {
        case done
        case retriable(Failure)
        case abortable(Failure)
        case fatal(Failure)
        case misuse
    }

    struct OffsetCommit: Equatable {
        var partition: Int
        var offset: Int64
        var metadata = ""
    }

    /// The committed offset of a partition. -1 when there is none.
    struct CommittedOffset: Equatable {
        var partition: Int
        var offset: Int64
        var metadata: String
    }

    /// A membership at one moment: what fences transactions.
    struct Membership: Hashable {
        var member: Int
        var generation: Int32
        /// No member: the coordinator checks no membership.
        static let unfenced = Membership(member: 0, generation: -1)
    }

    enum Event {
        /// Answered by `assign`. The set may be empty.
        case assigned(PartitionSet)
        /// Answered by `unassign`; the group waits.
        case revoked(PartitionSet)
        /// Answered by `unassign`; other members may have the partitions already.
        case lost(PartitionSet)
        /// Another client has the instance's name. The consumer has failed.
        case instanceFenced
        case report(Report)
        case step(TransactionStep, StepResult)
        /// The transactional producer has failed.
        case producerFailed(Failure)
        case committed(reference: Int, Failure?)
        case fetchedCommitted(reference: Int, [CommittedOffset], Failure?)
        /// The first offset, and the one after the last that the reader may see.
        case listed(reference: Int, first: Int64, end: Int64, Failure?)
        /// A reader without a reset policy is beyond the log.
        case outOfRange(Topic, Int, Int64)
    }

    enum ResetPolicy: UInt8 {
        case earliest, latest
        /// Reports an event, and stops reading.
        case none
    }

    enum Isolation: UInt8 {
        case committed, uncommitted
    }

    enum Assignor: UInt8 {
        case cooperative, eager
    }

    // MARK: Observers

    /// A record that a reader of committed records can see, in the order of becoming visible.
    struct VisibleRecord {
        var time: UInt64
        var topic: Topic
        var partition: Int
        /// Number of times that the topic was recreated.
        var incarnation: Int
        var offset: Int64
        var payload: Int
        var key: Int
        var kind: UInt8
        var isTombstone: Bool
    }

    enum CommitOrigin: Equatable {
        case member(ClientID)
        case transaction(Int)
        /// An operator, or the end of a topic.
        case outside
    }

    /// A change of the group's offsets.
    struct CommittedChange {
        var time: UInt64
        var partition: Int
        /// -1: the group has none any more.
        var offset: Int64
        var metadata: String
        var origin: CommitOrigin
    }
}
