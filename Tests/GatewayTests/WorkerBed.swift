import APNS
import APNSSimulator
import Configuration
import EventLoop
import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import Logging
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Runs a test with a bed, and ends all that the bed has started, whether the test fails or not.
///
/// - Parameters:
///   - embedsKafka: Kafka runs in this process, where it can be made to fail.
///   - change: sets the simulator's options.
///   - body: the test. Workers that it leaves running must stop without a failure.
func withBed<Result>(
    embedsKafka: Bool = false, changelogPartitions: Int = WorkerBed.partitions,
    simulator change: (inout SimulatorOptions) -> Void = { _ in },
    sourceLocation: SourceLocation = #_sourceLocation, _ body: (WorkerBed) throws -> Result
) throws -> Result {
    let bed = try WorkerBed(embedsKafka: embedsKafka, changelogPartitions: changelogPartitions, change)
    let result: Result
    do {
        result = try body(bed)
    } catch {
        bed.abandon()
        throw error
    }
    bed.stop(sourceLocation: sourceLocation)
    return result
}

/// A simulator and workers in this process, and Kafka in its own. `withBed` makes one.
final class WorkerBed {
    static let partitions = 3

    let kafka: TestKafka
    let directory: TemporaryDirectory
    private(set) var simulator: Simulator
    let outcomes: TopicReader
    let deadLetters: TopicReader
    /// Workers that nobody has waited for, oldest first.
    private var running: [Worker] = []
    /// Ends the other things that the test has started.
    private var endings: [() -> Void] = []

    fileprivate init(
        embedsKafka: Bool, changelogPartitions: Int, _ change: (inout SimulatorOptions) -> Void
    ) throws {
        let topics = [
            ("jobs", Self.partitions), ("outcomes", Self.partitions), ("dead", 1),
            ("changelog", changelogPartitions), ("switches", 1),
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
                    deadLetters: kafka.topic("dead"), changelog: kafka.topic("changelog"),
                    switches: kafka.topic("switches")),
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
            apps: [.init(name: "news", topics: ["com.example.news"], credentials: ["team"])])
        configuration.delivery.retry = .init(
            initial: .milliseconds(20), maximum: .milliseconds(100), maxAttempts: 20)
        configuration.delivery.commitInterval = .milliseconds(200)
        change(&configuration)
        return configuration
    }

    /// Starts a worker.
    ///
    /// - Parameter firstPushes: pushes that may be begun before the first commit; by default as many as the settings allow,
    ///   so that a test can have many in flight at once.
    @discardableResult
    func worker(
        log handler: any LogHandler = SwiftLogNoOpLogHandler(), logLevel: Logger.Level = .warning,
        longestAbsence: Int64 = RestoreLimits.longestAbsence, tokens: ProviderTokenPolicy.Settings = .init(),
        firstPushes: Int = .max,
        _ change: (inout Configuration) -> Void = { _ in }
    ) throws -> Worker {
        var logger = Logger(label: "worker", factory: { _ in handler })
        logger.logLevel = handler is LogRecorder ? logLevel : .critical
        var bounds = WorkerBounds()
        bounds.longestAbsence = longestAbsence
        bounds.firstPushes = firstPushes
        let worker = try Worker(
            configuration: configuration(change), logger: logger, bounds: bounds, tokens: tokens)
        worker.start()
        running.append(worker)
        return worker
    }

    // MARK: Ends

    /// Stops a worker. Its failure is an issue, unless it `mayFail`.
    @discardableResult
    func stop(
        _ worker: Worker, mayFail: Bool = false, sourceLocation: SourceLocation = #_sourceLocation
    ) -> WorkerResult {
        worker.requestStop()
        return waitUntilStopped(worker, mayFail: mayFail, sourceLocation: sourceLocation)
    }

    /// Waits for the end of a worker. Its failure is an issue, unless it `mayFail`.
    @discardableResult
    func waitUntilStopped(
        _ worker: Worker, mayFail: Bool = false, sourceLocation: SourceLocation = #_sourceLocation
    ) -> WorkerResult {
        running.removeAll { $0 === worker }
        let result = worker.waitUntilStopped()
        if !mayFail { #expect(result.failure == nil, sourceLocation: sourceLocation) }
        return result
    }

    /// Runs `ending` at the end of the test.
    func atEnd(_ ending: @escaping () -> Void) { endings.append(ending) }

    /// Ends everything after a test that has passed.
    fileprivate func stop(sourceLocation: SourceLocation) {
        for ending in endings.reversed() { ending() }
        while let worker = running.last { stop(worker, sourceLocation: sourceLocation) }
        simulator.stop()
    }

    /// Ends everything after a test that has failed. A worker that can't end delays the other tests for a minute at
    /// most.
    fileprivate func abandon() {
        for ending in endings.reversed() { ending() }
        let workers = running
        for worker in workers { worker.requestStop() }
        let isDone = BlockingFlag()
        Thread.detachNewThread {
            for worker in workers { _ = worker.waitUntilStopped() }
            isDone.set()
        }
        _ = isDone.wait(seconds: 60)
        simulator.stop()
    }

    /// Another simulator takes the place of the one so far, on its port. It checks no provider tokens and has no
    /// faults.
    func replaceSimulator() throws {
        simulator.stop()
        var options = SimulatorOptions()
        options.certificateDirectory = directory.path
        options.port = simulator.port
        simulator = try Simulator(options: options)
        simulator.start()
    }

    /// Starts another simulator, with authorities and a port of its own. The test's end stops it.
    ///
    /// - Returns: the simulator, and the file of its authority.
    func anotherSimulator(
        _ change: (inout SimulatorOptions) -> Void = { _ in }
    ) throws -> (Simulator, caFile: String) {
        let directory = try TemporaryDirectory("simulator")
        var options = SimulatorOptions()
        options.certificateDirectory = directory.path
        change(&options)
        let other = try Simulator(options: options)
        other.start()
        atEnd {
            other.stop()
            withExtendedLifetime(directory) {}
        }
        return (other, directory.file("ca.pem"))
    }

    // MARK: Jobs

    /// Pushes to distinct devices, in both encodings.
    func produce(
        _ count: Int, seed: UInt64, _ change: (inout PushDescription, Int) -> Void = { _, _ in }
    ) throws {
        var random = SeededGenerator(seed: seed)
        try produce(
            (0..<count).map { number in
                var push = PushDescription(
                    deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                    payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
                change(&push, number)
                return number % 5 == 0 ? JobEncoder.structured(push) : JobEncoder.binary(push)
            })
    }

    /// Produces in one partition, which defines the order; nil leaves the choice to the keys.
    func produce(_ jobs: [EncodedJob], in partition: Int32? = nil) throws {
        try kafka.produce(
            to: "jobs",
            jobs.map {
                var record = NewRecord($0)
                if let partition { record.partition = partition }
                return record
            })
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

    func committed() throws -> Int64 {
        try kafka.committed(group: kafka.group, topic: "jobs", partitions: Self.partitions)
    }
}
