import Configuration

extension LoadScenario {
    /// Longest time in a scenario.
    private static let longest = Duration.seconds(30 * 86_400)

    /// Reads a scenario.
    ///
    /// - Parameters:
    ///   - name: name of the document in messages.
    ///   - overrides: "path=value" each, such as `workers.shards=2` or `loads.campaign.arrivals.rate=500/s`.
    /// - Throws: every mistake, with key and line.
    public static func read(
        _ text: String, name: String, overrides: [String] = []
    ) throws(ConfigurationError) -> LoadScenario {
        var document = try ConfigurationValue.parse(text, name: name)
        for override in overrides { try document.apply(override: override) }
        var scale = 1.0
        if case .map(let entries) = document.content,
            case .scalar(let value, _) = entries.first(where: { $0.key == "time-scale" })?.value.content
        {
            scale = Double(value).flatMap { (1e-4...1).contains($0) ? $0 : nil } ?? 1
        }
        var scenario = try SettingsDocument.read(document, name: name) { reader in
            ScenarioReader(scale: scale).read(reader)
        }
        scenario.text = overrides.isEmpty ? text : document.yaml
        scenario.overrides = overrides
        return scenario
    }
}

/// Reads the sections of a scenario, and scales their times.
private struct ScenarioReader {
    let scale: Double

    private static let longest = Duration.seconds(30 * 86_400)

    func read(_ root: SectionReader) -> LoadScenario {
        let name =
            root.text("name", required: true, help: "name of the scenario") { Self.nameFault($0) } ?? ""
        let description = root.text("description", help: "what the scenario shows") ?? ""
        let seed = root.integer("seed", 0...Int.max, default: 1, help: "seed of all random choices") ?? 1
        _ = root.number("time-scale", 1e-4...1, default: 1, help: "factor of all times; rates stay")
        let producers = root.integer("producers", 1...64, default: 1, help: "threads that produce") ?? 1
        let before = root.collector.problems.count
        let phases = readPhases(root)
        let knowsEnd = root.collector.problems.count == before
        let apps = readApps(root)
        let target = root.section("target", readTarget)
        let workers = root.section("workers", readWorkers)
        // Phases with mistakes have other durations than their author meant.
        let end = knowsEnd ? phases.reduce(0) { $0 + $1.duration } : .infinity
        let simulator = root.section("simulator") { readSimulator($0, end: end) }
        let devices = root.section("devices", readDevices)
        let loads = readLoads(root, phases, apps)
        let actions = root.sectionList("actions", most: 10_000) { readAction($0, workers.count) }
        let names = loads.map(\.name) + phases.map(\.name)
        let thresholds = root.scalars("thresholds", kind: "figure: bound") { figure, bound in
            ThresholdRule.parse(figure, bound, scopes: names)
        }
        if simulator.hasDevices, devices.churnPerMinute > 0 {
            root.problem(
                at: "devices.churn-per-minute",
                "excludes `simulator.devices`: the simulator's devices keep their tokens")
        }
        if loads.contains(where: { $0.delivery == .holdWhileOffline }) {
            if workers.store == .off, workers.count > 0 {
                root.problem("loads", "`delivery: hold-while-offline` needs a store; set workers.store")
            }
            if simulator.hasDevices {
                root.problem("loads", "`delivery: hold-while-offline` excludes `simulator.devices`")
            }
        }
        let jobs = loads.reduce(0) { sum, load in
            load.phases.reduce(sum) { $0 + load.rate * phases[$1].rateFactor * phases[$1].duration }
        }
        if jobs > Double(JobLedger.mostJobs) {
            root.problem(
                "loads",
                "make more than \(JobLedger.mostJobs) jobs; lower their rates, or shorten the phases")
        }
        if loads.count > 200 { root.problem("loads", "has \(loads.count) loads; at most 200 are possible") }
        for load in loads {
            guard case .bursts(let every, _) = load.arrival else { continue }
            let bursts = load.phases.reduce(0) { $0 + phases[$1].duration / every }
            if bursts > 100_000 {
                root.problem("loads", "load \(load.name) has more than 100,000 bursts; lengthen `every`")
            }
        }
        if Double(devices.count) * devices.offlineShare > 5_000_000 {
            root.problem(at: "devices.offline-share", "makes more than 5,000,000 devices offline")
        }
        if target.server != nil, simulator.faults != nil || simulator.hasDevices {
            root.problem("simulator", "has no effect with target.kind \(target.kind.rawValue)")
        }
        if target.server != nil, actions.contains(where: { $0.kind == .outage }) {
            root.problem("actions", "an outage needs a simulator of the run")
        }
        let kinds = phases.map(\.kind)
        if !phases.isEmpty, !kinds.contains(.main) {
            root.problem("phases", "at least one phase is `kind: main`")
        }
        if let drain = kinds.firstIndex(of: .drain), drain != kinds.count - 1 {
            root.problem("phases", "only the last phase can be `kind: drain`")
        }
        return LoadScenario(
            name: name, description: description, seed: UInt64(seed), timeScale: scale, producers: producers,
            target: target, workers: workers, simulator: simulator, devices: devices, apps: apps,
            loads: loads,
            phases: phases, actions: actions, thresholds: thresholds, text: "", overrides: [])
    }

    /// Returns the fault of a name, which becomes a part of file names and of names of figures.
    private static func nameFault(_ text: String) -> String? {
        let isRight =
            text.count <= 60
            && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-" || $0 == "_") }
        return isRight ? nil : "`\(text)` is no name: at most 60 of the characters a-z, A-Z, 0-9, - and _"
    }

    // MARK: Values

    private func time(
        _ reader: SectionReader, _ key: String, default value: Duration, _ help: String
    ) -> Double {
        Self.seconds(reader.duration(key, .zero...Self.longest, default: value, help: help)) * scale
    }

    private func optionalTime(_ reader: SectionReader, _ key: String, _ help: String) -> Double? {
        reader.contains(key) ? time(reader, key, default: .zero, help) : absent(reader, key)
    }

    private func absent(_ reader: SectionReader, _ key: String) -> Double? {
        reader.expect([key])
        return nil
    }

    static func seconds(_ duration: Duration) -> Double {
        Double(duration.components.seconds) + Double(duration.components.attoseconds) / 1e18
    }

    private func milliseconds(_ reader: SectionReader, _ key: String, _ help: String) -> Double {
        Self.seconds(reader.duration(key, .zero...(.seconds(3_600)), default: .zero, help: help)) * 1_000
    }

    private func isOn(_ reader: SectionReader, _ key: String, _ help: String) -> Bool {
        reader.scalar(key, kind: "true|false", default: "false", required: false, help: help) { text in
            ["true": true, "on": true, "false": false, "off": false][text]
        } ?? false
    }

    // MARK: Sections

    /// Reads the phases. A drain follows the last phase if none is named.
    private func readPhases(_ root: SectionReader) -> [LoadScenario.Phase] {
        var names: Set<String> = []
        let phases = root.sections("phases", help: "phases of the run, in order") { reader in
            let name =
                reader.text("name", required: true, help: "name of the phase") { Self.nameFault($0) } ?? ""
            if !names.insert(name).inserted {
                reader.problem("name", "`\(name)` is the name of another phase")
            }
            let kind = reader.choice(
                "kind", default: RunResult.PhaseKind.main, help: "warm-up, main or drain")
            // The length of a drain is a limit, which no time scale shortens.
            var duration = time(
                reader, "duration", default: .seconds(30), "length; the longest length of a drain")
            if kind == .drain { duration /= scale }
            if duration <= 0 { reader.problem("duration", "must be greater than 0") }
            let factor = reader.number("rate-factor", 0...1e6, default: 1, help: "factor of the rates") ?? 1
            return LoadScenario.Phase(name: name, kind: kind, duration: duration, rateFactor: factor)
        }
        if phases.count > 1_000 {
            root.problem("phases", "has \(phases.count) phases; at most 1,000 are possible")
        }
        if phases.contains(where: { $0.kind == .drain }) { return phases }
        return phases + [LoadScenario.Phase(name: "drain", kind: .drain, duration: 30, rateFactor: 0)]
    }

    private func readApps(_ root: SectionReader) -> [LoadScenario.App] {
        var names: Set<String> = []
        let apps = root.sectionList("apps", most: 1_000) { reader in
            let name =
                reader.text("name", required: true, help: "name of the app") { Self.nameFault($0) } ?? ""
            if !names.insert(name).inserted { reader.problem("name", "`\(name)` is the name of another app") }
            let bundle = reader.text("bundle", default: "com.example.\(name)", help: "bundle identifier")
            let share = reader.number("share", 0...1e6, default: 1, help: "share of the jobs") ?? 1
            let credential = reader.choice(
                "credential", default: LoadScenario.Credential.shared,
                help: "shared, own (a pool of its own) or refused (a key that APNs refuses)")
            return LoadScenario.App(
                name: name, bundle: bundle ?? "", share: share, credential: credential,
                settings: reader.raw("settings"))
        }
        if !apps.isEmpty { return apps }
        return [
            LoadScenario.App(
                name: "news", bundle: "com.example.news", share: 1, credential: .shared, settings: nil)
        ]
    }

    private func readTarget(_ reader: SectionReader) -> LoadScenario.Target {
        let kind = reader.choice(
            "kind", default: LoadScenario.TargetKind.embedded, help: "embedded, kafka, simulator or staging")
        let servers = reader.text("bootstrap-servers", help: "brokers of a cluster that runs already")
        if kind == .kafka, servers == nil { reader.problem("bootstrap-servers", "is required by kind kafka") }
        if kind == .embedded, servers != nil {
            reader.problem("bootstrap-servers", "excludes kind embedded; write `kind: kafka`")
        }
        let properties = reader.scalars("properties", kind: "property of librdkafka: value") { name, value in
            .success(LoadScenario.Property(name: name, value: value))
        }
        let topics = reader.section("topics") { reader in
            LoadScenario.Topics(
                jobs: reader.text("jobs", default: "sluice.jobs", help: "topic of jobs") ?? "",
                outcomes: reader.text("outcomes", default: "sluice.outcomes", help: "topic of outcomes")
                    ?? "",
                deadLetters: reader.text(
                    "dead-letters", default: "sluice.dead-letters", help: "topic of dead letters") ?? "",
                changelog: reader.text(
                    "changelog", default: "sluice.changelog", help: "topic of the changelog")
                    ?? "")
        }
        let group = reader.text("group", default: "bench", help: "consumer group of the workers") ?? "bench"
        let partitions = reader.integer("partitions", 1...2_000, help: "partitions of an embedded cluster")
        let hasServer = kind == .simulator || kind == .staging
        if !hasServer, reader.contains("apns") { reader.problem("apns", "needs kind simulator or staging") }
        let server = reader.section("apns") { reader -> LoadScenario.Server? in
            let host = reader.text("host", required: hasServer, help: "host of the provider API")
            let port =
                reader.integer("port", 1...65_535, default: 443, help: "port of the provider API") ?? 443
            let caFile = reader.text("ca-file", help: "PEM file of the authorities to trust")
            let keyFile = reader.text("key-file", required: hasServer, help: "signing key (.p8)")
            let keyID = reader.text("key-id", required: hasServer, help: "identifier of the key")
            let teamID = reader.text("team-id", required: hasServer, help: "identifier of the team")
            let tokens = reader.text(
                "tokens-file", required: kind == .staging, help: "file of the device tokens to push to")
            let cap = reader.number("rate-cap", 0.001...1e6, default: 200, help: "greatest rate per second")
            guard hasServer else { return nil }
            return LoadScenario.Server(
                host: host ?? "", port: port, caFile: caFile, keyFile: keyFile ?? "", keyID: keyID ?? "",
                teamID: teamID ?? "", tokensFile: tokens, rateCap: cap ?? 200)
        }
        return LoadScenario.Target(
            kind: kind, bootstrapServers: servers, properties: properties, topics: topics, group: group,
            partitions: partitions, server: server)
    }

    private func readWorkers(_ reader: SectionReader) -> LoadScenario.Workers {
        let count = reader.integer("count", 0...64, default: 1, help: "workers; 0: they run elsewhere") ?? 1
        let shards =
            reader.integer("shards", 1...64, default: 1, help: "threads that push, of each worker") ?? 1
        let store = reader.choice(
            "store", default: LoadScenario.Store.off,
            help: "off, without-changelog, with-changelog or with-transactions")
        let hasIDs = isOn(reader, "instance-ids", "whether each worker has a name in its group")
        let admin = reader.texts(
            "admin", kind: "list of host:port", required: false, help: "admin endpoints of workers elsewhere"
        ) { $0.contains(":") ? nil : "`\($0)` is not host:port" }
        if !admin.isEmpty, count > 0 {
            reader.problem("admin", "needs `count: 0`, workers that run elsewhere")
        }
        return LoadScenario.Workers(
            count: count, shards: shards, store: store, hasInstanceIDs: hasIDs,
            settings: reader.raw("settings"),
            admin: admin)
    }

    /// - Parameter end: longest length of the run in seconds.
    private func readSimulator(_ reader: SectionReader, end: Double) -> LoadScenario.Simulator {
        let answers = reader.scalars("answers", kind: "reason: share") {
            (name, text) -> Result<(String, Double), SettingFault> in
            guard let share = Double(text), (0...1).contains(share) else {
                return .failure(SettingFault("`\(text)` is no share, 0 to 1"))
            }
            return .success((name, share))
        }
        let budget = reader.scalar(
            "error-budget", kind: "integer|off", default: "1000", required: false,
            help: "errors after which a connection ends"
        ) { text -> Int?? in
            if text == "off" { return .some(nil) }
            guard let number = Int(text), (1...1_000_000_000).contains(number) else { return nil }
            return number
        }
        return LoadScenario.Simulator(
            port: reader.integer("port", 0...65_535, default: 0, help: "port; 0: any free one") ?? 0,
            threads: reader.integer("threads", 1...64, default: 1, help: "threads of the simulator") ?? 1,
            isNull: isOn(reader, "accept-all", "whether each push is accepted without a look at it"),
            delay: milliseconds(reader, "delay", "delay of each answer"),
            delaySpread: milliseconds(reader, "delay-spread", "greatest random further delay"),
            answers: Dictionary(answers) { $1 },
            hasDevices: isOn(reader, "devices", "whether devices are modelled"),
            knowsAppsOnly: isOn(reader, "only-apps", "whether only the scenario's apps exist"),
            errorBudget: budget ?? 1_000, faults: faults(reader, end: end),
            arguments: reader.texts(
                "arguments", kind: "list", required: false, help: "further arguments of `sluice simulator`"
            ) { _ in nil })
    }

    /// Returns the timeline of faults as a document of its own, with scaled times.
    ///
    /// A fault that begins after the end of the run is a mistake. Other mistakes of a fault are those of its own reader.
    private func faults(_ reader: SectionReader, end: Double) -> String? {
        let again = optionalTime(reader, "faults-repeat", "time after which the timeline begins again")
        guard let value = reader.raw("faults") else { return nil }
        guard case .list(let entries) = value.content else {
            reader.problem("faults", "must be a list, but is \(value.kind)")
            return nil
        }
        if entries.isEmpty { return nil }
        for (index, entry) in entries.enumerated() {
            guard case .map(let members) = entry.content,
                case .scalar(let text, _)? = members.first(where: { $0.key == "at" })?.value.content,
                let written = DurationText.parse(text), written <= Self.longest,
                case let at = Self.seconds(written) * scale, at >= end
            else { continue }
            let times = [end, at].map { DurationText.format(.milliseconds(Int64($0 * 1_000))) }
            reader.problem(
                at: "faults[\(index)].at",
                "the run has ended by then; it lasts at most \(times[0]), drain included"
                    + (scale == 1 ? "" : ", and time-scale \(scale) makes `\(text)` to \(times[1])"))
        }
        var document: [ConfigurationValue.Entry] = []
        func add(_ key: String, _ content: ConfigurationValue.Content) {
            document.append(
                .init(
                    key: key, keyLocation: value.location,
                    value: ConfigurationValue(content: content, location: value.location)))
        }
        if let again {
            add("repeat", .scalar(DurationText.format(.milliseconds(Int64(again * 1_000))), plain: true))
        }
        add("faults", .list(entries.map { $0.scaled(by: scale, keys: ["at", "for", "every", "period"]) }))
        return ConfigurationValue(content: .map(document), location: value.location).yaml
    }

    private func readDevices(_ reader: SectionReader) -> LoadScenario.Devices {
        let count = reader.integer("count", 1...100_000_000, default: 100_000, help: "devices") ?? 1
        let popularity = reader.scalar(
            "popularity", kind: "uniform|zipf(s)", default: "uniform", required: false,
            help: "how often each device is pushed to"
        ) { text -> LoadScenario.Popularity? in
            if text == "uniform" { return .uniform }
            guard text.hasPrefix("zipf("), text.hasSuffix(")"),
                let exponent = Double(text.dropFirst(5).dropLast()),
                exponent > 0, exponent <= 10
            else { return nil }
            return .zipf(exponent)
        }
        let offline = reader.number(
            "offline-share", 0...1, default: 0, help: "devices offline at the beginning")
        let churn = reader.number(
            "churn-per-minute", 0...1e9, default: 0, help: "tokens that change in a minute")
        return LoadScenario.Devices(
            count: count, popularity: popularity ?? .uniform, offlineShare: offline ?? 0,
            returnAt: optionalTime(reader, "return-at", "time at which the first offline device is back"),
            returnOver: time(reader, "return-over", default: .seconds(1), "time within which all are back"),
            churnPerMinute: (churn ?? 0) / scale)
    }

    // MARK: Loads

    private func readLoads(
        _ root: SectionReader, _ phases: [LoadScenario.Phase], _ apps: [LoadScenario.App]
    ) -> [LoadScenario.Load] {
        var names = Set(phases.map(\.name))
        return root.sections("loads", help: "loads, all at once") { reader in
            let name =
                reader.text("name", required: true, help: "name of the load") { Self.nameFault($0) } ?? ""
            if !names.insert(name).inserted {
                reader.problem("name", "`\(name)` is the name of another load or phase")
            }
            let (arrival, rate) = reader.section("arrivals", readArrival)
            let chosen = reader.texts(
                "phases", kind: "list of phases", required: false, help: "phases in which the load runs"
            ) { name in phases.contains { $0.name == name } ? nil : "there is no phase `\(name)`" }
            let indices = phases.indices.filter {
                chosen.isEmpty ? phases[$0].kind != .drain : chosen.contains(phases[$0].name)
            }
            if indices.contains(where: { phases[$0].kind == .drain }) {
                reader.problem("phases", "a load can't run in a drain, which waits for the last outcomes")
            }
            let shares = reader.scalars("apps", kind: "app: share") {
                (app, text) -> Result<(String, Double), SettingFault> in
                guard apps.contains(where: { $0.name == app }) else {
                    return .failure(SettingFault("there is no app `\(app)`"))
                }
                guard let share = Double(text), share >= 0, share <= 1e6 else {
                    return .failure(SettingFault("`\(text)` is no share"))
                }
                return .success((app, share))
            }
            if !shares.isEmpty, shares.allSatisfy({ $0.1 == 0 }) {
                reader.problem("apps", "no app has a share")
            }
            var load = LoadScenario.Load(
                name: name, arrival: arrival, rate: rate, phases: indices, apps: Dictionary(shares) { $1 },
                priorities: readPriorities(reader), payloadBytes: 200...200, mode: .binary,
                collapseShare: 0, collapseIdentifiers: 1, deliverAfter: nil, ttl: nil, pushType: .alert,
                delivery: .accept, avoidsDuplicates: false, malformedShare: 0)
            load.payloadBytes = reader.section("payload") { reader in
                reader.scalar(
                    "bytes", kind: "integer or range 40..4096", default: "200", required: false,
                    help: "size of the payload"
                ) { Self.range($0) { Int($0).flatMap { (40...4_096).contains($0) ? $0 : nil } } } ?? 200...200
            }
            load.mode = reader.choice(
                "mode", default: .binary, help: "encoding of the jobs: binary, packed or structured")
            (load.collapseShare, load.collapseIdentifiers) = reader.section("collapse") { reader in
                (
                    reader.number("share", 0...1, default: 0, help: "jobs with a collapse identifier") ?? 0,
                    reader.integer("identifiers", 1...1_000_000_000, default: 10, help: "identifiers") ?? 10
                )
            }
            load.deliverAfter = reader.scalar(
                "deliver-after", kind: "duration or range, at most 30d", default: nil, required: false,
                help: "time from the intended time to deliver-at"
            ) { text in
                Self.range(text) { part in
                    DurationText.parse(part).flatMap { time in
                        time <= Self.longest ? Self.seconds(time) * scale : nil
                    }
                }
            }
            if reader.contains("ttl") {
                load.ttl = Self.seconds(
                    reader.duration(
                        "ttl", .seconds(1)...Self.longest, default: .seconds(3_600), help: "life of a job"))
            } else {
                reader.expect(["ttl"])
            }
            load.pushType = reader.choice("push-type", default: .alert, help: "alert, background or voip")
            load.delivery = reader.choice(
                "delivery", default: .accept, help: "accept, or hold-while-offline")
            load.avoidsDuplicates =
                reader.text("duplicates", kind: "allow|avoid", default: "allow", help: "allow or avoid") {
                    ["allow", "avoid"].contains($0) ? nil : "`\($0)` is not one of allow, avoid"
                } == "avoid"
            load.malformedShare =
                reader.number("malformed-share", 0...1, default: 0, help: "jobs that are malformed") ?? 0
            if load.pushType == .background, load.priorities.contains(where: { $0.priority == 10 }) {
                load.priorities = [.init(priority: 5, share: 1)]
            }
            return load
        }
    }

    private func readArrival(_ reader: SectionReader) -> (LoadScenario.Arrival, Double) {
        enum Kind: String, CaseIterable { case poisson, constant, bursts, trace, closed }
        let kind = reader.choice(
            "kind", default: Kind.poisson, help: "poisson, constant, bursts, trace or closed")
        let hasRate = kind == .poisson || kind == .constant || kind == .bursts
        if !hasRate, reader.contains("rate") {
            reader.problem("rate", "has no effect with kind \(kind.rawValue)")
        }
        let rate = reader.scalar(
            "rate", kind: "rate such as 2000/s or 90/m", default: nil, required: hasRate,
            help: "jobs per time"
        ) { Self.rate($0) }
        func only(_ key: String, _ wanted: Kind) {
            if kind != wanted, reader.contains(key) {
                reader.problem(key, "has an effect only with kind \(wanted.rawValue)")
            }
        }
        only("every", .bursts)
        only("length", .bursts)
        only("file", .trace)
        only("in-flight", .closed)
        let every = time(reader, "every", default: .seconds(5), "time between the beginnings of two bursts")
        let length = time(reader, "length", default: .seconds(1), "length of a burst")
        if kind == .bursts, length <= 0 || length > every {
            reader.problem("length", "must be greater than 0, and at most `every`")
        }
        let file = reader.text("file", required: kind == .trace, help: "file of recorded arrivals")
        let inFlight = reader.integer(
            "in-flight", 1...1_000_000, default: 100, help: "jobs without an outcome")
        let arrival: LoadScenario.Arrival =
            switch kind {
            case .poisson: .poisson
            case .constant: .constant
            case .bursts: .bursts(every: max(every, 1e-3), length: max(length, 1e-3))
            case .trace: .trace(file: file ?? "")
            case .closed: .closed(inFlight: inFlight ?? 100)
            }
        return (arrival, hasRate ? rate ?? 0 : 0)
    }

    private func readPriorities(_ reader: SectionReader) -> [LoadScenario.PriorityShare] {
        guard reader.isMap("priority") else {
            let priority = reader.scalar(
                "priority", kind: "10, 5, 1, or a map of shares", default: "10", required: false,
                help: "priority"
            ) { text in Int(text).flatMap { [10, 5, 1].contains($0) ? $0 : nil } }
            return [.init(priority: priority ?? 10, share: 1)]
        }
        let shares = reader.scalars("priority", kind: "priority: share") {
            (name, text) -> Result<LoadScenario.PriorityShare, SettingFault> in
            guard let priority = Int(name), [10, 5, 1].contains(priority) else {
                return .failure(SettingFault("`\(name)` is no priority: 10, 5 or 1"))
            }
            guard let share = Double(text), share >= 0, share <= 1e6 else {
                return .failure(SettingFault("`\(text)` is no share"))
            }
            return .success(LoadScenario.PriorityShare(priority: priority, share: share))
        }
        return shares.isEmpty ? [.init(priority: 10, share: 1)] : shares
    }

    private func readAction(_ reader: SectionReader, _ workers: Int) -> LoadScenario.Action? {
        let at = time(reader, "at", default: .zero, "time of the action")
        let kind = reader.choice(
            "do", of: LoadScenario.ActionKind.self, default: nil, required: true, help: "the action")
        let worker = reader.integer("worker", 1...64, default: 1, help: "number of the worker") ?? 1
        let duration = optionalTime(reader, "for", "length of the action")
        guard let kind else { return nil }
        if [.pauseWorker, .outage, .pauseKafka].contains(kind), duration == nil {
            reader.problem("for", "is required: length of the action")
        }
        return LoadScenario.Action(at: at, kind: kind, worker: worker, duration: duration)
    }

    // MARK: Texts

    /// Reads "a" or "a..b".
    private static func range<Bound: Comparable>(
        _ text: String, _ parse: (String) -> Bound?
    ) -> ClosedRange<Bound>? {
        let parts = text.split(separator: "..", omittingEmptySubsequences: false).map {
            String($0).trimmed
        }
        guard let low = parts.first.flatMap(parse), parts.count <= 2, let high = parts.last.flatMap(parse),
            low <= high
        else { return nil }
        return low...high
    }

    /// Reads "2000/s", "90/m", "10/h", or a number of jobs per second.
    private static func rate(_ text: String) -> Double? {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false).map { String($0).trimmed }
        guard parts.count <= 2, let number = Double(parts[0]), number >= 0, number <= 1e7,
            let unit = parts.count == 1 ? 1 : ["s": 1.0, "m": 60, "h": 3_600][parts[1]]
        else { return nil }
        return number / unit
    }
}

extension String {
    /// The text without spaces at its ends.
    var trimmed: String {
        String(drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }
}
