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

    @Test func workerProtectsItsStoreAndNamesExposedKeys() throws {
        try withBed { bed in
            let directory = bed.directory
            chmod(directory.file("team.p8"), 0o644)
            mkdir(directory.file("store"), 0o755)
            chmod(directory.file("store"), 0o755)
            let worker = try bed.start(
                WorkerOptions(more: "store: {directory: store, changelog: off}"))
            let status = try String(contentsOfFile: "/proc/\(worker.identifier)/status", encoding: .utf8)
            #expect(status.contains("Umask:\t0077"))
            #expect(worker.log.contains("process protection applied dumpable=off"))
            // The mode of the ready file is the caller's choice.
            #expect(try mode(worker.readyFile) == 0o644)
            #expect(try mode(directory.file("store")) == 0o700)
            let names = try FileManager.default.contentsOfDirectory(atPath: directory.file("store"))
            #expect(names.contains("CURRENT"))
            for name in names { #expect(try mode(directory.file("store/\(name)")) == 0o600, "\(name)") }
            let warnings = worker.log.split(separator: "\n").filter { $0.contains("chmod 600") }
            #expect(warnings.count == 1)
            #expect(warnings.first?.contains(" warning ") == true)
            #expect(warnings.first?.contains(directory.file("team.p8")) == true)

            // Changes that the worker hasn't flushed are missing in its open store.
            let open = try sluice("inspect", "store", directory.file("store"), "--json")
            #expect(open.exit == .status(0) && open.standardOutput.hasPrefix("{"))
            #expect(open.standardError.contains("warning: process \(worker.identifier) has the store open"))
            try worker.end()
            #expect(try sluice("inspect", "store", directory.file("store")).standardError == "")
        }
    }

    @Test func dumpableWorkerWithPrivateKeyFileLogsNoWarning() throws {
        try withBed { bed in
            chmod(bed.directory.file("team.p8"), 0o600)
            let worker = try bed.start(WorkerOptions(more: "process: {dumpable: on}"))
            #expect(worker.log.contains("process protection applied dumpable=on"))
            #expect(!worker.log.contains("chmod"))
        }
    }
}
