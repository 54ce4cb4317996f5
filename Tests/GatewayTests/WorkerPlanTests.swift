import Configuration
import Testing

@testable import Gateway

@Suite("Worker plan: what follows from a configuration")
struct WorkerPlanTests {
    @Test func revocationTakesAtMostHalfThePollInterval() {
        var kafka = Configuration.Kafka(bootstrapServers: "localhost:9092")
        #expect(KafkaSetup(kafka).longestRevocation == .seconds(150))
        kafka.consumerProperties = [.init(name: "max.poll.interval.ms", value: "12000")]
        #expect(KafkaSetup(kafka).longestRevocation == .seconds(6))
    }

    @Test func newPartitionsAreFoundWithinHalfAMinute() throws {
        var kafka = Configuration.Kafka(bootstrapServers: "localhost:9092")
        let name = "topic.metadata.refresh.interval.ms"
        #expect(try #require(KafkaSetup(kafka).consumer[name].flatMap { Int($0) }) <= 30_000)
        kafka.consumerProperties = [.init(name: name, value: "60000")]
        #expect(KafkaSetup(kafka).consumer[name] == "60000")
    }

    @Test func authorityBracketsIPv6AndOmitsDefaultPort() {
        #expect(CredentialPoolPlanner.authority(host: "::1", port: 2197) == "[::1]:2197")
        #expect(CredentialPoolPlanner.authority(host: "fe80::2", port: 443) == "[fe80::2]")
        #expect(
            CredentialPoolPlanner.authority(host: "api.push.apple.com", port: 443) == "api.push.apple.com")
        #expect(CredentialPoolPlanner.authority(host: "127.0.0.1", port: 2197) == "127.0.0.1:2197")
    }
}
