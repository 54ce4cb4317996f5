/// Cause why a text is not the expected JSON object.
public enum JSONFault: Error, Hashable, Sendable {
    /// The text is not JSON (RFC 8259): `expected` was expected at this byte.
    case syntax(offset: Int, expected: StaticText)
    /// The text is not valid UTF-8 (RFC 3629) at this byte.
    case utf8(offset: Int)
    /// The text is nested deeper than ``JSONScanner/maximumDepth`` at this byte.
    case depth(offset: Int)
    /// The text is valid JSON, but its root is not an object.
    case notAnObject
    /// The text is longer than the parser accepts.
    case size(limit: Int)
}

/// A string literal that can be compared.
public struct StaticText: Hashable, Sendable, CustomStringConvertible {
    /// The literal.
    public let text: StaticString
    init(_ text: StaticString) { self.text = text }
    public static func == (left: StaticText, right: StaticText) -> Bool {
        left.description == right.description
    }
    public func hash(into hasher: inout Hasher) { hasher.combine(description) }
    public var description: String { text.description }
}

/// A validating JSON reader, byte by byte (RFC 8259), that builds nothing.
///
/// The scanner validates a text that simdjson refused, and reports the byte and the reason. It accepts texts that RFC
/// 8259 allows and simdjson refuses (numbers beyond 64 bits, lone escaped surrogates). The scanner also walks the
/// members of a structured-mode document, and returns slices of the original text.
package struct JSONScanner {
    /// Deepest nesting of objects and arrays.
    static let maximumDepth = 128

    private let bytes: UnsafeRawBufferPointer
    package private(set) var index: Int

    package init(_ bytes: UnsafeRawBufferPointer, at index: Int = 0) {
        self.bytes = bytes
        self.index = index
    }

    /// Checks that `bytes` are exactly one JSON object: UTF-8, grammar, depth, nothing behind it.
    package static func validateObject(_ bytes: UnsafeRawBufferPointer) throws(JSONFault) {
        var scanner = JSONScanner(bytes)
        scanner.skipWhitespace()
        let isObject = scanner.peek == UInt8(ascii: "{")
        try scanner.skipValue()
        scanner.skipWhitespace()
        if scanner.index < bytes.count {
            throw .syntax(offset: scanner.index, expected: StaticText("the end of the document"))
        }
        if !isObject { throw .notAnObject }
    }

    /// Next byte, or 0 at the end (no caller expects a 0).
    package var peek: UInt8 { index < bytes.count ? bytes[index] : 0 }

    package mutating func skipWhitespace() {
        while index < bytes.count {
            switch bytes[index] {
            case 0x20, 0x0A, 0x0D, 0x09: index += 1
            default: return
            }
        }
    }

    /// Skips a required byte.
    package mutating func expect(_ byte: UInt8, _ what: StaticString) throws(JSONFault) {
        guard peek == byte else { throw .syntax(offset: index, expected: StaticText(what)) }
        index += 1
    }

    /// Skips a value of any kind, and checks all of it. Open containers are on a stack of bits, not on the call stack.
    package mutating func skipValue() throws(JSONFault) {
        var stack = BitStack()
        while true {
            skipWhitespace()
            switch peek {
            case UInt8(ascii: "{"):
                index += 1
                skipWhitespace()
                if peek == UInt8(ascii: "}") {
                    index += 1
                } else {
                    guard stack.push(isObject: true) else { throw .depth(offset: index) }
                    try skipKey()
                    continue
                }
            case UInt8(ascii: "["):
                index += 1
                skipWhitespace()
                if peek == UInt8(ascii: "]") {
                    index += 1
                } else {
                    guard stack.push(isObject: false) else { throw .depth(offset: index) }
                    continue
                }
            case UInt8(ascii: "\""): try skipString()
            case UInt8(ascii: "t"): try skipLiteral("true")
            case UInt8(ascii: "f"): try skipLiteral("false")
            case UInt8(ascii: "n"): try skipLiteral("null")
            default: try skipNumber()
            }
            // A value ended: closes the containers that end with it, or moves to the next element.
            while true {
                guard let isObject = stack.top else { return }
                skipWhitespace()
                if peek == UInt8(ascii: ",") {
                    index += 1
                    if isObject {
                        skipWhitespace()
                        try skipKey()
                    }
                    break
                }
                try expect(
                    isObject ? UInt8(ascii: "}") : UInt8(ascii: "]"), isObject ? "',' or '}'" : "',' or ']'")
                stack.pop()
            }
        }
    }

    /// Skips `"key" :`.
    private mutating func skipKey() throws(JSONFault) {
        guard peek == UInt8(ascii: "\"") else {
            throw .syntax(offset: index, expected: StaticText("a member name in quotes"))
        }
        try skipString()
        skipWhitespace()
        try expect(UInt8(ascii: ":"), "':'")
    }

    private mutating func skipLiteral(_ literal: StaticString) throws(JSONFault) {
        let length = literal.utf8CodeUnitCount
        guard bytes.count - index >= length,
            slice(index..<index + length).elementsEqual(bytesOf: literal)
        else { throw .syntax(offset: index, expected: StaticText("a value")) }
        index += length
    }

    /// Skips a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
    private mutating func skipNumber() throws(JSONFault) {
        let start = index
        if peek == UInt8(ascii: "-") { index += 1 }
        guard isDigit(peek) else {
            throw .syntax(offset: start, expected: StaticText(start == index ? "a value" : "a digit"))
        }
        if peek == UInt8(ascii: "0") {
            index += 1
        } else {
            skipDigits()
        }
        if peek == UInt8(ascii: ".") {
            index += 1
            guard isDigit(peek) else { throw .syntax(offset: index, expected: StaticText("a digit")) }
            skipDigits()
        }
        if peek | 0x20 == UInt8(ascii: "e") {
            index += 1
            if peek == UInt8(ascii: "+") || peek == UInt8(ascii: "-") { index += 1 }
            guard isDigit(peek) else { throw .syntax(offset: index, expected: StaticText("a digit")) }
            skipDigits()
        }
    }

    private mutating func skipDigits() {
        while isDigit(peek) { index += 1 }
    }

    /// Skips a string with both quotes; the cursor must be on the first.
    package mutating func skipString() throws(JSONFault) {
        index += 1
        while index < bytes.count {
            let byte = bytes[index]
            if byte == UInt8(ascii: "\"") {
                index += 1
                return
            }
            if byte == UInt8(ascii: "\\") {
                try skipEscape()
            } else if byte < 0x20 {
                throw .syntax(offset: index, expected: StaticText("no control character inside a string"))
            } else if byte < 0x80 {
                index += 1
            } else {
                try skipMultibyte()
            }
        }
        throw .syntax(offset: index, expected: StaticText("'\"' at the end of a string"))
    }

    private mutating func skipEscape() throws(JSONFault) {
        index += 1
        switch peek {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            index += 1
        case UInt8(ascii: "u"):
            index += 1
            for _ in 0..<4 {
                guard hexValue(peek) != nil else {
                    throw .syntax(offset: index, expected: StaticText("a hexadecimal digit"))
                }
                index += 1
            }
        default: throw .syntax(offset: index, expected: StaticText("an escape of RFC 8259 §7"))
        }
    }

    private mutating func skipMultibyte() throws(JSONFault) {
        let length = utf8SequenceLength(bytes, at: index)
        guard length > 0 else { throw .utf8(offset: index) }
        index += length
    }

    /// Returns bytes of the text.
    package func slice(_ range: Range<Int>) -> UnsafeRawBufferPointer { bytes.slice(range) }
}

/// A stack with a bit per open container, set for an object.
private struct BitStack {
    private var low: UInt64 = 0
    private var high: UInt64 = 0
    private var depth = 0

    var top: Bool? { depth == 0 ? nil : low & 1 == 1 }

    mutating func push(isObject: Bool) -> Bool {
        guard depth < JSONScanner.maximumDepth else { return false }
        high = high << 1 | low >> 63
        low = low << 1 | (isObject ? 1 : 0)
        depth += 1
        return true
    }

    mutating func pop() {
        low = low >> 1 | high << 63
        high >>= 1
        depth -= 1
    }
}
