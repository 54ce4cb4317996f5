/// A JSON object (RFC 8259) with nothing nested in it, as the parts of a provider token are.
struct FlatJSON {
    enum Value: Equatable {
        case text(String)
        /// A number, as it is written.
        case number(String)
        case other

        /// Returns the whole number of seconds; nil for other values.
        /// - Parameter orText: whether a text is read as a number, too. Clients were seen to send such texts.
        func seconds(orText: Bool) -> Int64? {
            switch self {
            case .text(let text): orText ? Int64(text) : nil
            case .number(let text): Int64(text) ?? Double(text).flatMap { Int64(exactly: $0.rounded(.down)) }
            case .other: nil
            }
        }
    }

    private var values: [String: Value] = [:]

    /// Names of all members.
    var names: Set<String> { Set(values.keys) }

    subscript(name: String) -> Value? { values[name] }

    /// Returns nil for anything that is not a flat object, and for an object that names a member twice.
    static func parse(_ bytes: [UInt8]) -> FlatJSON? {
        var reader = Reader(bytes: bytes)
        var object = FlatJSON()
        guard reader.consume("{") else { return nil }
        if !reader.consume("}") {
            repeat {
                guard let name = reader.string(), reader.consume(":"), let value = reader.value(),
                    object.values.updateValue(value, forKey: name) == nil
                else { return nil }
            } while reader.consume(",")
            guard reader.consume("}") else { return nil }
        }
        return reader.isAtEnd ? object : nil
    }

    private struct Reader {
        let bytes: [UInt8]
        var position = 0

        init(bytes: [UInt8]) { self.bytes = bytes }

        mutating func skipBlanks() {
            while position < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[position]) { position += 1 }
        }

        mutating func consume(_ character: Unicode.Scalar) -> Bool {
            skipBlanks()
            guard position < bytes.count, bytes[position] == UInt8(ascii: character) else { return false }
            position += 1
            return true
        }

        var isAtEnd: Bool {
            mutating get {
                skipBlanks()
                return position == bytes.count
            }
        }

        mutating func value() -> Value? {
            skipBlanks()
            guard position < bytes.count else { return nil }
            if bytes[position] == UInt8(ascii: "\"") { return string().map { .text($0) } }
            let start = position
            while position < bytes.count, ![0x2C, 0x7D, 0x20, 0x09, 0x0A, 0x0D].contains(bytes[position]) {
                position += 1
            }
            let word = String(decoding: bytes[start..<position], as: UTF8.self)
            if ["true", "false", "null"].contains(word) { return .other }
            return word.utf8.allSatisfy { "+-.0123456789eE".utf8.contains($0) } && Double(word) != nil
                ? .number(word) : nil
        }

        /// Reads a string. Escapes other than `\uXXXX` are known.
        mutating func string() -> String? {
            guard consume("\"") else { return nil }
            var text: [UInt8] = []
            while position < bytes.count {
                let byte = bytes[position]
                position += 1
                switch byte {
                case UInt8(ascii: "\""): return String(validating: text, as: UTF8.self)
                case 0..<0x20: return nil
                case UInt8(ascii: "\\"):
                    guard position < bytes.count else { return nil }
                    let escapes: [UInt8: UInt8] = [
                        0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9,
                    ]
                    guard let plain = escapes[bytes[position]] else { return nil }
                    text.append(plain)
                    position += 1
                default: text.append(byte)
                }
            }
            return nil
        }
    }
}
