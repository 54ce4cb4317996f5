import SluiceModel

/// JSON text of a value.
extension JSONValue {
    /// Deepest nesting that is written.
    private static let deepest = 100

    /// Returns the value as JSON in UTF-8, members in the order of their names; nil when the text is longer than `limit`
    /// bytes, or nested too deep.
    func bytes(limit: Int) -> [UInt8]? {
        var text: [UInt8] = []
        guard write(to: &text, limit: limit, depth: 0), text.count <= limit else { return nil }
        return text
    }

    /// Returns whether the value fits.
    private func write(to text: inout [UInt8], limit: Int, depth: Int) -> Bool {
        guard text.count <= limit, depth <= Self.deepest else { return false }
        switch self {
        case .null: text += "null".utf8
        case .bool(let value): text += (value ? "true" : "false").utf8
        case .integer(let value): text += "\(value)".utf8
        case .number(let value): text += (value.isFinite ? "\(value)" : "null").utf8
        case .string(let value): return Self.write(value, to: &text, limit: limit)
        case .array(let elements):
            text.append(UInt8(ascii: "["))
            for (index, element) in elements.enumerated() {
                if index > 0 { text.append(UInt8(ascii: ",")) }
                guard element.write(to: &text, limit: limit, depth: depth + 1) else { return false }
            }
            text.append(UInt8(ascii: "]"))
        case .object(let members):
            text.append(UInt8(ascii: "{"))
            for (index, member) in members.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { text.append(UInt8(ascii: ",")) }
                guard Self.write(member.key, to: &text, limit: limit) else { return false }
                text.append(UInt8(ascii: ":"))
                guard member.value.write(to: &text, limit: limit, depth: depth + 1) else { return false }
            }
            text.append(UInt8(ascii: "}"))
        }
        return true
    }

    private static func write(_ string: String, to text: inout [UInt8], limit: Int) -> Bool {
        guard text.count + string.utf8.count <= limit else { return false }
        text.append(UInt8(ascii: "\""))
        for byte in string.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): text += [UInt8(ascii: "\\"), byte]
            case 0..<0x20: text += "\\u00\(Hexadecimal.encode([byte]))".utf8
            default: text.append(byte)
            }
        }
        text.append(UInt8(ascii: "\""))
        return true
    }
}
