import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// The recipes of Schemas/recipes produce valid jobs.
@Suite("Recipes of Kafka clients", .serialized)
struct RecipeTests {
    static let token = "0a1b" + String(repeating: "c2", count: 30)

    /// A Python that has the module; nil when none has. `SLUICE_TEST_PYTHON` names one to look at first.
    private static func python(with module: String) -> String? {
        let named = ProcessInfo.processInfo.environment["SLUICE_TEST_PYTHON"]
        return [named, Executables.find("python3"), "/usr/bin/python3"].compactMap { $0 }.first { path in
            let result = try? ChildProcess.run(path, ["-c", "import \(module)"])
            return result.map { $0.exit == .status(0) } ?? false
        }
    }

    private static let confluent = python(with: "confluent_kafka")
    private static let kafkaPython = python(with: "kafka")

    /// Runs a recipe and judges its two records as a worker does.
    private func run(_ program: String, _ arguments: [String]) throws {
        let kafka = try TestKafka([("jobs", 2)])
        let topic = kafka.topic("jobs")
        let result = try ChildProcess.run(
            program, arguments + [kafka.bootstrapServers, topic, Self.token], timeout: .seconds(60))
        #expect(result.exit == .status(0), "\(result.standardError)")
        let reader = try TopicReader(kafka, "jobs", partitions: 2)
        try eventually("the recipe's records have arrived") {
            reader.poll()
            return reader.records.count == 2
        }
        let check = JobCheck()
        for record in reader.records {
            #expect(record.keyText == Self.token)
            let job = EncodedJob(
                key: record.key ?? [], value: record.value ?? [],
                headers: record.headers.map { (name: $0.name, value: $0.value ?? []) })
            #expect(check.error(in: job) == nil)
        }
        #expect(reader.records.filter { $0.header("apns-topic") == "com.example.news" }.count == 1)
    }

    private func recipe(_ name: String) -> String { "\(Repository.root)/Schemas/recipes/\(name)" }

    @Test(.enabled(if: Executables.find("kcat") != nil, "kcat is not installed"))
    func kcatProducesValidJobs() throws { try run("/bin/sh", [recipe("kcat.sh")]) }

    @Test(.enabled(if: confluent != nil, "no Python has the module confluent_kafka"))
    func confluentKafkaProducesValidJobs() throws {
        try run(#require(Self.confluent), [recipe("confluent_kafka_push.py")])
    }

    @Test(.enabled(if: kafkaPython != nil, "no Python has the module kafka"))
    func kafkaPythonProducesValidJobs() throws {
        try run(#require(Self.kafkaPython), [recipe("kafka_python_push.py")])
    }
}
