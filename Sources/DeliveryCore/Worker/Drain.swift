/// Order in which a worker ends. Jobs in flight end first, then the shards, then what the shards have reported is
/// committed.
///
/// ```
///     running ─ stop ─▶ draining ─▶ endingShards ─┬─▶ lastTransaction ─┬─▶ lastDeletes ─▶ leaving ─▶ ended
///                                                 ├─▶ lastReports ─▶ lastCommit ──▲          ▲
///                                                 └─ a failure that ends at once ────────────┘
/// ```
///
/// The phases `draining`, `lastTransaction`, `lastReports`, `lastCommit` and `lastDeletes` have a deadline. When the
/// deadline is over, the next phase begins.
public struct Drain: Sendable {
    /// Phase of a worker's end, in the order of the phases.
    public enum Phase: UInt8, Sendable, CaseIterable, Comparable {
        /// Records are taken, and no end was requested.
        case running
        /// No record is taken; jobs in flight end.
        case draining
        /// The shards close their connections.
        case endingShards
        /// The last transaction is committed, or aborted.
        case lastTransaction
        /// Delivery reports are awaited.
        case lastReports
        /// The last plain commit is under way.
        case lastCommit
        /// The store forgets items that are committed as ended.
        case lastDeletes
        /// The group is left.
        case leaving
        /// The worker has ended.
        case ended

        public static func < (one: Phase, other: Phase) -> Bool { one.rawValue < other.rawValue }
    }

    private let shards: Int
    public private(set) var phase = Phase.running
    /// Time at which the phase is over, in nanoseconds of the monotonic clock; `.max` without a deadline.
    private(set) var deadline = UInt64.max
    /// Time by which the group has been left, in nanoseconds; nil while the worker runs.
    private(set) var stopsAt: UInt64?
    /// Shards that haven't answered the drain.
    private var awaitedShards = 0
    private var unsettledShards = 0
    /// Shards that haven't answered in this phase.
    private var awaitedAnswers = 0
    /// Jobs that the shards gave back at the end, of all partitions.
    private(set) var drained = 0
    /// True when nothing is committed any more.
    private(set) var isAtOnce = false
    /// Records whose delivery reports are outstanding.
    var unreported = 0
    private(set) var produced = 0
    private(set) var changesLeft = 0
    /// A shard has ended with a part of what belongs into the open transaction.
    private(set) var isTorn = false
    /// All jobs had ended when the shards were ended.
    private(set) var isComplete = false
    /// The last offsets are committed.
    private(set) var isCommitted = false
    /// The deadline of the last transaction was extended for its abort.
    private(set) var isExtended = false

    init(shards: Int) { self.shards = shards }

    /// Longest part of the time that is kept for outcomes, offsets and leaving the group, in nanoseconds.
    static let longestEnd: UInt64 = 5_000_000_000
    static let reportPatience: UInt64 = 2_000_000_000
    static let commitPatience: UInt64 = 2_000_000_000
    static let deletePatience: UInt64 = 2_000_000_000

    func isOver(at now: UInt64) -> Bool { now >= deadline }

    /// Returns whether the last commit may wait longer for the end of a rebalance. Leaving the group waits for it, too.
    func hasTime(at now: UInt64) -> Bool { stopsAt.map { now + Self.commitPatience < $0 } ?? false }

    var shardsHaveSettled: Bool { awaitedShards <= 0 && unsettledShards <= 0 }

    mutating func start(deadline length: UInt64, at now: UInt64) {
        phase = .draining
        stopsAt = now + length
        deadline = now + (length - min(length / 5, Self.longestEnd))
        awaitedShards = shards
        unsettledShards = shards
    }

    mutating func shardDrained(_ jobs: Int) {
        drained += jobs
        awaitedShards -= 1
    }

    mutating func shardSettled() { unsettledShards -= 1 }

    /// - Parameter isComplete: all jobs have ended.
    mutating func endShards(isComplete: Bool) {
        phase = .endingShards
        deadline = .max
        self.isComplete = isComplete
        awaitedAnswers = shards
    }

    /// - Returns: all shards have answered.
    mutating func shardAnswered() -> Bool {
        awaitedAnswers -= 1
        return awaitedAnswers == 0
    }

    mutating func shardEnded(_ ending: ShardEnding) -> Bool {
        produced += ending.produced
        changesLeft += ending.changesLeft
        if ending.isTorn { isTorn = true }
        return shardAnswered()
    }

    /// Ends all commits. The group is left within a few seconds.
    mutating func endAtOnce(at now: UInt64) {
        isAtOnce = true
        stopsAt = min(stopsAt ?? .max, now + Self.longestEnd)
    }

    mutating func enter(_ phase: Phase, patience: UInt64, at now: UInt64) {
        self.phase = phase
        deadline = now + patience
        awaitedAnswers = shards
    }

    mutating func extend(_ patience: UInt64, at now: UInt64) {
        isExtended = true
        deadline = now + patience
    }

    mutating func committed() { isCommitted = true }

    mutating func leave() {
        phase = .leaving
        deadline = .max
    }

    mutating func end() { phase = .ended }

    /// Returns the milliseconds for leaving the group. They are three seconds at least, because a rebalance that is
    /// under way has to end first.
    func timeToLeave(at now: UInt64) -> Int32 {
        let stopsAt = stopsAt ?? now
        return max(3_000, Int32(clamping: stopsAt > now ? (stopsAt - now) / 1_000_000 : 0))
    }
}
