/// Latencies in nanoseconds, in buckets that are at most 1.6 % wide: 64 to each power of two.
final class Latencies {
    private static let linearBits = 6
    private static let count = 48 << linearBits
    private let buckets: UnsafeMutablePointer<UInt64>
    private(set) var total: UInt64 = 0
    private(set) var maximum: UInt64 = 0

    init() {
        buckets = .allocate(capacity: Self.count)
        buckets.initialize(repeating: 0, count: Self.count)
    }

    deinit { buckets.deallocate() }

    func record(_ nanoseconds: UInt64) {
        buckets[min(Self.bucket(nanoseconds), Self.count - 1)] += 1
        total += 1
        if nanoseconds > maximum { maximum = nanoseconds }
    }

    func removeAll() {
        buckets.update(repeating: 0, count: Self.count)
        total = 0
        maximum = 0
    }

    /// The upper end of the bucket in which the share `quantile` of all is reached; 0 when there are none.
    func quantile(_ quantile: Double) -> UInt64 {
        let wanted = max(1, UInt64((quantile * Double(total)).rounded(.up)))
        var seen: UInt64 = 0
        for bucket in 0..<Self.count {
            seen += buckets[bucket]
            if seen >= wanted { return min(Self.upperEnd(bucket), maximum) }
        }
        return maximum
    }

    private static func bucket(_ value: UInt64) -> Int {
        guard value >> linearBits != 0 else { return Int(value) }
        let shift = 63 - value.leadingZeroBitCount - linearBits
        return (shift << linearBits) + Int(value >> UInt64(shift))
    }

    private static func upperEnd(_ bucket: Int) -> UInt64 {
        guard bucket >> linearBits > 1 else { return UInt64(bucket) }
        let shift = (bucket >> linearBits) - 1
        let mantissa = UInt64(bucket - (shift << linearBits))
        return ((mantissa + 1) << UInt64(shift)) - 1
    }
}
