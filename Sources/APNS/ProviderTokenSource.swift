import EventLoop
import SluiceModel
import Synchronization

/// The provider tokens of one signing key and team, shared by all connections and event loops. APNs wants one token per
/// key everywhere, renewed every 20 to 60 minutes. Other processes with the key have the same tokens at the same time,
/// because dates and signatures follow from the key and the clock.
///
/// Readers keep their ``ProviderToken`` and call ``renewed(since:at:)`` once per loop turn or before a batch. The call
/// costs at most five atomic loads and no lock, unless a decision is due. The lock is held while a token is signed
/// (less than a millisecond, once in 30 minutes).
public final class ProviderTokenSource: Sendable {
    private struct State {
        var policy: ProviderTokenPolicy
        var token: ProviderToken?
        var failure: SigningKeyError?
    }

    /// Result of ExpiredProviderToken.
    public enum Expiry: Sendable, Equatable {
        /// A newer token exists, or the next ``renewed(since:at:)`` signs a newer token.
        case renewed
        /// The token is too young to have expired: compare the clocks. It may be renewed after so many seconds.
        case tooYoung(seconds: Int64)
    }

    public let credential: TokenCredential

    private let state: Mutex<State>
    // Written under the lock, read without the lock. A reader may see old and new values together. At worst it takes
    // the lock needlessly, or checks again at its next turn.
    private let currentGeneration = Atomic<UInt64>(0)
    private let quietUntil = Atomic<Int64>(.min)
    private let monotonicDeadline = Atomic<Int64>(.min)
    private let wallFrom = Atomic<Int64>(0)
    private let wallUntil = Atomic<Int64>(0)
    /// End of the rest after TooManyProviderTokenUpdates, in seconds of the monotonic clock; `.min` before the first.
    private let restUntil = Atomic<Int64>(.min)

    /// Creates the source without a token. The first call of ``current(at:)`` signs one. Any thread may use the source.
    public init(_ credential: TokenCredential, settings: ProviderTokenPolicy.Settings = .init()) {
        self.credential = credential
        state = Mutex(
            State(
                policy: ProviderTokenPolicy(
                    settings, key: Self.number(of: credential.keyID, credential.teamID))))
    }

    /// Generation of the newest token; 0 before the first token.
    public var generation: UInt64 { currentGeneration.load(ordering: .acquiring) }

    /// Returns the token to use now; signs a new token if a renewal is due. Takes the lock.
    ///
    /// Throws only when no token exists at all. If a renewal fails, the old token stays and ``failure`` has the error.
    public func current(at now: ClockReading) throws(SigningKeyError) -> ProviderToken {
        let result = state.withLock { state -> Result<ProviderToken, SigningKeyError> in
            if state.policy.decide(at: now) == .mint { mint(&state, at: now) }
            if let token = state.token { return .success(token) }
            return .failure(state.failure ?? SigningKeyError(.signingFailed("no token yet")))
        }
        return try result.get()
    }

    /// Returns a token newer than `generation`, or nil when that token is still the one to use. Nil usually takes no
    /// lock.
    public func renewed(
        since generation: UInt64, at now: ClockReading
    ) throws(SigningKeyError) -> ProviderToken? {
        if generation == self.generation, generation != 0, isQuiet(at: now) { return nil }
        let token = try current(at: now)
        return token.generation == generation ? nil : token
    }

    /// Records that APNs answered ExpiredProviderToken to a request with the token of `generation`. Send the request
    /// again with the token of ``renewed(since:at:)``. A connection that goes on refusing a fresh token needs a
    /// replacement.
    public func expired(generation: UInt64, at now: ClockReading) -> Expiry {
        state.withLock { state in
            guard state.token?.generation == generation else { return .renewed }
            let refusal = state.policy.refusedAsExpired(at: now)
            publish(state)
            return switch refusal {
            case .renew: .renewed
            case .tooYoung(let seconds): .tooYoung(seconds: seconds)
            }
        }
    }

    /// Records that APNs answered TooManyProviderTokenUpdates. The token stays, and everything that sends with the key
    /// rests. The connection needs a replacement.
    public func tooManyUpdates(at now: ClockReading) -> ProviderTokenPolicy.Rest {
        state.withLock { state in
            let rest = state.policy.tooManyUpdates(at: now)
            publish(state)
            restUntil.store(rest.until, ordering: .relaxed)
            return rest
        }
    }

    /// End of the key's rest in seconds of the monotonic clock (`CLOCK_BOOTTIME`); nil without a rest, or when the rest
    /// is over. Takes no lock.
    public func rest(at now: ClockReading) -> Int64? {
        let until = restUntil.load(ordering: .relaxed)
        return now.monotonicSeconds < until ? until : nil
    }

    /// Returns a number that follows from the names of key and team, equal in all processes.
    static func number(of keyID: KeyID, _ teamID: TeamID) -> UInt64 {
        Array("\(teamID).\(keyID)".utf8).withUnsafeBytes { IdentityHasher(key0: 0, key1: 0).bytes($0) }
    }

    /// Error of the last attempt to sign; nil when the attempt succeeded.
    public var failure: SigningKeyError? { state.withLock { $0.failure } }

    private func isQuiet(at now: ClockReading) -> Bool {
        if now.monotonicSeconds < quietUntil.load(ordering: .relaxed) { return true }
        return now.monotonicSeconds < monotonicDeadline.load(ordering: .relaxed)
            && now.wallSeconds >= wallFrom.load(ordering: .relaxed)
            && now.wallSeconds < wallUntil.load(ordering: .relaxed)
    }

    private func mint(_ state: inout State, at now: ClockReading) {
        let generation = (state.token?.generation ?? 0) + 1
        do throws(SigningKeyError) {
            state.token = try ProviderToken(
                credential: credential, issuedAtSeconds: state.policy.issueTime(at: now),
                generation: generation)
            state.failure = nil
            state.policy.minted(at: now)
        } catch {
            state.failure = error
            state.policy.mintFailed(at: now)
        }
        publish(state)
    }

    private func publish(_ state: State) {
        let validity = state.policy.validity
        quietUntil.store(validity.quietUntil, ordering: .relaxed)
        monotonicDeadline.store(validity.monotonicDeadline, ordering: .relaxed)
        wallFrom.store(validity.wall.lowerBound, ordering: .relaxed)
        wallUntil.store(validity.wall.upperBound, ordering: .relaxed)
        currentGeneration.store(state.token?.generation ?? 0, ordering: .releasing)
    }
}

extension ClockReading {
    /// Reads both clocks of this machine.
    public static func now() -> ClockReading {
        ClockReading(
            wallSeconds: wallClockMilliseconds() / 1000,
            monotonicSeconds: Int64(MonotonicTime.read().nanoseconds / 1_000_000_000))
    }
}
