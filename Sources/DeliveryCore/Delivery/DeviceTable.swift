import CPrefetch
import SluiceModel
import StreamScheduling

/// Device with items or with a known presence; 32 bytes.
struct DeviceEntry: BitwiseCopyable {
    var key: DeviceKey
    /// Newest item of the device; `next` links all of its items. In a free entry, the next free entry.
    var first = DeliveryMachine.noSlot
    /// Index in the table of presences.
    var presence = DeliveryMachine.noSlot
    /// Items in any state.
    var pending: UInt16 = 0
    var inFlight: UInt16 = 0
    var deviceLimited: UInt16 = 0
    var isUsed = true
    /// True after the device became idle; its entry is removed soon if it is still idle then.
    var isRetiring = false
}

/// Devices by their key, over preallocated storage. An entry never moves, so that items can name it by its number.
///
/// Entries lie side by side, and those freed last are taken first. With few devices, the used entries stay in the
/// cache. An index with eight bytes a place finds the entries: open addressing with linear probing, at most half
/// full. A place holds the bits of the key's hash that led to it. A search therefore reads hardly any entry but its
/// result. Places behind a gap can move up without reading their entries.
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
    /// First entry that was never used.
    private(set) var highWater = 0
    private(set) var count = 0
    /// Ring of the devices that became idle last.
    private var retiring = InlineArray<16, UInt32>(repeating: DeliveryMachine.noSlot)
    private var cursor = 0
    /// Ring of the hashes of the devices that were prefetched last.
    private let expected = UnsafeMutablePointer<UInt32>.allocate(capacity: 8)
    private var expectedCursor = 0

    /// Creates a table for at most `capacity` devices at once.
    init(capacity: Int) {
        let capacity = capacity + 16
        self.capacity = capacity
        places = 2 * capacity
        entries = allocateLines(capacity: capacity)
        index = allocateLines(capacity: places)
        index.initialize(repeating: Place(), count: places)
        expected.initialize(repeating: 0, count: 8)
    }

    deinit {
        entries.deallocate()
        index.deallocate()
        expected.deallocate()
    }

    var bytes: Int { capacity * MemoryLayout<DeviceEntry>.stride + places * MemoryLayout<Place>.stride }

    /// Hashes the key by multiplication, so that a key with poor low bits does no harm.
    private func hash(_ key: DeviceKey) -> UInt32 {
        UInt32(truncatingIfNeeded: (key.low &* 0x9e37_79b9_7f4a_7c15) &>> 32)
    }

    /// Returns the place at which a search begins.
    private func home(_ hash: UInt32) -> Int {
        Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(truncatingIfNeeded: places)) &>> 32)
    }

    private func after(_ place: Int) -> Int { place &+ 1 == places ? 0 : place &+ 1 }

    /// Prefetches the first place of a search for the device, and the entry of a device that was prefetched a little
    /// earlier. Returns the entry of the earliest device in the ring.
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

    /// Returns the entry that the search most likely finds.
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

    /// Returns the device's entry, a new one if needed. The owner never asks for more devices than the capacity.
    mutating func findOrInsert(_ key: DeviceKey) -> UInt32 { find(key) ?? insert(key) }

    /// Inserts an entry for a device that has none.
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

    /// Retires an idle entry, without items and presence. The entry is removed after a few more have retired, because
    /// its place in the index is in the cache by then. An entry that is in use again stays.
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

    /// Removes an entry. Places behind it in the index move up where they may, so that no search ends early.
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

/// Presence of a device, as reported or presumed.
public enum Presence: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// The device is online, as far as reports show.
    case online
    /// A device event reported the device as offline.
    case offline
    /// A receipt didn't come in time.
    case presumedOffline
}

/// Time of a device's report. Reports of the same time count in the order of their records.
public struct ReportTime: Comparable, BitwiseCopyable, Sendable {
    /// Milliseconds since the epoch; 0 when there was no report.
    public var milliseconds: Int64
    /// Offset of the report's record; -1 when there was no report or its offset isn't known.
    public var offset: Int64

    public init(milliseconds: Int64, offset: Int64) {
        self.milliseconds = milliseconds
        self.offset = offset
    }

    /// Time of a device that has reported nothing.
    public static let none = ReportTime(milliseconds: 0, offset: -1)

    public static func < (one: Self, other: Self) -> Bool {
        (one.milliseconds, one.offset) < (other.milliseconds, other.offset)
    }
}

/// Presences of a bounded number of devices. The online device heard of longest ago is forgotten first, because
/// nothing is held for it. The other devices follow.
struct PresenceTable: ~Copyable {
    struct Entry: BitwiseCopyable {
        /// Time of the device's last report.
        var learned = ReportTime.none
        /// Partition that brings the device's events.
        var partition: UInt16 = 0
        var presence = Presence.online
        var device = DeliveryMachine.noSlot
        var next = DeliveryMachine.noSlot
        var previous = DeliveryMachine.noSlot
    }

    let capacity: Int
    private(set) var entries: [Entry] = []
    private var firstFree = DeliveryMachine.noSlot
    /// Ends of a list: the device heard of longest ago, and the device heard of last.
    private struct Ends {
        var oldest = DeliveryMachine.noSlot
        var newest = DeliveryMachine.noSlot
    }
    private var online = Ends()
    private var others = Ends()
    private(set) var count = 0

    init(capacity: Int) { self.capacity = capacity }

    subscript(index: UInt32) -> Entry { entries[Int(index)] }

    /// Presence that is forgotten for one more device; nil while there is room.
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

    /// Returns the presences that a partition brought, in no order.
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

    /// Returns the list that an entry is in, or belongs in.
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
