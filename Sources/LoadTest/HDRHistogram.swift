/// Counts durations with a relative error of at most 1/1024, from 1 µs to 2^22 s; shorter durations count as 0 to 1 µs.
///
/// A value below 2^11 µs has a bucket of its own. Each power of two above has 1,024 buckets. Buckets exist from the first
/// count on, so that a histogram of one second of a run is small. Not for the path of a notification.
public struct HDRHistogram: Codable, Sendable, Equatable {
    /// Counts by index of the bucket, sparse.
    private var counts: [Int: Int] = [:]
    /// Number of durations.
    public private(set) var count = 0
    /// Greatest duration in microseconds; 0 without any.
    public private(set) var greatest = 0
    /// Sum of all durations in microseconds.
    public private(set) var sum = 0.0

    private static let exactBits = 11
    private static let topBit = 42

    public init() {}

    /// Counts a duration in microseconds. A negative duration counts as 0, a duration above 2^42 µs as that.
    public mutating func record(microseconds: Int, times: Int = 1) {
        guard times > 0 else { return }
        let value = min(max(0, microseconds), 1 << Self.topBit)
        counts[Self.bucket(of: value), default: 0] += times
        count += times
        sum += Double(value) * Double(times)
        greatest = max(greatest, value)
    }

    /// Adds the counts of another histogram.
    public mutating func add(_ other: HDRHistogram) {
        counts.merge(other.counts, uniquingKeysWith: +)
        count += other.count
        sum += other.sum
        greatest = max(greatest, other.greatest)
    }

    /// Mean in milliseconds; nil without durations.
    public var meanMilliseconds: Double? { count == 0 ? nil : sum / Double(count) / 1_000 }

    /// Greatest duration of the bucket that holds the percentile, in milliseconds; nil without durations.
    /// - Parameter percentile: 0 to 100.
    public func milliseconds(atPercentile percentile: Double) -> Double? {
        guard count > 0 else { return nil }
        let rank = max(1, Int(rank(ofPercentile: min(max(percentile, 0), 100))))
        var seen = 0
        for (bucket, number) in buckets {
            seen += number
            if seen >= rank { return Double(min(bucket, greatest)) / 1_000 }
        }
        return Double(greatest) / 1_000
    }

    /// Returns the number of the duration at a percentile, in ascending order from 1.
    ///
    /// 99.9 / 100 * 1,000 is greater than 999 as a floating-point number. So a billionth of the count is no rank more.
    func rank(ofPercentile percentile: Double) -> Double {
        ((percentile / 100 - 1e-9) * Double(count)).rounded(.up)
    }

    /// Upper ends of the buckets in microseconds with their counts, ascending; empty buckets are left out.
    public var buckets: [(microseconds: Int, count: Int)] {
        counts.sorted { $0.key < $1.key }.map { (Self.upperEnd(of: $0.key), $0.value) }
    }

    private static func bucket(of value: Int) -> Int {
        guard value >= 1 << exactBits else { return value }
        let shift = Int.bitWidth - 1 - value.leadingZeroBitCount - (exactBits - 1)
        return shift << (exactBits - 1) + value >> shift
    }

    private static func upperEnd(of bucket: Int) -> Int {
        guard bucket >= 1 << exactBits else { return bucket }
        let shift = bucket >> (exactBits - 1) - 1
        return (bucket - shift << (exactBits - 1) + 1) << shift - 1
    }

    // MARK: Coding: {"count", "sum_us", "max_us", "buckets": [[upper end in µs, count], …]}

    private enum CodingKeys: String, CodingKey {
        case count
        case sum = "sum_us"
        case greatest = "max_us"
        case buckets
    }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        for pair in try values.decode([[Int]].self, forKey: .buckets) {
            guard pair.count == 2, pair[0] >= 0, pair[1] > 0, pair[1] < 1 << 40, count < 1 << 50 else {
                throw DecodingError.dataCorruptedError(
                    forKey: .buckets, in: values, debugDescription: "a bucket is [microseconds, count]")
            }
            record(microseconds: pair[0], times: pair[1])
        }
        sum = try values.decode(Double.self, forKey: .sum)
        greatest = try values.decode(Int.self, forKey: .greatest)
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(count, forKey: .count)
        try values.encode(sum, forKey: .sum)
        try values.encode(greatest, forKey: .greatest)
        try values.encode(buckets.map { [$0.microseconds, $0.count] }, forKey: .buckets)
    }
}
