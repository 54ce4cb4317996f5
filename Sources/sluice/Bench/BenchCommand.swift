import ArgumentParser
import Configuration
import Foundation
import LoadTest

struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Put the load of a scenario through the gateway, and judge the results.",
        discussion: """
            A scenario describes target, workers, devices, loads, phases, events and thresholds in YAML. `sluice bench \
            steady` runs a built-in scenario; `sluice bench show steady > my.yaml` begins one of your own. \
            Deploy/load-testing.md explains all settings; Schemas/bench-scenario.schema.json is their schema.
            """,
        subcommands: [
            Run.self, List.self, Show.self, ReportCommand.self, CompareCommand.self, MergeCommand.self,
        ], defaultSubcommand: Run.self)

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the built-in scenarios.")

        func run() throws { BenchCommand.list() }
    }

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print a scenario, with the overrides of the command line.")

        @Argument(help: ArgumentHelp("Built-in scenario, or a file.", valueName: "scenario"))
        var name: String

        @OptionGroup var overrides: OverrideOptions

        func run() throws {
            let scenario = try BenchScenarios.load(name).read(overrides.all)
            Terminal.output(lines: scenario.text)
        }
    }

    /// Prints names and descriptions of the built-in scenarios.
    static func list() {
        var table = TextTable()
        for source in BenchScenarios.all {
            let description = (try? source.read([]))?.description ?? ""
            table.add(source.name, description)
        }
        table.lines().forEach { Terminal.output($0) }
    }

    /// Overrides of a scenario's settings.
    struct OverrideOptions: ParsableArguments {
        @Option(
            name: .customLong("set"),
            help: ArgumentHelp(
                "Override a setting, such as workers.shards=2, loads.campaign.arrivals.rate=500/s or apps[0].share=3. "
                    + "Repeat for more.",
                valueName: "path=value"))
        var overrides: [String] = []

        @Option(
            help: ArgumentHelp(
                "Factor of all times: phases, faults, actions, schedules. Rates stay. The same as --set time-scale=x.",
                valueName: "x"))
        var timeScale: Double?

        func validate() throws {
            if let timeScale, !(1e-4...1).contains(timeScale) {
                throw ValidationError("--time-scale: 0.0001 to 1")
            }
        }

        var all: [String] { overrides + (timeScale.map { ["time-scale=\($0)"] } ?? []) }
    }
}

/// Text of a scenario and its place.
struct BenchSource {
    /// Name of the built-in scenario, or path of the file.
    var name: String
    var text: String
    /// Directory that relative names in the scenario are relative to.
    var directory: String

    func read(_ overrides: [String]) throws(CommandFailure) -> LoadScenario {
        do {
            return try LoadScenario.read(text, name: name, overrides: overrides)
        } catch {
            throw CommandFailure(.configuration, error.description)
        }
    }
}

extension BenchScenarios {
    /// Returns a built-in scenario, or reads a file. A name with a point or a slash is a file's.
    static func load(_ name: String) throws(CommandFailure) -> BenchSource {
        if let source = all.first(where: { $0.name == name }) { return source }
        let looksLikeFile = name.contains("/") || name.contains(".")
        let bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(name, limit: 1 << 20)
        } catch {
            switch error {
            case .tooLarge: throw CommandFailure(.configuration, "\(name) is larger than 1 MiB")
            case .unreadable(let reason):
                let names = all.map(\.name).joined(separator: ", ")
                throw CommandFailure(
                    .configuration,
                    looksLikeFile
                        ? "can't read \(name): \(reason)"
                        : "there is no built-in scenario and no file `\(name)`; built in are \(names)")
            }
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw CommandFailure(.configuration, "\(name) is not UTF-8 text")
        }
        return BenchSource(
            name: name, text: text,
            directory: URL(filePath: name).deletingLastPathComponent().path(percentEncoded: false))
    }
}
