import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct PollTimesTests {
    @Test func oldestRecordKeepsItsPollTime() {
        var times = PollTimes(interval: 100)
        #expect(times.time(of: 0) == nil)
        times.polled(5, at: 1000, watermark: 5)
        times.polled(6, at: 1050, watermark: 5)
        times.polled(7, at: 1100, watermark: 5)
        times.polled(8, at: 9000, watermark: 5)
        #expect(times.time(of: 4) == nil)
        #expect(times.time(of: 5) == 1000)
        // Less than an interval after the mark, so the age is overstated.
        #expect(times.time(of: 6) == 1000)
        #expect(times.time(of: 7) == 1100)
        #expect(times.time(of: 8) == 9000)
    }

    @Test func pollTimesRestartWhenThePartitionCatchesUp() {
        var times = PollTimes(interval: 100)
        times.polled(5, at: 1000, watermark: 5)
        times.polled(6, at: 1001, watermark: 6)
        #expect(times.time(of: 6) == 1001)
        #expect(times.time(of: 5) == nil)
    }

    /// Compares with the exact time of each record. Records hold the watermark for very different times.
    @Test(arguments: UInt64(1)...24)
    func randomPollsMatchTheModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let interval: UInt64 = 1000
        var times = PollTimes(interval: interval)
        var tracker = OffsetTracker(nextOffset: 0)
        var polled: [Int64: UInt64] = [:]
        var now: UInt64 = 0
        var next: Int64 = 0
        var greatestAge: UInt64 = 0
        for step in 0..<30_000 {
            // Long quiet times alternate with busy ones.
            now += UInt64.random(in: 0..<(step % 5000 < 100 ? 100_000 : 700), using: &random)
            if polled.isEmpty { greatestAge = 0 }
            if Int.random(in: 0..<100, using: &random) < 55 {
                next += Int64.random(in: 1...3, using: &random)
                _ = tracker.track(next)
                polled[next] = now
                times.polled(next, at: now, watermark: tracker.watermark)
            } else if !polled.isEmpty {
                // The oldest record finishes rarely, but then with many of its followers.
                let many = Int.random(in: 0..<4000, using: &random) == 0
                for _ in 0..<(many ? polled.count - Int.random(in: 0..<polled.count, using: &random) : 1) {
                    let oldest = tracker.watermark
                    let offset = many ? oldest : Int64.random(in: oldest...next, using: &random)
                    if (many || offset != oldest), polled.removeValue(forKey: offset) != nil {
                        _ = tracker.complete(offset)
                    }
                }
            }
            guard let oldest = tracker.oldestOutstanding else { continue }
            guard let truth = polled[oldest], let answer = times.time(of: oldest) else {
                Issue.record("seed \(seed), step \(step): no time for \(oldest)")
                return
            }
            greatestAge = max(greatestAge, now - truth)
            let bound = max(interval, greatestAge / 128)
            guard answer <= truth, truth - answer <= bound else {
                Issue.record("seed \(seed), step \(step): \(answer) for \(truth), bound \(bound)")
                return
            }
        }
        #expect(greatestAge > 100 * interval, "seed \(seed)")
    }
}
