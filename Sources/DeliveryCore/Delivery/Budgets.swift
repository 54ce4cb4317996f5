/// Tenants of a shard, and the parts of the worker's room that they take.
///
/// A tenant is an app on one pool, that is, with one credential in one environment. All tenants together may fill the
/// worker. When the worker is nearly full, a tenant beyond its share that can't send gives room back: its pushes are
/// parked in the store until it sends again. A tenant's share is its part of the room by weight, among the tenants that
/// are active.
struct Budgets {
    /// Pushes in memory at one moment, without those that leave memory once the store has them.
    struct Usage: BitwiseCopyable {
        var all = 0
        /// Pushes of priority 5 and 1.
        var lower = 0
        /// Pushes that the store has as well.
        var stored = 0
    }

    struct Tenant: BitwiseCopyable {
        /// Number that the owner has given the tenant.
        var number: UInt32
        /// Weight of the tenant's share, at least 1.
        var weight = 1
        /// True when the tenant has a pace or a maximum in flight of its own.
        var isLimited = false
        /// True while pushes beyond the share are parked.
        var isParked = false
        /// True while pushes beyond the share take the room of others, because they can't be parked.
        var isCrowding = false
        /// Usage at the last count. Pushes that have arrived since are counted while the tenant is parked.
        var usage = Usage()
        /// Pushes that the store alone has with their topics, at the last count, as far as this machine knows.
        var kept = 0
        /// Pushes that have ended, at the last three samples.
        var ended = (first: 0, second: 0, last: 0)
        /// Number of samples in a row that found the tenant beyond its share.
        var over = 0
        /// Time at which a push of the tenant was last seen, in nanoseconds of the monotonic clock; 0: never.
        var seen: UInt64 = 0
        /// Time at which a parked push last returned, or none was wanted, in nanoseconds of the monotonic clock.
        var returnedAt: UInt64 = 0
    }

    var tenants: [Tenant] = []
    /// Pushes that the store alone has with their topics, by partition and topic: those that this machine has evicted, less
    /// those that it has restored.
    private var kept: [Place: Int] = [:]
    /// Times of the last three samples, in nanoseconds of the monotonic clock.
    private var sampled: (first: UInt64, second: UInt64, last: UInt64) = (0, 0, 0)
    /// Room of the shard in pushes: usually, and in the last shortage.
    private let usualRoom: Int
    private var scarceRoom = Int.max
    /// Time of the last request for room, in nanoseconds of the monotonic clock; 0 before the first.
    private var shortageAt: UInt64 = 0
    /// Time of the next count while a tenant is parked, in nanoseconds of the monotonic clock.
    private(set) var nextCount: UInt64 = 0

    private struct Place: Hashable {
        var partition: UInt16
        var topic: UInt16
    }

    /// Nanoseconds between two samples.
    static let sampleInterval: UInt64 = 500_000_000
    /// Nanoseconds between two counts while a tenant is parked.
    static let countInterval: UInt64 = 100_000_000
    /// Nanoseconds for which a shortage lasts after the last request for room.
    private static let shortage: UInt64 = 1_000_000_000
    /// Seconds in which a tenant that can send ends what it has in memory.
    private static let patience = 10.0
    /// Nanoseconds for which a tenant without pushes counts as active.
    private static let activity: UInt64 = 600_000_000_000
    /// Nanoseconds after which a parked tenant for which the store has found nothing ends its parking.
    static let emptyAfter: UInt64 = 30_000_000_000

    init(room: Int) { usualRoom = room }

    var hasParked: Bool { tenants.contains { $0.isParked } }

    /// Returns the index of a tenant, and adds the tenant if it is new.
    mutating func index(of number: UInt32) -> UInt16 {
        if let known = tenants.firstIndex(where: { $0.number == number }) { return UInt16(known) }
        tenants.append(Tenant(number: number))
        return UInt16(tenants.count - 1)
    }

    // MARK: Room

    /// Notes that the worker is nearly full.
    /// - Parameter room: pushes that the shard may have in memory.
    mutating func shortage(room: Int, at now: UInt64) {
        scarceRoom = max(1, room)
        shortageAt = now
    }

    /// True while the worker is nearly full.
    func isShort(at now: UInt64) -> Bool { shortageAt > 0 && now < shortageAt &+ Self.shortage }

    /// Pushes that the shard may have in memory.
    func room(at now: UInt64) -> Int { isShort(at: now) ? min(usualRoom, scarceRoom) : usualRoom }

    private func isActive(_ tenant: Int, at now: UInt64) -> Bool {
        tenants[tenant].seen > 0 && now < tenants[tenant].seen &+ Self.activity
    }

    /// Returns a tenant's share of some room, at least 1 push.
    func share(_ tenant: Int, of room: Int, at now: UInt64) -> Int {
        let weights = tenants.indices.reduce(0) { $0 + (isActive($1, at: now) ? tenants[$1].weight : 0) }
        let (weighted, isHuge) = room.multipliedReportingOverflow(by: tenants[tenant].weight)
        return isHuge ? room : max(1, weighted / max(tenants[tenant].weight, weights))
    }

    // MARK: Counts

    /// True when it is time for a sample.
    func isSampleDue(at now: UInt64) -> Bool { now >= sampled.last &+ Self.sampleInterval }

    /// Takes a sample of each tenant's ended pushes, after a count.
    /// - Parameter restored: pushes from the store that may be in memory.
    mutating func sample(_ ended: [Int], restored: Int, at now: UInt64) {
        sampled = (sampled.second, sampled.last, now)
        for index in tenants.indices {
            if !isShort(at: now) { tenants[index].isCrowding = false }
            if tenants[index].ended.last != ended[index] { tenants[index].seen = now }
            let before = tenants[index].ended
            tenants[index].ended = (before.second, before.last, ended[index])
            let isOver =
                tenants[index].usage.all > share(index, of: room(at: now), at: now)
                || tenants[index].usage.stored > share(index, of: restored, at: now)
            tenants[index].over = isOver ? min(tenants[index].over, 1) + 1 : 0
        }
    }

    /// Takes a count of the tenants' pushes in memory.
    /// - Parameter tenant: returns the index of a topic's tenant.
    mutating func count(_ usage: [Usage], at now: UInt64, tenant: (UInt16) -> UInt16) {
        nextCount = now &+ Self.countInterval
        for index in tenants.indices {
            tenants[index].usage = usage[index]
            tenants[index].kept = 0
            if usage[index].all > 0 { tenants[index].seen = now }
        }
        for (place, count) in kept { tenants[Int(tenant(place.topic))].kept += count }
    }

    /// Counts a push that leaves memory or returns, and that the store has with its topic.
    mutating func keeps(_ change: Int, partition: UInt16, topic: UInt16) {
        let place = Place(partition: partition, topic: topic)
        // Pushes of an earlier worker return, too.
        let left = (kept[place] ?? 0) + change
        kept[place] = left > 0 ? left : nil
    }

    /// Topics of which the store has pushes, as far as this machine knows.
    var keptTopics: Set<UInt16> { Set(kept.keys.map(\.topic)) }

    /// Forgets the pushes of a partition that has ended.
    mutating func forget(partition: UInt16) {
        kept = kept.filter { $0.key.partition != partition }
    }

    // MARK: Decisions

    /// Returns true when a tenant ends too few pushes to end soon what it has in memory.
    private func isSlow(_ tenant: Int) -> Bool {
        let seconds = Double(sampled.last &- sampled.first) / 1e9
        // Nothing is known after a pause without samples.
        guard sampled.first > 0, seconds < 5 else { return false }
        let ended = Double(tenants[tenant].ended.last - tenants[tenant].ended.first)
        return Double(tenants[tenant].usage.all) > ended / seconds * Self.patience
    }

    /// Returns true when a tenant has been beyond its share for two samples and can't send as fast as its pushes arrive,
    /// and another tenant could use the room.
    func mustGive(_ tenant: Int, at now: UInt64) -> Bool {
        guard tenants[tenant].over > 1, tenants[tenant].isLimited || isSlow(tenant) else { return false }
        return tenants.indices.contains { other in
            other != tenant && isActive(other, at: now)
                && !(tenants[other].usage.all >= share(other, of: room(at: now), at: now) && isSlow(other))
        }
    }
}
