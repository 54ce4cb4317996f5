/// Decides which of a credential's signing keys is used. Pure: the owner reports refusals with their times.
///
///     key 0 ── refused ──▶ key 1 ── refused ──▶ … ── refused ──▶ exhausted: the last key stays
///       ▲                    │
///       └── an hour later ───┘
///
/// A key that APNs refused is tried again after an hour, because a new key may not be known to all servers at once.
public struct KeyPreference: Sendable, Equatable {
    /// Consequence of a refusal.
    public enum Refusal: Sendable, Equatable {
        /// Another key is used from now on.
        case replaced(by: Int)
        /// The key was replaced before.
        case known
        /// All keys are refused.
        case exhausted
    }

    /// Seconds after which a refused key is tried again.
    public static let retryAfter: Int64 = 3600

    /// Index of the key in use.
    public private(set) var current = 0
    /// Times of the keys' last refusals, in seconds of the monotonic clock; nil for a key that was not refused.
    private var refusedAt: [Int64?]

    /// - Parameter count: number of keys, at least one, in order of preference.
    public init(count: Int) {
        refusedAt = Array(repeating: nil, count: max(1, count))
    }

    /// Records that APNs refused a key.
    public mutating func refused(_ key: Int, at seconds: Int64) -> Refusal {
        guard key == current else { return .known }
        refusedAt[key] = seconds
        guard let next = refusedAt.indices.first(where: { isUsable($0, at: seconds) }) else {
            return .exhausted
        }
        current = next
        return .replaced(by: next)
    }

    /// Returns the preferred key that is to be tried again, if its time has come; the key is in use then.
    public mutating func review(at seconds: Int64) -> Int? {
        guard let key = (0..<current).first(where: { isUsable($0, at: seconds) }) else { return nil }
        refusedAt[key] = nil
        current = key
        return key
    }

    /// Time of the next useful ``review(at:)``, in seconds of the monotonic clock; `.max` when the first key is in use.
    public var nextReview: Int64 {
        (0..<current).map { refusedAt[$0].map { $0 &+ Self.retryAfter } ?? .min }.min() ?? .max
    }

    private func isUsable(_ key: Int, at seconds: Int64) -> Bool {
        guard let time = refusedAt[key] else { return true }
        return seconds >= time &+ Self.retryAfter
    }
}
