import SluiceModel

/// Decides whether a refused request of channel management is sent again, and when. Pure.
struct ChannelRetry {
    enum Decision: Equatable {
        case wait(Duration)
        /// The request has failed; `cause` is a reason to give up beside the answer, for people.
        case giveUp(cause: String?)
    }

    /// Highest number of attempts.
    static let maximumAttempts = 5
    /// Longest wait that the server may ask for.
    static let longestWait = 60

    /// Whether a request that may have been processed can be sent again.
    let isRepeatable: Bool
    private var attempts = 0

    init(isRepeatable: Bool) {
        self.isRepeatable = isRepeatable
    }

    /// Decides after an answer of 400 or more. Waits double from a second on, unless the server asks for more.
    mutating func decide(_ status: Int, _ reason: Reason, retryAfterSeconds: Int?) -> Decision {
        attempts += 1
        guard isTemporary(status, reason) else { return .giveUp(cause: nil) }
        guard attempts < Self.maximumAttempts else {
            return .giveUp(cause: "\(attempts) attempts have failed")
        }
        let seconds = max(1 << (attempts - 1), retryAfterSeconds ?? 0)
        guard seconds <= Self.longestWait else {
            return .giveUp(cause: "APNs asks for a pause of \(seconds) s")
        }
        return .wait(.seconds(seconds))
    }

    private func isTemporary(_ status: Int, _ reason: Reason) -> Bool {
        switch reason {
        // A new provider token would only lengthen the refusal, which lasts for up to 20 minutes.
        case .tooManyProviderTokenUpdates: false
        case .tooManyRequests, .serviceUnavailable, .shutdown: true
        case .internalServerError: isRepeatable
        default: status == 429 || status == 503 || (status >= 500 && isRepeatable)
        }
    }
}
