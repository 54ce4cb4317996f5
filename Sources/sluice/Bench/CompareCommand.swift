import ArgumentParser
import Foundation
import LoadTest

/// `sluice bench compare`
struct CompareCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "compare",
        abstract: "Compare two groups of runs, with 95 % intervals of the differences.",
        discussion: """
            Runs of both groups should alternate, so that slow changes of the machine meet both. With two runs or more in \
            each group, intervals come from the runs. With a single run, intervals come from its seconds, and leave out the \
            difference between one run and the next.

              sluice bench compare a1 a2 a3 --with b1 b2 b3 --labels one-shard,two-shards
            """)

    @Argument(
        help: ArgumentHelp(
            "Results of the base: files result.json, or their directories.", valueName: "result"))
    var results: [String]

    @Option(
        name: .customLong("with"), parsing: .upToNextOption,
        help: ArgumentHelp("Results that are compared with the base.", valueName: "result"))
    var others: [String]

    @Option(help: ArgumentHelp("Names of the base and the others.", valueName: "base,others"))
    var labels = "A,B"

    @Option(help: ArgumentHelp("File of the page.", valueName: "file"))
    var out = "comparison.html"

    private var names: [String] {
        labels.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
    }

    func validate() throws {
        guard names.count == 2, !names.contains(""), names[0] != names[1] else {
            throw ValidationError("--labels: two different names with a comma between, such as before,after")
        }
        if results.isEmpty || others.isEmpty {
            throw ValidationError("each group needs a result: sluice bench compare A… --with B…")
        }
    }

    func run() throws {
        let groups = [
            Comparison.Group(name: names[0], results: try ResultFile.read(results)),
            Comparison.Group(name: names[1], results: try ResultFile.read(others)),
        ]
        try Self.write(Comparison(groups), to: out)
    }

    /// Writes the page, and prints the differences.
    static func write(_ comparison: Comparison, to path: String) throws(CommandFailure) {
        try ResultFile.write(Data(ComparisonReport(comparison).page().utf8), to: path)
        let base = comparison.groups[0].name
        for pair in comparison.pairs {
            var table = TextTable()
            table.rightAligned = [1, 2, 3, 4]
            table.add("\(pair.name) against \(base)", base, pair.name, "difference", "95 % interval")
            for line in pair.lines where line.base != nil || line.other != nil {
                let unit = line.unit.isEmpty ? "" : ", \(line.unit)"
                let interval: String? = line.low.flatMap { low in
                    line.high.map { "\(FigureText.number(low)) to \(FigureText.number($0))" }
                }
                table.add(
                    line.name + unit, FigureText.number(line.base), FigureText.number(line.other),
                    FigureText.number(line.difference), interval ?? "–", line.verdict)
            }
            table.lines().forEach { Terminal.output($0) }
            Terminal.output("")
            Terminal.output(ComparisonReport.explanation(pair.method))
            Terminal.output("")
        }
        Terminal.output("report: \(path)")
    }
}
