extension MonotonicTime {
    /// Reads the simulation's clock.
    public static func read() -> MonotonicTime { MonotonicTime(nanoseconds: Scheduler.current.now) }
}

/// Returns milliseconds since 1970-01-01 UTC by the wall clock of the running process.
public func wallClockMilliseconds() -> Int64 {
    let scheduler = Scheduler.current
    return scheduler.wallMilliseconds + Int64(scheduler.now / 1_000_000)
        + (scheduler.process?.wallDeviation ?? 0)
}
