import Configuration
import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

/// A document with a mistake, and the message that names it.
struct FaultMistake: Sendable, CustomTestStringConvertible {
    let document: String
    let message: String

    init(_ document: String, _ message: String) {
        self.document = document
        self.message = message
    }

    var testDescription: String { message }

    static let all: [FaultMistake] = [
        .init("seed: x", "f.yaml:1:7: seed: `x` is not allowed; expected integer"),
        .init("faults: {}", "f.yaml:1:9: faults: must be a list"),
        .init("faults:\n  - at: 5s", "f.yaml:2:5: faults[0]: needs a fault; there are: answers, latency"),
        .init("faults:\n  - latncy: {constant: 1s}", "faults[0].latncy: there is no such setting"),
        .init("faults:\n  - latncy: {constant: 1s}", "did you mean `latency`?"),
        .init(
            "faults:\n  - unanswered: 1\n    black-hole: {}",
            "f.yaml:3:17: faults[0].black-hole: is a second fault"),
        .init("faults:\n  - at: 5\n    unanswered: 1", "f.yaml:2:9: faults[0].at: `5` is not a duration"),
        .init("faults:\n  - for: 0\n    unanswered: 1", "faults[0].for: `0` is out of range"),
        .init("faults:\n  - unanswered: 1.5", "f.yaml:2:17: faults[0].unanswered: `1.5` is not allowed"),
        .init(
            "faults:\n  - answers: {Oops: 0.5}",
            "f.yaml:2:21: faults[0].answers.Oops: is no reason of APNs, such as InternalServerError"),
        .init("faults:\n  - answers: {Shutdown: 2}", "expected a share from 0 to 1"),
        .init("faults:\n  - answers:", "faults[0].answers: must be a map (REASON: SHARE), but is nothing"),
        .init(
            "faults:\n  - answers:\n      Shutdown: 0.6\n      BadTopic: 0.6",
            "faults[0].answers: the shares add up to 1.2"),
        .init(
            "faults:\n  - latency: {}", "f.yaml:2:14: faults[0].latency: needs exactly one distribution of"),
        .init(
            "faults:\n  - latency: {constant: 1s, uniform: {from: 1s, to: 2s}}",
            "faults[0].latency: needs exactly one distribution of"),
        .init("faults:\n  - latency: {uniform: {from: 1s}}", "faults[0].latency.uniform.to: is required"),
        .init(
            "faults:\n  - latency:\n      uniform:\n        from: 2s\n        to: 1s",
            "f.yaml:5:13: faults[0].latency.uniform.to: must be at least `from`"),
        .init(
            "faults:\n  - latency: {percentiles: {101: 1s}}",
            "faults[0].latency.percentiles.101: is no percent"),
        .init(
            "faults:\n  - latency: {percentiles: {90: 1s, 50: 2s}}",
            "faults[0].latency.percentiles: the times must rise"),
        .init(
            "faults:\n  - goaway: {end: gently}", "f.yaml:2:19: faults[0].goaway.end: `gently` is not one of"),
        .init("faults:\n  - goaway: {text: a, reason: b}", "faults[0].goaway.text: excludes `reason`"),
        .init("faults:\n  - goaway: {reason: 'a\"b'}", "faults[0].goaway.reason: must have no quotes"),
        .init("faults:\n  - goaway: {every: 1ms}", "faults[0].goaway.every: `1ms` is out of range"),
        .init(
            "faults:\n  - for: 1s\n    disconnect: {}",
            "faults[0].for: has no effect without `disconnect.every`"),
        .init("faults:\n  - stream-limit: {high: 4}", "faults[0].stream-limit.low: is required"),
        .init(
            "faults:\n  - stream-limit: {low: 4, high: 3, period: 1s}", "stream-limit.high: must be at least"),
        .init("faults:\n  - stream-limit: {low: 4, high: 5}", "has no effect without `period`"),
        .init("faults:\n  - slow-reads: {}", "faults[0].slow-reads.bytes-per-second: is required"),
        .init(
            "faults:\n  - throttle: {}", "f.yaml:2:15: faults[0].throttle: needs `per-device` or `per-second`"
        ),
        .init("faults:\n  - certificate: {expired: yes}", "`yes` is not one of server, client"),
        .init("faults:\n  - environment: {share: 0.5}", "faults[0].environment.of: is required"),
        .init(
            "repeat: 1s\nfaults:\n  - at: 1s\n    unanswered: 1",
            "f.yaml:3:9: faults[0].at: lies behind the end"),
        .init("faults: [", "is not valid YAML"),
    ]
}

@Suite struct FaultTimelineTests {
    @Test(arguments: FaultMistake.all) func mistakeIsNamedWithKeyAndLine(_ row: FaultMistake) {
        let error = #expect(throws: ConfigurationError.self) {
            try FaultTimeline.parse(row.document, name: "f.yaml")
        }
        #expect(error?.description.contains(row.message) == true, "\(error?.description ?? "")")
    }

    @Test func allMistakesAreReportedTogether() {
        let error = #expect(throws: ConfigurationError.self) {
            try FaultTimeline.parse("faults:\n  - unanswered: 7\n  - blackhole: {}", name: "f.yaml")
        }
        #expect(error?.problems.count == 2)
    }

    @Test func emptyDocumentsHaveNoFaults() throws {
        for text in ["", "{}", "faults: []", "faults:", #"{"faults": []}"#] {
            #expect(try FaultTimeline.parse(text, name: "f") == FaultTimeline())
        }
    }

    @Test func exampleHasEachKindOfFault() throws {
        let timeline = try FaultTimeline.load(path: "\(Repository.root)/Schemas/examples/faults.yaml")
        #expect(timeline.seed == 42)
        #expect(timeline.repeats == .seconds(120))
        #expect(Set(timeline.entries.map(\.kind.key)) == Set(FaultTimeline.Kind.keys))
        try timeline.check()
        let json = String(decoding: try JSONEncoder().encode(timeline), as: UTF8.self)
        #expect(try FaultTimeline.parse(json, name: "body") == timeline)
    }

    @Test(arguments: 0..<100) func jsonFormIsReadAsItWasWritten(seed: Int) throws {
        var random = SeededGenerator(seed: UInt64(seed))
        let timeline = FaultTimeline.random(&random, unit: .milliseconds(100))
        try timeline.check()
        let json = try JSONEncoder().encode(timeline)
        // The HTTP API hands the text over, for errors with lines.
        #expect(try FaultTimeline.parse(String(decoding: json, as: UTF8.self), name: "body") == timeline)
    }

    @Test func mistakeInJSONNamesItsKey() {
        let error = #expect(throws: ConfigurationError.self) {
            try FaultTimeline.parse(#"{"faults":[{"unanswered":7}]}"#, name: "body")
        }
        #expect("\(error!)".contains("faults[0].unanswered: `7` is not allowed"))
    }

    @Test func programmaticMistakesAreRefusedWithTheirEntry() {
        func message(_ entry: FaultTimeline.Entry, repeats: Duration? = nil) -> String {
            let error = #expect(throws: SimulatorError.self) {
                try FaultTimeline(repeats: repeats, entries: [.init(.blackHole(share: 1)), entry]).check()
            }
            return error?.description ?? ""
        }
        #expect(message(.init(.blackHole(share: 2))).hasPrefix("faults[1].black-hole.share: must be a share"))
        #expect(message(.init(at: .seconds(-1), .unanswered(share: 1))).hasPrefix("faults[1].at:"))
        #expect(message(.init(lasts: .zero, .unanswered(share: 1))).hasPrefix("faults[1].for:"))
        #expect(message(.init(.answers([.init(reason: .absent, share: 1)]))).contains("no reason"))
        #expect(message(.init(.slowReads(bytesPerSecond: 0, share: 1))).contains("at least 1"))
        #expect(message(.init(.unanswered(share: 1)), repeats: .milliseconds(1)).hasPrefix("repeat:"))
    }

    /// Documents come from people and over the network: any text is a timeline that can be played, or an error.
    @Test(arguments: 0..<8) func brokenDocumentsAreErrorsOrCanBePlayed(seed: Int) throws {
        let example = Array(try Repository.read("Schemas/examples/faults.yaml").utf8)
        let pieces = [
            "0", "9", "-", ":", "{", "}", "[", "\n", " ", "d", "ms", "1e999", "nan", "*", "&a", "~", "'",
        ]
        var random = SeededGenerator(seed: UInt64(seed))
        var played = 0
        for _ in 0..<60 {
            var bytes = example
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let place = Int.random(in: 0..<bytes.count, using: &random)
                let end = min(place + Int.random(in: 0...3, using: &random), bytes.count)
                let piece = pieces.randomElement(using: &random)!
                bytes.replaceSubrange(place..<end, with: Array(piece.utf8))
            }
            let text = String(decoding: bytes, as: UTF8.self)
            guard let timeline = try? FaultTimeline.parse(text, name: "f") else { continue }
            played += 1
            try timeline.check()
            var clock = FaultClock(timeline)
            var next: UInt64? = 0
            for _ in 0..<50 {
                guard let now = next else { break }
                let step = clock.advance(to: now)
                _ = step.active.latency?.sample(&random)
                if let later = step.next { #expect(later > now) }
                next = step.next
            }
            let json = String(decoding: try JSONEncoder().encode(timeline), as: UTF8.self)
            #expect(try FaultTimeline.parse(json, name: "body") == timeline)
        }
        #expect(played > 0)
    }

    // MARK: - Schema

    private func schema() throws -> [String: Any] {
        let data = try Data(contentsOf: URL(filePath: "\(Repository.root)/Schemas/faults.schema.json"))
        return try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    }

    private func member(_ path: String..., of schema: [String: Any]) -> Any? {
        path.reduce(schema) { ($0 as? [String: Any])?[$1] }
    }

    @Test func schemaHasTheKindsAndNamesOfTheCode() throws {
        let schema = try schema()
        let kinds = try #require(member("$defs", "entry", "properties", of: schema) as? [String: Any])
        #expect(Set(kinds.keys) == Set(FaultTimeline.Kind.keys + ["at", "for"]))
        let one = try #require(member("$defs", "entry", "oneOf", of: schema) as? [[String: [String]]])
        #expect(one.compactMap { $0["required"]?.first } == FaultTimeline.Kind.keys)
        func names(_ kind: String, _ name: String) throws -> [String] {
            try #require(
                member("$defs", "entry", "properties", kind, "properties", name, "enum", of: schema)
                    as? [String])
        }
        #expect(try names("goaway", "end") == FaultTimeline.GoAway.End.allCases.map(\.rawValue))
        #expect(try names("goaway", "connections") == FaultTimeline.GoAway.Target.allCases.map(\.rawValue))
        #expect(
            try names("certificate", "expired") == FaultTimeline.ExpiredCertificate.allCases.map(\.rawValue))
        #expect(try names("environment", "of") == FaultTimeline.MixedUp.allCases.map(\.rawValue))
        let most = try #require(member("properties", "faults", "maxItems", of: schema) as? Int)
        #expect(most == FaultTimeline.mostEntries)
    }

    /// The schema accepts what the code writes, and refuses mistakes that a schema can see.
    @Test func schemaJudgesAsTheReaderDoes() throws {
        var documents: [Data] = []
        for seed in 0..<60 {
            var random = SeededGenerator(seed: UInt64(seed))
            documents.append(
                try JSONEncoder().encode(FaultTimeline.random(&random, unit: .milliseconds(100))))
        }
        let mistakes = [
            #"{"faults":[{}]}"#, #"{"faults":[{"unanswered":1,"black-hole":{}}]}"#,
            #"{"faults":[{"unanswered":2}]}"#,
            #"{"faults":[{"at":"5","unanswered":1}]}"#, #"{"faults":[{"goaway":{"end":"gently"}}]}"#,
            #"{"faults":[{"latency":{}}]}"#, #"{"faults":[{"throttle":{}}]}"#, #"{"fault":[]}"#,
            #"{"faults":[{"environment":{"share":1}}]}"#, #"{"faults":[{"slow-reads":{}}]}"#,
        ]
        documents += mistakes.map { Data($0.utf8) }
        let lines = documents.map {
            $0.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
        let directory = try TemporaryDirectory("faults")
        try directory.write(lines.joined(separator: "\n") + "\n", to: "documents")
        let command = "exec python3 '\(Repository.root)/Schemas/validate.py' documents faults"
        let result = try ChildProcess.run("/bin/sh", ["-c", "\(command) < '\(directory.file("documents"))'"])
        let verdicts = result.standardOutput.split(separator: "\n")
        #expect(verdicts.count == documents.count, "\(result.standardError)")
        for (document, verdict) in zip(documents, verdicts) {
            let text = String(decoding: document, as: UTF8.self)
            let isRead = (try? FaultTimeline.parse(text, name: "f")) != nil
            #expect(isRead == (verdict == "valid"), "\(text): \(verdict)")
        }
        for verdict in verdicts.suffix(mistakes.count) { #expect(verdict != "valid") }
    }
}
