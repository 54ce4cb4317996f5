import SluiceModel
import TestSupport
import Testing

@testable import Metrics

@Suite("Metrics: exponential histogram")
struct ExponentialHistogramTests {
    /// Upper bound of a bucket in seconds.
    private static func bound(_ bucket: Int) -> Double {
        Double(sign: .plus, exponent: ExponentialHistogram.lowest + bucket / 8, significand: 1)
            * [
                1, 1.0905077326652577, 1.189207115002721, 1.2968395546510096, 1.4142135623730951,
                1.5422108254079407,
                1.681792830507429, 1.8340080864093424,
            ][bucket % 8]
    }

    @Test("each duration is above the bound below its bucket, and at most the bound above")
    func bucketsHoldTheirDurations() {
        var random = SeededGenerator(seed: 21)
        for _ in 0..<200_000 {
            let bits = UInt64.random(in: 10...51, using: &random)
            let duration = UInt64.random(in: (1 << bits)..<(1 << (bits + 1)), using: &random)
            let seconds = Double(duration) * 1e-9
            let bucket = ExponentialHistogram.bucket(of: duration)
            if bucket < ExponentialHistogram.bucketCount - 1 {
                #expect(seconds <= Self.bound(bucket), "\(duration)")
            }
            if bucket > 0 { #expect(seconds > Self.bound(bucket - 1), "\(duration)") }
        }
    }

    @Test("durations beyond both ends count in the first and the last bucket")
    func ends() {
        #expect(ExponentialHistogram.bucket(of: 0) == 0)
        #expect(ExponentialHistogram.bucket(of: 1) == 0)
        #expect(ExponentialHistogram.bucket(of: .max) == ExponentialHistogram.bucketCount - 1)
    }

    @Test("a power of two in seconds ends its bucket, so that classic buckets are exact")
    func powersOfTwo() {
        let histogram = ExponentialHistogram()
        histogram.record(milliseconds: 1000)
        histogram.record(milliseconds: 1001)
        histogram.record(milliseconds: 500)
        histogram.record(milliseconds: -5)
        let buckets = histogram.snapshot().classicBuckets(-2...2)
        #expect(buckets.map(\.bound) == [0.25, 0.5, 1, 2, 4])
        #expect(buckets.map(\.count) == [1, 2, 3, 4, 4])
        #expect(abs(histogram.snapshot().sum - 2.501) < 1e-9)
    }

    @Test("durations of centuries do not wrap the sum")
    func sumsOfLongDurations() {
        let histogram = ExponentialHistogram()
        for _ in 0..<10 { histogram.record(milliseconds: .max) }
        #expect(abs(histogram.snapshot().sum - 41_943_040) < 1)
        for _ in 0..<2 { histogram.record(nanoseconds: .max) }
        #expect(histogram.snapshot().sum > 3.6e10)
    }

    @Test(
        "the sum of two snapshots has the counts of one histogram with all durations, and the later exemplar")
    func sums() {
        var random = SeededGenerator(seed: 3)
        let (left, right, both) = (ExponentialHistogram(), ExponentialHistogram(), ExponentialHistogram())
        for index in 0..<1000 {
            let duration = UInt64.random(in: 0...5_000_000_000, using: &random)
            (index.isMultiple(of: 3) ? left : right).record(nanoseconds: duration)
            both.record(nanoseconds: duration)
        }
        left.note(Exemplar(trace: (1, 2), seconds: 1, milliseconds: 5))
        right.note(Exemplar(trace: (3, 4), seconds: 2, milliseconds: 4))
        let sum = left.snapshot() + right.snapshot()
        #expect(sum.counts == both.snapshot().counts)
        #expect(sum.count == 1000)
        #expect(abs(sum.sum - both.snapshot().sum) < 1e-6)
        #expect(sum.exemplar?.trace.0 == 1)
    }
}
