import Glibc

/// What `eventually` throws when its condition did not come true.
public struct TimedOut: Error, CustomStringConvertible {
    public var waitedFor: String
    public var timeout: Duration

    public var description: String { "after \(timeout) still not true: \(waitedFor)" }
}

/// Waits until a condition holds, looking every few milliseconds. The timeout only bounds a failing test:
/// choose it generously.
public func eventually(
    _ what: String, timeout: Duration = .seconds(120), _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + timeout
    while try !condition() {
        guard ContinuousClock.now < deadline else { throw TimedOut(waitedFor: what, timeout: timeout) }
        usleep(2_000)
    }
}

/// Waits until a value is there and returns it.
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
