import Foundation
import TestSupport
import Testing

/// `sluice simulator --devices` as a process.
@Suite("Command line: simulator's devices")
struct SimulatorDevicesTests {
    /// Starts a simulator and waits until it is ready; returns the lines of its ready file.
    private static func start(
        _ arguments: [String], _ directory: TemporaryDirectory
    ) throws -> (process: ChildProcess, lines: [String]) {
        let process = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--http-port", "0", "--stop-with-input", "--ready-file",
                directory.file("ready"), "--summary-file", directory.file("summary"),
            ] + arguments)
        try process.waits(for: "the simulator is ready") { directory.read("ready") != nil }
        return (process, (directory.read("ready") ?? "").split(separator: "\n").map(String.init))
    }

    private static func page(_ lines: [String]) throws -> String {
        String(try #require(lines.first { $0.hasPrefix("page ") }).dropFirst(5))
    }

    private static func status(_ arguments: String...) throws -> String {
        try ChildProcess.run(
            "/usr/bin/env", ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"] + arguments
        ).standardOutput
    }

    @Test("options that have no effect, and faulty files, are refused with their cause")
    func refusals() throws {
        for arguments in [
            ["--apps", "x.yaml"], ["--sandbox-port", "0"], ["--device-jobs", "a:1"], ["--http-host", "x"],
            ["--devices", "--null"],
        ] {
            let result = try ChildProcess.run(Executables.sluice, ["simulator", "--port", "0"] + arguments)
            #expect(result.exit == .status(64), "\(arguments)")
        }
        let directory = try TemporaryDirectory()
        let apps = try directory.write("apps:\n  - bundle: com.example.news\n    nam: x\n", to: "apps.yaml")
        let wrong = try sluice("simulator", "--port", "0", "--devices", "--http-port", "0", "--apps", apps)
        #expect(wrong.exit == .status(78))
        #expect(wrong.standardError.contains("\(apps):3:5: apps[0].nam: there is no such setting"))
        let short = try directory.write("short", to: "token")
        let token = try sluice(
            "simulator", "--port", "0", "--devices", "--http-port", "0", "--http-token-file", short)
        #expect(token.exit == .status(78))
        #expect(token.standardError.contains(short))
    }

    @Test("the ready file names page and other environment; the summary has what the devices showed")
    func readyAndSummary() throws {
        let directory = try TemporaryDirectory()
        let (process, lines) = try Self.start(["--devices", "--sandbox-port", "0"], directory)
        let page = try Self.page(lines)
        #expect(lines.contains { $0.hasPrefix("sandbox 127.0.0.1:") })
        #expect(try Self.status("\(page)api/status") == "200")
        #expect(
            try Self.status("-H", "Content-Type: application/json", "-d", "{}", "\(page)api/devices") == "201"
        )
        process.closeInput()
        try process.wait()
        let summary = try #require(
            try JSONSerialization.jsonObject(with: Data((directory.read("summary") ?? "").utf8))
                as? [String: Any])
        let devices = try #require(summary["devices"] as? [String: Any])
        #expect(devices["devices"] as? Int == 1)
        #expect(process.standardOutput.contains("devices 1, online 1: pushes 0"))
    }

    @Test("another address than loopback needs a token, which is made and printed once")
    func token() throws {
        let directory = try TemporaryDirectory()
        let (process, lines) = try Self.start(["--devices", "--http-address", "0.0.0.0"], directory)
        let page = try Self.page(lines).replacing("0.0.0.0", with: "127.0.0.1")
        #expect(try Self.status("\(page)api/status") == "401")
        let printed = process.standardOutput.split(separator: "\n").first { $0.contains("token") }
        let token = try #require(printed?.split(separator: " ").last)
        #expect(token.count == 64)
        #expect(try Self.status("-H", "Authorization: Bearer \(token)", "\(page)api/status") == "200")
        process.closeInput()
        try process.wait()
    }
}
