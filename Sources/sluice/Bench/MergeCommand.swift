import ArgumentParser
import Foundation
import LoadTest

/// `sluice bench merge`
struct MergeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "merge",
        abstract: "Merge the results of several generators of one load.",
        discussion: """
            Each generator runs the same scenario with a seed of its own, at the same time, on a machine with a synchronised \
            clock. Counts and latencies add; figures of workers are the greatest that a generator saw. Thresholds are judged \
            anew for the whole load. The exit status is 1 when one is missed.

              sluice bench merge one/result.json two/result.json --out merged.json
            """)

    @Argument(help: ArgumentHelp("Files result.json, or their directories.", valueName: "result"))
    var results: [String]

    @Option(help: ArgumentHelp("File of the merged result.", valueName: "file"))
    var out: String

    func validate() throws {
        if results.count < 2 { throw ValidationError("a merge needs the results of two generators or more") }
    }

    func run() throws {
        let merged: RunResult
        do {
            merged = try RunResult.merged(ResultFile.read(results))
        } catch let fault as MergeFault {
            throw CommandFailure(.dataError, fault.message)
        }
        if let fault = merged.fault { throw CommandFailure(.dataError, "the merged result: \(fault)") }
        try ResultFile.write(try ResultFile.data(merged), to: out)
        for threshold in merged.thresholds {
            let value = threshold.value.map { FigureText.number($0) } ?? "not measured"
            Terminal.output("\(threshold.isMet ? "✓" : "✗") \(threshold.name) \(threshold.bound): \(value)")
        }
        for warning in merged.warnings { Terminal.output("! \(warning)") }
        Terminal.output(
            "\(merged.scenario.name): \(merged.isPassed ? "passed" : "missed"); merged result: \(out)")
        if !merged.isPassed { throw CommandFailure(.failure) }
    }
}
