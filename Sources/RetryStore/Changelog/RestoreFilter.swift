/// A Bloom filter of the items' keys that were restored into an empty partition. The filter saves a lookup in the store
/// for each new item. Filters of the store's own files contain devices only, so they would match other items of the
/// same device.
public struct RestoreFilter: Sendable {
    private var words: [UInt64]

    /// Sizes of the filter: of ten bits for a key four are set. On average one new key in eighty counts as old.
    private static let bits = 10
    private static let probes = 4

    /// - Parameters:
    ///   - records: number of expected records. With more records than fit, more new keys count as old.
    ///   - mostBytes: most bytes of the filter; at least 8.
    public init(records: Int, mostBytes: Int) {
        let wanted = max(0, min(records, Int.max / Self.bits)) * Self.bits / 64
        words = Array(repeating: 0, count: max(1, min(wanted + 1, mostBytes / 8)))
    }

    /// Size of the filter in bytes.
    public var bytes: Int { words.count * 8 }

    /// Returns false when the key certainly isn't in the filter.
    public func mayContain(_ key: ItemKey) -> Bool {
        var (place, step) = Self.hash(key)
        for _ in 0..<Self.probes {
            let (word, bit) = self.position(place)
            if words[word] & bit == 0 { return false }
            place &+= step
        }
        return true
    }

    /// Adds a key.
    /// - Returns: true when the key is certainly new.
    public mutating func insert(_ key: ItemKey) -> Bool {
        var (place, step) = Self.hash(key)
        var isNew = false
        for _ in 0..<Self.probes {
            let (word, bit) = self.position(place)
            if words[word] & bit == 0 {
                isNew = true
                words[word] |= bit
            }
            place &+= step
        }
        return isNew
    }

    /// Mixes the offset in, because items of one device differ by their offsets alone. The device's part is a hash
    /// already.
    private static func hash(_ key: ItemKey) -> (UInt64, UInt64) {
        let offset = UInt64(bitPattern: key.offset) &* 0x9e37_79b9_7f4a_7c15
        return (key.device.high ^ offset, (key.device.low &+ offset.byteSwapped) | 1)
    }

    private func position(_ hash: UInt64) -> (word: Int, bit: UInt64) {
        (Int(hash.multipliedFullWidth(by: UInt64(words.count)).high), 1 << (hash & 63))
    }
}
