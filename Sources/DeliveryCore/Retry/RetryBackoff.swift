import SluiceModel
import StreamScheduling

/// The retry policy of one notification (classes: APNs "Handling notification responses").
///
/// | failure                      | decision                                                        |
/// |------------------------------|-----------------------------------------------------------------|
/// | token, job                   | give up: rejected                                               |
/// | not processed                | at once, uncounted; after a run of them back-off, uncounted     |
/// | unknown, duplicates allowed  | at once, then back-off                                          |
/// | unknown, duplicates avoided  | give up: unknown outcome                                        |
/// | authentication               | at once with a new provider token, then back-off                |
/// | connection                   | at once on another connection, then back-off                    |
/// | later                        | back-off, `Retry-After` honoured                                |
/// | configuration                | with the topic's circuit: only an operator can help             |
///
/// A push with expiration 0 has one attempt. All failures but those of the first two rows end the push: unknown
/// outcome, or attempts exhausted.
///
/// Every retry is bounded by the expiration. Every counted retry is bounded by the maximum of attempts, if there is
/// one.
///
/// A value without state: the notification's owner counts the attempts.
public struct RetryBackoff: Sendable, Equatable {
    /// Back-off for answers that ask for a later retry.
    public var later: ExponentialBackoff
    /// Back-off for answers that blame the credential or the topic.
    public var configuration: ExponentialBackoff
    /// Maximum of attempts that APNs answered or may have seen; 0: no maximum.
    public var maximumAttempts: UInt32
    /// Counted failures of a connection, a provider token or an unknown outcome that are retried without waiting.
    public var attemptsAtOnce: UInt32
    /// Refusals in a row that are retried without waiting. Further refusals back off, to spare a server that refuses
    /// everything.
    public var refusalsAtOnce: UInt32
    /// Longest `Retry-After`, in milliseconds. A longer `Retry-After` is shortened to this.
    public var retryAfterLimitMilliseconds: Int64
    /// Milliseconds from the first try within which a push with expiration 0 (now or never) may be retried. Such a push
    /// is retried only if APNs didn't process it.
    public var onceMilliseconds: Int64

    public init(
        later: ExponentialBackoff = .later, configuration: ExponentialBackoff = .configuration,
        maximumAttempts: UInt32 = 0, attemptsAtOnce: UInt32 = 2, refusalsAtOnce: UInt32 = 4,
        retryAfterLimitMilliseconds: Int64 = 60_000, onceMilliseconds: Int64 = 30_000
    ) {
        self.later = later
        self.configuration = configuration
        self.maximumAttempts = maximumAttempts
        self.attemptsAtOnce = attemptsAtOnce
        self.refusalsAtOnce = refusalsAtOnce
        self.retryAfterLimitMilliseconds = retryAfterLimitMilliseconds
        self.onceMilliseconds = onceMilliseconds
    }

    /// Returns the time from which on a push isn't retried, in milliseconds; nil: only the attempts are a limit. The
    /// time is on the wall clock, like both arguments.
    public func deadlineMilliseconds(
        _ expiration: Expiration, firstAttemptMilliseconds: Int64
    ) -> Int64? {
        switch expiration {
        case .unspecified: nil
        case .at(let seconds): Int64(seconds) * 1000
        case .once: firstAttemptMilliseconds &+ onceMilliseconds
        }
    }

    /// Decides about one failed attempt.
    ///
    /// - Parameters:
    ///   - failure: how the attempt failed; never `.answered(.accepted)` (which is given up as rejected).
    ///   - attempt: counted attempts so far, from 1; this one is included if it counts.
    ///   - refusals: attempts in a row that weren't processed, this one included.
    ///   - isOnce: the push has expiration 0.
    ///   - retryAfterMilliseconds: the answer's `Retry-After`, where it had one.
    ///   - expirationMilliseconds: nothing is sent from this moment on; nil = never expires.
    ///   - nowMilliseconds: on the same clock as the expiration (wall clock, since 1970).
    ///   - generator: the source of jitter.
    public func decide(
        _ failure: AttemptFailure, attempt: UInt32, refusals: UInt32 = 0, isOnce: Bool = false,
        retryAfterMilliseconds: Int64? = nil,
        expirationMilliseconds: Int64?, nowMilliseconds: Int64, using generator: inout SeededGenerator
    ) -> RetryDecision {
        var plan: Plan
        switch failure {
        case .answered(.token), .answered(.job), .answered(.accepted):
            return .giveUp(.rejected)
        case .unknownOutcome(.avoid):
            return .giveUp(.unknownOutcome)
        case .unknownOutcome(.allow) where isOnce:
            return .giveUp(.unknownOutcome)
        case .answered where isOnce:
            return .giveUp(.attemptsExhausted)
        case .notProcessed:
            plan = Plan(backoff: later, step: refusals, atOnce: refusalsAtOnce, counted: false)
        case .unknownOutcome(.allow):
            plan = Plan(backoff: later, step: attempt, atOnce: attemptsAtOnce)
        case .answered(.authentication):
            plan = Plan(backoff: later, step: attempt, atOnce: attemptsAtOnce)
        case .answered(.connection):
            plan = Plan(backoff: later, step: attempt, atOnce: attemptsAtOnce)
        case .answered(.later):
            plan = Plan(backoff: later, step: attempt, atOnce: 0)
        case .answered(.configuration):
            plan = Plan(backoff: configuration, step: attempt, atOnce: 0)
        }
        if let asked = retryAfterMilliseconds, asked > 0 {
            plan.atLeast = min(asked, retryAfterLimitMilliseconds)
        }

        let remaining = Self.remaining(until: expirationMilliseconds, from: nowMilliseconds)
        guard remaining > 0 else { return .giveUp(.expired) }
        if plan.counted, maximumAttempts > 0, attempt >= maximumAttempts {
            return .giveUp(.attemptsExhausted)
        }
        if plan.step <= plan.atOnce, plan.atLeast == 0 { return .now }

        // The last moment to send is one millisecond before the expiration.
        let latest = remaining - 1
        guard latest > plan.atLeast else { return .giveUp(.expired) }
        let step = plan.step > plan.atOnce ? plan.step - plan.atOnce : 1
        let wait = plan.backoff.wait(attempt: step, limit: latest - plan.atLeast, using: &generator)
        return .after(milliseconds: plan.atLeast + wait)
    }

    private struct Plan {
        var backoff: ExponentialBackoff
        /// Number of this failure among failures of its kind, from 1.
        var step: UInt32
        var atOnce: UInt32
        var counted = true
        /// Least wait, as the server asked for, in milliseconds.
        var atLeast: Int64 = 0
    }

    private static func remaining(until expiration: Int64?, from now: Int64) -> Int64 {
        guard let expiration else { return .max }
        let (remaining, overflow) = expiration.subtractingReportingOverflow(now)
        return overflow ? (expiration > now ? .max : .min) : remaining
    }
}
