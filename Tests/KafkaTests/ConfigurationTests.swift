import Kafka
import Testing

@Suite struct ConfigurationTests {
    private func consumer(_ pairs: [(name: String, value: String)]) throws -> KafkaConsumer {
        let base = KafkaProperties([("bootstrap.servers", "127.0.0.1:1"), ("group.id", "g")])
        return try KafkaConsumer(
            properties: base.overridden(by: KafkaProperties(pairs)), topics: [], events: { _ in })
    }

    private func error(_ body: () throws -> Void) -> KafkaError? {
        do {
            try body()
            return nil
        } catch { return error as? KafkaError }
    }

    @Test(arguments: [
        ("no.such.property", "1"), ("session.timeout.ms", "soon"), ("partition.assignment.strategy", "magic"),
        ("security.protocol", "carrier-pigeon"),
    ])
    func invalidPropertyIsNamedInTheError(name: String, value: String) throws {
        let error = try #require(error { _ = try consumer([(name, value)]) })
        #expect(error.message.contains(name))
        #expect(error.name == "_INVALID_ARG")
    }

    @Test(arguments: [
        ("enable.auto.commit", "true"), ("enable.auto.offset.store", "true"), ("log.queue", "false"),
    ])
    func consumerRefusesPropertiesThatBreakItsGuarantees(name: String, value: String) throws {
        let error = try #require(error { _ = try consumer([(name, value)]) })
        #expect(error.message.contains("\"\(name)\""))
        #expect(error.message.contains("must stay"))
    }

    @Test(arguments: [
        ("enable.idempotence", "false"), ("acks", "1"), ("request.required.acks", "0"),
        ("delivery.report.only.error", "true"), ("transactional.id", "t"),
    ])
    func producerRefusesPropertiesThatBreakItsGuarantees(name: String, value: String) throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties[name] = value
        let error = try #require(error { _ = try KafkaProducer(properties: properties) })
        #expect(error.message.contains("\"\(name)\""))
        #expect(error.message.contains("because"))
    }

    @Test func requiredValuesMayBeSetExplicitly() throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties["acks"] = "all"
        properties["enable.idempotence"] = "true"
        _ = try KafkaProducer(properties: properties)
        _ = try consumer([("enable.auto.commit", "false"), ("partition.assignment.strategy", "range")])
    }

    @Test func missingPropertyIsNamedInTheError() throws {
        let group = try #require(
            error {
                _ = try KafkaConsumer(
                    properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"), topics: ["t"],
                    events: { _ in })
            })
        #expect(group.message.contains("\"group.id\""))
        let servers = try #require(error { _ = try KafkaProducer(properties: KafkaProperties()) })
        #expect(servers.message.contains("\"bootstrap.servers\""))
    }

    @Test func tlsAndSASLPropertiesReachTheLibrary() throws {
        _ = try consumer([
            ("security.protocol", "SASL_SSL"), ("sasl.mechanisms", "SCRAM-SHA-512"), ("sasl.username", "u"),
            ("sasl.password", "p"), ("ssl.endpoint.identification.algorithm", "https"),
        ])
        let file = try #require(
            error {
                _ = try consumer([("security.protocol", "ssl"), ("ssl.ca.location", "/no/such/file.pem")])
            })
        #expect(file.message.contains("ssl.ca.location"))
        let mechanism = try #require(
            error {
                _ = try consumer([("security.protocol", "sasl_plaintext"), ("sasl.mechanisms", "UNHEARD-OF")])
            })
        #expect(mechanism.message.lowercased().contains("mechanism"))
    }

    @Test func secretsAreNotPrinted() throws {
        let properties = KafkaProperties([
            ("sasl.username", "name"), ("sasl.password", "hunter2"), ("ssl.key.password", "hunter3"),
            ("ssl.key.pem", "-----BEGIN"), ("sasl.oauthbearer.client.secret", "hunter4"),
        ])
        let text = properties.description
        #expect(text.contains("sasl.username=name"))
        #expect(!text.contains("hunter"))
        #expect(!text.contains("BEGIN"))
        let error = try #require(
            error { _ = try consumer([("security.protocol", "ssl"), ("ssl.key.pem", "hunter5")]) })
        #expect(!error.description.contains("hunter5"))
    }

    @Test func propertiesKeepOrderAndLaterValuesWin() {
        var properties = KafkaProperties([("a", "1"), ("b", "2"), ("a", "3")])
        #expect(properties.pairs.map(\.name) == ["a", "b"])
        #expect(properties["a"] == "3")
        properties["b"] = nil
        #expect(properties == KafkaProperties([("a", "3")]))
        #expect(
            properties.overridden(by: KafkaProperties([("a", "4"), ("c", "5")])).description == "a=4 c=5")
    }

    @Test func libraryReportsVersionAndFeatures() {
        #expect(KafkaLibrary.version.split(separator: ".").count >= 3)
        #expect(KafkaLibrary.features.contains("ssl"))
    }

    @Test func invalidTopicNamesAreRefused() throws {
        let producer = try KafkaProducer(properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"))
        for name in ["", "no spaces", "..", String(repeating: "n", count: 250)] {
            let error = try #require(error { _ = try producer.topic(name) })
            #expect(error.message.contains("topic \"\(name)\""))
        }
        #expect(try producer.topic("apns.outcomes_v1-a").name == "apns.outcomes_v1-a")
    }
}
