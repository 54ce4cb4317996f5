import Foundation
import Testing

/// No script pipes into a reader that may end before its input does.
///
/// The writer of such a pipe is killed by SIGPIPE if it writes later, and under `pipefail` its exit status replaces the
/// reader's. A reader may take its input from a file, a variable or `< <(command)` instead.
@Suite("Repository: pipes of scripts")
struct PipeTests {
    /// A pipe and such a reader: `grep` that stops at the first line, `head`, `read`, and programs with `exit` or `q`.
    static let earlyReader = try! NSRegularExpression(
        pattern: #"(?<!\|)\|&?\s*(?:\w+=\S+ )*(?:"#
            + [
                #"[ef]?grep(?=\s)(?:[^|;&)\n]|\\\n)*\s-(?:-quiet|-silent|-max-count|[a-zA-Z]*[qm])"#,
                #"head\b"#, #"read\b"#,
                #"g?awk\b[^'\n]*'[^']*\bexit\b"#,
                #"sed(?=\s)(?:[^|&)\n]|\\\n)*[\s'"{/;\d$][qQ](?=[\s'"};\d]|$)"#,
            ].joined(separator: "|") + ")")

    /// Lines of a script that such a pipe begins on, from 1.
    static func earlyReaders(in script: String) -> [Int] {
        // A comment holds no pipe; its line stays, so that the numbers do.
        let code = script.split(separator: "\n", omittingEmptySubsequences: false)
            .map { $0.drop { " \t".contains($0) }.hasPrefix("#") ? "" : $0 }
            .joined(separator: "\n")
        let whole = NSRange(code.startIndex..., in: code)
        return earlyReader.matches(in: code, range: whole).compactMap { match in
            Range(match.range, in: code).map { code[..<$0.lowerBound].count { $0 == "\n" } + 1 }
        }
    }

    @Test("no script and no rule of the Makefile pipes into a reader that may end early")
    func scriptsReadToTheEnd() throws {
        var scripts = [Repository.root.appending(path: "Makefile")]
        for folder in [".ci", "Benchmarks", "Deploy", "Schemas", "Tests"] {
            let files = FileManager.default.enumerator(
                at: Repository.root.appending(path: folder), includingPropertiesForKeys: [.isRegularFileKey])
            while let file = files?.nextObject() as? URL {
                guard try file.resourceValues(forKeys: [.isRegularFileKey]).isRegularFile == true,
                    let text = try? String(contentsOf: file, encoding: .utf8),
                    let first = text.split(separator: "\n").first,
                    first.hasPrefix("#!"), first.hasSuffix("sh")
                else { continue }
                scripts.append(file)
            }
        }
        #expect(scripts.count > 15)
        for script in scripts {
            for line in Self.earlyReaders(in: try String(contentsOf: script, encoding: .utf8)) {
                Issue.record(
                    "\(script.lastPathComponent):\(line): the reader of this pipe may end early; test \"$(command)\" instead"
                )
            }
        }
    }

    @Test(
        "a reader that may end early is found",
        arguments: [
            "if ldd \"$x\" | grep -q a; then", "a | LC_ALL=C grep -qxF -- b", "a |\n    head -n 1",
            "a \\\n  | head -1",
            "a | grep -v b -m 1", "a | awk '$2 == 1 { print; exit }'", "a | sed q", "a | sed -n '/x/{p;q}'",
            "a | read -r b",
            "a |& grep --quiet b", "a | grep a | grep -E -q b",
        ])
    func earlyReaderIsFound(script: String) {
        #expect(!Self.earlyReaders(in: script).isEmpty, "\(script)")
    }

    @Test(
        "a reader that reads to the end isn't",
        arguments: [
            "a || grep -q b file", "head -n 1 file | tr a b", "a | grep b", "a | sed 's/q/r/'",
            "a | awk '{ print }'",
            "a | while read -r b; do c; done\nfor x in y; do break; done", "# a | head",
            "a | sort -q | tail -n 1",
            "a | grep -v -- b || head c", "[ a ] | grep b; grep -q c d", "a | grep b\ngrep -q c d",
        ])
    func otherReaderIsNot(script: String) {
        #expect(Self.earlyReaders(in: script).isEmpty, "\(script)")
    }
}
