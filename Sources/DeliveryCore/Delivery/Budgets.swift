import StreamScheduling

/// Tenants of a shard, and the parts of the worker's room that they take.
///
/// A tenant is an app on one pool, that is, with one credential in one environment. All tenants together may fill the
/// worker. When the worker is nearly full, a tenant beyond its share that can't send gives room back: its pushes are
/// parked in the store until it sends again. A tenant's share is its part of the room by weight, among the tenants that
/// are active.
struct Budgets {
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
        /// Pushes in memory at the last count, without those that wait for the store to take them. Pushes that have
        /// arrived since are counted while the tenant is parked.
        var resident = 0
        /// Pushes that the store alone has with their topics, at the last count, as far as this machine knows.
        var kept = 0
        /// Pushes that have ended, at the last two samples.
        var ended = (before: 0, last: 0)
        /// Time at which a push of the tenant was last seen, in nanoseconds of the monotonic clock; 0: never.
        var seen: UInt64 = 0
        /// Time at which a parked push last returned, or none was wanted, in nanoseconds of the monotonic clock.
        var returnedAt: UInt64 = 0
    }

    var tenants: [Tenant] = []
    /// Pushes that the store alone has with their topics, by partition and topic: those that this machine has evicted, less
    /// those that it has restored.
    private var kept: [Place: Int] = [:]

    private struct Place: Hashable {
        var partition: UInt16
        var topic: UInt16
    }

    /// Times of the last two samples, in nanoseconds of the monotonic clock.
    private var sampled: (before: UInt64, last: UInt64) = (0, 0)
    /// Room of the shard at the last shortage, in pushes.
    var room = Int.max
    /// Time of the next count while a tenant is parked, in nanoseconds of the monotonic clock.
    var nextCount: UInt64 = 0

    /// Nanoseconds between two samples of ended pushes.
    static let sampleInterval: UInt64 = 1_000_000_000
    /// Nanoseconds between two counts while a tenant is parked.
    static let countInterval: UInt64 = 100_000_000
    /// Seconds in which a tenant that can send ends what it has in memory.
    static let patience = 10
    /// Nanoseconds for which a tenant without pushes counts as active.
    private static let activity: UInt64 = 600_000_000_000
    /// Nanoseconds after which a parked tenant for which the store has found nothing ends its parking.
    static let emptyAfter: UInt64 = 2_000_000_000

    var hasParked: Bool { tenants.contains { $0.isParked } }

    /// Returns the index of a tenant, and adds the tenant if it is new.
    mutating func index(of number: UInt32) -> UInt16 {
        if let known = tenants.firstIndex(where: { $0.number == number }) { return UInt16(known) }
        tenants.append(Tenant(number: number))
        return UInt16(tenants.count - 1)
    }

    /// True when it is time for a sample of ended pushes.
    func isSampleDue(at now: UInt64) -> Bool { now >= sampled.last &+ Self.sampleInterval }

    /// Takes a sample of the ended pushes of each tenant.
    mutating func sample(_ ended: [Int], at now: UInt64) {
        sampled = (sampled.last, now)
        let isShortageOver = now >= nextCount &+ Self.sampleInterval
        for index in tenants.indices {
            if isShortageOver { tenants[index].isCrowding = false }
            if tenants[index].ended.last != ended[index] { tenants[index].seen = now }
            tenants[index].ended = (tenants[index].ended.last, ended[index])
        }
    }

    /// Takes a count of the tenants' pushes in memory.
    /// - Parameter tenant: returns the index of a topic's tenant.
    mutating func count(_ resident: [Int], at now: UInt64, tenant: (UInt16) -> UInt16) {
        nextCount = now &+ Self.countInterval
        for index in tenants.indices {
            tenants[index].resident = resident[index]
            tenants[index].kept = 0
            if resident[index] > 0 { tenants[index].seen = now }
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

    /// Forgets the pushes of a partition that has ended.
    mutating func forget(partition: UInt16) {
        kept = kept.filter { $0.key.partition != partition }
    }

    private func isActive(_ tenant: Int, at now: UInt64) -> Bool {
        tenants[tenant].seen > 0 && now < tenants[tenant].seen &+ Self.activity
    }

    /// Returns a tenant's share of the room, at least 1 push.
    func share(_ tenant: Int, at now: UInt64) -> Int {
        let weights = tenants.indices.reduce(0) { $0 + (isActive($1, at: now) ? tenants[$1].weight : 0) }
        let (weighted, isHuge) = room.multipliedReportingOverflow(by: tenants[tenant].weight)
        return isHuge ? room : max(1, weighted / max(tenants[tenant].weight, weights))
    }

    /// Returns true when a tenant ends too few pushes to end soon what it has in memory.
    func isSlow(_ tenant: Int, at now: UInt64) -> Bool {
        let elapsed = now &- sampled.before
        // Nothing is known after a pause without samples.
        guard sampled.before > 0, elapsed < 5 * Self.sampleInterval else { return false }
        let ended = tenants[tenant].ended.last - tenants[tenant].ended.before
        let perSecond = Double(ended) / (Double(sampled.last &- sampled.before) / 1e9)
        return Double(tenants[tenant].resident) > perSecond * Double(Self.patience)
    }

    /// Returns true when a tenant beyond its share can't send as fast as its pushes arrive, and another tenant could use
    /// the room.
    func mustGive(_ tenant: Int, at now: UInt64) -> Bool {
        guard tenants[tenant].isLimited || isSlow(tenant, at: now) else { return false }
        return tenants.indices.contains { other in
            other != tenant && isActive(other, at: now)
                && !(tenants[other].resident >= share(other, at: now) && isSlow(other, at: now))
        }
    }
}
