import Glibc

/// A key with its value. Never changed, and so shared by memtables, tables and logs.
final class Entry {
    private let bytes: UnsafeMutableRawPointer
    private let keyCount: Int
    private let valueCount: Int

    /// - Parameter value: pieces of the value, in order.
    init(key: UnsafeRawBufferPointer, value: [UnsafeRawBufferPointer] = []) {
        keyCount = key.count
        valueCount = value.reduce(0) { $0 + $1.count }
        bytes = .allocate(byteCount: keyCount + valueCount, alignment: 8)
        var place = bytes
        for piece in [key] + value where !piece.isEmpty {
            place.copyMemory(from: piece.baseAddress!, byteCount: piece.count)
            place += piece.count
        }
    }

    deinit { bytes.deallocate() }

    var key: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: bytes, count: keyCount) }
    var value: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: bytes + keyCount, count: valueCount)
    }
    /// Bytes of key and value.
    var count: Int { keyCount + valueCount }
}

/// Entries in the order of their keys. Copies share memory until one of them is changed.
struct SortedEntries {
    private(set) var all: [Entry] = []

    /// Returns the place of the first entry whose key isn't before `key`.
    func place(of key: UnsafeRawBufferPointer) -> Int {
        // Most entries of an order by time are put at its end.
        if let last = all.last, Self.order(last.key, key) < 0 { return all.count }
        var (low, high) = (0, all.count)
        while low < high {
            let middle = (low + high) / 2
            if Self.order(all[middle].key, key) < 0 { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func entry(of key: UnsafeRawBufferPointer) -> Entry? {
        let place = place(of: key)
        return has(key, at: place) ? all[place] : nil
    }

    mutating func put(_ entry: Entry) {
        let place = place(of: entry.key)
        if has(entry.key, at: place) { all[place] = entry } else { all.insert(entry, at: place) }
    }

    mutating func remove(_ key: UnsafeRawBufferPointer) {
        let place = place(of: key)
        if has(key, at: place) { all.remove(at: place) }
    }

    private func has(_ key: UnsafeRawBufferPointer, at place: Int) -> Bool {
        place < all.count && Self.order(all[place].key, key) == 0
    }

    /// Compares keys bytewise: below 0, 0 or above 0.
    static func order(_ left: UnsafeRawBufferPointer, _ right: UnsafeRawBufferPointer) -> Int {
        let count = min(left.count, right.count)
        let order = count == 0 ? 0 : Int(memcmp(left.baseAddress!, right.baseAddress!, count))
        return order != 0 ? order : left.count - right.count
    }
}

/// A put or a removal in a batch.
struct Change {
    var family: FamilyFiles
    /// Key and new value; for a removal the key.
    var entry: Entry
    var isRemoval: Bool
}
