extension OffsetTracker {
    /// The finished offsets above the one to commit, ascending, gaps of the log included: those of this run, then those
    /// that an earlier run finished and this one hasn't read yet.
    public var completedAbove: CompletedAbove { CompletedAbove(tracker: self) }

    /// Finished offsets between the one to commit and the end: what a restart without metadata would repeat.
    public var completedInWindow: Int64 { end - committable - Int64(outstanding) }

    /// What to commit: the offset, and the metadata that keeps a restart from repeating what is finished
    /// above it. Allocates; meant for the commit interval, not for each record.
    public func commitPoint(
        maximumBytes: Int = CommitMetadata.maximumBytes
    ) -> (
        offset: Int64, metadata: String
    ) {
        let offset = committable
        return (
            offset,
            CommitMetadata.encode(watermark: offset, completed: completedAbove, maximumBytes: maximumBytes)
        )
    }

    /// Walks the ring run by run; lazy, because the metadata rarely has room for all.
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
