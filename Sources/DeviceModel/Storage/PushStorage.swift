import SluiceModel

/// Place in APNs' storage: one push for a device and topic.
struct StorageKey: Hashable, Sendable {
    var device: UInt32
    var app: UInt16
    var purpose: TokenPurpose
}

/// Pushes that APNs keeps until a device is reachable, at most one for a device and topic.
struct PushStorage: Sendable {
    struct Stored: Sendable {
        var push: TransitPush
        var since: Int64
        /// Rule that keeps the push from the device.
        var rule: DeviceRule
        /// Number that orders the places by the time of storing.
        var order: UInt64
        /// Entries of the place in the queue of what is due.
        var entries: Entries
    }

    /// Times of a place's entries in the queue of what is due. They outlive the push that a newer one replaces, so that
    /// each place has one entry of a kind.
    struct Entries: Sendable {
        /// Time at which the place is looked at for an expired push, in milliseconds since 1970; nil: none is scheduled.
        var expiry: Int64?
        /// Next good moment, in milliseconds since 1970; nil: none is scheduled.
        var moment: Int64?
    }

    private var places: [StorageKey: Stored] = [:]
    private var stored: UInt64 = 0
    /// Longest storage: 30 days, in milliseconds.
    static let longest: Int64 = 30 * 86_400_000

    var count: Int { places.count }

    subscript(key: StorageKey) -> Stored? { places[key] }

    /// Stores a push. Returns the push whose place it takes.
    mutating func store(
        _ push: TransitPush, at key: StorageKey, rule: DeviceRule, entries: Entries, now: Int64
    ) -> Stored? {
        stored += 1
        return places.updateValue(
            Stored(push: push, since: now, rule: rule, order: stored, entries: entries), forKey: key)
    }

    /// Changes the times of a place's entries.
    mutating func schedule(_ key: StorageKey, _ body: (inout Entries) -> Void) {
        guard places[key] != nil else { return }
        body(&places[key]!.entries)
    }

    /// Removes a push from its place.
    mutating func take(_ key: StorageKey) -> Stored? { places.removeValue(forKey: key) }

    mutating func removeAll() { places = [:] }
}
