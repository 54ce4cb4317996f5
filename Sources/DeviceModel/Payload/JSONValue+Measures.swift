extension JSONValue {
    /// Length of the compact JSON text in bytes. Slashes count as written plain.
    var encodedSize: Int {
        switch self {
        case .null: 4
        case .bool(let value): value ? 4 : 5
        case .integer(let value): "\(value)".utf8.count
        case .number(let value): "\(value)".utf8.count
        case .string(let text): Self.size(of: text)
        case .array(let elements):
            elements.reduce(2 + max(0, elements.count - 1)) { $0 + $1.encodedSize }
        case .object(let members):
            members.reduce(2 + max(0, members.count - 1)) {
                $0 + Self.size(of: $1.key) + 1 + $1.value.encodedSize
            }
        }
    }

    private static func size(of text: String) -> Int {
        text.utf8.reduce(2) { size, byte in
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"), 8, 9, 10, 12, 13: size + 2
            case 0..<0x20: size + 6
            default: size + 1
            }
        }
    }

    /// Time of a member with seconds since 1970, in milliseconds since 1970, within ±100,000 years; nil for no number.
    var milliseconds: Int64? { double.flatMap { Milliseconds.clamped(seconds: $0) } }
}

/// Durations and times from outside, whose numbers have any size.
enum Milliseconds {
    /// Largest amount, which sums with other times without overflow.
    static let largest: Int64 = 3_155_760_000_000_000

    /// Milliseconds of a number of seconds; nil for NaN.
    static func clamped(seconds: Double) -> Int64? {
        guard !seconds.isNaN else { return nil }
        let limit = Double(largest)
        return Int64(min(max(seconds * 1_000, -limit), limit))
    }
}
