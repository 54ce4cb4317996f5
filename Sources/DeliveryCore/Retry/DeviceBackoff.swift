import SluiceModel
import StreamScheduling

/// Back-off by device for `429 TooManyRequests`. APNs refuses every notification for that device token for a while.
///
/// The hold grows with every refusal in a row. Its length is the server's `Retry-After` plus a uniform wait between
/// nothing and a window (full jitter). The window doubles from the base to the cap. After its hold, a device is
/// remembered for as long again as the window was. A refusal within that time continues the row. The device is
/// forgotten after that time, or when a notification is accepted.
///
/// Devices are identified by a 64-bit hash of their token. Two devices with the same hash share their hold. The table
/// is bounded, and allocates nothing after `init`. Every call is O(1), amortised where entries expire. When the table
/// is full, the device that would be forgotten first is removed. That choice is exact to within a 4096th of the longest
/// time that a device can be remembered.
public struct DeviceBackoff: ~Copyable {
    /// Size of the table, and the windows.
    public struct Configuration: Sendable, Equatable {
        /// Devices remembered at most, 1 to 2^30.
        public var capacity: Int
        /// First window, in nanoseconds.
        public var base: UInt64
        /// Largest window, in nanoseconds, at least the base and at most 30 days.
        public var cap: UInt64
        /// Longest `Retry-After`, in nanoseconds, at most 30 days. A longer `Retry-After` is shortened to this.
        public var retryAfterLimit: UInt64

        public init(
            capacity: Int, base: UInt64 = 1_000_000_000, cap: UInt64 = 900_000_000_000,
            retryAfterLimit: UInt64 = 3_600_000_000_000
        ) {
            let longest: UInt64 = 30 * 24 * 3_600_000_000_000
            self.capacity = max(1, min(capacity, 1 << 30))
            self.base = max(1, min(base, longest))
            self.cap = max(self.base, min(cap, longest))
            self.retryAfterLimit = min(retryAfterLimit, longest)
        }
    }

    private static let none = UInt32.max

    private struct Entry {
        var device: UInt64 = 0
        var until: UInt64 = 0
        /// Time at which the device is forgotten, in nanoseconds.
        var end: UInt64 = 0
        /// Next entry in the list of the wheel, or the next free entry.
        var next = DeviceBackoff.none
        var previous = DeviceBackoff.none
        var refusals: UInt32 = 0
        var list: UInt16 = 0
    }

    public let configuration: Configuration
    /// Devices remembered, held or not.
    public private(set) var count = 0
    /// Devices that were forgotten early because the table was full.
    public private(set) var evictions: UInt64 = 0

    private let entries: UnsafeMutablePointer<Entry>
    private var firstFree: UInt32 = 0
    /// Entries by hash: open addressing with linear probing, at most half full.
    private let index: UnsafeMutablePointer<UInt32>
    private let mask: Int

    /// Entries by the tick in which they are forgotten: a wheel whose hand is at `tick`.
    private static let lists = 4096
    private let heads: UnsafeMutablePointer<UInt32>
    /// Bits of the lists in use. `usedWords` has a bit for each word of these bits that isn't 0.
    private let used: UnsafeMutablePointer<UInt64>
    private var usedWords: UInt64 = 0
    private let tickLength: UInt64
    private var tick: UInt64 = 0

    public init(_ configuration: Configuration) {
        let configuration = Configuration(
            capacity: configuration.capacity, base: configuration.base, cap: configuration.cap,
            retryAfterLimit: configuration.retryAfterLimit)
        self.configuration = configuration
        entries = .allocate(capacity: configuration.capacity)
        entries.initialize(repeating: Entry(), count: configuration.capacity)
        for entry in 0..<configuration.capacity - 1 { entries[entry].next = UInt32(entry + 1) }
        var size = 2
        while size < 2 * configuration.capacity { size *= 2 }
        mask = size - 1
        index = .allocate(capacity: size)
        index.initialize(repeating: Self.none, count: size)
        heads = .allocate(capacity: Self.lists)
        heads.initialize(repeating: Self.none, count: Self.lists)
        used = .allocate(capacity: Self.lists / 64)
        used.initialize(repeating: 0, count: Self.lists / 64)
        // The longest life of an entry fills all ticks but two: the current tick and the tick just begun.
        let longest = configuration.retryAfterLimit + 2 * configuration.cap
        tickLength = max(1 << 20, longest / UInt64(Self.lists - 2) + 1)
    }

    deinit {
        entries.deallocate()
        index.deallocate()
        heads.deallocate()
        used.deallocate()
    }

    // MARK: Answers

    /// Notes that APNs refused a notification for the device, and holds the device.
    ///
    /// A refusal while the device is held belongs to a notification that was sent before. Such a refusal doesn't add to
    /// the row, and never shortens the hold.
    ///
    /// - Parameters:
    ///   - now: in nanoseconds of the monotonic clock.
    ///   - retryAfter: the answer's `Retry-After`, in nanoseconds; nil when the answer has none.
    /// - Returns: the time until which nothing is to be sent to the device, in nanoseconds.
    public mutating func refused(
        device: UInt64, now: UInt64, retryAfter: UInt64? = nil, using generator: inout SeededGenerator
    ) -> UInt64 {
        forget(now: now)
        let number: UInt32
        if let found = find(device) {
            number = index[found]
            unlink(number)
        } else {
            number = add(device)
        }
        let entry = entries + Int(number)
        if now >= entry.pointee.until { entry.pointee.refusals = min(entry.pointee.refusals + 1, 63) }
        let window = window(entry.pointee.refusals)
        let wait =
            min(retryAfter ?? 0, configuration.retryAfterLimit)
            + UInt64.random(in: 1...window, using: &generator)
        entry.pointee.until = max(entry.pointee.until, Self.sum(now, wait))
        entry.pointee.end = Self.sum(entry.pointee.until, window)
        link(number)
        return entry.pointee.until
    }

    /// Returns the time until which nothing is to be sent to the device, in nanoseconds; nil when it isn't held.
    public mutating func heldUntil(device: UInt64, now: UInt64) -> UInt64? {
        guard count > 0 else { return nil }
        forget(now: now)
        guard let found = find(device) else { return nil }
        let until = entries[Int(index[found])].until
        return until > now ? until : nil
    }

    /// Forgets the device's refusals, because APNs accepted a notification for the device.
    public mutating func accepted(device: UInt64) {
        guard count > 0, let found = find(device) else { return }
        remove(index[found])
    }

    /// Returns the longest wait after the `refusals`-th refusal in a row, in nanoseconds.
    private func window(_ refusals: UInt32) -> UInt64 {
        let doublings = UInt64(refusals) - 1
        return configuration.base > configuration.cap >> doublings
            ? configuration.cap : configuration.base << doublings
    }

    private static func sum(_ one: UInt64, _ other: UInt64) -> UInt64 {
        let (sum, overflow) = one.addingReportingOverflow(other)
        return overflow ? .max : sum
    }

    // MARK: Entries

    private mutating func add(_ device: UInt64) -> UInt32 {
        if count == configuration.capacity, let list = firstUsed {
            remove(heads[list])
            evictions += 1
        }
        let number = firstFree
        firstFree = entries[Int(number)].next
        entries[Int(number)] = Entry(device: device)
        var place = home(device)
        while index[place] != Self.none { place = (place + 1) & mask }
        index[place] = number
        count += 1
        return number
    }

    private mutating func remove(_ number: UInt32) {
        guard var gap = find(entries[Int(number)].device) else {
            preconditionFailure("entry \(number) is lost")
        }
        unlink(number)
        // Entries behind the gap that may stand in it move up, so that no search ends early.
        var place = (gap + 1) & mask
        while index[place] != Self.none {
            let home = home(entries[Int(index[place])].device)
            if (place - home) & mask >= (place - gap) & mask {
                index[gap] = index[place]
                gap = place
            }
            place = (place + 1) & mask
        }
        index[gap] = Self.none
        entries[Int(number)].next = firstFree
        firstFree = number
        count -= 1
    }

    /// Returns the device's place in the index; nil when the device isn't remembered.
    private func find(_ device: UInt64) -> Int? {
        var place = home(device)
        while index[place] != Self.none {
            if entries[Int(index[place])].device == device { return place }
            place = (place + 1) & mask
        }
        return nil
    }

    /// Returns the first place of the index to search. The hash is multiplied, because its low bits may be poor.
    private func home(_ device: UInt64) -> Int {
        Int(truncatingIfNeeded: (device &* 0x9e37_79b9_7f4a_7c15) >> 32) & mask
    }

    // MARK: Wheel

    /// Forgets the devices whose tick is over.
    private mutating func forget(now: UInt64) {
        let current = now / tickLength
        guard current > tick else { return }
        while let list = firstUsed {
            let distance = UInt64((list - Int(tick % UInt64(Self.lists))) & (Self.lists - 1))
            guard tick + distance < current else { break }
            while heads[list] != Self.none { remove(heads[list]) }
        }
        tick = current
    }

    /// First list in use, counted from the hand; nil: no list is in use.
    private var firstUsed: Int? {
        guard usedWords != 0 else { return nil }
        let hand = Int(tick % UInt64(Self.lists))
        let word = hand / 64
        let rest = used[word] & (UInt64.max << UInt64(hand % 64))
        if rest != 0 { return word * 64 + rest.trailingZeroBitCount }
        let later = word == 63 ? 0 : usedWords & (UInt64.max << UInt64(word + 1))
        let next = (later != 0 ? later : usedWords).trailingZeroBitCount
        return next * 64 + used[next].trailingZeroBitCount
    }

    private mutating func link(_ number: UInt32) {
        // No entry is more than a turn of the wheel ahead, even when the clock went back.
        let due = min(max(entries[Int(number)].end / tickLength, tick), tick + UInt64(Self.lists - 1))
        let list = Int(due % UInt64(Self.lists))
        let head = heads[list]
        entries[Int(number)].list = UInt16(list)
        entries[Int(number)].next = head
        entries[Int(number)].previous = Self.none
        if head != Self.none { entries[Int(head)].previous = number }
        heads[list] = number
        used[list / 64] |= 1 << UInt64(list % 64)
        usedWords |= 1 << UInt64(list / 64)
    }

    private mutating func unlink(_ number: UInt32) {
        let entry = entries[Int(number)]
        let list = Int(entry.list)
        if entry.previous == Self.none {
            heads[list] = entry.next
        } else {
            entries[Int(entry.previous)].next = entry.next
        }
        if entry.next != Self.none { entries[Int(entry.next)].previous = entry.previous }
        guard heads[list] == Self.none else { return }
        used[list / 64] &= ~(1 << UInt64(list % 64))
        if used[list / 64] == 0 { usedWords &= ~(1 << UInt64(list / 64)) }
    }

    // MARK: Checks

    /// Returns an error in index, lists or counts; nil when there is none. For tests.
    func problem() -> String? {
        var linked = 0
        for list in 0..<Self.lists {
            guard (heads[list] != Self.none) == (used[list / 64] & 1 << UInt64(list % 64) != 0) else {
                return "list \(list) is marked wrongly"
            }
            var previous = Self.none
            var number = heads[list]
            while number != Self.none {
                let entry = entries[Int(number)]
                guard entry.previous == previous, Int(entry.list) == list else {
                    return "entry \(number) is linked wrongly"
                }
                guard let found = find(entry.device), index[found] == number else {
                    return "entry \(number) isn't found"
                }
                linked += 1
                previous = number
                number = entry.next
                guard linked <= count else { return "more than \(count) entries are linked" }
            }
        }
        for word in 0..<64 where (used[word] != 0) != (usedWords & 1 << UInt64(word) != 0) {
            return "word \(word) is marked wrongly"
        }
        let indexed = (0...mask).count { index[$0] != Self.none }
        return linked == count && indexed == count
            ? nil : "\(linked) linked, \(indexed) indexed, counted \(count)"
    }
}
