/// How far the reading of one partition has come. Pure: the reader tells it what it sees.
public struct ChangelogProgress: Sendable, Hashable {
    public enum State: Sendable, Hashable {
        case reading
        /// All that can be read was read, and it is not all: a transaction is open, and committed readers see nothing
        /// behind its first record. It ends by itself, at the latest after its producer's `transaction.timeout.ms`.
        case waitingForTransaction
        /// Everything before `end` was handed over.
        case complete
        /// The log has no record at `position`: it begins later (deleted by retention) or ends before (made anew).
        /// Reading has stopped.
        case outOfRange
        /// The partition's ends could not be asked. Nothing is read.
        case failed
    }

    public let topicPartition: TopicPartition
    /// Where reading began.
    public internal(set) var start: Int64
    /// The next offset; everything before it was handed over or was no record. Counts transaction markers, aborted and
    /// compacted records too, so it reaches `end` exactly. A valid place to go on from later.
    public internal(set) var position: Int64
    /// The log's end at the moment it was asked for.
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

    public var isComplete: Bool { state == .complete }

    /// Offsets before the end; an upper bound for the records to come.
    public var remaining: Int64 { max(0, end - position) }

    /// Whether records of the partition are wanted.
    var isReading: Bool { state == .reading || state == .waitingForTransaction }

    /// A record has come. False: it is not one of those to hand over.
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

    /// Nothing more can be read for now; `offset` is what would be next.
    mutating func reachedEnd(at offset: Int64) {
        // Records that came after this was noticed say more.
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
