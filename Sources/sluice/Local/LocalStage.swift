import DeviceModel
import Foundation

/// Kafka, an APNs simulator with devices, and a worker, as processes on this machine.
final class LocalStage {
    /// Ports and content of the stage. Port 0: any free port.
    struct Plan {
        /// An app of the worker.
        struct App {
            var name: String
            var bundle: String
        }

        var apps: [App]
        var kafkaPort: UInt16 = 0
        var simulatorPort: UInt16 = 0
        var pagePort: UInt16 = 0
        /// Partitions of the topics of jobs and outcomes.
        var partitions = 4
        /// Further arguments of `sluice simulator`.
        var simulatorArguments: [String] = []
        var shards = 1
        /// Section `delivery.retry` of the worker's configuration.
        var retry = "{}"
        /// Consumer group of the worker.
        var group: String
    }

    static let jobsTopic = "sluice.jobs"
    static let outcomesTopic = "sluice.outcomes"
    static let deadLettersTopic = "sluice.dead-letters"

    let files: LocalFiles
    let kafka: LocalProcess
    let simulator: LocalProcess
    private(set) var worker: LocalProcess
    let bootstrapServers: String
    /// Address of APNs, host:port.
    let simulatorAddress: String
    /// Address of the page.
    let page: String
    private let stop: StopSignals

    private static let patience = Duration.seconds(60)
    /// Start of the page's line in the simulator's ready file.
    private static let pageLine = "page "

    /// Starts all processes and waits until the worker has its partitions.
    /// - Throws: when a process ends or takes too long, with the end of its log; when a stop was requested.
    init(plan: Plan, files: LocalFiles, stop: StopSignals) throws(CommandFailure) {
        self.files = files
        self.stop = stop
        for name in ["kafka", "simulator", "worker"] {
            try? FileManager.default.removeItem(atPath: files.path("\(name).ready"))
        }
        let common = ["--stop-with-input", "--ready-file"]
        kafka = try LocalProcess(
            "kafka",
            ["kafka", "--port", "\(plan.kafkaPort)"] + common + [
                files.path("kafka.ready"), "--topic", "\(Self.jobsTopic):\(plan.partitions)", "--topic",
                "\(Self.outcomesTopic):\(plan.partitions)", "--topic", "\(Self.deadLettersTopic):2",
            ], directory: files.directory)
        simulator = try LocalProcess(
            "simulator",
            ["simulator", "--port", "\(plan.simulatorPort)"] + common + [
                files.path("simulator.ready"), "--directory", files.directory, "--summary-file",
                files.path("simulator.json"), "--key",
                "\(LocalFiles.keyID):\(LocalFiles.teamID):\(files.path("AuthKey.p8"))", "--devices",
                "--http-port", "\(plan.pagePort)",
            ] + plan.simulatorArguments, directory: files.directory)
        bootstrapServers = try Self.ready(kafka, files, stop)[0]
        let addresses = try Self.ready(simulator, files, stop)
        guard let line = addresses.first(where: { $0.hasPrefix(Self.pageLine) }) else {
            throw CommandFailure(
                .internalError, "the simulator names no address of its page\n\(simulator.logTail)")
        }
        simulatorAddress = addresses[0]
        page = String(line.dropFirst(Self.pageLine.count))
        try files.write(
            Self.configuration(plan, kafka: bootstrapServers, simulator: simulatorAddress), to: "sluice.yaml")
        worker = try Self.startWorker(files)
        _ = try Self.ready(worker, files, stop)
    }

    private static func startWorker(_ files: LocalFiles) throws(CommandFailure) -> LocalProcess {
        try LocalProcess(
            "worker",
            [
                "run", "--config", files.path("sluice.yaml"), "--stop-with-input", "--ready-file",
                files.path("worker.ready"),
            ], directory: files.directory)
    }

    /// Starts a worker in place of the stopped one, and waits until it has its partitions.
    func restartWorker() throws(CommandFailure) {
        worker = try Self.startWorker(files)
        _ = try Self.ready(worker, files, stop)
    }

    /// Numbers of the devices; nil when the simulator doesn't answer. Blocks for ten seconds at most.
    func devices() -> WorldStatus? {
        struct Status: Decodable { var world: WorldStatus }
        let address = page.dropFirst("http://".count).prefix { $0 != "/" }
        return LocalHTTP.get("/api/status", from: String(address)).flatMap {
            try? JSONDecoder().decode(Status.self, from: $0).world
        }
    }

    /// A token to push to at once.
    struct Sample {
        /// Name of the device.
        var device: String
        var bundle: String
        var token: String
    }

    /// Lines with all addresses and a first push.
    /// - Parameter sample: nil: no token is known.
    func hints(_ sample: Sample?) -> [String] {
        var lines = [
            "page     \(page)", "kafka    \(bootstrapServers), topic \(Self.jobsTopic)",
            "apns     https://localhost:\(simulatorAddress.split(separator: ":").last ?? "")   authority: \(files.path("ca.pem"))",
            "worker   configuration and logs: \(files.directory)", "",
        ]
        if let sample {
            lines += [
                "Push to \(sample.device):", "",
                "  sluice produce --bootstrap-servers \(bootstrapServers) --topic \(sample.bundle) --alert 'Hello' \\",
                "    --device-token \(sample.token)", "",
            ]
        }
        return lines + ["Ctrl-C ends all."]
    }

    /// Waits for a process. Returns the lines of its ready file.
    private static func ready(
        _ process: LocalProcess, _ files: LocalFiles, _ stop: StopSignals
    ) throws(CommandFailure) -> [String] {
        let file = files.path("\(process.name).ready")
        guard try process.waitUntilReady(file, within: patience, stop: stop) != nil else { throw stopped }
        let text = (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
        let lines = text.split(separator: "\n").map(String.init)
        return lines.isEmpty ? [""] : lines
    }

    static let stopped = CommandFailure(.failure, "stopped")

    private static func configuration(_ plan: Plan, kafka: String, simulator: String) -> String {
        let apps = plan.apps.map {
            "  - {name: \"\($0.name)\", topics: [\"\($0.bundle)\"], credential: team}"
        }
        return """
            kafka:
              bootstrap-servers: "\(kafka)"
              group-id: \(plan.group)
              # The embedded cluster answers an empty fetch only after this.
              consumer-properties: {fetch.wait.max.ms: 10}
            apns:
              environment: custom
              host: localhost
              port: \(simulator.split(separator: ":").last ?? "")
              ca-file: ca.pem
            credentials:
              team: {type: token, key-file: AuthKey.p8, key-id: \(LocalFiles.keyID), team-id: \(LocalFiles.teamID)}
            apps:
            \(apps.joined(separator: "\n"))
            delivery:
              shards: \(plan.shards)
              drain-deadline: 5s
              retry: \(plan.retry)
            metrics: {stats-interval: 1s}
            admin: {listen: off}
            """
    }

    private var processes: [LocalProcess] { [worker, simulator, kafka] }

    /// Throws when a process has ended, with the end of its log.
    func check() throws(CommandFailure) {
        for process in processes where process.exitStatus() != nil {
            throw CommandFailure(.failure, "\(process.name) \(process.ending)\n\(process.logTail)")
        }
    }

    /// Stops all processes, the worker first. Returns how each process ended that did not end in order.
    func end() -> [String] {
        var bad: [String] = []
        for process in processes where !process.stop(within: .seconds(process === worker ? 40 : 10)) {
            bad.append("\(process.name) \(process.ending)")
        }
        return bad
    }
}
