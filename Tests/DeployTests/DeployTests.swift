import Foundation
import TestSupport
import Testing

/// Artefacts of `Deploy`, each tried with its own tool. `Deploy/check-deploy` runs the same checks, and those that take longer.
///
/// A check starts processes of its own, so checks run one after another.
@Suite("Deploy: checks", .serialized)
struct DeployTests {
    /// Longest run of a check, after which the check counts as stuck.
    private static let patience: Duration = .seconds(600)

    /// Names of the executables in `Deploy/checks` whose third line is `# quick`.
    static let quickChecks: [String] = {
        let directory = "\(Repository.root)/Deploy/checks"
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.filter { name in
            guard FileManager.default.isExecutableFile(atPath: "\(directory)/\(name)"),
                let text = try? Repository.read("Deploy/checks/\(name)")
            else { return false }
            let lines = text.split(separator: "\n", maxSplits: 3, omittingEmptySubsequences: false)
            return lines.count > 2 && lines[2].hasPrefix("# quick")
        }.sorted()
    }()

    @Test("a quick check that runs passes, or is left out with a reason", arguments: quickChecks)
    func quickCheckPasses(_ name: String) throws {
        let run = try ChildProcess.run(
            "\(Repository.root)/Deploy/checks/\(name)", environment: ["SLUICE": Executables.sluice],
            timeout: Self.patience)
        if run.exit == .status(77) {
            let reason = run.standardOutput.split(separator: "\n").last
            print("Deploy/checks/\(name) is left out: \(reason ?? "")")
            #expect(reason != nil, "a check that is left out prints the reason as its last line")
        } else {
            #expect(
                run.exit == .status(0),
                "\(run.standardOutput.suffix(4_000))\n\(run.standardError.suffix(4_000))")
        }
    }

    @Test("each file in Deploy/checks is executable and opens with its purpose")
    func checksHaveAPurpose() throws {
        let directory = "\(Repository.root)/Deploy/checks"
        let names = try FileManager.default.contentsOfDirectory(atPath: directory)
        for name in names where !name.hasPrefix("_") {
            #expect(FileManager.default.isExecutableFile(atPath: "\(directory)/\(name)"), "\(name)")
            let lines = try Repository.read("Deploy/checks/\(name)").split(separator: "\n")
            #expect(lines.first?.hasPrefix("#!") == true, "\(name)")
            #expect(lines.dropFirst().first?.hasPrefix("# ") == true, "\(name)")
        }
        #expect(!Self.quickChecks.isEmpty)
    }

    @Test("check-deploy with passed, left out and failed checks prints each in its table and fails")
    func tableHasEachResult() throws {
        let root = try TemporaryDirectory("deploy")
        let manager = FileManager.default
        try manager.createDirectory(atPath: root.file("Deploy/checks"), withIntermediateDirectories: true)
        try manager.copyItem(
            atPath: "\(Repository.root)/Deploy/check-deploy", toPath: root.file("Deploy/check-deploy"))
        let checks = [
            ("good", "exit 0"), ("absent", "echo 'no such tool'; echo complaint >&2; exit 77"),
            ("bad", "echo 'a fault'; exit 3"),
        ]
        for (name, body) in checks {
            let file = try root.write(
                "#!/bin/sh\n# \(name) is checked.\n\(body)\n", to: "Deploy/checks/\(name)")
            try manager.setAttributes([.posixPermissions: 0o755], ofItemAtPath: file)
        }
        let script = root.file("Deploy/check-deploy")
        let environment = ["SLUICE": try Executables.sluice]
        let all = try ChildProcess.run(script, environment: environment)
        #expect(all.exit == .status(1))
        #expect(all.standardOutput.contains("a fault"))
        #expect(all.standardOutput.contains(#/\ngood +passed +\d+ s  good is checked\./#))
        #expect(all.standardOutput.contains(#/\nabsent +left out +\d+ s  no such tool\n/#))
        #expect(all.standardOutput.contains(#/\nbad +FAILED +\d+ s  exit status 3/#))
        let two = try ChildProcess.run(script, ["good", "absent"], environment: environment)
        #expect(two.exit == .status(0))
        let unknown = try ChildProcess.run(script, ["unknown"], environment: environment)
        #expect(unknown.exit == .status(64))
    }
}
