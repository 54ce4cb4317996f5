/// The keys of the items that were restored into an empty partition: a Bloom filter, so that what is new needs no look into the
/// store. Filters of the store's own files know devices only, and would find the other items of the device.
public struct RestoreFilter: Sendable {
    private var words: [UInt64]

    /// With ten bits for a key and four of them set, one new key in eighty is taken for an old one.
    private static let bits = 10
    private static let probes = 4

    /// - Parameters:
    ///   - records: how many come. With more than fit, more new keys are taken for old ones.
    ///   - mostBytes: that it takes; at least 8.
    public init(records: Int, mostBytes: Int) {
        let wanted = max(0, min(records, Int.max / Self.bits)) * Self.bits / 64
        words = Array(repeating: 0, count: max(1, min(wanted + 1, mostBytes / 8)))
    }

    public var bytes: Int { words.count * 8 }

    /// False: it certainly isn't among them.
    public func mayContain(_ key: ItemKey) -> Bool {
        var (place, step) = Self.hash(key)
        for _ in 0..<Self.probes {
            let (word, bit) = self.place(place)
            if words[word] & bit == 0 { return false }
            place &+= step
        }
        return true
    }

    /// - Returns: whether it is new for certain.
    public mutating func insert(_ key: ItemKey) -> Bool {
        var (place, step) = Self.hash(key)
        var isNew = false
        for _ in 0..<Self.probes {
            let (word, bit) = self.place(place)
            if words[word] & bit == 0 {
                isNew = true
                words[word] |= bit
            }
            place &+= step
        }
        return isNew
    }

    /// The device's part is a hash already; items of one device differ by their offsets alone.
    private static func hash(_ key: ItemKey) -> (UInt64, UInt64) {
        let offset = UInt64(bitPattern: key.offset) &* 0x9e37_79b9_7f4a_7c15
        return (key.device.high ^ offset, (key.device.low &+ offset.byteSwapped) | 1)
    }

    private func place(_ hash: UInt64) -> (word: Int, bit: UInt64) {
        (Int(hash.multipliedFullWidth(by: UInt64(words.count)).high), 1 << (hash & 63))
    }
}
