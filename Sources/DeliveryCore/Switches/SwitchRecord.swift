import SluiceModel

/// An operator's pause or resume of a scope, as the control topic and the switches' file keep it.
///
/// The text has a line `name: value` for each property, in UTF-8:
///
/// ```
/// switch: pause
/// scope: app
/// name: news
/// changed-at: 1795633200000
/// by: alice@worker-0
/// note: wrong price in the campaign
/// id: 6b1f0c5e9a3d4f27
/// ```
public struct SwitchRecord: Sendable, Equatable {
    public var scope: PauseScope
    /// True for a pause, false for a resume.
    public var isPaused: Bool
    /// Time of the change, in milliseconds since the epoch.
    public var changedMilliseconds: Int64
    /// Person or program that made the change; empty when unknown.
    public var by: String
    /// The operator's reason; empty when there is none.
    public var note: String
    /// Identifies the change: 16 hexadecimal digits.
    public var id: String

    /// Most bytes of each text.
    public static let mostTextBytes = 255
    /// Most bytes of a record.
    static let mostBytes = 4096

    /// Makes a record. Control characters of `by` and `note` become spaces, and both are cut to
    /// ``mostTextBytes``.
    public init(
        _ scope: PauseScope, isPaused: Bool, changedMilliseconds: Int64, by: String, note: String, id: UInt64
    ) {
        self.scope = scope
        self.isPaused = isPaused
        self.changedMilliseconds = changedMilliseconds
        self.by = Self.line(by)
        self.note = Self.line(note)
        let digits = String(id, radix: 16)
        self.id = String(repeating: "0", count: 16 - digits.count) + digits
    }

    /// Key of the record in the control topic, by which the topic is compacted.
    public var key: String { scope.name.map { "pause/\(scope.kind.rawValue)/\($0)" } ?? "pause/all" }

    /// Text of the record.
    public var text: String {
        var lines = [
            "switch: \(isPaused ? "pause" : "resume")", "scope: \(scope.kind.rawValue)",
        ]
        if let name = scope.name { lines.append("name: \(name)") }
        lines.append("changed-at: \(changedMilliseconds)")
        if !by.isEmpty { lines.append("by: \(by)") }
        if !note.isEmpty { lines.append("note: \(note)") }
        lines.append("id: \(id)")
        return lines.map { $0 + "\n" }.joined()
    }

    /// Reads a record; nil for bytes that aren't one. Lines of unknown names are skipped, because a newer version may
    /// write them.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count <= Self.mostBytes, let text = String(validating: bytes, as: UTF8.self) else {
            return nil
        }
        var fields: [Substring: Substring] = [:]
        for line in text.split(separator: "\n") {
            guard let colon = line.firstIndex(of: ":") else { return nil }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            guard fields.updateValue(value, forKey: line[..<colon]) == nil else { return nil }
        }
        guard let kind = fields["scope"].flatMap({ PauseScope.Kind(rawValue: String($0)) }),
            let scope = PauseScope(kind, name: fields["name"].map { String($0) }),
            let time = fields["changed-at"].flatMap({ Int64($0) }), JobLimits.instant.contains(time),
            let id = fields["id"], (1...Self.mostTextBytes).contains(id.utf8.count)
        else { return nil }
        switch fields["switch"] {
        case "pause": isPaused = true
        case "resume": isPaused = false
        default: return nil
        }
        self.scope = scope
        changedMilliseconds = time
        by = Self.line(String(fields["by"] ?? ""))
        note = Self.line(String(fields["note"] ?? ""))
        self.id = String(id)
    }

    /// Reads the scope of a record's key; nil for bytes that aren't a key.
    static func scope(ofKey bytes: UnsafeRawBufferPointer) -> PauseScope? {
        guard bytes.count <= Self.mostBytes, let key = String(validating: bytes, as: UTF8.self) else {
            return nil
        }
        let parts = key.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count >= 2, parts[0] == "pause", let kind = PauseScope.Kind(rawValue: String(parts[1]))
        else { return nil }
        return PauseScope(kind, name: parts.count > 2 ? String(parts[2]) : nil)
    }

    /// Returns the text as a line of its own, without spaces at its start.
    private static func line(_ text: String) -> String {
        var result = String.UnicodeScalarView()
        var bytes = 0
        for scalar in text.unicodeScalars {
            let isControl = scalar.value < 0x20 || scalar.value == 0x7f
            if result.isEmpty, isControl || scalar == " " { continue }
            bytes += isControl ? 1 : UTF8.width(scalar)
            guard bytes <= mostTextBytes else { break }
            result.append(isControl ? " " : scalar)
        }
        return String(result)
    }
}
