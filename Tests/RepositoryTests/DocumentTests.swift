import Foundation
import Testing

/// Documents name files that exist, so that a reader finds the place without searching.
@Suite("Repository: documents")
struct DocumentTests {
    /// Paths of all files below the documented directories, and of those at the top, relative to the root.
    private static func files() -> [String] {
        let root = Repository.root.path
        let top = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        var files = top
        for directory in ["Sources", "Tests", "Benchmarks", "Deploy", "Schemas"] {
            let entries = FileManager.default.enumerator(atPath: "\(root)/\(directory)")
            while let entry = entries?.nextObject() as? String { files.append("\(directory)/\(entry)") }
        }
        return files
    }

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: Repository.root.appending(path: path), encoding: .utf8)
    }

    @Test("each relative link leads to a file")
    func linksLeadToFiles() throws {
        var checked = 0
        for document in Self.files() where document.hasSuffix(".md") {
            let directory = Repository.root.appending(path: document).deletingLastPathComponent()
            for link in try Self.text(document).matches(of: #/\]\(([^)#\s]+)(?:#[^)]*)?\)/#)
            where !link.1.contains("://") {
                checked += 1
                let target = directory.appending(path: String(link.1)).standardized.path
                #expect(FileManager.default.fileExists(atPath: target), "\(document): \(link.1)")
            }
        }
        #expect(checked > 40)
    }

    /// Anchors of a document's headings, as GitHub makes them: in lower case, without punctuation, spaces as hyphens, and
    /// numbered where a heading repeats.
    private static func anchors(_ document: String) throws -> Set<String> {
        var anchors: Set<String> = []
        var counts: [String: Int] = [:]
        var isCode = false
        for line in try text(document).split(separator: "\n") {
            if line.hasPrefix("```") { isCode.toggle() }
            guard !isCode, let heading = line.wholeMatch(of: #/#+ +(.*)/#) else { continue }
            let anchor = heading.1.lowercased().filter { $0.isLetter || $0.isNumber || " -_".contains($0) }
                .replacing(" ", with: "-")
            let count = counts[anchor, default: 0]
            counts[anchor] = count + 1
            anchors.insert(count == 0 ? anchor : "\(anchor)-\(count)")
        }
        return anchors
    }

    @Test("each anchor of a link is a heading of the linked document")
    func anchorsAreHeadings() throws {
        var checked = 0
        for document in Self.files() where document.hasSuffix(".md") {
            let directory = URL(filePath: "/" + document).deletingLastPathComponent()
            for link in try Self.text(document).matches(of: #/\]\(([^)#\s]*)#([^)\s]+)\)/#)
            where !link.1.contains("://") && (link.1.isEmpty || link.1.hasSuffix(".md")) {
                checked += 1
                let target =
                    link.1.isEmpty
                    ? document
                    : String(directory.appending(path: String(link.1)).standardized.path.dropFirst())
                let found = try Self.anchors(target).contains(String(link.2))
                #expect(found, "\(document): \(link.1)#\(link.2)")
            }
        }
        #expect(checked > 100)
    }

    @Test(
        "the table of dependencies has each package of Package.swift with its version, and no other package")
    func tableOfDependenciesIsComplete() throws {
        let packages = try Self.text("Package.swift").matches(
            of: #/\.package\(url: "[^"]+\/([^"\/]+)", (?:from|exact): "([0-9.]+)"\)/#)
        #expect(packages.count > 3)
        let section = try #require(
            try Self.text("Deploy/security.md").split(separator: "\n## ").first {
                $0.hasPrefix("Dependencies\n")
            })
        for package in packages {
            let row = section.split(separator: "\n").first { $0.hasPrefix("| \(package.1)") }
            #expect(row?.contains("| \(package.2) or later") ?? false, "\(package.1) \(package.2)")
        }
        #expect(section.matches(of: #/\| a new build \|/#).count == packages.count)
    }

    @Test("each source file in backticks exists")
    func sourceFilesExist() throws {
        let files = Self.files()
        // The pattern for the name of a file, not a file.
        let patterns: Set = ["Type+Concern.swift"]
        var checked = 0
        for document in files where document.hasSuffix(".md") {
            for name in try Self.text(document).matches(of: #/`([A-Za-z0-9_+\/-]+\.swift)`/#)
            where !patterns.contains(String(name.1)) {
                checked += 1
                #expect(
                    files.contains { $0 == name.1 || $0.hasSuffix("/\(name.1)") }, "\(document): \(name.1)")
            }
        }
        #expect(checked > 40)
    }

    @Test("each function that CONTRIBUTING names behind a file is declared there")
    func namedFunctionsExist() throws {
        var checked = 0
        for place in try Self.text("CONTRIBUTING.md").matches(
            of: #/`([\w\/+]+\/[\w+]+\.swift)` \((`[^)]*)\)/#)
        {
            let text = try Self.text("Sources/\(place.1)")
            for name in place.2.matches(of: #/`(\w+)`/#) {
                checked += 1
                let declares = try Regex("(func|var|let|struct|enum|class|case) \(name.1)\\b")
                #expect(text.firstMatch(of: declares) != nil, "\(place.1): \(name.1)")
            }
        }
        #expect(checked > 60)
    }

    @Test("the table of the tour has each of its rows, and names tests that exist")
    func tableOfTheTourIsComplete() throws {
        let files = Self.files()
        let table = try Self.text("Deploy/devices.md")
        for name in table.matches(of: #/`([A-Za-z]+Tests)`/#) {
            #expect(files.contains { $0.hasSuffix("/\(name.1).swift") }, "\(name.1)")
        }
        let rows = try Self.text("Deploy/device-tour.py").matches(of: #/\ndef row_(\d+)\(/#).map { $0.1 }
        #expect(rows.count == 27)
        for row in rows {
            #expect(
                table.contains("| \(row) | ") && table.contains("`Deploy/device-tour.py \(row)`"),
                "row \(row)")
        }
    }
}
