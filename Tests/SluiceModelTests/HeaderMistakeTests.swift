import Testing

@testable import SluiceModel

@Suite struct HeaderMistakeTests {
    private func mistake(_ name: String) -> HeaderMistakes.Mistake? {
        name.withBytes { HeaderMistakes.mistake(in: $0) }
    }

    @Test(arguments: [
        ("apns-topc", "apns-topic"), ("apns_topic", "apns-topic"), ("APNS-Topics", "apns-topic"),
        ("apnstopic", "apns-topic"), ("apns-pushtype", "apns-push-type"), ("push-type", "apns-push-type"),
        ("Apns-Priorty", "apns-priority"), ("apns-expiry", "apns-expiration"),
        ("apns-colapse-id", "apns-collapse-id"), ("collapse-id", "apns-collapse-id"),
        ("apns-colapsid", "apns-collapse-id"), ("apnsid", "apns-id"), ("apns_id", "apns-id"),
        ("deliver_at", "deliver-at"), ("deliverAt", "deliver-at"), ("delivery-at", "deliver-at"),
        ("delivry", "delivery"), ("delivrey", "delivery"), ("deliver", "delivery"), ("knid", "kind"),
        ("tlt", "ttl"), ("kiind", "kind"), ("anps-topic", "apns-topic"), ("apn-topic", "apns-topic"),
        ("evnet", "event"), ("createdAt", "created-at"),
        ("occured-at", "occurred-at"), ("recieptTimeout", "receipt-timeout"),
        ("receipt_timeout", "receipt-timeout"), ("registred-at", "registered-at"),
        ("enviroment", "environment"), ("duplicate", "duplicates"), ("new_device_token", "new-device-token"),
    ])
    func misspeltNamesAreFound(_ name: String, _ header: String) {
        let found = mistake(name)
        // `apns-expiry` is at distance 5: known as APNs' own, but no guess is made.
        if header == "apns-expiration", name == "apns-expiry" {
            #expect(found == .notAField)
        } else {
            #expect(found.map { "\($0)" } == "misspelt(\(header))", "\(name)")
        }
    }

    /// Headers of frameworks, tracers, brokers and of other systems' messages.
    static let foreign = [
        "__TypeId__", "__KeyTypeId__", "__ContentTypeId__", "spring_json_header_types", "contentType",
        "originalContentType", "nativeHeaders", "kafka_receivedTopic", "kafka_messageKey", "kafka_offset",
        "kafka_correlationId", "kafka_replyTopic", "kafka_replyPartition", "kafka_timestamp",
        "kafka_dlt-exception-message", "scst_partition", "deliveryAttempt", "uber-trace-id",
        "uberctx-tenant", "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId", "X-B3-Sampled",
        "X-Amzn-Trace-Id", "X-Request-Id", "X-Correlation-Id", "sentry-trace", "sentry-baggage", "newrelic",
        "elasticapmtraceparent", "elastic-apm-traceparent", "dd-pathway-ctx-base64", "dd-pathway-ctx",
        "traceparent", "tracestate", "baggage", "b3", "grpc-trace-bin", "lightstep", "ot-tracer-spanid",
        "wavefront-delta", "id", "kid", "key", "type", "time", "tags", "tag", "tel", "tls", "url", "uri",
        "ttl-ms", "ttlSeconds", "mind", "king", "find", "bind", "kin", "even", "eventId", "event-id",
        "event-type", "eventType", "event_time", "eventTime", "event-source", "vent", "app-id", "app_id",
        "appId", "api-id", "span-id", "apm-id", "user-id", "message-id", "messageId", "correlation-id",
        "correlationId", "causation-id", "tenant", "tenant-id", "source", "subject", "topic", "priority",
        "expiration", "expires", "timestamp", "version", "schema", "schema-id", "schema.version", "encoding",
        "content-encoding", "content_type", "Content-Length", "user-agent", "host", "accept", "cookie",
        "delivered", "delivery-id", "deliveryId", "delivery-tag", "deliveryTag", "delivery-mode",
        "deliver-to", "delivered-at", "delivery_count", "updated-at", "updatedAt", "expires-at", "sent-at",
        "environments", "env", "envelope", "origin", "region", "service", "service.name", "partition",
        "offset", "retry", "retries", "retry-count", "attempt", "attempts", "reply-to", "replyTo", "format",
        "JMSType", "JMSPriority", "JMSExpiration", "amqp_deliveryTag", "amqp_contentType", "_class",
        "ce_id", "ce_type", "ce_time", "ce_specversion", "connect.errors.topic", "__connect.errors.topic",
        "ksql", "device-token", "deviceToken", "device-id", "channel", "channel-id", "payload", "action",
        "operation", "op", "hop", "__debezium.newkey", "camel.kafka.key", "mp_reactive", "rt", "",
        "kinds", "ttls", "events", "event1", "duplicated", "delivers", "created-by", "created_by",
        "createdBy",
        "created-on", "created-ts", "created-ms", "created-id", "registered-by", "occurred-on", "deliver-by",
        "app-topic", "sns-topic", "aws-topic", "app-priority", "organization", "registration-id",
        "duplicate-check", "creation-time",
    ]

    /// Names of ``foreign`` that resemble a field's closely enough to be refused: at distance 1 or 2 of a long name.
    static let refused: Set<String> = ["delivered-at"]

    @Test(arguments: foreign)
    func headersOfFrameworksAreNoMistakes(_ name: String) {
        #expect((mistake(name) != nil) == Self.refused.contains(name))
    }

    @Test func fieldsAreFoundInAnyCase() {
        for field in JobField.allCases {
            guard let header = field.headerName?.text else { continue }
            for name in [header, header.uppercased(), header.capitalized] {
                #expect(name.withBytes { JobField(headerName: $0) } == field)
            }
            // Any other byte at any place is another name.
            for index in header.utf8.indices {
                var bytes = Array(header.utf8)
                let offset = header.utf8.distance(from: header.utf8.startIndex, to: index)
                bytes[offset] = bytes[offset] ^ 0x80
                #expect(bytes.withUnsafeBytes { JobField(headerName: $0) } == nil)
            }
        }
    }

    @Test func distancesCountInsertionsRemovalsReplacementsAndExchanges() {
        func distance(_ one: String, _ other: String) -> Int {
            one.withBytes { one in other.withBytes { HeaderMistakes.editDistance(one, $0) } }
        }
        #expect(distance("kind", "kind") == 0)
        #expect(distance("KIND", "kind") == 0)
        #expect(distance("", "kind") == 4)
        #expect(distance("kidn", "kind") == 1)
        #expect(distance("kid", "kind") == 1)
        #expect(distance("kinds", "kind") == 1)
        #expect(distance("bind", "kind") == 1)
        #expect(distance("ikdn", "kind") == 2)
        #expect(distance("sitting", "kitten") == 3)
        #expect(distance("created_by", "created-at") == 3)
    }

    /// Any bytes: nothing is read outside of them, and nothing traps.
    @Test func anyNameIsJudged() {
        var random = SeededGenerator(seed: 19)
        for _ in 0..<5000 {
            let count = Int.random(in: 0...40, using: &random)
            var bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
            if random.next() & 1 == 0 { bytes = Array("apns-".utf8) + bytes }
            let block = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
            block.copyBytes(from: bytes)
            let mistake = HeaderMistakes.mistake(in: UnsafeRawBufferPointer(block))
            if bytes.starts(with: "apns-".utf8) { #expect(mistake != nil) }
            block.deallocate()
        }
    }
}
