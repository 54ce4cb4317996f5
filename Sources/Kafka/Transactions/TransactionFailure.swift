import CRdkafka

/// The steps of a transaction's life.
public enum TransactionStep: String, Sendable, Hashable {
    /// Once, before all else: gets the producer's identity from the transaction coordinator, ends what an earlier
    /// producer of the same transactional identifier left open, and locks that one out.
    case initialize
    /// Records can be produced from now on.
    case begin
    /// Adds consumer offsets to the open transaction.
    case sendOffsets
    /// Waits for all delivery reports, then makes records and offsets visible, all or none.
    case commit
    /// Takes records and offsets back.
    case abort
}

/// Why a step did not succeed, sorted by what the caller has to do (librdkafka's classes of transactional errors).
public enum TransactionFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// Nothing is decided yet: coordinator or broker can't be reached, is moving, or the time is over. Start the same step
    /// again after a pause, with the same arguments, and nothing else until then: it goes on where it was. It is not
    /// known whether a commit that ended so has taken place; repeating it tells.
    case retriable(KafkaError)
    /// The open transaction is lost. Start `abort`; after it, everything that was produced since `begin` has to be
    /// produced again, or dropped, and offsets sent again. `KafkaError.isGroupMembershipLost` means that the group has
    /// moved on without this member: drop its partitions rather than try again.
    case abortable(KafkaError)
    /// The producer is at its end, most often because another one with the same transactional identifier has taken over
    /// (`KafkaError.isFenced`). Close it. What was not known to be committed may or may not be: the worker must drop its
    /// state and, if it starts again, restore it from Kafka.
    case fatal(KafkaError)
    /// The step does not fit the state: a mistake of the caller, such as `commit` without `begin`. Nothing has changed.
    case misuse(KafkaError)

    public var error: KafkaError {
        switch self {
        case .retriable(let error), .abortable(let error), .fatal(let error), .misuse(let error): error
        }
    }

    /// No other step can follow.
    var isFinal: Bool {
        switch self {
        case .retriable, .abortable: false
        case .fatal, .misuse: true
        }
    }

    public var description: String {
        switch self {
        case .retriable(let error): "\(error), can be tried again"
        case .abortable(let error): "\(error), the transaction must be aborted"
        case .fatal(let error): "\(error), for good"
        case .misuse(let error): "\(error)"
        }
    }

    /// - Parameter isClientFailed: whether the client has raised a fatal error, whatever this one says.
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

    /// The consumer group has moved on without this member: its partitions are, or soon will be, someone else's.
    public var isGroupMembershipLost: Bool {
        [
            RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
            RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID,
        ].contains { $0.rawValue == code }
    }
}

/// How a step ended.
public struct TransactionResult: Sendable, Equatable {
    public let step: TransactionStep
    /// `nil`: it succeeded.
    public let failure: TransactionFailure?

    public init(_ step: TransactionStep, _ failure: TransactionFailure? = nil) {
        self.step = step
        self.failure = failure
    }
}
