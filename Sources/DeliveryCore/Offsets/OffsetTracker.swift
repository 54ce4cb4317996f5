/// Tracks which offset of one partition may be committed while its records finish out of order.
///
/// A record is *outstanding* from `begin` until `complete`. The *watermark* is the oldest outstanding offset. When no
/// offset is outstanding, it is the offset after the last record begun. Everything below the watermark is finished,
/// so it is the offset to commit, unless an offset below it is *retained*. Offsets that the log skips (compaction,
/// transaction markers) are never begun and count as finished.
///
///     watermark          oldest outstanding       end
///     ▼                                           ▼
///     1  0  0  1  1  0  1  1  0  0  0  1  0  0  0     bit per offset: 1 = outstanding
///     └───────────────── span ──────────────────┘
///
/// The window is a ring of 64-bit words indexed by the offset itself. `begin` and `complete` are O(1) amortised,
/// because the watermark passes each word once. The ring doubles as the window grows, to about twice the span limit.
/// Nothing else is allocated.
///
/// Pure: one owner, no clock, no locks. Misuse is answered, never trapped.
public struct OffsetTracker: Sendable {
    /// Result of handing an offset to ``begin(_:)``.
    public enum Tracking: Sendable, Equatable {
        /// Outstanding now; `complete` must follow.
        case tracked
        /// Finished before the restart, by the commit's metadata: don't repeat it. If its effects in memory were lost
        /// with the process, ``retain(_:)`` the offset until they are repeated.
        case alreadyCompleted
        /// Not above all offsets begun before. The log went back (offsets reset, topic recreated): the owner starts a
        /// new tracker.
        case outOfOrder
        /// The window can't hold the offset yet. The owner keeps the record and offers it again when the watermark
        /// has moved.
        case full
    }

    /// Result of handing an offset to ``complete(_:)``.
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

    /// Offset below which everything is finished.
    public private(set) var watermark: Int64
    /// Offset after the highest offset begun.
    public private(set) var end: Int64
    /// Records begun and not complete.
    public private(set) var outstanding: Int
    /// Bytes of the outstanding records. For 64 neighbouring offsets only the sum is kept. A completed offset
    /// subtracts an equal part of the sum that is left. The sum is therefore right whenever none of the 64 is left.
    public private(set) var outstandingBytes = 0
    /// Offsets from watermark to end at which ``isFull`` asks for a pause.
    public let spanLimit: Int
    /// Offsets of ``spanLimit`` unless something else is asked for.
    public static let usualSpanLimit = 1 << 20
    /// Most characters of one commit's metadata.
    let metadataBytes: Int
    /// Capacity that the finished offsets above the committed one never exceed, so that no commit loses one.
    let capacity: CommitMetadata.Capacity
    /// End from which on the owner is asked again to free the watermark; see ``askRelief(again:)``.
    var nextRelief = Int64.min

    /// Offset below which nothing was ever tracked.
    let start: Int64
    /// Window in offsets beyond which the ring doesn't grow.
    private let largestSpan: Int64
    var words: [UInt64]
    /// Bytes of the records of each word's bits.
    private var sizes: [UInt32]
    /// Offsets finished before the restart; `begin` has not passed the ranges from `restoredIndex` on.
    var restored: CompletedOffsets
    var restoredIndex = 0
    var retained = RetainedOffsets()

    /// Bits that a window must leave free, so that its first and last word never share a ring word.
    private static let slack = 64
    /// Largest size of a record, 64 MiB, so that 64 sizes fit a word's sum. A larger record counts as this size.
    private static let largestSize = Int(UInt32.max) / 64

    /// - Parameters:
    ///   - nextOffset: the committed offset, or 0 when nothing was committed. The watermark jumps to the first record
    ///     begun.
    ///   - completedAbove: offsets finished above it, from the commit's metadata.
    ///   - spanLimit: window in offsets at which the partition should pause, at least 1. A full ring takes three to
    ///     six eighths of this number in bytes.
    ///   - initialCapacity: offsets that fit before the ring first grows.
    ///   - metadataBytes: most characters of a commit's metadata that the broker accepts
    ///     (`offset.metadata.max.bytes`).
    public init(
        nextOffset: Int64, completedAbove: CompletedOffsets = .none, spanLimit: Int = usualSpanLimit,
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

    /// Offsets from the watermark to the end, which a restart would have to check again.
    public var span: Int64 { end - watermark }

    /// Oldest record that isn't finished, which holds the watermark; nil when none is outstanding.
    public var oldestOutstanding: Int64? { outstanding == 0 ? nil : watermark }

    /// True when the window has reached its limit: pause the partition. Records polled before the pause still fit, up
    /// to about twice the limit, unless the metadata could not hold them.
    public var isFull: Bool { span >= Int64(spanLimit) || !metadataHolds(through: end) }

    /// True when the window is at most half of its limit: a paused partition can resume. Separate from ``isFull`` so
    /// that the partition doesn't pause and resume with every record.
    public var hasRoom: Bool { span <= Int64(spanLimit / 2) && metadataHolds(through: end, part: 2) }

    /// Returns true when `offset` was begun and is not complete.
    public func isOutstanding(_ offset: Int64) -> Bool {
        guard offset >= watermark, offset < end else { return false }
        return words[wordIndex(offset)] & Self.bit(offset) != 0
    }

    /// Begins the next record of the partition, of `bytes` bytes. Offsets come in ascending order; skipped offsets
    /// are gaps of the log.
    public mutating func track(_ offset: Int64, bytes: Int = 0) -> Tracking {
        guard offset >= end, offset < Int64.max else { return .outOfOrder }
        guard outstanding == 0 || (metadataHolds(through: offset) && makeRoom(through: offset)) else {
            return .full
        }
        let finished = consumeRestored(offset)
        end = offset + 1
        if outstanding == 0 { watermark = finished ? end : offset }
        if finished { return .alreadyCompleted }
        let index = wordIndex(offset)
        let size = min(max(0, bytes), Self.largestSize)
        words[index] |= Self.bit(offset)
        sizes[index] += UInt32(size)
        outstanding += 1
        outstandingBytes += size
        return .tracked
    }

    /// Completes a record that was begun.
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

    /// Takes bytes off an outstanding record. Returns the bytes that were taken off: no more than the record's 64
    /// neighbours have.
    public mutating func shrink(_ offset: Int64, by bytes: Int) -> Int {
        guard isOutstanding(offset) else { return 0 }
        let index = wordIndex(offset)
        let size = min(UInt32(clamping: bytes), sizes[index])
        sizes[index] -= size
        outstandingBytes -= Int(size)
        return Int(size)
    }

    /// Skips to `offset`, because the log has no records below it: the consumer's position at the end of the
    /// partition, behind transaction markers. Without this call the watermark would stop behind the last record.
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

    /// Returns the first outstanding offset at or above `offset`, which is in the window.
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

    /// Returns the first offset at or above `offset` that isn't outstanding; at most the end.
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

    /// Returns true when a commit's metadata can hold all offsets that may finish above the committed offset, once
    /// `offset` is begun. Always true when nothing is outstanding: the record then holds the watermark, and adds no
    /// run.
    @inline(__always)
    private func metadataHolds(through offset: Int64, part: Int = 1) -> Bool {
        guard outstanding > 0 else { return true }
        let last = max(offset + 1, restored.ranges.last?.upperBound ?? 0)
        return capacity.fits(
            runs: outstanding + restored.ranges.count - restoredIndex + 2, span: last - committable,
            part: part)
    }

    private mutating func consumeRestored(_ offset: Int64) -> Bool {
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

    /// Returns the power of two that holds a window of `span` offsets.
    private static func capacity(for span: Int) -> Int {
        var capacity = 2 * slack
        while capacity < span + slack { capacity *= 2 }
        return capacity
    }
}
