/// One partition that the worker reads, from its take-over to its end: which records are outstanding, what may be
/// committed, which deletions wait for commits, and what a revocation still awaits.
///
/// ```
/// assigned ─▶ restoring ─▶ ready        (``PartitionRestore``)
///                            │ begin
///                            ▼
///                          taking ── revoke ─▶ settling ── finish ─▶ gone
///                            └──── lost ───────────────────────────▶ gone
/// ```
public struct PartitionLifecycle: Sendable {
    public enum Stage: UInt8, Sendable, CaseIterable {
        /// Records are taken.
        case taking
        /// The group takes the partition away; what is in flight ends first.
        case settling
    }

    /// What the group has of a partition, or is to have.
    public struct CommitPoint: Sendable, Equatable {
        public var offset: Int64
        public var metadata: String

        public init(offset: Int64, metadata: String) {
            self.offset = offset
            self.metadata = metadata
        }
    }

    /// A record that the window of offsets could not hold yet. Its handle belongs to the owner.
    public struct HeldRecord: Sendable {
        public var offset: Int64
        public var bytes: Int
        public var handle: UInt
        /// Of its device; of no meaning without a key.
        public var shard: Int
    }

    public let partition: Int32
    /// Number that its records and outcomes carry; given by ``PartitionSlots``.
    public internal(set) var slot: UInt16 = 0
    public private(set) var stage = Stage.taking
    private var tracker: OffsetTracker
    private var pollTimes = PollTimes()
    private var heldRecords: [HeldRecord] = []
    /// Something has changed since the last commit was put together.
    private var isDirty = false
    /// The point that was committed last. Nil: the next commit names the partition in any case.
    private var committed: CommitPoint?
    /// The point that the group had at the beginning, or was asked to take last. Nil: none is known.
    private var sent: CommitPoint?
    /// A record was read in this assignment.
    private var hasBegun = false
    private var deletes = DeferredDeletes()
    /// Shards whose answers to the revocation haven't come.
    private var awaitedShards = 0
    private var unsettledShards = 0
    /// Items that the store has from this offset on, above what was read, are of an earlier log: the topic was made anew, in
    /// this assignment or before. `.max`: there are none.
    public let earlierFrom: Int64

    /// - Parameters:
    ///   - begin: what the group has; nil: nothing is committed.
    ///   - completed: offsets above it that are complete, as the commit's metadata says.
    ///   - logEnd: one above the log's last offset, asked for after the partition's store was restored; nil: unknown.
    public init(
        partition: Int32, begin: CommitPoint?, completed: CompletedOffsets, logEnd: Int64? = nil,
        spanLimit: Int = 1 << 20, metadataBytes: Int = CommitMetadata.maximumBytes
    ) {
        self.partition = partition
        tracker = OffsetTracker(
            nextOffset: begin?.offset ?? 0, completedAbove: completed, spanLimit: spanLimit,
            metadataBytes: metadataBytes)
        sent = begin
        earlierFrom = logEnd ?? .max
    }

    /// The log began anew at an offset: whatever the store has now is of the log before.
    init(partition: Int32, restartingAt offset: Int64, spanLimit: Int, metadataBytes: Int) {
        self.partition = partition
        tracker = OffsetTracker(
            nextOffset: offset, completedAbove: .none, spanLimit: spanLimit, metadataBytes: metadataBytes)
        earlierFrom = 0
    }

    // MARK: Records

    public var isEnding: Bool { stage != .taking }
    public var isFull: Bool { tracker.isFull }
    public var hasRoom: Bool { tracker.hasRoom }
    public var hasHeld: Bool { !heldRecords.isEmpty }
    public var watermark: Int64 { tracker.watermark }
    /// One above the highest offset taken.
    public var end: Int64 { tracker.end }
    public var outstanding: Int { tracker.outstanding }
    public var outstandingBytes: Int { tracker.outstandingBytes }
    public var completedInWindow: Int64 { tracker.completedInWindow }
    /// When the oldest unfinished record was polled, in nanoseconds; nil when all are finished.
    public var oldestPollTime: UInt64? { tracker.oldestOutstanding.flatMap { pollTimes.time(of: $0) } }

    /// An item of the store may come back: its record was read, or is of an earlier log.
    public var mayReturn: (Int64) -> Bool {
        let (end, earlierFrom) = (tracker.end, earlierFrom)
        return { $0 < end || $0 >= earlierFrom }
    }

    var beginRequest: ShardRequest {
        .begin(
            slot: slot, partition: partition, readThrough: tracker.end - 1,
            earlierFrom: earlierFrom, committed: tracker.committable)
    }

    mutating func begin(_ offset: Int64, bytes: Int, at now: UInt64) -> OffsetTracker.Begin {
        let begin = tracker.begin(offset, bytes: bytes)
        hasBegun = true
        switch begin {
        case .begun: pollTimes.polled(offset, at: now, watermark: tracker.watermark)
        case .alreadyCompleted:
            isDirty = true
            // Cancels and device events have their effect on memory once more: no commit passes them before.
            tracker.hold(offset)
        case .full, .outOfOrder: break
        }
        return begin
    }

    /// Finishes a record. `bytes` is its part of what was outstanding.
    mutating func complete(_ offset: Int64) -> (OffsetTracker.Completion, bytes: Int) {
        let before = tracker.outstandingBytes
        let completion = tracker.complete(offset)
        if completion == .advanced || completion == .completed { isDirty = true }
        return (completion, before - tracker.outstandingBytes)
    }

    /// A record that was complete before has had its effect once more.
    mutating func replayed(_ offset: Int64) {
        tracker.release(offset)
        isDirty = true
    }

    mutating func hold(_ record: HeldRecord) { heldRecords.append(record) }

    mutating func takeHeld() -> [HeldRecord] {
        let held = heldRecords
        heldRecords = []
        return held
    }

    mutating func hold(_ records: ArraySlice<HeldRecord>) { heldRecords.append(contentsOf: records) }

    mutating func askRelief(again: Bool) -> Int64? { tracker.askRelief(again: again) }

    // MARK: Commits

    public var needsCommit: Bool { isChanged || deletes.needsCommit }
    public var isChanged: Bool { isDirty && hasPoint }
    public var lastSent: CommitPoint? { sent }

    /// The point to commit now.
    func commitPoint() -> CommitPoint {
        let (offset, metadata) = tracker.commitPoint()
        return CommitPoint(offset: offset, metadata: metadata)
    }

    /// There is something to commit: the group has an offset, or a record was read. Where nothing is committed and nothing
    /// was read, the client's `auto.offset.reset` decides.
    var hasPoint: Bool { sent != nil || hasBegun }

    /// The point to commit, if it isn't the one that was committed last.
    func pendingCommit() -> CommitPoint? {
        guard isDirty, hasPoint else { return nil }
        let point = commitPoint()
        return point == committed ? nil : point
    }

    mutating func commitIssued(_ point: CommitPoint?) {
        guard let point else { return }
        committed = point
        isDirty = false
    }

    /// Kafka is asked. Its answer may be lost, and the group may have the point all the same.
    mutating func commitSent(_ point: CommitPoint) { sent = point }

    /// The offsets go with the open transaction.
    mutating func sentWithTransaction() { isDirty = false }

    mutating func commitAgain() {
        committed = nil
        isDirty = true
    }

    // MARK: Deletions

    public var awaitsDeletes: Bool { !deletes.isEmpty }

    /// The lists of deletions that a commit covers get a number.
    mutating func deletesIssued() -> UInt64 { deletes.commitIssued() }

    mutating func deletesEnded(_ number: UInt64, isTaken: Bool) {
        if isTaken { deletes.commitTaken(number) } else { deletes.commitFailed(number) }
    }

    mutating func acknowledged(device: UInt64, offset: Int64, isStored: Bool, completes: Bool) -> Bool {
        deletes.acknowledged(device: device, offset: offset, isStored: isStored, completes: completes)
    }

    mutating func removed(device: UInt64, offset: Int64) { deletes.removed(device: device, offset: offset) }

    mutating func nextDelete() -> DeferredDeletes.Action? { deletes.nextAction() }

    /// Jobs whose outcomes are in Kafka, and which only wait for deletions.
    var waitingCompletions: Int { deletes.completions }

    // MARK: Revocation

    /// The group takes the partition away; `shards` of them answer, and as many again where there is a store.
    mutating func revoke(shards: Int, hasStore: Bool) {
        stage = .settling
        awaitedShards = shards
        unsettledShards = hasStore ? shards : 0
    }

    mutating func shardGaveBack() { awaitedShards -= 1 }
    mutating func shardSettled() { unsettledShards -= 1 }

    /// All shards have given back what they don't send, and nothing is in flight.
    public var isSettled: Bool { awaitedShards <= 0 && unsettledShards <= 0 }
}
