/// A point on the monotonic clock, in nanoseconds since an arbitrary origin (the machine's start on Linux). The clock
/// runs on while the machine is suspended (`CLOCK_BOOTTIME`), so that a worker notices the suspension.
public struct MonotonicTime: Comparable, Hashable, Sendable {
    public var nanoseconds: UInt64

    public init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// Time so far in the future that it never comes.
    public static let distantFuture = MonotonicTime(nanoseconds: .max)

    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanoseconds < right.nanoseconds
    }

    /// Returns the time `duration` later; a negative duration counts as zero, an overflow as ``distantFuture``.
    public static func + (time: MonotonicTime, duration: Duration) -> MonotonicTime {
        let (sum, overflow) = time.nanoseconds.addingReportingOverflow(duration.wholeNanoseconds)
        return overflow ? .distantFuture : MonotonicTime(nanoseconds: sum)
    }

    /// Returns the nanoseconds from `earlier` to `self`, zero if `earlier` is later.
    public func nanoseconds(since earlier: MonotonicTime) -> UInt64 {
        nanoseconds > earlier.nanoseconds ? nanoseconds - earlier.nanoseconds : 0
    }
}

extension Duration {
    /// The duration in nanoseconds, clamped to what 64 bits hold; zero for a negative one.
    public var wholeNanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (product, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflow else { return .max }
        let (sum, overflowed) = product.addingReportingOverflow(UInt64(attoseconds) / 1_000_000_000)
        return overflowed ? .max : sum
    }
}
