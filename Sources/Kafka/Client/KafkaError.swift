import CRdkafka

/// An error of a Kafka client, an answer of a broker, or a property that is not acceptable.
///
/// `message` contains the failed action and its place (topic, partition, property) and, where this module knows it, the
/// remedy. It never contains a record's key or value, nor a password of the configuration.
public struct KafkaError: Error, Sendable, Equatable, CustomStringConvertible {
    /// librdkafka's code: positive from the broker (Kafka protocol, error codes), negative from the client.
    public let code: Int32
    /// Name of the code, for example `UNKNOWN_TOPIC_OR_PART` or `_TRANSPORT`. An underscore marks the client's own
    /// codes.
    public let name: String
    /// Description for people: failed action, place and remedy.
    public let message: String
    /// Whether the client is unusable from now on and must be closed; only a new client (a new process) helps.
    public let isFatal: Bool
    /// Whether the same call may succeed later.
    public let isRetriable: Bool
    /// Whether the open transaction can only be aborted. Set only by the steps of a `TransactionalProducer`.
    public let requiresAbort: Bool

    init(
        code: Int32, message: String, isFatal: Bool = false, isRetriable: Bool = false,
        requiresAbort: Bool = false
    ) {
        self.code = code
        self.name = Self.name(of: code)
        self.message = message
        self.isFatal = isFatal
        self.isRetriable = isRetriable
        self.requiresAbort = requiresAbort
    }

    public var description: String { "\(message) (\(name))" }

    /// Returns librdkafka's name of the code, or the number of an unnamed code.
    static func name(of code: Int32) -> String {
        guard let name = rd_kafka_err2name(rd_kafka_resp_err_t(rawValue: code)) else { return "\(code)" }
        return String(cString: name)
    }
}

extension KafkaError {
    /// The group has assigned the partitions to others without notifying this member.
    public static let partitionsLost = KafkaError(
        RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST, "the partitions are lost")

    /// Records of a transaction were not acknowledged in time.
    public static let reportsMissing = KafkaError(
        RD_KAFKA_RESP_ERR__TIMED_OUT, "records of the transaction are not acknowledged")

    /// Records that a producer has sent were not acknowledged in time.
    public static func notAcknowledged(_ count: Int) -> KafkaError {
        KafkaError(
            RD_KAFKA_RESP_ERR__TIMED_OUT,
            "\(count) \(count == 1 ? "record is" : "records are") not acknowledged in time")
    }

    /// A record was not read in time.
    public static func timedOut(reading place: some CustomStringConvertible) -> KafkaError {
        KafkaError(RD_KAFKA_RESP_ERR__TIMED_OUT, "no answer about \(place)")
    }

    /// The record is larger than the topic or the producer accepts.
    public var isTooLarge: Bool {
        code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE.rawValue
            || code == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE.rawValue
            || code == RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE.rawValue
    }

    /// The record itself is refused, in most cases for its size. A smaller form of it may be accepted.
    public var isOfRecord: Bool {
        isTooLarge || code == RD_KAFKA_RESP_ERR_INVALID_RECORD.rawValue
            || code == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP.rawValue
    }

    /// There is no such topic.
    public var isUnknownTopic: Bool {
        code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART.rawValue
            || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC.rawValue
    }

    /// The brokers refuse this user the right to the topic, the group, the cluster or the transactional identifier.
    public var isRefusal: Bool {
        [
            RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
            RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ].contains { $0.rawValue == code }
    }

    /// The cluster or the library can't do this at all.
    public var isUnsupported: Bool {
        code == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE.rawValue
            || code == RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION.rawValue
    }

    /// Creates the error of a request without an answer.
    static func noAnswer(_ what: String, _ timeoutMilliseconds: Int32) -> KafkaError {
        KafkaError(
            RD_KAFKA_RESP_ERR__TIMED_OUT, what, detail: "no answer within \(timeoutMilliseconds) ms")
    }

    /// The group is about to rebalance, or has done so already.
    public var isOfRebalance: Bool {
        code == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS.rawValue
            || code == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION.rawValue
    }

    init(_ code: rd_kafka_resp_err_t, _ what: String, detail: String? = nil) {
        let reason = detail ?? String(cString: rd_kafka_err2str(code))
        self.init(
            code: code.rawValue, message: "\(what): \(reason)",
            isFatal: code == RD_KAFKA_RESP_ERR__FATAL, isRetriable: Self.isRetriable(code))
    }

    /// Takes over a C error object and frees it.
    init(consuming error: OpaquePointer, _ what: String) {
        defer { rd_kafka_error_destroy(error) }
        self.init(
            code: rd_kafka_error_code(error).rawValue,
            message: "\(what): \(String(cString: rd_kafka_error_string(error)))",
            isFatal: rd_kafka_error_is_fatal(error) != 0,
            isRetriable: rd_kafka_error_is_retriable(error) != 0,
            requiresAbort: rd_kafka_error_txn_requires_abort(error) != 0)
    }

    /// Creates the error of a caller's request that cannot be carried out.
    static func invalid(_ message: String) -> KafkaError {
        KafkaError(code: RD_KAFKA_RESP_ERR__INVALID_ARG.rawValue, message: message)
    }

    /// Creates the error of a failure in the operating system or the library.
    static func system(_ message: String) -> KafkaError {
        KafkaError(code: RD_KAFKA_RESP_ERR__FAIL.rawValue, message: message)
    }

    /// Whether the same request may be retried after this code (Kafka protocol, "retriable").
    static func isRetriable(_ code: rd_kafka_resp_err_t) -> Bool {
        switch code {
        case RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, RD_KAFKA_RESP_ERR__TIMED_OUT,
            RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
            RD_KAFKA_RESP_ERR__QUEUE_FULL,
            RD_KAFKA_RESP_ERR__WAIT_COORD, RD_KAFKA_RESP_ERR__RETRY, RD_KAFKA_RESP_ERR__IN_PROGRESS,
            RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS, RD_KAFKA_RESP_ERR__WAIT_CACHE, RD_KAFKA_RESP_ERR__RESOLVE,
            RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE,
            RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION,
            RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
            RD_KAFKA_RESP_ERR_NOT_COORDINATOR, RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            RD_KAFKA_RESP_ERR_NOT_CONTROLLER, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
            RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT, RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE,
            RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
            true
        default:
            false
        }
    }
}
