import Foundation
import TestSupport
import Testing

/// `sluice ctl` against a worker's process.
@Suite("sluice ctl") struct ControlTests {
    private func control(
        _ arguments: [String]
    ) throws -> (
        exit: ChildProcess.Exit, standardOutput: String, standardError: String
    ) {
        try ChildProcess.run(Executables.sluice, ["ctl"] + arguments)
    }

    /// Launches a worker with settings of the section `admin`, and waits until it has partitions.
    private func worker(
        _ bed: Bed, _ admin: [String: String], name: String = "worker"
    ) throws -> WorkerProcess {
        let worker = try launch(bed, admin, name: name)
        try worker.waitUntilReady()
        return worker
    }

    private func launch(_ bed: Bed, _ admin: [String: String], name: String) throws -> WorkerProcess {
        var options = WorkerOptions()
        for (setting, value) in admin { options.environment["SLUICE_ADMIN__\(setting)"] = value }
        return try bed.launch(options, name: name)
    }

    private func socketAlone(_ bed: Bed) -> [String: String] {
        ["LISTEN": "off", "SOCKET": bed.directory.file("admin.sock")]
    }

    @Test func pauseResumeAndStatusThroughTheSocket() throws {
        try withBed { bed in
            let socket = bed.directory.file("admin.sock")
            let worker = try worker(bed, socketAlone(bed))
            let config = [
                "--config", try bed.directory.write("admin: {socket: admin.sock}\n", to: "ctl.yaml"),
            ]
            #expect(
                try FileManager.default.attributesOfItem(atPath: socket)[.posixPermissions] as? Int == 0o600)
            let before = try control(["status"] + config)
            #expect(before.exit == .status(0) && before.standardOutput.contains("nothing is paused"))
            let pause = try control(["pause", "all", "--note", "wrong price & more"] + config)
            #expect(pause.exit == .status(0))
            #expect(pause.standardOutput == "all sending is paused on this worker, until its process ends\n")
            let status = try control(["status", "--socket", socket])
            #expect(status.standardOutput.contains("all sending paused since "))
            #expect(status.standardOutput.contains(": wrong price & more"))
            let json = try control(["status", "--json"] + config)
            let document =
                try JSONSerialization.jsonObject(with: Data(json.standardOutput.utf8)) as? [String: Any]
            #expect((document?["paused"] as? [[String: Any]])?.first?["scope"] as? String == "all")
            try worker.waitForOutput("an operator has paused sending")
            #expect(try control(["resume", "all"] + config).exit == .status(0))
            try worker.waitForOutput("an operator has resumed sending")

            let wrong = try control(["pause", "app", "nwes"] + config)
            #expect(wrong.exit == .status(1))
            #expect(wrong.standardError.contains("there is no app `nwes`; there are: "))
            #expect(try control(["pause", "app"] + config).exit == .status(64))
            #expect(try control(["pause", "everything"] + config).exit == .status(64))
            let missing = try control(["status", "--socket", bed.directory.file("none")])
            #expect(missing.exit == .status(1))
            #expect(missing.standardError.contains("no worker has made the socket: compare the path"))
            // Only `all=1` pauses everything: `all=0` must not.
            let zero = try ChildProcess.run(
                "/usr/bin/env",
                [
                    "curl", "-s", "-X", "POST", "--unix-socket", socket,
                    "http://localhost/switches/pause?all=0",
                ])
            #expect(zero.standardOutput.contains("`all` is 1, or left out"))
            #expect(try control(["status"] + config).standardOutput.contains("nothing is paused"))
            try worker.end()
            #expect(!FileManager.default.fileExists(atPath: socket))
        }
    }

    @Test func levelOfTheLogChangesAndDrainEndsTheProcess() throws {
        try withBed { bed in
            let worker = try worker(bed, socketAlone(bed))
            let socket = ["--socket", bed.directory.file("admin.sock")]
            #expect(try control(["log-level", "loud"] + socket).exit == .status(64))
            #expect(try control(["log-level", "error"] + socket).exit == .status(0))
            #expect(try control(["status"] + socket).standardOutput.contains("log level error"))
            _ = try control(["pause", "all"] + socket)
            #expect(!worker.log.contains("an operator has paused sending"))
            #expect(try control(["log-level", "info"] + socket).exit == .status(0))
            _ = try control(["resume", "all"] + socket)
            try worker.waitForOutput("an operator has resumed sending")
            let drain = try control(["drain"] + socket)
            #expect(drain.exit == .status(0))
            // A supervisor's SIGTERM behind the command is no second request.
            try worker.end(by: SIGTERM, with: .status(0))
        }
    }

    @Test func purgeNeedsAStore() throws {
        try withBed { bed in
            let worker = try worker(bed, socketAlone(bed))
            let purge = try control(["purge", "--wait", "--socket", bed.directory.file("admin.sock")])
            #expect(purge.exit == .status(1))
            #expect(purge.standardError.contains("this worker has no store"))
            try worker.end()
        }
    }

    @Test func purgeOfAllPartitionsIsAwaited() throws {
        try withBed { bed in
            var options = WorkerOptions(more: "store: {directory: store, changelog: off}")
            options.environment = ["SLUICE_ADMIN__SOCKET": bed.directory.file("admin.sock")]
            let worker = try bed.start(options)
            let socket = ["--socket", bed.directory.file("admin.sock")]
            let purge = try control(["purge", "--all", "--wait"] + socket)
            #expect(purge.exit == .status(0), "\(purge.standardError)")
            #expect(purge.standardOutput == "purging \(bed.partitions) partitions\npurged\n")
            let unneeded = try control(["purge", "--wait"] + socket)
            #expect(unneeded.standardOutput == "no partition has erased data\n")
            try worker.end()
        }
    }

    @Test func commandsOverTCPNeedTheToken() throws {
        try withBed { bed in
            let token = try bed.directory.write("0123456789abcdef-x\n", to: "token")
            let short = try bed.directory.write("short\n", to: "short")
            let wrong = try bed.directory.write("0123456789abcdef-y\n", to: "wrong")
            let port = try freePort()
            let worker = try worker(
                bed, ["LISTEN": "127.0.0.1:\(port)", "TOKEN_FILE": bed.directory.file("token")])
            let admin = ["--admin", "127.0.0.1:\(port)"]
            #expect(try control(["status"] + admin).exit == .status(0))
            let refused = try control(["pause", "all"] + admin)
            #expect(refused.exit == .status(1) && refused.standardError.contains("status 401"))
            #expect(refused.standardError.contains("--token-file of `sluice ctl`"))
            let other = try control(["pause", "all", "--token-file", wrong] + admin)
            #expect(other.exit == .status(1))
            #expect(other.standardError.contains("the token is not that of this worker's admin.token-file"))
            #expect(try control(["pause", "all", "--token-file", short] + admin).exit == .status(1))
            #expect(try control(["pause", "all", "--token-file", token] + admin).exit == .status(0))
            // The file is read anew for each command.
            try bed.directory.write("0123456789abcdef-y\n", to: "token")
            #expect(try control(["resume", "all", "--token-file", wrong] + admin).exit == .status(0))
            let curl = try ChildProcess.run(
                "/usr/bin/env",
                ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:\(port)/drain"])
            #expect(curl.standardOutput == "405")
            #expect(!worker.log.contains("0123456789abcdef"))
        }
    }

    @Test func endpointWithoutTokenTakesNoCommands() throws {
        try withBed { bed in
            let port = try freePort()
            _ = try worker(bed, ["LISTEN": "127.0.0.1:\(port)"])
            let refused = try control(["drain", "--admin", "127.0.0.1:\(port)"])
            #expect(refused.exit == .status(1) && refused.standardError.contains("admin.token-file"))
        }
    }

    /// A worker that was killed leaves its socket, and the next one takes the path over.
    @Test func socketOfAKilledWorkerIsReplaced() throws {
        try withBed { bed in
            let first = try worker(bed, socketAlone(bed))
            let second = try launch(bed, socketAlone(bed), name: "second")
            let exit = try second.waitForEnd()
            #expect(exit == .status(69) && second.log.contains("another process uses the path"))
            try first.end(by: SIGKILL, with: .signal(SIGKILL))
            _ = try worker(bed, socketAlone(bed), name: "third")
            #expect(try control(["status", "--socket", bed.directory.file("admin.sock")]).exit == .status(0))
        }
    }
}
