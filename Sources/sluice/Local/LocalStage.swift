import Configuration
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
            /// Whether jobs that name no environment are sent to the sandbox.
            var isSandbox = false
        }

        var apps: [App]
        var kafkaPort: UInt16 = 0
        var simulatorPort: UInt16 = 0
        /// Port of the sandbox environment.
        var sandboxPort: UInt16 = 0
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
    /// Address of APNs' sandbox environment, host:port.
    let sandboxAddress: String
    /// Address of the page.
    let page: String
    /// Path of the socket at which the worker takes commands; nil: the directory's path is too long for a socket.
    let socket: String?
    private let stop: StopSignals

    /// Name of the worker's configuration in the directory.
    static let configurationFile = "worker.yaml"

    /// Path of the worker's socket in a directory; nil: the system accepts no path of this length.
    static func socket(in directory: String) -> String? {
        let path = "\(directory)/worker.sock"
        return path.utf8.count <= Configuration.mostSocketBytes ? path : nil
    }

    /// Address behind a name in the simulator's ready file; nil when the file lacks the name.
    private static func address(_ name: String, _ lines: [String]) -> String? {
        lines.first { $0.hasPrefix("\(name) ") }.map { String($0.dropFirst(name.count + 1)) }
    }

    /// Starts all processes and waits until the worker has its partitions.
    /// - Throws: when a process ends or takes too long, with the end of its log; when a stop was requested.
    init(plan: Plan, files: LocalFiles, stop: StopSignals) throws(CommandFailure) {
        self.files = files
        self.stop = stop
        socket = Self.socket(in: files.directory)
        kafka = try LocalProcess.kafka(
            port: plan.kafkaPort,
            topics: [
                (Self.jobsTopic, plan.partitions), (Self.outcomesTopic, plan.partitions),
                (Self.deadLettersTopic, 2),
            ], files: files)
        simulator = try LocalProcess.simulator(
            port: plan.simulatorPort,
            arguments: [
                "--devices", "--http-port", "\(plan.pagePort)", "--sandbox-port", "\(plan.sandboxPort)",
            ] + plan.simulatorArguments, files: files)
        bootstrapServers = try kafka.waitUntilReady(files, stop: stop)[0]
        let addresses = try simulator.waitUntilReady(files, stop: stop)
        guard let page = Self.address("page", addresses), let sandbox = Self.address("sandbox", addresses)
        else {
            throw CommandFailure(
                .internalError, "the simulator doesn't name its addresses\n\(simulator.logTail)")
        }
        simulatorAddress = addresses[0]
        sandboxAddress = sandbox
        self.page = page
        var configuration = Self.configuration(
            plan, kafka: bootstrapServers, simulator: simulatorAddress, sandbox: sandbox)
        configuration.socket = socket
        try files.write(configuration.text(), to: Self.configurationFile)
        worker = try LocalProcess.worker(files: files)
        _ = try worker.waitUntilReady(files, stop: stop)
    }

    /// Starts a worker in place of the stopped one, and waits until it has its partitions.
    func restartWorker() throws(CommandFailure) {
        worker = try LocalProcess.worker(files: files)
        _ = try worker.waitUntilReady(files, stop: stop)
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
        /// Name of the worker's app.
        var app: String
        var bundle: String
        var token: String
    }

    /// Lines with all addresses, a first push and a first command.
    /// - Parameter sample: nil: no token is known.
    func hints(_ sample: Sample?) -> [String] {
        var lines = [
            "page     \(page)", "kafka    \(bootstrapServers), topic \(Self.jobsTopic)",
            "apns     https://localhost:\(Self.port(simulatorAddress))   authority: \(files.path("ca.pem"))",
            "sandbox  https://localhost:\(Self.port(sandboxAddress))",
            "worker   configuration and logs: \(files.directory)", "ctl      \(controlHint)", "",
        ]
        if let sample {
            lines += [
                "Push to \(sample.device):", "",
                "  sluice produce --bootstrap-servers \(bootstrapServers) --topic \(sample.bundle) --alert 'Hello' \\",
                "    --device-token \(sample.token)", "",
            ]
            if let socket {
                let option = "--socket \(Self.quotedForShell(socket))"
                lines += [
                    "Pause its app, and resume it:", "",
                    "  sluice ctl pause app \(sample.app) \(option)",
                    "  sluice ctl resume app \(sample.app) \(option)", "",
                ]
            }
        }
        return lines + ["Ctrl-C ends all."]
    }

    /// Command that shows the worker's switches, or the reason why there is none.
    private var controlHint: String {
        guard let socket else {
            return "none, because a socket in the directory would have a path of more than "
                + "\(Configuration.mostSocketBytes) bytes; choose a shorter --directory, or TMPDIR"
        }
        return "sluice ctl status --socket \(Self.quotedForShell(socket))"
    }

    /// Returns a path as a word of a shell's command, in quotes where the shell needs them.
    static func quotedForShell(_ path: String) -> String {
        let isPlain = path.utf8.allSatisfy {
            switch $0 {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: "-_./+,:@%".utf8.contains($0)
            }
        }
        return isPlain ? path : "'" + path.replacing("'", with: "'\\''") + "'"
    }

    static let stopped = CommandFailure(.failure, "stopped")

    private static func port(_ address: String) -> String {
        String(address.split(separator: ":").last ?? "")
    }

    private static func configuration(
        _ plan: Plan, kafka: String, simulator: String, sandbox: String
    ) -> LocalConfiguration {
        func server(_ address: String) -> LocalConfiguration.Server {
            LocalConfiguration.Server(host: "localhost", port: port(address), caFile: "ca.pem")
        }
        return LocalConfiguration(
            bootstrapServers: kafka, group: plan.group,
            // The embedded cluster answers an empty fetch only after this.
            consumerProperties: ["fetch.wait.max.ms": "10"], server: server(simulator),
            credentials: [
                LocalConfiguration.Credential(name: "team"),
                LocalConfiguration.Credential(name: "team-sandbox", sandbox: server(sandbox)),
            ],
            apps: plan.apps.map { app in
                let credentials = app.isSandbox ? ["team-sandbox", "team"] : ["team", "team-sandbox"]
                return LocalConfiguration.App(name: app.name, bundle: app.bundle, credentials: credentials)
            }, shards: plan.shards, retry: plan.retry)
    }

    private var processes: [LocalProcess] { [worker, simulator, kafka] }

    /// Throws when a process has ended, with the end of its log.
    func check() throws(CommandFailure) {
        for process in processes { try process.check() }
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
