import HeapModule

/// Something that happens at a time unless the state has changed meanwhile.
enum Due: Sendable, Hashable {
    /// A stored push expires, or its good moment has come.
    case stored(StorageKey)
    case goodMoment(StorageKey)
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
    /// The time of an app's handler for a silent push is over. `launch` numbers the app's process.
    case handler(device: UInt32, app: UInt16, push: UInt64, launch: UInt16)
    /// A Live Activity becomes stale, ends or is dismissed.
    case activity(device: UInt32, app: UInt16, UInt64)
    /// A channel's stored broadcast expires.
    case broadcast(ChannelKey)
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
    /// Entries above which those that no longer apply are dropped.
    private var crowd = DueQueue.smallestCrowd
    private static let smallestCrowd = 1_024

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

    /// Whether the queue may have more entries that no longer apply than others.
    var isCrowded: Bool { heap.count > crowd }

    /// Drops the entries that no longer apply, and those that say the same as an earlier one.
    mutating func compact(_ applies: (Due, _ time: Int64) -> Bool) {
        var kept: [Moment: UInt64] = [:]
        for entry in heap.unordered where applies(entry.due, entry.time) {
            let moment = Moment(time: entry.time, due: entry.due)
            kept[moment] = min(kept[moment] ?? .max, entry.number)
        }
        heap = Heap(kept.map { Entry(time: $0.key.time, number: $0.value, due: $0.key.due) })
        crowd = max(Self.smallestCrowd, 2 * heap.count)
    }

    private struct Moment: Hashable {
        var time: Int64
        var due: Due
    }

    mutating func removeAll() {
        heap = Heap()
        crowd = Self.smallestCrowd
    }
}
