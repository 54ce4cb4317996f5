import APNSSimulator
import Configuration
import Foundation
import LoadTest

/// A process's place in a stage, which outlives the process.
enum StageSlot: Hashable, Sendable, CustomStringConvertible {
    case kafka, simulator
    /// Workers are numbered from 1.
    case worker(Int)

    /// Name of the process in results, logs and file names.
    var description: String {
        switch self {
        case .kafka: "kafka"
        case .simulator: "simulator"
        case .worker(let number): "worker-\(number)"
        }
    }

    var role: RunResult.Role {
        switch self {
        case .kafka: .kafka
        case .simulator: .simulator
        case .worker: .worker
        }
    }
}

/// The processes of a stage: starts them, sends them signals and notices their ends. A single thread owns them. Nothing here
/// waits, except ``end(_:within:)``, ``play(_:stop:)`` and ``waitUntilReady(_:stop:)``.
final class StageProcesses {
    let files: LocalFiles
    private let plan: StagePlan
    private let sampler: BenchSampler
    private var members: [StageSlot: Member] = [:]
    /// Bootstrap servers of the cluster, as workers and the stage use them.
    var bootstrapServers = ""
    /// Address of the simulator, host:port; nil before it is ready.
    private(set) var simulatorAddress: String?
    /// Counts of the simulators that have ended.
    private(set) var simulatorCounts: SimulatorCounts?
    /// Timeline that the simulator plays from its start.
    var faults = FaultTimeline()

    private struct Member {
        var process: LocalProcess
        /// Whether the end of the process is a failure.
        var mustRun = true
        var isEnded = false
    }

    init(_ plan: StagePlan, files: LocalFiles, sampler: BenchSampler) {
        self.plan = plan
        self.files = files
        self.sampler = sampler
    }

    // MARK: Start

    /// Starts a process, and does not wait for it.
    func start(_ slot: StageSlot) throws(CommandFailure) {
        let process: LocalProcess
        switch slot {
        case .kafka: process = try startKafka()
        case .simulator: process = try startSimulator()
        case .worker(let number):
            try files.write(
                configuration(of: number).text(with: plan.workers.settings), to: "\(slot).yaml")
            process = try LocalProcess.worker("\(slot)", files: files)
        }
        members[slot] = Member(process: process)
        sampler.begin("\(slot)", slot.role, process: process.identifier)
    }

    private func startKafka() throws(CommandFailure) -> LocalProcess {
        var topics = [
            (plan.topics.jobs, plan.partitions), (plan.topics.outcomes, plan.partitions),
            (plan.topics.deadLetters, min(4, plan.partitions)),
        ]
        if plan.workers.store.hasChangelog { topics.append((plan.topics.changelog, plan.partitions)) }
        return try LocalProcess.kafka(topics: topics, files: files)
    }

    private func startSimulator() throws(CommandFailure) -> LocalProcess {
        guard case .simulator(let options) = plan.apns else {
            throw CommandFailure(.internalError, "the plan has no simulator")
        }
        // A successor has the port of the simulator before.
        let port = simulatorAddress.flatMap { UInt16($0.split(separator: ":").last ?? "") } ?? options.port
        var arguments = [
            "--threads", "\(options.threads)", "--latency", "\(options.latency)", "--jitter",
            "\(options.jitter)",
        ]
        if options.isNull {
            arguments.append("--null")
        } else {
            arguments += ["--seed", "\(options.seed)"]
            arguments += ["--error-budget", options.errorBudget.map(String.init) ?? "off"]
            if !options.answers.isEmpty {
                let shares = options.answers.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
                arguments += ["--errors", shares.joined(separator: ",")]
            }
            if !options.deviceReasons.isEmpty {
                let rules = options.deviceReasons.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
                arguments += ["--device-reasons", rules.joined(separator: ",")]
            }
            if options.knowsAppsOnly { arguments += plan.apps.flatMap { ["--app", $0.bundle] } }
            if plan.apps.contains(where: { $0.credential == .refused }) {
                arguments += [
                    "--key", "\(LocalFiles.keyID):\(LocalFiles.teamID):\(files.path(LocalFiles.keyFile))",
                ]
            }
        }
        if !options.faults.entries.isEmpty {
            try writeFaults()
            arguments += ["--faults", files.path(Self.faultsFile)]
        }
        if options.hasDevices {
            arguments += ["--devices", "--http-port", "0"]
            if let declarations = options.declarations {
                try files.write(declarations, to: "apps.yaml")
                arguments += ["--apps", files.path("apps.yaml")]
            }
        }
        return try LocalProcess.simulator(port: port, arguments: arguments + options.arguments, files: files)
    }

    private static let faultsFile = "faults.yaml"

    private func writeFaults() throws(CommandFailure) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted, .withoutEscapingSlashes]
        do {
            try files.write(String(decoding: encoder.encode(faults), as: UTF8.self), to: Self.faultsFile)
        } catch let failure as CommandFailure {
            throw failure
        } catch {
            throw CommandFailure(.internalError, "can't write the faults: \(error)")
        }
    }

    /// Makes the simulator play another timeline from its beginning, and waits until the timeline is in force.
    func play(_ timeline: FaultTimeline, stop: StopSignals) throws(CommandFailure) {
        faults = timeline
        try writeFaults()
        // The simulator writes the file again when the timeline is in force.
        unlink(LocalProcess.readyFile("\(StageSlot.simulator)", files))
        signal(.simulator, SIGHUP)
        try waitUntilReady(.simulator, stop: stop)
    }

    // MARK: Configuration of workers

    private func configuration(of number: Int) throws(CommandFailure) -> LocalConfiguration {
        let server: LocalConfiguration.Server
        var environment = "production"
        var credential = LocalConfiguration.Credential(name: "team")
        switch plan.apns {
        case .simulator:
            let port = simulatorAddress?.split(separator: ":").last.map(String.init) ?? "0"
            server = LocalConfiguration.Server(host: "localhost", port: port, caFile: "ca.pem")
        case .server(let target):
            server = LocalConfiguration.Server(
                host: target.host, port: "\(target.port)", caFile: target.caFile.map(Self.absolute))
            environment =
                Configuration.APNS.Environment.allCases.first { $0.host == target.host }?.rawValue ?? "custom"
            credential.keyFile = Self.absolute(target.keyFile)
            credential.keyID = target.keyID
            credential.teamID = target.teamID
        case .elsewhere: throw CommandFailure(.internalError, "the workers of this run have no server")
        }
        var credentials = [credential]
        let rates = plan.ratesPerSecond
        let apps = zip(plan.apps, rates).map { app, rate in
            if app.credential != .shared {
                credential.name = "app-\(app.name)"
                // A key identifier that the simulator does not know.
                if app.credential == .refused { credential.keyID = "REFUSEDKEY" }
                credentials.append(credential)
                credential = credentials[0]
            }
            return LocalConfiguration.App(
                name: app.name, bundle: app.bundle,
                credentials: [app.credential == .shared ? "team" : "app-\(app.name)"], ratePerSecond: rate,
                settings: app.settings)
        }
        var result = LocalConfiguration(
            bootstrapServers: bootstrapServers, group: plan.group,
            instanceID: plan.workers.hasInstanceIDs ? "\(StageSlot.worker(number))" : nil,
            topics: plan.topics, environment: environment, server: server, credentials: credentials,
            apps: apps)
        switch plan.cluster {
        case .embedded:
            // The embedded cluster answers an empty fetch only after fetch.wait.max.ms, and a rebalance waits for a lost
            // member until its session ends. A session must outlast the three seconds that a new group waits.
            result.consumerProperties = [
                "fetch.wait.max.ms": "10", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500",
            ]
        case .given(_, let properties):
            result.properties = properties.mapValues { $0 }
            for name in properties.keys where name.hasSuffix("-file") {
                result.properties[name] = properties[name].map(Self.absolute)
            }
        }
        result.shards = plan.workers.shards
        let store = plan.workers.store
        if store != .off {
            result.store =
                "{directory: \(ConfigurationValue.quoted("store-\(number)")), changelog: \(store.hasChangelog ? "on" : "off"), "
                + "transactions: \(store == .withTransactions ? "on" : "off")}"
        }
        result.admin = "127.0.0.1:0"
        return result
    }

    /// Path of a file of the caller's, for processes whose paths count from the stage's directory.
    private static func absolute(_ path: String) -> String {
        URL(filePath: path).standardizedFileURL.path(percentEncoded: false)
    }

    // MARK: State

    /// Numbers of the workers that have not been removed, in rising order.
    var workers: [Int] {
        members.keys.compactMap { if case .worker(let number) = $0 { number } else { nil } }.sorted()
    }

    /// Takes the addresses of a process that is ready.
    /// - Returns: false while the process is not ready.
    /// - Throws: when the process has ended.
    func isReady(_ slot: StageSlot) throws(CommandFailure) -> Bool {
        guard let process = members[slot]?.process,
            let lines = try process.readyLines(LocalProcess.readyFile("\(slot)", files))
        else { return false }
        switch slot {
        case .kafka: bootstrapServers = lines[0]
        case .simulator: simulatorAddress = lines[0]
        case .worker:
            // Settings of the plan may have turned the endpoint off.
            if let line = lines.first(where: { $0.hasPrefix("admin ") }),
                let address = AdminAddress(String(line.dropFirst("admin ".count)))
            {
                sampler.poll("\(slot)", at: address)
            }
        }
        return true
    }

    /// Waits until a process is ready. Blocks for seconds.
    func waitUntilReady(_ slot: StageSlot, stop: StopSignals) throws(CommandFailure) {
        _ = try members[slot]?.process.waitUntilReady(files, stop: stop)
        _ = try isReady(slot)
    }

    /// Failure of a process that is not ready in time.
    func notReady(_ slot: StageSlot, within limit: Duration) -> CommandFailure {
        members[slot]?.process.notReady(within: limit) ?? CommandFailure(.failure, "\(slot) does not run")
    }

    /// Throws when a process has ended that must run, with the end of its log.
    func check() throws(CommandFailure) {
        for (_, member) in members where member.mustRun { try member.process.check() }
    }

    /// Whether a process has ended. Its end is no failure from now on.
    func hasEnded(_ slot: StageSlot) -> Bool {
        guard let member = members[slot] else { return true }
        guard member.process.exitStatus() != nil else { return false }
        noteEnd(slot)
        return true
    }

    private func noteEnd(_ slot: StageSlot) {
        guard let member = members[slot], !member.isEnded else { return }
        members[slot]?.isEnded = true
        sampler.end("\(slot)", cpuSeconds: member.process.cpuSeconds ?? 0)
        sampler.endPolling("\(slot)")
        if slot == .simulator, member.process.exitStatus() == 0,
            let counts = SimulatorCounts(file: files.path("simulator.json"))
        {
            if simulatorCounts == nil { simulatorCounts = counts } else { simulatorCounts?.add(counts) }
        }
    }

    /// How a process ended, in words; nil when it ended in order.
    func badEnding(_ slot: StageSlot) -> String? {
        guard let process = members[slot]?.process, process.exitStatus() != 0 else { return nil }
        return "\(slot) \(process.ending)"
    }

    // MARK: Signals

    /// Sends a signal. SIGTERM and SIGKILL make the end of the process expected.
    func signal(_ slot: StageSlot, _ signal: Int32) {
        if signal == SIGTERM || signal == SIGKILL { members[slot]?.mustRun = false }
        members[slot]?.process.signal(signal)
    }

    /// Forgets a process that has ended.
    func remove(_ slot: StageSlot) { members[slot] = nil }

    /// Ends processes in order, all at once. Blocks until they have ended, and kills those that exceed the limit.
    /// - Returns: processes that did not end in order, in words.
    func end(_ slots: [StageSlot], within limit: Duration) -> [String] {
        let present = slots.filter { members[$0]?.isEnded == false }
        for slot in present {
            // A process whose threads are stopped takes no other signal.
            signal(slot, SIGCONT)
            members[slot]?.mustRun = false
            members[slot]?.process.requestStop()
        }
        let deadline = ContinuousClock.now + limit
        var bad: [String] = []
        for slot in present {
            if members[slot]?.process.stop(within: max(.zero, deadline - .now)) == false {
                bad.append(badEnding(slot) ?? "\(slot) did not end in time")
            }
            noteEnd(slot)
        }
        return bad
    }
}

extension StagePlan.Store {
    var hasChangelog: Bool { self == .withChangelog || self == .withTransactions }
}

extension StagePlan {
    /// Limits of the apps' pushes in each worker, in the order of the apps: with them all workers together stay below
    /// the cap of a server on another machine, retries included. Nil without such a server.
    var ratesPerSecond: [Double?] {
        guard case .server(let server) = apns, !Server.isThisMachine(server.host) else {
            return apps.map { _ in nil }
        }
        let shares = apps.reduce(0) { $0 + max(0, $1.share) }
        return apps.map { app in
            let share = shares > 0 ? max(0, app.share) / shares : 1 / Double(apps.count)
            return max(0.001, server.rateCap * share / Double(max(1, mostWorkersAtATime)))
        }
    }
}
