import ArgumentParser
import Foundation
import LoadTest

extension BenchCommand {
    struct Run: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Run a scenario; write result.json and report.html, and print the verdict.",
            discussion: """
                Latency counts from the intended time of each job to the time at which its outcome was read, on this \
                machine's clock. The generator never waits for outcomes, except in a closed loop, and reports when it \
                was itself the limit.

                  sluice bench steady
                  sluice bench campaign-and-alerts --set workers.shards=2 --out before
                  sluice bench my.yaml --find-max-rate
                  sluice bench steady --sweep workers.shards=1,2,4 --repeat 3

                EXIT STATUS
                  0   every threshold holds
                  1   a threshold was missed, or a process failed
                  65  the directory has results already
                  78  the scenario is wrong
                """)

        @Argument(
            help: ArgumentHelp(
                "Built-in scenario (`sluice bench list`), or a YAML file.", valueName: "scenario"))
        var scenario: String?

        @OptionGroup var overrides: OverrideOptions

        @Option(
            help: ArgumentHelp(
                "Directory for results; made if it is absent. Default: bench-NAME-DATE-TIME.",
                valueName: "dir"))
        var out: String?

        @Flag(help: "List the built-in scenarios.")
        var list = false

        @Flag(
            help: """
                Search the greatest rate at which every threshold holds: doubling, bisection, confirmation. Thresholds \
                of rates are replaced by 98 % of each tried rate.
                """)
        var findMaxRate = false

        @Option(
            help: ArgumentHelp(
                "With --find-max-rate: least distance of a passed and a failed rate, as a share.",
                valueName: "share"))
        var precision = 0.05

        @Option(
            help: ArgumentHelp(
                "Run the scenario with each of several values of a setting, such as workers.shards=1,2,4.",
                valueName: "path=value,…"))
        var sweep: String?

        @Option(
            name: .customLong("repeat"),
            help: ArgumentHelp("Runs of each value, interleaved.", valueName: "n"))
        var repeats = 1

        @Option(
            help: ArgumentHelp(
                "Host on another machine that the load is meant for: the server of APNs, or the first Kafka broker. "
                    + "Required for each. Repeat for both.",
                valueName: "host"))
        var confirmHost: [String] = []

        @Option(
            help: ArgumentHelp(
                "File with the device tokens that may be pushed to. Required when workers elsewhere push, and in place "
                    + "of target.apns.tokens-file.",
                valueName: "file"))
        var tokensFile: String?

        @Option(
            help: ArgumentHelp(
                "Greatest rate of pushes to another machine per second, in place of target.apns.rate-cap. Default: 200.",
                valueName: "n"))
        var rateCap: Double?

        @Flag(name: .shortAndLong, help: "Show no progress.")
        var quiet = false

        func validate() throws {
            if scenario == nil, !list {
                throw ValidationError("name a scenario; `sluice bench list` lists them")
            }
            guard (1...100).contains(repeats) else { throw ValidationError("--repeat: 1 to 100") }
            guard (0.001...1).contains(precision) else { throw ValidationError("--precision: 0.001 to 1") }
            if let rateCap, !(0.001...10_000).contains(rateCap) {
                throw ValidationError("--rate-cap: 0.001 to 10000")
            }
            if findMaxRate, sweep != nil || repeats > 1 {
                throw ValidationError("--find-max-rate excludes --sweep and --repeat")
            }
            if let sweep, !sweep.contains("=") || sweep.hasPrefix("=") {
                throw ValidationError("--sweep: expected path=value,value,…")
            }
        }

        func run() throws {
            guard let scenario, !list else { return BenchCommand.list() }
            let source = try BenchScenarios.load(scenario)
            let base = try source.read(overrides.all)
            let stop = StopSignals()
            let runner = BenchRun(
                directory: source.directory,
                consent: StagePlan.Consent(hosts: confirmHost, allowList: tokensFile, rateCap: rateCap),
                isQuiet: quiet, stop: stop)
            let directory = out ?? BenchOutput.directory(base.name)
            try BenchOutput.checkUnused(directory)
            let output = try BenchOutput(directory: directory)
            if findMaxRate {
                try BenchSearch(
                    source: source, overrides: overrides.all, runner: runner, output: output,
                    precision: precision
                ).run()
            } else if let sweep {
                try runAll(values(sweep, source), runner, output)
            } else if repeats > 1 {
                try runAll([("run", base)], runner, output)
            } else {
                try runOnce(base, runner, output)
            }
        }

        private func runOnce(_ scenario: LoadScenario, _ runner: BenchRun, _ output: BenchOutput) throws {
            let run = try runner.run(scenario)
            let files = try output.write(run.result)
            BenchSummary.lines(run.result).forEach { Terminal.output($0) }
            Terminal.output("")
            files.forEach { Terminal.output("  \($0)") }
            guard run.badEndings.isEmpty else {
                throw CommandFailure(.failure, run.badEndings.joined(separator: ", "))
            }
            if !run.result.isPassed { throw CommandFailure(.failure, "a threshold was missed") }
        }

        /// Scenarios of a sweep, with the names of their directories.
        private func values(_ sweep: String, _ source: BenchSource) throws -> [(String, LoadScenario)] {
            let sign = sweep.firstIndex(of: "=") ?? sweep.endIndex
            let path = sweep[..<sign]
            let values = sweep[sweep.index(after: sign)...].split(separator: ",").map(String.init)
            if values.isEmpty { throw ValidationError("--sweep: expected path=value,value,…") }
            return try values.enumerated().map { index, value in
                let scenario = try source.read(overrides.all + ["\(path)=\(value)"])
                let name = value.map { $0.isLetter || $0.isNumber || ".-_".contains($0) ? $0 : "_" }
                return ("\(index + 1)-\(String(name))", scenario)
            }
        }

        private func runAll(
            _ scenarios: [(name: String, scenario: LoadScenario)], _ runner: BenchRun, _ output: BenchOutput
        ) throws {
            var table = TextTable()
            table.rightAligned = [1, 2, 3, 4, 5, 6]
            table.add("run", "rate/s", "p50 ms", "p99 ms", "lost", "duplicated", "µs/job", "verdict")
            var isPassed = true
            var groups = scenarios.map { name, scenario in
                Comparison.Group(name: scenario.overrides.last ?? name, results: [])
            }
            // Without a sweep, each run is compared with the first.
            if sweep == nil { groups = [] }
            for round in 1...repeats {
                for (index, (name, scenario)) in scenarios.enumerated() {
                    let label = repeats > 1 ? "\(name)-\(round)" : name
                    if !quiet { Terminal.error("run \(label)") }
                    let run = try runner.run(scenario)
                    try output.subdirectory(label).write(run.result)
                    if sweep == nil {
                        groups.append(Comparison.Group(name: label, results: [run.result]))
                    } else {
                        groups[index].results.append(run.result)
                    }
                    let row = BenchSummary.row(run.result)
                    let isRight = run.result.isPassed && run.badEndings.isEmpty
                    isPassed = isPassed && isRight
                    table.add(
                        label, row[0], row[1], row[2], row[3], row[4], row[5], isRight ? "passed" : "missed")
                }
            }
            table.lines().forEach { Terminal.output($0) }
            Terminal.output("")
            let page = ComparisonReport(Comparison(groups)).page()
            try output.write([("comparison.html", Data(page.utf8))])
            Terminal.output("  \(output.path)/comparison.html")
            if !isPassed { throw CommandFailure(.failure, "a threshold was missed, or a process failed") }
        }
    }
}

/// Directory of a run's results.
struct BenchOutput {
    let path: String

    init(directory: String) throws(CommandFailure) {
        path = directory
        do {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        } catch {
            throw CommandFailure(
                .unavailable, "can't make the directory \(directory): \(error.localizedDescription)")
        }
    }

    /// Files that a run, a sweep or a search writes.
    private static let files = [
        "result.json", "report.html", "scenario.yaml", "comparison.html", "search.json",
    ]

    /// Throws for a directory whose files a run would overwrite: results, or the scenario itself.
    static func checkUnused(_ directory: String) throws(CommandFailure) {
        let manager = FileManager.default
        let entries = (try? manager.contentsOfDirectory(atPath: directory)) ?? []
        let present =
            files.first(where: entries.contains)
            ?? entries.sorted().map { "\($0)/result.json" }
            .first { manager.fileExists(atPath: "\(directory)/\($0)") }
        guard let present else { return }
        throw CommandFailure(
            .dataError,
            "\(directory) has a file \(present), which a run would overwrite; name another directory with --out"
        )
    }

    /// Name of a directory for a scenario that runs now.
    static func directory(_ name: String) -> String {
        var now = time(nil)
        var parts = tm()
        localtime_r(&now, &parts)
        return String(
            format: "bench-%@-%04d%02d%02d-%02d%02d%02d", name, parts.tm_year + 1_900, parts.tm_mon + 1,
            parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec)
    }

    func subdirectory(_ name: String) throws(CommandFailure) -> BenchOutput {
        try BenchOutput(directory: "\(path)/\(name)")
    }

    /// Writes result, scenario and report. Returns the paths.
    @discardableResult
    func write(_ result: RunResult) throws(CommandFailure) -> [String] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        var files: [(name: String, data: Data)] = []
        do {
            files.append(("result.json", try encoder.encode(result)))
        } catch {
            throw CommandFailure(.internalError, "can't encode the result: \(error)")
        }
        files.append(("report.html", Data(RunReport(result).page().utf8)))
        files.append(("scenario.yaml", Data(result.scenario.text.utf8)))
        return try write(files)
    }

    /// Writes files, and returns their paths.
    @discardableResult
    func write(_ files: [(name: String, data: Data)]) throws(CommandFailure) -> [String] {
        var paths: [String] = []
        for file in files {
            let target = "\(path)/\(file.name)"
            do {
                try file.data.write(to: URL(filePath: target), options: .atomic)
            } catch {
                throw CommandFailure(.unavailable, "can't write \(target): \(error.localizedDescription)")
            }
            paths.append(target)
        }
        return paths
    }
}
