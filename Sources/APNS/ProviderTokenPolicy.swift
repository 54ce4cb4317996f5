/// Readings of two clocks. The wall clock, which can step, dates tokens. The monotonic clock, which can't step,
/// measures how often tokens are renewed.
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

/// Decides when a provider token is renewed. Pure: the owner reports events with their times, and the policy answers.
///
/// APNs refuses tokens dated more than an hour ago, and renewals more often than every 20 minutes. See APNs:
/// "Establishing a token-based connection to APNs". The decision depends on the token's age:
///
///     age      0 ───────────── 20 min ──────────── 50 min ──── 55 min ──── 60 min
///              keep in           renew if refused    renew       renew      dead
///              any case          or the clock          │         also after
///                                stepped               │         "too many updates"
///
/// The clock stepped when the token's date is in the future by more than the tolerance. The clock also stepped when the
/// date is older than the token's age by the monotonic clock.
public struct ProviderTokenPolicy: Sendable, Equatable {
    /// Settings of the policy, in seconds each.
    public struct Settings: Sendable, Equatable {
        /// Age at which a token is renewed.
        public var refreshAfter: Int64 = 50 * 60
        /// Shortest time between two renewals.
        public var minimumInterval: Int64 = 20 * 60
        /// Latest age of renewal, also when APNs complained about too many updates.
        public var latestRefresh: Int64 = 55 * 60
        /// Largest distance of the token's date into the future after the clock went back.
        public var futureTolerance: Int64 = 5 * 60
        /// Time between a failed signing and its retry.
        public var failureRetry: Int64 = 30

        public init() {}
    }

    /// Decision about the provider token to use now.
    public enum Decision: Sendable, Equatable {
        /// Sign a token dated now, then report ``minted(at:)`` or ``mintFailed(at:)``.
        case mint
        /// Continue with the present token.
        case keep
    }

    /// Result when APNs refuses a token as expired.
    public enum Refusal: Sendable, Equatable {
        /// The next decision is to mint.
        case renew
        /// The token is too young to be renewed; it may be renewed after so many seconds. A token this young can't have
        /// expired. The clock is wrong, here or at Apple, and an operator should know.
        case tooYoung(seconds: Int64)
    }

    /// Time during which no decision is needed unless an event happens. It lasts until `quietUntil`, and then until
    /// `monotonicDeadline` while the wall clock is inside `wall`.
    public struct Validity: Sendable, Equatable {
        /// Monotonic time in seconds before which the token stays, whatever the wall clock shows.
        public var quietUntil: Int64
        /// Monotonic time in seconds from which on a renewal is due.
        public var monotonicDeadline: Int64
        /// Wall-clock times in seconds since the epoch, outside of which a renewal is due.
        public var wall: Range<Int64>

        /// Whether the token is valid without asking the policy.
        public func covers(_ now: ClockReading) -> Bool {
            if now.monotonicSeconds < quietUntil { return true }
            return now.monotonicSeconds < monotonicDeadline && wall.contains(now.wallSeconds)
        }
    }

    private struct Held: Sendable, Equatable {
        var issuedAt: Int64
        var mintedAt: Int64
        var isRefused = false
        /// Monotonic time in seconds before which no renewal happens.
        var notBefore: Int64
    }

    public let settings: Settings
    private var held: Held?
    /// Monotonic time in seconds of the next signing attempt; set while signing fails.
    private var nextTry: Int64?

    public init(_ settings: Settings = Settings()) {
        self.settings = settings
    }

    /// Returns whether a token has to be signed now. While signing fails, the result is `keep` until the next retry.
    public func decide(at now: ClockReading) -> Decision {
        if let nextTry, now.monotonicSeconds < nextTry { return .keep }
        guard held != nil else { return .mint }
        return validity.covers(now) ? .keep : .mint
    }

    /// Records that a token dated `now.wallSeconds` was signed.
    public mutating func minted(at now: ClockReading) {
        held = Held(
            issuedAt: now.wallSeconds, mintedAt: now.monotonicSeconds,
            notBefore: now.monotonicSeconds &+ settings.minimumInterval)
        nextTry = nil
    }

    /// Records that signing failed; an old token stays in use.
    public mutating func mintFailed(at now: ClockReading) {
        nextTry = now.monotonicSeconds &+ settings.failureRetry
    }

    /// Records that APNs answered ExpiredProviderToken to the present token.
    public mutating func refusedAsExpired(at now: ClockReading) -> Refusal {
        guard var current = held else { return .renew }
        current.isRefused = true
        held = current
        let wait = current.notBefore - now.monotonicSeconds
        return wait > 0 ? .tooYoung(seconds: wait) : .renew
    }

    /// Records that APNs answered TooManyProviderTokenUpdates. Keeps the token for another minimum interval, but at
    /// most until its latest refresh.
    public mutating func tooManyUpdates(at now: ClockReading) {
        guard var current = held else { return }
        let rest = min(
            now.monotonicSeconds &+ settings.minimumInterval, current.mintedAt &+ settings.latestRefresh)
        current.notBefore = max(current.notBefore, rest)
        held = current
    }

    /// Time during which the present token needs no decision.
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
