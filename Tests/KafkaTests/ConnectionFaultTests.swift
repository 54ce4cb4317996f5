import Testing

@testable import Kafka

@Suite("Faults of connections")
struct ConnectionFaultTests {
    @Test(
        "a reason of librdkafka is recognised",
        arguments: [
            (
                "ssl://b:9092/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 2ms in state SSL_HANDSHAKE)",
                ConnectionFault.brokerWithoutTLS
            ),
            (
                "SSL handshake failed: error:0A00010B:SSL routines::wrong version number (after 1ms in state SSL_HANDSHAKE)",
                .brokerWithoutTLS
            ),
            (
                "ssl://b:9092/bootstrap: Disconnected (after 0ms in state SSL_HANDSHAKE, 1 identical error(s) suppressed)",
                .brokerWithoutTLS
            ),
            (
                "SSL handshake failed: error:0A000126:SSL routines::unexpected eof while reading (after 0ms in state SSL_HANDSHAKE)",
                .brokerWithoutTLS
            ),
            ("b:9093/bootstrap: Disconnected (after 3ms in state APIVERSION_QUERY)", .brokerWithTLS),
            (
                "b:9093/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol configuration (connecting to a SSL listener?) or broker version is < 0.10",
                .brokerWithTLS
            ),
            (
                "Receive failed: Invalid response size 352518912 (0..100000000): increase receive.message.max.bytes",
                .brokerWithTLS
            ),
            (
                "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified, verify that ssl.ca.location is correctly configured",
                .unknownAuthority
            ),
            ("certificate verify failed: certificate has expired", .certificateDate),
            ("certificate verify failed: hostname mismatch", .hostname),
            ("error:0A00045C:SSL routines::tlsv13 alert certificate required", .clientCertificate),
            ("SASL authentication error: Authentication failed", .authentication),
            ("SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism", .mechanism),
            ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", .refused),
            ("Failed to resolve 'nowhere.invalid:9092': Name or service not known", .unknownHost),
            ("Connection setup timed out in state CONNECT", .unanswered),
        ])
    func reasonIsRecognised(_ reason: String, fault: ConnectionFault) {
        #expect(ConnectionFault(reason: reason) == fault)
    }

    @Test("other reasons are not recognised")
    func otherReasonsAreNot() {
        for reason in [
            "", "Receive failed: Invalid response size 200000000 (0..1)", "Broker: Unknown",
            "b:1/1: Disconnected (after 9ms in state UP)",
        ] {
            #expect(ConnectionFault(reason: reason) == nil)
        }
    }

    @Test("each advice is a clause without a full stop")
    func eachAdviceIsAClause() {
        for fault in ConnectionFault.allCases {
            #expect(fault.advice.contains(":") && !fault.advice.hasSuffix("."))
        }
    }

    @Test("an unreachable broker's error has its reason and a remedy")
    func unreachableBrokerIsExplained() throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties["socket.connection.setup.timeout.ms"] = "1000"
        let admin = try KafkaAdmin(properties: properties)
        let error = try #require(throws: KafkaError.self) {
            try admin.metadata(timeoutMilliseconds: 1_000)
        }
        #expect(error.message.contains("Connection refused"), "\(error)")
        #expect(error.message.contains(ConnectionFault.refused.advice), "\(error)")
    }
}
