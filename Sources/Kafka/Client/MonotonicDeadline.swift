import Glibc

/// A point on the monotonic clock.
struct MonotonicDeadline {
    private let nanoseconds: UInt64

    init(milliseconds: Int32) { nanoseconds = Self.now + UInt64(max(0, milliseconds)) * 1_000_000 }

    var hasPassed: Bool { Self.now >= nanoseconds }

    /// Remaining time in milliseconds, rounded up; 0 when the deadline has passed.
    var remainingMilliseconds: Int32 {
        let now = Self.now
        return now >= nanoseconds ? 0 : Int32((nanoseconds - now + 999_999) / 1_000_000)
    }

    /// Nanoseconds of the monotonic clock.
    static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
