import Foundation
import TestSupport
import Testing

@testable import LoadTest

@Suite("Load test: merge and documents")
struct MergeTests {
    private let one = SampleResults.run(seed: 1)
    private let two = SampleResults.run(seed: 2, started: 2)

    private func merged(_ results: [RunResult]) throws -> RunResult {
        try RunResult.merged(results) { _ in [] }
    }

    @Test("counts and latencies of generators add, and seconds are aligned by the start")
    func addition() throws {
        let whole = try merged([one, two])
        #expect(whole.seconds.count == one.seconds.count + 2)
        #expect(whole.seconds[0] == SampleResults.renamed(one.seconds[0], 1))
        #expect(whole.seconds[7].produced == one.seconds[7].produced + two.seconds[5].produced)
        #expect(whole.seconds[7].open == one.seconds[7].open + two.seconds[5].open)
        #expect(
            whole.seconds[7].connections
                == max(one.seconds[7].connections ?? 0, two.seconds[5].connections ?? 0))
        #expect(whole.audit.produced == one.audit.produced + two.audit.produced)
        #expect(
            whole.audit.byKind["accepted"] == (one.audit.byKind["accepted"] ?? 0)
                + (two.audit.byKind["accepted"] ?? 0))
        var latency = one.phases[1].latency
        latency.add(two.phases[1].latency)
        #expect(whole.phases[1].latency == latency)
        // A phase lasts while it lasts for both.
        #expect(whole.phases.map(\.from) == [2, 6, 38] && whole.phases.map(\.to) == [4, 36, 39])
        let produced = (6..<36).reduce(0) { $0 + one.seconds[$1].produced + two.seconds[$1 - 2].produced }
        #expect(whole.phases[1].produced == produced)
        #expect(abs((whole.mainRate ?? 0) - 400) < 20)
        #expect(whole.generator.producers == 2)
        #expect(whole.reader?.delay.count == (one.reader?.delay.count ?? 0) + (two.reader?.delay.count ?? 0))
        #expect(whole.reader?.wasLimit == false)
        #expect(whole.environment.startedMilliseconds == one.environment.startedMilliseconds)
        // Order of the results makes no difference to sums.
        #expect(try merged([two, one]).phases[1].latency == latency)
        #expect(try merged([two, one]).seconds[7].produced == whole.seconds[7].produced)
    }

    @Test("a slow reader is named by the number of its generator, and results without a reader are merged")
    func slowReader() throws {
        var (first, second) = (one, two)
        first.reader = nil
        second.reader?.wasLimit = true
        second.reader?.reason = "2 % were late"
        let whole = try merged([first, second])
        #expect(whole.reader?.wasLimit == true && whole.reader?.reason == "generator 2: 2 % were late")
        #expect(whole.reader?.delay == second.reader?.delay)
        second.reader = nil
        #expect(try merged([first, second]).reader == nil)
    }

    @Test("processes keep their time under names of their own, and costs count all outcomes")
    func processes() throws {
        let whole = try merged([one, two])
        #expect(Set(whole.processes.map(\.name)).count == 8)
        #expect(whole.processes[0].name == "worker 1 of generator 1")
        let outcomes = Double(one.phases[1].outcomes + two.phases[1].outcomes)
        let cost = try #require(whole.processes[0].cpuMicrosecondsPerOutcome)
        #expect(abs(cost - one.processes[0].cpuSeconds * 1e6 / outcomes) < 1e-6)
        // The same outage, seen by both at times of their own, stays two events; one at the same time is one.
        var same = two
        same.environment.startedMilliseconds = one.environment.startedMilliseconds
        #expect(try merged([one, same]).annotations.filter { $0.kind == .fault }.count == 1)
    }

    @Test("thresholds of the scenario are judged for the whole load")
    func thresholds() throws {
        let scenario = """
            name: whole
            seed: 1
            phases: [{name: main, kind: main, duration: 30s}]
            loads: [{name: all, arrivals: {kind: poisson, rate: 400/s}}]
            thresholds: {lost: 0, rate: ≥ 350/s}
            """
        var (first, second) = (one, two)
        first.scenario.text = scenario
        second.scenario.text = scenario.replacing("seed: 1", with: "seed: 2")
        let whole = try RunResult.merged([first, second])
        #expect(whole.thresholds.map(\.name) == ["lost", "rate"])
        #expect(whole.isPassed)
        second.audit.missing = 1
        #expect(try !RunResult.merged([first, second]).isPassed)
    }

    @Test("results that are not of one load are refused with their numbers")
    func refusals() {
        func message(_ results: [RunResult]) -> String {
            do {
                _ = try merged(results)
                return ""
            } catch let fault as MergeFault {
                return fault.message
            } catch {
                return "\(error)"
            }
        }
        #expect(message([]).contains("no result"))
        #expect(message([one]).contains("single"))
        #expect(message([one, two, one]) == "results 1 and 3 are the same run; name each result once")
        var other = two
        other.scenario.name = "other"
        #expect(message([one, other]).contains("result 2 of other"))
        other = two
        other.scenario.text += "producers: 2\n"
        #expect(message([one, other]).contains("differ in text"))
        other = two
        other.phases.removeLast()
        #expect(message([one, other]).contains("different phases"))
        other = two
        other.environment.startedMilliseconds += 60_000
        #expect(message([one, other]).contains("began 62 s after result 1"))
        #expect(message([other, one]).contains("result 1"))
        other.environment.startedMilliseconds = 900_000_000_000_000
        #expect(!message([one, other]).isEmpty)
        other.environment.startedMilliseconds = one.environment.startedMilliseconds + 35_000
        #expect(message([one, other]).contains("no time is in phase main of all results"))
    }

    @Test("generators may differ in seed, workers and threads, not in the load")
    func scenariosAgree() throws {
        let scenario = """
            name: whole
            seed: 1
            phases: [{name: main, kind: main, duration: 30s}]
            loads: [{name: all, arrivals: {kind: poisson, rate: 400/s}}]
            workers: {count: 1}
            """
        var (first, second) = (one, two)
        first.scenario.text = scenario
        second.scenario.text =
            scenario.replacing("count: 1", with: "count: 0").replacing("seed: 1", with: "seed: 2")
            + "\nproducers: 2\n"
        #expect(try merged([first, second]).generator.producers == 2)
        second.scenario.text = scenario.replacing("400/s", with: "500/s").replacing("30s", with: "31s")
        let fault = #expect(throws: MergeFault.self) { try merged([first, second]) }
        #expect(fault?.message.contains("differ in loads, phases;") == true)
    }

    @Test("outcomes of the other generators of a cluster are not unknown")
    func unknownOutcomes() throws {
        var (first, second) = (one, two)
        first.audit.unknown = second.audit.once
        second.audit.unknown = first.audit.once + 3
        // Generators with clusters of their own see no other's outcomes.
        #expect(try merged([first, second]).audit.unknown == first.audit.unknown + second.audit.unknown)
        first.scenario.target = "kafka kafka-1:9092"
        second.scenario.target = "kafka kafka-1:9092"
        #expect(try merged([first, second]).audit.unknown == 3)
    }

    @Test("an unreadable record of a cluster that all generators read counts once")
    func unreadableOutcomes() throws {
        var (first, second) = (one, two)
        first.audit.unreadable = 2
        second.audit.unreadable = 3
        // Generators with clusters of their own read different records.
        #expect(try merged([first, second]).audit.unreadable == 5)
        first.scenario.target = "kafka kafka-1:9092"
        second.scenario.target = "kafka kafka-2:9092"
        #expect(try merged([first, second]).audit.unreadable == 5)
        for (target, count) in [
            ("kafka kafka-1:9092", 3), ("simulator kafka-1:9092 apns:443", 3), ("simulator apns:443", 5),
            ("embedded", 5),
        ] {
            first.scenario.target = target
            second.scenario.target = target
            #expect(try merged([first, second]).audit.unreadable == count, "\(target)")
        }
    }

    @Test("a merged result is sound, and its page has the plots")
    func mergedPage() throws {
        let whole = try merged([one, two])
        #expect(whole.fault == nil)
        #expect(RunReport(whole).page().contains("worker 1 of generator 2"))
    }

    // MARK: Documents

    private func encoded(_ result: RunResult) throws -> [String: Any] {
        let data = try JSONEncoder().encode(result)
        return try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    }

    /// Whether code and schema take a document.
    private func verdicts(_ documents: [Data]) throws -> [(isRead: Bool, schema: String)] {
        let lines = documents.map {
            $0.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
        let directory = try TemporaryDirectory("results")
        try directory.write(lines.joined(separator: "\n") + "\n", to: "documents")
        let command = "exec python3 '\(Repository.root)/Schemas/validate.py' documents bench-result"
        let result = try ChildProcess.run("/bin/sh", ["-c", "\(command) < '\(directory.file("documents"))'"])
        let schema = result.standardOutput.split(separator: "\n").map(String.init)
        try #require(schema.count == documents.count, "\(result.standardError)")
        return zip(documents, schema).map { document, verdict in
            let read = try? JSONDecoder().decode(RunResult.self, from: document)
            return (read.map { $0.fault == nil } ?? false, verdict)
        }
    }

    @Test("schema and code take the same documents")
    func schema() throws {
        var loaded = one
        loaded.loads = [
            .init(
                name: "a", seconds: 32, intended: 3, produced: 3, outcomes: 3, latency: one.phases[1].latency,
                byKind: ["accepted": 3])
        ]
        loaded.environment.noise.othersShare = 0.1
        let sound = try [
            one, SampleResults.empty, SampleResults.oneSecond, SampleResults.hostile, loaded,
            merged([one, two]),
        ].map { try JSONEncoder().encode($0) }
        for (isRead, schema) in try verdicts(sound) {
            #expect(schema == "valid")
            #expect(isRead)
        }

        var mistakes: [Data] = [Data("[]".utf8), Data("{}".utf8)]
        func mistake(_ change: (inout RunResult) -> Void) throws {
            var result = SampleResults.oneSecond
            change(&result)
            mistakes.append(try JSONEncoder().encode(result))
        }
        try mistake { $0.version = 2 }
        try mistake { $0.phases[0].intended = -1 }
        try mistake { $0.phases[0].outcomes = .max }
        try mistake { $0.phases[0].to = 1e13 }
        try mistake { $0.seconds[0].open = -1 }
        try mistake { $0.seconds[0].workers = -1 }
        try mistake { $0.seconds[0].lagSeconds = -0.5 }
        try mistake { $0.seconds[0].outcomes["x"] = .max }
        try mistake { $0.seconds[0].cpuSeconds["x"] = -1 }
        try mistake { $0.audit.missing = -1 }
        try mistake { $0.audit.byReason["x"] = -1 }
        try mistake { $0.audit.simulatorRequests = -1 }
        try mistake { $0.environment.cores = -4 }
        try mistake { $0.environment.startedMilliseconds = -1 }
        try mistake { $0.environment.noise.stolenShare = -0.1 }
        try mistake { $0.annotations = [.init(at: -1, kind: .note, text: "")] }
        try mistake {
            $0.annotations = Array(repeating: .init(at: 1, kind: .note, text: ""), count: 10_001)
        }
        try mistake {
            $0.processes = [.init(name: "x", role: .worker, cpuSeconds: -1, maximumResidentBytes: 0)]
        }
        try mistake { $0.generator.producers = -1 }
        try mistake { $0.seconds[0].readerDelayMilliseconds = -1 }
        for (index, (isRead, schema)) in try verdicts(mistakes).enumerated() {
            #expect(schema != "valid", "\(String(decoding: mistakes[index], as: UTF8.self).prefix(300))")
            #expect(!isRead, "\(schema)")
        }

        // Without any of its members the document is refused, or the member may be absent.
        let whole = try encoded(SampleResults.oneSecond)
        let parts = try whole.keys.sorted().map { key in
            try JSONSerialization.data(withJSONObject: whole.filter { $0.key != key })
        }
        for (isRead, schema) in try verdicts(parts) { #expect(isRead == (schema == "valid"), "\(schema)") }
    }

    @Test("the schema has the members of the code, and no other")
    func members() throws {
        let data = try Data(contentsOf: URL(filePath: "\(Repository.root)/Schemas/bench-result.schema.json"))
        let schema = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
        var result = SampleResults.run()
        result.loads = [
            .init(
                name: "a", seconds: 1, intended: 0, produced: 0, outcomes: 0, latency: HDRHistogram(),
                byKind: [:])
        ]
        result.environment.noise.othersShare = 0
        func properties(_ schema: Any?) -> Set<String> {
            Set(((schema as? [String: Any])?["properties"] as? [String: Any] ?? [:]).keys)
        }
        func member(_ names: String...) -> Any? {
            names.reduce(schema as Any?) { ($0 as? [String: Any])?[$1] }
        }
        func names(_ value: some Any) -> Set<String> {
            Set(Mirror(reflecting: value).children.compactMap(\.label))
        }
        #expect(properties(schema) == names(result))
        #expect(properties(member("properties", "scenario")) == names(result.scenario))
        #expect(properties(member("properties", "environment")) == names(result.environment))
        #expect(
            properties(member("properties", "environment", "properties", "noise"))
                == names(result.environment.noise))
        #expect(properties(member("properties", "phases", "items")) == names(result.phases[0]))
        #expect(properties(member("properties", "loads", "items")) == names(result.loads![0]))
        #expect(properties(member("$defs", "second")) == names(result.seconds[0]))
        #expect(properties(member("properties", "processes", "items")) == names(result.processes[0]))
        #expect(properties(member("properties", "annotations", "items")) == names(result.annotations[0]))
        #expect(properties(member("properties", "audit")) == names(result.audit))
        #expect(properties(member("properties", "generator")) == names(result.generator))
        #expect(properties(member("properties", "reader")) == names(result.reader!))
        #expect(properties(member("properties", "thresholds", "items")) == names(result.thresholds[0]))
    }
}
