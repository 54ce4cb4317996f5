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
    private let stop: StopSignals

    /// Name of the worker's configuration in the directory.
    static let configurationFile = "worker.yaml"

    /// Address behind a name in the simulator's ready file; nil when the file lacks the name.
    private static func address(_ name: String, _ lines: [String]) -> String? {
        lines.first { $0.hasPrefix("\(name) ") }.map { String($0.dropFirst(name.count + 1)) }
    }

    /// Starts all processes and waits until the worker has its partitions.
    /// - Throws: when a process ends or takes too long, with the end of its log; when a stop was requested.
    init(plan: Plan, files: LocalFiles, stop: StopSignals) throws(CommandFailure) {
        self.files = files
        self.stop = stop
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
        try files.write(
            Self.configuration(plan, kafka: bootstrapServers, simulator: simulatorAddress, sandbox: sandbox)
                .text(), to: Self.configurationFile)
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
        var bundle: String
        var token: String
    }

    /// Lines with all addresses and a first push.
    /// - Parameter sample: nil: no token is known.
    func hints(_ sample: Sample?) -> [String] {
        var lines = [
            "page     \(page)", "kafka    \(bootstrapServers), topic \(Self.jobsTopic)",
            "apns     https://localhost:\(Self.port(simulatorAddress))   authority: \(files.path("ca.pem"))",
            "sandbox  https://localhost:\(Self.port(sandboxAddress))",
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
