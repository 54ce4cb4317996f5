import SluiceModel

/// A device with items, or whose presence is known. 32 bytes.
struct DeviceEntry: BitwiseCopyable {
    enum State: UInt8, BitwiseCopyable {
        case empty
        /// Was in use: a search goes on behind it.
        case deleted
        case used
    }

    var key: DeviceKey
    /// Its newest item; all hang together by `next`.
    var first = DeliveryMachine.noSlot
    /// In the table of presences.
    var presence = DeliveryMachine.noSlot
    /// Items in whatever state.
    var pending: UInt16 = 0
    var inFlight: UInt16 = 0
    var crowded: UInt16 = 0
    var state = State.empty
}

/// Devices by their key: open addressing with linear probing over preallocated storage, half full at the most. An
/// entry stays where it is, so that items can name it by its index.
struct DeviceTable: ~Copyable {
    let entries: UnsafeMutablePointer<DeviceEntry>
    let size: Int
    private(set) var count = 0

    /// For so many devices at once.
    init(capacity: Int) {
        var size = 4
        while size < 2 * capacity { size *= 2 }
        self.size = size
        entries = .allocate(capacity: size)
        entries.initialize(repeating: DeviceEntry(key: DeviceKey(high: 0, low: 0)), count: size)
    }

    deinit { entries.deallocate() }

    var bytes: Int { size * MemoryLayout<DeviceEntry>.stride }

    private func start(_ key: DeviceKey) -> Int { Int(truncatingIfNeeded: key.low) & (size - 1) }

    func find(_ key: DeviceKey) -> UInt32? {
        var index = start(key)
        while entries[index].state != .empty {
            if entries[index].state == .used, entries[index].key == key { return UInt32(index) }
            index = (index + 1) & (size - 1)
        }
        return nil
    }

    /// The device's entry, a new one if need be. The owner never asks for more devices than there are places for.
    mutating func findOrInsert(_ key: DeviceKey) -> UInt32 {
        var index = start(key)
        var place = -1
        while entries[index].state != .empty {
            if entries[index].state == .deleted {
                if place < 0 { place = index }
            } else if entries[index].key == key {
                return UInt32(index)
            }
            index = (index + 1) & (size - 1)
        }
        if place < 0 { place = index }
        entries[place] = DeviceEntry(key: key, state: .used)
        count += 1
        precondition(2 * count <= size, "more devices than the table was made for")
        return UInt32(place)
    }

    /// Takes an entry out. Marks that no search needs any more go as well, so that searches stay short.
    mutating func remove(_ device: UInt32) {
        count -= 1
        var index = Int(device)
        guard entries[(index + 1) & (size - 1)].state == .empty else {
            entries[index].state = .deleted
            return
        }
        entries[index].state = .empty
        index = (index - 1) & (size - 1)
        while entries[index].state == .deleted {
            entries[index].state = .empty
            index = (index - 1) & (size - 1)
        }
    }
}

/// What is known of where a device is.
enum Presence: UInt8, BitwiseCopyable {
    case online
    /// A device event said so.
    case offline
    /// A receipt did not come in time.
    case presumedOffline
}

/// Presences of a bounded number of devices; the one heard of longest ago is forgotten first.
struct PresenceTable: ~Copyable {
    struct Entry: BitwiseCopyable {
        /// When it was so, in milliseconds since the epoch.
        var learned: Int64 = 0
        /// The partition that brings the device's events.
        var partition: UInt16 = 0
        var device = DeliveryMachine.noSlot
        var next = DeliveryMachine.noSlot
        var previous = DeliveryMachine.noSlot
        var presence = Presence.online
    }

    let capacity: Int
    private(set) var entries: [Entry] = []
    private var firstFree = DeliveryMachine.noSlot
    private var oldest = DeliveryMachine.noSlot
    private var newest = DeliveryMachine.noSlot
    private(set) var count = 0

    init(capacity: Int) { self.capacity = capacity }

    subscript(index: UInt32) -> Entry { entries[Int(index)] }

    /// The device that gives way to one more; nil while there is room.
    var surplus: UInt32? { count < capacity ? nil : oldest }

    mutating func insert(
        device: UInt32, _ presence: Presence, learned: Int64, partition: UInt16
    ) -> UInt32 {
        let index: UInt32
        if firstFree != DeliveryMachine.noSlot {
            index = firstFree
            firstFree = entries[Int(index)].next
        } else {
            index = UInt32(entries.count)
            entries.append(Entry())
        }
        entries[Int(index)] = Entry(
            learned: learned, partition: partition, device: device, presence: presence)
        link(index)
        count += 1
        return index
    }

    /// The presences that a partition brought, in no order.
    func indices(of partition: UInt16) -> [UInt32] {
        var found: [UInt32] = []
        var index = oldest
        while index != DeliveryMachine.noSlot {
            if entries[Int(index)].partition == partition { found.append(index) }
            index = entries[Int(index)].next
        }
        return found
    }

    mutating func update(_ index: UInt32, _ presence: Presence, learned: Int64, partition: UInt16) {
        entries[Int(index)].presence = presence
        entries[Int(index)].partition = partition
        entries[Int(index)].learned = learned
        unlink(index)
        link(index)
    }

    mutating func remove(_ index: UInt32) {
        unlink(index)
        entries[Int(index)].next = firstFree
        firstFree = index
        count -= 1
    }

    private mutating func link(_ index: UInt32) {
        entries[Int(index)].previous = newest
        entries[Int(index)].next = DeliveryMachine.noSlot
        if newest == DeliveryMachine.noSlot { oldest = index } else { entries[Int(newest)].next = index }
        newest = index
    }

    private mutating func unlink(_ index: UInt32) {
        let entry = entries[Int(index)]
        if entry.previous == DeliveryMachine.noSlot {
            oldest = entry.next
        } else {
            entries[Int(entry.previous)].next = entry.next
        }
        if entry.next == DeliveryMachine.noSlot {
            newest = entry.previous
        } else {
            entries[Int(entry.next)].previous = entry.previous
        }
    }
}
