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

/// Decides when a provider token is renewed, and how it is dated. Pure: the owner reports events with their times, and
/// the policy answers.
///
/// APNs refuses tokens dated more than an hour ago, and renewals more often than every 20 minutes. See APNs:
/// "Establishing a token-based connection to APNs".
///
/// Tokens are dated in fixed steps of 30 minutes, which begin at a moment that follows from the key. All replicas with
/// the key therefore date their tokens alike and renew them at the same moment:
///
///     step     │◀──────── 30 min ────────▶│◀──────── 30 min ────────▶│
///     date     t₀                         t₁
///     replica  ───────── t₀ ──────────────│────────── t₁ ────────────│
///     started late        ├─ t₀ ──── 21 min ────┤──── t₁ ─────────────│
///
/// A replica that starts shortly before a step keeps its first token for 21 minutes, so at most until the token's age is
/// 51 minutes. A few steps later that replica changes with the others. The policy renews a token early when APNs refused
/// it or the clock stepped, but not within the 21 minutes.
///
/// The clock stepped when the token's date is in the future by more than the tolerance. The clock also stepped when the
/// date is older than the token's age by the monotonic clock.
public struct ProviderTokenPolicy: Sendable, Equatable {
    /// Settings of the policy, in seconds each.
    public struct Settings: Sendable, Equatable {
        /// Distance between the dates of successive tokens.
        public var step: Int64 = 30 * 60
        /// Shortest time between two renewals: 20 minutes, and one for requests that reach APNs late.
        public var minimumInterval: Int64 = 21 * 60
        /// Latest age of renewal, also when APNs complained about too many updates.
        public var latestRefresh: Int64 = 55 * 60
        /// Largest distance of the token's date into the future after the clock went back.
        public var futureTolerance: Int64 = 5 * 60
        /// Time between a failed signing and its retry.
        public var failureRetry: Int64 = 30
        /// Rest after the first TooManyProviderTokenUpdates; doubles each time, up to ``minimumInterval``.
        public var firstRest: Int64 = 60

        public init() {}
    }

    /// Decision about the provider token to use now.
    public enum Decision: Sendable, Equatable {
        /// Sign a token dated ``issueTime(at:)``, then report ``minted(at:)`` or ``mintFailed(at:)``.
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

    /// Rest of a key after APNs answered TooManyProviderTokenUpdates. Nothing is sent with the key meanwhile.
    public struct Rest: Sendable, Equatable {
        /// End of the rest, in seconds of the monotonic clock.
        public var until: Int64
        /// Whether the answer began the rest; false for further answers to requests sent before.
        public var isNew: Bool

        public init(until: Int64, isNew: Bool) {
            self.until = until
            self.isNew = isNew
        }
    }

    private struct Held: Sendable, Equatable {
        var issuedAt: Int64
        var mintedAt: Int64
        /// Age of the token in seconds when it was signed: 0 to a step.
        var ageAtMint: Int64
        var isRefused = false
        /// Monotonic time in seconds before which no renewal happens.
        var notBefore: Int64

        /// Returns the monotonic time in seconds at which the token has the age.
        func time(ofAge age: Int64) -> Int64 { mintedAt &+ age &- ageAtMint }
    }

    public let settings: Settings
    /// Begin of a step in seconds after a multiple of the step: 0 to less than a step.
    private let offset: Int64
    private var held: Held?
    /// Monotonic time in seconds of the next signing attempt; set while signing fails.
    private var nextTry: Int64?
    /// End of the last rest, in seconds of the monotonic clock; nil before the first rest.
    private var restUntil: Int64?
    /// Number of rests in a row.
    private var rests: Int64 = 0

    /// - Parameter key: a number that all replicas derive from the key alike; spreads the keys' renewals over the step.
    public init(_ settings: Settings = Settings(), key: UInt64 = 0) {
        self.settings = settings
        offset = Int64(key % UInt64(max(1, settings.step)))
    }

    /// Returns the date of a token that is signed now: the begin of the present step, in seconds since 1970.
    public func issueTime(at now: ClockReading) -> Int64 {
        let step = max(1, settings.step)
        let past = (now.wallSeconds &- offset) % step
        return now.wallSeconds &- (past < 0 ? past + step : past)
    }

    /// Returns whether a token has to be signed now. While signing fails, the result is `keep` until the next retry.
    public func decide(at now: ClockReading) -> Decision {
        if let nextTry, now.monotonicSeconds < nextTry { return .keep }
        guard held != nil else { return .mint }
        return validity.covers(now) ? .keep : .mint
    }

    /// Records that a token dated ``issueTime(at:)`` was signed.
    public mutating func minted(at now: ClockReading) {
        let issuedAt = issueTime(at: now)
        held = Held(
            issuedAt: issuedAt, mintedAt: now.monotonicSeconds, ageAtMint: now.wallSeconds &- issuedAt,
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
    /// most until its latest refresh. Returns the key's rest.
    public mutating func tooManyUpdates(at now: ClockReading) -> Rest {
        if var current = held {
            let rest = min(
                now.monotonicSeconds &+ settings.minimumInterval, current.time(ofAge: settings.latestRefresh))
            current.notBefore = max(current.notBefore, rest)
            held = current
        }
        if let restUntil {
            // Answers to requests that were sent before the rest began.
            if now.monotonicSeconds < restUntil { return Rest(until: restUntil, isNew: false) }
            if now.monotonicSeconds >= restUntil &+ settings.minimumInterval { rests = 0 }
        }
        let length = min(
            settings.firstRest << min(rests, 16), max(settings.firstRest, settings.minimumInterval))
        rests += 1
        let end = now.monotonicSeconds &+ length
        restUntil = end
        return Rest(until: end, isNew: true)
    }

    /// Time during which the present token needs no decision.
    public var validity: Validity {
        guard let held else { return Validity(quietUntil: .min, monotonicDeadline: .min, wall: 0..<0) }
        let quiet = nextTry.map { max($0, held.notBefore) } ?? held.notBefore
        let deadline = held.isRefused ? held.notBefore : held.time(ofAge: settings.step)
        let earliest = held.issuedAt &- settings.futureTolerance
        let latest = held.issuedAt &+ settings.step
        return Validity(
            quietUntil: quiet, monotonicDeadline: deadline,
            wall: min(earliest, latest)..<max(earliest, latest))
    }
}
