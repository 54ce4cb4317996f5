/// The connections of a ``StreamScheduler``, arranged so that the least loaded one with room is found in O(1).
///
/// Connections that are ready, have a free stream and window for any body are *roomy*: they hang in one list
/// per number in flight, and a two-level bitmap finds the lowest list in use. Connections whose window is
/// down to less than the largest body are *tight*: they hang in a list of their own, which is looked at last
/// and only so far.
struct ConnectionTable: Sendable {
    private static let none = UInt32.max
    /// In flight beyond this shares one list; stream limits of APNs are near 1000.
    private static let buckets = 4096
    private static let tight = UInt16(buckets)
    private static let unlisted = UInt16.max
    /// Tight connections looked at per decision.
    private static let tightTries = 16

    private struct Entry {
        var next = ConnectionTable.none
        var previous = ConnectionTable.none
        var inFlight: Int32 = 0
        var streamsFree: Int32 = 0
        var windowFree: Int64 = 0
        var state = StreamScheduler.ConnectionState.suspended
        /// The list it hangs in.
        var list = ConnectionTable.unlisted
    }

    private struct List {
        var head = ConnectionTable.none
        var tail = ConnectionTable.none
    }

    private var entries: [Entry]
    private var lists: [List]
    /// One bit per list in use, and one bit per word of those.
    private var used: [UInt64]
    private var usedWords: UInt64 = 0
    private var tightCount = 0
    private(set) var placeable = 0
    private let largestBody: Int64

    init(capacity: Int, largestBody: Int) {
        entries = [Entry](repeating: Entry(), count: capacity)
        lists = [List](repeating: List(), count: Self.buckets + 1)
        used = [UInt64](repeating: 0, count: Self.buckets / 64)
        self.largestBody = Int64(largestBody)
    }

    func inFlight(_ connection: UInt32) -> Int {
        Int(connection) < entries.count ? Int(entries[Int(connection)].inFlight) : 0
    }

    mutating func update(
        _ connection: UInt32, inFlight: Int, streamsFree: Int, windowFree: Int,
        state: StreamScheduler.ConnectionState
    ) -> Bool {
        let index = Int(connection)
        guard index < entries.count else { return false }
        entries[index].inFlight = Int32(clamping: max(0, inFlight))
        entries[index].streamsFree = Int32(clamping: max(0, streamsFree))
        entries[index].windowFree = Int64(windowFree)
        entries[index].state = state
        relist(connection)
        return true
    }

    mutating func remove(_ connection: UInt32) {
        _ = update(connection, inFlight: 0, streamsFree: 0, windowFree: 0, state: .suspended)
    }

    /// The connection for a body of `bytes`; nil when none has room.
    mutating func choose(bytes: Int) -> UInt32? {
        if usedWords != 0 {
            let word = usedWords.trailingZeroBitCount
            return lists[word * 64 + used[word].trailingZeroBitCount].head
        }
        // Those that are passed over go to the end, so that the next decision looks at others.
        for _ in 0..<min(tightCount, Self.tightTries) {
            let head = lists[Int(Self.tight)].head
            if entries[Int(head)].windowFree >= Int64(bytes) { return head }
            unlink(head)
            link(head, to: Self.tight)
        }
        return nil
    }

    /// Books one notification on a connection that ``choose(bytes:)`` gave.
    mutating func take(_ connection: UInt32, bytes: Int) {
        let index = Int(connection)
        entries[index].inFlight += 1
        entries[index].streamsFree -= 1
        entries[index].windowFree -= Int64(bytes)
        let before = entries[index].list
        relist(connection)
        if before == Self.tight, entries[index].list == Self.tight {
            unlink(connection)
            link(connection, to: Self.tight)
        }
    }

    private mutating func relist(_ connection: UInt32) {
        let entry = entries[Int(connection)]
        let list = self.list(for: entry)
        guard list != entry.list else { return }
        if entry.list != Self.unlisted { unlink(connection) }
        if list != Self.unlisted { link(connection, to: list) }
    }

    private func list(for entry: Entry) -> UInt16 {
        guard entry.state == .ready, entry.streamsFree > 0, entry.windowFree > 0 else { return Self.unlisted }
        guard entry.windowFree >= largestBody else { return Self.tight }
        return UInt16(min(Int(entry.inFlight), Self.buckets - 1))
    }

    private mutating func link(_ connection: UInt32, to list: UInt16) {
        let tail = lists[Int(list)].tail
        entries[Int(connection)].previous = tail
        entries[Int(connection)].next = Self.none
        entries[Int(connection)].list = list
        lists[Int(list)].tail = connection
        if tail == Self.none {
            lists[Int(list)].head = connection
        } else {
            entries[Int(tail)].next = connection
        }
        placeable += 1
        if list == Self.tight {
            tightCount += 1
        } else {
            used[Int(list) / 64] |= 1 << UInt64(list % 64)
            usedWords |= 1 << UInt64(list / 64)
        }
    }

    private mutating func unlink(_ connection: UInt32) {
        let entry = entries[Int(connection)]
        let list = Int(entry.list)
        if entry.previous == Self.none {
            lists[list].head = entry.next
        } else {
            entries[Int(entry.previous)].next = entry.next
        }
        if entry.next == Self.none {
            lists[list].tail = entry.previous
        } else {
            entries[Int(entry.next)].previous = entry.previous
        }
        entries[Int(connection)].list = Self.unlisted
        placeable -= 1
        if entry.list == Self.tight {
            tightCount -= 1
        } else if lists[list].head == Self.none {
            used[list / 64] &= ~(1 << UInt64(list % 64))
            if used[list / 64] == 0 { usedWords &= ~(1 << UInt64(list / 64)) }
        }
    }
}
