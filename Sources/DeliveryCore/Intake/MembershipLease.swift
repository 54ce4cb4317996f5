/// Time until which a worker may assume that its partitions are still its own.
///
/// A process that was stopped for longer than the group waits has lost its partitions without notice. The lease ends
/// well before the group's session does. It is counted from the last moment at which the group has heard of this
/// worker. While the process runs, that moment is now, because the client sends heartbeats. A pause of the process
/// leaves the moment where it was, until heartbeats have had time to be answered. Several pauses in a row add up.
///
/// Once the lease has ended, nothing is assumed. Only an answer of the group renews the lease, to a request that was
/// made after the end was noticed. All shards must also have done what they were asked for before, such as releasing
/// lost partitions.
///
/// Pure: times are nanoseconds of a monotonic clock.
public struct MembershipLease: Sendable {
    /// Orders to the owner.
    public enum Action: Equatable, Sendable {
        /// Pushes and outcomes may leave until this time, in nanoseconds.
        case extend(UInt64)
        /// The lease has ended. All offsets are committed once more, because only a member can commit.
        case doubt
        /// Each shard finishes its requests so far. ``MembershipLease/shardsPassed(_:at:)`` with this number follows.
        case askShards(UInt64)
    }

    /// Nanoseconds from the group's last sign of this worker to the end of the lease.
    private let length: UInt64
    /// Nanoseconds between two calls of ``tick(at:)`` beyond which the process counts as paused.
    private let pause: UInt64
    /// Nanoseconds after a pause until heartbeats have certainly been answered.
    private let settling: UInt64
    private var lastTick: UInt64
    private var awakeSince: UInt64
    /// Time of the group's last sign of this worker, in nanoseconds.
    private var heardAt: UInt64
    /// Time at which the end of the lease was noticed, in nanoseconds; nil: the lease hasn't ended.
    private var doubtSince: UInt64?
    /// Confirmation that waits for the shards; nil: no confirmation waits.
    private var confirmation: (number: UInt64, requestedAt: UInt64)?
    private var confirmations: UInt64 = 0

    /// - Parameter session: nanoseconds without a heartbeat after which the group assigns the partitions to others. The
    ///   lease is half as long.
    public init(session: UInt64, now: UInt64) {
        length = session / 2
        pause = max(length / 8, 250_000_000)
        settling = length / 4
        lastTick = now
        awakeSince = now
        heardAt = now
    }

    /// Time at which the lease ends as things are, in nanoseconds; 0 once the lease has ended.
    public var until: UInt64 { doubtSince == nil ? heardAt &+ length : 0 }

    /// The lease has ended, and the group hasn't confirmed the membership since.
    public var isDoubtful: Bool { doubtSince != nil }

    /// The group has confirmed the membership, and the shards are awaited.
    public var awaitsShards: Bool { confirmation != nil }

    /// Extends the lease while the process runs, and notices its end. To be called several times in each eighth of the
    /// lease.
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

    /// Takes the group's confirmation of the membership, in answer to a request that was made at `requestedAt`. An
    /// answer to a request older than the doubt proves nothing about the time since. The owner then asks once more.
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

    /// Renews the lease after a confirmation, unless the new end has passed already. All shards have done what they
    /// were asked for before the confirmation of this number.
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
