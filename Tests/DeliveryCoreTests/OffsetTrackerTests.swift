import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct OffsetTrackerTests {
    @Test func watermarkFollowsTheOldestOutstanding() {
        var tracker = OffsetTracker(nextOffset: 100)
        let begun = (100...104).map { tracker.track($0) }
        #expect(begun == Array(repeating: .tracked, count: 5))
        #expect(tracker.watermark == 100)
        let second = tracker.complete(102)
        #expect(second == .completed)
        #expect(tracker.watermark == 100)
        let first = tracker.complete(100)
        #expect(first == .advanced)
        #expect(tracker.watermark == 101)
        let third = tracker.complete(101)
        #expect(third == .advanced)
        #expect(tracker.watermark == 103)
        #expect(tracker.outstanding == 2)
        #expect(tracker.oldestOutstanding == 103)
        #expect(tracker.span == 2)
        _ = tracker.complete(104)
        _ = tracker.complete(103)
        #expect(tracker.watermark == 105)
        #expect(tracker.oldestOutstanding == nil)
        #expect(tracker.span == 0)
    }

    @Test func gapsCountAsFinished() {
        var tracker = OffsetTracker(nextOffset: 10)
        _ = tracker.track(10)
        _ = tracker.track(20)
        _ = tracker.track(2000)
        #expect(tracker.span == 1991)
        _ = tracker.complete(10)
        #expect(tracker.watermark == 20)
        _ = tracker.complete(20)
        #expect(tracker.watermark == 2000)
        #expect(tracker.isOutstanding(2000))
        #expect(!tracker.isOutstanding(1999))
    }

    @Test func firstRecordSetsTheWatermarkWhenNothingWasCommitted() {
        var tracker = OffsetTracker(nextOffset: 0)
        _ = tracker.track(5_000_000_000)
        #expect(tracker.watermark == 5_000_000_000)
        #expect(tracker.span == 1)
    }

    @Test func invalidOffsetsAreReported() {
        var tracker = OffsetTracker(nextOffset: 10)
        _ = tracker.track(10)
        _ = tracker.track(12)
        let answers = [
            tracker.complete(12), tracker.complete(12), tracker.complete(11), tracker.complete(13),
            tracker.complete(9), tracker.complete(-1), tracker.complete(.max), tracker.complete(.min),
        ]
        #expect(
            answers == [
                .completed, .notOutstanding, .notOutstanding, .unknown, .unknown, .unknown, .unknown,
                .unknown,
            ])
        let begins = [
            tracker.track(12), tracker.track(10), tracker.track(-5), tracker.track(.min), tracker.track(.max),
        ]
        #expect(begins == Array(repeating: .outOfOrder, count: 5))
        _ = tracker.complete(10)
        let late = tracker.complete(10)
        #expect(late == .notOutstanding)
        #expect(tracker.watermark == 13)
        #expect(tracker.outstanding == 0)
    }

    @Test func pausesAtTheSpanLimitAndResumesAtHalf() {
        var tracker = OffsetTracker(nextOffset: 0, spanLimit: 1000, initialCapacity: 1)
        for offset in Int64(0)..<999 { _ = tracker.track(offset) }
        #expect(!tracker.isFull)
        _ = tracker.track(999)
        #expect(tracker.isFull)
        for offset in Int64(0)..<499 { _ = tracker.complete(offset) }
        #expect(!tracker.isFull)
        #expect(!tracker.hasRoom)
        _ = tracker.complete(499)
        #expect(tracker.hasRoom)
    }

    @Test func recordsBeyondTheRingAreRefusedUntilTheWatermarkMoves() {
        var tracker = OffsetTracker(nextOffset: 0, spanLimit: 128, initialCapacity: 64)
        _ = tracker.track(0)
        let far = tracker.track(1_000_000_000_000)
        #expect(far == .full)
        #expect(tracker.end == 1)
        _ = tracker.complete(0)
        let again = tracker.track(1_000_000_000_000)
        #expect(again == .tracked)
        #expect(tracker.watermark == 1_000_000_000_000)
    }

    @Test func restoredOffsetsAreNotRepeated() {
        var tracker = OffsetTracker(
            nextOffset: 10, completedAbove: CompletedOffsets([5..<11, 12..<14, 20..<22]))
        let begins = (Int64(10)...15).map { tracker.track($0) }
        #expect(
            begins == [.alreadyCompleted, .tracked, .alreadyCompleted, .alreadyCompleted, .tracked, .tracked])
        #expect(tracker.watermark == 11)
        #expect(Array(tracker.completedAbove) == [12..<14, 20..<22])
        _ = tracker.complete(11)
        #expect(tracker.watermark == 14)
        let restored = tracker.complete(12)
        #expect(restored == .notOutstanding)
    }

    @Test func restoredOffsetsStayInTheMetadataUntilTheyAreRead() {
        var first = OffsetTracker(nextOffset: 0)
        for offset in Int64(0)..<100 { _ = first.track(offset) }
        for offset in Int64(50)..<100 { _ = first.complete(offset) }
        let commit = first.commitPoint()
        #expect(commit.offset == 0)

        let decoded = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset)
        var second = OffsetTracker(nextOffset: commit.offset, completedAbove: decoded.completed)
        _ = second.track(0)
        _ = second.complete(0)
        let next = second.commitPoint()
        #expect(next.offset == 1)
        let kept = CommitMetadata.decode(next.metadata, committedOffset: 1)
        #expect(kept.completed.ranges == [50..<100])
        #expect(kept.problem == nil)
    }

    @Test func skipMovesTheEndPastTransactionMarkers() {
        var tracker = OffsetTracker(nextOffset: 0)
        _ = tracker.track(0)
        tracker.skip(to: 3)
        #expect(tracker.watermark == 0)
        #expect(tracker.end == 3)
        _ = tracker.complete(0)
        #expect(tracker.watermark == 3)
        tracker.skip(to: 10)
        tracker.skip(to: 4)
        #expect(tracker.watermark == 10)
    }

    /// Compares with a set for every kind of call, including invalid calls.
    @Test(arguments: UInt64(1)...24)
    func randomOperationsMatchTheModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let spanLimit = Int.random(in: 1...3000, using: &random)
        let start = Int64.random(in: 0...5_000_000_000, using: &random)
        var restored: [Range<Int64>] = []
        for _ in 0..<Int.random(in: 0...20, using: &random) {
            let lower = start + Int64.random(in: -10...2000, using: &random)
            restored.append(lower..<lower + Int64.random(in: 0...50, using: &random))
        }
        var model = OffsetModel(next: start, restored: restored)
        var tracker = OffsetTracker(
            nextOffset: start, completedAbove: CompletedOffsets(restored), spanLimit: spanLimit,
            initialCapacity: 1)
        let gapChance = Int.random(in: 2...30, using: &random)
        for step in 0..<2000 {
            switch Int.random(in: 0..<20, using: &random) {
            case 0..<9:
                var offset = tracker.end
                if Int.random(in: 0..<gapChance, using: &random) == 0 {
                    offset += Int64.random(in: -3...200, using: &random)
                }
                let answer = tracker.track(offset)
                if answer == .full {
                    // A refusal is allowed only when the offset exceeds twice the limit.
                    guard offset - model.watermark + 1 > Int64(2 * spanLimit) - 64 else {
                        Issue.record("seed \(seed) step \(step): \(offset) refused with room left")
                        return
                    }
                } else if answer != model.begin(offset) {
                    Issue.record("seed \(seed) step \(step): begin(\(offset)) answered \(answer)")
                    return
                }
            case 9..<18:
                var offset = Int64.random(in: tracker.watermark - 3...tracker.end + 3, using: &random)
                if Bool.random(using: &random), let oldest = tracker.oldestOutstanding { offset = oldest }
                let expected = model.complete(offset, start: start)
                let answer = tracker.complete(offset)
                if answer != expected {
                    Issue.record("seed \(seed) step \(step): complete(\(offset)) \(answer), not \(expected)")
                    return
                }
            case 18:
                let offset = tracker.end + Int64.random(in: -2...10, using: &random)
                if offset - model.watermark < Int64(spanLimit) {
                    tracker.skip(to: offset)
                    model.skip(to: offset)
                }
            default:
                if Array(tracker.completedAbove).flatMap(Array.init) != model.completedAbove() {
                    Issue.record("seed \(seed) step \(step): the finished set differs")
                    return
                }
            }
            if tracker.watermark != model.watermark || tracker.outstanding != model.outstanding.count
                || tracker.end != model.end
            {
                Issue.record(
                    "seed \(seed) step \(step): watermark \(tracker.watermark), model \(model.watermark)")
                return
            }
        }
    }
}

/// The naive version: a set of outstanding offsets.
private struct OffsetModel {
    var end: Int64
    var outstanding: Set<Int64> = []
    var restored: Set<Int64>

    init(next: Int64, restored: [Range<Int64>]) {
        end = next
        self.restored = Set(restored.flatMap(Array.init).filter { $0 >= next })
    }

    var watermark: Int64 { outstanding.min() ?? end }

    mutating func begin(_ offset: Int64) -> OffsetTracker.Tracking {
        guard offset >= end else { return .outOfOrder }
        end = offset + 1
        if restored.contains(offset) { return .alreadyCompleted }
        outstanding.insert(offset)
        return .tracked
    }

    mutating func complete(_ offset: Int64, start: Int64) -> OffsetTracker.Completion {
        guard offset >= start, offset < end else { return .unknown }
        let before = watermark
        guard outstanding.remove(offset) != nil else { return .notOutstanding }
        return watermark > before ? .advanced : .completed
    }

    mutating func skip(to offset: Int64) { end = max(end, offset) }

    func completedAbove() -> [Int64] {
        let window = watermark..<end
        return window.filter { !outstanding.contains($0) } + restored.filter { $0 >= end }.sorted()
    }
}
