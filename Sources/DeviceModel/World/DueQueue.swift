import HeapModule

/// Something that happens at a time unless the state has changed meanwhile.
enum Due: Sendable, Equatable {
    /// A stored push expires, or its good moment has come.
    case stored(StorageKey, push: UInt64)
    case goodMoment(StorageKey, push: UInt64)
    /// A service extension is done, or runs out of time.
    case serviceExtension(UInt64)
    /// The banner of a notification that is in no list ends.
    case banner(device: UInt32)
    /// Time of a device's scheduled summary.
    case summary(device: UInt32)
    /// A local trigger fires.
    case trigger(device: UInt32, app: UInt16, identifier: String)
    /// The budget of silent pushes allows a wake again.
    case wake(device: UInt32, app: UInt16)
    /// The time of an app's handler for a silent push is over.
    case handler(device: UInt32, app: UInt16, push: UInt64)
    /// A Live Activity becomes stale, ends or is dismissed.
    case activity(device: UInt32, app: UInt16, UInt64)
}

/// Things that are due, earliest first; with the same time in the order of their scheduling.
struct DueQueue: Sendable {
    private struct Entry: Comparable, Sendable {
        var time: Int64
        var number: UInt64
        var due: Due

        static func < (left: Entry, right: Entry) -> Bool {
            (left.time, left.number) < (right.time, right.number)
        }
        static func == (left: Entry, right: Entry) -> Bool {
            left.time == right.time && left.number == right.number
        }
    }

    private var heap = Heap<Entry>()
    private var scheduled: UInt64 = 0

    /// Earliest time; nil when nothing is due ever.
    var next: Int64? { heap.min?.time }

    var count: Int { heap.count }

    mutating func schedule(_ due: Due, at time: Int64) {
        scheduled += 1
        heap.insert(Entry(time: time, number: scheduled, due: due))
    }

    /// Removes what is due at a time; nil when nothing is.
    mutating func take(until now: Int64) -> (time: Int64, due: Due)? {
        guard let first = heap.min, first.time <= now else { return nil }
        heap.removeMin()
        return (first.time, first.due)
    }

    mutating func removeAll() { heap = Heap() }
}
