import Foundation
import Testing

/// Package.swift, the table of modules in CONTRIBUTING.md and the sources' imports name the same dependencies.
@Suite("Repository: modules")
struct ModuleTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: Repository.root.appending(path: path), encoding: .utf8)
    }

    /// Dependencies of each target below `Sources`, by Package.swift.
    private static func targets() throws -> [String: Set<String>] {
        let package = try text("Package.swift")
        let head = #/\.(?:target|executableTarget|systemLibrary)\(\s*name:\s*"([^"]+)"/#
        let dependency = #/"([A-Za-z0-9]+)"(?!\))|\.product\(name:\s*"([^"]+)"/#
        var found: [String: Set<String>] = [:]
        let starts = package.matches(of: head)
        for (index, start) in starts.enumerated() {
            let name = String(start.1)
            guard
                FileManager.default.fileExists(
                    atPath: Repository.root.appending(path: "Sources/\(name)").path)
            else {
                continue
            }
            let end = index + 1 < starts.count ? starts[index + 1].range.lowerBound : package.endIndex
            let body = package[start.range.upperBound..<end]
            guard let list = body.firstMatch(of: #/dependencies:\s*\[([^\]]*)\]/#) else {
                found[name] = []
                continue
            }
            found[name] = Set(list.1.matches(of: dependency).map { String($0.1 ?? $0.2 ?? "") })
        }
        return found
    }

    /// Dependencies of each module by the table in CONTRIBUTING.md.
    private static func table() throws -> [String: Set<String>] {
        var found: [String: Set<String>] = [:]
        let name = #/`([A-Za-z0-9]+)`/#
        let section = try text("CONTRIBUTING.md").split(separator: "\n## ").first {
            $0.hasPrefix("Modules\n")
        }
        for line in try #require(section).split(separator: "\n") {
            let cells = line.split(separator: "|", omittingEmptySubsequences: false)
            guard cells.count == 5, cells[1].contains("`") else { continue }
            let imports = Set(cells[3].matches(of: name).map { String($0.1) })
            for module in cells[1].matches(of: name) { found[String(module.1)] = imports }
        }
        return found
    }

    @Test("the table of modules has each target with its dependencies, and no other")
    func tableMatchesPackage() throws {
        let targets = try Self.targets()
        let table = try Self.table()
        #expect(targets.count > 15)
        #expect(Set(table.keys) == Set(targets.keys))
        for (module, dependencies) in targets.sorted(by: { $0.key < $1.key }) {
            #expect(table[module] == dependencies, "\(module)")
        }
    }

    @Test("each module imports exactly the dependencies of its target")
    func importsMatchPackage() throws {
        let targets = try Self.targets()
        let system: Set = ["Glibc", "Foundation", "Synchronization", "Dispatch"]
        for (module, dependencies) in targets.sorted(by: { $0.key < $1.key }) {
            let directory = Repository.root.appending(path: "Sources/\(module)")
            var imported: Set<String> = []
            let files = FileManager.default.enumerator(at: directory, includingPropertiesForKeys: nil)
            while let file = files?.nextObject() as? URL {
                guard file.pathExtension == "swift" else { continue }
                let text = try String(contentsOf: file, encoding: .utf8)
                imported.formUnion(
                    text.matches(of: #/(?m)^(?:@\w+ )?(?:public )?import (?:struct |class |func )?(\w+)/#)
                        .map { String($0.1) })
            }
            guard !imported.isEmpty else { continue }
            #expect(
                imported.subtracting(system).subtracting(dependencies) == [],
                "\(module) imports more than Package.swift names")
            #expect(
                dependencies.subtracting(imported) == [], "Package.swift names more than \(module) imports")
        }
    }
}
