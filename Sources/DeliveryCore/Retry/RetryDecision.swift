import SluiceModel

/// Failure of an attempt to send one notification.
public enum AttemptFailure: Sendable, Equatable {
    /// APNs answered with a reason of this class.
    case answered(ReasonClass)
    /// APNs did not process the notification. The stream was refused or lies above GOAWAY's last stream (RFC 9113 §6.8,
    /// §8.7).
    case notProcessed
    /// The connection or the answer was lost with the stream open: the notification may have been delivered.
    case unknownOutcome(DuplicatePolicy)
}

/// Decision about a notification whose attempt failed.
public enum RetryDecision: Sendable, Equatable {
    /// Retry at once.
    case now
    /// Retry after so many milliseconds. The wait is a length of time, not a moment, so that it fits the monotonic
    /// clock. Expirations are on the wall clock.
    case after(milliseconds: Int64)
    /// Terminal.
    case giveUp(GiveUp)
}

/// Reason why a notification isn't retried.
public enum GiveUp: UInt8, Sendable, Equatable, CaseIterable {
    /// The answer is final for this token or this job. The outcome is `rejected`, with the answer's reason.
    case rejected
    /// The notification's expiration has passed, or will have passed before a retry may be made. The outcome is
    /// `expired`.
    case expired
    /// The maximum of attempts is used up, or the single attempt of a push with expiration 0. The outcome is
    /// `undeliverable`.
    case attemptsExhausted
    /// The notification may have been delivered, and must not be doubled or has a single attempt. The outcome is
    /// `undeliverable`.
    case unknownOutcome

    /// Kind of the terminal outcome.
    public var outcome: OutcomeKind {
        switch self {
        case .rejected: .rejected
        case .expired: .expired
        case .attemptsExhausted, .unknownOutcome: .undeliverable
        }
    }

    /// Cause for which Sluice itself ended the notification; nil where APNs or the expiration ended it.
    public var cause: OutcomeCause? {
        switch self {
        case .rejected, .expired: nil
        case .attemptsExhausted: .attemptsExhausted
        case .unknownOutcome: .answerLost
        }
    }
}
