import APNS
import ArgumentParser
import Configuration
import Foundation
import Gateway
import SluiceModel

struct ConfigCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract:
            "Check a configuration and the parts it names; list all settings; print Kafka's rights; hash device tokens.",
        subcommands: [Check.self, ConfigACLs.self, TokenHash.self, Reference.self])

    struct Check: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Check a configuration file together with the environment; with --connect, the parts it names too.",
            discussion: """
                Reports all mistakes at once, each with its place and its key, and exits with status 78 if there are \
                any. Warns (!) of credentials that no app uses, of topics that no job can have or APNs may refuse, and of \
                secret files that others have rights to. Loads the keys and certificates that the configuration names. \
                Applies SLUICE_ variables of the environment as `sluice run` does. Without --connect nothing is connected.

                --connect checks Kafka (TLS, SASL, topics, rights, replication, sizes), APNs (DNS, TCP, TLS, ALPN, each \
                credential for its topics), the store's directory, the limit of open files, and clocks. It joins no \
                group, writes no record, and sends nothing that can reach a device. Run it as the worker's user, on the \
                worker's machine. The cluster of `sluice kafka` creates each topic that is asked for, so a missing topic \
                isn't found there.

                  ✓  works
                  !  works, but weakens a guarantee or is near a limit
                  ✗  the worker can't work with it
                  –  not checked

                EXIT STATUS
                  0   no mistake, and no ✗
                  69  at least one ✗
                  78  the configuration, or a key or certificate that it names, is wrong
                """)

        @Argument(help: "A YAML or JSON file. Without a file, all settings come from the environment.")
        var file: String?

        @Flag(help: "Connect to Kafka and APNs, and try the store's directory.")
        var connect = false

        @Flag(help: "With --connect: print one JSON document on each line.")
        var json = false

        @Option(help: ArgumentHelp("With --connect: longest wait for each answer.", valueName: "seconds"))
        var timeout = 10

        func validate() throws {
            if json, !connect { throw ValidationError("--json is only for --connect") }
            guard (1...60).contains(timeout) else { throw ValidationError("--timeout: 1 to 60 seconds") }
        }

        func run() throws {
            let (configuration, places) = try loadConfiguration(file, .all)
            if !json {
                Terminal.output("\(file ?? "environment"): ok")
                for line in summary(of: configuration) { Terminal.output(line) }
                for warning in configuration.warnings(places: places) { Terminal.output("! \(warning)") }
                for exposure in configuration.exposedFiles() { Terminal.output("! \(exposure)") }
            }
            guard connect else { return }
            if !json { Terminal.output("") }
            let results = ConnectCheck(configuration, timeout: .seconds(timeout)).run { result in
                for line in json ? [result.json] : result.lines { Terminal.output(line) }
            }
            guard CheckResult.isUsable(results) else {
                let count = results.count { $0.verdict == .bad }
                throw CommandFailure(
                    .unavailable,
                    "\(Numbers.counted(count, "check")) failed; the lines with ✗ name the remedies")
            }
        }

        private func summary(of configuration: Configuration) -> [String] {
            let kafka = configuration.kafka
            let apns = configuration.apns
            var table = TextTable()
            table.add("kafka", "\(kafka.bootstrapServers), group \(kafka.groupID)")
            table.add(
                "topics", "\(kafka.topics.jobs) → \(kafka.topics.outcomes), \(kafka.topics.deadLetters)")
            for app in configuration.apps {
                for credential in configuration.credentials(of: app) {
                    let endpoint = configuration.endpoint(of: credential)
                    let connections = credential.connections ?? apns.connections
                    table.add(
                        "app \(app.name)",
                        "\(app.topics.joined(separator: ", ")); \(describe(credential.kind)); "
                            + "\(endpoint.environment.rawValue), \(endpoint.host):\(endpoint.port), TLS \(apns.tlsMinimum.rawValue) or later; "
                            + "\(Numbers.counted(connections, "connection")) in its pool")
                }
            }
            if let store = configuration.store {
                table.add("store", describe(store, changelog: kafka.topics.changelog))
            }
            if configuration.outcomes.deviceToken == .hash {
                table.add("outcomes", "hashes of device tokens, and dead letters without values")
            }
            table.add("commands", describe(configuration.admin))
            return table.lines(indent: 2)
        }

        private func describe(_ store: Configuration.Store, changelog: String) -> String {
            var parts = [store.directory]
            parts.append(store.hasChangelog ? "changelog \(changelog)" : "no changelog")
            parts.append(store.hasTransactions ? "transactions" : "no transactions")
            switch store.encryption {
            case nil: parts.append("in clear")
            case .some(let encryption):
                parts.append(
                    encryption.encrypt == .on
                        ? "encrypted with keys of \(encryption.keyFile)"
                        : "in clear, older values decrypted with keys of \(encryption.keyFile)")
            }
            return parts.joined(separator: "; ")
        }

        private func describe(_ admin: Configuration.Admin) -> String {
            var ways: [String] = []
            if let socket = admin.socket { ways.append("socket \(socket)") }
            if let listen = admin.listen, admin.tokenFile != nil { ways.append("\(listen) with a token") }
            return ways.isEmpty
                ? "none: set admin.socket, or admin.token-file, for `sluice ctl`"
                : ways.joined(separator: "; ")
        }

        private func describe(_ kind: Configuration.Credential.Kind) -> String {
            switch kind {
            case .token(let keys, let teamID):
                "\(keys.count == 1 ? "key" : "keys") \(keys.map(\.id).joined(separator: ", ")) of team \(teamID)"
            case .certificate(let certificateFile, _): "certificate \(certificateFile)"
            }
        }
    }

    struct TokenHash: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "token-hash",
            abstract:
                "Print the hash that stands for a device token on the topics of outcomes and dead letters.",
            discussion: """
                Reads the configuration for its key (outcomes.device-token: hash). Device tokens are lines of standard \
                input, so that the list of processes doesn't show them:

                  sluice config token-hash sluice.yaml <<< $TOKEN

                Without Sluice: the first 32 digits of HMAC-SHA256 over the token in lower case.

                EXIT STATUS
                  0   each line's hash was printed
                  65  a line is no device token, and later lines weren't read; or there was no line
                  78  the configuration is wrong, or hashes no tokens
                """)

        @Argument(help: "A YAML or JSON file. Without a file, all settings come from the environment.")
        var file: String?

        func run() throws {
            let configuration = try loadConfiguration(file, .settings).configuration
            guard configuration.outcomes.deviceToken == .hash else {
                throw CommandFailure(
                    .configuration,
                    "outcomes.device-token is clear: outcomes have the device tokens themselves")
            }
            let hash = DeviceTokenHash(key: configuration.outcomes.hashKey)
            var (line, count) = (0, 0)
            while let text = readLine() {
                line += 1
                let token = text.filter { !$0.isWhitespace }
                if token.isEmpty { continue }
                // The hash of a truncated token would match nothing, and nobody would notice.
                guard DeviceToken.isValid(token) else {
                    throw CommandFailure(
                        .dataError,
                        "line \(line) of standard input is no device token, which has \(DeviceToken.grammar)")
                }
                Terminal.output(hash.text(of: token))
                count += 1
            }
            guard count > 0 else {
                throw CommandFailure(.dataError, "standard input has no device token; write one on each line")
            }
        }
    }

    struct Reference: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List all settings, each with its type, its default and the variable that overrides it."
        )

        @Flag(help: "Print a Markdown table.")
        var markdown = false

        func run() throws {
            let settings = Configuration.reference()
            if markdown {
                Terminal.output("| setting | type | default | |")
                Terminal.output("|---|---|---|---|")
                for setting in settings {
                    let kind = setting.kind.replacing("|", with: "\\|")
                    let standard =
                        setting.defaultValue.map { "`\($0)`" } ?? (setting.isRequired ? "**required**" : "")
                    Terminal.output("| `\(setting.key)` | \(kind) | \(standard) | \(setting.help) |")
                }
                return
            }
            for setting in settings {
                let standard =
                    setting.defaultValue.map { ", default \($0)" } ?? (setting.isRequired ? ", required" : "")
                Terminal.output("\(setting.key)  (\(setting.kind)\(standard))")
                Terminal.output("    \(setting.help)")
                Terminal.output("    \(setting.environmentVariable)")
            }
        }
    }
}

/// Checks of a configuration before its use.
enum ConfigurationChecks {
    /// The settings alone, for tools beside a worker. The worker's keys and certificates aren't looked at.
    case settings
    /// Settings, keys, certificates and Kafka's properties, as far as a fault stops the whole worker.
    case start
    /// The checks of a start, and dates and topics of certificates.
    case all
}

/// Returns the configuration, or exits with status 78 and every mistake on standard error.
func loadConfiguration(
    _ file: String?, _ checks: ConfigurationChecks
) throws -> (configuration: Configuration, places: SettingPlaces) {
    do throws(ConfigurationError) {
        let (configuration, places) = try Configuration.loadWithPlaces(
            path: file, checksFiles: checks != .settings)
        let problems =
            switch checks {
            case .settings: [ConfigurationProblem]()
            case .start: configuration.checkStartable(places: places)
            case .all: configuration.checkUsable(places: places)
            }
        if !problems.isEmpty { throw ConfigurationError(problems: problems) }
        return (configuration, places)
    } catch {
        let shown = 100
        for problem in error.problems.prefix(shown) { Terminal.error("sluice: \(problem)") }
        let hasMore = error.problems.count >= ConfigurationError.mostProblems
        if error.problems.count > shown {
            let count = Numbers.counted(error.problems.count - shown, "further mistake")
            Terminal.error("sluice: \(count)\(hasMore ? " or more" : "")")
        }
        let count = error.problems.count
        throw CommandFailure(
            .configuration,
            "the configuration has \(count == 1 ? "a mistake" : "\(count) mistakes\(hasMore ? " or more" : "")")"
        )
    }
}
