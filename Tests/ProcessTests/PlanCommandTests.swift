import Foundation
import TestSupport
import Testing

/// `sluice plan`, as a process.
@Suite("Command line: plan")
struct PlanCommandTests {
    @Test("plan --json: figures with their formulas, and the simulation's results")
    func json() throws {
        let result = try sluice("plan", "--rate", "20000", "--round-trip", "150ms", "--simulate", "--json")
        #expect(result.exit == .status(0))
        let document = try #require(
            try JSONSerialization.jsonObject(with: Data(result.standardOutput.utf8)) as? [String: Any])
        let figures = try #require(document["figures"] as? [[String: Any]])
        #expect(figures.contains { $0["key"] as? String == "peak-rate" && $0["value"] as? Double == 40_000 })
        #expect(figures.allSatisfy { ($0["formula"] as? String)?.isEmpty == false })
        let simulated = try #require(document["simulation"] as? [[String: Any]])
        #expect(
            simulated.compactMap { $0["event"] as? String } == [
                "rolling-restart", "zone-lost", "mass-return",
            ])
    }

    @Test("plan: every figure is a line with its formula; --kubernetes prints settings that the worker knows")
    func texts() throws {
        let table = try sluice("plan", "--rate", "20000").standardOutput
        #expect(table.contains("peak rate"))
        #expect(table.contains("rate 20,000 × peak 2"))
        let yaml = try sluice("plan", "--rate", "20000", "--kubernetes").standardOutput
        let settings = try #require(yaml.range(of: "# settings of the worker\n"))
        let directory = try TemporaryDirectory("plan")
        let file = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1"}
            apps: []

            """ + yaml[settings.upperBound...], to: "sluice.yaml")
        // No app is a mistake; no other is.
        let check = try sluice("config", "check", file)
        #expect(check.standardError.contains("apps"))
        #expect(!check.standardError.contains("delivery"))
        #expect(!check.standardError.contains("there is no such setting"))
    }

    @Test(
        "plan with values that can't be planned with: exit status 64, and the option's range",
        arguments: [
            (["--rate", "0"], "--rate: the value must be 0.001 to 1000000000"),
            (["--rate", "1", "--held-share", "2"], "--held-share: the value must be 0 to 1"),
            (["--rate", "1", "--connections", "9", "--max-connections", "8"], "--connections"),
            (["--rate", "1", "--round-trip", "fast"], "--round-trip"),
            (["--rate", "1e9", "--simulate"], "--simulate: the plan has more than 2,000 workers"),
            (["--rate", "1", "--json", "--kubernetes"], "exclude each other"), ([], "--rate"),
        ])
    func faults(arguments: [String], message: String) throws {
        let result = try ChildProcess.run(Executables.sluice, ["plan"] + arguments)
        #expect(result.exit == .status(64))
        #expect(result.standardError.contains(message))
    }
}
