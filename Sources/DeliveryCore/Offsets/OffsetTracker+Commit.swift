extension OffsetTracker {
    /// The finished offsets above the one to commit, ascending, gaps of the log included: those of this run, then those
    /// that an earlier run finished and this one hasn't read yet.
    public var completedAbove: CompletedAbove { CompletedAbove(tracker: self) }

    /// Finished offsets between the one to commit and the end: what a restart without metadata would repeat.
    public var completedInWindow: Int64 { end - committable - Int64(outstanding) }

    /// The offset to commit, and the metadata that keeps a restart from repeating what is finished above it: finished in
    /// this run, or in an earlier one whose commit said so. All of it, as ``begin(_:bytes:)`` takes no record with which that
    /// could not be. Allocates; meant for the commit interval, not for each record.
    public func commitPoint() -> (offset: Int64, metadata: String) {
        let offset = committable
        return (
            offset,
            CommitMetadata.encode(watermark: offset, completed: completedAbove, maximumBytes: metadataBytes)
        )
    }

    /// Whether the owner should free the watermark, by putting the oldest unfinished records where they count as finished:
    /// the window has grown to half of what the metadata holds in any case. Asked at most once for each eighth by which it
    /// grows.
    /// - Parameter again: the window doesn't grow any more: asks without regard to when that was done last.
    /// - Returns: the records below this offset should go; nil: none needs to.
    public mutating func askRelief(again: Bool = false) -> Int64? {
        let length = end - committable
        guard outstanding > 0, length > capacity.offsets / 2, again || end >= nextRelief else { return nil }
        nextRelief = end + max(1, capacity.offsets / 8)
        return committable + length / 2
    }

    /// Walks the ring run by run; lazy, because a commit needs no list of them.
    public struct CompletedAbove: Sequence, IteratorProtocol, Sendable {
        private let tracker: OffsetTracker
        /// From the offset to commit to the watermark all are finished.
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
