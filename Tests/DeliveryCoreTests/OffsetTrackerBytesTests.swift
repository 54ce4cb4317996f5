import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct OffsetTrackerBytesTests {
    @Test func completedRecordFreesAnEqualShareOfItsBlock() {
        var tracker = OffsetTracker(nextOffset: 0)
        let (first, second, otherBlock) = (100, 20, 5000)
        _ = tracker.track(0, bytes: first)
        _ = tracker.track(1, bytes: second)
        _ = tracker.track(64, bytes: otherBlock)
        #expect(tracker.outstandingBytes == first + second + otherBlock)
        let share = (first + second) / 2
        _ = tracker.complete(0)
        #expect(tracker.outstandingBytes == share + otherBlock)
        _ = tracker.complete(0)
        _ = tracker.track(1, bytes: 7)
        #expect(tracker.outstandingBytes == share + otherBlock)
        _ = tracker.complete(1)
        #expect(tracker.outstandingBytes == otherBlock)
        _ = tracker.complete(64)
        #expect(tracker.outstandingBytes == 0)
    }

    @Test func sixtyFourHugeRecordsDoNotOverflow() {
        var tracker = OffsetTracker(nextOffset: 0)
        for offset in Int64(0)..<64 { _ = tracker.track(offset, bytes: .max) }
        #expect(tracker.outstandingBytes / 64 == 1 << 26 - 1)
        for offset in Int64(0)..<64 { _ = tracker.complete(offset) }
        #expect(tracker.outstandingBytes == 0)
    }

    /// Compares with a dictionary of blocks and their records. The ring grows meanwhile and wraps around.
    @Test(arguments: UInt64(1)...12)
    func randomOperationsMatchTheModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var tracker = OffsetTracker(nextOffset: 0, spanLimit: 4000, initialCapacity: 64)
        var bytes: [Int64: Int] = [:]
        var outstanding: [Int64: Int] = [:]
        var next: Int64 = 0
        for step in 0..<20_000 {
            if Int.random(in: 0..<100, using: &random) < (step / 3000 % 2 == 0 ? 60 : 40), !tracker.isFull {
                let size = Int.random(in: 0...5000, using: &random)
                if tracker.track(next, bytes: size) == .tracked {
                    bytes[next >> 6, default: 0] += size
                    outstanding[next >> 6, default: 0] += 1
                }
                next += Int64.random(in: 1...40, using: &random) / 20 + 1
            } else if let oldest = tracker.oldestOutstanding {
                let offset =
                    Bool.random(using: &random) ? oldest : Int64.random(in: oldest..<next, using: &random)
                let block = offset >> 6
                if tracker.isOutstanding(offset) {
                    _ = tracker.complete(offset)
                    bytes[block]! -= bytes[block]! / outstanding[block]!
                    outstanding[block]! -= 1
                }
            }
            guard tracker.outstandingBytes == bytes.values.reduce(0, +) else {
                Issue.record("seed \(seed), step \(step): \(tracker.outstandingBytes)")
                return
            }
            if step % 500 == 0 { bytes = bytes.filter { $0.value > 0 } }
        }
        #expect(next > 10_000, "seed \(seed)")
    }
}
