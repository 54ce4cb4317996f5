/// Progress of reading one partition. Pure: the reader reports records and ends to it.
public struct ChangelogProgress: Sendable, Hashable {
    /// State of the reading.
    public enum State: Sendable, Hashable {
        /// Records before `end` are still to be read.
        case reading
        /// Every readable record was read, but not all records. A transaction is open, and committed readers see
        /// nothing behind its first record. The transaction ends by itself, at the latest after its producer's
        /// `transaction.timeout.ms`.
        case waitingForTransaction
        /// Every record before `end` was returned.
        case complete
        /// The log has no record at `position`: the log begins later (deleted by retention) or ends before (recreated).
        /// Reading has stopped.
        case outOfRange
        /// The query for the partition's ends failed. Nothing is read.
        case failed
    }

    public let topicPartition: TopicPartition
    /// Offset where reading began.
    public internal(set) var start: Int64
    /// Next offset; every record before it was returned. Counts transaction markers, aborted and compacted records too,
    /// so it reaches `end` exactly. A valid start for reading on later.
    public internal(set) var position: Int64
    /// End of the log at the time of the query.
    public internal(set) var end: Int64
    public internal(set) var state: State

    init(_ partition: TopicPartition, from start: StartOffset, _ watermarks: Watermarks) {
        topicPartition = partition
        if case .offset(let offset) = start { self.start = offset } else { self.start = watermarks.low }
        position = self.start
        end = watermarks.high
        state =
            self.start < watermarks.low || self.start > watermarks.high
            ? .outOfRange : (self.start == watermarks.high ? .complete : .reading)
    }

    init(failed partition: TopicPartition, from start: StartOffset) {
        topicPartition = partition
        if case .offset(let offset) = start { self.start = offset } else { self.start = 0 }
        position = self.start
        end = self.start
        state = .failed
    }

    /// Whether every record before `end` was returned.
    public var isComplete: Bool { state == .complete }

    /// Offsets before the end; an upper bound for the records to come.
    public var remaining: Int64 { max(0, end - position) }

    /// Whether records of the partition are still to be read.
    var isReading: Bool { state == .reading || state == .waitingForTransaction }

    /// Records the offset of a polled record. Returns false when the record must not be returned.
    @inline(__always)
    mutating func admit(_ offset: Int64) -> Bool {
        guard isReading else { return false }
        state = .reading
        guard offset < end else {
            finish()
            return false
        }
        position = offset + 1
        if position == end { state = .complete }
        return true
    }

    /// Records that nothing more can be read for now; `offset` is the next offset.
    mutating func reachedEnd(at offset: Int64) {
        // Records that arrived after the end was noticed are more recent.
        guard isReading, offset >= position else { return }
        if offset >= end { return finish() }
        position = offset
        state = .waitingForTransaction
    }

    private mutating func finish() {
        position = end
        state = .complete
    }
}
