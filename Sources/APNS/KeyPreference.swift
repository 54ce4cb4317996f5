/// Decides which of a credential's signing keys is used. Pure: the owner reports refusals and acceptances with their
/// times, in nanoseconds of the monotonic clock.
///
///     key 0 ── refused ──▶ key 1 ── refused ──▶ … ── refused ──▶ all are refused: probes try each key in turn
///       ▲                    │                                       │
///       ├── an hour later ───┘                                       │
///       └────────────── APNs accepts a key: that key serves ─────────┘
///
/// A key that APNs refused is tried again after an hour, because a new key may not be known to all servers at once. A
/// single refusal can be a mistake of a server. When all keys are refused, probes therefore try each key in turn. The
/// first follows after two seconds, the others at doubling intervals of up to a minute.
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

    /// Key to sign with now.
    public enum Use: Sendable, Equatable {
        /// All pushes use the key.
        case serve(Int)
        /// A single push of the caller uses the key. `until`: time of the next probe, which ends this one. `isFirst`:
        /// true for the first probe since APNs accepted a key.
        case probe(Int, until: UInt64, isFirst: Bool)
        /// No push is sent, because APNs has refused all keys. `until`: time of the next probe.
        case wait(until: UInt64)
    }

    /// Nanoseconds after which a refused key is tried again while another key serves.
    public static let retryAfter: UInt64 = 3_600_000_000_000
    /// Nanoseconds from the refusal of the last key to the first probe.
    public static let firstPause: UInt64 = 2_000_000_000
    /// Most nanoseconds from a probe to the next.
    public static let longestPause: UInt64 = 60_000_000_000

    private struct Probing: Sendable, Equatable {
        /// Number of probes so far.
        var count: UInt64 = 0
        /// Time of the next probe.
        var due: UInt64
    }

    /// Index of the key in use; while all are refused, that of the last probe.
    public private(set) var current = 0
    /// Times of the keys' last refusals; nil for a key that was not refused, or that was accepted or tried again
    /// since.
    private var refusedAt: [UInt64?]
    /// State of the probes; nil while a key serves.
    private var probing: Probing?

    /// - Parameter count: number of keys, at least one, in order of preference.
    public init(count: Int) {
        refusedAt = Array(repeating: nil, count: max(1, count))
    }

    /// Whether APNs has refused all keys, and accepted none since.
    public var isExhausted: Bool { probing != nil }

    /// Returns whether APNs refused a key when it was last used.
    public func isRefused(_ key: Int) -> Bool { refusedAt[key] != nil }

    /// Returns the key to sign with. A probe is due for the first caller alone, whose push decides about the key.
    ///
    /// Until the first probe the last key stays in use. Answers to requests under way may show that a refusal was a
    /// mistake.
    public mutating func use(at now: UInt64) -> Use {
        guard var probing else {
            review(at: now)
            return .serve(current)
        }
        guard now >= probing.due else {
            return probing.count == 0 ? .serve(current) : .wait(until: probing.due)
        }
        probing.count += 1
        probing.due = now &+ min(Self.firstPause << min(probing.count, 16), Self.longestPause)
        self.probing = probing
        current = (current + 1) % refusedAt.count
        return .probe(current, until: probing.due, isFirst: probing.count == 1)
    }

    /// Records that APNs refused a key.
    public mutating func refused(_ key: Int, at now: UInt64) -> Refusal {
        guard probing == nil else {
            refusedAt[key] = now
            return .exhausted
        }
        guard key == current else { return .known }
        refusedAt[key] = now
        guard let next = refusedAt.indices.first(where: { isUsable($0, at: now) }) else {
            probing = Probing(due: now &+ Self.firstPause)
            return .exhausted
        }
        current = next
        return .replaced(by: next)
    }

    /// Records that APNs accepted a key. Returns the number of probes that were sent when this ends the refusal of all
    /// keys; nil otherwise.
    public mutating func accepted(_ key: Int) -> UInt64? {
        guard let probing else { return nil }
        self.probing = nil
        refusedAt[key] = nil
        current = key
        return probing.count
    }

    /// Time before which ``use(at:)`` certainly returns the key in use; 0 while probes decide.
    public var nextReview: UInt64 {
        if let probing { return probing.count == 0 ? probing.due : 0 }
        return (0..<current).map { refusedAt[$0].map { $0 &+ Self.retryAfter } ?? 0 }.min() ?? .max
    }

    /// Uses the preferred key again whose time has come.
    private mutating func review(at now: UInt64) {
        guard let key = (0..<current).first(where: { isUsable($0, at: now) }) else { return }
        refusedAt[key] = nil
        current = key
    }

    private func isUsable(_ key: Int, at now: UInt64) -> Bool {
        guard let time = refusedAt[key] else { return true }
        return now >= time &+ Self.retryAfter
    }
}
