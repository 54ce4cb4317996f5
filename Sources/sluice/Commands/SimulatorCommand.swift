import APNSSimulator
import ArgumentParser
import Foundation
import HTTP2

struct SimulatorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulator",
        abstract: "Run an APNs server for development, tests and measurements.",
        discussion: """
            Speaks the provider API over HTTP/2 and TLS with APNs' checks, limits and reasons. Point a worker at it:

              apns:
                {environment: custom, host: localhost, port: 8443, ca-file: DIR/ca.pem}

            or any client:

              curl --http2 --cacert DIR/ca.pem -H 'authorization: bearer …' \\
                -H 'apns-topic: com.example.news' -H 'apns-push-type: alert' \\
                -d '{"aps":{"alert":"Hi"}}' https://localhost:8443/3/device/…

            With --management-port it also manages broadcast channels; `sluice channels --host localhost --port PORT` \
            or any client creates them. Broadcasts go to the same port as pushes.

            With --faults it plays a timeline of faults: other answers and latencies, GOAWAY, stream limits, black holes, \
            slow reads, certificates that expire. SIGHUP reads the file again and plays it from its beginning. Clients that cause too many errors lose their connection \
            (--error-budget). Deploy/simulator.md explains both.

            With --devices it models the devices behind APNs and shows them on a page: Deploy/simulator.md. Without, it \
            forgets every push. Channels and devices last until it stops. It prints its counts when it stops.
            """)

    @Option(help: "Port to listen on. 0: any free port.")
    var port: UInt16 = 8443

    @Option(
        help: ArgumentHelp(
            "Port of channel management. 0: any free port. Without this option there is no channel management.",
            valueName: "port"))
    var managementPort: UInt16?

    @Option(help: ArgumentHelp("IP address to listen on.", valueName: "address"))
    var address = "127.0.0.1"

    @Option(
        help: ArgumentHelp(
            "Directory for ca.pem, server.pem and their keys. An authority in the directory is used again. Without it "
                + "the keys and certificates stay in memory.",
            valueName: "path"))
    var directory: String?

    @Option(
        help: ArgumentHelp(
            "Write host:port to this file once the simulator listens; on a second line that of channel management. "
                + "With --devices a line `page URL` follows, and a line `sandbox host:port` of --sandbox-port (`production` with --sandbox). The "
                + "file is written again once SIGHUP's faults are in force, and removed at the end.",
            valueName: "path"))
    var readyFile: String?

    @Option(
        help: ArgumentHelp(
            "Write the counts to this file, as JSON, when the simulator stops.", valueName: "path"))
    var summaryFile: String?

    @Flag(
        help:
            "Answer 200 as cheaply as possible without any check, to measure clients. --latency and --streams apply, other ways to answer do not."
    )
    var null = false

    @Option(help: "Number of threads; connections are spread over them.")
    var threads = 1

    @OptionGroup(title: "Access") var access: AccessOptions
    @OptionGroup(title: "Answers") var answers: AnswerOptions
    @OptionGroup(title: "Broadcasts") var broadcasts: BroadcastOptions
    @OptionGroup(title: "Connections") var connections: ConnectionOptions
    @OptionGroup(title: "Faults by script") var script: FaultOptions
    @OptionGroup(title: "Devices") var devices: DeviceOptions
    @OptionGroup var lifetime: LifetimeOptions

    func run() throws {
        let stop = StopSignals(watchesInput: lifetime.stopWithInput, takesHangup: script.faults != nil)
        let ready = try readyFile.map { path throws(CommandFailure) in try ReadyFile(path: path) }
        let simulator: Simulator
        let devices = try self.devices.devices ? SimulatorDevices(self.devices) : nil
        do {
            var options = try options()
            options.devices = devices?.registry
            simulator = try Simulator(options: options)
            try devices?.prepare(simulator)
        } catch let failure as CommandFailure {
            throw failure
        } catch let error as SimulatorError {
            throw CommandFailure(.configuration, error.description)
        } catch {
            throw CommandFailure(.unavailable, "can't listen on \(address):\(port): \(error)")
        }
        // A push before the declared devices could take a number, or a token, of theirs.
        try devices?.begin()
        let bound = simulator.start()
        Terminal.output("APNs simulator is ready: \(address):\(bound)\(null ? ", null mode" : "")")
        let managed = simulator.managementPort.map { "\(address):\($0)" }
        if let managed { Terminal.output("  channel management: \(managed)") }
        if let directory { Terminal.output("  authority for clients: \(directory)/ca.pem") }
        devices?.start()
        let lines = ["\(address):\(bound)", managed].compactMap { $0 } + (devices?.readyLines ?? [])
        let announce = { @Sendable () throws(CommandFailure) -> Void in
            if let ready { try ready.write(lines.joined(separator: "\n")) }
        }
        try announce()
        script.playAgain(after: stop, in: [simulator, devices?.sandbox].compactMap { $0 }, then: announce)
        stop.wait()
        simulator.stop()
        devices?.stop()
        ready?.remove()
        let summary = simulator.summary
        Terminal.output("\(summary)")
        if let other = devices?.sandbox { Terminal.output("other environment: \(other.summary)") }
        let counts = devices?.counts
        if let counts { Terminal.output("\(counts)") }
        if let summaryFile {
            try WholeFile.write(SimulatorCounts(summary, counts).json, to: summaryFile, "--summary-file")
        }
    }

    func validate() throws {
        guard (1...64).contains(threads) else { throw ValidationError("--threads: 1 to 64, not \(threads)") }
        if null, devices.devices {
            throw ValidationError("--null checks nothing and keeps no push; omit --devices")
        }
        if null, managementPort != nil {
            throw ValidationError("--null checks nothing and has no channels; omit --management-port")
        }
        if null, script.faults != nil {
            throw ValidationError("--null has no faults; omit --faults, or --null")
        }
    }

    private func options() throws -> SimulatorOptions {
        var options = null ? SimulatorOptions.null : SimulatorOptions()
        options.address = address
        // Clients on other machines reach the simulator by its address.
        if !options.serverNames.contains(address) { options.serverNames.append(address) }
        options.port = port
        options.threads = threads
        options.managementPort = managementPort
        options.certificateDirectory = directory
        try access.apply(to: &options)
        try answers.apply(to: &options)
        broadcasts.apply(to: &options)
        connections.apply(to: &options)
        try script.apply(to: &options)
        return options
    }

    struct AccessOptions: ParsableArguments {
        @Option(
            help: ArgumentHelp(
                "A known provider key. Repeat for more keys. Without a key, every well-formed provider token is accepted "
                    + "and no signature is checked.",
                valueName: "key-id:team-id:path.p8"))
        var key: [SimulatorKeyArgument] = []

        @Option(
            help: ArgumentHelp(
                "A bundle identifier that exists. Repeat for more. Without this option, all bundle identifiers exist.",
                valueName: "bundle-id"))
        var app: [String] = []

        @Flag(help: "Act as the development environment (sandbox), which refuses keys of production only.")
        var sandbox = false

        @Flag(inversion: .prefixedNo, help: "Accept push certificates of the simulator's authority.")
        var certificates = true

        @Option(
            help: ArgumentHelp(
                "Scope in which new provider tokens are counted. connection: tokens on a connection. key: tokens of a key on "
                    + "all connections. issue-time: different issue times (iat) of a key's tokens on all connections.",
                valueName: "scope"))
        var countTokenUpdates = SimulatorOptions.TokenUpdateCounting.connection

        @Option(
            help: ArgumentHelp(
                "Shortest time between two new provider tokens; an earlier one is answered with "
                    + "TooManyProviderTokenUpdates.",
                valueName: "s"))
        var tokenUpdateInterval = 1_200

        @Flag(
            help:
                "Accept provider tokens with a DER signature or a text as iat, which APNs presumably does. Otherwise they get InvalidProviderToken."
        )
        var lenientTokens = false

        func validate() throws {
            if !(0...86_400).contains(tokenUpdateInterval) {
                throw ValidationError("--token-update-interval: 0 to 86400 seconds")
            }
        }

        func apply(to options: inout SimulatorOptions) throws {
            if !key.isEmpty { options.providerTokens = .keys(key.map(\.key)) }
            if !app.isEmpty { options.topics = app }
            options.environment = sandbox ? .sandbox : .production
            options.acceptsClientCertificates = certificates
            options.acceptsLenientTokens = lenientTokens
            options.tokenUpdateCounting = countTokenUpdates
            options.tokenUpdateInterval = .seconds(tokenUpdateInterval)
        }
    }

    struct BroadcastOptions: ParsableArguments {
        @Option(help: ArgumentHelp("Channels that an app may have.", valueName: "n"))
        var channels = 10_000

        @Option(
            help: ArgumentHelp(
                "Broadcasts of a channel with storage within a second; further ones are answered with TooManyRequests.",
                valueName: "n"))
        var perChannel: Int?

        @Option(help: ArgumentHelp("The same for a channel without storage.", valueName: "n"))
        var perUnstoredChannel: Int?

        @Option(
            help: ArgumentHelp(
                "Requests of channel management for an app within a second; further ones are answered with "
                    + "TooManyRequests.",
                valueName: "n"))
        var managementPerSecond: Int?

        @Option(
            help: ArgumentHelp(
                "A bundle identifier without the broadcast capability: FeatureNotEnabled. Repeat for more.",
                valueName: "bundle-id"))
        var withoutBroadcast: [String] = []

        func validate() throws {
            if channels < 0 { throw ValidationError("--channels: at least 0, not \(channels)") }
            for (name, value) in [
                ("--per-channel", perChannel), ("--per-unstored-channel", perUnstoredChannel),
                ("--management-per-second", managementPerSecond),
            ] {
                if let value, value < 0 { throw ValidationError("\(name): at least 0, not \(value)") }
            }
        }

        func apply(to options: inout SimulatorOptions) {
            options.channelsPerApp = channels
            options.broadcastsPerSecond = perChannel
            options.unstoredBroadcastsPerSecond = perUnstoredChannel
            options.managementRequestsPerSecond = managementPerSecond
            options.appsWithoutBroadcast = withoutBroadcast
        }
    }

    struct AnswerOptions: ParsableArguments {
        @Option(help: ArgumentHelp("Delay of each answer.", valueName: "ms"))
        var latency = 0.0

        @Option(
            help: ArgumentHelp(
                "Random further delay of each answer, up to this, evenly distributed.", valueName: "ms"))
        var jitter = 0.0

        @Option(
            help: ArgumentHelp(
                "Answer this share of good pushes with an error, for example InternalServerError=0.01,TooManyRequests=0.005.",
                valueName: "reason=share,…"))
        var errors: String?

        @Option(
            help: ArgumentHelp(
                "Answer TooManyRequests and ServiceUnavailable with this retry-after.", valueName: "s"))
        var retryAfter: Int?

        @Option(
            help: ArgumentHelp(
                "Answer pushes to device tokens with this prefix with a reason, for example dead=Unregistered,bad0=BadDeviceToken.",
                valueName: "hex=reason,…"))
        var deviceReasons: String?

        @Option(
            help: ArgumentHelp(
                "Pushes for one device within a second; further ones are answered with TooManyRequests.",
                valueName: "n"))
        var perDevice: Int?

        @Option(
            help: ArgumentHelp("Share of the requests that are never answered, 0 to 1.", valueName: "share"))
        var unanswered = 0.0

        @Option(
            help:
                "Seed of the random choices and of generated identifiers. Without it the choices are the same at each start, and the identifiers differ."
        )
        var seed: UInt64?

        @Option(
            help: ArgumentHelp(
                "Write one line of JSON for each push to this file, with a hash in place of the device token.",
                valueName: "path"))
        var log: String?

        @Flag(help: "Write device tokens to the log as they are.")
        var logTokens = false

        func validate() throws {
            for (name, value) in [("--latency", latency), ("--jitter", jitter)]
            where value < 0 || value > 600_000 {
                throw ValidationError("\(name): 0 to 600000 milliseconds")
            }
            if !(0...1).contains(unanswered) {
                throw ValidationError("--unanswered: a share from 0 to 1, not \(unanswered)")
            }
            if let retryAfter, !(0...86_400).contains(retryAfter) {
                throw ValidationError("--retry-after: 0 to 86400 seconds")
            }
        }

        func apply(to options: inout SimulatorOptions) throws {
            options.latency = .microseconds(Int64(latency * 1_000))
            options.jitter = .microseconds(Int64(jitter * 1_000))
            if let errors { options.faults = try SimulatorOptions.parseFaults(errors) }
            if let deviceReasons {
                options.deviceRules = try SimulatorOptions.parseDeviceRules(deviceReasons)
            }
            options.retryAfterSeconds = retryAfter
            options.unansweredShare = unanswered
            options.requestsPerDeviceSecond = perDevice
            options.seed = seed
            if let log { options.pushLog = SimulatorOptions.PushLog(path: log, showsTokens: logTokens) }
        }
    }

    struct ConnectionOptions: ParsableArguments {
        @Option(help: ArgumentHelp("Concurrent streams of a connection.", valueName: "n"))
        var streams: UInt32?

        @Option(
            help: ArgumentHelp(
                "Concurrent streams until the first provider token is accepted.", valueName: "n"))
        var streamsBeforeToken: UInt32?

        @Option(
            help: ArgumentHelp(
                "Streams above the limit: refuse resets them with REFUSED_STREAM, goaway ends the connection with that code. "
                    + "APNs was seen to do both.",
                valueName: "way"))
        var excessStreams = ExcessStreams.refuse

        @Option(
            help: ArgumentHelp(
                "Errors (4xx) after which a connection ends with GOAWAY; off: no consequence. Half of them lower the stream "
                    + "limit. BadDeviceToken counts 4 (documented: more), 410 (documented) and 429 don't count. Accepted "
                    + "pushes and ten minutes refill the budget. APNs' numbers are unknown; these are assumed.",
                valueName: "n|off"))
        var errorBudget = ErrorBudgetArgument(points: 1_000)

        @Option(help: ArgumentHelp("Concurrent connections.", valueName: "n"))
        var maximumConnections: Int?

        @Option(
            help: ArgumentHelp("End each connection (GOAWAY) after this many requests.", valueName: "n"))
        var requestsPerConnection: Int?

        func validate() throws {
            if let requestsPerConnection, requestsPerConnection < 1 {
                throw ValidationError("--requests-per-connection: at least 1, not \(requestsPerConnection)")
            }
        }

        func apply(to options: inout SimulatorOptions) {
            options.requestsPerConnection = requestsPerConnection
            options.excessStreams = excessStreams
            options.errorBudget = errorBudget.points
            if let streams { options.maximumStreams = streams }
            if let streamsBeforeToken { options.streamsBeforeToken = streamsBeforeToken }
            if let maximumConnections { options.maximumConnections = maximumConnections }
        }
    }
}

/// `key-id:team-id:path` of the command line.
struct SimulatorKeyArgument: ExpressibleByArgument {
    let key: SimulatorKey

    init?(argument: String) {
        let parts = argument.split(separator: ":", maxSplits: 2).map(String.init)
        guard parts.count == 3, parts[0].utf8.count == 10, parts[1].utf8.count == 10 else { return nil }
        key = SimulatorKey(keyID: parts[0], teamID: parts[1], key: .file(parts[2]))
    }
}

extension SimulatorOptions.TokenUpdateCounting: ExpressibleByArgument {}

/// A simulator's summary as a file, for the process that started the simulator.
struct SimulatorCounts: Codable {
    var requests: UInt64
    var accepted: UInt64
    var broadcasts: UInt64
    var rejected: [String: UInt64]
    var cancelled: UInt64
    var connections: UInt64
    var mostConnections: UInt64
    /// Counts of the devices; nil without `--devices`.
    var devices: DeviceCounts?

    init(_ summary: SimulatorSummary, _ devices: DeviceCounts? = nil) {
        self.devices = devices
        requests = summary.requests
        accepted = summary.accepted
        broadcasts = summary.broadcasts
        rejected = Dictionary(uniqueKeysWithValues: summary.rejected.map { ("\($0.key.name)", $0.value) })
        cancelled = summary.cancelled
        connections = summary.connections
        mostConnections = summary.mostConnections
    }

    var json: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }

    init?(file: String) {
        guard let data = FileManager.default.contents(atPath: file),
            let counts = try? JSONDecoder().decode(SimulatorCounts.self, from: data)
        else { return nil }
        self = counts
    }
}
