/// Apps ordered by the time at which they may send again. A heap with four children a node, so that a node's children
/// are one cache line. An app that no longer waits stays until its time. Only ``remove(app:)``, for changed limits,
/// searches.
struct WakeHeap: ~Copyable {
    struct Entry {
        var due: UInt64
        var app: UInt32

        func isBefore(_ other: Entry) -> Bool {
            due != other.due ? due < other.due : app < other.app
        }
    }

    private var entries: UnsafeMutablePointer<Entry>
    private(set) var count = 0
    private(set) var capacity = 0
    /// Time when the first app is due; `max` when the heap is empty.
    private(set) var nextDue = UInt64.max

    init() {
        entries = .allocate(capacity: 1)
    }

    deinit { entries.deallocate() }

    /// Makes room for `capacity` entries.
    mutating func reserve(_ capacity: Int) {
        guard capacity > self.capacity else { return }
        let larger = UnsafeMutablePointer<Entry>.allocate(capacity: capacity)
        larger.moveInitialize(from: entries, count: count)
        entries.deallocate()
        entries = larger
        self.capacity = capacity
    }

    /// Adds an entry; the caller has made room.
    mutating func push(_ entry: Entry) {
        precondition(count < capacity, "an app is to wake twice")
        var index = count
        count += 1
        while index > 0 {
            let parent = (index - 1) / 4
            guard entry.isBefore(entries[parent]) else { break }
            (entries + index).initialize(to: entries[parent])
            index = parent
        }
        (entries + index).initialize(to: entry)
        nextDue = entries[0].due
    }

    /// Removes and returns the first entry; the heap must not be empty.
    mutating func pop() -> Entry {
        let first = entries[0]
        remove(at: 0)
        return first
    }

    /// Removes an app, by searching.
    mutating func remove(app: UInt32) {
        guard let index = (0..<count).first(where: { entries[$0].app == app }) else { return }
        remove(at: index)
    }

    private mutating func remove(at start: Int) {
        count -= 1
        if start < count {
            // The last entry sinks from the gap; an entry from another branch may have to rise instead.
            let last = entries[count]
            var index = start
            while true {
                let child = 4 * index + 1
                guard child < count else { break }
                var least = child
                for other in child + 1..<max(child + 1, min(child + 4, count))
                where entries[other].isBefore(entries[least]) { least = other }
                guard entries[least].isBefore(last) else { break }
                entries[index] = entries[least]
                index = least
            }
            while index > 0, last.isBefore(entries[(index - 1) / 4]) {
                entries[index] = entries[(index - 1) / 4]
                index = (index - 1) / 4
            }
            entries[index] = last
        }
        nextDue = count > 0 ? entries[0].due : .max
    }

    /// Calls `body` for all entries, unordered; for checks.
    func forEach(_ body: (Entry) -> Void) {
        for index in 0..<count { body(entries[index]) }
    }
}
