import EventLoop

/// A lock of simulated threads: a holder may block in a call while others run.
// Sendable: as `Scheduler`.
final class Mutex<Value>: @unchecked Sendable {
    private var value: Value
    private var isLocked = false

    init(_ value: Value) { self.value = value }

    func withLock<Result>(_ body: (inout Value) -> Result) -> Result {
        // The death of a process releases its locks.
        Scheduler.current.block { !isLocked }
        isLocked = true
        defer { isLocked = false }
        var changed = value
        defer { value = changed }
        return body(&changed)
    }
}

/// Delays the caller.
@discardableResult
func usleep(_ microseconds: UInt32) -> Int32 {
    Scheduler.current.sleep(UInt64(microseconds) * 1_000)
    return 0
}
