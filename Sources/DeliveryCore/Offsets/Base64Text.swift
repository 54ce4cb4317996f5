/// Base64 (RFC 4648 §4) without padding, for the commit metadata.
enum Base64Text {
    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    private static let values: [UInt8] = {
        var table = [UInt8](repeating: 0xFF, count: 256)
        for (value, letter) in alphabet.enumerated() { table[Int(letter)] = UInt8(value) }
        return table
    }()

    /// Returns the number of bytes that fit into `characters` characters.
    static func capacity(characters: Int) -> Int { max(0, characters) * 3 / 4 }

    static func encode(_ bytes: [UInt8]) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count * 4 + 2) / 3)
        var pending: UInt32 = 0
        var bits = 0
        for byte in bytes {
            pending = pending << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(alphabet[Int(pending >> UInt32(bits) & 63)])
            }
        }
        if bits > 0 { text.append(alphabet[Int(pending << UInt32(6 - bits) & 63)]) }
        return text
    }

    /// Decodes a text. Returns nil when a character is foreign, the length impossible or a spare bit set.
    static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(capacity(characters: text.count))
        var pending: UInt32 = 0
        var bits = 0
        for letter in text {
            let value = values[Int(letter)]
            guard value != 0xFF else { return nil }
            pending = pending << 6 | UInt32(value)
            bits += 6
            if bits >= 8 {
                bits -= 8
                bytes.append(UInt8(truncatingIfNeeded: pending >> UInt32(bits)))
            }
        }
        guard pending & ((1 << UInt32(bits)) - 1) == 0 else { return nil }
        return bytes
    }
}
