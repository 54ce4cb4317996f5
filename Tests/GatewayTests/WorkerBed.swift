import APNSSimulator
import Configuration
import HTTP2
import Kafka
import KafkaTestSupport
import Logging
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// A simulator and workers in this process, and Kafka in its own.
final class WorkerBed {
    static let partitions = 3

    let kafka: TestKafka
    let directory: TemporaryDirectory
    let simulator: Simulator
    let outcomes: TopicReader
    let deadLetters: TopicReader

    /// - Parameter embedsKafka: in this process, where it can be made to fail.
    init(
        embedsKafka: Bool = false, changelogPartitions: Int = WorkerBed.partitions,
        _ change: (inout SimulatorOptions) -> Void = { _ in }
    ) throws {
        let topics = [
            ("jobs", Self.partitions), ("outcomes", Self.partitions), ("dead", 1),
            ("changelog", changelogPartitions),
        ]
        kafka = try embedsKafka ? TestKafka(embedding: topics) : TestKafka(topics)
        directory = try TemporaryDirectory("worker")
        try directory.write(CertificateAuthority(commonName: "key").privateKeyPEM, to: "key.p8")
        var options = SimulatorOptions()
        options.certificateDirectory = directory.path
        options.providerTokens = .keys([
            SimulatorKey(keyID: "ABC123DEFG", teamID: "DEF123GHIJ", key: .file(directory.file("key.p8")))
        ])
        change(&options)
        simulator = try Simulator(options: options)
        simulator.start()
        outcomes = try TopicReader(kafka, "outcomes", partitions: Self.partitions)
        deadLetters = try TopicReader(kafka, "dead", partitions: 1)
    }

    func configuration(_ change: (inout Configuration) -> Void = { _ in }) -> Configuration {
        var configuration = Configuration(
            kafka: .init(
                bootstrapServers: kafka.bootstrapServers, groupID: kafka.group,
                topics: .init(
                    jobs: kafka.topic("jobs"), outcomes: kafka.topic("outcomes"),
                    deadLetters: kafka.topic("dead"), changelog: kafka.topic("changelog")),
                consumerProperties: [
                    .init(name: "fetch.wait.max.ms", value: "10"),
                    .init(name: "session.timeout.ms", value: "6000"),
                    .init(name: "heartbeat.interval.ms", value: "500"),
                ]),
            apns: .init(
                environment: .custom, host: "localhost", port: Int(simulator.port),
                caFile: directory.file("ca.pem"),
                requestTimeout: .seconds(5)),
            credentials: [
                .init(
                    name: "team",
                    kind: .token(keyFile: directory.file("key.p8"), keyID: "ABC123DEFG", teamID: "DEF123GHIJ")
                )
            ],
            apps: [.init(name: "news", topics: ["com.example.news"], credential: "team")])
        configuration.delivery.retry = .init(
            initial: .milliseconds(20), maximum: .milliseconds(100), maxAttempts: 20)
        configuration.delivery.commitInterval = .milliseconds(200)
        change(&configuration)
        return configuration
    }

    func worker(
        log handler: any LogHandler = SwiftLogNoOpLogHandler(),
        longestAbsence: Int64 = RestoreLimits.longestAbsence,
        _ change: (inout Configuration) -> Void = { _ in }
    ) throws -> Worker {
        var logger = Logger(label: "worker", factory: { _ in handler })
        logger.logLevel = handler is LogRecorder ? .warning : .critical
        let worker = try Worker(
            configuration: configuration(change), logger: logger, longestAbsence: longestAbsence)
        worker.start()
        return worker
    }

    // MARK: Jobs

    /// Pushes to distinct devices, in both encodings.
    func produce(
        _ count: Int, seed: UInt64, _ change: (inout PushDescription, Int) -> Void = { _, _ in }
    ) throws {
        var random = SeededRandom(seed: seed)
        try produce(
            (0..<count).map { number in
                var push = PushDescription(
                    deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                    payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
                change(&push, number)
                return number % 5 == 0 ? JobEncoder.structured(push) : JobEncoder.binary(push)
            })
    }

    func produce(_ jobs: [EncodedJob]) throws {
        try kafka.produce(to: "jobs", jobs.map { NewRecord($0) })
    }

    // MARK: Outcomes

    /// Waits for so many outcomes and returns them.
    @discardableResult
    func waitForOutcomes(_ count: Int) throws -> [OutcomeSummary] {
        try eventually("\(count) outcomes", timeout: .seconds(60)) {
            outcomes.poll()
            return outcomes.records.count >= count
        }
        return readOutcomes()
    }

    func readOutcomes() -> [OutcomeSummary] {
        outcomes.records.compactMap { OutcomeSummary(json: $0.value ?? []) }
    }

    /// Places of the jobs with an outcome.
    static func places(_ outcomes: [OutcomeSummary]) -> Set<String> {
        Set(outcomes.map { "\($0.partition)/\($0.offset)" })
    }

    func stop(_ worker: Worker) -> WorkerResult {
        worker.requestStop()
        return worker.waitUntilStopped()
    }

    func committed() throws -> Int64 {
        try kafka.committed(group: kafka.group, topic: "jobs", partitions: Self.partitions)
    }
}
