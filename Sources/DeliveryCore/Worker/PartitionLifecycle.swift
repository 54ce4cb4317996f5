/// A partition that the worker reads, from its take-over to its end. The lifecycle tracks which records are outstanding
/// and what may be committed. It also tracks which deletions wait for commits, and what a revocation still awaits.
///
/// ```
///     assigned ─▶ restoring ─▶ ready        (``PartitionRestore``)
///                                │ begin
///                                ▼
///                              taking ── revoke ─▶ settling ── finish ─▶ gone
///                                └──── lost ───────────────────────────▶ gone
/// ```
public struct PartitionLifecycle: ~Copyable, Sendable {
    /// Stage of an assigned partition.
    public enum Stage: UInt8, Sendable, CaseIterable {
        /// Records are taken.
        case taking
        /// The group revokes the partition; jobs in flight end first.
        case settling
    }

    /// Offset and metadata that the group has of a partition, or is to have.
    public struct CommitPoint: Sendable, Equatable {
        /// Offset of the first unfinished record.
        public var offset: Int64
        /// Completed offsets above `offset`, as ``CommitMetadata`` encodes them.
        public var metadata: String

        public init(offset: Int64, metadata: String) {
            self.offset = offset
            self.metadata = metadata
        }
    }

    /// Record that the window of offsets could not hold yet. The record's handle belongs to the owner.
    public struct PolledRecord: Sendable {
        /// Offset of the record.
        public var offset: Int64
        /// Bytes of the record.
        public var bytes: Int
        /// Time of the record in milliseconds since the epoch; 0: unknown, or no evidence.
        public var milliseconds: Int64
        /// Owner's handle of the record, which the owner frees.
        public var handle: UInt
        /// Shard of the record's device; meaningless without a key.
        public var shard: Int
    }

    /// Kafka's number of the partition.
    public let partition: Int32
    /// Number that the partition's records and outcomes carry; assigned by ``PartitionSlots``.
    public internal(set) var slot: UInt16 = 0
    public private(set) var stage = Stage.taking
    private var tracker: OffsetTracker
    private var pollTimes = PollTimes()
    private var deferredRecords: [PolledRecord] = []
    /// True when something has changed since the last commit was assembled.
    private var isDirty = false
    /// Point that was committed last; nil: the next commit names the partition in any case.
    private var committed: CommitPoint?
    /// Point that the group had at the beginning, or was asked to take last; nil: no point is known.
    private var sent: CommitPoint?
    /// True once a record was read in this assignment.
    private var hasBegun = false
    /// Time of the newest record that was read, in milliseconds since the epoch; 0: unknown. See ``LogEvidence``.
    private(set) var newestMilliseconds: Int64
    /// Outcomes and dead letters that Kafka has and that no commit covers. Not counted with transactions.
    private(set) var uncommitted = 0
    /// Part of ``uncommitted`` that the commit under way covers.
    private var committing = 0
    /// Shards that haven't answered the revocation.
    private var awaitedShards = 0
    private var unsettledShards = 0
    /// First offset of items of an earlier log; `.max`: there are none. Items that the store has from this offset on,
    /// above what was read, belong to that log. The topic was recreated in this assignment or before.
    public let earlierFrom: Int64

    /// - Parameters:
    ///   - begin: the group's point; nil: nothing is committed.
    ///   - completed: offsets above the point that are complete, decoded from the commit's metadata.
    ///   - newestMilliseconds: evidence of that metadata; 0: there is none.
    ///   - logEnd: the log's last offset plus one, requested after the partition's store was restored; nil: unknown.
    public init(
        partition: Int32, begin: CommitPoint?, completed: CompletedOffsets,
        newestMilliseconds: Int64 = 0, logEnd: Int64? = nil,
        spanLimit: Int = OffsetTracker.usualSpanLimit, metadataBytes: Int = CommitMetadata.maximumBytes
    ) {
        self.partition = partition
        tracker = OffsetTracker(
            nextOffset: begin?.offset ?? 0, completedAbove: completed, spanLimit: spanLimit,
            metadataBytes: metadataBytes)
        sent = begin
        self.newestMilliseconds = newestMilliseconds
        earlierFrom = logEnd ?? .max
    }

    /// Begins at an offset, because the log began anew there. All that the store has now belongs to the log before.
    init(partition: Int32, restartingAt offset: Int64, spanLimit: Int, metadataBytes: Int) {
        self.partition = partition
        tracker = OffsetTracker(
            nextOffset: offset, completedAbove: .none, spanLimit: spanLimit, metadataBytes: metadataBytes)
        newestMilliseconds = 0
        earlierFrom = 0
    }

    /// Begins at an offset, because the log has lost what followed. Records of what the store has from there on are
    /// lost as well. The offset is committed soon, before the log has grown beyond the group's offset.
    init(
        partition: Int32, shortenedTo offset: Int64, newestMilliseconds: Int64, spanLimit: Int,
        metadataBytes: Int
    ) {
        self.init(
            partition: partition, restartingAt: offset, spanLimit: spanLimit, metadataBytes: metadataBytes)
        self.newestMilliseconds = newestMilliseconds
        sent = commitPoint()
        isDirty = true
    }

    // MARK: Records

    /// True when the group revokes the partition.
    public var isEnding: Bool { stage != .taking }
    /// True when the window of offsets has reached its limit and the partition has to pause.
    public var isFull: Bool { tracker.isFull }
    /// True when the window is at most half of its limit and a paused partition can resume.
    public var hasRoom: Bool { tracker.hasRoom }
    /// True when records wait for room in the window of offsets.
    public var hasDeferredRecords: Bool { !deferredRecords.isEmpty }
    /// Offset below which everything is finished.
    public var watermark: Int64 { tracker.watermark }
    /// Highest offset taken, plus one.
    public var end: Int64 { tracker.end }
    /// Records taken and not complete.
    public var outstanding: Int { tracker.outstanding }
    /// Returns true when the record was taken and is not complete.
    func isOutstanding(_ offset: Int64) -> Bool { tracker.isOutstanding(offset) }
    /// Bytes of the outstanding records, about.
    public var outstandingBytes: Int { tracker.outstandingBytes }
    /// Finished offsets between the offset to commit and the end.
    public var completedInWindow: Int64 { tracker.completedInWindow }
    /// Time at which the oldest unfinished record was polled, in nanoseconds; nil when all are finished.
    public var oldestPollTime: UInt64? { tracker.oldestOutstanding.flatMap { pollTimes.time(of: $0) } }

    /// Test of an offset: the store's item may return, because its record was read or is of an earlier log.
    public var mayReturn: (Int64) -> Bool {
        let (end, earlierFrom) = (tracker.end, earlierFrom)
        return { $0 < end || $0 >= earlierFrom }
    }

    var beginRequest: ShardRequest {
        .begin(
            slot: slot, partition: partition, readThrough: tracker.end - 1,
            earlierFrom: earlierFrom, committed: tracker.committable)
    }

    mutating func track(
        _ offset: Int64, bytes: Int, milliseconds: Int64, at now: UInt64
    ) -> OffsetTracker.Tracking {
        let begin = tracker.track(offset, bytes: bytes)
        hasBegun = true
        if begin == .tracked || begin == .alreadyCompleted {
            newestMilliseconds = max(newestMilliseconds, milliseconds)
        }
        switch begin {
        case .tracked: pollTimes.polled(offset, at: now, watermark: tracker.watermark)
        case .alreadyCompleted:
            isDirty = true
            // No commit passes cancels and device events before they have had their effect on memory once more.
            tracker.retain(offset)
        case .full, .outOfOrder: break
        }
        return begin
    }

    /// Finishes a record. `bytes` is the record's part of the outstanding bytes.
    mutating func complete(_ offset: Int64) -> (OffsetTracker.Completion, bytes: Int) {
        let before = tracker.outstandingBytes
        let completion = tracker.complete(offset)
        if completion == .advanced || completion == .completed { isDirty = true }
        return (completion, before - tracker.outstandingBytes)
    }

    /// Takes bytes off an outstanding record. Returns the bytes that were taken off.
    mutating func shrink(_ offset: Int64, by bytes: Int) -> Int { tracker.shrink(offset, by: bytes) }

    /// Releases a record that was complete before, because the record has had its effect once more.
    mutating func replayed(_ offset: Int64) {
        tracker.release(offset)
        isDirty = true
    }

    mutating func deferRecord(_ record: PolledRecord) { deferredRecords.append(record) }

    mutating func replaceDeferredHandles(_ replace: (UInt) -> UInt) {
        for index in deferredRecords.indices {
            deferredRecords[index].handle = replace(deferredRecords[index].handle)
        }
    }

    mutating func takeDeferredRecords() -> [PolledRecord] {
        let taken = deferredRecords
        deferredRecords = []
        return taken
    }

    mutating func deferRecords(_ records: ArraySlice<PolledRecord>) {
        deferredRecords.append(contentsOf: records)
    }

    mutating func askRelief(again: Bool) -> Int64? { tracker.askRelief(again: again) }

    // MARK: Commits

    /// True when something has changed since the last commit was assembled.
    public var isChanged: Bool { isDirty && hasPoint }

    /// Returns the point that the group has or was asked to take; without one, where a group without offsets begins to
    /// read. Nil when that isn't known.
    func pointSoFar(readsFromBeginning: Bool) -> CommitPoint? {
        if let sent { return sent }
        if readsFromBeginning { return CommitPoint(offset: 0, metadata: "") }
        return earlierFrom == .max ? nil : CommitPoint(offset: earlierFrom, metadata: "")
    }

    /// Returns the point to commit now.
    func commitPoint() -> CommitPoint {
        let (offset, metadata) = tracker.commitPoint(newestMilliseconds: newestMilliseconds)
        return CommitPoint(offset: offset, metadata: metadata)
    }

    /// True when there is something to commit: the group has an offset, or a record was read. Otherwise the client's
    /// `auto.offset.reset` decides where reading begins.
    var hasPoint: Bool { sent != nil || hasBegun }

    /// Returns the point to commit; nil when there is none, or when that point was committed last.
    func pendingCommit() -> CommitPoint? {
        guard isDirty, hasPoint else { return nil }
        let point = commitPoint()
        return point == committed ? nil : point
    }

    mutating func commitIssued(_ point: CommitPoint?) {
        committing = uncommitted
        guard let point else { return }
        committed = point
        isDirty = false
    }

    /// Counts an outcome or dead letter that Kafka has.
    mutating func outcomeReported() { uncommitted += 1 }

    /// Notes that there is nothing to commit.
    mutating func noneIsUncommitted() { uncommitted = 0 }

    /// Counts off the outcomes that a commit has covered, if Kafka has taken it.
    mutating func commitEnded(isAccepted: Bool) {
        if isAccepted { uncommitted -= committing }
        committing = 0
    }

    /// Notes that Kafka is asked to commit the point. The answer may be lost while the group has the point all the
    /// same.
    mutating func commitSent(_ point: CommitPoint) { sent = point }

    /// Notes that the open transaction carries the offsets.
    mutating func sentWithTransaction() { isDirty = false }

    mutating func commitAgain() {
        committed = nil
        isDirty = true
    }

    // MARK: Revocation

    /// Begins the group's revocation. Awaits answers of `shards` shards, and as many answers again where there is a
    /// store.
    mutating func revoke(shards: Int, hasStore: Bool) {
        stage = .settling
        awaitedShards = shards
        unsettledShards = hasStore ? shards : 0
    }

    mutating func shardGaveBack() { awaitedShards -= 1 }
    mutating func shardSettled() { unsettledShards -= 1 }

    /// True when all shards have given back what they don't send, and nothing is in flight.
    public var isSettled: Bool { awaitedShards <= 0 && unsettledShards <= 0 }
}
