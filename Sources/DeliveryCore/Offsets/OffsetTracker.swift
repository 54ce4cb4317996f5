/// Which offset of one partition may be committed while its records finish out of order.
///
/// A record is *outstanding* from `begin` until `complete`. The *watermark* is the oldest outstanding
/// offset, or the one after the last record begun when none is outstanding: everything below it is
/// finished, so it is the offset to commit, unless one below it is *held*. Offsets that the log skips (compaction,
/// transaction markers) are never begun and count as finished.
///
///     watermark          oldest outstanding       end
///     ▼                                           ▼
///     1  0  0  1  1  0  1  1  0  0  0  1  0  0  0     bit per offset: 1 = outstanding
///     └───────────────── span ──────────────────┘
///
/// The window is a ring of 64-bit words indexed by the offset itself. `begin` and `complete` are O(1)
/// amortised: the watermark passes each word once. The ring doubles as the window grows, to about twice the
/// span limit; nothing is allocated otherwise.
///
/// Pure: one owner, no clock, no locks. Misuse is answered, never trapped.
public struct OffsetTracker: Sendable {
    /// What became of an offset handed to ``begin(_:)``.
    public enum Begin: Sendable, Equatable {
        /// Outstanding now; `complete` must follow.
        case begun
        /// Finished before the restart, as the commit's metadata says: don't repeat it. If it has effects in memory that
        /// are lost with the process, ``hold(_:)`` it until it has had them once more.
        case alreadyCompleted
        /// Not above everything begun before. The log went back (offsets reset, topic recreated): the
        /// owner starts a new tracker.
        case outOfOrder
        /// The window can't hold it yet. The owner keeps the record and offers it again when the
        /// watermark has moved.
        case full
    }

    /// What became of an offset handed to ``complete(_:)``.
    public enum Completion: Sendable, Equatable {
        /// Finished; an older record is still outstanding.
        case completed
        /// Finished, and the watermark moved.
        case advanced
        /// In the window or below it, but not outstanding: completed twice, or a gap of the log.
        case notOutstanding
        /// Never begun here.
        case unknown
    }

    /// Everything below it is finished.
    public private(set) var watermark: Int64
    /// One above the highest offset begun.
    public private(set) var end: Int64
    /// Records begun and not complete.
    public private(set) var outstanding: Int
    /// Their bytes. Of 64 neighbouring offsets only the sum is kept: each that completes takes an equal part of what
    /// is left off it, so the sum is right whenever none of the 64 is left.
    public private(set) var outstandingBytes = 0
    /// Offsets from watermark to end at which ``isFull`` asks for a pause.
    public let spanLimit: Int
    /// Characters that the metadata of one commit may have.
    let metadataBytes: Int
    /// The finished offsets above the committed one always fit into this, so that no commit forgets one.
    let capacity: CommitMetadata.Capacity
    /// From this end on, the owner is asked once more to free the watermark; see ``askRelief()``.
    var nextRelief = Int64.min

    /// Below this nothing was ever tracked.
    let start: Int64
    /// Beyond this the ring doesn't grow.
    private let largestSpan: Int64
    var words: [UInt64]
    /// Bytes of the records that each word's bits stand for.
    private var sizes: [UInt32]
    /// Finished before the restart, not yet passed by `begin` from `restoredIndex` on.
    var restored: CompletedOffsets
    var restoredIndex = 0
    var held = HeldOffsets()

    /// Bits that a window must leave free, so that its first and last word never share a ring word.
    private static let slack = 64
    /// 64 of these fit a word's sum. A larger record is counted as this one, 64 MiB.
    private static let largestSize = Int(UInt32.max) / 64

    /// - Parameters:
    ///   - nextOffset: the committed offset, or 0 when nothing was committed (the watermark jumps to the
    ///     first record begun).
    ///   - completedAbove: what the commit's metadata says is finished above it.
    ///   - spanLimit: window in offsets at which the partition should pause, at least 1. The ring takes
    ///     three to six eighths of it in bytes when it is full.
    ///   - initialCapacity: offsets that fit before the ring first grows.
    ///   - metadataBytes: characters that the broker takes as a commit's metadata (`offset.metadata.max.bytes`).
    public init(
        nextOffset: Int64, completedAbove: CompletedOffsets = .none, spanLimit: Int = 1 << 20,
        initialCapacity: Int = 4096, metadataBytes: Int = CommitMetadata.maximumBytes
    ) {
        let next = max(0, nextOffset)
        start = next
        watermark = next
        end = next
        outstanding = 0
        self.spanLimit = min(max(1, spanLimit), 1 << 40)
        self.metadataBytes = metadataBytes
        capacity = CommitMetadata.Capacity(maximumBytes: metadataBytes)
        restored = completedAbove.from(next)
        let most = Self.capacity(for: 2 * self.spanLimit - Self.slack)
        largestSpan = Int64(most - Self.slack)
        let first = min(Self.capacity(for: min(max(1, initialCapacity), most)), most)
        words = [UInt64](repeating: 0, count: first / 64)
        sizes = [UInt32](repeating: 0, count: first / 64)
    }

    /// Offsets from the watermark to the end: what a restart would have to look at again.
    public var span: Int64 { end - watermark }

    /// The oldest record that isn't finished; it holds the watermark.
    public var oldestOutstanding: Int64? { outstanding == 0 ? nil : watermark }

    /// The window reached its limit: pause the partition. Records that were polled before the pause still
    /// fit, up to about twice the limit, unless the metadata could not hold them.
    public var isFull: Bool { span >= Int64(spanLimit) || !metadataHolds(through: end) }

    /// The window is down to half of its limit: a paused partition can resume (apart from ``isFull`` so that it
    /// doesn't pause and resume with every record).
    public var hasRoom: Bool { span <= Int64(spanLimit / 2) && metadataHolds(through: end, part: 2) }

    /// Whether `offset` was begun and is not complete.
    public func isOutstanding(_ offset: Int64) -> Bool {
        guard offset >= watermark, offset < end else { return false }
        return words[wordIndex(offset)] & Self.bit(offset) != 0
    }

    /// Takes the next record of the partition, of so many bytes. Offsets come in ascending order; those skipped are
    /// gaps of the log.
    public mutating func begin(_ offset: Int64, bytes: Int = 0) -> Begin {
        guard offset >= end, offset < Int64.max else { return .outOfOrder }
        guard outstanding == 0 || (metadataHolds(through: offset) && makeRoom(through: offset)) else {
            return .full
        }
        let finished = takeRestored(offset)
        end = offset + 1
        if outstanding == 0 { watermark = finished ? end : offset }
        if finished { return .alreadyCompleted }
        let index = wordIndex(offset)
        let size = min(max(0, bytes), Self.largestSize)
        words[index] |= Self.bit(offset)
        sizes[index] += UInt32(size)
        outstanding += 1
        outstandingBytes += size
        return .begun
    }

    /// Finishes a record that was begun.
    public mutating func complete(_ offset: Int64) -> Completion {
        guard offset >= start, offset < end else { return .unknown }
        guard offset >= watermark else { return .notOutstanding }
        let index = wordIndex(offset)
        let bit = Self.bit(offset)
        let word = words[index]
        guard word & bit != 0 else { return .notOutstanding }
        words[index] = word & ~bit
        outstanding -= 1
        let size = word == bit ? sizes[index] : sizes[index] / UInt32(word.nonzeroBitCount)
        sizes[index] -= size
        outstandingBytes -= Int(size)
        guard offset == watermark else { return .completed }
        watermark = nextOutstanding(from: offset) ?? end
        return .advanced
    }

    /// The log has nothing to read below `offset` (the consumer's position at the end of the partition, behind
    /// transaction markers). Without it the watermark would stop behind the last record.
    public mutating func skip(to offset: Int64) {
        guard offset > end else { return }
        if outstanding == 0 {
            watermark = offset
        } else if !metadataHolds(through: offset - 1) || !makeRoom(through: offset - 1) {
            return
        }
        end = offset
    }

    // MARK: Ring

    /// The first outstanding offset at or above `offset`, which is in the window.
    func nextOutstanding(from offset: Int64) -> Int64? {
        guard outstanding > 0, offset < end else { return nil }
        var block = offset >> 6
        let last = (end - 1) >> 6
        let mask = Int64(words.count - 1)
        var word = words[Int(block & mask)] & (~0 << UInt64(offset & 63))
        while word == 0 {
            block += 1
            guard block <= last else { return nil }
            word = words[Int(block & mask)]
        }
        return block << 6 + Int64(word.trailingZeroBitCount)
    }

    /// The first offset at or above `offset` that isn't outstanding; at most the end.
    func nextFinished(from offset: Int64) -> Int64 {
        guard offset < end else { return end }
        var block = offset >> 6
        let last = (end - 1) >> 6
        let mask = Int64(words.count - 1)
        var word = ~words[Int(block & mask)] & (~0 << UInt64(offset & 63))
        while word == 0 {
            block += 1
            guard block <= last else { return end }
            word = ~words[Int(block & mask)]
        }
        return min(end, block << 6 + Int64(word.trailingZeroBitCount))
    }

    private mutating func makeRoom(through offset: Int64) -> Bool {
        let needed = offset - watermark + 1
        if needed + Int64(Self.slack) <= Int64(words.count * 64) { return true }
        guard needed <= largestSpan else { return false }
        grow(to: Self.capacity(for: Int(needed)))
        return true
    }

    private mutating func grow(to capacity: Int) {
        var larger = [UInt64](repeating: 0, count: capacity / 64)
        var largerSizes = [UInt32](repeating: 0, count: capacity / 64)
        let mask = Int64(larger.count - 1)
        if end > watermark {
            for block in (watermark >> 6)...((end - 1) >> 6) {
                let index = Int(block & Int64(words.count - 1))
                larger[Int(block & mask)] = words[index]
                largerSizes[Int(block & mask)] = sizes[index]
            }
        }
        words = larger
        sizes = largerSizes
    }

    /// Whether a commit's metadata could hold all that may be finished above the committed offset once `offset` is begun. With
    /// nothing outstanding it always can: the record holds the watermark then, and adds no run.
    @inline(__always)
    private func metadataHolds(through offset: Int64, part: Int = 1) -> Bool {
        guard outstanding > 0 else { return true }
        let last = max(offset + 1, restored.ranges.last?.upperBound ?? 0)
        return capacity.holds(
            runs: outstanding + restored.ranges.count - restoredIndex + 2, span: last - committable,
            part: part)
    }

    private mutating func takeRestored(_ offset: Int64) -> Bool {
        while restoredIndex < restored.ranges.count {
            let range = restored.ranges[restoredIndex]
            if offset < range.upperBound { return offset >= range.lowerBound }
            restoredIndex += 1
        }
        return false
    }

    private func wordIndex(_ offset: Int64) -> Int {
        Int((offset >> 6) & Int64(words.count - 1))
    }

    private static func bit(_ offset: Int64) -> UInt64 { 1 << UInt64(offset & 63) }

    /// The power of two that holds a window of `span` offsets.
    private static func capacity(for span: Int) -> Int {
        var capacity = 2 * slack
        while capacity < span + slack { capacity *= 2 }
        return capacity
    }
}
