/// Slots ordered by due time: retries that wait in memory, and expirations.
///
/// A binary heap over preallocated storage, which knows each slot's position. Insert, move, remove and pop are O(log
/// n). The earliest slot is O(1), and nothing is allocated after `init`. Slots with the same due time leave in the
/// order in which they were inserted. The owner chooses the unit of time. Retries use nanoseconds of the monotonic
/// clock, expirations milliseconds of the wall clock.
public struct DueQueue: ~Copyable, Sendable {
    private struct Entry {
        var due: UInt64
        /// Order of insertion. Wraps; compared only between entries of the same due time.
        var order: UInt32
        var slot: UInt32

        func isBefore(_ other: Entry) -> Bool {
            if due != other.due { return due < other.due }
            return Int32(bitPattern: order &- other.order) < 0
        }
    }

    private var heap: [Entry]
    /// Heap index by slot; `absent` when the slot isn't queued.
    private var positions: [UInt32]
    private var nextOrder: UInt32 = 0

    private static let absent = UInt32.max

    /// For slots `0..<capacity`.
    public init(capacity: Int) {
        heap = []
        heap.reserveCapacity(capacity)
        positions = [UInt32](repeating: Self.absent, count: max(0, capacity))
    }

    /// Bytes that each slot of the capacity takes.
    static var bytesPerSlot: Int { MemoryLayout<Entry>.stride + MemoryLayout<UInt32>.stride }

    /// Number of slots; slots are `0..<capacity`.
    public var capacity: Int { positions.count }
    public var count: Int { heap.count }
    public var isEmpty: Bool { heap.isEmpty }

    /// Earliest due time; nil when the queue is empty.
    public var nextDue: UInt64? { heap.first?.due }

    /// Returns when `slot` is due; nil when the slot isn't queued.
    public func due(of slot: UInt32) -> UInt64? {
        guard Int(slot) < positions.count, positions[Int(slot)] != Self.absent else { return nil }
        return heap[Int(positions[Int(slot)])].due
    }

    /// Queues `slot`, or moves it to another time when it is queued already. Returns false when there is no such slot.
    @discardableResult
    public mutating func insert(_ slot: UInt32, due: UInt64) -> Bool {
        guard Int(slot) < positions.count else { return false }
        let entry = Entry(due: due, order: nextOrder, slot: slot)
        nextOrder &+= 1
        let position = positions[Int(slot)]
        if position == Self.absent {
            heap.append(entry)
            set(entry, at: heap.count - 1)
            siftUp(heap.count - 1)
        } else {
            set(entry, at: Int(position))
            settle(Int(position))
        }
        return true
    }

    /// Removes `slot`. Returns false when the slot isn't queued.
    @discardableResult
    public mutating func remove(_ slot: UInt32) -> Bool {
        guard Int(slot) < positions.count, positions[Int(slot)] != Self.absent else { return false }
        removeEntry(at: Int(positions[Int(slot)]))
        return true
    }

    /// Removes and returns the earliest slot that is due at `now`; nil when none is due.
    public mutating func popDue(now: UInt64) -> UInt32? {
        guard let first = heap.first, first.due <= now else { return nil }
        removeEntry(at: 0)
        return first.slot
    }

    private mutating func removeEntry(at index: Int) {
        positions[Int(heap[index].slot)] = Self.absent
        let last = heap.removeLast()
        guard index < heap.count else { return }
        set(last, at: index)
        settle(index)
    }

    private mutating func settle(_ index: Int) {
        if index > 0, heap[index].isBefore(heap[(index - 1) / 2]) {
            siftUp(index)
        } else {
            siftDown(index)
        }
    }

    private mutating func siftUp(_ start: Int) {
        let entry = heap[start]
        var index = start
        while index > 0 {
            let parent = (index - 1) / 2
            guard entry.isBefore(heap[parent]) else { break }
            set(heap[parent], at: index)
            index = parent
        }
        set(entry, at: index)
    }

    private mutating func siftDown(_ start: Int) {
        let entry = heap[start]
        var index = start
        while true {
            var child = 2 * index + 1
            guard child < heap.count else { break }
            if child + 1 < heap.count, heap[child + 1].isBefore(heap[child]) { child += 1 }
            guard heap[child].isBefore(entry) else { break }
            set(heap[child], at: index)
            index = child
        }
        set(entry, at: index)
    }

    private mutating func set(_ entry: Entry, at index: Int) {
        heap[index] = entry
        positions[Int(entry.slot)] = UInt32(truncatingIfNeeded: index)
    }
}
