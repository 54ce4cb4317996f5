/// The two clocks at one moment, read by the owner.
///
/// Expirations and `deliver-at` are on the wall clock, which can be set; waits are on the monotonic one, which can't.
public struct DeliveryTime: Equatable, BitwiseCopyable, Sendable {
    /// Milliseconds since the epoch.
    public var wallMilliseconds: Int64
    /// Nanoseconds of a clock that only goes forward.
    public var monotonicNanoseconds: UInt64

    public init(wallMilliseconds: Int64, monotonicNanoseconds: UInt64) {
        self.wallMilliseconds = wallMilliseconds
        self.monotonicNanoseconds = monotonicNanoseconds
    }

    /// The moment on the monotonic clock so many milliseconds from now; never in the past.
    func monotonic(inMilliseconds wait: Int64) -> UInt64 {
        guard wait > 0 else { return monotonicNanoseconds }
        let (nanoseconds, tooLong) = UInt64(wait).multipliedReportingOverflow(by: 1_000_000)
        guard !tooLong else { return .max }
        let (moment, overflow) = monotonicNanoseconds.addingReportingOverflow(nanoseconds)
        return overflow ? .max : moment
    }
}
