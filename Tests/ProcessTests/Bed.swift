import Foundation
import HTTP2
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

struct BedOptions {
    /// Number of partitions of the topics for jobs, outcomes and the changelog.
    var partitions = 3
    /// Added to the simulator's command line.
    var simulator: [String] = []
    /// Faults by script that the simulator plays; nil for none.
    var faults: String?
    /// Whether the simulator models the devices, with which the recorder compares outcomes at the end. A restart of the
    /// simulator forgets them.
    var hasDevices = false
    /// Apps and devices of the simulator, whose events become jobs; nil for no devices.
    var devices: String?
    /// How far the clocks of simulator and workers are ahead, in seconds.
    var clockOffset: Int64 = 0
    /// Whether Kafka runs in the test's process, which can inject failures. Excludes the brokers of the environment.
    var embedsKafka = false
}

/// Settings of a worker: the least it needs, with short waits, unless a test changes them.
struct WorkerOptions {
    /// Section `delivery`.
    var delivery = "{retry: {initial: 50ms, maximum: 200ms}}"
    /// Nil: the bed's group.
    var group: String?
    var consumerProperties = "{fetch.wait.max.ms: 10, session.timeout.ms: 6000, heartbeat.interval.ms: 500}"
    /// Further sections.
    var more = ""
    /// Variables with further settings.
    var environment: [String: String] = [:]
}

/// Runs a test with whole processes: Kafka, a simulator and workers. Ends them all, whether the test fails or not.
///
/// Workers that `body` leaves running get SIGTERM, and must end with exit status 0. After an error all are killed, and
/// a timeout shows the ends of the workers' logs.
func withBed(
    _ options: BedOptions = BedOptions(), sourceLocation: SourceLocation = #_sourceLocation,
    _ body: (Bed) throws -> Void
) throws {
    let bed = try Bed(options)
    do {
        try body(bed)
        while let worker = bed.running.last { try worker.end(sourceLocation: sourceLocation) }
    } catch {
        for worker in bed.running { worker.keepLog() }
        throw bed.withLogs(error)
    }
}

/// Kafka, a simulator and workers, each a process of its own. `withBed` makes a bed and ends it.
final class Bed {
    let directory: TemporaryDirectory
    let kafka: TestKafka
    let partitions: Int
    /// How far the clocks of processes that start now are ahead, in seconds.
    var clockOffset: Int64
    /// Outcomes of all jobs.
    let outcomes: OutcomeTail
    private var simulator: ChildProcess
    private let simulatorArguments: [String]
    private let simulatorPort: String
    /// Instants between which the simulator first started, in milliseconds since the epoch, by this machine's clock.
    let simulatorStart: ClosedRange<Int64>
    /// Address of the devices' page; nil when the simulator models no devices.
    let page: String?
    private var workers: [WorkerProcess] = []
    private var workersStarted = 0

    static let keyID = "ABC123DEFG"
    static let teamID = "DEF123GHIJ"
    /// The embedded cluster answers transactions and forgets their offsets.
    static let hasTransactions = TestKafka.realBrokers != nil

    fileprivate init(_ options: BedOptions) throws {
        let directory = try TemporaryDirectory("bed")
        self.directory = directory
        partitions = options.partitions
        clockOffset = options.clockOffset
        let topics = [
            ("jobs", options.partitions), ("outcomes", options.partitions), ("dead-letters", 1),
            ("changelog", options.partitions), ("switches", 1),
        ]
        let kafka = try options.embedsKafka ? TestKafka(embedding: topics) : TestKafka(topics)
        self.kafka = kafka
        outcomes = try OutcomeTail(kafka, partitions: partitions)
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "team.p8")
        var devices: [String] = []
        if let text = options.devices {
            devices = [
                "--devices", "--http-port", "0", "--apps", try directory.write(text, to: "apps.yaml"),
                "--device-jobs", kafka.bootstrapServers, "--device-jobs-topic", kafka.topic("jobs"),
            ]
        }
        if let text = options.faults {
            devices += ["--faults", try directory.write(text, to: "faults.yaml"), "--error-budget", "off"]
        }
        simulatorArguments =
            [
                "simulator", "--directory", directory.path, "--stop-with-input", "--ready-file",
                directory.file("simulator.ready"), "--log", directory.file("pushes.jsonl"), "--log-tokens",
                "--key", "\(Self.keyID):\(Self.teamID):\(directory.file("team.p8"))",
            ] + (options.hasDevices ? ["--devices", "--http-port", "0"] : []) + options.simulator
            + devices
        let before = Self.milliseconds
        simulator = try FakeClock.start(
            simulatorArguments + ["--port", "0"], offset: options.clockOffset, directory)
        try simulator.waits(for: "the simulator is ready") { directory.read("simulator.ready") != nil }
        simulatorStart = before...max(before, Self.milliseconds)
        let ready = try #require(directory.read("simulator.ready")).split(separator: "\n")
        simulatorPort = String(ready[0].split(separator: ":")[1])
        page = ready.first { $0.hasPrefix("page ") }.map { String($0.dropFirst(5)) }
    }

    /// By the clocks of workers and simulator, in milliseconds since the epoch.
    var now: Int64 { Self.milliseconds + clockOffset * 1_000 }

    private static var milliseconds: Int64 { Int64(Date().timeIntervalSince1970 * 1_000) }

    // MARK: Simulator

    /// Ends the simulator and starts it again on its port. Its log continues in the same file.
    func restartSimulator(with signal: Int32) throws {
        simulator.signal(signal)
        try simulator.wait()
        try? FileManager.default.removeItem(atPath: directory.file("simulator.ready"))
        simulator = try FakeClock.start(
            simulatorArguments + ["--port", simulatorPort], offset: clockOffset, directory)
        try simulator.waits(for: "the simulator is ready") { directory.read("simulator.ready") != nil }
    }

    /// Pushes that the simulator has judged so far.
    func pushes() -> [AuditedArrival] {
        (directory.read("pushes.jsonl") ?? "").split(separator: "\n").compactMap {
            AuditedArrival(line: Data($0.utf8))
        }
    }

    // MARK: Workers

    /// Workers that the test has not ended, oldest first.
    var running: [WorkerProcess] { workers.filter { !$0.isEnded } }

    /// The text of a configuration file.
    func configuration(_ options: WorkerOptions = WorkerOptions()) -> String {
        """
        kafka:
          bootstrap-servers: "\(kafka.bootstrapServers)"
          group-id: \(options.group ?? kafka.group)
          topics:
            jobs: \(kafka.topic("jobs"))
            outcomes: \(kafka.topic("outcomes"))
            dead-letters: \(kafka.topic("dead-letters"))
          consumer-properties: \(options.consumerProperties)
        apns: {environment: custom, host: localhost, port: \(simulatorPort), ca-file: ca.pem}
        apps:
          - name: news
            topics: [com.example.news]
            credential: {type: token, key-file: team.p8, key-id: \(Self.keyID), team-id: \(Self.teamID)}
        delivery: \(options.delivery)
        admin: {listen: "127.0.0.1:0"}
        \(options.more)
        """
    }

    /// Variables that give a worker a store, in a directory of the bed's.
    func storeEnvironment(
        _ name: String = "store", hasChangelog: Bool, hasTransactions: Bool = Bed.hasTransactions
    ) -> [String: String] {
        [
            "SLUICE_STORE__DIRECTORY": directory.file(name),
            "SLUICE_STORE__CHANGELOG": hasChangelog ? "on" : "off",
            "SLUICE_STORE__TRANSACTIONS": hasChangelog && hasTransactions ? "on" : "off",
            "SLUICE_KAFKA__TOPICS__CHANGELOG": kafka.topic("changelog"),
            "SLUICE_KAFKA__TOPICS__SWITCHES": kafka.topic("switches"),
        ]
    }

    /// Starts a worker.
    func launch(_ options: WorkerOptions = WorkerOptions(), name: String? = nil) throws -> WorkerProcess {
        workersStarted += 1
        let name = name ?? "worker\(workersStarted)"
        let path = try directory.write(configuration(options), to: "\(name).yaml")
        let readyFile = directory.file("\(name).\(workersStarted).ready")
        let process = try FakeClock.start(
            ["run", "-c", path, "--stop-with-input", "--ready-file", readyFile], offset: clockOffset,
            directory, environment: options.environment)
        let worker = WorkerProcess(name, process, readyFile: readyFile)
        workers.removeAll { $0.isEnded }
        workers.append(worker)
        return worker
    }

    /// Starts a worker and waits until it has partitions, doing `meanwhile`.
    func start(
        _ options: WorkerOptions = WorkerOptions(), meanwhile: () throws -> Void = {}
    ) throws -> WorkerProcess {
        let worker = try launch(options)
        try worker.waitUntilReady(meanwhile: meanwhile)
        return worker
    }

    /// A timeout with the ends of the workers' logs; any other error as it is.
    func withLogs(_ error: any Error) -> any Error {
        guard let error = error as? TimedOut else { return error }
        let logs = running.map { "\($0.name): \($0.log.suffix(2_000))" }
        return Trouble(description: "\(error)\n\(logs.joined(separator: "\n"))")
    }

    struct Trouble: Error, CustomStringConvertible {
        var description: String
    }

    // MARK: Jobs

    /// Produces jobs and waits until Kafka has them.
    func produce(_ jobs: [EncodedJob]) throws {
        try kafka.produce(to: "jobs", jobs.map { NewRecord($0) })
    }

    /// A valid job for a random device.
    static func job(_ random: inout SeededGenerator, number: Int, structured: Bool = false) -> EncodedJob {
        let push = PushDescription(
            deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
            payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
        return structured ? JobEncoder.structured(push) : JobEncoder.binary(push)
    }
}
