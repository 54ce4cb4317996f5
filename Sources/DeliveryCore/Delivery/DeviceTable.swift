import CPrefetch
import SluiceModel
import StreamScheduling

/// A device with items, or whose presence is known. 32 bytes.
struct DeviceEntry: BitwiseCopyable {
    var key: DeviceKey
    /// Its newest item; all hang together by `next`. Of a free entry: the next free one.
    var first = DeliveryMachine.noSlot
    /// In the table of presences.
    var presence = DeliveryMachine.noSlot
    /// Items in whatever state.
    var pending: UInt16 = 0
    var inFlight: UInt16 = 0
    var deviceLimited: UInt16 = 0
    var isUsed = true
    /// Idle a moment ago; it goes soon if it still is then.
    var isRetiring = false
}

/// Devices by their key, over preallocated storage. An entry stays where it is, so that items can name it by its number.
///
/// Entries lie side by side, and those that were freed last are taken first: what is in use stays in the cache while
/// there is little. They are found through an index of eight bytes a place: open addressing with linear probing, half full
/// at the most. A place holds the bits of the key's hash that led to it, so that a search looks at hardly any entry but
/// the one that it finds, and those behind a gap can move up without a look at theirs.
struct DeviceTable: ~Copyable {
    private struct Place: BitwiseCopyable {
        var hash: UInt32 = 0
        var entry = DeliveryMachine.noSlot
    }

    let entries: UnsafeMutablePointer<DeviceEntry>
    private let index: UnsafeMutablePointer<Place>
    private let places: Int
    private let capacity: Int
    private var firstFree = DeliveryMachine.noSlot
    /// Entries from here on were never used.
    private(set) var highWater = 0
    private(set) var count = 0
    /// The devices that went idle last, over which a cursor goes round.
    private var retiring = InlineArray<16, UInt32>(repeating: DeliveryMachine.noSlot)
    private var cursor = 0
    /// Hashes of the devices that were expected last, likewise.
    private var expected = InlineArray<8, UInt32>(repeating: 0)
    private var expectedCursor = 0

    /// For so many devices at once.
    init(capacity: Int) {
        let capacity = capacity + 16
        self.capacity = capacity
        places = 2 * capacity
        entries = allocateLines(capacity: capacity)
        index = allocateLines(capacity: places)
        index.initialize(repeating: Place(), count: places)
    }

    deinit {
        entries.deallocate()
        index.deallocate()
    }

    var bytes: Int { capacity * MemoryLayout<DeviceEntry>.stride + places * MemoryLayout<Place>.stride }

    /// Multiplied, so that a key whose low bits are poor does no harm.
    private func hash(_ key: DeviceKey) -> UInt32 {
        UInt32(truncatingIfNeeded: (key.low &* 0x9e37_79b9_7f4a_7c15) &>> 32)
    }

    /// Where a search begins.
    private func home(_ hash: UInt32) -> Int {
        Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(truncatingIfNeeded: places)) &>> 32)
    }

    private func after(_ place: Int) -> Int { place &+ 1 == places ? 0 : place &+ 1 }

    /// Fetches what a search for the device looks at first, and the entry that one asked for a little earlier will find.
    /// Returns the entry of one that was asked for earlier still.
    @inline(__always)
    mutating func prefetch(_ key: DeviceKey) -> UInt32? {
        let hash = hash(key)
        sluice_prefetch(index + home(hash))
        if let entry = guess(expected[(expectedCursor + 4) & 7]) { sluice_prefetch(entries + Int(entry)) }
        let earliest = expected[expectedCursor]
        expected[expectedCursor] = hash
        expectedCursor = (expectedCursor + 1) & 7
        return guess(earliest)
    }

    /// The entry that the search most likely finds.
    private func guess(_ hash: UInt32) -> UInt32? {
        var place = home(hash)
        while index[place].entry != DeliveryMachine.noSlot {
            if index[place].hash == hash { return index[place].entry }
            place = after(place)
        }
        return nil
    }

    func find(_ key: DeviceKey) -> UInt32? {
        let hash = hash(key)
        var place = home(hash)
        while index[place].entry != DeliveryMachine.noSlot {
            if index[place].hash == hash, entries[Int(index[place].entry)].key == key {
                return index[place].entry
            }
            place = after(place)
        }
        return nil
    }

    /// The device's entry, a new one if need be. The owner never asks for more devices than there are places for.
    mutating func findOrInsert(_ key: DeviceKey) -> UInt32 { find(key) ?? insert(key) }

    /// A new entry for a device that has none.
    mutating func insert(_ key: DeviceKey) -> UInt32 {
        let entry: UInt32
        if firstFree != DeliveryMachine.noSlot {
            entry = firstFree
            firstFree = entries[Int(entry)].first
        } else {
            precondition(highWater < capacity, "more devices than the table was made for")
            entry = UInt32(truncatingIfNeeded: highWater)
            highWater += 1
        }
        (entries + Int(entry)).initialize(to: DeviceEntry(key: key))
        let hash = hash(key)
        var place = home(hash)
        while index[place].entry != DeliveryMachine.noSlot { place = after(place) }
        index[place] = Place(hash: hash, entry: entry)
        count += 1
        return entry
    }

    /// An entry is idle: without items and presence. It goes after a few more have become so, when its place in the index
    /// has arrived in the cache, unless it is in use again.
    mutating func retire(_ device: UInt32) {
        let entry = entries + Int(device)
        guard !entry.pointee.isRetiring else { return }
        entry.pointee.isRetiring = true
        sluice_prefetch(index + home(hash(entry.pointee.key)))
        let old = retiring[cursor]
        retiring[cursor] = device
        cursor = cursor + 1 == retiring.count ? 0 : cursor + 1
        guard old != DeliveryMachine.noSlot else { return }
        entries[Int(old)].isRetiring = false
        if entries[Int(old)].pending == 0, entries[Int(old)].presence == DeliveryMachine.noSlot {
            remove(old)
        }
    }

    /// Takes an entry out. Those behind it in the index that may stand in its place move up, so that no search ends
    /// early.
    private mutating func remove(_ device: UInt32) {
        var gap = home(hash(entries[Int(device)].key))
        while index[gap].entry != device { gap = after(gap) }
        var place = after(gap)
        while index[place].entry != DeliveryMachine.noSlot {
            let home = home(index[place].hash)
            // Cyclically, its search begins at the gap or before.
            let isReachable = gap <= place ? home <= gap || home > place : home <= gap && home > place
            if isReachable {
                index[gap] = index[place]
                gap = place
            }
            place = after(place)
        }
        index[gap] = Place()
        entries[Int(device)].isUsed = false
        entries[Int(device)].first = firstFree
        firstFree = device
        count -= 1
    }
}

/// What is known of where a device is.
public enum Presence: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    case online
    /// A device event said so.
    case offline
    /// A receipt did not come in time.
    case presumedOffline
}

/// The moment a device's report is about. Reports of one moment count in the order of their records.
public struct ReportTime: Comparable, BitwiseCopyable, Sendable {
    /// In milliseconds since the epoch; 0 when there was no report.
    public var milliseconds: Int64
    /// The offset of the report's record; -1 when there was no report or its offset isn't known.
    public var offset: Int64

    public init(milliseconds: Int64, offset: Int64) {
        self.milliseconds = milliseconds
        self.offset = offset
    }

    /// The time of a device that has reported nothing.
    public static let none = ReportTime(milliseconds: 0, offset: -1)

    public static func < (one: Self, other: Self) -> Bool {
        (one.milliseconds, one.offset) < (other.milliseconds, other.offset)
    }
}

/// Presences of a bounded number of devices. Of those that are online the one heard of longest ago is forgotten first,
/// as nothing is held for it; then of the others.
struct PresenceTable: ~Copyable {
    struct Entry: BitwiseCopyable {
        /// The time of the device's last report.
        var learned = ReportTime.none
        /// The partition that brings the device's events.
        var partition: UInt16 = 0
        var presence = Presence.online
        var device = DeliveryMachine.noSlot
        var next = DeliveryMachine.noSlot
        var previous = DeliveryMachine.noSlot
    }

    let capacity: Int
    private(set) var entries: [Entry] = []
    private var firstFree = DeliveryMachine.noSlot
    /// The one heard of longest ago, and the one heard of last.
    private struct Ends {
        var oldest = DeliveryMachine.noSlot
        var newest = DeliveryMachine.noSlot
    }
    private var online = Ends()
    private var others = Ends()
    private(set) var count = 0

    init(capacity: Int) { self.capacity = capacity }

    subscript(index: UInt32) -> Entry { entries[Int(index)] }

    /// The device that gives way to one more; nil while there is room.
    var surplus: UInt32? {
        guard count >= capacity else { return nil }
        return online.oldest == DeliveryMachine.noSlot ? others.oldest : online.oldest
    }

    mutating func insert(
        device: UInt32, _ presence: Presence, learned: ReportTime, partition: UInt16
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
            learned: learned, partition: partition, presence: presence, device: device)
        link(index)
        count += 1
        return index
    }

    /// The presences that a partition brought, in no order.
    func indices(of partition: UInt16) -> [UInt32] {
        var found: [UInt32] = []
        for first in [online.oldest, others.oldest] {
            var index = first
            while index != DeliveryMachine.noSlot {
                if entries[Int(index)].partition == partition { found.append(index) }
                index = entries[Int(index)].next
            }
        }
        return found
    }

    mutating func update(_ index: UInt32, _ presence: Presence, learned: ReportTime, partition: UInt16) {
        unlink(index)
        entries[Int(index)].presence = presence
        entries[Int(index)].partition = partition
        entries[Int(index)].learned = learned
        link(index)
    }

    mutating func remove(_ index: UInt32) {
        unlink(index)
        entries[Int(index)].next = firstFree
        firstFree = index
        count -= 1
    }

    private mutating func link(_ index: UInt32) {
        var ends = ends(of: index)
        link(index, &ends)
        setEnds(ends, of: index)
    }

    private mutating func unlink(_ index: UInt32) {
        var ends = ends(of: index)
        unlink(index, &ends)
        setEnds(ends, of: index)
    }

    /// The list that an entry is in, or belongs in.
    private func ends(of index: UInt32) -> Ends {
        entries[Int(index)].presence == .online ? online : others
    }

    private mutating func setEnds(_ ends: Ends, of index: UInt32) {
        if entries[Int(index)].presence == .online { online = ends } else { others = ends }
    }

    private mutating func link(_ index: UInt32, _ ends: inout Ends) {
        entries[Int(index)].previous = ends.newest
        entries[Int(index)].next = DeliveryMachine.noSlot
        if ends.newest == DeliveryMachine.noSlot {
            ends.oldest = index
        } else {
            entries[Int(ends.newest)].next = index
        }
        ends.newest = index
    }

    private mutating func unlink(_ index: UInt32, _ ends: inout Ends) {
        let entry = entries[Int(index)]
        if entry.previous == DeliveryMachine.noSlot {
            ends.oldest = entry.next
        } else {
            entries[Int(entry.previous)].next = entry.next
        }
        if entry.next == DeliveryMachine.noSlot {
            ends.newest = entry.previous
        } else {
            entries[Int(entry.next)].previous = entry.previous
        }
    }
}
