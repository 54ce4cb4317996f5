extension OffsetTracker {
    /// Finished offsets above the one to commit, ascending, with the gaps of the log. Offsets of this run come first,
    /// then offsets that an earlier run finished and this run hasn't read yet.
    public var completedAbove: CompletedAbove { CompletedAbove(tracker: self) }

    /// Finished offsets between the one to commit and the end, which a restart without metadata would repeat.
    public var completedInWindow: Int64 { end - committable - Int64(outstanding) }

    /// Returns the offset to commit, and the metadata that keeps a restart from repeating the offsets finished above
    /// it. Offsets count that this run finished, or an earlier run whose commit recorded them. The metadata includes
    /// all of them, because ``track(_:bytes:)`` accepts no record that would prevent it. Allocates: call once per
    /// commit interval, not for each record.
    /// - Parameter newestMilliseconds: time of the newest record that was read, which the metadata keeps as evidence; 0:
    ///   unknown.
    public func commitPoint(newestMilliseconds: Int64 = 0) -> (offset: Int64, metadata: String) {
        let offset = committable
        return (
            offset,
            CommitMetadata.encode(
                watermark: offset, completed: completedAbove, newestMilliseconds: newestMilliseconds,
                maximumBytes: metadataBytes)
        )
    }

    /// Returns the offset below which the owner should store the oldest unfinished records, so that they count as
    /// finished. Storing them frees the watermark. It is needed once the window has grown to half of the metadata's
    /// certain capacity. Returns an offset at most once for each eighth by which the window grows.
    /// - Parameter again: true when the window doesn't grow any more: ignores when relief was asked for last.
    /// - Returns: the offset; nil when no record needs to be stored.
    public mutating func askRelief(again: Bool = false) -> Int64? {
        let length = end - committable
        guard outstanding > 0, length > capacity.offsets / 2, again || end >= nextRelief else { return nil }
        nextRelief = end + max(1, capacity.offsets / 8)
        return committable + length / 2
    }

    /// Iterates over the ring run by run; lazy, because a commit needs no list of the runs.
    public struct CompletedAbove: Sequence, IteratorProtocol, Sendable {
        private let tracker: OffsetTracker
        /// True while the finished range from the offset to commit to the watermark is still to be returned.
        private var isBelow: Bool
        private var position: Int64
        private var restoredIndex: Int

        init(tracker: OffsetTracker) {
            self.tracker = tracker
            isBelow = tracker.committable < tracker.watermark
            position = tracker.watermark
            restoredIndex = tracker.restoredIndex
        }

        public mutating func next() -> Range<Int64>? {
            if isBelow {
                isBelow = false
                return tracker.committable..<tracker.watermark
            }
            if position < tracker.end {
                let first = tracker.nextFinished(from: position)
                if first < tracker.end {
                    let past = tracker.nextOutstanding(from: first) ?? tracker.end
                    position = past
                    return first..<past
                }
                position = tracker.end
            }
            while restoredIndex < tracker.restored.ranges.count {
                let range = tracker.restored.ranges[restoredIndex]
                restoredIndex += 1
                if range.upperBound > tracker.end { return range.clamped(to: tracker.end..<Int64.max) }
            }
            return nil
        }
    }
}
