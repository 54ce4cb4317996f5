import SluiceModel

/// Pushes of tenants beyond their share of the worker's room, see ``Budgets``. They are parked: they wait with their topics,
/// as pushes of a stopped topic do, and leave memory once the store has them. They return as their tenant ends others:
/// those in memory in their order, and those in the store in the order in which they expire. Pushes that arrive meanwhile
/// are parked behind them. Half of the share is kept for priority 10.
extension DeliveryMachine {
    /// Names the tenant of a topic: an app on a pool. To be called before the topic's first push.
    /// - Parameter isLimited: true when the tenant has a pace or a maximum in flight of its own.
    public mutating func setTenant(_ number: UInt32, ofTopic topic: UInt16, weight: Int, isLimited: Bool) {
        makeRoom(topic: topic)
        let index = budgets.index(of: number)
        budgets.tenants[Int(index)].weight = max(1, weight)
        budgets.tenants[Int(index)].isLimited = isLimited
        circuits[Int(topic)].tenant = index
        if budgets.tenants[Int(index)].isParked, !circuits[Int(topic)].isParked {
            beginParking(topic: Int(topic))
        }
    }

    // MARK: Time

    /// Parks pushes of tenants beyond their share, because the worker is nearly full.
    /// - Parameter room: pushes that this machine may have in memory.
    public mutating func makeRoom(pushes room: Int, at now: DeliveryTime) {
        budgets.shortage(room: room, at: now.monotonicNanoseconds)
        makeRoom(of: budgets.room(at: now.monotonicNanoseconds), \.all, at: now)
    }

    /// Parks pushes that have returned from the store, because they take the room for those of others. To be called while
    /// three quarters of that room are taken.
    mutating func makeRoomForRestored(at now: DeliveryTime) {
        guard now.monotonicNanoseconds >= budgets.nextCount else { return }
        makeRoom(of: limits.restoredPushes, \.stored, at: now)
    }

    private mutating func makeRoom(
        of room: Int, _ used: KeyPath<Budgets.Usage, Int>, at now: DeliveryTime
    ) {
        nameTenants()
        guard budgets.tenants.count > 1 else { return }
        countResidents(at: now)
        for tenant in budgets.tenants.indices {
            budgets.tenants[tenant].isCrowding = false
            let share = budgets.share(tenant, of: room, at: now.monotonicNanoseconds)
            guard budgets.tenants[tenant].usage[keyPath: used] > share,
                budgets.tenants[tenant].isParked || budgets.mustGive(tenant, at: now.monotonicNanoseconds)
            else { continue }
            park(tenant, share, at: now)
        }
    }

    /// Samples the tenants, and lets parked pushes return.
    mutating func advanceBudgets(at now: DeliveryTime) {
        guard budgets.tenants.count > 1 || circuits.count > 1 else { return }
        if budgets.isSampleDue(at: now.monotonicNanoseconds) { sampleTenants(at: now) }
        guard budgets.hasParked, now.monotonicNanoseconds >= budgets.nextCount else { return }
        countResidents(at: now)
        for tenant in budgets.tenants.indices where budgets.tenants[tenant].isParked {
            returnParked(tenant, at: now)
        }
    }

    private mutating func sampleTenants(at now: DeliveryTime) {
        nameTenants()
        guard budgets.tenants.count > 1 else { return }
        countResidents(at: now)
        var ended = [Int](repeating: 0, count: budgets.tenants.count)
        for circuit in circuits { ended[Int(circuit.tenant)] += circuit.ended }
        budgets.sample(ended, restored: limits.restoredPushes, at: now.monotonicNanoseconds)
    }

    /// Time of the next ``advanceBudgets(at:)`` that has work; nil while no tenant is parked.
    var nextBudgetWake: UInt64? { budgets.hasParked ? budgets.nextCount : nil }

    // MARK: Counts

    /// Makes each topic without a tenant a tenant of its own.
    private mutating func nameTenants() {
        for topic in circuits.indices where circuits[topic].tenant == TopicCircuit.noTenant {
            circuits[topic].tenant = budgets.index(of: .max - UInt32(topic))
        }
    }

    /// Counts the pushes in memory by tenant. O(slots).
    private mutating func countResidents(at now: DeliveryTime) {
        nameTenants()
        var usage = [Budgets.Usage](repeating: .init(), count: budgets.tenants.count)
        for slot in 0..<highWater {
            switch items[slot].state {
            case .free, .finished, .topicCircuitOpen, .poolUnavailable: continue
            default: break
            }
            let tenant = Int(circuits[Int(items[slot].topic)].tenant)
            usage[tenant].all += 1
            if items[slot].priority != .immediate { usage[tenant].lower += 1 }
            if items[slot].flags.contains(.offsetDone) { usage[tenant].stored += 1 }
        }
        budgets.count(usage, at: now.monotonicNanoseconds) { circuits[Int($0)].tenant }
    }

    private func topics(of tenant: Int) -> [Int] { circuits.indices.filter { circuits[$0].tenant == tenant } }

    /// Numbers of the tenants with pushes beyond their share that are parked, or take the room of others.
    public var tenantsOverShare: [UInt32] {
        budgets.tenants.filter { $0.isParked || $0.isCrowding }.map(\.number)
    }

    // MARK: Parking

    /// Returns true when an arriving push of a parked tenant is parked as well. Priority 10, and the store's own pushes, may
    /// use the share.
    mutating func mustPark(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        let circuit = circuits[Int(item.pointee.topic)]
        guard circuit.isParked, !item.pointee.isOrdered, circuit.probe != slot else { return false }
        let tenant = Int(circuit.tenant)
        guard budgets.tenants[tenant].kept < limits.parkedPushes else { return false }
        let share = budgets.share(
            tenant, of: budgets.room(at: now.monotonicNanoseconds), at: now.monotonicNanoseconds)
        let mayUseShare = item.pointee.flags.contains(.offsetDone) || item.pointee.priority == .immediate
        guard mayUseShare, budgets.tenants[tenant].usage.all < share, !isBehindParked(slot) else {
            return true
        }
        budgets.tenants[tenant].usage.all += 1
        return false
    }

    /// Returns true when an older push of the item's device is parked in memory.
    private func isBehindParked(_ slot: UInt32) -> Bool {
        if isAlone(slot) { return false }
        var other = devices.entries[Int(items[Int(slot)].device)].first
        while other != Self.noSlot {
            if other != slot, items[Int(other)].state == .topicCircuitOpen,
                items[Int(other)].order < items[Int(slot)].order
            {
                return true
            }
            other = items[Int(other)].next
        }
        return false
    }

    /// Parks a tenant's pushes beyond its share: those of lower priority beyond half of it, the newest first. Pushes
    /// between two attempts are only handed to the store, which brings them back in their time.
    private mutating func park(_ tenant: Int, _ share: Int, at now: DeliveryTime) {
        guard limits.storeIsDurable, budgets.tenants[tenant].kept < limits.parkedPushes else {
            budgets.tenants[tenant].isCrowding = true
            return actions.append(
                .crowds(topic: UInt16(topics(of: tenant)[0]), pushes: budgets.tenants[tenant].usage.all))
        }
        if !budgets.tenants[tenant].isParked { beginParking(tenant, at: now) }
        var waiting: [(isUrgent: Bool, order: UInt64, slot: UInt32)] = []
        for slot in 0..<UInt32(highWater) {
            let item = items + Int(slot)
            guard Int(circuits[Int(item.pointee.topic)].tenant) == tenant, !item.pointee.isOrdered else {
                continue
            }
            switch item.pointee.state {
            case .waiting where circuits[Int(item.pointee.topic)].probe != slot:
                waiting.append((item.pointee.priority == .immediate, item.pointee.order, slot))
            case .retrying, .coalescing, .scheduled, .confirming: relieveLongWait(slot, at: now)
            default: break
            }
        }
        let others = budgets.tenants[tenant].usage.all - waiting.count
        let urgent = min(waiting.count { $0.isUrgent }, max(0, share - others))
        let lower = max(Self.floor(share), share / 2 - others - urgent)
        waiting.sort { $0.isUrgent != $1.isUrgent ? $0.isUrgent : $0.order < $1.order }
        let firstLower = waiting.firstIndex { !$0.isUrgent } ?? waiting.count
        for (place, push) in waiting.enumerated()
        where place >= (push.isUrgent ? urgent : firstLower + lower) {
            withdraw(push.slot)
            waitForCircuit(push.slot, at: now)
            budgets.tenants[tenant].usage.all -= 1
        }
    }

    /// Returns the part of a share that lower priorities have beside any number of pushes of priority 10.
    private static func floor(_ share: Int) -> Int { max(1, share / 16) }

    private mutating func beginParking(_ tenant: Int, at now: DeliveryTime) {
        budgets.tenants[tenant].isParked = true
        budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
        milestones.parkings += 1
        let topics = topics(of: tenant)
        actions.append(.parked(topic: UInt16(topics[0]), pushes: budgets.tenants[tenant].usage.all))
        for topic in topics { beginParking(topic: topic) }
    }

    private mutating func beginParking(topic: Int) {
        if !circuits[topic].isWatched { openCircuits += 1 }
        circuits[topic].isParked = true
        suspended(topic: UInt16(topic))
    }

    // MARK: Return

    /// Lets parked pushes return until half of the share is used, or half of the room that is free when the worker isn't
    /// nearly full. Those in memory come first. The others are asked for.
    private mutating func returnParked(_ tenant: Int, at now: DeliveryTime) {
        let topics = topics(of: tenant).filter {
            !circuits[$0].holdsBack && !isUnavailable(circuits[$0].pool)
        }
        var wanted = wantedParked(tenant, at: now)
        for topic in topics {
            while wanted > 0, circuits[topic].waiting.count > 0 {
                let slot = circuits[topic].waiting.first
                withdraw(slot)
                dispatch(slot, at: now, mayPark: false)
                budgets.tenants[tenant].usage.all += 1
                budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
                wanted -= 1
            }
        }
        guard wanted > 0, !topics.isEmpty else {
            budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
            return
        }
        let kept = budgets.keptTopics
        let isEmpty = !self.topics(of: tenant).contains { kept.contains(UInt16($0)) }
        if isEmpty
            || now.monotonicNanoseconds >= budgets.tenants[tenant].returnedAt &+ Budgets.emptyAfter
        {
            return endParking(tenant, at: now)
        }
        for topic in topics where kept.contains(UInt16(topic)) {
            actions.append(.pushesWanted(topic: UInt16(topic), count: wanted))
        }
    }

    /// Returns the number of parked pushes of a tenant that may return now.
    private func wantedParked(_ tenant: Int, at now: DeliveryTime) -> Int {
        let room = budgets.room(at: now.monotonicNanoseconds)
        let share = budgets.share(tenant, of: room, at: now.monotonicNanoseconds)
        var most = max(1, share / 2)
        if !budgets.isShort(at: now.monotonicNanoseconds) {
            most += max(0, room - budgets.tenants.reduce(0) { $0 + $1.usage.all }) / 2
        }
        // Pushes from the store have a limit of their own in memory.
        let restored = budgets.share(tenant, of: limits.restoredPushes, at: now.monotonicNanoseconds)
        let usage = budgets.tenants[tenant].usage
        let wanted = min(most - usage.all, max(1, restored / 2) - usage.stored)
        return usage.lower < Self.floor(share) ? max(wanted, Self.floor(share) - usage.lower) : wanted
    }

    /// Ends the parking of a tenant, because the store has nothing left. What it has after all returns with the topics.
    private mutating func endParking(_ tenant: Int, at now: DeliveryTime) {
        budgets.tenants[tenant].isParked = false
        let topics = topics(of: tenant)
        actions.append(.unparked(topic: UInt16(topics[0])))
        for topic in topics where circuits[topic].isParked {
            circuits[topic].isParked = false
            guard !circuits[topic].holdsBack else { continue }
            openCircuits -= 1
            resumed(topic: UInt16(topic))
            releaseWaiting(UInt16(topic), at: now)
        }
    }

    /// Notes that the store has brought back a push that waited there with its topic, whatever becomes of it.
    mutating func keptReturned(_ facts: PushFacts, at now: DeliveryTime) {
        budgets.keeps(-1, partition: facts.partition, topic: facts.topic)
        makeRoom(topic: facts.topic)
        guard circuits[Int(facts.topic)].isParked else { return }
        budgets.tenants[Int(circuits[Int(facts.topic)].tenant)].returnedAt = now.monotonicNanoseconds
    }

    // MARK: In flight

    /// Returns how many more requests may begin on a pool with this many in flight. While the worker is nearly full,
    /// requests without an answer must not take the room of the other pools.
    public func flightRoom(_ inFlight: Int, at now: DeliveryTime) -> Int {
        guard budgets.isShort(at: now.monotonicNanoseconds) else { return .max }
        let free = max(0, budgets.room(at: now.monotonicNanoseconds) - milestones[.inFlight])
        return max(1, 3 * free) - inFlight
    }
}
