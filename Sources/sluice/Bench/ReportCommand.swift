import ArgumentParser
import Foundation
import LoadTest

/// `sluice bench report`
struct ReportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report",
        abstract: "Make a page of a result, or a page that compares several.",
        discussion: """
            The page is one HTML file without further files, scripts from elsewhere or requests. With several results, the \
            first is the base of all differences. `sluice bench compare` compares groups of runs.

              sluice bench report bench-steady-20260102-030405
              sluice bench report before/result.json after/result.json --out comparison.html
            """)

    @Argument(help: ArgumentHelp("Files result.json, or their directories.", valueName: "result"))
    var results: [String]

    @Option(help: ArgumentHelp("File of the page.", valueName: "file"))
    var out = "report.html"

    func run() throws {
        let read = try ResultFile.read(results)
        guard read.count > 1 else {
            try ResultFile.write(Data(RunReport(read[0]).page().utf8), to: out)
            Terminal.output(
                "\(read[0].scenario.name): \(read[0].isPassed ? "passed" : "missed"); report: \(out)")
            return
        }
        let groups = zip(ResultFile.labels(results), read).map { Comparison.Group(name: $0, results: [$1]) }
        try CompareCommand.write(Comparison(groups), to: out)
    }
}
