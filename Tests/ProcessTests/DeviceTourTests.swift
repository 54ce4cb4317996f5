import Foundation
import TestSupport
import Testing

/// Devices behind the simulator, as an app developer meets them.
@Suite("Devices: the tour and `sluice dev`")
struct DeviceTourTests {
    /// Lines of a ready file, once it is there.
    private func lines(
        _ name: String, of process: ChildProcess, in directory: TemporaryDirectory
    ) throws -> [String] {
        try process.waits(for: "\(name) is written") { directory.read(name) != nil }
        return (directory.read(name) ?? "").split(separator: "\n").map(String.init)
    }

    private func port(_ address: String) -> String { String(address.split(separator: ":").last ?? "") }

    @Test(.enabled(if: Executables.find("python3") != nil, "python3 is not installed"))
    func eachRowOfTheTourIsAsDescribed() throws {
        let directory = try TemporaryDirectory("tour")
        let deploy = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Deploy").path(percentEncoded: false)
        let simulator = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--devices", "--apps", "\(deploy)/device-tour.yaml", "--directory",
                directory.path, "--port", "0", "--sandbox-port", "0", "--http-port", "0", "--ready-file",
                directory.file("ready"),
            ])
        let ready = try lines("ready", of: simulator, in: directory)
        let page = try #require(ready.first { $0.hasPrefix("page ") }).dropFirst(5)
        let sandbox = try #require(ready.first { $0.hasPrefix("sandbox ") })
        let tour = try ChildProcess.run(
            "python3",
            [
                "\(deploy)/device-tour.py", "--api", page.hasSuffix("/") ? "\(page.dropLast())" : "\(page)",
                "--apns", "https://localhost:\(port(ready[0]))", "--sandbox",
                "https://localhost:\(port(sandbox))", "--ca", directory.file("ca.pem"),
            ])
        #expect(tour.exit == .status(0), "\(tour.standardOutput.suffix(4_000))\n\(tour.standardError)")
        #expect(tour.standardOutput.contains("27 of 27 rows as described"))
        #expect(try simulator.stop() == .status(0))
    }

    @Test func devShowsAPushOnADevice() throws {
        let directory = try TemporaryDirectory("dev")
        let dev = try ChildProcess(
            Executables.sluice,
            [
                "dev", "--kafka-port", "0", "--port", "0", "--sandbox-port", "0", "--http-port", "0",
                "--directory",
                directory.file("a stage"), "--ready-file", directory.file("ready"),
            ])
        let ready = try lines("ready", of: dev, in: directory)
        try dev.waitForOutput("Ctrl-C ends all.")
        // The command that it prints, as a reader would copy it.
        let words = dev.standardOutput.components(separatedBy: "sluice produce ")[1].prefix { $0 != "\n" }
        let token = dev.standardOutput.components(separatedBy: "--device-token ")[1].prefix { $0.isHexDigit }
        #expect(words.contains(ready[0]))
        let produced = try ChildProcess.run(
            Executables.sluice,
            [
                "produce", "--bootstrap-servers", ready[0], "--topic", "com.example.news", "--alert",
                "Hello from outside", "--device-token", String(token),
            ])
        #expect(produced.exit == .status(0), "\(produced.standardError)")
        let shown = try ChildProcess.run(
            "curl",
            [
                "--silent", "--show-error", "--fail",
                "\(ready[2])api/wait?device=\(token)&body=Hello%20from%20outside&timeout=50",
            ])
        #expect(shown.exit == .status(0), "\(shown.standardOutput)\(shown.standardError)")
        // Likewise the commands of `sluice ctl`.
        #expect(try printed("ctl status", by: dev).contains("nothing is paused"))
        #expect(try printed("ctl pause", by: dev).hasPrefix("app com-example-news is paused on this worker"))
        #expect(try printed("ctl status", by: dev).contains("app com-example-news paused since "))
        let second = try sluice(
            "dev", "--kafka-port", "0", "--port", "0", "--sandbox-port", "0", "--http-port", "0",
            "--directory",
            directory.file("a stage"))
        #expect(second.exit == .status(69))
        #expect(second.standardError.contains("choose another --directory"), "\(second.standardError)")
        #expect(try printed("ctl resume", by: dev).hasPrefix("app com-example-news is resumed"))
        let socket = directory.file("a stage/worker.sock")
        #expect(
            try FileManager.default.attributesOfItem(atPath: socket)[.posixPermissions] as? Int == 0o600)
        #expect(try dev.stop() == .status(0), "\(dev.standardError)")
        #expect(directory.read("ready") == nil)
        #expect(directory.read("a stage/worker.yaml") != nil)
        #expect(!FileManager.default.fileExists(atPath: socket))
    }

    /// Runs a command that `sluice dev` has printed, as a shell does, and returns its output.
    private func printed(_ command: String, by dev: ChildProcess) throws -> String {
        let rest = try #require(
            dev.standardOutput.components(separatedBy: "sluice \(command)").dropFirst().first)
        let shell = try ChildProcess.run(
            "sh", ["-c", "\"$0\" \(command)\(rest.prefix { $0 != "\n" })", Executables.sluice])
        #expect(shell.exit == .status(0), "\(shell.standardError)")
        return shell.standardOutput
    }

    /// The directory's path is too long for a socket in it, which only takes `sluice ctl` away.
    @Test func devKeepsTheFilesOfItsUser() throws {
        let directory = try TemporaryDirectory("dev")
        let place = String(repeating: "long", count: 25)
        try FileManager.default.createDirectory(
            atPath: directory.file(place), withIntermediateDirectories: false)
        let apps = "apps: [{bundle: com.example.mine}]\ndevices: [{name: Mine}]\n"
        try directory.write(apps, to: "\(place)/apps.yaml")
        try directory.write("mine", to: "\(place)/sluice.yaml")
        let dev = try ChildProcess(
            Executables.sluice,
            [
                "dev", "--kafka-port", "0", "--port", "0", "--sandbox-port", "0", "--http-port", "0",
                "--directory",
                directory.file(place),
            ])
        try dev.waitForOutput("Ctrl-C ends all.")
        #expect(dev.standardOutput.contains("--topic com.example.mine"))
        #expect(
            dev.standardOutput.contains("ctl      none, because a socket in the directory would have a path"))
        #expect(!dev.standardOutput.contains("sluice ctl"))
        #expect(try dev.stop() == .status(0), "\(dev.standardError)")
        #expect(directory.read("\(place)/apps.yaml") == apps)
        #expect(directory.read("\(place)/sluice.yaml") == "mine")
    }

    @Test func devReportsAPortThatIsTaken() throws {
        let directory = try TemporaryDirectory("dev")
        let first = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--devices", "--http-port", "0", "--ready-file",
                directory.file("ready"),
            ])
        let ready = try lines("ready", of: first, in: directory)
        let result = try ChildProcess.run(
            Executables.sluice, ["dev", "--kafka-port", "0", "--port", port(ready[0]), "--http-port", "0"])
        #expect(result.exit == .status(69), "\(result.standardError)")
        #expect(result.standardError.contains(port(ready[0])), "\(result.standardError)")
        #expect(try first.stop() == .status(0))
    }

    @Test func devNamesTheMistakeInAFileOfApps() throws {
        let directory = try TemporaryDirectory("dev")
        let file = try directory.write(
            "apps:\n  - {bundle: com.example.news, purpose: [alert]}\n", to: "apps.yaml")
        let result = try ChildProcess.run(Executables.sluice, ["dev", "--apps", file])
        #expect(result.exit == .status(78))
        #expect(result.standardError.contains("apps.yaml:2"), "\(result.standardError)")
        #expect(result.standardError.contains("purpose"), "\(result.standardError)")
    }
}
