import Foundation
import Testing

@testable import LoadTest

struct HDRHistogramTests {
    @Test func percentileIsWithinAThousandthOfTheDuration() {
        for value in [0, 1, 999, 2_047, 2_048, 2_049, 12_345, 999_999, 7_777_777, 3_600_000_000] {
            var histogram = HDRHistogram()
            histogram.record(microseconds: value)
            histogram.record(microseconds: value * 2 + 10_000)
            let measured = (histogram.milliseconds(atPercentile: 50) ?? -1) * 1_000
            #expect(measured >= Double(value))
            #expect(measured <= Double(value) * (1 + 1.0 / 1_024) + 0.001)
        }
    }

    @Test func greatestDurationIsExact() {
        var histogram = HDRHistogram()
        for value in 1...10_000 { histogram.record(microseconds: value * 37) }
        #expect(histogram.milliseconds(atPercentile: 100) == 370)
        #expect(histogram.count == 10_000)
        #expect(histogram.milliseconds(atPercentile: 0) == 0.037)
    }

    @Test func percentileOfAThousandDurationsIsNotTheOneAbove() {
        var histogram = HDRHistogram()
        for value in 1...1_000 { histogram.record(microseconds: value) }
        for (percentile, value) in [(99.9, 0.999), (99, 0.99), (50, 0.5), (0.1, 0.001), (99.95, 1)] {
            #expect(histogram.milliseconds(atPercentile: percentile) == value, "\(percentile)")
            #expect(histogram.milliseconds(atPercentiles: [percentile]) == [value], "\(percentile)")
        }
    }

    @Test func additionEqualsCountingInOneHistogram() {
        var (one, two, both) = (HDRHistogram(), HDRHistogram(), HDRHistogram())
        for value in 0..<5_000 {
            let duration = value * value
            if value.isMultiple(of: 3) {
                one.record(microseconds: duration)
            } else {
                two.record(microseconds: duration)
            }
            both.record(microseconds: duration)
        }
        one.add(two)
        #expect(one == both)
    }

    @Test func encodingAndDecodingKeepEverything() throws {
        var histogram = HDRHistogram()
        for value in [0, 5, 2_048, 4_097, 123_456, 987_654_321] {
            histogram.record(microseconds: value, times: 3)
        }
        let text = try JSONEncoder().encode(histogram)
        #expect(try JSONDecoder().decode(HDRHistogram.self, from: text) == histogram)
    }

    @Test func bucketWithoutAPairIsRefused() {
        let text = Data(#"{"count": 1, "sum_us": 1, "max_us": 1, "buckets": [[1]]}"#.utf8)
        #expect(throws: DecodingError.self) { try JSONDecoder().decode(HDRHistogram.self, from: text) }
    }
}
