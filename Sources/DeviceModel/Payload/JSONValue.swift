import SluiceModel

/// A JSON value (RFC 8259). Members of an object have no order.
public enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// Member of an object; nil for other values and absent members.
    public subscript(name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    public var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// Number; nil for other values.
    public var double: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }

    /// Whole number; nil for other values and for numbers outside of 64 bits.
    public var integer: Int64? {
        switch self {
        case .integer(let value): value
        case .number(let value): Int64(exactly: value)
        default: nil
        }
    }

    public var members: [String: JSONValue]? {
        guard case .object(let members) = self else { return nil }
        return members
    }

    public var elements: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }

    /// Text that stands for the value within a sentence; empty for containers and null.
    public var plainText: String {
        switch self {
        case .string(let text): text
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .bool(let value): value ? "true" : "false"
        case .null, .array, .object: ""
        }
    }
}

extension JSONValue: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSONValue].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }
}

extension JSONValue {
    /// Reads a JSON text; nil when the text is not JSON. Of members with the same name the last counts.
    public init?(_ bytes: some Sequence<UInt8>) {
        let bytes = Array(bytes)
        let value = bytes.withUnsafeBytes { buffer -> JSONValue? in
            var check = JSONScanner(buffer)
            guard (try? check.skipValue()) != nil else { return nil }
            check.skipWhitespace()
            guard check.index == buffer.count else { return nil }
            // The scanner has checked grammar and depth, which bounds the recursion.
            var reader = JSONReader(buffer)
            return reader.value()
        }
        guard let value else { return nil }
        self = value
    }
}

/// Reads a text that ``JSONScanner`` has accepted.
private struct JSONReader {
    private let bytes: UnsafeRawBufferPointer
    private var index = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    private var peek: UInt8 { index < bytes.count ? bytes[index] : 0 }

    private mutating func skipBlanks() {
        while [0x20, 0x0A, 0x0D, 0x09].contains(peek) { index += 1 }
    }

    mutating func value() -> JSONValue {
        skipBlanks()
        switch peek {
        case UInt8(ascii: "{"): return object()
        case UInt8(ascii: "["): return array()
        case UInt8(ascii: "\""): return .string(string())
        case UInt8(ascii: "t"):
            index += 4
            return .bool(true)
        case UInt8(ascii: "f"):
            index += 5
            return .bool(false)
        case UInt8(ascii: "n"):
            index += 4
            return .null
        default: return number()
        }
    }

    private mutating func object() -> JSONValue {
        var members: [String: JSONValue] = [:]
        index += 1
        skipBlanks()
        while index < bytes.count, peek != UInt8(ascii: "}") {
            let name = string()
            skipBlanks()
            index += 1
            members[name] = value()
            skipBlanks()
            if peek == UInt8(ascii: ",") {
                index += 1
                skipBlanks()
            }
        }
        index += 1
        return .object(members)
    }

    private mutating func array() -> JSONValue {
        var elements: [JSONValue] = []
        index += 1
        skipBlanks()
        while index < bytes.count, peek != UInt8(ascii: "]") {
            elements.append(value())
            skipBlanks()
            if peek == UInt8(ascii: ",") { index += 1 }
            skipBlanks()
        }
        index += 1
        return .array(elements)
    }

    private mutating func number() -> JSONValue {
        let start = index
        while index < bytes.count, "+-.0123456789eE".utf8.contains(peek) { index += 1 }
        // A scanner's value has at least one byte. Without progress the reader would not end.
        if index == start { index += 1 }
        let text = String(decoding: bytes[start..<index], as: UTF8.self)
        if let value = Int64(text) { return .integer(value) }
        let value = Double(text) ?? 0
        return .number(value.isFinite ? value : 0)
    }

    private mutating func string() -> String {
        var text: [UInt8] = []
        index += 1
        while index < bytes.count, peek != UInt8(ascii: "\"") {
            let byte = peek
            index += 1
            guard byte == UInt8(ascii: "\\") else {
                text.append(byte)
                continue
            }
            let escape = peek
            index += 1
            switch escape {
            case UInt8(ascii: "b"): text.append(8)
            case UInt8(ascii: "f"): text.append(12)
            case UInt8(ascii: "n"): text.append(10)
            case UInt8(ascii: "r"): text.append(13)
            case UInt8(ascii: "t"): text.append(9)
            case UInt8(ascii: "u"): text.append(contentsOf: Array(String(scalar()).utf8))
            default: text.append(escape)
            }
        }
        index += 1
        return String(decoding: text, as: UTF8.self)
    }

    /// Reads the digits of `\uXXXX`, and those of a second escape if they form a pair. A lone surrogate is U+FFFD.
    private mutating func scalar() -> Unicode.Scalar {
        let high = unit()
        guard (0xD800..<0xDC00).contains(high), index + 1 < bytes.count, bytes[index] == UInt8(ascii: "\\"),
            bytes[index + 1] == UInt8(ascii: "u")
        else { return Unicode.Scalar(high) ?? "\u{FFFD}" }
        let start = index
        index += 2
        let low = unit()
        guard (0xDC00..<0xE000).contains(low) else {
            index = start
            return "\u{FFFD}"
        }
        return Unicode.Scalar(0x1_0000 + (high - 0xD800) << 10 + (low - 0xDC00)) ?? "\u{FFFD}"
    }

    private mutating func unit() -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 where index < bytes.count {
            value = value << 4 | UInt32(Hexadecimal.value(bytes[index]) ?? 0)
            index += 1
        }
        return value
    }
}
