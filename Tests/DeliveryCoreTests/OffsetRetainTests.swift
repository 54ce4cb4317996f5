import DeliveryCore
import SluiceModel
import TestSupport
import Testing

/// Records that were complete before a restart and are applied again.
@Suite struct OffsetRetainTests {
    /// 10 to 12 are begun; 11 was complete before. 14 and 15 were complete, too, and are still to be read.
    private func tracker() -> OffsetTracker {
        var tracker = OffsetTracker(
            nextOffset: 10, completedAbove: CompletedOffsets([11..<12, 14..<16]))
        let begins = (Int64(10)...12).map { tracker.track($0) }
        #expect(begins == [.tracked, .alreadyCompleted, .tracked])
        return tracker
    }

    private func committed(_ tracker: OffsetTracker) -> (offset: Int64, completed: [Range<Int64>]) {
        let commit = tracker.commitPoint()
        let decoded = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset)
        #expect(decoded.problem == nil)
        return (commit.offset, decoded.completed.ranges)
    }

    @Test func commitStopsAtRetainedRecordAndKeepsItsCompletion() {
        var tracker = tracker()
        tracker.retain(11)
        #expect(committed(tracker) == (10, [11..<12, 14..<16]))
        _ = tracker.complete(10)
        #expect(tracker.watermark == 12)
        #expect(tracker.committable == 11)
        #expect(committed(tracker) == (11, [11..<12, 14..<16]))
        #expect(tracker.completedInWindow == 1)
        _ = tracker.complete(12)
        // Every begun record is finished.
        #expect(committed(tracker) == (11, [11..<13, 14..<16]))
        let isReleased = tracker.release(11)
        #expect(isReleased)
        #expect(committed(tracker) == (13, [14..<16]))
        #expect(tracker.completedInWindow == 0)
    }

    @Test func nextOwnerReadsRetainedRecordAsCompleted() {
        var first = tracker()
        first.retain(11)
        for offset in [10, 12] as [Int64] { _ = first.complete(offset) }
        let commit = committed(first)
        var second = OffsetTracker(
            nextOffset: commit.offset, completedAbove: CompletedOffsets(commit.completed))
        let begins = [11, 12, 13, 14].map { second.track($0) }
        #expect(begins == [.alreadyCompleted, .alreadyCompleted, .tracked, .alreadyCompleted])
        second.retain(11)
        #expect(second.committable == 11)
    }

    @Test func lowestRetainedRecordLimitsTheCommit() {
        var tracker = OffsetTracker(nextOffset: 0, completedAbove: CompletedOffsets([0..<100]))
        for offset in Int64(0)..<100 {
            _ = tracker.track(offset)
            tracker.retain(offset)
        }
        #expect(tracker.watermark == 100)
        var generator = SeededGenerator(seed: 5)
        var left = Set(Int64(0)..<100)
        for offset in (Int64(0)..<100).shuffled(using: &generator) {
            #expect(tracker.committable == left.min())
            let isReleased = tracker.release(offset)
            #expect(isReleased)
            left.remove(offset)
        }
        #expect(tracker.committable == 100)
        #expect(committed(tracker) == (100, []))
        tracker.retain(99)
        #expect(tracker.committable == 99)
    }

    @Test func releaseOfRecordNotHeldIsRefused() {
        var tracker = tracker()
        tracker.retain(11)
        // These were not begun here.
        tracker.retain(9)
        tracker.retain(13)
        let answers = [tracker.release(9), tracker.release(10), tracker.release(13)]
        #expect(answers == [false, false, false])
        let held = [tracker.release(11), tracker.release(11)]
        #expect(held == [true, false])
    }
}
