extension ConfigurationValue {
    /// Returns the document with the settings of another in place of its own. Maps are merged; any other value, lists
    /// too, is replaced as a whole.
    package func merged(with other: ConfigurationValue) -> ConfigurationValue {
        guard case .map(var entries) = content, case .map(let others) = other.content else {
            return other.content == .empty ? self : other
        }
        for entry in others {
            if let index = entries.firstIndex(where: { $0.key == entry.key }) {
                entries[index].value = entries[index].value.merged(with: entry.value)
            } else {
                entries.append(entry)
            }
        }
        return ConfigurationValue(content: .map(entries), location: location)
    }

    /// The value in YAML, which reads as an equal value: maps in lines, lists and quoted texts as in JSON.
    ///
    /// All single values are quoted, because a reader of settings takes a quoted number as well.
    package var yaml: String {
        var lines: [String] = []
        if case .map(let entries) = content, !entries.isEmpty {
            Self.write(entries, indent: "", to: &lines)
        } else {
            lines.append(flow)
        }
        return lines.joined(separator: "\n") + "\n"
    }

    private static func write(_ entries: [Entry], indent: String, to lines: inout [String]) {
        for entry in entries {
            if case .map(let below) = entry.value.content, !below.isEmpty {
                lines.append("\(indent)\(quoted(entry.key)):")
                write(below, indent: indent + "  ", to: &lines)
            } else {
                lines.append("\(indent)\(quoted(entry.key)): \(entry.value.flow)")
            }
        }
    }

    /// The value on a single line.
    private var flow: String {
        switch content {
        case .scalar(let text, _): Self.quoted(text)
        case .list(let elements): "[" + elements.map(\.flow).joined(separator: ", ") + "]"
        case .map(let entries):
            "{" + entries.map { "\(Self.quoted($0.key)): \($0.value.flow)" }.joined(separator: ", ") + "}"
        case .empty: "null"
        }
    }

    /// Returns a text in double quotes, in which YAML and JSON agree.
    package static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value):
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}
