import SluiceModel

/// Waiting times that grow with every attempt, with full jitter: uniform between 1 ms and the window.
///
/// With base 2 s, cap 15 min and multiplier 2:
///
///     attempt   1    2    3    4     5     6     7      8      9      10+
///     window    2 s  4 s  8 s  16 s  32 s  64 s  128 s  256 s  512 s  900 s
///
/// Full jitter, because a thousand notifications that failed together must not be retried together.
public struct ExponentialBackoff: Sendable, Equatable {
    /// Window after the first attempt, in milliseconds, at least 1.
    public let baseMilliseconds: Int64
    /// Largest window, in milliseconds, at least the base.
    public let capMilliseconds: Int64
    /// Growth per attempt, 1 to 100.
    public let multiplier: Double

    /// Creates a backoff. Throws with the name of the value that is out of range.
    public init(
        baseMilliseconds: Int64, capMilliseconds: Int64, multiplier: Double = 2
    ) throws(RetryPolicyError) {
        guard baseMilliseconds >= 1 else {
            throw RetryPolicyError(field: "base", requirement: "must be at least 1 ms")
        }
        guard capMilliseconds >= baseMilliseconds, capMilliseconds <= Self.longest else {
            throw RetryPolicyError(field: "cap", requirement: "must be between the base and 30 days")
        }
        guard multiplier >= 1, multiplier <= 100 else {
            throw RetryPolicyError(field: "multiplier", requirement: "must be between 1 and 100")
        }
        self.init(base: baseMilliseconds, cap: capMilliseconds, multiplier: multiplier)
    }

    /// Backoff for answers that request a later retry: 2 s doubling to 15 min. APNs documentation: retry a 5xx after 15
    /// minutes; a back-off is allowed.
    public static let later = ExponentialBackoff(base: 2000, cap: 900_000, multiplier: 2)

    /// Backoff for probes of a topic whose credential is refused: 1 s doubling to 15 s. A probe is a single push.
    public static let configuration = ExponentialBackoff(base: 1000, cap: 15_000, multiplier: 2)

    /// Backoff for reconnects: 1 s doubling to 60 s (APNs treats rapid reconnects as an attack).
    public static let reconnect = ExponentialBackoff(base: 1000, cap: 60000, multiplier: 2)

    /// Backoff for notifications without a receipt: 1 min doubling to 6 h.
    public static let confirm = ExponentialBackoff(base: 60000, cap: 21_600_000, multiplier: 2)

    /// Creates a backoff from values known to be valid.
    private init(base: Int64, cap: Int64, multiplier: Double) {
        baseMilliseconds = base
        capMilliseconds = cap
        self.multiplier = multiplier
    }

    private static let longest: Int64 = 30 * 24 * 3_600_000

    /// Returns the longest wait after the `attempt`-th failure (counted from 1), in milliseconds.
    public func window(attempt: UInt32) -> Int64 {
        var window = Double(baseMilliseconds)
        var remaining = attempt
        // The cap ends this early unless the multiplier is close to 1; then a hundred steps are enough of a curve.
        var steps = 100
        while remaining > 1, steps > 0, window < Double(capMilliseconds) {
            window *= multiplier
            remaining -= 1
            steps -= 1
        }
        return window >= Double(capMilliseconds) ? capMilliseconds : Int64(window)
    }

    /// Returns a random wait in milliseconds, from 1 to the window, and at most `limit` (at least 1).
    public func wait(
        attempt: UInt32, limit: Int64 = .max, using generator: inout SeededGenerator
    ) -> Int64 {
        Int64.random(in: 1...max(1, min(window(attempt: attempt), limit)), using: &generator)
    }
}

/// A retry setting out of its range.
public struct RetryPolicyError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The setting's name.
    public let field: String
    /// Requirement that the value violates.
    public let requirement: String

    public var description: String { "retry \(field) \(requirement)" }
}
