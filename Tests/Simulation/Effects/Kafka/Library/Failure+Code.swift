import CRdkafka

extension KafkaModel.Failure {
    /// librdkafka's code.
    var code: rd_kafka_resp_err_t {
        switch self {
        case .timedOut: RD_KAFKA_RESP_ERR__TIMED_OUT
        case .tooLarge: RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
        case .notAuthorised: RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
        case .unknownPartition: RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
        case .purged: RD_KAFKA_RESP_ERR__PURGE_QUEUE
        case .fenced: RD_KAFKA_RESP_ERR__FENCED
        case .recordLost: RD_KAFKA_RESP_ERR__MSG_TIMED_OUT
        case .leaderAway: RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE
        case .coordinatorAway: RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE
        case .rebalanceInProgress: RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS
        case .illegalGeneration: RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION
        case .unknownMember: RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID
        case .fencedInstance: RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID
        case .metadataTooLarge: RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE
        case .unstableOffsets: RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT
        case .outOfRange: RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE
        case .misuse: RD_KAFKA_RESP_ERR__STATE
        }
    }
}
