import SluiceModel

/// An item that has ended and leaves the store: its record, and the device of its outcome.
public struct EndedItem: Hashable, BitwiseCopyable, Sendable {
    /// The lower half of the device's key.
    public var device: UInt64
    public var place: RecordPlace

    public init(device: UInt64, place: RecordPlace) {
        self.device = device
        self.place = place
    }
}

/// Items that have ended and are still in the store: until their outcomes are safe.
///
/// An offset isn't enough to tell them apart. A partition whose log began anew can have an item of each log with one offset,
/// and which log an item is of isn't always known. Those are of different devices, but for a chance of one in as many
/// devices as there are: then they have one key in the store, too, and count as two ends of one item.
struct EndedItems {
    struct Entry {
        /// Where the store has it.
        var key: StoredKey
        /// That of its outcome: after a token change another than that of the key.
        var device: DeviceKey
        /// Ends that are to be followed by a removal each.
        var ends = 1
        /// Removals that were asked for.
        var asked = 0
    }

    private var entries: [RecordPlace: Entry] = [:]
    /// Further items of a place that is taken.
    private var others: [EndedItem: Entry] = [:]

    var isEmpty: Bool { entries.isEmpty }

    mutating func insert(_ place: RecordPlace, _ key: StoredKey, _ device: DeviceKey) {
        var entry = Entry(key: key, device: device)
        guard let taken = entries[place] else {
            entries[place] = entry
            return
        }
        guard taken.device.low != device.low else {
            entry.ends += taken.ends
            entry.asked = taken.asked
            entries[place] = entry
            return
        }
        let item = EndedItem(device: device.low, place: place)
        entry.ends += others[item]?.ends ?? 0
        entry.asked = others[item]?.asked ?? 0
        others[item] = entry
    }

    func has(_ place: RecordPlace) -> Bool { !entries.isEmpty && entries[place] != nil }

    /// Whether an item of the place has ended that the store has under this device.
    func has(_ place: RecordPlace, storedUnder device: DeviceKey) -> Bool {
        guard let entry = entries[place] else { return false }
        return entry.key.device == device
            || !others.isEmpty && others.contains { $0.key.place == place && $0.value.key.device == device }
    }

    func has(_ item: EndedItem) -> Bool { self[item] != nil }

    private subscript(item: EndedItem) -> Entry? {
        get {
            guard let entry = entries[item.place] else { return nil }
            return entry.device.low == item.device ? entry : others[item]
        }
        set {
            if entries[item.place]?.device.low == item.device {
                entries[item.place] = newValue
            } else {
                others[item] = newValue
            }
        }
    }

    /// An item is removed from the store in the next batch.
    /// - Returns: its key; nil: all ends of it are followed by a removal already.
    mutating func remove(_ item: EndedItem) -> StoredKey? {
        guard var entry = self[item], entry.asked < entry.ends else { return nil }
        entry.asked += 1
        self[item] = entry
        return entry.key
    }

    /// An item has left the store.
    /// - Returns: nil when that wasn't awaited.
    mutating func removed(_ item: EndedItem) -> Entry? {
        guard var entry = self[item] else { return nil }
        entry.ends -= 1
        entry.asked -= 1
        self[item] = entry.ends == 0 ? nil : entry
        // The one of the lowest device, so that equal runs go alike.
        if !others.isEmpty, entries[item.place] == nil,
            let next = others.keys.filter({ $0.place == item.place }).min(by: { $0.device < $1.device })
        {
            entries[item.place] = others.removeValue(forKey: next)
        }
        return entry
    }

    mutating func removeAll(_ slot: UInt16) {
        entries = entries.filter { $0.key.partitionSlot != slot }
        others = others.filter { $0.key.place.partitionSlot != slot }
    }

    func has(partitionSlot slot: UInt16) -> Bool { entries.keys.contains { $0.partitionSlot == slot } }
}
