import Foundation
import LoadTest

/// `--find-max-rate`: runs the scenario at rates that a search chooses.
struct BenchSearch {
    let source: BenchSource
    let overrides: [String]
    let runner: BenchRun
    let output: BenchOutput
    let precision: Double

    /// Result of a search: `search.json`.
    struct Report: Codable {
        /// Greatest confirmed rate in jobs per second; nil: none.
        var rate: Double?
        /// Least rate that failed; nil: none.
        var failedRate: Double?
        var isLimitedByGenerator: Bool
        var probes: [RateSearch.Probe]
    }

    /// Searches, writes the report and the result of the last confirmed run, and prints the answer.
    /// - Throws: when no rate passes, and for a scenario without an open loop.
    func run() throws {
        let scenario = try source.read(overrides)
        let base = scenario.mainRate
        guard base > 0 else {
            throw CommandFailure(
                .configuration,
                "--find-max-rate needs a load with a rate in a main phase; a closed loop has none")
        }
        let most = max(base, base * (try runner.greatestFactor(scenario)))
        var search = RateSearch(start: base, precision: precision)
        while let next = search.next {
            guard next.rate <= most else {
                search.record(isPassed: false)
                continue
            }
            let tried = try source.read(
                overrides + scenario.overrides(multiplyingRatesBy: next.rate / base))
            if !runner.isQuiet {
                Terminal.error(
                    "\(next.isConfirmation ? "confirm" : "try") \(Numbers.grouped(Int(next.rate.rounded())))/s"
                )
            }
            let run = try runner.run(tried)
            var missed = run.result.thresholds.filter { !$0.isMet && !isRate($0.name) }.map(\.name)
            let open = tried.loads.filter { if case .closed = $0.arrival { false } else { true } }
            if !run.result.hasKeptUp(loads: Set(open.map(\.name))) { missed.append("rate") }
            missed += run.badEndings
            // The reader of outcomes is a part of the generator.
            let limit =
                run.result.generator.wasLimit
                ? "the generator" : run.result.reader?.wasLimit == true ? "the reader of outcomes" : nil
            search.record(isPassed: missed.isEmpty, generatorWasLimit: limit != nil)
            let row = BenchSummary.row(run.result)
            Terminal.output(
                "\(Numbers.grouped(Int(next.rate.rounded())))/s  \(missed.isEmpty ? "passed" : "missed: \(missed.joined(separator: ", "))")"
                    + "  p50 \(row[1]) ms, p99 \(row[2]) ms"
                    + (limit.map { "  (\($0) was the limit)" } ?? ""))
            try output.subdirectory(String(format: "%02d", search.probes.count)).write(run.result)
            if search.confirmed != nil { try output.write(run.result) }
        }
        let report = Report(
            rate: search.confirmed, failedRate: search.failed.flatMap { $0 <= most ? $0 : nil },
            isLimitedByGenerator: search.isLimitedByGenerator,
            probes: search.probes.filter { $0.rate <= most })
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        try output.write([("search.json", try encoder.encode(report))])
        Terminal.output("")
        guard let rate = search.confirmed else {
            throw CommandFailure(.failure, "no rate passed; the results are in \(output.path)")
        }
        let more =
            search.isLimitedByGenerator
            ? " at least; the generator or its reader was the limit above"
            : report.failedRate == nil && most.isFinite ? " at least; the rate cap was the limit" : ""
        Terminal.output("  \(Numbers.grouped(Int(rate.rounded())))/s\(more)")
        Terminal.output("  \(output.path)")
    }

    private func isRate(_ name: String) -> Bool { name.hasSuffix("rate") }
}
