/// Converts hexadecimal digits to bytes and back, eight digits at a time.
package enum HexadecimalText {
    private static let ones: UInt64 = 0x0101_0101_0101_0101

    /// Returns the cases of the letters in valid digits.
    static func letterCases(_ digits: UnsafeRawBufferPointer) -> (lower: Bool, upper: Bool) {
        var lower: UInt64 = 0
        var upper: UInt64 = 0
        var index = 0
        while index &+ 8 <= digits.count {
            let word = digits.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            // A letter has bit 6, and bit 5 where it is lower-case.
            let letters = word &>> 6 & ones
            lower |= letters & word &>> 5
            upper |= letters & ~(word &>> 5)
            index &+= 8
        }
        while index < digits.count {
            if isLetter(digits[index]) {
                if digits[index] & 0x20 != 0 { lower = 1 } else { upper = 1 }
            }
            index &+= 1
        }
        return (lower != 0, upper != 0)
    }

    /// Value of eight digits in the order of the text, the first in the lowest byte; nil when a byte is no digit.
    @inline(__always)
    static func value(ofEight digits: UInt64, allowUpperCase: Bool) -> UInt32? {
        let values = (digits & (ones &* 0x0F)) &+ (digits &>> 6 & ones) &* 9
        // A byte is a digit if its value has that digit. Letters beyond F have values beyond 15.
        let letters = (values &+ ones &* 6) &>> 4 & ones
        let text = values &+ ones &* 0x30 &+ letters &* 0x27
        let isLetter = letters &* 0x20
        guard values & (ones &* 0xF0) == 0,
            text == (allowUpperCase ? digits | isLetter : digits)
        else { return nil }
        var packed = (values & 0x000F_000F_000F_000F) &<< 4 | (values &>> 8 & 0x000F_000F_000F_000F)
        packed = (packed | packed &>> 8) & 0x0000_FFFF_0000_FFFF
        packed |= packed &>> 16
        return UInt32(truncatingIfNeeded: packed).byteSwapped
    }

    /// Writes half as many bytes as there are digits. The digits must be valid, and their number even.
    package static func pack(_ digits: UnsafeRawBufferPointer, into target: UnsafeMutableRawPointer) {
        var index = 0
        while index &+ 8 <= digits.count {
            let word = UInt64(littleEndian: digits.loadUnaligned(fromByteOffset: index, as: UInt64.self))
            // Each byte's value; the first of two is the high half of the packed byte.
            let values = (word & (ones &* 0x0F)) &+ (word &>> 6 & ones) &* 9
            var packed = (values & 0x000F_000F_000F_000F) &<< 4 | (values &>> 8 & 0x000F_000F_000F_000F)
            packed = (packed | packed &>> 8) & 0x0000_FFFF_0000_FFFF
            packed |= packed &>> 16
            target.storeBytes(
                of: UInt32(truncatingIfNeeded: packed).littleEndian, toByteOffset: index / 2, as: UInt32.self)
            index &+= 8
        }
        while index &+ 2 <= digits.count {
            let byte = (hexValue(digits[index]) ?? 0) &<< 4 | (hexValue(digits[index &+ 1]) ?? 0)
            target.storeBytes(of: byte, toByteOffset: index / 2, as: UInt8.self)
            index &+= 2
        }
    }

    /// Writes two digits for each byte, with letters in the requested case.
    package static func unpack(
        _ bytes: UnsafeRawBufferPointer, upperCase: Bool, into target: UnsafeMutableRawPointer
    ) {
        // Distance of the letters from the code right behind the digits.
        let distance: UInt64 = upperCase ? 0x07 : 0x27
        var index = 0
        while index &+ 4 <= bytes.count {
            let word = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: index, as: UInt32.self))
            var spread = UInt64(word)
            spread = (spread | spread &<< 16) & 0x0000_FFFF_0000_FFFF
            spread = (spread | spread &<< 8) & 0x00FF_00FF_00FF_00FF
            let values = (spread &>> 4 & 0x000F_000F_000F_000F) | (spread & 0x000F_000F_000F_000F) &<< 8
            let letters = (values &+ ones &* 6) &>> 4 & ones
            let text = values &+ ones &* 0x30 &+ letters &* distance
            target.storeBytes(of: text.littleEndian, toByteOffset: index &* 2, as: UInt64.self)
            index &+= 4
        }
        while index < bytes.count {
            let byte = bytes[index]
            target.storeBytes(
                of: digit(byte &>> 4, distance), toByteOffset: index &* 2, as: UInt8.self)
            target.storeBytes(
                of: digit(byte & 15, distance), toByteOffset: index &* 2 &+ 1, as: UInt8.self)
            index &+= 1
        }
    }
    private static func digit(_ value: UInt8, _ distance: UInt64) -> UInt8 {
        UInt8(ascii: "0") &+ value &+ (value > 9 ? UInt8(truncatingIfNeeded: distance) : 0)
    }
}
