/// Tenants of a shard, and the parts of the worker's room that they take.
///
/// A tenant is an app on one pool, that is, with one credential in one environment. All tenants together may fill the
/// worker. When the worker is nearly full, a tenant beyond its share that can't send gives room back: its pushes are
/// parked in the store until it sends again. A tenant's share is its part of the room by weight, among the
/// tenants that are active. While the worker is nearly full, they share what ``IntakeGate/jobsToKeep`` leaves them.
///
/// A worker that reads ahead also parks pushes of priority 5 and 1 of a tenant that sends well, so that pushes of priority
/// 10 behind them in the log are found. Such a tenant keeps what its streams take in soon, its *reserve*.
///
/// Tenants are named by their indices. Pure: time is an argument, in nanoseconds of the monotonic clock.
struct Budgets {
    /// Pushes in memory at one moment, without those that leave memory once the store has them.
    struct Usage: BitwiseCopyable {
        var all = 0
        /// Pushes of priority 5 and 1.
        var lower = 0
        /// Pushes that the store has as well.
        var stored = 0
        /// Pushes that wait for a stream or for another attempt, or are in flight.
        var ready = 0
        /// Pushes of priority 5 and 1 that wait for a stream.
        var waiting = 0
        /// Part of ``waiting`` that the store has as well.
        var returned = 0
        var inFlight = 0
        /// Pushes of the devices that have one in flight. They leave memory together.
        var bound = 0
    }

    /// Cause for which pushes of a tenant are parked.
    enum Parking: UInt8, BitwiseCopyable {
        /// The tenant is beyond its share and can't send as fast.
        case share
        /// The worker reads ahead. Only pushes of priority 5 and 1 are parked.
        case ahead
    }

    /// Room that has become scarce.
    enum Scarcity {
        /// Room for jobs in the worker.
        case jobs
        /// Room for pushes that have returned from the store.
        case restored
    }

    /// Decision about a tenant while room is scarce.
    enum Verdict: Equatable {
        /// The tenant keeps what it has.
        case keeps
        /// Pushes beyond this share are parked.
        case parks(beyond: Int)
        /// Pushes beyond the share take the room of others, because they can't be parked.
        case crowds
    }

    private struct Tenant: BitwiseCopyable {
        /// Number that the owner has given the tenant.
        var number: UInt32
        /// Weight of the tenant's share, at least 1.
        var weight = 1
        /// True when the tenant has a pace or a maximum in flight of its own.
        var isLimited = false
        /// Cause for which pushes are parked; nil: none is.
        var parking: Parking?
        /// True while pushes beyond the share take the room of others.
        var isCrowding = false
        /// Usage at the last count. Pushes that have arrived or returned since are counted while the tenant is parked.
        var usage = Usage()
        /// Shares of the room for jobs, and of the room for restored pushes, at the last count; at least 1.
        var shares = (jobs: 1, restored: 1)
        /// Pushes of priority 5 and 1 that wait for a stream while others are parked to read ahead, at the last count: those
        /// that take room for jobs, and all with those that have returned from the store; at least 1.
        var reserves = (jobs: 1, all: 1)
        /// Pushes that the store alone has with their topics, as far as this machine knows.
        var kept = 0
        /// Pushes that have ended, and requests that were answered, at the last three samples.
        var ended = (first: 0, second: 0, last: 0)
        var answered = (first: 0, second: 0, last: 0)
        /// Number of samples in a row that found the tenant beyond a share; 2 stands for more.
        var over = 0
        /// Most pushes in flight that the owner knows of.
        var maximumInFlight = Int.max
        /// Time at which a push of the tenant was last seen; 0: never.
        var seen: UInt64 = 0
        /// Time at which a parked push last returned, or none was wanted.
        var returnedAt: UInt64 = 0

        /// Part of the smaller share that lower priorities have beside any number of pushes of priority 10.
        var floor: Int { max(1, min(shares.jobs, shares.restored) / 16) }
    }

    private struct Place: Hashable {
        var partition: UInt16
        var topic: UInt16
    }

    private let limits: DeliveryLimits
    private var tenants: [Tenant] = []
    /// Pushes that the store alone has with their topics: those that this machine has evicted, less those restored.
    private var kept: [Place: Int] = [:]
    /// Times of the last three samples.
    private var sampled: (first: UInt64, second: UInt64, last: UInt64) = (0, 0, 0)
    /// Room for jobs in the last shortage, and the part of it that tenants share, in pushes.
    private var scarceRoom = (all: Int.max, shared: Int.max)
    /// Numbers of the tenants that had pushes on any shard in the last shortage, and of those that had pushes here.
    private var (everywhere, active): (Set<UInt32>, Set<UInt32>) = ([], [])
    /// Time of the last shortage; 0 before the first.
    private var shortageAt: UInt64 = 0
    /// Times from which on restored pushes are parked again, and parked ones return again.
    private(set) var (nextParking, nextReturn): (UInt64, UInt64) = (0, 0)

    /// Nanoseconds between two samples.
    private static let sampleInterval: UInt64 = 500_000_000
    /// Nanoseconds between two counts while a tenant is parked.
    private static let countInterval: UInt64 = 100_000_000
    /// Nanoseconds for which a shortage lasts after the last report of it.
    private static let shortage: UInt64 = 1_000_000_000
    /// Seconds in which a tenant that can send ends what it has in memory.
    private static let patience = 10.0
    /// Nanoseconds after which a sample reveals no pace any more.
    private static let memory: UInt64 = 5_000_000_000
    /// Nanoseconds for which a tenant without pushes counts as active.
    private static let activity: UInt64 = 600_000_000_000
    /// Nanoseconds after which parking ends although the store should have pushes, because none has returned.
    private static let emptyAfter: UInt64 = 30_000_000_000

    init(limits: DeliveryLimits) { self.limits = limits }

    // MARK: Tenants

    /// Number of tenants.
    var count: Int { tenants.count }

    /// Returns the index of a tenant, and adds the tenant if it is new.
    mutating func index(of number: UInt32) -> UInt16 {
        if let known = tenants.firstIndex(where: { $0.number == number }) { return UInt16(known) }
        tenants.append(Tenant(number: number))
        return UInt16(tenants.count - 1)
    }

    /// Sets the weight of a tenant, and whether the tenant has a pace or a maximum in flight of its own.
    mutating func set(_ tenant: Int, weight: Int, isLimited: Bool) {
        tenants[tenant].weight = max(1, weight)
        tenants[tenant].isLimited = isLimited
    }

    /// Cause for which pushes of a tenant are parked; nil: none is.
    func parking(_ tenant: Int) -> Parking? { tenants[tenant].parking }

    func usage(_ tenant: Int) -> Usage { tenants[tenant].usage }

    var hasParked: Bool { tenants.contains { $0.parking != nil } }

    /// True when restored pushes may be parked again. The next time is due a while later.
    mutating func isParkingDue(at now: UInt64) -> Bool {
        guard now >= nextParking else { return false }
        nextParking = now &+ Self.countInterval
        return true
    }

    /// True when parked pushes may return again. The next return is due a while later.
    mutating func isReturnDue(at now: UInt64) -> Bool {
        guard hasParked, now >= nextReturn else { return false }
        nextReturn = now &+ Self.countInterval
        return true
    }

    /// Numbers of the tenants with pushes beyond their share that are parked, or take the room of others.
    var overShare: [UInt32] { tenants.filter { $0.parking == .share || $0.isCrowding }.map(\.number) }

    private func isActive(_ tenant: Tenant, at now: UInt64) -> Bool {
        tenant.seen > 0 && now < tenant.seen &+ Self.activity
    }

    // MARK: Room

    /// Notes that the worker is nearly full.
    /// - Parameters:
    ///   - room: pushes that the shard may have in memory.
    ///   - kept: the part of the room that tenants share meanwhile.
    ///   - tenants: numbers of the tenants that have pushes on this shard or another.
    mutating func noteShortage(room: Int, keeping kept: Int, tenants: Set<UInt32>, at now: UInt64) {
        scarceRoom = (max(1, room), max(1, kept))
        everywhere = tenants
        shortageAt = now
    }

    /// Returns the numbers of the tenants that have pushes here, and of those that have none any more, since the last call.
    mutating func changesOfActivity(at now: UInt64) -> [(tenant: UInt32, isActive: Bool)] {
        guard limits.hasNeighbours else { return [] }
        let before = active
        active = Set(tenants.filter { isActive($0, at: now) }.map(\.number))
        // In order, because a simulated world must be the same each time.
        return active.symmetricDifference(before).sorted().map { ($0, active.contains($0)) }
    }

    /// True while the worker is nearly full.
    func isShort(at now: UInt64) -> Bool { shortageAt > 0 && now < shortageAt &+ Self.shortage }

    /// Pushes that the shard may have in memory.
    private func room(at now: UInt64) -> Int {
        isShort(at: now) ? min(limits.room, scarceRoom.all) : limits.room
    }

    /// Part of ``room(at:)`` that the tenants share.
    private func sharedRoom(at now: UInt64) -> Int {
        isShort(at: now) ? min(room(at: now), scarceRoom.shared) : limits.room
    }

    // MARK: Counts

    /// Takes a count of the tenants' pushes in memory, and shares the room out.
    /// - Parameter tenant: returns the index of a topic's tenant.
    mutating func count(_ usage: [Usage], at now: UInt64, tenant: (UInt16) -> UInt16) {
        for index in tenants.indices {
            tenants[index].usage = usage[index]
            tenants[index].kept = 0
            if usage[index].all > 0 { tenants[index].seen = now }
        }
        for (place, count) in kept { tenants[Int(tenant(place.topic))].kept += count }
        let weights = tenants.reduce(0) { $0 + (isActive($1, at: now) ? $1.weight : 0) }
        let room = Double(sharedRoom(at: now))
        for index in tenants.indices {
            let weight = tenants[index].weight
            let part = Double(weight) / Double(max(weight, weights))
            tenants[index].shares = (
                max(1, Int(room * part)), max(1, Int(Double(limits.restoredPushes) * part))
            )
        }
        if limits.readsAhead { countReserves(at: now) }
    }

    /// Counts what each tenant's streams take in within a second. All tenants together keep a quarter of the room for jobs
    /// at most, and half of that for restored pushes.
    private mutating func countReserves(at now: UInt64) {
        let room = room(at: now)
        let all = max(1, tenants.reduce(0) { $0 + pace($1.ended) })
        let seconds = min(1, Double(limits.restoredPushes / 2) / all)
        let secondsOfJobs = min(seconds, Double(room / 4) / all)
        let least = max(1, min(room, limits.restoredPushes) / 16 / tenants.count)
        for index in tenants.indices {
            let pace = pace(tenants[index].ended)
            tenants[index].reserves = (
                max(least, Int(pace * secondsOfJobs)), max(least, Int(pace * seconds))
            )
        }
    }

    /// True when it is time for a sample.
    func isSampleDue(at now: UInt64) -> Bool { now >= sampled.last &+ Self.sampleInterval }

    /// Takes a sample of each tenant's ended pushes and answered requests, after a count.
    mutating func sample(_ ended: [Int], answered: [Int], at now: UInt64) {
        sampled = (sampled.second, sampled.last, now)
        for index in tenants.indices {
            let before = tenants[index].ended
            if before.last != ended[index] { tenants[index].seen = now }
            tenants[index].ended = (before.second, before.last, ended[index])
            let answers = tenants[index].answered
            tenants[index].answered = (answers.second, answers.last, answered[index])
            if !isShort(at: now) { tenants[index].isCrowding = false }
            let isOver = isBeyondShare(index, .jobs) || isBeyondShare(index, .restored)
            tenants[index].over = isOver ? min(2, tenants[index].over + 1) : 0
        }
    }

    /// Counts a push of a parked tenant that arrives or returns.
    mutating func enters(_ tenant: Int) {
        tenants[tenant].usage.all += 1
        tenants[tenant].usage.ready += 1
        tenants[tenant].usage.waiting += 1
    }

    /// Counts a push of a tenant that is parked.
    mutating func leaves(_ tenant: Int) { tenants[tenant].usage.all -= 1 }

    /// Counts a push that leaves memory or returns, and that the store has with its topic.
    /// - Parameter tenant: index of the topic's tenant, if it has one.
    mutating func keeps(_ change: Int, partition: UInt16, topic: UInt16, of tenant: UInt16) {
        if Int(tenant) < tenants.count { tenants[Int(tenant)].kept += change }
        let place = Place(partition: partition, topic: topic)
        // Pushes of an earlier worker return, too.
        let left = (kept[place] ?? 0) + change
        kept[place] = left > 0 ? left : nil
    }

    /// Topics of which the store has pushes, as far as this machine knows.
    var keptTopics: Set<UInt16> { Set(kept.keys.map(\.topic)) }

    /// Forgets the pushes of a partition that has ended.
    mutating func forget(partition: UInt16) { kept = kept.filter { $0.key.partition != partition } }

    // MARK: In flight

    /// Returns the most pushes that tenants may have in flight, by their numbers, as far as that has changed much since the
    /// last call. To be called after a sample.
    ///
    /// A tenant may have in flight what it has answers for in a quarter of a second. It may also have three quarters of what
    /// others leave of ``DeliveryLimits/unanswered``, or an even part of half of that. So a tenant whose requests aren't
    /// answered leaves room to the others. Each push in flight counts with those that it keeps in memory.
    mutating func newMaximaInFlight() -> [(tenant: UInt32, maximum: Int)] {
        guard limits.hasNeighbours else { return [] }
        var (unanswered, active) = (0, 1)
        for tenant in tenants {
            unanswered += unansweredPlaces(tenant)
            if isActive(tenant, at: sampled.last) { active += 1 }
        }
        let half = limits.unanswered / 2
        let least = max(1, min(4, half), half / active)
        var changes: [(tenant: UInt32, maximum: Int)] = []
        for index in tenants.indices {
            let usage = tenants[index].usage
            let left = limits.unanswered - (unanswered - unansweredPlaces(tenants[index]))
            let alone = left * 3 / 4 * max(1, usage.inFlight) / max(1, usage.bound)
            let maximum = max(least, alone, answeredSoon(tenants[index]))
            let before = tenants[index].maximumInFlight
            guard abs(maximum - before) > before / 8 else { continue }
            tenants[index].maximumInFlight = maximum
            changes.append((tenants[index].number, maximum))
        }
        return changes
    }

    /// Returns the most pushes that a new tenant may have in flight; nil when that isn't limited.
    mutating func firstMaximumInFlight(_ tenant: Int) -> Int? {
        guard limits.hasNeighbours, tenants[tenant].maximumInFlight == .max else { return nil }
        tenants[tenant].maximumInFlight = max(1, limits.unanswered * 3 / 4)
        return tenants[tenant].maximumInFlight
    }

    /// Pushes in memory because a tenant has more in flight than will be answered soon.
    private func unansweredPlaces(_ tenant: Tenant) -> Int {
        max(0, tenant.usage.inFlight - answeredSoon(tenant)) * tenant.usage.bound
            / max(1, tenant.usage.inFlight)
    }

    /// Requests of a tenant that are answered in a quarter of a second.
    private func answeredSoon(_ tenant: Tenant) -> Int { Int(pace(tenant.answered) / 4) }

    // MARK: Parking

    private func isBeyondShare(_ tenant: Int, _ scarcity: Scarcity) -> Bool {
        switch scarcity {
        case .jobs: tenants[tenant].usage.all > tenants[tenant].shares.jobs
        case .restored: tenants[tenant].usage.stored > tenants[tenant].shares.restored
        }
    }

    /// Decides about a tenant while room is scarce, after a count.
    mutating func judge(_ tenant: Int, _ scarcity: Scarcity, at now: UInt64) -> Verdict {
        tenants[tenant].isCrowding = false
        guard isBeyondShare(tenant, scarcity),
            tenants[tenant].parking == .share || mustGive(tenant, at: now)
        else { return .keeps }
        guard limits.storeIsDurable, mayPark(tenant) else {
            tenants[tenant].isCrowding = true
            return .crowds
        }
        let shares = tenants[tenant].shares
        return .parks(beyond: scarcity == .jobs ? shares.jobs : shares.restored)
    }

    /// Returns true when a tenant has been beyond a share for two samples and can't send as fast as its pushes arrive, and
    /// another tenant could use the room.
    private func mustGive(_ tenant: Int, at now: UInt64) -> Bool {
        guard tenants[tenant].over > 1, tenants[tenant].isLimited || isSlow(tenant) else { return false }
        let isWanted = tenants.indices.contains { other in
            other != tenant && isActive(tenants[other], at: now)
                && !(tenants[other].usage.all >= tenants[other].shares.jobs && isSlow(other))
        }
        return isWanted
            // Some have pushes on other shards alone.
            || !everywhere.isSubset(of: active)
    }

    /// Returns true when a tenant ends fewer pushes in ten seconds than it has in memory.
    private func isSlow(_ tenant: Int) -> Bool {
        let seconds = Double(sampled.last &- sampled.first) / 1e9
        // Nothing is known after a pause without samples.
        guard sampled.first > 0, seconds < 5 else { return false }
        let ended = Double(tenants[tenant].ended.last - tenants[tenant].ended.first)
        return Double(tenants[tenant].usage.all) > ended / seconds * Self.patience
    }

    /// Returns true when the store may have more pushes of the tenant.
    func mayPark(_ tenant: Int) -> Bool { tenants[tenant].kept < limits.parkedPushes }

    /// Returns true while a parked tenant has few pushes that can be sent soon.
    func lacksReady(_ tenant: Int) -> Bool { tenants[tenant].usage.ready < tenants[tenant].floor }

    /// Returns true while a parked tenant has not used its share.
    func hasShareLeft(_ tenant: Int) -> Bool { tenants[tenant].usage.all < tenants[tenant].shares.jobs }

    /// Returns how many of a tenant's waiting pushes stay in memory: of priority 10, and of lower priorities.
    /// - Parameter others: pushes of the tenant that are not waiting.
    func stay(_ tenant: Int, beyond share: Int, urgent: Int, others: Int) -> (urgent: Int, lower: Int) {
        let urgent = min(urgent, max(0, share - others))
        return (urgent, max(tenants[tenant].floor, share / 2 - others - urgent))
    }

    mutating func beginParking(_ tenant: Int, _ cause: Parking, at now: UInt64) {
        tenants[tenant].parking = cause
        tenants[tenant].returnedAt = now
    }

    mutating func endParking(_ tenant: Int) { tenants[tenant].parking = nil }

    // MARK: Reading ahead

    /// Decides whether a tenant that sends gives room to records behind its own, after a count. It does so when its lower
    /// priorities take more than half of its share, which is for priority 10.
    /// - Returns: how many of its pushes of priority 5 and 1 go on waiting for a stream; nil: all.
    func staysAhead(_ tenant: Int) -> Int? {
        let (usage, reserve) = (tenants[tenant].usage, tenants[tenant].reserves.jobs)
        guard limits.readsAhead, limits.storeIsDurable, tenants[tenant].parking != .share, mayPark(tenant),
            usage.lower > tenants[tenant].shares.jobs / 2, usage.waiting > reserve,
            pace(tenants[tenant].ended) > 0
        else { return nil }
        return max(0, reserve - usage.returned)
    }

    /// Returns true when an arriving push of priority 5 or 1 is parked, because the worker reads ahead and the streams have
    /// enough.
    /// - Parameter waiting: pushes of all tenants that wait for a stream.
    func parksAhead(_ tenant: Int, waiting: Int, at now: UInt64) -> Bool {
        isShort(at: now) && mayPark(tenant)
            && min(tenants[tenant].usage.waiting, waiting) >= tenants[tenant].reserves.jobs
    }

    /// Returns by how much a count rises in a second; 0 when that isn't known.
    private func pace(_ samples: (first: Int, second: Int, last: Int)) -> Double {
        for (time, before) in [(sampled.first, samples.first), (sampled.second, samples.second)]
        where time > 0 && sampled.last &- time < Self.memory {
            return Double(samples.last - before) / (Double(sampled.last &- time) / 1e9)
        }
        return 0
    }

    // MARK: Return

    /// Returns the number of parked pushes of a tenant that may return now, at most: until half of the share is used, or half
    /// of the free room while the worker isn't nearly full. Pushes from the store have a limit of their own.
    ///
    /// Where the worker reads ahead, this counts those in memory, which take their room until they have left it: all of them
    /// when room isn't scarce, or as many as the reserve lacks.
    func wanted(_ tenant: Int, at now: UInt64) -> Int {
        let (usage, shares) = (tenants[tenant].usage, tenants[tenant].shares)
        if tenants[tenant].parking == .ahead {
            return isShort(at: now) ? max(1, tenants[tenant].reserves.jobs - usage.waiting) : .max
        }
        var most = max(1, shares.jobs / 2)
        if !isShort(at: now) { most += max(0, limits.room - tenants.reduce(0) { $0 + $1.usage.all }) / 2 }
        let wanted = min(most - usage.all, max(1, shares.restored / 2) - usage.stored)
        // Pushes that wait for their time may fill the share for long.
        let least = tenants[tenant].floor - usage.ready
        // Looks for lower priorities may bring back others.
        guard usage.all < shares.jobs else { return max(wanted, least) }
        return max(wanted, least, tenants[tenant].floor - usage.lower)
    }

    /// Returns the number of parked pushes of a tenant that the store is asked for, at most. Where the worker reads ahead,
    /// half of the reserve is for them, whatever arrives meanwhile.
    /// - Parameter left: pushes that are wanted and not in memory.
    func wantedOfStore(_ tenant: Int, left: Int) -> Int {
        guard tenants[tenant].parking == .ahead else { return left }
        let (usage, reserve) = (tenants[tenant].usage, tenants[tenant].reserves.all)
        return max(reserve - usage.waiting, (reserve + 1) / 2 - usage.returned)
    }

    /// Notes that a parked push has returned, or that none is wanted.
    mutating func returned(_ tenant: Int, at now: UInt64) { tenants[tenant].returnedAt = now }

    /// Returns true when parked pushes are wanted, and none has returned for long.
    func isOverdue(_ tenant: Int, at now: UInt64) -> Bool {
        now >= tenants[tenant].returnedAt &+ Self.emptyAfter
    }
}
