/// What two clocks say. Tokens are dated by the wall clock, which can step; how often they are renewed is measured
/// by a monotonic one, which can't.
public struct ClockReading: Sendable, Equatable {
    /// Seconds since 1970.
    public var wallSeconds: Int64
    /// Seconds of a clock that never steps and counts while the machine sleeps.
    public var monotonicSeconds: Int64

    public init(wallSeconds: Int64, monotonicSeconds: Int64) {
        self.wallSeconds = wallSeconds
        self.monotonicSeconds = monotonicSeconds
    }
}

/// When a provider token is renewed. Pure: it is told what happened and when, and answers what to do.
///
/// APNs refuses tokens dated more than an hour ago, and renewals more often than every 20 minutes
/// (APNs: "Establishing a token-based connection to APNs"). So:
///
///     age      0 ───────────── 20 min ──────────── 50 min ──── 55 min ──── 60 min
///              keep, whatever    renew if refused    renew       renew      dead
///              anyone says       or the clock          │         also after
///                                stepped               │         "too many updates"
///
/// The clock stepped when the token's date is in the future by more than the tolerance, or older than its
/// age by the monotonic clock would have it.
public struct ProviderTokenPolicy: Sendable, Equatable {
    /// Seconds each.
    public struct Settings: Sendable, Equatable {
        /// Age at which a token is renewed.
        public var refreshAfter: Int64 = 50 * 60
        /// Never sooner than this after the last renewal.
        public var minimumInterval: Int64 = 20 * 60
        /// Renewed at this age at the latest, also when APNs complained about too many updates.
        public var latestRefresh: Int64 = 55 * 60
        /// How far the token's date may lie in the future after the clock went back.
        public var futureTolerance: Int64 = 5 * 60
        /// After signing failed, until it is tried again.
        public var failureRetry: Int64 = 30

        public init() {}
    }

    public enum Decision: Sendable, Equatable {
        /// Sign a token dated now, then say ``minted(at:)`` or ``mintFailed(at:)``.
        case mint
        /// Go on with the token that there is.
        case keep
    }

    /// What follows from APNs refusing a token as expired.
    public enum Refusal: Sendable, Equatable {
        /// The next decision is to mint.
        case renew
        /// The token is too young to be renewed; it may be in so many seconds. A token this young can't have expired:
        /// the clock is wrong, here or there, and an operator should know.
        case tooYoung(seconds: Int64)
    }

    /// While nothing happens there is nothing to decide: until `quietUntil`, and then for as long as it is before
    /// `monotonicDeadline` with the wall clock inside `wall`.
    public struct Validity: Sendable, Equatable {
        public var quietUntil: Int64
        public var monotonicDeadline: Int64
        public var wall: Range<Int64>

        /// Whether the token holds without asking the policy.
        public func covers(_ now: ClockReading) -> Bool {
            if now.monotonicSeconds < quietUntil { return true }
            return now.monotonicSeconds < monotonicDeadline && wall.contains(now.wallSeconds)
        }
    }

    private struct Held: Sendable, Equatable {
        var issuedAt: Int64
        var mintedAt: Int64
        var isRefused = false
        /// Monotonic; no renewal before it.
        var notBefore: Int64
    }

    public let settings: Settings
    private var held: Held?
    /// Monotonic; set while signing fails.
    private var nextTry: Int64?

    public init(_ settings: Settings = Settings()) {
        self.settings = settings
    }

    public func decide(at now: ClockReading) -> Decision {
        if let nextTry, now.monotonicSeconds < nextTry { return .keep }
        guard held != nil else { return .mint }
        return validity.covers(now) ? .keep : .mint
    }

    /// A token dated `now.wallSeconds` was signed.
    public mutating func minted(at now: ClockReading) {
        held = Held(
            issuedAt: now.wallSeconds, mintedAt: now.monotonicSeconds,
            notBefore: now.monotonicSeconds &+ settings.minimumInterval)
        nextTry = nil
    }

    /// Signing failed; the old token, if there is one, stays in use.
    public mutating func mintFailed(at now: ClockReading) {
        nextTry = now.monotonicSeconds &+ settings.failureRetry
    }

    /// APNs answered ExpiredProviderToken to the token that is held.
    public mutating func refusedAsExpired(at now: ClockReading) -> Refusal {
        guard var current = held else { return .renew }
        current.isRefused = true
        held = current
        let wait = current.notBefore - now.monotonicSeconds
        return wait > 0 ? .tooYoung(seconds: wait) : .renew
    }

    /// APNs answered TooManyProviderTokenUpdates: keep the token for another minimum interval, but not until it dies.
    public mutating func tooManyUpdates(at now: ClockReading) {
        guard var current = held else { return }
        let rest = min(
            now.monotonicSeconds &+ settings.minimumInterval, current.mintedAt &+ settings.latestRefresh)
        current.notBefore = max(current.notBefore, rest)
        held = current
    }

    /// How long the token that is held needs no decision.
    public var validity: Validity {
        guard let held else { return Validity(quietUntil: .min, monotonicDeadline: .min, wall: 0..<0) }
        let quiet = nextTry.map { max($0, held.notBefore) } ?? held.notBefore
        let deadline = held.isRefused ? held.notBefore : held.mintedAt &+ settings.refreshAfter
        let earliest = held.issuedAt &- settings.futureTolerance
        let latest = held.issuedAt &+ settings.refreshAfter
        return Validity(
            quietUntil: quiet, monotonicDeadline: deadline,
            wall: min(earliest, latest)..<max(earliest, latest))
    }
}
