import CRdkafka

/// The steps of a transaction's life.
public enum TransactionStep: String, Sendable, Hashable {
    /// First step, once: gets the producer's identity from the transaction coordinator. Aborts the open transaction of
    /// an earlier producer with the same transactional identifier, and fences that producer.
    case initialize
    /// Starts a transaction: records can be produced from now on.
    case begin
    /// Adds consumer offsets to the open transaction.
    case sendOffsets
    /// Waits for all delivery reports, then makes records and offsets visible, all or none.
    case commit
    /// Discards records and offsets of the transaction.
    case abort
}

/// Failure of a step, sorted by the caller's next action (librdkafka's classes of transactional errors).
public enum TransactionFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// Nothing is decided yet: coordinator or broker can't be reached or is moving, or the time is over. Retry the same
    /// step after a pause, with the same arguments, and start no other step before. The step continues where it
    /// stopped. A commit that ended so may have happened; retrying the commit shows the result.
    case retriable(KafkaError)
    /// The open transaction is lost. Start `abort`. Then produce the records since `begin` again, or drop them, and
    /// send the offsets again. `KafkaError.isGroupMembershipLost` means that the group no longer has this member: drop
    /// its partitions rather than retry.
    case abortable(KafkaError)
    /// The producer has failed for good, most often because another producer took over its transactional identifier
    /// (`KafkaError.isFenced`). Close the producer. Transactions not known to be committed may or may not be. The
    /// worker must drop its state and, if it starts again, restore the state from Kafka.
    case fatal(KafkaError)
    /// The step does not fit the state: a mistake of the caller, such as `commit` without `begin`. Nothing has changed.
    case misuse(KafkaError)

    /// Kafka's error.
    public var error: KafkaError {
        switch self {
        case .retriable(let error), .abortable(let error), .fatal(let error), .misuse(let error): error
        }
    }

    /// Whether no other step can follow.
    var isFinal: Bool {
        switch self {
        case .retriable, .abortable: false
        case .fatal, .misuse: true
        }
    }

    public var description: String {
        switch self {
        case .retriable(let error): "\(error); the step can be retried"
        case .abortable(let error): "\(error); the transaction must be aborted"
        case .fatal(let error): "\(error); the producer can't be used any more"
        case .misuse(let error): "\(error)"
        }
    }

    /// - Parameter isClientFailed: Whether the client has raised a fatal error, whatever `error` is.
    init(_ error: KafkaError, isClientFailed: Bool = false) {
        if error.isFatal || isClientFailed {
            self = .fatal(error)
        } else if error.requiresAbort {
            self = .abortable(error)
        } else if error.isRetriable {
            self = .retriable(error)
        } else if Self.misuses.contains(where: { $0.rawValue == error.code }) {
            self = .misuse(error)
        } else {
            // librdkafka's advice for errors without a class ("Handling of other errors").
            self = .fatal(error)
        }
    }

    private static let misuses = [
        RD_KAFKA_RESP_ERR__STATE, RD_KAFKA_RESP_ERR__INVALID_ARG, RD_KAFKA_RESP_ERR__NOT_CONFIGURED,
    ]
}

extension KafkaError {
    /// Another producer with the same transactional identifier has taken over.
    public var isFenced: Bool {
        [
            RD_KAFKA_RESP_ERR__FENCED, RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
            RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        ].contains { $0.rawValue == code }
    }

    /// The group no longer has this member: its partitions belong, or soon will belong, to other members.
    public var isGroupMembershipLost: Bool {
        [
            RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
            RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID,
        ].contains { $0.rawValue == code }
    }
}

/// Result of a step.
public struct TransactionResult: Sendable, Equatable {
    public let step: TransactionStep
    /// Failure of the step; `nil`: the step succeeded.
    public let failure: TransactionFailure?

    public init(_ step: TransactionStep, _ failure: TransactionFailure? = nil) {
        self.step = step
        self.failure = failure
    }
}
