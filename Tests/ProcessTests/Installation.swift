import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Kafka, a simulator and workers, each a process of its own.
final class Installation {
    let directory: TemporaryDirectory
    let kafka: TestKafka
    let partitions: Int
    private(set) var simulator: ChildProcess
    let simulatorPort: String
    private let simulatorArguments: [String]
    private var workers = 0

    static let keyID = "ABC123DEFG"
    static let teamID = "DEF123GHIJ"

    /// - Parameter simulatorOptions: Added to the simulator's command line.
    init(
        partitions: Int = 3, simulatorOptions: [String] = [], clockOffset: Int64? = nil
    ) throws {
        directory = try TemporaryDirectory("installation")
        self.partitions = partitions
        kafka = try TestKafka([
            ("jobs", partitions), ("outcomes", partitions), ("dead-letters", 1), ("changelog", partitions),
        ])
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "team.p8")
        simulatorArguments =
            [
                "simulator", "--directory", directory.path, "--stop-with-input", "--ready-file",
                directory.file("simulator.ready"), "--log", directory.file("pushes.jsonl"), "--key",
                "\(Self.keyID):\(Self.teamID):\(directory.file("team.p8"))",
            ] + simulatorOptions
        simulator = try FakeClock.start(simulatorArguments + ["--port", "0"], offset: clockOffset, directory)
        let directory = directory
        try simulator.waits(for: "the simulator is ready") { directory.read("simulator.ready") != nil }
        let address = try #require(directory.read("simulator.ready")).split(separator: "\n")[0]
        simulatorPort = String(address.split(separator: ":")[1])
    }

    /// Ends the simulator and starts it again on its port; what it logs goes on in the same file.
    func restartSimulator(with signal: Int32, clockOffset: Int64? = nil) throws {
        simulator.signal(signal)
        try simulator.wait()
        try? FileManager.default.removeItem(atPath: directory.file("simulator.ready"))
        simulator = try FakeClock.start(
            simulatorArguments + ["--port", simulatorPort], offset: clockOffset, directory)
        try simulator.waits(for: "the simulator is ready") { directory.read("simulator.ready") != nil }
    }

    /// The least a worker needs, with short waits.
    ///
    /// - Parameters:
    ///   - group: of the workers, if it is not the one of all.
    ///   - consumer: properties of the consumer.
    ///   - more: further sections.
    func configuration(
        delivery: String = "{}", group: String? = nil,
        consumer: String = "{fetch.wait.max.ms: 10, session.timeout.ms: 6000, heartbeat.interval.ms: 500}",
        more: String = ""
    ) -> String {
        """
        kafka:
          bootstrap-servers: "\(kafka.bootstrapServers)"
          group-id: \(group ?? kafka.group)
          topics:
            jobs: \(kafka.topic("jobs"))
            outcomes: \(kafka.topic("outcomes"))
            dead-letters: \(kafka.topic("dead-letters"))
          consumer-properties: \(consumer)
        apns: {environment: custom, host: localhost, port: \(simulatorPort), ca-file: ca.pem}
        apps:
          - name: news
            topics: [com.example.news]
            credential: {type: token, key-file: team.p8, key-id: \(Self.keyID), team-id: \(Self.teamID)}
        delivery: \(delivery)
        admin: {listen: "127.0.0.1:0"}
        \(more)
        """
    }

    /// Starts a worker and waits until it has partitions.
    func startWorker(delivery: String = "{retry: {initial: 50ms, maximum: 200ms}}") throws -> ChildProcess {
        workers += 1
        let path = try directory.write(configuration(delivery: delivery), to: "worker\(workers).yaml")
        let ready = "worker\(workers).ready"
        let worker = try ChildProcess(
            Executables.sluice,
            ["run", "-c", path, "--stop-with-input", "--ready-file", directory.file(ready)])
        try worker.waits(for: "the worker has partitions") { directory.read(ready) != nil }
        return worker
    }

    /// What the simulator has judged so far: `apns-id` and status of each push.
    func pushes() -> [(apnsID: String, status: Int)] {
        (directory.read("pushes.jsonl") ?? "").split(separator: "\n").compactMap { line in
            guard let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any],
                let identifier = object["apnsId"] as? String, let status = object["status"] as? Int
            else { return nil }
            return (identifier, status)
        }
    }

    // MARK: Jobs

    /// Produces jobs and waits until Kafka has them.
    func produce(_ jobs: [EncodedJob]) throws {
        try kafka.produce(to: "jobs", jobs.map { NewRecord($0) })
    }

    /// A valid job for a random device.
    static func job(_ random: inout SeededRandom, number: Int, structured: Bool = false) -> EncodedJob {
        let push = PushDescription(
            deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
            payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
        return structured ? JobEncoder.structured(push) : JobEncoder.binary(push)
    }
}

/// Reads outcomes and keeps them.
final class OutcomeTail {
    private let reader: TopicReader
    private var decoded = 0
    private(set) var outcomes: [OutcomeSummary] = []
    private(set) var unreadable = 0

    init(_ installation: Installation) throws {
        reader = try TopicReader(installation.kafka, "outcomes", partitions: installation.partitions)
    }

    func poll() {
        reader.poll()
        for record in reader.records[decoded...] {
            if let outcome = record.value.flatMap({ OutcomeSummary(json: $0) }) {
                outcomes.append(outcome)
            } else {
                unreadable += 1
            }
        }
        decoded = reader.records.count
    }

    /// Places of the jobs that have an outcome.
    var jobs: Set<TopicPartitionOffset> {
        Set(
            outcomes.map {
                TopicPartitionOffset(
                    topic: $0.sourceTopic, partition: $0.partition, start: .offset($0.offset))
            })
    }

    /// Waits until so many jobs have an outcome.
    func wait(for count: Int, of worker: ChildProcess, timeout: Duration = .seconds(120)) throws {
        try worker.waits(for: "\(count) jobs have an outcome", timeout: timeout) {
            poll()
            return outcomes.count >= count && jobs.count >= count
        }
    }
}
