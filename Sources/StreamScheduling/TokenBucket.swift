/// A token bucket stored as one time: when the bucket would be empty of debt. The time is the "theoretical arrival
/// time" of the generic cell rate algorithm (ITU-T I.371). The bucket fills as time passes, so no sum can drift.
///
/// Times are nanoseconds with 32 binary places; the interval is rounded up, so that the rate is never exceeded.
struct TokenBucket {
    /// Time when the bucket is full again.
    private var full: UInt128 = 0
    private var interval: UInt128
    /// Time to earn all tokens but one.
    private var tolerance: UInt128

    /// Creates a full bucket. Both values in the ranges of ``AppLimits``.
    init(ratePerSecond: Double, burst: Int) {
        interval = max(1, UInt128((1e9 / ratePerSecond * 4_294_967_296).rounded(.up)))
        tolerance = interval * UInt128(burst - 1)
    }

    /// Time from which a token is available, in nanoseconds; 0 when a token is available at any time.
    var availableAt: UInt64 {
        guard full > tolerance else { return 0 }
        return UInt64(clamping: (full - tolerance + 0xffff_ffff) >> 32)
    }

    mutating func spend(now: UInt64) {
        full = max(full, UInt128(now) << 32) + interval
    }

    /// Undoes one ``spend(now:)``.
    mutating func refund() {
        full = full > interval ? full - interval : 0
    }

    /// Changes rate and burst; as many tokens stay spent as were.
    mutating func change(ratePerSecond: Double, burst: Int, now: UInt64) {
        let changed = TokenBucket(ratePerSecond: ratePerSecond, burst: burst)
        let now = UInt128(now) << 32
        let debt = full > now ? min(full - now, tolerance + interval) : 0
        let product = debt.multipliedFullWidth(by: changed.interval)
        let (spent, remainder) = interval.dividingFullWidth(product)
        interval = changed.interval
        tolerance = changed.tolerance
        full = spent == 0 && remainder == 0 ? 0 : now + spent + (remainder > 0 ? 1 : 0)
    }
}
