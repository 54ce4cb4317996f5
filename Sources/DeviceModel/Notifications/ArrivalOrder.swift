import DequeModule

/// Arrivals in the delivered lists of all devices, oldest first. An entry may outlive its notification.
struct ArrivalOrder: Sendable {
    struct Entry: Sendable {
        /// Arrival in milliseconds since 1970.
        var at: Int64
        var device: UInt32
        /// Index of the app.
        var app: UInt16
    }

    private var entries: Deque<Entry> = []

    var count: Int { entries.count }

    mutating func append(_ entry: Entry) { entries.append(entry) }

    mutating func popFirst() -> Entry? { entries.popFirst() }

    /// Drops the entries whose notification has left.
    mutating func compact(_ isListed: (Entry) -> Bool) { entries.removeAll { !isListed($0) } }

    mutating func removeAll() { entries = [] }
}

/// Room for the delivered notifications of all devices.
extension DeviceWorld {
    /// Entries of notifications that have left, which are kept beside one for each other.
    static let mostStale = 1_024

    /// Drops the oldest notifications while all together are too large. Between two calls of the world, so that nothing
    /// refers to a notification that leaves.
    mutating func makeRoom(now: Int64) {
        while counts.lists.bytes > settings.deliveredRoom, let oldest = arrivals.popFirst() {
            let dropped = with(oldest.device, oldest.app) { $0.centre.removeOldest(until: oldest.at) }
            guard let dropped = dropped ?? nil else { continue }
            retire([dropped], app: oldest.app, on: oldest.device, .droppedFromList, .removed, now: now)
        }
        guard arrivals.count > 2 * counts.lists.delivered + Self.mostStale else { return }
        var order = arrivals
        // The order is not copied when the world holds it no longer.
        arrivals = ArrivalOrder()
        order.compact { entry in
            installation(entry.device, entry.app)?.centre.delivered.contains { $0.at == entry.at } ?? false
        }
        arrivals = order
    }
}
