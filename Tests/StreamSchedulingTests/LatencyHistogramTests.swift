import SluiceModel
import TestSupport
import Testing

@testable import StreamScheduling

@Suite struct LatencyHistogramTests {
    private static let percents: [Double] = [0, 0.1, 1, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100]

    @Test func emptyHistogramReportsZero() {
        let histogram = LatencyHistogram()
        #expect(histogram.count == 0)
        #expect(histogram.max == 0)
        #expect(histogram.percentile(50) == 0)
    }

    @Test func histogramTakesAtMost16KB() {
        #expect(LatencyHistogram.memoryBytes <= 16_384)
    }

    /// Every power of two and its neighbours, over the whole range and beyond.
    @Test func singleValueIsReportedWithinThreePercent() {
        for bit in UInt64(0)..<64 {
            let power: UInt64 = 1 << bit
            for value in [power, power &- 1, power &+ 1, power | power >> 1] {
                let histogram = LatencyHistogram()
                histogram.record(nanoseconds: value)
                // A single value is the maximum, which is exact; after a larger value, the percentile is a bucket's
                // value.
                #expect(histogram.percentile(50) == value)
                histogram.record(nanoseconds: .max)
                let found = histogram.percentile(50)
                if value <= 3_600_000_000_000 {
                    let error = Double(found > value ? found - value : value - found)
                    #expect(value < 1000 ? error <= 16 : error <= Double(value) * 0.03, "\(value): \(found)")
                }
                #expect(histogram.max == .max)
                #expect(histogram.count == 2)
            }
        }
    }

    @Test func percentilesAgreeWithSortedArrays() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        for round in 0..<60 {
            let histogram = LatencyHistogram()
            var values: [UInt64] = []
            for _ in 0..<Int.random(in: 1...3000, using: &random) {
                // Values spread over all magnitudes, over a narrow range, or over few values.
                let top: UInt64 = 1 << UInt64.random(in: 10...41, using: &random)
                let value: UInt64 =
                    switch round % 3 {
                    case 0: UInt64.random(in: 0...top, using: &random)
                    case 1: UInt64.random(in: 900_000...1_100_000, using: &random)
                    default: 1000 * UInt64.random(in: 1...5, using: &random)
                    }
                values.append(value)
                histogram.record(nanoseconds: value)
            }
            values.sort()
            #expect(histogram.count == UInt64(values.count), "seed \(seed)")
            #expect(histogram.max == values.last, "seed \(seed)")
            for percent in Self.percents {
                let rank = max(1, Int((percent / 100 * Double(values.count)).rounded(.up)))
                let exact = Double(values[rank - 1])
                let found = Double(histogram.percentile(percent))
                #expect(abs(found - exact) <= max(exact * 0.03, 16), "seed \(seed): \(percent) %")
            }
        }
    }

    @Test func percentilesRiseWithThePercentage() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        let histogram = LatencyHistogram()
        for _ in 0..<5000 {
            histogram.record(nanoseconds: 1 << UInt64.random(in: 0...50, using: &random))
        }
        let found = stride(from: 0.0, through: 100, by: 0.5).map(histogram.percentile)
        #expect(found == found.sorted(), "seed \(seed)")
    }

    @Test func mergedHistogramsEqualRecordingAllValues() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        let parts = (0..<4).map { _ in LatencyHistogram() }
        let whole = LatencyHistogram()
        for _ in 0..<4000 {
            let value = UInt64.random(in: 0...10_000_000, using: &random)
            parts.randomElement(using: &random)!.record(nanoseconds: value)
            whole.record(nanoseconds: value)
        }
        let merged = LatencyHistogram()
        for part in parts { merged.merge(part) }
        #expect(merged.count == whole.count && merged.max == whole.max, "seed \(seed)")
        for percent in Self.percents {
            #expect(merged.percentile(percent) == whole.percentile(percent), "seed \(seed)")
        }
        merged.reset()
        #expect(merged.count == 0 && merged.max == 0 && merged.percentile(99) == 0)
        #expect(whole.count == 4000)
    }
}
