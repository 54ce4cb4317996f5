import Testing

@testable import SluiceModel

struct IdentityHasherTests {
    private let hasher = IdentityHasher(key0: 1, key1: 2)

    private func device(_ text: String) -> DeviceKey { text.withBytes { hasher.device($0) } }

    @Test func tokenHashIgnoresCase() {
        let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
        #expect(device(token) == device(token.uppercased()))
        #expect(device(token) != device(String(token.dropLast())))
        #expect(device(token) != device(String(token.dropLast()) + "1"))
        #expect(device("00fc13adff") == device("00FC13adFF"), "not a multiple of eight")
    }

    @Test func tokenHashIsSipHashOfTheFoldedText() {
        for length in 0...40 {
            let text = String(repeating: "A1", count: length)
            var hash = SipHash128(key0: 1, key1: 2)
            for byte in text.utf8 { hash.append(byte | 0x20) }
            let (high, low) = hash.finish()
            #expect(device(text) == DeviceKey(high: high, low: low))
        }
    }

    @Test func differentKeysGiveDifferentHashes() {
        let other = IdentityHasher(key0: 1, key1: 3)
        #expect("abcd".withBytes { other.device($0) } != device("abcd"))
        #expect(
            "abcd".withBytes { other.collapseIdentifier($0) }
                != "abcd".withBytes { hasher.collapseIdentifier($0) })
        let id = APNSID(high: 5, low: 6)
        #expect(other.notification(id) != hasher.notification(id))
        #expect(hasher.notification(id) != hasher.notification(APNSID(high: 6, low: 5)))
    }

    @Test func collapseIdentifierHashIsCaseSensitive() {
        #expect(
            "Ab".withBytes { hasher.collapseIdentifier($0) }
                != "ab".withBytes { hasher.collapseIdentifier($0) })
        #expect("".withBytes { hasher.collapseIdentifier($0) } != 0)
    }

    /// Each digit of a token flips every bit of its key about half of the time.
    @Test func changedDigitFlipsHalfOfTheBits() {
        var random = SeededGenerator(seed: 21)
        var flips = [Int](repeating: 0, count: 128)
        for round in 0..<4000 {
            var digits = (0..<64).map { _ in hexDigit(UInt8.random(in: 0...15, using: &random)) }
            let before = digits.withUnsafeBytes { hasher.device($0) }
            let place = round % 64
            let old = digits[place]
            while digits[place] == old { digits[place] = hexDigit(UInt8.random(in: 0...15, using: &random)) }
            let after = digits.withUnsafeBytes { hasher.device($0) }
            for bit in 0..<64 {
                flips[bit] += Int((before.high ^ after.high) >> UInt64(bit) & 1)
                flips[64 + bit] += Int((before.low ^ after.low) >> UInt64(bit) & 1)
            }
        }
        // The mean is 2,000 and the standard deviation 32. The limits are six deviations to each side.
        for (bit, count) in flips.enumerated() { #expect((1810...2190).contains(count), "bit \(bit)") }
    }
}
