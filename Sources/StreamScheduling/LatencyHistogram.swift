/// Counts durations in buckets whose width grows with the value. Any percentile is known to within 3 % from 1 µs to one
/// hour. The counters use 8.5 KB, whatever the number of values. Below 1 µs the error is at most 16 ns; above an hour
/// only ``max`` is exact.
///
/// A class rather than a non-copyable struct, because owners keep histograms in arrays and pass them on. Arrays have a
/// histogram per application, class or connection. The one allocation holds all counters, so recording is a few
/// instructions without a check of exclusivity. Used by one thread at a time.
public final class LatencyHistogram {
    // A value below 2^10 ns falls into one of 32 buckets of 32 ns. Each power of two above has 32 buckets, by the five
    // bits below the leading bit. So the width is at most 1/32 of the value, and the middle at most 1/64 off.
    private static let linearBits = 10
    private static let subBits = 5
    private static let topBit = 41
    private static let bucketCount = (topBit - linearBits + 2) << subBits
    // Index of the largest value, behind the buckets.
    private static let maxIndex = bucketCount

    private let words: UnsafeMutablePointer<UInt64>

    public init() {
        words = .allocate(capacity: Self.bucketCount + 1)
        words.initialize(repeating: 0, count: Self.bucketCount + 1)
    }

    deinit {
        words.deallocate()
    }

    /// Size of the counters in bytes.
    public static var memoryBytes: Int { (bucketCount + 1) * MemoryLayout<UInt64>.size }

    /// Counts one duration. A few nanoseconds; nothing is allocated.
    public func record(nanoseconds: UInt64) {
        words[Self.bucket(of: nanoseconds)] &+= 1
        if nanoseconds > words[Self.maxIndex] { words[Self.maxIndex] = nanoseconds }
    }

    /// Number of counted durations.
    public var count: UInt64 {
        var sum: UInt64 = 0
        for index in 0..<Self.bucketCount { sum &+= words[index] }
        return sum
    }

    /// The longest duration in nanoseconds, exact; 0 without durations.
    public var max: UInt64 { words[Self.maxIndex] }

    /// Returns the duration, in nanoseconds, that `percent` of the durations don't exceed (nearest rank); 0 without
    /// durations.
    /// - Parameter percent: 0 to 100; 100 returns ``max``.
    public func percentile(_ percent: Double) -> UInt64 {
        let count = count
        guard count > 0 else { return 0 }
        let wanted = (Swift.min(Swift.max(percent, 0), 100) / 100 * Double(count)).rounded(.up)
        let rank = Swift.min(Swift.max(UInt64(wanted), 1), count)
        guard rank < count else { return max }
        var seen: UInt64 = 0
        for index in 0..<Self.bucketCount {
            seen &+= words[index]
            if seen >= rank { return Swift.min(Self.middle(of: index), max) }
        }
        return max
    }

    /// Adds the counts of another histogram.
    public func merge(_ other: LatencyHistogram) {
        for index in 0..<Self.bucketCount { words[index] &+= other.words[index] }
        words[Self.maxIndex] = Swift.max(max, other.max)
    }

    /// Sets all counts and ``max`` to 0.
    public func reset() {
        words.update(repeating: 0, count: Self.bucketCount + 1)
    }

    private static func bucket(of value: UInt64) -> Int {
        let leading = UInt64.bitWidth - 1 - (value | 1 << UInt64(linearBits - 1)).leadingZeroBitCount
        guard leading >= linearBits else { return Int(value >> UInt64(linearBits - subBits)) }
        guard leading <= topBit else { return bucketCount - 1 }
        let sub = Int(value >> UInt64(leading - subBits)) & (1 << subBits - 1)
        return (leading - linearBits + 1) << subBits + sub
    }

    private static func middle(of bucket: Int) -> UInt64 {
        let octave = bucket >> subBits
        let sub = UInt64(bucket & (1 << subBits - 1))
        guard octave > 0 else {
            let width: UInt64 = 1 << UInt64(linearBits - subBits)
            return sub * width + width / 2
        }
        let width: UInt64 = 1 << UInt64(octave + linearBits - 1 - subBits)
        return (1 << UInt64(subBits) + sub) * width + width / 2
    }
}
