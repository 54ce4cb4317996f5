import SluiceModel

/// Pushes of tenants beyond their share of the worker's room, see ``Budgets``. They are parked: they wait with their topics,
/// as pushes of a stopped topic do, and leave memory once the store has them. They return in the order in which they
/// expire, as their tenant ends others. Pushes that arrive meanwhile are parked behind them. Half of the share is kept for
/// priority 10.
extension DeliveryMachine {
    /// Names the tenant of a topic: an app on a pool. To be called before the topic's first push.
    /// - Parameter isLimited: true when the tenant has a pace or a maximum in flight of its own.
    public mutating func setTenant(_ number: UInt32, ofTopic topic: UInt16, weight: Int, isLimited: Bool) {
        makeRoom(topic: topic)
        let index = budgets.index(of: number)
        budgets.tenants[Int(index)].weight = max(1, weight)
        budgets.tenants[Int(index)].isLimited = isLimited
        circuits[Int(topic)].tenant = index
    }

    /// Parks pushes of tenants beyond their share, because the worker is nearly full.
    /// - Parameter room: pushes that this machine may have in memory.
    public mutating func makeRoom(pushes room: Int, at now: DeliveryTime) {
        budgets.room = max(1, room)
        countResidents(at: now)
        guard budgets.tenants.count > 1 else { return }
        for tenant in budgets.tenants.indices {
            budgets.tenants[tenant].isCrowding = false
            let share = budgets.share(tenant, at: now.monotonicNanoseconds)
            guard budgets.tenants[tenant].resident > share,
                budgets.tenants[tenant].isParked || budgets.mustGive(tenant, at: now.monotonicNanoseconds)
            else { continue }
            park(tenant, share, at: now)
        }
    }

    /// Samples the pace of the tenants, and lets parked pushes return.
    mutating func advanceBudgets(at now: DeliveryTime) {
        if budgets.isSampleDue(at: now.monotonicNanoseconds) {
            var ended = [Int](repeating: 0, count: budgets.tenants.count)
            for circuit in circuits where circuit.tenant != TopicCircuit.noTenant {
                ended[Int(circuit.tenant)] += circuit.ended
            }
            budgets.sample(ended, at: now.monotonicNanoseconds)
        }
        guard now.monotonicNanoseconds >= budgets.nextCount else { return }
        // Pushes that return from the store take slots, and no room of the intake.
        if count > limits.capacity - limits.capacity / 4 {
            makeRoom(pushes: min(budgets.room, limits.capacity), at: now)
        }
        guard budgets.hasParked else { return }
        countResidents(at: now)
        for tenant in budgets.tenants.indices where budgets.tenants[tenant].isParked {
            returnParked(tenant, at: now)
        }
    }

    /// Time of the next ``advanceBudgets(at:)`` that has work; nil while no tenant is parked.
    var nextBudgetWake: UInt64? { budgets.hasParked ? budgets.nextCount : nil }

    /// Returns how many more requests may begin on a pool with this many in flight. Requests without an answer must not take
    /// all the room of the other pools.
    public func flightRoom(_ inFlight: Int) -> Int {
        let free = max(0, budgets.room - milestones[.inFlight])
        return max(1, free < 1 << 40 ? 3 * free : free) - inFlight
    }

    /// Returns true when an arriving push of a parked tenant is parked as well. The store's own pushes may return until
    /// the share is used.
    mutating func mustPark(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        let circuit = circuits[Int(item.pointee.topic)]
        guard circuit.isParked, !item.pointee.isOrdered, circuit.probe != slot else { return false }
        let tenant = Int(circuit.tenant)
        guard budgets.tenants[tenant].kept < limits.parkedPushes else { return false }
        let hasRoom =
            budgets.tenants[tenant].resident < budgets.share(tenant, at: now.monotonicNanoseconds)
        guard hasRoom, item.pointee.flags.contains(.offsetDone) || item.pointee.priority == .immediate else {
            return true
        }
        budgets.tenants[tenant].resident += 1
        return false
    }

    /// Numbers of the tenants with pushes beyond their share that are parked, or take the room of others.
    public var tenantsOverShare: [UInt32] {
        budgets.tenants.filter { $0.isParked || $0.isCrowding }.map(\.number)
    }

    /// Counts the pushes in memory by tenant, without those that leave memory once the store has them. O(slots).
    private mutating func countResidents(at now: DeliveryTime) {
        for topic in circuits.indices where circuits[topic].tenant == TopicCircuit.noTenant {
            circuits[topic].tenant = budgets.index(of: .max - UInt32(topic))
        }
        var resident = [Int](repeating: 0, count: budgets.tenants.count)
        for slot in 0..<highWater {
            switch items[slot].state {
            case .free, .finished, .topicCircuitOpen, .poolUnavailable: continue
            default: resident[Int(circuits[Int(items[slot].topic)].tenant)] += 1
            }
        }
        budgets.count(resident, at: now.monotonicNanoseconds) { circuits[Int($0)].tenant }
    }

    private func topics(of tenant: Int) -> [Int] { circuits.indices.filter { circuits[$0].tenant == tenant } }

    /// Parks a tenant's pushes beyond its share: those of lower priority beyond half of it, the newest first. Pushes
    /// between two attempts are only handed to the store, which brings them back in their time.
    private mutating func park(_ tenant: Int, _ share: Int, at now: DeliveryTime) {
        guard limits.storeIsDurable, budgets.tenants[tenant].kept < limits.parkedPushes else {
            budgets.tenants[tenant].isCrowding = true
            return actions.append(
                .crowds(topic: UInt16(topics(of: tenant)[0]), pushes: budgets.tenants[tenant].resident))
        }
        if !budgets.tenants[tenant].isParked { beginParking(tenant, at: now) }
        var waiting: [(isUrgent: Bool, order: UInt64, slot: UInt32)] = []
        for slot in 0..<UInt32(highWater) {
            let item = items + Int(slot)
            guard Int(circuits[Int(item.pointee.topic)].tenant) == tenant, !item.pointee.isOrdered else {
                continue
            }
            switch item.pointee.state {
            case .waiting:
                waiting.append((item.pointee.priority == .immediate, item.pointee.order, slot))
            case .retrying, .coalescing, .scheduled, .confirming:
                relieveLongWait(slot, at: now)
            default: break
            }
        }
        let others = budgets.tenants[tenant].resident - waiting.count
        let urgent = min(waiting.count { $0.isUrgent }, max(0, share - others))
        let lower = max(0, share / 2 - others - urgent)
        waiting.sort { $0.isUrgent != $1.isUrgent ? $0.isUrgent : $0.order < $1.order }
        let firstLower = waiting.firstIndex { !$0.isUrgent } ?? waiting.count
        for (place, push) in waiting.enumerated()
        where place >= (push.isUrgent ? urgent : firstLower + lower) {
            withdraw(push.slot)
            waitForCircuit(push.slot, at: now)
            budgets.tenants[tenant].resident -= 1
        }
    }

    private mutating func beginParking(_ tenant: Int, at now: DeliveryTime) {
        budgets.tenants[tenant].isParked = true
        budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
        milestones.parkings += 1
        let topics = topics(of: tenant)
        actions.append(.parked(topic: UInt16(topics[0]), pushes: budgets.tenants[tenant].resident))
        for topic in topics {
            if !circuits[topic].isWatched { openCircuits += 1 }
            circuits[topic].isParked = true
            suspended(topic: UInt16(topic))
        }
    }

    /// Lets parked pushes return until half of the share is used. Those in memory come first. The others are asked for.
    private mutating func returnParked(_ tenant: Int, at now: DeliveryTime) {
        let half = max(1, budgets.share(tenant, at: now.monotonicNanoseconds) / 2)
        let topics = topics(of: tenant).filter {
            !circuits[$0].holdsBack && !isUnavailable(circuits[$0].pool)
        }
        var wanted = half - budgets.tenants[tenant].resident
        for topic in topics {
            while wanted > 0, circuits[topic].waiting.count > 0 {
                let slot = circuits[topic].waiting.first
                withdraw(slot)
                dispatch(slot, at: now, mayPark: false)
                budgets.tenants[tenant].resident += 1
                budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
                wanted -= 1
            }
        }
        guard wanted > 0, !topics.isEmpty else {
            budgets.tenants[tenant].returnedAt = now.monotonicNanoseconds
            return
        }
        guard now.monotonicNanoseconds < budgets.tenants[tenant].returnedAt &+ Budgets.emptyAfter else {
            return endParking(tenant, at: now)
        }
        for topic in topics { actions.append(.pushesWanted(topic: UInt16(topic), count: wanted)) }
    }

    /// Ends the parking of a tenant, because the store seems to have nothing left. What it has after all returns with the
    /// topics.
    private mutating func endParking(_ tenant: Int, at now: DeliveryTime) {
        budgets.tenants[tenant].isParked = false
        let topics = topics(of: tenant)
        actions.append(.unparked(topic: UInt16(topics[0])))
        for topic in topics {
            circuits[topic].isParked = false
            guard !circuits[topic].holdsBack else { continue }
            openCircuits -= 1
            resumed(topic: UInt16(topic))
            releaseWaiting(UInt16(topic), at: now)
        }
    }

    /// Notes that the store has brought back a parked push.
    mutating func parkedReturned(_ topic: UInt16, at now: DeliveryTime) {
        guard circuits[Int(topic)].isParked else { return }
        budgets.tenants[Int(circuits[Int(topic)].tenant)].returnedAt = now.monotonicNanoseconds
    }
}
