/// Time of both clocks at one moment, read by the owner.
///
/// Expirations and `deliver-at` use the wall clock, which can be set. Waits use the monotonic clock, which can't be
/// set.
public struct DeliveryTime: Equatable, BitwiseCopyable, Sendable {
    /// Milliseconds since the epoch.
    public var wallMilliseconds: Int64
    /// Nanoseconds of the monotonic clock, which never runs backward.
    public var monotonicNanoseconds: UInt64

    public init(wallMilliseconds: Int64, monotonicNanoseconds: UInt64) {
        self.wallMilliseconds = wallMilliseconds
        self.monotonicNanoseconds = monotonicNanoseconds
    }

    /// Returns the time on the monotonic clock `wait` milliseconds from now; never in the past.
    func monotonic(inMilliseconds wait: Int64) -> UInt64 {
        guard wait > 0 else { return monotonicNanoseconds }
        let (nanoseconds, tooLong) = UInt64(wait).multipliedReportingOverflow(by: 1_000_000)
        guard !tooLong else { return .max }
        let (moment, overflow) = monotonicNanoseconds.addingReportingOverflow(nanoseconds)
        return overflow ? .max : moment
    }
}
