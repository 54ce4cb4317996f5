// Small readers of borrowed bytes. They never allocate.

extension UnsafeRawBufferPointer {
    /// Returns the bytes of `range`, as a buffer that starts at index 0.
    @inline(__always)
    func slice(_ range: Range<Int>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[range])
    }

    /// Compares byte for byte.
    @inline(__always)
    func elementsEqual(bytesOf other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard let left = baseAddress, let right = other.baseAddress else { return true }
        var index = 0
        while index &+ 8 <= count {
            if left.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                != right.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            {
                return false
            }
            index &+= 8
        }
        if count >= 8 {
            // The last eight bytes, which overlap those before.
            return left.loadUnaligned(fromByteOffset: count &- 8, as: UInt64.self)
                == right.loadUnaligned(fromByteOffset: count &- 8, as: UInt64.self)
        }
        while index < count {
            if left.load(fromByteOffset: index, as: UInt8.self)
                != right.load(fromByteOffset: index, as: UInt8.self)
            {
                return false
            }
            index &+= 1
        }
        return true
    }

    /// Compares byte for byte with a literal.
    @inline(__always)
    func elementsEqual(bytesOf literal: StaticString) -> Bool {
        elementsEqual(
            bytesOf: UnsafeRawBufferPointer(start: literal.utf8Start, count: literal.utf8CodeUnitCount))
    }

    /// Compares with a lower-case literal; upper-case ASCII letters of `self` count as lower-case.
    func equalsIgnoringCase(_ literal: StaticString) -> Bool {
        guard count == literal.utf8CodeUnitCount else { return false }
        for index in 0..<count where lowercased(self[index]) != literal.utf8Start[index] { return false }
        return true
    }

    /// Compares the end with a lower-case literal; upper-case ASCII letters of `self` count as lower-case.
    func hasSuffixIgnoringCase(_ literal: StaticString) -> Bool {
        let length = literal.utf8CodeUnitCount
        return count >= length && slice(count - length..<count).equalsIgnoringCase(literal)
    }

    /// Compares the beginning with a lower-case literal; upper-case ASCII letters of `self` count as lower-case.
    func hasPrefixIgnoringCase(_ literal: StaticString) -> Bool {
        let length = literal.utf8CodeUnitCount
        return count >= length && slice(0..<length).equalsIgnoringCase(literal)
    }

    /// Whether all bytes are ASCII that JSON doesn't escape. Has no branch per byte, so that the compiler can vectorise the
    /// loop.
    @inline(__always)
    var isPlainText: Bool {
        var foreign: UInt8 = 0
        for byte in self {
            let isOutside: UInt8 = byte &- 0x20 > 0x5f ? 1 : 0
            let isEscaped: UInt8 = byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") ? 1 : 0
            foreign |= isOutside | isEscaped
        }
        return foreign == 0
    }

    func hasSuffix(_ literal: StaticString) -> Bool {
        let length = literal.utf8CodeUnitCount
        return count >= length && slice(count - length..<count).elementsEqual(bytesOf: literal)
    }

    func hasPrefix(_ literal: StaticString) -> Bool {
        let length = literal.utf8CodeUnitCount
        return count >= length && slice(0..<length).elementsEqual(bytesOf: literal)
    }

    /// Value of an unsigned decimal number of at most 18 digits, without sign, leading zero or blank; nil for anything
    /// else.
    var decimal: Int64? {
        guard count > 0, count <= 18 else { return nil }
        if self[0] == UInt8(ascii: "0"), count > 1 { return nil }
        var value: Int64 = 0
        var index = 0
        if count >= 8 {
            let word = UInt64(littleEndian: loadUnaligned(fromByteOffset: 0, as: UInt64.self))
            guard let first = decimalOfEight(word) else { return nil }
            value = Int64(first)
            index = 8
        }
        while index < count {
            let byte = self[index]
            guard isDigit(byte) else { return nil }
            value = value &* 10 &+ Int64(byte &- UInt8(ascii: "0"))
            index &+= 1
        }
        return value
    }

    /// Returns printable ASCII of at most 64 bytes for messages, or another text where the name may hold a device token:
    /// a producer may use the token as a name.
    func printableName(insteadOfToken text: String) -> String {
        hasHexadecimalRow(32) ? text : printable(limit: 64)
    }

    /// Returns whether so many bytes in a row are hexadecimal digits.
    func hasHexadecimalRow(_ length: Int) -> Bool {
        var digits = 0
        for byte in self {
            digits = hexValue(lowercased(byte)) == nil ? 0 : digits + 1
            if digits >= length { return true }
        }
        return false
    }

    /// Returns printable ASCII of at most `limit` bytes for messages; everything else becomes '?'.
    func printable(limit: Int) -> String {
        var text = ""
        for byte in prefix(limit) {
            text.unicodeScalars.append(
                Unicode.Scalar((0x20...0x7E).contains(byte) ? byte : UInt8(ascii: "?")))
        }
        return count > limit ? text + "…" : text
    }
}

extension StaticString {
    /// The literal's bytes.
    var bytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: utf8Start, count: utf8CodeUnitCount)
    }
}

/// Value of eight decimal digits, the first in the lowest byte; nil when a byte is no digit.
@inline(__always)
private func decimalOfEight(_ digits: UInt64) -> UInt64? {
    let ones: UInt64 = 0x0101_0101_0101_0101
    let values = digits ^ (ones &* 0x30)
    // A byte above 9 has a high half, or gets its top bit by 0x76.
    guard values & (ones &* 0xF0) | (values &+ ones &* 0x76) & (ones &* 0x80) == 0 else { return nil }
    // Pairs, then fours, then eight: each step multiplies the earlier digits, which lie lower.
    let pairs = (values &* 10 &+ values &>> 8) & 0x00FF_00FF_00FF_00FF
    let fours = (pairs &* 100 &+ pairs &>> 16) & 0x0000_FFFF_0000_FFFF
    return (fours & 0xFFFF_FFFF) &* 10_000 &+ fours &>> 32
}

@inline(__always)
func isDigit(_ byte: UInt8) -> Bool { byte &- UInt8(ascii: "0") < 10 }

@inline(__always)
func isLetter(_ byte: UInt8) -> Bool { (byte | 0x20) &- UInt8(ascii: "a") < 26 }

@inline(__always)
func lowercased(_ byte: UInt8) -> UInt8 {
    byte &- UInt8(ascii: "A") < 26 ? byte | 0x20 : byte
}

/// Returns the value of a hexadecimal digit of either case; nil for another byte.
@inline(__always)
func hexValue(_ byte: UInt8) -> UInt8? {
    if isDigit(byte) { return byte &- UInt8(ascii: "0") }
    let letter = (byte | 0x20) &- UInt8(ascii: "a")
    return letter < 6 ? letter &+ 10 : nil
}

@inline(__always)
func hexDigit(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") &+ value : UInt8(ascii: "a") &+ value &- 10
}

/// Returns whether eight bytes of text are all ASCII that JSON doesn't escape.
@inline(__always)
func isPlainText(_ word: UInt64) -> Bool {
    let ones: UInt64 = 0x0101_0101_0101_0101
    let quotes = word ^ (ones &* UInt64(UInt8(ascii: "\"")))
    let backslashes = word ^ (ones &* UInt64(UInt8(ascii: "\\")))
    // The top bit of a byte is set for a byte below 0x20, a quote, a backslash, or beyond ASCII.
    let found =
        (word &- ones &* 0x20) & ~word | (quotes &- ones) & ~quotes | (backslashes &- ones) & ~backslashes
        | word
    return found & (ones &* 0x80) == 0
}

/// Returns the length of the valid UTF-8 sequence of two to four bytes at `index`, or 0. RFC 3629 §4 allows no overlong
/// form, no surrogate, and at most U+10FFFF.
func utf8SequenceLength(_ bytes: UnsafeRawBufferPointer, at index: Int) -> Int {
    let length: Int
    var low: UInt8 = 0x80
    var high: UInt8 = 0xBF
    switch bytes[index] {
    case 0xC2...0xDF: length = 2
    case 0xE0: (length, low) = (3, 0xA0)
    case 0xED: (length, high) = (3, 0x9F)
    case 0xE1...0xEF: length = 3
    case 0xF0: (length, low) = (4, 0x90)
    case 0xF4: (length, high) = (4, 0x8F)
    case 0xF1...0xF3: length = 4
    default: return 0
    }
    guard bytes.count - index >= length, (low...high).contains(bytes[index + 1]) else { return 0 }
    for position in 2..<length where bytes[index + position] & 0xC0 != 0x80 { return 0 }
    return length
}
