import EventLoop
import Synchronization

/// Provider tokens that were accepted from any connection, by key, for the ways of counting that look beyond a
/// connection. Pure: times are arguments. Bounded in keys, and in tokens of a key.
struct TokenUpdates {
    private struct Accepted {
        var bytes: [UInt8]
        var issuedAt: Int64
        /// Time of acceptance, in nanoseconds of the monotonic clock.
        var acceptedAt: UInt64
    }

    private struct Key: Hashable {
        var keyID: String
        var teamID: String
    }

    private var keys: [Key: [Accepted]] = [:]
    private static let remembered = 64
    private static let mostKeys = 10_000

    /// Decides about a token that is new on its connection. Returns false if the key's tokens change too often.
    ///
    /// - Parameters:
    ///   - interval: shortest time between two tokens of a key, in nanoseconds; whole seconds by issue time.
    ///   - now: nanoseconds of the monotonic clock.
    mutating func admit(
        _ token: VerifiedToken, _ bytes: UnsafeRawBufferPointer,
        counting: SimulatorOptions.TokenUpdateCounting, interval: UInt64, now: UInt64
    ) -> Bool {
        let key = Key(keyID: token.keyID, teamID: token.teamID)
        var accepted = keys[key] ?? []
        switch counting {
        case .connection: return true
        case .key:
            if accepted.contains(where: { entry in entry.bytes.withUnsafeBytes { $0.equals(bytes) } }) {
                return true
            }
            // The loops read their clocks apart, so that the later token may be a little younger.
            if let last = accepted.last, now < last.acceptedAt || now - last.acceptedAt < interval {
                return interval == 0
            }
        case .issueTime:
            // Tokens that differ in their signatures alone are the same.
            if accepted.contains(where: { $0.issuedAt == token.issuedAt }) { return true }
            let seconds = interval / 1_000_000_000
            let isTooClose = accepted.contains { ($0.issuedAt - token.issuedAt).magnitude < seconds }
            if isTooClose { return false }
        }
        if accepted.count == Self.remembered { accepted.removeFirst() }
        accepted.append(Accepted(bytes: Array(bytes), issuedAt: token.issuedAt, acceptedAt: now))
        // So many keys are made up, which only a simulator without known keys accepts.
        if keys.count >= Self.mostKeys, keys[key] == nil { keys.removeAll() }
        keys[key] = accepted
        return true
    }
}

/// Owner of ``TokenUpdates``, which all shards share.
final class TokenUpdateRegistry: Sendable {
    private let updates = Mutex(TokenUpdates())
    private let counting: SimulatorOptions.TokenUpdateCounting
    private let interval: UInt64

    init(_ options: SimulatorOptions) {
        counting = options.tokenUpdateCounting
        interval = options.tokenUpdateInterval.wholeNanoseconds
    }

    /// Whether the connection counts by itself.
    var isByConnection: Bool { counting == .connection }

    func admit(_ token: VerifiedToken, _ bytes: UnsafeRawBufferPointer, now: UInt64) -> Bool {
        updates.withLock {
            $0.admit(token, bytes, counting: counting, interval: interval, now: now)
        }
    }
}
