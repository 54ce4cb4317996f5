/// The `apns-id` of a notification: a UUID, in canonical lower-case text on the wire.
public struct APNSID: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes, big-endian.
    public var high: UInt64
    /// The last eight bytes, big-endian.
    public var low: UInt64

    /// Length of the canonical text.
    public static let textLength = 36

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Parses 32 lower-case hexadecimal digits grouped 8-4-4-4-12, as APNs requires in a request; nil for anything
    /// else.
    public init?(canonical text: UnsafeRawBufferPointer) { self.init(text, allowUpperCase: false) }

    /// Parses the same form with letters of either case, because APNs was seen to answer in upper case.
    public init?(anyCase text: UnsafeRawBufferPointer) { self.init(text, allowUpperCase: true) }

    /// Parses the canonical text in either case; nil for anything else.
    public init?(text: String) {
        guard text.utf8.count == Self.textLength else { return nil }
        let bytes = Array(text.utf8)
        guard let id = bytes.withUnsafeBytes({ APNSID($0, allowUpperCase: true) }) else { return nil }
        self = id
    }

    private init?(_ text: UnsafeRawBufferPointer, allowUpperCase: Bool) {
        guard text.count == Self.textLength else { return nil }
        let hyphen = UInt8(ascii: "-")
        guard text[8] == hyphen, text[13] == hyphen, text[18] == hyphen, text[23] == hyphen,
            let first = Self.digits(text, 0, 4, allowUpperCase),
            let second = Self.digits(text, 9, 14, allowUpperCase),
            let third = Self.digits(text, 19, 24, allowUpperCase),
            let fourth = Self.digits(text, 28, 32, allowUpperCase)
        else { return nil }
        self.init(high: first &<< 32 | second, low: third &<< 32 | fourth)
    }

    /// Value of two groups of four digits; nil when a byte is none.
    @inline(__always)
    private static func digits(
        _ text: UnsafeRawBufferPointer, _ first: Int, _ second: Int, _ allowUpperCase: Bool
    ) -> UInt64? {
        let groups =
            UInt64(UInt32(littleEndian: text.loadUnaligned(fromByteOffset: first, as: UInt32.self)))
            | UInt64(UInt32(littleEndian: text.loadUnaligned(fromByteOffset: second, as: UInt32.self))) &<< 32
        return HexadecimalText.value(ofEight: groups, allowUpperCase: allowUpperCase).map { UInt64($0) }
    }

    /// Writes the 36 bytes of the canonical text.
    public func write(to target: UnsafeMutableRawPointer) {
        let digits = (
            hexDigits(UInt32(truncatingIfNeeded: high &>> 32)), hexDigits(UInt32(truncatingIfNeeded: high)),
            hexDigits(UInt32(truncatingIfNeeded: low &>> 32)), hexDigits(UInt32(truncatingIfNeeded: low))
        )
        let hyphen = UInt8(ascii: "-")
        target.storeBytes(of: digits.0, as: UInt64.self)
        target.storeBytes(of: hyphen, toByteOffset: 8, as: UInt8.self)
        target.storeBytes(of: UInt32(truncatingIfNeeded: digits.1), toByteOffset: 9, as: UInt32.self)
        target.storeBytes(of: hyphen, toByteOffset: 13, as: UInt8.self)
        target.storeBytes(of: UInt32(truncatingIfNeeded: digits.1 &>> 32), toByteOffset: 14, as: UInt32.self)
        target.storeBytes(of: hyphen, toByteOffset: 18, as: UInt8.self)
        target.storeBytes(of: UInt32(truncatingIfNeeded: digits.2), toByteOffset: 19, as: UInt32.self)
        target.storeBytes(of: hyphen, toByteOffset: 23, as: UInt8.self)
        target.storeBytes(of: UInt32(truncatingIfNeeded: digits.2 &>> 32), toByteOffset: 24, as: UInt32.self)
        target.storeBytes(of: digits.3, toByteOffset: 28, as: UInt64.self)
    }

    public var description: String {
        String(unsafeUninitializedCapacity: Self.textLength) { buffer in
            write(to: UnsafeMutableRawPointer(buffer.baseAddress!))
            return Self.textLength
        }
    }

    /// Returns the identifier of a job that carries none. Every delivery of a Kafka record has the same identifier, so
    /// that a push repeated after a crash is recognisable.
    ///
    /// The identifier is a SipHash-2-4-128 under a fixed key, as a UUID of version 8 (RFC 9562 §5.8). The hash is of
    /// these bytes, in this order:
    /// - The topic name and a zero byte.
    /// - The partition (4 bytes, little-endian).
    /// - The offset (8 bytes, little-endian).
    ///
    /// A collision is not to be expected, because 122 bits remain. A topic that is deleted and created again repeats
    /// its identifiers.
    public static func derived(topic: UnsafeRawBufferPointer, partition: Int32, offset: Int64) -> APNSID {
        var hash = SipHash128(key0: 0x536c_7569_6365_2031, key1: 0x6170_6e73_2d69_6420)
        hash.append(topic)
        hash.append(0 as UInt8)
        hash.append(littleEndian: partition)
        hash.append(littleEndian: offset)
        let (first, second) = hash.finish()
        return APNSID(
            high: first & ~0xF000 | 0x8000,
            low: second & ~(0b11 &<< 62) | 0b10 &<< 62)
    }
}

/// Returns eight lower-case hexadecimal digits in the order of the text, as they lie in memory (little-endian).
private func hexDigits(_ value: UInt32) -> UInt64 {
    // Each byte has a nibble, most significant first in memory.
    var spread = UInt64(value.byteSwapped)
    spread = (spread | spread &<< 16) & 0x0000_FFFF_0000_FFFF
    spread = (spread | spread &<< 8) & 0x00FF_00FF_00FF_00FF
    spread = (spread &>> 4 | spread &<< 8) & 0x0F0F_0F0F_0F0F_0F0F
    // Each byte of a letter has the value 1.
    let letters = (spread &+ 0x0606_0606_0606_0606) &>> 4 & 0x0101_0101_0101_0101
    return (spread &+ 0x3030_3030_3030_3030 &+ letters &* 0x27).littleEndian
}
