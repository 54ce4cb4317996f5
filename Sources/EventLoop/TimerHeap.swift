/// A scheduled timer. Values do not repeat within 2^32 timers of the same slot.
public struct TimerID: Hashable, Sendable {
    var slot: UInt32
    var generation: UInt32
}

/// Timers by due time: a binary heap with cancellation by generation. A cancelled timer's entry stays until it is
/// first, or until more than half of a heap of over 64 entries is cancelled.
struct TimerHeap {
    private struct Entry {
        var deadline: UInt64
        var id: TimerID
    }

    private struct Slot {
        var generation: UInt32 = 0
        var handler: (any TimerHandler)?
    }

    private var heap: [Entry] = []
    private var slots: [Slot] = []
    private var freeSlots: [UInt32] = []

    /// Number of timers that will fire.
    private(set) var count = 0

    mutating func insert(deadline: UInt64, handler: any TimerHandler) -> TimerID {
        let slot: UInt32
        if let free = freeSlots.popLast() {
            slot = free
        } else {
            slot = UInt32(slots.count)
            slots.append(Slot())
        }
        slots[Int(slot)].handler = handler
        let id = TimerID(slot: slot, generation: slots[Int(slot)].generation)
        heap.append(Entry(deadline: deadline, id: id))
        siftUp(heap.count - 1)
        count += 1
        return id
    }

    mutating func cancel(_ id: TimerID) {
        guard isLive(id) else { return }
        release(id.slot)
        if heap.count > 64, heap.count > 2 * count {
            heap = heap.filter { isLive($0.id) }
            for index in stride(from: heap.count / 2 - 1, through: 0, by: -1) { siftDown(index) }
        }
    }

    /// Returns the earliest deadline in nanoseconds; nil when no timer is set.
    mutating func nextDeadline() -> UInt64? {
        dropCancelled()
        return heap.first?.deadline
    }

    /// Removes and returns the earliest timer that is due at `now`; nil when none is due.
    mutating func popDue(now: UInt64) -> (id: TimerID, handler: any TimerHandler)? {
        dropCancelled()
        guard let first = heap.first, first.deadline <= now else { return nil }
        removeFirst()
        guard let handler = slots[Int(first.id.slot)].handler else { return nil }
        release(first.id.slot)
        return (first.id, handler)
    }

    private func isLive(_ id: TimerID) -> Bool {
        // A loop that has ended has dropped its timers; their owners may still cancel them.
        guard Int(id.slot) < slots.count else { return false }
        let slot = slots[Int(id.slot)]
        return slot.generation == id.generation && slot.handler != nil
    }

    private mutating func release(_ slot: UInt32) {
        slots[Int(slot)].handler = nil
        slots[Int(slot)].generation &+= 1
        freeSlots.append(slot)
        count -= 1
    }

    private mutating func dropCancelled() {
        while let first = heap.first, !isLive(first.id) { removeFirst() }
    }

    private mutating func removeFirst() {
        let last = heap.removeLast()
        if !heap.isEmpty {
            heap[0] = last
            siftDown(0)
        }
    }

    private mutating func siftUp(_ start: Int) {
        var index = start
        let entry = heap[index]
        while index > 0 {
            let parent = (index - 1) / 2
            guard heap[parent].deadline > entry.deadline else { break }
            heap[index] = heap[parent]
            index = parent
        }
        heap[index] = entry
    }

    private mutating func siftDown(_ start: Int) {
        var index = start
        let entry = heap[index]
        while true {
            var child = 2 * index + 1
            guard child < heap.count else { break }
            if child + 1 < heap.count, heap[child + 1].deadline < heap[child].deadline { child += 1 }
            guard heap[child].deadline < entry.deadline else { break }
            heap[index] = heap[child]
            index = child
        }
        heap[index] = entry
    }
}
