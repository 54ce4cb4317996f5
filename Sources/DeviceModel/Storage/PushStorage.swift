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
    }

    private var places: [StorageKey: Stored] = [:]
    private var stored: UInt64 = 0
    /// Longest storage: 30 days, in milliseconds.
    static let longest: Int64 = 30 * 86_400_000

    var count: Int { places.count }

    subscript(key: StorageKey) -> Stored? { places[key] }

    /// Stores a push. Returns the push whose place it takes.
    mutating func store(_ push: TransitPush, at key: StorageKey, rule: DeviceRule, now: Int64) -> Stored? {
        stored += 1
        return places.updateValue(Stored(push: push, since: now, rule: rule, order: stored), forKey: key)
    }

    /// Removes a push if it still has its place.
    mutating func take(_ key: StorageKey, push: UInt64? = nil) -> Stored? {
        guard let found = places[key], push == nil || found.push.number == push else { return nil }
        places[key] = nil
        return found
    }

    mutating func removeAll() { places = [:] }
}
