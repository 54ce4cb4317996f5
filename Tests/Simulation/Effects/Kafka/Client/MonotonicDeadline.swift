import EventLoop

/// A point on the simulation's clock. For a process that was killed, every point has passed.
struct MonotonicDeadline {
    private let nanoseconds: UInt64

    init(milliseconds: Int32) { nanoseconds = Self.now + UInt64(max(0, milliseconds)) * 1_000_000 }

    var hasPassed: Bool { remainingMilliseconds == 0 }

    /// Remaining time in milliseconds, rounded up; 0 when the deadline has passed.
    var remainingMilliseconds: Int32 {
        let now = Self.now
        guard now < nanoseconds, Scheduler.current.process?.isAlive != false else { return 0 }
        return Int32(clamping: (nanoseconds - now + 999_999) / 1_000_000)
    }

    static var now: UInt64 { Scheduler.current.now }
}
