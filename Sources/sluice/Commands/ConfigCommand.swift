import ArgumentParser
import Configuration
import Foundation
import Gateway

struct ConfigCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Check a configuration; list all settings.",
        subcommands: [Check.self, Reference.self])

    struct Check: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Check a configuration file together with the environment, without any connection.",
            discussion: """
                Reports all mistakes at once, each with its place and its key, and exits with status 78 if there are \
                any. Loads the keys and certificates that the configuration names. Applies SLUICE_ variables of the \
                environment as `sluice run` does.
                """)

        @Argument(help: "A YAML or JSON file. Without a file, all settings come from the environment.")
        var file: String?

        func run() throws {
            let configuration = try loadConfiguration(file)
            Terminal.output("\(file ?? "environment"): ok")
            for line in summary(of: configuration) { Terminal.output(line) }
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
            return table.lines(indent: 2)
        }

        private func describe(_ kind: Configuration.Credential.Kind) -> String {
            switch kind {
            case .token(let keys, let teamID):
                "\(keys.count == 1 ? "key" : "keys") \(keys.map(\.id).joined(separator: ", ")) of team \(teamID)"
            case .certificate(let certificateFile, _): "certificate \(certificateFile)"
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

/// Returns the configuration, or exits with status 78 and every mistake on standard error.
func loadConfiguration(_ file: String?) throws -> Configuration {
    do throws(ConfigurationError) {
        let (configuration, places) = try Configuration.loadWithPlaces(path: file)
        let problems = configuration.checkUsable(places: places)
        if !problems.isEmpty { throw ConfigurationError(problems: problems) }
        return configuration
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
