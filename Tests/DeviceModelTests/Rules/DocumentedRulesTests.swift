import Foundation
import Testing

@testable import DeviceModel

/// The module's document names each assumed rule and each setting.
@Suite struct DocumentedRulesTests {
    /// Rows of the first table below a heading, as their cells.
    private static func rows(below heading: String) throws -> [[String]] {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let text = try String(
            contentsOf: root.appending(path: "Sources/DeviceModel/README.md"), encoding: .utf8)
        let lines = text.components(separatedBy: "\n").drop { $0 != heading }.drop { !$0.hasPrefix("|") }
        return lines.prefix { $0.hasPrefix("|") }.dropFirst(2).map { line in
            line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
    }

    private static func name(_ cell: String) -> String { cell.trimmingCharacters(in: ["`"]) }

    @Test func theDocumentListsTheAssumedRules() throws {
        let rows = try Self.rows(below: "### Assumed rules")
        let assumed = DeviceRule.allCases.filter { $0.basis == .assumed }.map(\.rawValue)
        #expect(Set(rows.map { Self.name($0[0]) }) == Set(assumed))
        #expect(rows.count == assumed.count)
    }

    @Test func theDocumentListsTheSettingsWithTheirDefaults() throws {
        let rows = try Self.rows(below: "## Settings")
        let settings = Mirror(reflecting: DeviceSettings()).children.map { child in
            let name = (child.label ?? "").map { $0.isUppercase ? "-\($0.lowercased())" : "\($0)" }.joined()
            return [name, "\(child.value)"]
        }
        #expect(rows.map { [Self.name($0[0]), $0[2].replacing(",", with: "")] } == settings)
        // Settings that stand for assumed rules exist.
        for row in try Self.rows(below: "### Assumed rules") where !row[2].contains(" of ") && row[2] != "–" {
            #expect(settings.contains { $0[0] == Self.name(row[2]) })
        }
    }
}
