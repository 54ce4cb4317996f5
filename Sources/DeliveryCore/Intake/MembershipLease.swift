/// Until when a worker may take it for granted that its partitions are still its own.
///
/// A process that was stopped for longer than the group waits has lost its partitions without knowing. The lease ends well
/// before the group's session does, counted from the last moment at which the group has heard of this worker. While the
/// process runs, that is now: the client's heartbeats see to it. A pause leaves it where it was, until heartbeats have had
/// time to be answered; several pauses in a row add up. Once the lease has ended, nothing is taken for granted: the lease is
/// renewed only by an answer of the group to a request that was made after the end was noticed, and only when all shards have
/// done what they were told before, such as to let go of lost partitions.
///
/// Pure: times are nanoseconds of a monotonic clock.
public struct MembershipLease: Sendable {
    /// Orders to the owner.
    public enum Action: Equatable, Sendable {
        /// Pushes and outcomes may leave until then.
        case extend(UInt64)
        /// The lease has ended. All offsets are committed once more, as only a member can.
        case doubt
        /// Each shard ends what it was told so far; then comes ``MembershipLease/shardsPassed(_:at:)`` with this number.
        case askShards(UInt64)
    }

    /// From the last sign to the group to the end.
    private let length: UInt64
    /// Between two calls of ``tick(at:)`` a longer time is a pause of the process.
    private let pause: UInt64
    /// After a pause, so long until heartbeats were answered for sure.
    private let settling: UInt64
    private var lastTick: UInt64
    private var awakeSince: UInt64
    /// When the group has heard of this worker, at the latest.
    private var heardAt: UInt64
    /// When it was noticed that the lease has ended; nil while it hasn't.
    private var doubtSince: UInt64?
    /// The confirmation that waits for the shards.
    private var confirmation: (number: UInt64, requestedAt: UInt64)?
    private var confirmations: UInt64 = 0

    /// - Parameter session: after so long without a heartbeat the group gives the partitions to others. The lease is half as
    ///   long.
    public init(session: UInt64, now: UInt64) {
        length = session / 2
        pause = max(length / 8, 250_000_000)
        settling = length / 4
        lastTick = now
        awakeSince = now
        heardAt = now
    }

    /// When the lease ends as things are.
    public var until: UInt64 { doubtSince == nil ? heardAt &+ length : 0 }

    /// The lease has ended, and the group hasn't confirmed the membership since.
    public var isDoubtful: Bool { doubtSince != nil }

    /// The group has confirmed the membership, and the shards are awaited.
    public var awaitsShards: Bool { confirmation != nil }

    /// To be called several times in each eighth of the lease.
    public mutating func tick(at now: UInt64) -> Action? {
        let wasStopped = now &- lastTick > pause
        lastTick = now
        if wasStopped { awakeSince = now }
        guard doubtSince == nil else {
            if wasStopped { beginDoubt(now) }
            return nil
        }
        guard now < until else {
            beginDoubt(now)
            return .doubt
        }
        guard now &- awakeSince >= settling else { return nil }
        heardAt = now
        return .extend(until)
    }

    /// The group has taken this worker for a member, in answer to a request that was made at `requestedAt`. An answer to an
    /// older request than the doubt says nothing of what has happened since: the owner asks once more.
    public mutating func confirmed(requestedAt: UInt64) -> Action? {
        guard let doubtSince else {
            guard requestedAt > heardAt else { return nil }
            heardAt = requestedAt
            return .extend(until)
        }
        guard requestedAt >= doubtSince, confirmation == nil else { return nil }
        confirmations += 1
        confirmation = (confirmations, requestedAt)
        return .askShards(confirmations)
    }

    /// All shards have done what they were told before the confirmation of this number.
    public mutating func shardsPassed(_ number: UInt64, at now: UInt64) -> Action? {
        guard let confirmation, confirmation.number == number else { return nil }
        self.confirmation = nil
        heardAt = confirmation.requestedAt
        guard now < heardAt &+ length else {
            beginDoubt(now)
            return .doubt
        }
        doubtSince = nil
        return .extend(until)
    }

    private mutating func beginDoubt(_ now: UInt64) {
        doubtSince = now
        confirmation = nil
    }
}
