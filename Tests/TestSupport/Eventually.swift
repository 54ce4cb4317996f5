import Glibc

/// The error of `eventually` when its condition doesn't become true in time.
public struct TimedOut: Error, CustomStringConvertible {
    public var waitedFor: String
    public var timeout: Duration

    public var description: String { "after \(timeout) still not true: \(waitedFor)" }
}

/// Waits until a condition holds, checking every 2 ms. The timeout only bounds a failing test, so choose a
/// generous value.
public func eventually(
    _ what: String, timeout: Duration = .seconds(120), _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + timeout
    while try !condition() {
        guard ContinuousClock.now < deadline else { throw TimedOut(waitedFor: what, timeout: timeout) }
        usleep(2_000)
    }
}

/// Waits until `find` returns a value, and returns that value.
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
