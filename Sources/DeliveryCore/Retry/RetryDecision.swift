import SluiceModel

/// How an attempt to send one notification failed.
public enum AttemptFailure: Sendable, Equatable {
    /// APNs answered with a reason of this class.
    case answered(ReasonClass)
    /// APNs did not look at it: the stream was refused or lies above GOAWAY's last stream (RFC 9113 §6.8, §8.7).
    case notProcessed
    /// The connection or the answer was lost with the stream open: it may have been delivered.
    case unknownOutcome(DuplicatePolicy)
}

/// What becomes of a notification whose attempt failed.
public enum RetryDecision: Sendable, Equatable {
    /// Again at once.
    case now
    /// Again after so many milliseconds. A length of time, not a moment, so that it can be put on the
    /// monotonic clock while expirations are on the wall clock.
    case after(milliseconds: Int64)
    /// Terminal.
    case giveUp(GiveUp)
}

/// Why a notification isn't tried again.
public enum GiveUp: UInt8, Sendable, Equatable, CaseIterable {
    /// The answer is final for this token or this job; outcome `rejected`, the reason is the answer's.
    case rejected
    /// Its expiration has passed, or will have before a retry may be made; outcome `expired`.
    case expired
    /// The maximum of attempts is used up, or the one attempt of a push with expiration 0; outcome `undeliverable`.
    case attemptsExhausted
    /// It may have been delivered, and must not be doubled or has one attempt only; outcome `undeliverable`.
    case unknownOutcome

    /// The kind of the terminal outcome.
    public var outcome: OutcomeKind {
        switch self {
        case .rejected: .rejected
        case .expired: .expired
        case .attemptsExhausted, .unknownOutcome: .undeliverable
        }
    }

    /// Why Sluice itself ended it; nil where APNs or the expiration did.
    public var cause: OutcomeCause? {
        switch self {
        case .rejected, .expired: nil
        case .attemptsExhausted: .attemptsExhausted
        case .unknownOutcome: .answerLost
        }
    }
}
