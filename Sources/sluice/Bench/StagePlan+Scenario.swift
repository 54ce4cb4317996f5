import APNSSimulator
import Configuration
import DeviceModel
import Foundation
import LoadTest

extension StagePlan {
    /// Makes the plan of a scenario's processes.
    ///
    /// - Parameters:
    ///   - directory: directory that relative names of files in the scenario are relative to.
    ///   - consent: permission of the command line to reach other machines.
    ///   - traces: traces of the loads that have one.
    /// - Throws: for a timeline of faults that can't be read; for more jobs than an embedded cluster holds.
    init(
        _ scenario: LoadScenario, directory: String, consent: Consent, traces: [Int: ArrivalTrace]
    ) throws(CommandFailure) {
        self.init()
        self.consent = consent
        let target = scenario.target
        if let servers = target.bootstrapServers {
            cluster = .given(
                bootstrapServers: servers,
                properties: Dictionary(target.properties.map { ($0.name, $0.value) }) { $1 })
        }
        topics = Topics(
            jobs: target.topics.jobs, outcomes: target.topics.outcomes,
            deadLetters: target.topics.deadLetters,
            changelog: target.topics.changelog)
        hasNamedTopics = Self.namesTopics(scenario.text)
        group = target.group
        func path(_ name: String) -> String {
            URL(filePath: name, relativeTo: URL(filePath: directory, directoryHint: .isDirectory)).path(
                percentEncoded: false)
        }
        if let server = target.server {
            apns = .server(
                Server(
                    host: server.host, port: server.port, caFile: server.caFile.map(path),
                    keyFile: path(server.keyFile), keyID: server.keyID, teamID: server.teamID,
                    allowList: consent.allowList ?? server.tokensFile.map(path),
                    rateCap: consent.rateCap ?? server.rateCap))
        } else if scenario.workers.count == 0, scenario.simulator.port == 0 {
            // Workers elsewhere can't know a free port, so they have a server of their own.
            apns = .elsewhere
        } else {
            apns = .simulator(try Self.simulator(scenario))
        }
        let rates = Self.highestRates(scenario)
        apps = scenario.apps.enumerated().map { index, app in
            let credential: App.Credential =
                switch app.credential {
                case .shared: .shared
                case .own: .own
                case .refused: .refused
                }
            return App(
                name: app.name, bundle: app.bundle, credential: credential, share: rates[index],
                settings: app.settings)
        }
        let store: Store =
            switch scenario.workers.store {
            case .off: .off
            case .withoutChangelog: .withoutChangelog
            case .withChangelog: .withChangelog
            case .withTransactions: .withTransactions
            }
        workers = Workers(
            count: scenario.workers.count, shards: scenario.workers.shards, store: store,
            hasInstanceIDs: scenario.workers.hasInstanceIDs, settings: scenario.workers.settings,
            adminAddresses: scenario.workers.admin)
        actions = scenario.actions.map { Action(at: $0.at, Self.kind($0)) }
        // Neither a closed loop nor a trace has a rate in the scenario.
        let isOpen = scenario.loads.allSatisfy { load in
            switch load.arrival {
            case .closed, .trace: false
            case .poisson, .constant, .bursts: true
            }
        }
        highestRate = isOpen ? scenario.highestRate : .infinity
        length = scenario.spans.last?.upperBound ?? .infinity
        if let own = target.partitions {
            partitions = own
        } else if case .embedded = cluster {
            partitions = try Self.partitions(scenario, traces)
        }
    }

    /// Greatest rate of each app in any phase, in jobs per second. Without rates, the apps' shares.
    private static func highestRates(_ scenario: LoadScenario) -> [Double] {
        var rates = scenario.apps.map { _ in 0.0 }
        for phase in scenario.phases.indices {
            var sums = scenario.apps.map { _ in 0.0 }
            for load in scenario.loads where load.phases.contains(phase) {
                let shares = scenario.appShares(of: load)
                let all = shares.reduce(0, +)
                guard all > 0 else { continue }
                var rate = load.rate * scenario.phases[phase].rateFactor
                if case .bursts(let every, let length) = load.arrival { rate *= every / length }
                for app in sums.indices { sums[app] += rate * shares[app] / all }
            }
            rates = zip(rates, sums).map { max($0, $1) }
        }
        return rates.contains { $0 > 0 } ? rates : scenario.apps.map(\.share)
    }

    /// Whether a scenario names its topics of jobs, outcomes and dead letters.
    private static func namesTopics(_ text: String) -> Bool {
        guard let document = try? ConfigurationValue.parse(text, name: "scenario"),
            case .map(let sections) = document.content,
            case .map(let target)? = sections.first(where: { $0.key == "target" })?.value.content,
            case .map(let topics)? = target.first(where: { $0.key == "topics" })?.value.content
        else { return false }
        return ["jobs", "outcomes", "dead-letters"].allSatisfy { name in
            topics.contains { $0.key == name && $0.value.content != .empty }
        }
    }

    private static func kind(_ action: LoadScenario.Action) -> ActionKind {
        switch action.kind {
        case .restartWorker: .restartWorker(action.worker)
        case .killWorker: .killWorker(action.worker, downSeconds: action.duration)
        case .pauseWorker: .pauseWorker(action.worker, seconds: action.duration ?? 0)
        case .addWorker: .addWorker
        case .removeWorker: .removeWorker
        case .rollingRestart: .rollingRestart
        case .outage: .outage(seconds: action.duration ?? 0)
        case .pauseKafka: .pauseKafka(seconds: action.duration ?? 0)
        }
    }

    private static func simulator(_ scenario: LoadScenario) throws(CommandFailure) -> Simulator {
        let settings = scenario.simulator
        var simulator = Simulator()
        simulator.port = UInt16(settings.port)
        simulator.threads = settings.threads
        simulator.isNull = settings.isNull
        simulator.latency = settings.delay
        simulator.jitter = settings.delaySpread
        simulator.answers = settings.answers
        if scenario.devices.churnPerMinute > 0 {
            simulator.deviceReasons[TokenNames.stalePrefix] = "Unregistered"
        }
        simulator.knowsAppsOnly = settings.knowsAppsOnly
        simulator.errorBudget = settings.errorBudget
        simulator.hasDevices = settings.hasDevices
        simulator.seed = scenario.seed
        simulator.arguments = settings.arguments
        if settings.hasDevices { simulator.declarations = declarations(scenario) }
        if let faults = settings.faults {
            do {
                simulator.faults = try FaultTimeline.parse(faults, name: "simulator.faults")
            } catch {
                throw CommandFailure(.configuration, error.description)
            }
        }
        return simulator
    }

    /// Returns apps and devices for the simulator.
    private static func declarations(_ scenario: LoadScenario) -> String {
        let apps = scenario.apps.map {
            "  - {bundle: \($0.bundle), name: \($0.name), purposes: [alert, voip], background-modes: [remote-notification, voip]}"
        }
        let offline = Int(Double(scenario.devices.count) * scenario.devices.offlineShare)
        var groups: [String] = []
        if scenario.devices.count > offline {
            groups.append("  - {count: \(scenario.devices.count - offline), name: Phone}")
        }
        if offline > 0 {
            groups.append("  - {count: \(offline), name: Absent phone, state: {airplane: true}}")
        }
        return """
            apps:
            \(apps.joined(separator: "\n"))
            devices:
            \(groups.joined(separator: "\n"))
            settings: {seed: \(scenario.seed), unknown-tokens: refuse, maximum-devices: \(max(1, scenario.devices.count))}

            """
    }

    /// Tokens of the scenario's devices.
    /// - Parameter allowed: texts of the tokens that may be pushed to; nil: any.
    static func names(_ scenario: LoadScenario, allowed: [[UInt8]]?) -> TokenNames {
        if let allowed, !allowed.isEmpty {
            return .listed(allowed.map { String(decoding: $0, as: UTF8.self) })
        }
        guard scenario.simulator.hasDevices else { return .made(seed: scenario.seed) }
        let seed = scenario.seed
        return .modelled { device, bundle in
            TokenName(seed: seed, device: device, bundle: bundle, purpose: .alert).text
        }
    }

    /// Returns partitions of an embedded cluster that hold all jobs of the run.
    private static func partitions(
        _ scenario: LoadScenario, _ traces: [Int: ArrivalTrace]
    ) throws(CommandFailure) -> Int {
        // Each app of a load that waits for its devices gets an event of each absence and of each return.
        let waiting = scenario.loads.filter { $0.delivery == .holdWhileOffline }.map(scenario.appShares)
        let apps = scenario.apps.indices.count { app in waiting.contains { $0[app] > 0 } }
        var jobs = Double(scenario.devices.count) * scenario.devices.offlineShare * 2 * Double(apps)
        var bytes = 650
        for (index, load) in scenario.loads.enumerated() {
            if let arrivals = scenario.arrivals(of: index, trace: traces[index]) {
                jobs += arrivals.expected
            } else {
                // A closed loop has no rate; more than this is not expected of a machine.
                jobs += 20_000 * load.phases.reduce(0) { $0 + scenario.phases[$1].duration }
            }
            bytes = max(bytes, load.payloadBytes.upperBound + 300)
        }
        let needed = partitions(jobs: Int(min(jobs, 1e9)), bytes: bytes)
        guard needed <= mostPartitions else {
            throw CommandFailure(
                .configuration,
                "about \(Numbers.grouped(Int(min(jobs, 1e9)))) jobs need \(Numbers.grouped(needed)) partitions of an embedded cluster, which gets at most \(Numbers.grouped(mostPartitions)): shorten the phases, lower the rates, use target.kind kafka, or set target.partitions for a load that is surely smaller"
            )
        }
        return needed
    }
}
