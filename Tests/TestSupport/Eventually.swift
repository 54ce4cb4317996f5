import Glibc

/// Thrown by `eventually` when its condition did not become true in time.
public struct TimedOut: Error, CustomStringConvertible {
    public var waitedFor: String
    public var timeout: Duration

    public var description: String { "after \(timeout) still not true: \(waitedFor)" }
}

/// Waits until a condition holds, which is checked every few milliseconds. Choose a generous timeout, because it only
/// bounds a failing test.
public func eventually(
    _ what: String, timeout: Duration = .seconds(120), _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + timeout
    while try !condition() {
        guard ContinuousClock.now < deadline else { throw TimedOut(waitedFor: what, timeout: timeout) }
        usleep(2_000)
    }
}

/// Waits until `find` returns a value, and returns it.
public func eventually<Value>(
    _ what: String, timeout: Duration = .seconds(120), _ find: () throws -> Value?
) throws -> Value {
    let deadline = ContinuousClock.now + timeout
    while true {
        if let value = try find() { return value }
        guard ContinuousClock.now < deadline else { throw TimedOut(waitedFor: what, timeout: timeout) }
        usleep(2_000)
    }
}
