import Configuration
import Foundation

extension StagePlan {
    /// Greatest number of workers at a time.
    static let mostWorkers = 64

    /// Throws when the plan can't be carried out, with the remedy. Reads the file of allowed tokens.
    /// - Returns: the tokens that may be pushed to; nil: any.
    func check() throws(CommandFailure) -> [[UInt8]]? {
        func wrong(_ text: String) -> CommandFailure { CommandFailure(.configuration, text) }
        guard (0...Self.mostWorkers).contains(workers.count) else {
            throw wrong("workers: 0 to \(Self.mostWorkers), not \(workers.count)")
        }
        guard (1...10_000).contains(partitions) else {
            throw wrong("partitions: 1 to 10000, not \(partitions)")
        }
        if workers.count > 0, apps.isEmpty { throw wrong("apps: name at least one app for the workers") }
        let names = Set([topics.jobs, topics.outcomes, topics.deadLetters, topics.changelog])
        guard names.count == 4 else {
            throw wrong("topics: jobs, outcomes, dead letters and changelog must be four different topics")
        }
        try checkActions()
        try checkCluster()
        try checkSettings()
        let isForWorkersElsewhere = workers.count == 0 && otherClusterHost != nil
        switch apns {
        case .simulator(let simulator):
            if workers.count == 0, simulator.port == 0 {
                throw wrong(
                    "the workers run elsewhere and must know the simulator's port: set a port other than 0")
            }
            let hasFaults = !simulator.faults.entries.isEmpty
            if simulator.isNull, simulator.hasDevices || hasFaults || !simulator.answers.isEmpty {
                throw wrong("a null simulator answers 200 always: it has no devices, answers or faults")
            }
            if simulator.declarations != nil, !simulator.hasDevices {
                throw wrong("declarations of devices need a simulator with devices")
            }
            if hasOutage, simulator.faults.repeats != nil {
                throw wrong("an outage ends the timeline of faults: leave out its `repeat`, or the outage")
            }
        case .elsewhere:
            guard workers.count == 0 else {
                throw CommandFailure(.internalError, "the workers of this run have no server")
            }
            if case .embedded = cluster {
                throw wrong(
                    "workers that run elsewhere can't reach an embedded cluster; use target.kind kafka")
            }
            if hasOutage {
                throw wrong(
                    "an outage needs a simulator of this run: set simulator.port, or leave out the outage")
            }
        case .server(let server):
            if apps.contains(where: { $0.credential == .refused }) {
                throw wrong("a credential that is refused needs a simulator of this run")
            }
            if hasOutage {
                throw wrong("an outage needs a simulator of this run, but the target is \(server.host)")
            }
            let tokens = try server.checked(highestRate: highestRate, confirmedHosts: consent.hosts)
            // Workers elsewhere need list and cap even if the plan's server is this machine.
            if !isForWorkersElsewhere { return tokens }
        }
        guard isForWorkersElsewhere else { return nil }
        return try Self.checkedLoad(
            "workers that run elsewhere", "may push to devices of people", allowList: allowList,
            rateCap: rateCap, highestRate: highestRate)
    }

    /// File with the device tokens that may be pushed to; nil: none is named.
    private var allowList: String? {
        if case .server(let server) = apns {
            server.allowList ?? consent.allowList
        } else {
            consent.allowList
        }
    }

    private var rateCap: Double {
        if case .server(let server) = apns { server.rateCap } else { consent.rateCap ?? Self.standardRateCap }
    }

    /// Greatest rate of jobs that another machine may get, per second; nil: no limit.
    var rateLimit: Double? {
        if case .server(let server) = apns, !Server.isThisMachine(server.host) { return server.rateCap }
        return workers.count == 0 && otherClusterHost != nil ? rateCap : nil
    }

    /// First host of a given cluster that is not this machine; nil without such a host.
    var otherClusterHost: String? {
        guard case .given(let servers, _) = cluster else { return nil }
        return servers.split(separator: ",").lazy.map { Self.host(ofServer: $0) }
            .first { !Server.isThisMachine($0) }
    }

    /// Host of a bootstrap server: the part between `PROTOCOL://` and the port.
    private static func host(ofServer text: Substring) -> String {
        var text = text.drop { $0 == " " }
        if let scheme = text.firstRange(of: "://") { text = text[scheme.upperBound...] }
        if text.hasPrefix("[") { return String(text.dropFirst().prefix { $0 != "]" }) }
        return String(text.prefix { $0 != ":" && $0 != " " })
    }

    /// Jobs in a cluster on another machine may be somebody else's business: such a cluster needs a confirmation, and
    /// topics that the scenario names.
    private func checkCluster() throws(CommandFailure) {
        guard case .given(_, let properties) = cluster else { return }
        for name in ["bootstrap.servers", "metadata.broker.list"]
        where properties[name] != nil || properties["\(name)-file"] != nil {
            throw CommandFailure(
                .configuration, "target.properties: \(name) is set by target.bootstrap-servers")
        }
        guard let host = otherClusterHost else { return }
        guard consent.hosts.contains(host) else {
            throw CommandFailure(
                .configuration,
                "\(host): is a Kafka broker on another machine, whose workers would push the load's jobs; confirm with --confirm-host \(host)\(Self.given(consent.hosts))"
            )
        }
        guard hasNamedTopics else {
            throw CommandFailure(
                .configuration,
                "\(host): is a Kafka broker on another machine, where topics have jobs of others; name the run's own: target.topics.jobs, outcomes and dead-letters"
            )
        }
    }

    /// Confirmed hosts, for a message.
    fileprivate static func given(_ hosts: [String]) -> String {
        hosts.isEmpty ? "" : ", not " + hosts.map { "`\($0)`" }.joined(separator: ", ")
    }

    /// Checks a load that may reach devices of people, which needs an allow-list and a rate below the cap.
    /// - Returns: the tokens that may be pushed to.
    fileprivate static func checkedLoad(
        _ subject: String, _ reason: String, allowList: String?, rateCap: Double, highestRate: Double
    ) throws(CommandFailure) -> [[UInt8]] {
        func wrong(_ text: String) -> CommandFailure { CommandFailure(.configuration, "\(subject): \(text)") }
        guard rateCap > 0, rateCap <= Server.mostRate else {
            throw wrong("the rate cap must be above 0 and at most 10000 pushes per second, not \(rateCap)")
        }
        guard let allowList else {
            throw wrong(
                "\(reason); name a file with the device tokens that may be pushed to, one on each line: --tokens-file FILE"
            )
        }
        guard highestRate <= rateCap else {
            throw wrong(
                highestRate.isFinite
                    ? "the loads' greatest rate is \(highestRate) jobs per second, above the cap of \(rateCap)"
                    : "a load has no greatest rate; use loads with a rate of at most \(rateCap) jobs per second"
            )
        }
        return try Server.tokens(file: allowList)
    }

    private var hasOutage: Bool {
        actions.contains { if case .outage = $0.kind { true } else { false } }
    }

    /// Most workers at a time, with those that actions add.
    var mostWorkersAtATime: Int {
        var most = workers.count
        var present = workers.count
        for action in actions.sorted(by: { $0.at < $1.at }) {
            if action.kind == .addWorker { present += 1 }
            if action.kind == .removeWorker { present -= 1 }
            most = max(most, present)
        }
        return most
    }

    private func checkActions() throws(CommandFailure) {
        var numbers = workers.count == 0 ? [] : Array(1...workers.count)
        var greatest = workers.count
        for action in actions.sorted(by: { $0.at < $1.at }) {
            func wrong(_ text: String) -> CommandFailure {
                CommandFailure(.configuration, "actions: at \(action.at) s: \(text)")
            }
            guard action.at.isFinite, action.at >= 0 else { throw wrong("a time from 0 on is needed") }
            guard action.at < length else {
                throw wrong("the run has ended by then; it lasts at most \(length) s, drain included")
            }
            func mustExist(_ number: Int) throws(CommandFailure) {
                guard !numbers.contains(number) else { return }
                let list = numbers.map(String.init).joined(separator: ", ")
                throw wrong(
                    "there is no worker \(number)"
                        + (numbers.isEmpty ? "; this run starts no workers" : "; there are: \(list)"))
            }
            func mustLast(_ seconds: Double) throws(CommandFailure) {
                guard seconds.isFinite, (0...86_400).contains(seconds) else {
                    throw wrong("a length from 0 to 86400 seconds is needed")
                }
            }
            switch action.kind {
            case .restartWorker(let number): try mustExist(number)
            case .killWorker(let number, let down):
                try mustExist(number)
                if let down { try mustLast(down) } else { numbers.removeAll { $0 == number } }
            case .pauseWorker(let number, let seconds):
                try mustExist(number)
                try mustLast(seconds)
            case .addWorker:
                guard workers.count > 0 else { throw wrong("this run starts no workers") }
                guard numbers.count < Self.mostWorkers else {
                    throw wrong("at most \(Self.mostWorkers) workers run at a time")
                }
                greatest += 1
                numbers.append(greatest)
            case .removeWorker:
                guard numbers.count > 1 else { throw wrong("no worker would remain") }
                numbers.removeLast()
            case .rollingRestart:
                guard !numbers.isEmpty else { throw wrong("this run starts no workers") }
            case .outage(let seconds): try mustLast(seconds)
            case .pauseKafka(let seconds):
                try mustLast(seconds)
                guard case .embedded = cluster else {
                    throw wrong("only an embedded cluster can be paused")
                }
            }
        }
    }
}

extension StagePlan.Server {
    /// Whether a name or address is that of this machine.
    static func isThisMachine(_ host: String) -> Bool {
        if host == "localhost" || host == "::1" { return true }
        var address = in_addr()
        // 127.0.0.0/8, in network order.
        return inet_pton(AF_INET, host, &address) == 1 && UInt32(bigEndian: address.s_addr) >> 24 == 127
    }

    /// Greatest rate cap that a plan may set, per second.
    static let mostRate = 10_000.0

    /// Checks the server. Pushes to another machine reach devices of people, so such a server needs an allow-list, a rate
    /// below the cap, and a confirmation.
    /// - Returns: the tokens that may be pushed to; nil: any.
    func checked(highestRate: Double, confirmedHosts: [String]) throws(CommandFailure) -> [[UInt8]]? {
        func wrong(_ text: String) -> CommandFailure { CommandFailure(.configuration, "\(host): \(text)") }
        guard (1...65_535).contains(port) else {
            throw wrong("a port from 1 to 65535 is needed, not \(port)")
        }
        if Self.isThisMachine(host) { return try allowList.map(Self.tokens) }
        let reason = "is not this machine, so pushes reach devices of people"
        if allowList != nil, !confirmedHosts.contains(host) {
            throw wrong("\(reason); confirm with --confirm-host \(host)\(StagePlan.given(confirmedHosts))")
        }
        return try StagePlan.checkedLoad(
            host, reason, allowList: allowList, rateCap: rateCap, highestRate: highestRate)
    }

    /// Reads device tokens, one on each line. Blank lines and lines that begin with `#` are left out.
    fileprivate static func tokens(file: String) throws(CommandFailure) -> [[UInt8]] {
        let bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(file, limit: 256 << 20)
        } catch {
            let reason = if case .unreadable(let text) = error { text } else { "has more than 256 MB" }
            throw CommandFailure(.configuration, "list of allowed device tokens: \(file) \(reason)")
        }
        var tokens: [[UInt8]] = []
        for (index, line) in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            .enumerated()
        {
            let text = String(decoding: line, as: UTF8.self).trimmingCharacters(in: .whitespaces)
                .trimmingCharacters(in: CharacterSet(charactersIn: "\r"))
            if text.isEmpty || text.hasPrefix("#") { continue }
            // APNs' tokens have 32 bytes today, and up to 100 are announced.
            guard text.utf8.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }),
                text.utf8.count % 2 == 0, (16...200).contains(text.utf8.count)
            else {
                throw CommandFailure(
                    .configuration,
                    "\(file):\(index + 1): is no device token; 16 to 200 hexadecimal digits are needed")
            }
            tokens.append(Array(text.lowercased().utf8))
        }
        guard !tokens.isEmpty else {
            throw CommandFailure(.configuration, "\(file): has no device token; write one on each line")
        }
        return tokens
    }
}
