import Foundation
import TestSupport
import Testing

/// The page of `sluice simulator --devices`, in a real browser. Its pictures are left in `.build/page`.
@Suite("Devices: the page in Chromium")
struct DevicePageTests {
    static let canRun = PythonPackages.interpreter != nil && Executables.find("chromium") != nil

    @Test(.enabled(if: canRun, "Chromium or the packages of Tests/requirements.txt are not installed"))
    func pageShowsWhatDevicesShowAndAxeFindsNothing() throws {
        let directory = try TemporaryDirectory("page")
        // A busy machine needs longer than a banner's five seconds to look at it.
        let apps = try directory.write("settings: {banner-time: 10m}\n", to: "apps.yaml")
        let simulator = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--devices", "--port", "0", "--sandbox-port", "0", "--http-port", "0",
                "--ready-file", directory.file("ready"), "--apps", apps,
                "--hint-bootstrap-servers", "127.0.0.1:9092",
            ])
        try simulator.waits(for: "the simulator is ready") { directory.read("ready") != nil }
        let ready = (directory.read("ready") ?? "").split(separator: "\n")
        let page = try #require(ready.first { $0.hasPrefix("page ") }).dropFirst(5)
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let result = try ChildProcess.run(
            PythonPackages.interpreter ?? "",
            [
                root.appending(path: "Tests/Browser/page_test.py").path(percentEncoded: false), String(page),
                root.appending(path: ".build/page").path(percentEncoded: false),
            ], timeout: .seconds(900))
        // A long comment is cut, so it opens with what failed.
        let lines = result.standardOutput.split(separator: "\n").sorted {
            $0.hasPrefix("FAIL") && !$1.hasPrefix("FAIL")
        }
        #expect(result.exit == .status(0), "\(lines.joined(separator: "\n"))\n\(result.standardError)")
        // The simulator has outlived all that the page asked of it.
        #expect(try simulator.stop() == .status(0), "\(simulator.standardError)")
    }
}
