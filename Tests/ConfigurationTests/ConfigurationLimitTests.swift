import Foundation
import TestSupport
import Testing

@testable import Configuration

/// Documents that would take long, or much memory, are refused by their size or their number of values.
@Suite("Configuration: limits of a document")
struct ConfigurationLimitTests {
    private func problems(of text: String) throws -> [ConfigurationProblem] {
        try #require(throws: ConfigurationError.self) { try Configuration.parse(text, name: "f") }.problems
    }

    @Test("a file beyond 1 MB is refused before it is parsed")
    func largeFileIsRefused() throws {
        let directory = try TemporaryDirectory("large")
        let path = directory.file("large.yaml")
        let line = Data("- a\n".utf8)
        FileManager.default.createFile(
            atPath: path, contents: Data("a:\n".utf8) + Data(repeating: 0x20, count: (1 << 20) - 2) + line)
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.load(path: path, environment: [:])
        }
        #expect(error.description == "\(path): \(ConfigurationDocument.tooLarge)")
        #expect(try problems(of: String(repeating: "- a\n", count: 300_000)).map(\.key) == [""])
        #expect(throws: ConfigurationError.self) {
            try Configuration.load(path: "/dev/zero", environment: [:])
        }
    }

    @Test("aliases of aliases are refused, as values and as keys")
    func nestedAliasesAreRefused() throws {
        for (start, form) in [("[x, x]", "[%]"), ("{a: x}", "{? [%] : x}")] {
            var text = "a0: &a0 \(start)\n"
            for level in 1...40 {
                let inside = Array(repeating: "*a\(level - 1)", count: 10).joined(separator: ", ")
                text += "a\(level): &a\(level) \(form.replacing("%", with: inside))\n"
            }
            let problems = try problems(of: text)
            #expect(problems.count == 1)
            #expect(problems[0].message.contains("more than 500000 values"), "\(problems)")
        }
    }

    @Test("an alias has its anchor's value, and text with * stays as written")
    func aliasHasItsAnchorsValue() throws {
        let text = """
            a: &first {list: [1, '*', "a*b", a*b], block: |
                *text
              }
            """
        #expect(throws: ConfigurationError.self) { try ConfigurationValue.parse(text, name: "f") }
        let value = try ConfigurationValue.parse(
            """
            a: &first [1, '*', "a*b", a*b]
            b: *first
            c: {d: *first, *key: 2}
            """.replacing("c:", with: "k: &key word\nc:"), name: "f")
        guard case .map(let entries) = value.content else {
            Issue.record("not a map")
            return
        }
        func texts(_ value: ConfigurationValue) -> [String] {
            switch value.content {
            case .scalar(let text, _): [text]
            case .list(let elements): elements.flatMap(texts)
            case .map(let entries): entries.flatMap { [$0.key] + texts($0.value) }
            case .empty: []
            }
        }
        let list = ["1", "*", "a*b", "a*b"]
        #expect(entries.map(\.key) == ["a", "b", "k", "c"])
        #expect(texts(entries[0].value) == list)
        #expect(texts(entries[1].value) == list)
        #expect(texts(entries[3].value) == ["d"] + list + ["word", "2"])
        // A value that an alias repeats was written at its anchor.
        #expect(entries[1].value.location == .file(name: "f", line: 1, column: 4))
    }

    @Test("a merge adds the entries that a map lacks, the first map's first")
    func mergeAddsMissingEntries() throws {
        let value = try ConfigurationValue.parse(
            """
            a: &a {x: 1, y: 1}
            b: &b {<<: *a, y: 2, z: 2}
            c: {<<: [*b, {z: 3, w: 3}], x: 4}
            d: {"<<": 5}
            """, name: "f")
        func flat(_ value: ConfigurationValue) -> [String: String] {
            guard case .map(let entries) = value.content else { return [:] }
            var texts: [String: String] = [:]
            for entry in entries {
                if case .scalar(let text, _) = entry.value.content { texts[entry.key] = text }
            }
            return texts
        }
        guard case .map(let entries) = value.content else {
            Issue.record("not a map")
            return
        }
        #expect(
            entries.map { flat($0.value) } == [
                ["x": "1", "y": "1"], ["x": "1", "y": "2", "z": "2"],
                ["x": "4", "y": "2", "z": "2", "w": "3"],
                ["<<": "5"],
            ])
    }

    @Test("merges of merges are refused before they are expanded")
    func mergesAreBounded() throws {
        var text = "a0: &a0 {" + (0..<100).map { "k\($0): 1" }.joined(separator: ", ") + "}\n"
        for level in 1..<10 {
            let maps = Array(repeating: "*a\(level - 1)", count: 10).joined(separator: ", ")
            text += "a\(level): &a\(level) {<<: [\(maps)]}\n"
        }
        let problem = try #require(try problems(of: text).first)
        #expect(problem.message.contains("more than 500000 values"), "\(problem)")
    }

    @Test("an alias without anchor is reported with its place")
    func aliasWithoutAnchorIsReported() throws {
        for text in ["kafka: *nothing", "a: &b [*b]", "*nothing : 1"] {
            let problem = try #require(try problems(of: text).first)
            #expect(problem.message.contains("has no anchor before it"), "\(problem)")
            guard case .file("f", 1, _) = problem.location else {
                Issue.record("\(problem)")
                continue
            }
        }
    }

    @Test("reading ends after a thousand mistakes, whatever section they are in")
    func readingEndsAfterAThousandMistakes() throws {
        let kafka = "kafka: {bootstrap-servers: \"a:1\""
        for text in [
            (0..<2_000).map { "s\($0): {}\n" }.joined(),
            "\(kafka)}\napps:\n" + String(repeating: "- a: b\n", count: 2_000),
            "\(kafka), properties: {" + (0..<2_000).map { "p\($0): [], " }.joined() + "}}\n",
            "\(kafka)}\ncredentials:\n" + (0..<2_000).map { "  c\($0): {}\n" }.joined(),
            "\(kafka)}\napps: [{name: a, topics: [" + String(repeating: "a/b, ", count: 2_000) + "]}]\n",
        ] {
            let count = try problems(of: text).count
            #expect((1_000..<1_010).contains(count), "\(count): \(text.prefix(60))")
        }
    }
}
