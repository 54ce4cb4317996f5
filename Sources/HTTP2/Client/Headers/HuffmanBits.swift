/// Codes of pairs of hexadecimal digits, the larger part of a push's own header bytes. Each byte has the code of its
/// two lower-case digits, right-aligned. Above the code is the number of bits beyond ten.
enum HexadecimalPairs {
    /// `code | (length - 10) << 12`, 512 bytes in all. Allocated once, never freed.
    // Written once before it is published by the static's initialiser, only read afterwards.
    nonisolated(unsafe) static let packed: UnsafePointer<UInt16> = {
        let digits = Array("0123456789abcdef".utf8)
        let table = UnsafeMutablePointer<UInt16>.allocate(capacity: 256)
        for byte in 0..<256 {
            let first = Int(digits[byte >> 4])
            let second = Int(digits[byte & 15])
            let secondLength = UInt16(HuffmanCode.lengths[second])
            let code = UInt16(HuffmanCode.codes[first]) << secondLength | UInt16(HuffmanCode.codes[second])
            table[byte] = code | (UInt16(HuffmanCode.lengths[first]) + secondLength - 10) << 12
        }
        return UnsafePointer(table)
    }()

    /// Returns the values of eight digits, each in a byte in the same order. Returns nil unless all are lower-case
    /// hexadecimal. All eight are handled at once in one word.
    @inline(__always)
    static func values(_ digits: UInt64) -> UInt64? {
        let ones: UInt64 = 0x0101_0101_0101_0101
        // 1 in the bytes that can only be letters (0x61...0x66); digits are 0x30...0x39.
        let letters = (digits &>> 6) & ones
        let low = digits & (ones &* 0x0f)
        let high = digits & (ones &* 0xf0)
        // Each sum is at most 15 for '0'...'9' and for '`'...'f'; the check below the range finds '`' itself.
        let above = low &+ (ones &* 6) &+ letters &* 3
        let below = low &+ (ones &* 0x10) &- letters
        guard high == (ones &* 0x30) &+ letters &* 0x30, above & (ones &* 0x10) == 0,
            below & (ones &* 0x10) == ones &* 0x10
        else { return nil }
        return low &+ letters &* 9
    }
}

/// Collects Huffman codes into bytes. Stores eight bytes at a time, so the room must have eight more bytes than the
/// string needs.
struct HuffmanBits {
    /// Bits that are not yet written: the lowest ``count``, fewer than eight between calls.
    private(set) var pending: UInt64 = 0
    private(set) var count: UInt64 = 0
    private let codes = HuffmanCode.packed
    private let pairs = HexadecimalPairs.packed

    init() {}

    /// Returns a copy that continues with another collector's leftover bits.
    @inline(__always)
    func resumed(pending: UInt8, count: UInt8) -> HuffmanBits {
        var bits = self
        bits.pending = UInt64(pending)
        bits.count = UInt64(count)
        return bits
    }

    @inline(__always)
    private mutating func flush(to cursor: inout UnsafeMutableRawPointer) {
        cursor.storeBytes(of: (pending &<< (64 &- count)).bigEndian, as: UInt64.self)
        cursor += Int(truncatingIfNeeded: count &>> 3)
        count &= 7
    }

    mutating func append(_ bytes: UnsafeRawBufferPointer, to cursor: inout UnsafeMutableRawPointer) {
        var bits = self
        for byte in bytes {
            let entry = codes[Int(byte)]
            let length = entry & 0xff
            bits.pending = bits.pending &<< length | entry &>> 8
            bits.count &+= length
            // The longest code has 30 bits.
            if bits.count > 34 { bits.flush(to: &cursor) }
        }
        bits.flush(to: &cursor)
        self = bits
    }

    /// Appends text that is most likely lower-case hexadecimal.
    mutating func appendHexadecimal(
        _ bytes: UnsafeRawBufferPointer, to cursor: inout UnsafeMutableRawPointer
    ) {
        guard var next = bytes.baseAddress else { return }
        let end = next + bytes.count
        var bits = self
        while end - next >= 8 {
            let digits = next.loadUnaligned(as: UInt64.self).bigEndian
            guard let values = HexadecimalPairs.values(digits) else { break }
            // Each pair of digits becomes a byte: the first one lies a byte above the second.
            let pairs = values | values &>> 4
            bits.appendPair(pairs &>> 48)
            bits.appendPair(pairs &>> 32)
            bits.appendPair(pairs &>> 16)
            bits.appendPair(pairs)
            bits.flush(to: &cursor)
            next += 8
        }
        self = bits
        if next < end { append(UnsafeRawBufferPointer(start: next, count: end - next), to: &cursor) }
    }

    /// Appends a decimal digit, 0 to 9.
    @inline(__always)
    mutating func appendDigit(_ digit: UInt8) {
        let entry = codes[Int(digit) + 0x30]
        pending = pending &<< (entry & 0xff) | entry &>> 8
        count &+= entry & 0xff
    }

    /// Appends two decimal digits, 0 to 99.
    @inline(__always)
    mutating func appendDecimalPair(_ pair: UInt32) {
        appendPair(UInt64((pair / 10) &<< 4 | pair % 10))
    }

    /// Returns the unwritten bits, at most 64, padded like a string's end. The result is the bytes, the first in the
    /// highest place, and their number.
    @inline(__always)
    func closed() -> (bytes: UInt64, count: Int) {
        guard count > 0 else { return (0, 0) }
        let free = 64 &- count
        return (pending &<< free | ((1 &<< free) &- 1), Int(truncatingIfNeeded: (count &+ 7) / 8))
    }

    /// Appends the two digits of the lowest eight bits of `byte`.
    @inline(__always)
    private mutating func appendPair(_ byte: UInt64) {
        let entry = UInt64(pairs[Int(truncatingIfNeeded: byte & 0xff)])
        let length = entry &>> 12 &+ 10
        pending = pending &<< length | entry & 0xfff
        count &+= length
    }

    /// Pads the last byte with ones, the beginning of the end-of-string code (RFC 7541 §5.2).
    mutating func finish(to cursor: inout UnsafeMutableRawPointer) {
        guard count > 0 else { return }
        let padding = 8 &- count
        let byte = UInt8(truncatingIfNeeded: pending &<< padding) | UInt8(truncatingIfNeeded: 0xff &>> count)
        cursor.storeBytes(of: byte, as: UInt8.self)
        cursor += 1
    }
}
