import ArgumentParser
import Configuration
import DeliveryCore
import Foundation

struct ControlCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ctl",
        abstract:
            "Pause and resume sending, drain a worker, purge its store, or set its log level, without a restart.",
        discussion: """
            A pause takes effect at once. Pushes in flight end as usual. Other pushes of what is paused wait, in the store \
            where there is one, until they resume or expire. With everything paused, no job is taken from Kafka.

            Pauses survive a restart. With store.changelog they reach all workers, through the topic \
            kafka.topics.switches; without it, one worker. Drain, purge and log level concern one worker.

            Commands reach the worker through --socket; otherwise --admin; otherwise admin.socket of the configuration; \
            otherwise admin.listen, with the token of admin.token-file. `sluice dev` prints the --socket of its worker.

            EXIT STATUS
              0   done
              1   the worker refused the command, or gave no answer
              64  the command line is wrong
              75  in force on this worker, but not kept yet; the worker goes on trying. Or a purge whose end is unknown
              78  section admin of the configuration is wrong, or takes no commands
            """,
        subcommands: [
            StatusCommand.self, PauseCommand.self, ResumeCommand.self, DrainCommand.self,
            LogLevelCommand.self, PurgeCommand.self,
        ])

    struct StatusCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "status", abstract: "Show what is paused, since when, by whom and why.")

        @Flag(help: "Print the worker's answer as JSON.") var json = false
        @OptionGroup var options: ControlOptions

        func run() throws {
            let answer = try options.send("GET", "/switches")
            guard !json else {
                Terminal.output(lines: answer.text)
                return
            }
            for line in try SwitchText(answer).lines { Terminal.output(line) }
        }
    }

    struct PauseCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "pause", abstract: "Pause all sending, an app, a topic or a credential.")

        @OptionGroup var scope: ScopeArguments
        @Option(help: ArgumentHelp("Reason, for those who find the pause later.", valueName: "text"))
        var note: String?
        @OptionGroup var options: ControlOptions

        func run() throws { try options.change("pause", scope.scope, note: note) }
    }

    struct ResumeCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "resume", abstract: "Resume what was paused.",
            discussion: "Resuming all sending leaves paused apps, topics and credentials paused.")

        @OptionGroup var scope: ScopeArguments
        @OptionGroup var options: ControlOptions

        func run() throws { try options.change("resume", scope.scope, note: nil) }
    }

    struct DrainCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "drain", abstract: "Stop this worker in order, as SIGTERM does; its process ends.",
            discussion:
                "Under Kubernetes or with systemd's Restart=always, the supervisor starts a new process.")

        @OptionGroup var options: ControlOptions

        func run() throws {
            _ = try options.send("POST", "/drain")
            Terminal.output("the worker drains, and its process ends")
        }
    }

    struct PurgeCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "purge",
            abstract: "Rewrite the store's files, so that none has the bytes of erased devices any more.",
            discussion: """
                Without this command the worker purges within store.purge-after of an erasure. A purge covers what has left \
                the store before: first wait for the outcomes of the event `erase`, and for the next commit of offsets. \
                GET /store lists partitions that need a purge. After a restart in the middle, --wait ends with status 75, \
                because the worker's new process doesn't know the request: repeat the command. It also ends with status \
                75 after half a minute without an answer, and when a partition has left the worker.
                """)

        @Flag(help: "Purge all partitions, also those without erased data.") var all = false
        @Flag(help: "Wait for the end, which takes as long as rewriting all files.") var wait = false
        @OptionGroup var options: ControlOptions

        func run() throws {
            // Only the wait needs the state before the request.
            let before = wait ? try PurgeProgress(options.send("GET", "/store")) : nil
            let partitions = try PurgeProgress.requested(
                options.send("POST", "/store/purge", all ? [(name: "all", value: "1")] : []))
            guard !partitions.isEmpty else {
                Terminal.output("no partition has erased data")
                return
            }
            Terminal.output("purging \(Numbers.counted(partitions.count, "partition"))")
            guard let before else { return }
            var waiting = PurgeWait(before, partitions)
            let began = ContinuousClock.now
            while true {
                let lookBegan = ContinuousClock.now - began
                let look = try look()
                switch waiting.next(look, during: lookBegan...(ContinuousClock.now - began)) {
                case .wait: usleep(200_000)
                case .purged:
                    Terminal.output("purged")
                    return
                case .end(let status, let message): throw CommandFailure(status, message)
                }
            }
        }

        private func look() throws -> PurgeWait.Look {
            do {
                return .progress(try PurgeProgress(options.send("GET", "/store")))
            } catch let failure as CommandFailure where failure.status == .failure {
                return .silence(failure.message)
            }
        }
    }

    struct LogLevelCommand: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "log-level", abstract: "Set this worker's log level until its process ends.")

        @Argument(help: ArgumentHelp("Level, such as debug.", valueName: "level")) var level: String
        @OptionGroup var options: ControlOptions

        func validate() throws {
            guard LogLevel.names.contains(level) else {
                throw ValidationError(
                    "`\(level)` is no level; levels are \(LogLevel.names.joined(separator: ", "))")
            }
        }

        func run() throws {
            _ = try options.send("POST", "/log-level", [("level", level)])
            Terminal.output("the log's level is \(level)")
        }
    }
}

/// The scope of a pause on the command line.
struct ScopeArguments: ParsableArguments {
    @Argument(help: "Kind of the scope: all, app, topic or credential.") var kind: String
    @Argument(help: "Name of the app, topic or credential.") var name: String?

    /// - Throws: a validation error for an unknown kind, and for a missing or surplus name.
    var scope: PauseScope {
        get throws {
            guard let kind = PauseScope.Kind(rawValue: kind) else {
                let kinds = PauseScope.Kind.allCases.map(\.rawValue).joined(separator: ", ")
                throw ValidationError("`\(kind)` is none of \(kinds)")
            }
            guard let scope = PauseScope(kind, name: name) else {
                throw ValidationError(
                    kind == .all ? "`all` has no name" : "name the \(kind.rawValue) behind `\(kind.rawValue)`"
                )
            }
            return scope
        }
    }

    func validate() throws { _ = try scope }
}

/// Way to the worker's command endpoint.
struct ControlOptions: ParsableArguments {
    @Option(name: [.short, .long], help: ArgumentHelp("The worker's configuration file.", valueName: "path"))
    var config: String?

    @Option(help: ArgumentHelp("Socket of the worker (admin.socket).", valueName: "path"))
    var socket: String?

    @Option(help: ArgumentHelp("Address of the admin endpoint.", valueName: "host:port"))
    var admin: String?

    @Option(help: ArgumentHelp("File with the token for --admin (admin.token-file).", valueName: "path"))
    var tokenFile: String?

    @Option(help: ArgumentHelp("Longest wait for the answer, 1 to 60.", valueName: "seconds"))
    var timeout = 15.0

    func validate() throws {
        guard (1...60).contains(timeout) else { throw ValidationError("--timeout: 1 to 60 seconds") }
        if socket != nil, admin != nil { throw ValidationError("--socket and --admin exclude each other") }
    }

    /// Finds the endpoint.
    /// - Parameter sendsToken: false for a request that needs no token.
    func endpoint(environment: [String: String], sendsToken: Bool) throws -> AdminCall.Endpoint {
        if let socket { return .socket(socket) }
        let settings: Configuration.Admin
        do throws(ConfigurationError) {
            settings = try Configuration.admin(path: config, environment: environment)
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        if admin == nil, let path = settings.socket { return .socket(path) }
        let address =
            try admin.map { _ in
                try AdminAddress.ofThisMachine(option: admin, config: nil, environment: [:])
            } ?? AdminAddress.reaching(settings)
        guard sendsToken else { return .address(address, token: nil) }
        // The configured token isn't for the address of another worker.
        return .address(address, token: try token(admin == nil ? settings.tokenFile : nil))
    }

    private func token(_ configured: String?) throws -> String? {
        guard let path = tokenFile ?? configured else { return nil }
        switch SecretFile.read(path) {
        case .success(let token): return token
        case .failure(let fault): throw CommandFailure(.configuration, "the token's file \(fault.text)")
        }
    }

    /// Sends a command.
    /// - Throws: `CommandFailure` with the worker's reason when the worker refuses the command.
    func send(
        _ method: String, _ path: String, _ query: [(name: String, value: String)] = []
    ) throws -> ControlAnswer {
        let endpoint = try endpoint(
            environment: ProcessInfo.processInfo.environment, sendsToken: method == "POST")
        let fields = query.map { "\($0.name)=\(Self.escaped($0.value))" }.joined(separator: "&")
        let answer: AdminCall.Answer
        do throws(AdminCall.Failure) {
            answer = try AdminCall.send(
                method, fields.isEmpty ? path : "\(path)?\(fields)", to: endpoint,
                limit: .milliseconds(Int(timeout * 1_000)))
        } catch {
            throw CommandFailure(.failure, "\(endpoint)\(path): \(error)")
        }
        guard (200...299).contains(answer.status) else {
            throw CommandFailure(.failure, HealthVerdict.refusal(answer, place: "\(endpoint)\(path)"))
        }
        return ControlAnswer(status: answer.status, text: String(decoding: answer.body, as: UTF8.self))
    }

    /// Pauses or resumes a scope, and prints what the worker did.
    func change(_ verb: String, _ scope: PauseScope, note: String?) throws {
        var query = [(name: scope.kind.rawValue, value: scope.name ?? "1"), (name: "by", value: Self.person)]
        if let note { query.append((name: "note", value: note)) }
        let answer = try send("POST", "/switches/\(verb)", query)
        let text = try SwitchText(answer)
        guard answer.status == 200 else {
            throw CommandFailure(
                .unfinished,
                "\(scope) is \(verb)d on this worker alone, and not kept in \(text.home) yet; the worker goes on trying"
            )
        }
        Terminal.output("\(scope) is \(verb)d on \(text.reach)")
    }

    /// Person and machine that give the command.
    private static var person: String {
        let environment = ProcessInfo.processInfo.environment
        let user = environment["SUDO_USER"] ?? environment["USER"] ?? "uid \(getuid())"
        return "\(user)@\(ProcessInfo.processInfo.hostName)"
    }

    /// Returns a value of a query with all bytes escaped that have a meaning there.
    static func escaped(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            let scalar = UnicodeScalar(byte)
            if byte < 0x80,
                scalar.properties.isAlphabetic || (0x30...0x39).contains(byte) || "-._~".utf8.contains(byte)
            {
                result.unicodeScalars.append(scalar)
            } else {
                result += String(format: "%%%02X", byte)
            }
        }
        return result
    }
}

/// Answer of a worker to a command that it accepted.
struct ControlAnswer {
    var status: Int
    var text: String
}

/// Text for people of a worker's switches.
struct SwitchText {
    private let document: [String: Any]

    /// - Throws: `CommandFailure` when the answer isn't a worker's.
    init(_ answer: ControlAnswer) throws {
        guard
            let document = try? JSONSerialization.jsonObject(with: Data(answer.text.utf8)) as? [String: Any],
            document["home"] is String
        else { throw CommandFailure(.failure, "the answer is not a worker's; check the address") }
        self.document = document
    }

    /// Place that keeps the switches.
    var home: String { document["home"] as? String ?? "" }

    /// Workers that a change reaches.
    var reach: String {
        if home.hasPrefix("topic ") { return "all workers that read \(home)" }
        return home.hasPrefix("file ")
            ? "this worker, also after a restart" : "this worker, until its process ends"
    }

    var lines: [String] {
        var lines: [String] = []
        if document["known"] as? Bool == false {
            lines.append("nothing is sent, because the worker has not read \(home) yet")
        }
        if document["topic-away"] as? Bool == true {
            lines.append("the topic of switches can't be read: pauses of other workers have no effect here")
        }
        for pause in document["paused"] as? [[String: Any]] ?? [] {
            let scope = [pause["scope"], pause["name"]].compactMap { $0 as? String }.joined(separator: " ")
            var line =
                "\(scope == "all" ? "all sending" : scope) paused since \(pause["since"] as? String ?? "?")"
            if let by = pause["by"] as? String { line += " by \(by)" }
            if let note = pause["note"] as? String { line += ": \(note)" }
            lines.append(line)
        }
        if lines.isEmpty { lines.append("nothing is paused") }
        lines.append("kept in \(home)")
        if let unkept = document["unkept"] as? Int, unkept > 0 {
            lines.append("\(Numbers.counted(unkept, "change")) not kept yet")
        }
        if let level = document["log-level"] as? String { lines.append("log level \(level)") }
        return lines
    }
}
