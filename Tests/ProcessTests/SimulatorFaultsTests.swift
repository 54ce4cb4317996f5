import Foundation
import TestSupport
import Testing

/// `sluice simulator --faults`.
@Suite struct SimulatorFaultsTests {
    private func simulator(_ arguments: String...) throws -> (exit: ChildProcess.Exit, standardError: String)
    {
        let result = try ChildProcess.run(Executables.sluice, ["simulator", "--port", "0"] + arguments)
        return (result.exit, result.standardError)
    }

    @Test func simulatorNamesEachMistakeOfAScriptWithKeyAndLine() throws {
        let directory = try TemporaryDirectory("faults")
        try directory.write("faults:\n  - unanswered: 7\n  - black-hole: {part: 1}\n", to: "faults.yaml")
        let file = directory.file("faults.yaml")
        let result = try simulator("--faults", file)
        #expect(result.exit == .status(78))
        #expect(result.standardError.contains("\(file):2:17: faults[0].unanswered: `7` is not allowed"))
        #expect(
            result.standardError.contains("\(file):3:18: faults[1].black-hole.part: there is no such setting")
        )
        #expect(try simulator("--faults", directory.file("none")).standardError.contains("does not exist"))
    }

    @Test func nullModeHasNoFaults() throws {
        let result = try simulator("--null", "--faults", "f.yaml")
        #expect(result.exit == .status(64))
        #expect(result.standardError.contains("--null has no faults"))
    }

    @Test func errorBudgetIsANumberOrOff() throws {
        for value in ["0", "-1", "many"] {
            #expect(try simulator("--error-budget", value).exit == .status(64))
        }
    }

    @Test func hintOfTheBootstrapServersIsAPlainListForSimulatorsWithDevices() throws {
        for servers in ["host", "host:1; rm", "$(host):1", "'a:1"] {
            let result = try simulator("--devices", "--hint-bootstrap-servers", servers)
            #expect(result.exit == .status(64), "\(servers)")
            #expect(result.standardError.contains("--hint-bootstrap-servers"), "\(servers)")
        }
        #expect(try simulator("--hint-bootstrap-servers", "a:1").exit == .status(64))
    }

    @Test func simulatorReadsItsScriptAgainAfterSIGHUP() throws {
        let directory = try TemporaryDirectory("faults")
        let file = try directory.write("faults: []\n", to: "faults.yaml")
        let process = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--stop-with-input", "--ready-file", directory.file("ready"),
                "--faults", file,
            ])
        try process.waits(for: "the simulator is ready") {
            directory.read("ready")?.contains(":") == true
        }
        let lines = directory.read("ready")
        unlink(directory.file("ready"))
        process.signal(SIGHUP)
        try process.waitForOutput("SIGHUP: the faults of \(file) begin")
        try process.waits(for: "the ready file is written again") { directory.read("ready") == lines }
        // A mistake is reported, and ends nothing.
        try directory.write("faults: [{unanswered: 7}]\n", to: "faults.yaml")
        process.signal(SIGHUP)
        try process.waitForOutput("SIGHUP: the faults before continue: \(file):1:23: faults[0].unanswered")
        #expect(process.isRunning)
        process.closeInput()
        #expect(try process.wait() == .status(0))
    }

    @Test func simulatorPlaysTheExample() throws {
        let directory = try TemporaryDirectory("faults")
        let process = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--stop-with-input", "--ready-file", directory.file("ready"),
                "--faults", "\(Repository.root)/Schemas/examples/faults.yaml", "--error-budget", "off",
                "--excess-streams", "goaway", "--lenient-tokens",
            ])
        try process.waits(for: "the simulator is ready") {
            directory.read("ready")?.contains(":") == true
        }
        process.closeInput()
        #expect(try process.wait() == .status(0))
    }
}
