import SluiceModel

extension SeededGenerator {
    /// Returns a number from 0 to below 1.
    mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }

    /// Returns a UUID of version 4 (RFC 9562 §5.4).
    mutating func identifier() -> APNSID {
        APNSID(high: next() & ~0xF000 | 0x4000, low: next() & ~(0b11 << 62) | 0b10 << 62)
    }
}
