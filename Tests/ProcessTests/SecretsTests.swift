import Foundation
import TestSupport
import Testing

@Suite("Secrets of a worker, as a process")
struct SecretsTests {
    private func mode(_ path: String) throws -> mode_t {
        var status = stat()
        try #require(lstat(path, &status) == 0)
        return status.st_mode & 0o777
    }

    private func run(_ installation: Installation, _ more: String, ready: String) throws -> ChildProcess {
        let path = try installation.directory.write(
            installation.configuration(more: more), to: "\(ready).yaml")
        let worker = try ChildProcess(
            Executables.sluice,
            ["run", "-c", path, "--stop-with-input", "--ready-file", installation.directory.file(ready)])
        try worker.waits(for: "the worker has partitions") { installation.directory.read(ready) != nil }
        return worker
    }

    @Test("memory, the store and what is written are the owner's alone; exposed keys are named")
    func defaults() throws {
        let installation = try Installation()
        let directory = installation.directory
        chmod(directory.file("team.p8"), 0o644)
        mkdir(directory.file("store"), 0o755)
        chmod(directory.file("store"), 0o755)
        let worker = try run(
            installation, "store: {directory: store, changelog: off}", ready: "first.ready")
        let status = try String(contentsOfFile: "/proc/\(worker.identifier)/status", encoding: .utf8)
        #expect(status.contains("Umask:\t0077"))
        #expect(worker.standardError.contains("process protection applied dumpable=off"))
        // For this one the caller decides.
        #expect(try mode(directory.file("first.ready")) == 0o644)
        #expect(try mode(directory.file("store")) == 0o700)
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.file("store"))
        #expect(names.contains("CURRENT"))
        for name in names { #expect(try mode(directory.file("store/\(name)")) == 0o600, "\(name)") }
        let warnings = worker.standardError.split(separator: "\n").filter { $0.contains("chmod 600") }
        #expect(warnings.count == 1)
        #expect(warnings.first?.contains(" warning ") == true)
        #expect(warnings.first?.contains(directory.file("team.p8")) == true)
        #expect(try worker.stop() == .status(0))
    }

    @Test("for debugging, memory may be dumped; keys of the owner's alone are not named")
    func dumpable() throws {
        let installation = try Installation()
        chmod(installation.directory.file("team.p8"), 0o600)
        let worker = try run(installation, "process: {dumpable: on}", ready: "first.ready")
        #expect(worker.standardError.contains("process protection applied dumpable=on"))
        #expect(!worker.standardError.contains("chmod"))
        #expect(try worker.stop() == .status(0))
    }
}
