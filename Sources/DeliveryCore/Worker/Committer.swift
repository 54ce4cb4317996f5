/// Plain commits of a worker, one at a time. Each commit first writes what it covers to the disk or the changelog.
///
/// ```
///     idle ─ begin ─▶ flushing ─▶ syncing ───────▶ committing ─ answered ─▶ idle
///                        │   └──▶ acknowledging ─────▲
///                        └ nothing was written ──────┘
/// ```
///
/// A commit is one value, a ``CommitSet``, which ends exactly once: as ``Action/ended(_:isAccepted:)``.
public struct Committer: Sendable {
    /// Cause of a commit.
    public enum Kind: UInt8, Sendable, CaseIterable {
        /// The commit interval has passed, or enough jobs have finished.
        case periodic
        /// Points that the group has already; only a member can commit them.
        case membership
        /// Partitions that the group revokes.
        case revocation
        /// All partitions, at the worker's end.
        case last
    }

    /// Content of a commit.
    public struct CommitSet: Sendable, Equatable {
        /// Point to commit for a partition.
        public struct Part: Sendable, Equatable {
            /// Slot of the partition.
            public var slot: UInt16
            /// Kafka's number of the partition.
            public var partition: Int32
            /// Offset and metadata to commit.
            public var point: PartitionLifecycle.CommitPoint
        }

        public var kind: Kind
        /// Points to commit; empty when only deletions wait.
        public var parts: [Part] = []
        /// Number under which ``DeferredDeletes`` knows the commit; nil when nothing is removed from the store after it.
        public var deletes: UInt64?
        /// Time at which Kafka was asked, in nanoseconds of the monotonic clock; 0 before.
        public internal(set) var requestedAt: UInt64 = 0

        init(_ kind: Kind) { self.kind = kind }

        var isEmpty: Bool { parts.isEmpty && deletes == nil }
    }

    /// Stage of the commit under way.
    public enum Stage: UInt8, Sendable, CaseIterable {
        case idle, flushing, syncing, acknowledging, committing
    }

    enum Action: Equatable {
        /// Each shard hands over what it has for the store.
        case flush
        case sync
        /// Asks Kafka; ``Committer/answered(_:isAccepted:)`` with this ticket follows.
        case commit(CommitSet, ticket: UInt64)
        case ended(CommitSet, isAccepted: Bool)
        /// The commit wasn't sent, because the client joins the group. The commit is to be repeated.
        case held(CommitSet)
    }

    private let mode: StoreMode
    private let shards: Int
    public private(set) var stage = Stage.idle
    /// Commit under way; nil while idle.
    private var current: CommitSet?
    private var awaitedShards = 0
    /// Changes whose acknowledgements the commit awaits.
    private var awaitedChanges: Set<ChangeEpoch> = []
    /// Unacknowledged changelog records per shard and epoch. A count is negative while acknowledgements are ahead of
    /// the shard's count.
    private var unacknowledged: [ChangeEpoch: Int] = [:]
    /// True when something was written since the last sync, or the last sync failed.
    private var mustSync = false
    private var ticket: UInt64 = 0
    /// Ticket of the commit that Kafka was asked for last.
    private var issued: UInt64 = 0
    /// Commit of points that are committed already; nil: none is under way. The commit may run beside another commit
    /// that waits for the disk or the changelog.
    private var membership: (set: CommitSet, ticket: UInt64)?
    /// Time before which no commit begins, because the group is in a rebalance, in nanoseconds of the monotonic clock.
    private var waitsUntil: UInt64 = 0
    /// Time before which no periodic commit begins, because the last commit wasn't taken or the last sync failed, in
    /// nanoseconds of the monotonic clock.
    private var pausesUntil: UInt64 = 0
    /// True from a commit that met a rebalance to the rebalance's end, or to a commit that Kafka takes.
    private(set) var meetsRebalance = false
    private var actions: [Action] = []

    /// Nanoseconds after which commits resume without news of a rebalance.
    static let longestRebalance: UInt64 = 5_000_000_000
    /// Nanoseconds from a commit that wasn't taken, a failed sync, or a commit that the client has held back, to the next
    /// attempt.
    static let retryPause: UInt64 = 50_000_000

    init(mode: StoreMode, shards: Int) {
        self.mode = mode
        self.shards = shards
    }

    /// True when no commit is under way.
    public var isIdle: Bool { stage == .idle }
    /// Changelog records that Kafka hasn't acknowledged, as far as shards have counted them.
    public var unacknowledgedChanges: Int { unacknowledged.values.reduce(0) { $0 + max(0, $1) } }

    /// Returns whether a periodic commit may begin. A drain has no time to wait for a rebalance.
    func mayBegin(isDraining: Bool, at now: UInt64) -> Bool {
        stage == .idle && now >= pausesUntil && (isDraining || membership == nil && now >= waitsUntil)
    }

    /// Returns whether the group may be asked. A commit that waits for acknowledgements is no obstacle, because
    /// acknowledgements may wait for the group's answer.
    func mayAsk(at now: UInt64) -> Bool { stage != .committing && membership == nil && now >= waitsUntil }

    /// Returns whether commits wait for the end of a rebalance.
    func waits(at now: UInt64) -> Bool { now < waitsUntil }

    /// Returns whether the ticket is of a question to the group.
    func isMembership(_ ticket: UInt64) -> Bool { membership?.ticket == ticket }

    mutating func nextAction() -> Action? { actions.isEmpty ? nil : actions.removeFirst() }

    // MARK: Events

    /// Begins a commit. The caller has checked ``isIdle``.
    mutating func beginCommit(_ set: CommitSet, at now: UInt64) {
        guard stage == .idle, !set.isEmpty else { return actions.append(.ended(set, isAccepted: false)) }
        current = set
        // Without new offsets, all that is complete was committed before.
        guard !set.parts.isEmpty else { return endCommit(isAccepted: true) }
        guard mode.hasStore else { return commit(at: now) }
        stage = .flushing
        awaitedShards = shards
        awaitedChanges = []
        actions.append(.flush)
    }

    /// Asks the group by a commit. The caller has checked ``mayAsk(at:)``.
    mutating func ask(_ set: CommitSet, at now: UInt64) {
        assert(mayAsk(at: now), "the group is asked during another commit")
        guard membership == nil, !set.parts.isEmpty else { return }
        ticket += 1
        var set = set
        set.requestedAt = now
        membership = (set, ticket)
        actions.append(.commit(set, ticket: ticket))
    }

    /// Takes a shard's flush: the shard has handed over what it had.
    mutating func flushed(_ flush: ShardFlush, at now: UInt64) {
        count(flush)
        guard stage == .flushing else { return }
        awaitedShards -= 1
        guard awaitedShards == 0 else { return }
        if mode == .changelog {
            stage = .acknowledging
            // Records of earlier flushes count as well: a shard's last flush, or the flush of a commit that wasn't
            // made.
            awaitedChanges = Set(unacknowledged.filter { $0.value > 0 }.keys)
            passIfAcknowledged(at: now)
        } else if mode == .local, mustSync {
            stage = .syncing
            mustSync = false
            actions.append(.sync)
        } else {
            commit(at: now)
        }
    }

    /// Counts a shard's records whose reports are outstanding.
    mutating func count(_ flush: ShardFlush) {
        if flush.hasWritten { mustSync = true }
        guard flush.produced > 0, mode == .changelog else { return }
        let open = unacknowledged[flush.epoch, default: 0] + flush.produced
        unacknowledged[flush.epoch] = open == 0 ? nil : open
    }

    mutating func synced(isDone: Bool, at now: UInt64) {
        if !isDone { mustSync = true }
        guard stage == .syncing else { return }
        if isDone { return commit(at: now) }
        pausesUntil = now + Self.retryPause
        endCommit(isAccepted: false)
    }

    /// Counts a changelog record as acknowledged. Kafka has the record, or never will because the record was dropped
    /// with its partition.
    mutating func acknowledged(_ epoch: ChangeEpoch, at now: UInt64) {
        guard mode == .changelog else { return }
        let open = unacknowledged[epoch, default: 0] - 1
        unacknowledged[epoch] = open == 0 ? nil : open
        guard open == 0, awaitedChanges.remove(epoch) != nil else { return }
        passIfAcknowledged(at: now)
    }

    private mutating func passIfAcknowledged(at now: UInt64) {
        if stage == .acknowledging, awaitedChanges.isEmpty { commit(at: now) }
    }

    private mutating func commit(at now: UInt64) {
        guard !current!.parts.isEmpty else { return endCommit(isAccepted: false) }
        stage = .committing
        ticket += 1
        issued = ticket
        current!.requestedAt = now
        actions.append(.commit(current!, ticket: ticket))
    }

    /// Removes a partition that is gone from the commit that is still to be made.
    mutating func forget(_ slot: UInt16) {
        guard stage == .flushing || stage == .syncing || stage == .acknowledging else { return }
        current!.parts.removeAll { $0.slot == slot }
    }

    /// Ends a commit, because Kafka has answered or could not be asked.
    mutating func answered(_ ticket: UInt64, isAccepted: Bool, at now: UInt64) {
        if let asked = membership, asked.ticket == ticket {
            membership = nil
            return actions.append(.ended(asked.set, isAccepted: isAccepted))
        }
        guard stage == .committing, ticket == issued else { return }
        if isAccepted { meetsRebalance = false } else { pausesUntil = now + Self.retryPause }
        endCommit(isAccepted: isAccepted)
    }

    /// Takes back a commit that the client hasn't sent, because the client joins the group. An outdated generation
    /// would cost the worker its partitions.
    mutating func held(_ ticket: UInt64, at now: UInt64) {
        pausesUntil = now + Self.retryPause
        waitsUntil = max(waitsUntil, pausesUntil)
        meetsRebalance = true
        if let asked = membership, asked.ticket == ticket {
            membership = nil
            return actions.append(.held(asked.set))
        }
        guard stage == .committing, ticket == issued, let held = current else { return }
        current = nil
        stage = .idle
        actions.append(.held(held))
    }

    /// Delays commits until the outcome of a rebalance is known.
    mutating func rebalanceBegan(at now: UInt64) {
        waitsUntil = now + Self.longestRebalance
        meetsRebalance = true
    }

    mutating func rebalanceEnded() {
        waitsUntil = 0
        meetsRebalance = false
    }

    private mutating func endCommit(isAccepted: Bool) {
        guard let ended = current else { return }
        current = nil
        stage = .idle
        actions.append(.ended(ended, isAccepted: isAccepted))
    }
}
