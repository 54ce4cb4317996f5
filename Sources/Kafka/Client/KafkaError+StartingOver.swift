import CRdkafka

extension KafkaError {
    /// Whether new Kafka clients, which start from the committed state, may avoid this error. False for errors that an
    /// operator must fix: rights, settings, versions, or another member with the same name.
    public var isMendedByStartingOver: Bool { !Self.lasting.contains { $0.rawValue == code } }

    private static let lasting = [
        RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,
        RD_KAFKA_RESP_ERR__AUTHENTICATION, RD_KAFKA_RESP_ERR_SECURITY_DISABLED,
        RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM, RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE,
        RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,
        RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED,
        RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, RD_KAFKA_RESP_ERR_INVALID_CONFIG,
        RD_KAFKA_RESP_ERR_POLICY_VIOLATION, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,
        RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
        RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, RD_KAFKA_RESP_ERR__INVALID_ARG,
        RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE,
    ]

    /// A commit's metadata is longer than the brokers accept.
    public var isMetadataTooLarge: Bool { code == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE.rawValue }

    /// Another member of the group has this member's `group.instance.id`.
    public var isInstanceTaken: Bool { code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID.rawValue }

    /// The client knows no such partition, possibly because the topic has grown since the client's last query.
    public var isPartitionUnknown: Bool { code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION.rawValue }

    /// The topic has no such partition, or the topic does not exist.
    public var isUnknownPartition: Bool {
        let codes = [
            RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
        ]
        return codes.contains { $0.rawValue == code }
    }
}
