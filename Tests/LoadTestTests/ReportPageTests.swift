import Foundation
import TestSupport
import Testing

@testable import LoadTest

/// Pages of load tests in a real browser. Their pictures, and what a printer would get, are left in `.build/report`.
@Suite("Load test: pages in Chromium")
struct ReportPageTests {
    static let canRun = PythonPackages.interpreter != nil && Executables.find("chromium") != nil

    @Test(.enabled(if: canRun, "Chromium or the packages of Tests/requirements.txt are not installed"))
    func pagesFitScreensAndPaperAndAxeFindsNothing() throws {
        let directory = try TemporaryDirectory("report")
        for (name, page) in SampleResults.pages { try directory.write(page, to: "\(name).html") }
        let result = try ChildProcess.run(
            PythonPackages.interpreter ?? "",
            [
                "\(Repository.root)/Tests/Browser/report_test.py", directory.path,
                "\(Repository.root)/.build/report",
            ], timeout: .seconds(900))
        #expect(result.exit == .status(0), "\(result.standardOutput)\n\(result.standardError)")
        #expect(result.standardOutput.split(separator: "\n").count == SampleResults.pages.count)
    }
}
