import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

/// Partitions that move between owners: an offset that a commit lists as complete stays complete.
struct OffsetTakeOverTests {
    @Test func ownerWithoutPollsKeepsFormerOwnersCompletedOffsets() {
        var first = OffsetTracker(nextOffset: 0)
        for offset in Int64(0)..<100 { _ = first.track(offset) }
        for offset in Int64(50)..<100 { _ = first.complete(offset) }
        var commit = first.commitPoint()
        for _ in 0..<3 {
            let completed = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset).completed
            commit = OffsetTracker(nextOffset: commit.offset, completedAbove: completed).commitPoint()
        }
        let kept = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset).completed
        #expect(kept.ranges == [50..<100])
    }

    /// Every tenth job waits. Without a limit, the commit of 40,000 offsets lost 13,968 of them.
    @Test func completedOffsetsAlwaysFitIntoTheCommit() {
        var tracker = OffsetTracker(nextOffset: 0)
        var finished: [Int64] = []
        var offset: Int64 = 0
        while tracker.track(offset) == .tracked {
            if offset % 10 != 0 {
                _ = tracker.complete(offset)
                finished.append(offset)
            }
            offset += 1
        }
        #expect(tracker.isFull && !tracker.hasRoom)
        #expect((20_000..<30_000).contains(offset))
        let commit = tracker.commitPoint()
        let kept = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset).completed
        #expect(kept.ranges.flatMap(Array.init) == finished)
    }

    /// A few jobs with long waits don't stop the reading.
    @Test func windowWithFewGapsStaysOpen() {
        var tracker = OffsetTracker(nextOffset: 0)
        let (records, waitingEvery) = (Int64(500_000), Int64(5_000))
        for offset in 0..<records {
            guard tracker.track(offset) == .tracked else {
                Issue.record("refused at \(offset)")
                return
            }
            if offset % waitingEvery != 0 { _ = tracker.complete(offset) }
        }
        let commit = tracker.commitPoint()
        let kept = CommitMetadata.decode(commit.metadata, committedOffset: commit.offset).completed
        #expect(kept.count == records - records / waitingEvery)
    }

    @Test func reliefIsRequestedBeforeTheWindowCloses() {
        var tracker = OffsetTracker(nextOffset: 0)
        var (offset, asked) = (Int64(0), 0)
        while offset < 100_000 {
            guard tracker.track(offset) == .tracked else {
                Issue.record("refused at \(offset)")
                return
            }
            if offset % 10 != 0 { _ = tracker.complete(offset) }
            offset += 1
            guard let below = tracker.askRelief() else { continue }
            asked += 1
            #expect(below > tracker.watermark && below < tracker.end)
            for waiting in stride(from: tracker.watermark, to: below, by: 10) {
                _ = tracker.complete(waiting)
            }
        }
        #expect((5..<100).contains(asked))
    }

    @Test func reliefIsRepeatedOnlyOnRequestForTheSameWindow() {
        var tracker = OffsetTracker(nextOffset: 0)
        _ = tracker.track(0)
        let early = tracker.askRelief(again: true)
        #expect(early == nil)
        for offset in Int64(1)..<20_000 { _ = tracker.track(offset) }
        let asked = (tracker.askRelief(), tracker.askRelief(), tracker.askRelief(again: true))
        #expect(asked.0 == 10_000 && asked.1 == nil && asked.2 == 10_000)
    }

    /// Owners change, poll or don't, finish in any order, and commit. The metadata is small.
    @Test(arguments: UInt64(1)...24)
    func committedCompletionsSurviveEveryTakeOver(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let metadataBytes =
            Bool.random(using: &random)
            ? Int.random(in: 30...300, using: &random) : CommitMetadata.maximumBytes
        let spanLimit = Int.random(in: 1...60_000, using: &random)
        let last = Int64(metadataBytes == CommitMetadata.maximumBytes ? 40_000 : 4_000)
        // Records in a thousand that wait long.
        let slow = Int.random(in: 0...300, using: &random)
        let gap = Int.random(in: 0...50, using: &random)
        var finished: Set<Int64> = []
        var committed: (offset: Int64, metadata: String) = (0, "")
        for owner in 0..<12 {
            let decoded = CommitMetadata.decode(committed.metadata, committedOffset: committed.offset)
            let known = decoded.completed
            guard decoded.problem == nil, committed.metadata.utf8.count <= metadataBytes,
                finished.allSatisfy({ $0 < committed.offset || known.contains($0) }),
                known.ranges.allSatisfy({ $0.allSatisfy { finished.contains($0) || $0 >= last || isGap($0) } }
                )
            else {
                Issue.record("seed \(seed), owner \(owner): the commit lacks finished offsets")
                return
            }
            var tracker = OffsetTracker(
                nextOffset: committed.offset, completedAbove: known, spanLimit: spanLimit, initialCapacity: 1,
                metadataBytes: metadataBytes)
            var outstanding: [Int64] = []
            var held: [Int64] = []
            var next = committed.offset
            // The last owner finishes everything left.
            let isLast = owner == 11
            let polls =
                isLast
                ? Int.max
                : Int.random(in: 0..<3, using: &random) == 0 ? 0 : Int.random(in: 1...12_000, using: &random)
            var polled = 0
            while polled < polls, next < last || (isLast && !outstanding.isEmpty) {
                polled += 1
                if next < last, isGap(next) {
                    next += 1
                    continue
                }
                let begin = next < last ? tracker.track(next) : .full
                switch begin {
                case .tracked:
                    guard !finished.contains(next) else {
                        Issue.record("seed \(seed), owner \(owner): \(next) is done twice")
                        return
                    }
                    outstanding.append(next)
                    next += 1
                case .alreadyCompleted:
                    if Int.random(in: 0..<4, using: &random) == 0 {
                        tracker.retain(next)
                        held.append(next)
                    }
                    next += 1
                case .full:
                    guard !outstanding.isEmpty else {
                        Issue.record("seed \(seed), owner \(owner): \(next) is refused with nothing to end")
                        return
                    }
                    if !isLast, Int.random(in: 0..<10, using: &random) == 0 { polled = polls }
                case .outOfOrder:
                    Issue.record("seed \(seed), owner \(owner): \(next) is out of order")
                    return
                }
                if !held.isEmpty, Int.random(in: 0..<3, using: &random) == 0 {
                    tracker.release(held.removeFirst())
                }
                if let index = outstanding.indices.randomElement(using: &random),
                    isLast || Int(outstanding[index]) &* 7_919 % 1_000 >= slow
                {
                    let offset = outstanding[index]
                    outstanding.swapAt(index, outstanding.count - 1)
                    outstanding.removeLast()
                    _ = tracker.complete(offset)
                    finished.insert(offset)
                }
                if Int.random(in: 0..<50, using: &random) == 0 {
                    let point = tracker.commitPoint()
                    let claimed = CommitMetadata.decode(point.metadata, committedOffset: point.offset)
                        .completed
                    guard outstanding.allSatisfy({ $0 >= point.offset && !claimed.contains($0) }) else {
                        Issue.record("seed \(seed), owner \(owner): a commit passes what isn't finished")
                        return
                    }
                }
            }
            committed = tracker.commitPoint()
        }
        let all = Set((0..<last).filter { !isGap($0) })
        #expect(finished == all, "seed \(seed)")

        func isGap(_ offset: Int64) -> Bool { Int(offset) &* 104_729 % 1_000 < gap }
    }
}
