import CRdkafka

/// Builds librdkafka's configuration object from Sluice's defaults, the user's properties and the rules of guarantees.
/// Then creates the client.
final class ClientConfiguration {
    enum Kind { case consumer, producer, transactionalProducer, reader, admin, embedded }

    /// A property that a guarantee depends on: only these values are accepted.
    struct Rule {
        let names: [String]
        let accepted: [String]
        let why: String
    }

    /// Configuration object, owned until `rd_kafka_new` takes it over (`nil` then); otherwise freed by `deinit`.
    private var handle: OpaquePointer?
    private let kind: Kind
    /// Whether the caller has installed interceptors.
    private var hasInterceptors = false

    private static let all = ["all", "-1"]
    private static let falseValues = ["false", "0", "f", "F"]
    private static let trueValues = ["true", "1", "t", "T"]

    static let consumerRules: [Rule] = [
        Rule(
            names: ["enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"],
            accepted: falseValues,
            why: "an offset is committed only when its job has a terminal outcome"),
        Rule(
            names: ["log.queue"], accepted: trueValues,
            why: "poll passes on the log lines"),
    ]

    static let producerRules: [Rule] = [
        Rule(
            names: ["enable.idempotence"], accepted: trueValues,
            why: "a retry inside the producer must not publish an outcome twice"),
        Rule(
            names: ["acks", "request.required.acks"], accepted: all,
            why: "an offset is committed only after every in-sync replica has its outcome"),
        Rule(
            names: ["delivery.report.only.error"], accepted: falseValues,
            why: "the delivery report completes a job's offset"),
        Rule(
            names: ["transactional.id"], accepted: [],
            why: "the worker sets the transactional identifier"),
        Rule(
            names: ["log.queue"], accepted: trueValues,
            why: "poll passes on the log lines with the delivery reports"),
    ]

    static let readerRules: [Rule] = [
        Rule(
            names: ["isolation.level"], accepted: ["read_committed"],
            why: "aborted records must not be restored"),
        Rule(
            names: ["auto.offset.reset", "topic.auto.offset.reset"], accepted: ["error"],
            why: "a missing offset must be reported, not skipped"),
        Rule(
            names: ["enable.partition.eof"], accepted: trueValues,
            why: "the reader recognizes the end of a log by this event"),
    ]

    /// Time after which a client looks again whether its full queue has been drained; librdkafka's default is 1 s. Older
    /// releases have no such property.
    private static let fetchingGoesOn =
        KafkaLibrary.stopsFetching ? [] : [("fetch.queue.backoff.ms", "10")]

    /// Returns Sluice's values for properties that the user does not set.
    static func defaults(_ kind: Kind) -> [(String, String)] {
        var common = [("client.id", "sluice")]
        switch kind {
        case .consumer:
            common += [
                ("partition.assignment.strategy", "cooperative-sticky"),
                ("auto.offset.reset", "earliest"),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("log.queue", "true"),
                // A held record keeps its whole fetch response; librdkafka's default is 50 MB.
                ("fetch.max.bytes", "4194304"),
            ]
            common += fetchingGoesOn
        case .producer, .transactionalProducer:
            common += [
                ("enable.idempotence", "true"),
                ("acks", "all"),
                ("log.queue", "true"),
            ]
            // A dead worker's open transaction can block its successor for this time; librdkafka's default is 60 s.
            if kind == .transactionalProducer { common += [("transaction.timeout.ms", "15000")] }
        case .reader:
            common += [
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("isolation.level", "read_committed"),
                ("auto.offset.reset", "error"),
                ("enable.partition.eof", "true"),
                ("log.queue", "true"),
                // The end of a log is reported after a fetch finds nothing for this time; librdkafka's default is 500
                // ms.
                ("fetch.wait.max.ms", "20"),
                // At this many records librdkafka 2.0.2 stops fetching and checks again a second later (its CHANGELOG,
                // 2.2.0: `fetch.queue.backoff.ms`). Its defaults are 100,000 and 64 MB. A fast restore reads more than
                // 100 MB in a second, so it would mostly wait.
                ("queued.min.messages", "400000"),
                ("queued.max.messages.kbytes", "131072"),
            ]
            common += fetchingGoesOn
        case .admin:
            // Only a client of the consumer type obeys this.
            common += [("allow.auto.create.topics", "false")]
        case .embedded:
            break
        }
        return common
    }

    /// - Throws: an error that names the property that is unknown, has an invalid value or is fixed.
    init(
        _ kind: Kind, _ properties: KafkaProperties, transactionalID: String? = nil
    ) throws(KafkaError) {
        handle = rd_kafka_conf_new()
        self.kind = kind
        if (properties["bootstrap.servers"] ?? properties["metadata.broker.list"] ?? "").isEmpty,
            properties["test.mock.num.brokers"] == nil
        {
            throw .invalid("kafka property \"bootstrap.servers\" is missing: name at least one host:port")
        }
        for (name, value) in Self.defaults(kind) { try set(name, value) }
        let rules =
            switch kind {
            case .consumer: Self.consumerRules
            case .producer, .transactionalProducer: Self.producerRules
            case .reader: Self.consumerRules + Self.readerRules
            case .admin, .embedded: [Rule]()
            }
        for (name, value) in properties.pairs {
            if let rule = rules.first(where: { $0.names.contains(name) }), !rule.accepted.contains(value) {
                let allowed =
                    rule.accepted.first.map { "the value must stay \"\($0)\"" }
                    ?? "the property must not be set"
                throw .invalid("kafka property \"\(name)\": \(allowed), because \(rule.why)")
            }
            try set(name, value)
        }
        if let transactionalID { try set("transactional.id", transactionalID) }
    }

    deinit {
        if let handle { rd_kafka_conf_destroy(handle) }
    }

    private func set(_ name: String, _ value: String) throws(KafkaError) {
        var reason = [CChar](repeating: 0, count: 512)
        guard rd_kafka_conf_set(handle, name, value, &reason, reason.count) != RD_KAFKA_CONF_OK else {
            return
        }
        let text = Self.text(reason)
        // An invalid value is part of librdkafka's message.
        let shown = KafkaProperties.isSecret(name) ? "the value is not valid" : text
        throw .invalid("kafka property \"\(name)\": \(shown)")
    }

    /// Lets the caller install callbacks before the client exists.
    /// - Parameter hasInterceptors: whether interceptors are among them.
    func configure(hasInterceptors: Bool = false, _ body: (OpaquePointer) -> Void) {
        self.hasInterceptors = hasInterceptors
        if let handle { body(handle) }
    }

    /// Creates the client, once. The configuration object belongs to librdkafka afterwards.
    func create() throws(KafkaError) -> OpaquePointer {
        var reason = [CChar](repeating: 0, count: 512)
        let type =
            switch kind {
            case .consumer, .reader, .admin: RD_KAFKA_CONSUMER
            case .producer, .transactionalProducer, .embedded: RD_KAFKA_PRODUCER
            }
        // Without a callback librdkafka writes to standard error; these clients report errors by their results.
        if kind == .admin || kind == .embedded { rd_kafka_conf_set_log_cb(handle, nil) }
        guard let client = rd_kafka_new(type, handle, &reason, reason.count) else {
            let code = rd_kafka_last_error()
            // librdkafka may have freed the interceptors, which the configuration still names. Freeing the configuration
            // would free them twice, so some kilobytes stay allocated.
            if hasInterceptors { handle = nil }
            throw KafkaError(
                code: code.rawValue, message: "cannot create the Kafka client: \(Self.text(reason))")
        }
        self.handle = nil
        return client
    }

    /// Returns the C string in `buffer`.
    static func text(_ buffer: [CChar]) -> String {
        String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
