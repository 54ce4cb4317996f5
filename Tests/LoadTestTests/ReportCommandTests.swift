import Foundation
import TestSupport
import Testing

@testable import LoadTest

@Suite("sluice bench: report, compare, merge")
struct ReportCommandTests {
    private func directory() throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory("bench")
        for (name, result) in [
            ("one", SampleResults.run(seed: 1)), ("two", SampleResults.run(seed: 2, started: 1)),
        ] {
            var result = result
            result.scenario.text = """
                name: outage-and-recovery
                seed: \(result.scenario.seed)
                phases: [{name: main, kind: main, duration: 30s}]
                loads: [{name: all, arrivals: {kind: poisson, rate: 400/s}}]
                thresholds: {lost: 0, latency-p99: ≤ 100ms}

                """
            let path = directory.file(name)
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
            try JSONEncoder().encode(result).write(to: URL(filePath: "\(path)/result.json"))
        }
        return directory
    }

    private func bench(
        _ arguments: String...
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        try ChildProcess.run(Executables.sluice, ["bench"] + arguments)
    }

    @Test("a directory of a run becomes a page, and two become a comparison")
    func report() throws {
        let directory = try directory()
        let single = try bench("report", directory.file("one"), "--out", directory.file("a.html"))
        #expect(single.exit == .status(0), "\(single.standardError)")
        #expect(single.standardOutput == "outage-and-recovery: missed; report: \(directory.file("a.html"))\n")
        #expect(directory.read("a.html")?.contains("Load test: outage-and-recovery") == true)
        let both = try bench(
            "report", directory.file("one/result.json"), directory.file("two"), "--out",
            directory.file("b.html"))
        #expect(both.exit == .status(0), "\(both.standardError)")
        #expect(both.standardOutput.contains("two against one"))
        #expect(directory.read("b.html")?.contains("Comparison of load tests") == true)
    }

    @Test("groups are compared under their labels")
    func compare() throws {
        let directory = try directory()
        let result = try bench(
            "compare", directory.file("one"), "--with", directory.file("two"), "--labels", "old,new", "--out",
            directory.file("c.html"))
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput.contains("new against old"))
        #expect(result.standardOutput.contains("no difference shown"))
        #expect(try bench("compare", directory.file("one")).exit == .status(64))
        let labels = try bench(
            "compare", directory.file("one"), "--with", directory.file("two"), "--labels", "a,a")
        #expect(labels.exit == .status(64))
    }

    @Test("a merge writes one result, and a missed threshold is the exit status")
    func merge() throws {
        let directory = try directory()
        let out = directory.file("merged.json")
        let result = try bench("merge", directory.file("one"), directory.file("two"), "--out", out)
        #expect(result.exit == .status(1), "\(result.standardError)")
        #expect(result.standardOutput.contains("✓ lost ≤ 0: 0"))
        #expect(result.standardOutput.contains("✗ latency-p99 ≤ 100 ms"))
        let merged = try JSONDecoder().decode(RunResult.self, from: Data(contentsOf: URL(filePath: out)))
        #expect(merged.generator.producers == 2)
        let twice = try bench("merge", directory.file("one"), directory.file("one"), "--out", out)
        #expect(twice.exit == .status(65))
        #expect(twice.standardError == "sluice: results 1 and 2 are the same run; name each result once\n")
        #expect(try bench("merge", directory.file("one"), "--out", out).exit == .status(64))
    }

    @Test("a file that is no result is refused with file, place and remedy")
    func badFiles() throws {
        let directory = try directory()
        try directory.write("{\"version\": 1}", to: "short.json")
        try directory.write("not json", to: "text.json")
        let sound = try #require(directory.read("one/result.json"))
        try directory.write(sound.replacing("\"version\":1", with: "\"version\":9"), to: "later.json")
        try directory.write(sound.replacing("\"missing\":0", with: "\"missing\":-5"), to: "negative.json")
        for (name, message) in [
            ("absent.json", "can't read"), ("short.json", "is no result of sluice bench: the member "),
            ("text.json", "is no result of sluice bench"), ("later.json", "this program reads version 1"),
            ("negative.json", "audit.missing is -5"),
        ] {
            let result = try bench("report", directory.file(name), "--out", directory.file("x.html"))
            #expect(result.exit == .status(65), "\(name)")
            #expect(result.standardError.contains(message), "\(name): \(result.standardError)")
            #expect(result.standardError.contains(name), "\(result.standardError)")
        }
        let place = try bench("report", directory.file("one"), "--out", directory.file("absent/x.html"))
        #expect(place.exit == .status(69))
    }
}
