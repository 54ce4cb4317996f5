import APNSSimulator
import ArgumentParser
import Configuration
import DeviceModel
import Foundation
import Gateway
import HTTP2

/// Options of the simulator's devices.
struct DeviceOptions: ParsableArguments {
    @Flag(
        help: """
            Model the devices behind APNs, and serve a page and an HTTP API that show them. Without --apps, a device \
            appears for each device token that a push names.
            """)
    var devices = false

    @Option(
        help: ArgumentHelp(
            "Apps, devices and settings in a YAML file: Schemas/simulator-apps.schema.json.",
            valueName: "path"))
    var apps: String?

    @Option(help: ArgumentHelp("Port of the page and the API. 0: any free port.", valueName: "port"))
    var httpPort: UInt16 = 8080

    @Option(
        help: ArgumentHelp(
            "IP address of the page and the API. Another one than a loopback address needs a token, which is made and "
                + "printed if --http-token-file is not given.",
            valueName: "address"))
    var httpAddress = "127.0.0.1"

    @Option(
        help: ArgumentHelp(
            "A further host name that requests may be meant for. Repeat for more.", valueName: "name"))
    var httpHost: [String] = []

    @Option(
        help: ArgumentHelp(
            "File with the token that each request needs: `Authorization: Bearer TOKEN`, or `?token=TOKEN` once.",
            valueName: "path"))
    var httpTokenFile: String?

    @Option(
        help: ArgumentHelp(
            "Port of a second APNs server: the other environment of the same devices. 0: any free port.",
            valueName: "port"))
    var sandboxPort: UInt16?

    @Option(
        help: ArgumentHelp(
            "Produce the devices' events as jobs to this Kafka cluster: online, offline, receipt, token-changed and "
                + "unregistered.",
            valueName: "host:port,…"))
    var deviceJobs: String?

    @Option(
        help: ArgumentHelp(
            "Kafka's bootstrap servers in the commands that the page shows. The simulator does not connect to them.",
            valueName: "host:port,…"))
    var hintBootstrapServers: String?

    @Option(help: ArgumentHelp("Topic of these jobs.", valueName: "topic"))
    var deviceJobsTopic = "sluice.jobs"

    func validate() throws {
        if let servers = hintBootstrapServers {
            // The text becomes a part of a command for a shell.
            let isPlain = servers.utf8.allSatisfy { byte in
                byte < 0x80
                    && (Character(Unicode.Scalar(byte)).isLetter || Character(Unicode.Scalar(byte)).isNumber)
                    || ".-_:,[]".utf8.contains(byte)
            }
            guard isPlain, servers.contains(":") else {
                throw ValidationError(
                    "--hint-bootstrap-servers: host:port, several separated by commas, not \(servers)")
            }
        }
        guard !devices else { return }
        let needing: [(String, Bool)] = [
            ("--apps", apps != nil), ("--sandbox-port", sandboxPort != nil),
            ("--device-jobs", deviceJobs != nil),
            ("--hint-bootstrap-servers", hintBootstrapServers != nil),
            ("--http-token-file", httpTokenFile != nil), ("--http-host", !httpHost.isEmpty),
        ]
        for (name, isGiven) in needing where isGiven {
            throw ValidationError("\(name) has an effect only with --devices")
        }
    }
}

/// The devices of `sluice simulator`, with the servers that belong to them.
final class SimulatorDevices {
    let registry: DeviceRegistry
    private let options: DeviceOptions
    private let groups: [AppsFile.DeviceGroup]
    private let jobs: DeviceJobs?
    /// Server of the other environment; nil when none is wanted.
    private(set) var sandbox: Simulator?
    private var service: DeviceService?
    /// Token that was made, to be printed once; nil otherwise.
    private var newToken: String?

    /// Reads the file of apps and connects to Kafka; starts nothing.
    init(_ options: DeviceOptions) throws(CommandFailure) {
        self.options = options
        var file = AppsFile()
        if let path = options.apps {
            do throws(ConfigurationError) {
                file = try AppsFile.load(path)
            } catch {
                throw CommandFailure(.configuration, "\(error)")
            }
        }
        groups = file.devices
        let registry = DeviceRegistry(apps: file.apps, settings: file.settings)
        self.registry = registry
        jobs = try options.deviceJobs.map { (servers) throws(CommandFailure) in
            try DeviceJobs(bootstrapServers: servers, topic: options.deviceJobsTopic, registry: registry)
        }
    }

    /// Binds the ports of the other environment and of the API.
    func prepare(_ simulator: Simulator) throws {
        if let port = options.sandboxPort {
            var other = simulator.options
            other.environment = simulator.options.environment == .production ? .sandbox : .production
            other.port = port
            other.managementPort = simulator.options.managementPort.map { _ in 0 }
            other.threads = 1
            // The log of pushes has a single writer for each file.
            other.pushLog?.path += ".\(other.environment == .sandbox ? "sandbox" : "production")"
            sandbox = try Simulator(options: other, sibling: simulator)
        }
        var settings = DeviceServiceOptions()
        settings.address = options.httpAddress
        settings.port = options.httpPort
        settings.hosts = options.httpHost
        settings.token = try token(isLocal: settings.isLocal)
        settings.tap = jobs?.tap
        var facts = SimulatorFacts(version: BuildInfo.version)
        let isSandbox = simulator.options.environment == .sandbox
        facts.productionPort = isSandbox ? sandbox?.port : simulator.port
        facts.sandboxPort = isSandbox ? simulator.port : sandbox?.port
        facts.bootstrapServers = options.hintBootstrapServers
        do {
            service = try DeviceService(
                registry, options: settings, facts: facts,
                simulators: [simulator, sandbox].compactMap { $0 })
        } catch let error as ServerError {
            throw CommandFailure(.unavailable, "page and API: \(error) (--http-port, --http-address)")
        }
    }

    private func token(isLocal: Bool) throws -> APIToken? {
        if let path = options.httpTokenFile { return try APIToken(file: path) }
        guard !isLocal else { return nil }
        let text = try APIToken.random()
        newToken = text
        return try APIToken(text)
    }

    /// Lets time pass for the devices, serves page and API, and adds the declared devices. Before any APNs server
    /// starts.
    func begin() throws(CommandFailure) {
        // The thread runs first, because it passes the devices' events on before the log drops them.
        service?.start()
        do throws(DeviceFault) {
            try registry.add(groups)
        } catch {
            throw CommandFailure(.configuration, "\(options.apps ?? ""): devices: \(error)")
        }
    }

    /// Starts the server of the other environment, and prints the addresses.
    func start() {
        sandbox?.start()
        if let address = page { Terminal.output("  page and API: \(address)") }
        if let newToken { Terminal.output("  token, which is shown only now: \(newToken)") }
        if let port = sandbox?.port {
            Terminal.output("  \(otherName) environment of the same devices: \(host):\(port)")
        }
        if let port = sandbox?.managementPort {
            Terminal.output("  its channel management: \(host):\(port)")
        }
    }

    private var host: String { sandbox?.options.address ?? "" }
    private var otherName: String { sandbox?.options.environment == .sandbox ? "sandbox" : "production" }

    /// Address of the page; nil before it is bound.
    var page: String? {
        guard let port = service?.port else { return nil }
        let host = options.httpAddress.contains(":") ? "[\(options.httpAddress)]" : options.httpAddress
        return "http://\(host):\(port)/"
    }

    /// Further lines of the ready file.
    var readyLines: [String] {
        [page.map { "page \($0)" }, sandbox.map { "\(otherName) \(host):\($0.port)" }].compactMap { $0 }
    }

    /// Ends the servers and sends what is left to Kafka.
    func stop() {
        sandbox?.stop()
        service?.stop()
        jobs?.finish()
    }

    /// Counts until now.
    var counts: DeviceCounts {
        var counts = DeviceCounts(registry.read { world, now in world.status(now: now) })
        counts.jobs = jobs?.counts.produced
        counts.lostJobs = jobs?.counts.lost
        return counts
    }
}

/// Summary of what the devices have shown, as a line and as a part of the summary file.
struct DeviceCounts: Codable, CustomStringConvertible {
    var devices: Int
    var online: Int
    /// Pushes that reached the devices' part of APNs.
    var pushes: UInt64
    /// Pushes by their latest state.
    var fates: [String: UInt64]
    /// Notifications in all lists.
    var delivered: Int
    /// Jobs that went to Kafka; nil without `--device-jobs`.
    var jobs: Int?
    /// Jobs that Kafka did not take; nil without `--device-jobs`.
    var lostJobs: Int?

    init(_ status: WorldStatus) {
        devices = status.devices
        online = status.online
        pushes = status.pushes
        fates = status.fates
        delivered = status.delivered
    }

    var description: String {
        var text = "devices \(devices), online \(online): pushes \(pushes)"
        for (fate, count) in fates.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) {
            text += ", \(fate) \(count)"
        }
        text += "; notifications in lists \(delivered)"
        if let jobs { text += "; jobs \(jobs)" }
        if let lostJobs, lostJobs > 0 { text += ", lost \(lostJobs)" }
        return text
    }
}
