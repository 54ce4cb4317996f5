import CPrefetch
import SluiceModel
import StreamScheduling

/// Set of the devices that may have items only in the store, with the partitions of those items. An entry, (device,
/// partition), takes eight bytes.
///
/// A device with such items is always found (no false negatives), unless it shares 60 bits of its hash with another
/// device. The probability that any two of ten million devices do so is 4 in 100,000. A device without such items is
/// found with a probability of 10⁻¹¹, and costs a look into the store.
///
/// The set is split into segments by a part of the device's hash. A segment is a hash table with linear probing. A
/// segment grows by an eighth at a time, so that entries fill 0.62 to 0.7 of the places. No growth therefore takes
/// much time or room: ten million devices take 115 to 130 MB. An entry holds the hash that determines its place, so
/// that growth and removal need nothing else. A search begins with a cache line, and so reads one line, seldom two.
public struct EvictedDevices: ~Copyable {
    /// Words of 48 bits of the device's hash, never 0, and the partition. A word of 0 is a free place.
    private struct Segment: BitwiseCopyable {
        var words: UnsafeMutablePointer<UInt64>?
        var places: UInt32 = 0
        var count: UInt32 = 0
    }

    private let segments: UnsafeMutablePointer<Segment>
    private let segmentCount: Int
    private let segmentShift: UInt64
    /// Entries in the set; items that a scan hasn't found yet don't count.
    public private(set) var count = 0
    private var places = 0
    /// Partitions whose scan of the store has not finished.
    private var scanned: [UInt16] = []

    public init() { self.init(segmentBits: 12) }

    /// Creates a set with 2^`segmentBits` segments.
    init(segmentBits: Int) {
        segmentCount = 1 << segmentBits
        segmentShift = UInt64(64 - segmentBits)
        segments = allocateLines(capacity: segmentCount)
        segments.initialize(repeating: Segment(), count: segmentCount)
    }

    deinit {
        for index in 0..<segmentCount { segments[index].words?.deallocate() }
        segments.deallocate()
    }

    /// True when no device has items only in the store.
    public var isEmpty: Bool { count == 0 && scanned.isEmpty }

    /// Memory in bytes, except the new table of a segment that is growing.
    public var bytes: Int {
        segmentCount * MemoryLayout<Segment>.stride + places * MemoryLayout<UInt64>.stride
    }

    // MARK: Places

    /// Returns the device's segment, and the hash of its entries.
    @inline(__always)
    private func split(_ device: DeviceKey) -> (segment: UnsafeMutablePointer<Segment>, hash: UInt64) {
        // Mixes both halves, so that a key with one poor half does no harm.
        let high = device.high &* 0x9e37_79b9_7f4a_7c15
        let hash = (device.low ^ high) & 0xFFFF_FFFF_FFFF
        // A shift by 64 yields 0.
        return (segments + Int(truncatingIfNeeded: high >> segmentShift), max(1, hash))
    }

    /// Returns the place at which a search begins: the first place of a line. The free places of a line come last.
    @inline(__always)
    private static func home(_ hash: UInt64, _ places: UInt32) -> UInt32 {
        let spread = (hash &* 0xd6e8_feb8_6659_fd93) &>> 32
        return UInt32(truncatingIfNeeded: (spread &* UInt64(places &>> 3)) &>> 32) &<< 3
    }

    /// Returns true when the hash is in a line. Has no branch for each place, because the branch couldn't be
    /// predicted.
    @inline(__always)
    private static func isIn(_ line: UnsafeMutablePointer<UInt64>, _ hash: UInt64) -> Bool {
        var found: UInt64 = 0
        for index in 0..<8 { found |= line[index] &>> 16 == hash ? 1 : 0 }
        return found != 0
    }

    @inline(__always)
    private static func lineAfter(_ place: UInt32, _ places: UInt32) -> UInt32 {
        place &+ 8 == places ? 0 : place &+ 8
    }

    @inline(__always)
    private static func after(_ place: UInt32, _ places: UInt32) -> UInt32 {
        place &+ 1 == places ? 0 : place &+ 1
    }

    // MARK: Asking

    /// Prefetches the line that a search for the device reads first.
    @inline(__always)
    public func prefetch(_ device: DeviceKey) {
        let (segment, hash) = split(device)
        guard let words = segment.pointee.words else { return }
        sluice_prefetch(words + Int(Self.home(hash, segment.pointee.places)))
    }

    /// Returns true when the device may have items only in the store, in any partition.
    @inline(__always)
    public func contains(_ device: DeviceKey) -> Bool {
        guard scanned.isEmpty else { return true }
        guard count > 0 else { return false }
        let (segment, hash) = split(device)
        guard let words = segment.pointee.words else { return false }
        let places = segment.pointee.places
        var place = Self.home(hash, places)
        while true {
            let line = words + Int(place)
            if Self.isIn(line, hash) { return true }
            if line[7] == 0 { return false }
            place = Self.lineAfter(place, places)
        }
    }

    /// Calls `body` with each partition in which the device may have items only in the store, once, in no order.
    @inline(__always)
    public func forEachPartition(of device: DeviceKey, _ body: (UInt16) -> Void) {
        for partition in scanned { body(partition) }
        let (segment, hash) = split(device)
        guard let words = segment.pointee.words else { return }
        let places = segment.pointee.places
        var place = Self.home(hash, places)
        while words[Int(place)] != 0 {
            if words[Int(place)] >> 16 == hash {
                let partition = UInt16(truncatingIfNeeded: words[Int(place)])
                if scanned.isEmpty || !scanned.contains(partition) { body(partition) }
            }
            place = Self.after(place, places)
        }
    }

    /// Returns the lowest such partition from `least` on, for iterating while the partitions change.
    public func partition(of device: DeviceKey, from least: UInt16 = 0) -> UInt16? {
        var found: UInt16?
        forEachPartition(of: device) { partition in
            if partition >= least { found = min(found ?? .max, partition) }
        }
        return found
    }

    // MARK: Changing

    /// Records that the device has items of the partition only in the store. A repeated call changes nothing.
    public mutating func insert(_ device: DeviceKey, _ partition: UInt16) {
        let (segment, hash) = split(device)
        let word = hash << 16 | UInt64(partition)
        if Int(segment.pointee.count) * 10 >= Int(segment.pointee.places) * 7 {
            if find(word, segment) != nil { return }
            resize(segment, segment.pointee.places + 8 * (segment.pointee.places / 64 + 1))
        }
        let (words, places) = (segment.pointee.words!, segment.pointee.places)
        var place = Self.home(hash, places)
        while words[Int(place)] != 0 {
            if words[Int(place)] == word { return }
            place = Self.after(place, places)
        }
        words[Int(place)] = word
        segment.pointee.count &+= 1
        count += 1
    }

    /// Records that the device has no items of the partition only in the store any more.
    public mutating func remove(_ device: DeviceKey, _ partition: UInt16) {
        let (segment, hash) = split(device)
        guard let place = find(hash << 16 | UInt64(partition), segment) else { return }
        close(place, segment)
        shrink(segment)
    }

    /// Removes all entries of a revoked partition, and ends its scan. Searches the whole set.
    public mutating func removeAll(partition: UInt16) {
        endScan(partition)
        guard count > 0 else { return }
        for index in 0..<segmentCount {
            let segment = segments + index
            guard let words = segment.pointee.words else { continue }
            var place: UInt32 = 0
            while place < segment.pointee.places {
                let word = words[Int(place)]
                // The entry that moves into the gap is checked next.
                if word != 0, UInt16(truncatingIfNeeded: word) == partition {
                    close(place, segment)
                } else {
                    place &+= 1
                }
            }
            shrink(segment)
        }
    }

    /// Partitions whose scan hasn't ended.
    public var scansUnderWay: Int { scanned.count }

    /// Begins a partition's scan: until ``endScan(_:)`` any device may have items of it. Insertions and removals are
    /// allowed meanwhile.
    public mutating func beginScan(_ partition: UInt16) {
        if !scanned.contains(partition) { scanned.append(partition) }
    }

    /// Ends a partition's scan because all of its stored items have been inserted.
    public mutating func endScan(_ partition: UInt16) {
        scanned.removeAll { $0 == partition }
    }

    // MARK: Tables

    private func find(_ word: UInt64, _ segment: UnsafeMutablePointer<Segment>) -> UInt32? {
        guard let words = segment.pointee.words else { return nil }
        let places = segment.pointee.places
        var place = Self.home(word >> 16, places)
        while words[Int(place)] != 0 {
            if words[Int(place)] == word { return place }
            place = Self.after(place, places)
        }
        return nil
    }

    /// Removes an entry. Entries behind it move up where they may, so that no search ends early.
    private mutating func close(_ place: UInt32, _ segment: UnsafeMutablePointer<Segment>) {
        let (words, places) = (segment.pointee.words!, segment.pointee.places)
        var gap = place
        var place = Self.after(gap, places)
        while words[Int(place)] != 0 {
            let home = Self.home(words[Int(place)] >> 16, places)
            // Cyclically, its search begins at the gap or before.
            let isReachable = gap <= place ? home <= gap || home > place : home <= gap && home > place
            if isReachable {
                words[Int(gap)] = words[Int(place)]
                gap = place
            }
            place = Self.after(place, places)
        }
        words[Int(gap)] = 0
        segment.pointee.count &-= 1
        count -= 1
    }

    /// Frees room when little of it is used.
    private mutating func shrink(_ segment: UnsafeMutablePointer<Segment>) {
        let (count, places) = (segment.pointee.count, segment.pointee.places)
        if count == 0 {
            segment.pointee.words?.deallocate()
            segment.pointee = Segment()
            self.places -= Int(places)
        } else if places > 64, count < places / 4 {
            // Half full, so that the segment doesn't have to grow again soon.
            resize(segment, 8 * (count / 4 + 1))
        }
    }

    private mutating func resize(_ segment: UnsafeMutablePointer<Segment>, _ places: UInt32) {
        let new: UnsafeMutablePointer<UInt64> = allocateLines(capacity: Int(places))
        new.initialize(repeating: 0, count: Int(places))
        let old = segment.pointee
        if let words = old.words {
            for index in 0..<Int(old.places) where words[index] != 0 {
                var place = Self.home(words[index] >> 16, places)
                while new[Int(place)] != 0 { place = Self.after(place, places) }
                new[Int(place)] = words[index]
            }
            words.deallocate()
        }
        segment.pointee.words = new
        segment.pointee.places = places
        self.places += Int(places) - Int(old.places)
    }
}
