import SluiceModel

/// An item that has ended and leaves the store, with its record and the device of its outcome.
public struct EndedItem: Hashable, BitwiseCopyable, Sendable {
    /// Lower half of the device's key.
    public var device: UInt64
    /// Record of the item.
    public var place: RecordPlace

    public init(device: UInt64, place: RecordPlace) {
        self.device = device
        self.place = place
    }
}

/// Items that have ended and are still in the store until their outcomes are safe.
///
/// An offset alone doesn't distinguish two items. A partition whose log began anew can have an item of each log with
/// the same offset. The log of an item isn't always known. Two such items nearly always have different devices. The
/// chance that they have the same device is one in the number of devices. They then have one key in the store, and
/// count as two ends of one item.
struct EndedItems {
    struct Entry {
        /// Key of the item in the store.
        var key: StoredKey
        /// Device of the item's outcome; after a token change it differs from the key's device.
        var device: DeviceKey
        /// Ends that are each to be followed by a removal.
        var ends = 1
        /// Removals that were requested.
        var asked = 0
    }

    private var entries: [RecordPlace: Entry] = [:]
    /// Further items of a place that is taken in ``entries``.
    private var others: [EndedItem: Entry] = [:]
    /// Number of items by the device under which the store has them.
    private var byDevice: [DeviceKey: Int] = [:]

    var isEmpty: Bool { entries.isEmpty }

    mutating func insert(_ place: RecordPlace, _ key: StoredKey, _ device: DeviceKey) {
        var entry = Entry(key: key, device: device)
        count(key.device, 1)
        guard let taken = entries[place] else {
            entries[place] = entry
            return
        }
        guard taken.device.low != device.low else {
            count(taken.key.device, -1)
            entry.ends += taken.ends
            entry.asked = taken.asked
            entries[place] = entry
            return
        }
        let item = EndedItem(device: device.low, place: place)
        if let other = others[item] {
            count(other.key.device, -1)
            entry.ends += other.ends
            entry.asked = other.asked
        }
        others[item] = entry
    }

    private mutating func count(_ device: DeviceKey, _ change: Int) {
        let items = byDevice[device, default: 0] + change
        byDevice[device] = items > 0 ? items : nil
    }

    func has(_ place: RecordPlace) -> Bool { !entries.isEmpty && entries[place] != nil }

    /// Returns true when an item of the place has ended that the store has under this device.
    func has(_ place: RecordPlace, storedUnder device: DeviceKey) -> Bool {
        guard let entry = entries[place] else { return false }
        return entry.key.device == device
            || !others.isEmpty && others.contains { $0.key.place == place && $0.value.key.device == device }
    }

    /// Returns true when an item has ended that the store has under this device.
    func has(storedUnder device: DeviceKey) -> Bool { !byDevice.isEmpty && byDevice[device] != nil }

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

    /// Requests an item's removal from the store in the next batch.
    /// - Returns: the item's key; nil when a removal follows each of its ends already.
    mutating func remove(_ item: EndedItem) -> StoredKey? {
        guard var entry = self[item], entry.asked < entry.ends else { return nil }
        entry.asked += 1
        self[item] = entry
        return entry.key
    }

    /// Records that an item has left the store.
    /// - Returns: the item's entry; nil when the removal wasn't awaited.
    mutating func removed(_ item: EndedItem) -> Entry? {
        guard var entry = self[item] else { return nil }
        entry.ends -= 1
        entry.asked -= 1
        self[item] = entry.ends == 0 ? nil : entry
        if entry.ends == 0 { count(entry.key.device, -1) }
        // Picks the item with the lowest device, so that equal runs behave alike.
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
        byDevice = [:]
        for entry in entries.values { count(entry.key.device, 1) }
        for entry in others.values { count(entry.key.device, 1) }
    }

    func has(partitionSlot slot: UInt16) -> Bool { entries.keys.contains { $0.partitionSlot == slot } }
}
