import SluiceModel
import Testing

@testable import StreamScheduling

@Suite struct TokenBucketTests {
    /// Takes each token as early as the bucket allows.
    @Test(arguments: [0.001, 0.3, 1, 3, 7, 333.333, 1e6 / 7, 3e8])
    func tokenTimesNeverDriftFromTheRate(rate: Double) {
        var bucket = TokenBucket(ratePerSecond: rate, burst: 5)
        var now: UInt64 = 1_000_000
        let tokens = 50_000
        for _ in 0..<tokens {
            now = max(now, bucket.availableAt)
            bucket.spend(now: now)
        }
        let nanoseconds = Double(now - 1_000_000)
        let expected = Double(tokens - 5) * 1e9 / rate
        #expect(nanoseconds >= expected - 1e-6 * expected / Double(tokens))
        #expect(nanoseconds <= expected * (1 + 1e-9) + 2)
    }

    /// The steps don't divide the interval.
    @Test func unevenStepsLoseNoTokens() {
        var bucket = TokenBucket(ratePerSecond: 1000, burst: 10)
        var taken = 0
        for now in stride(from: UInt64(0), through: 10_000_000_000, by: 777_777) {
            while bucket.availableAt <= now {
                bucket.spend(now: now)
                taken += 1
            }
        }
        #expect(taken == 10_000 + 9 || taken == 10_000 + 10)
    }

    @Test func returnedTokensStayWithinTheBurst() {
        var bucket = TokenBucket(ratePerSecond: 1, burst: 2)
        for _ in 0..<10 { bucket.refund() }
        bucket.spend(now: 0)
        bucket.spend(now: 0)
        #expect(bucket.availableAt == 1_000_000_000)
        bucket.refund()
        #expect(bucket.availableAt == 0)
    }

    @Test func extremeRatesAndTimesDoNotOverflow() {
        var slow = TokenBucket(ratePerSecond: 1e-6, burst: 1_000_000_000)
        slow.spend(now: .max)
        slow.change(ratePerSecond: 1e-6, burst: 1, now: .max)
        slow.change(ratePerSecond: 1e9, burst: 1_000_000_000, now: 0)
        slow.change(ratePerSecond: 1e-6, burst: 1, now: 0)
        #expect(slow.availableAt > 0)
        var full = TokenBucket(ratePerSecond: 5, burst: 1)
        full.change(ratePerSecond: 1, burst: 1, now: 7)
        #expect(full.availableAt == 0)
    }
}

@Suite struct WakeHeapTests {
    @Test(arguments: UInt64(1)...8)
    func randomCallsAgreeWithASortedArray(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var heap = WakeHeap()
        var model: [WakeHeap.Entry] = []
        for step in 0..<3000 {
            switch Int.random(in: 0..<7, using: &random) {
            case 0..<4 where model.count < 200:
                let app = UInt32(step)
                let entry = WakeHeap.Entry(due: UInt64.random(in: 0...50, using: &random), app: app)
                heap.reserve(model.count + 1)
                heap.push(entry)
                model.append(entry)
            case 4, 5:
                guard let first = model.min(by: { $0.isBefore($1) }) else { continue }
                let popped = heap.pop()
                #expect(popped.app == first.app && popped.due == first.due, "seed \(seed) step \(step)")
                model.removeAll { $0.app == first.app }
            default:
                guard let entry = model.randomElement(using: &random) else { continue }
                heap.remove(app: entry.app)
                heap.remove(app: UInt32.max)
                model.removeAll { $0.app == entry.app }
            }
            let (count, due) = (heap.count, heap.nextDue)
            #expect(
                count == model.count && due == model.map(\.due).min() ?? .max, "seed \(seed) step \(step)")
        }
    }
}
