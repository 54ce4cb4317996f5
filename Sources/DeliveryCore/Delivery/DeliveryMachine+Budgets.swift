import SluiceModel

/// Pushes of tenants beyond their share of the worker's room, see ``Budgets``. They are parked: they wait with their topics,
/// as pushes of a stopped topic do, and leave memory once the store has them. They return as their tenant ends others:
/// those in memory in their order, and those in the store in the order in which they expire. Pushes that arrive meanwhile
/// are parked behind them. Half of the share is kept for priority 10.
///
/// A worker that reads ahead parks pushes of priority 5 and 1 in the same way. Arriving ones are parked only while room is
/// scarce and the streams have enough. Priority 10 isn't parked for that.
extension DeliveryMachine {
    /// Names the tenant of a topic: an app on a pool. To be called before the topic's first push.
    /// - Parameter isLimited: true when the tenant has a pace or a maximum in flight of its own.
    public mutating func setTenant(_ number: UInt32, ofTopic topic: UInt16, weight: Int, isLimited: Bool) {
        makeRoom(topic: topic)
        let index = budgets.index(of: number)
        budgets.set(Int(index), weight: weight, isLimited: isLimited)
        circuits[Int(topic)].tenant = index
        if let maximum = budgets.firstMaximumInFlight(Int(index)) {
            actions.append(.limitsFlights(tenant: number, maximum))
        }
        if budgets.parking(Int(index)) != nil, !circuits[Int(topic)].isParked {
            beginParking(topic: Int(topic))
        }
    }

    // MARK: Time

    /// Parks pushes of tenants beyond their share, or to read ahead, because the worker is nearly full.
    /// - Parameters:
    ///   - room: pushes that this machine may have in memory.
    ///   - kept: the part of the room that tenants share meanwhile; nil: all of it.
    ///   - tenants: numbers of the tenants that have pushes on this shard or another.
    public mutating func makeRoom(
        pushes room: Int, keeping kept: Int? = nil, tenants: Set<UInt32> = [], at now: DeliveryTime
    ) {
        budgets.noteShortage(
            room: room, keeping: kept ?? room, tenants: tenants, at: now.monotonicNanoseconds)
        evictSuspended(at: now)
        makeRoom(.jobs, at: now)
        for (tenant, isActive) in budgets.changesOfActivity(at: now.monotonicNanoseconds) {
            actions.append(.tenant(tenant, isActive: isActive))
        }
    }

    /// Evicts pushes that wait with their topic or pool, because the sweep comes too late.
    private mutating func evictSuspended(at now: DeliveryTime) {
        guard milestones[.topicCircuitOpen] + milestones[.poolUnavailable] > 0 else { return }
        for slot in 0..<UInt32(highWater) {
            let state = items[Int(slot)].state
            guard state == .topicCircuitOpen || state == .poolUnavailable else { continue }
            evict(items[Int(slot)].device, at: now)
        }
    }

    /// Parks pushes that have returned from the store, because they take the room for those of others. To be called while
    /// three quarters of that room are taken.
    mutating func makeRoomForRestored(at now: DeliveryTime) {
        guard budgets.isParkingDue(at: now.monotonicNanoseconds) else { return }
        makeRoom(.restored, at: now)
    }

    private mutating func makeRoom(_ scarcity: Budgets.Scarcity, at now: DeliveryTime) {
        guard hasTenants() else { return }
        countUsage(at: now)
        for tenant in 0..<budgets.count {
            // A tenant that sends, and keeps what it can send soon, isn't slow any more.
            if scarcity == .jobs, let stay = budgets.staysAhead(tenant) {
                parkAhead(tenant, but: stay, at: now)
            }
            switch budgets.judge(tenant, scarcity, at: now.monotonicNanoseconds) {
            case .keeps: break
            case .parks(let share): park(tenant, beyond: share, at: now)
            case .crowds:
                actions.append(
                    .crowds(topic: UInt16(topics(of: tenant)[0]), pushes: budgets.usage(tenant).all))
            }
        }
    }

    /// Samples the tenants, and lets parked pushes return.
    mutating func advanceBudgets(at now: DeliveryTime) {
        if budgets.isSampleDue(at: now.monotonicNanoseconds), hasTenants() {
            countUsage(at: now)
            var ended = [Int](repeating: 0, count: budgets.count)
            var answered = ended
            for circuit in circuits {
                ended[Int(circuit.tenant)] += circuit.ended
                answered[Int(circuit.tenant)] += circuit.answered
            }
            budgets.sample(ended, answered: answered, at: now.monotonicNanoseconds)
            for (tenant, maximum) in budgets.newMaximaInFlight() {
                actions.append(.limitsFlights(tenant: tenant, maximum))
            }
        }
        guard budgets.isReturnDue(at: now.monotonicNanoseconds), hasTenants() else { return }
        countUsage(at: now)
        for tenant in 0..<budgets.count where budgets.parking(tenant) != nil {
            returnParked(tenant, at: now)
        }
    }

    /// Time of the next ``advanceBudgets(at:)`` that has work; nil while no tenant is parked.
    var nextBudgetWake: UInt64? { budgets.hasParked ? budgets.nextReturn : nil }

    // MARK: Counts

    /// Returns true when there are tenants that may park pushes: several, here or on other shards, or one where the worker
    /// reads ahead. Makes each topic without a tenant a tenant of its own.
    private mutating func hasTenants() -> Bool {
        for topic in circuits.indices where circuits[topic].tenant == TopicCircuit.noTenant {
            circuits[topic].tenant = budgets.index(of: .max - UInt32(topic))
        }
        return budgets.count > (limits.readsAhead || limits.hasNeighbours ? 0 : 1)
    }

    /// Counts the pushes in memory by tenant. O(slots).
    private mutating func countUsage(at now: DeliveryTime) {
        var usage = [Budgets.Usage](repeating: .init(), count: budgets.count)
        for slot in 0..<highWater {
            switch items[slot].state {
            case .free, .finished, .topicCircuitOpen, .poolUnavailable: continue
            default: break
            }
            let tenant = Int(circuits[Int(items[slot].topic)].tenant)
            usage[tenant].all += 1
            switch items[slot].state {
            case .waiting, .retrying: usage[tenant].ready += 1
            case .inFlight:
                let device = devices.entries[Int(items[slot].device)]
                usage[tenant].ready += 1
                usage[tenant].inFlight += 1
                usage[tenant].bound += max(1, Int(device.pending) / max(1, Int(device.inFlight)))
            default: break
            }
            let isStored = items[slot].flags.contains(.offsetDone)
            if isStored { usage[tenant].stored += 1 }
            guard items[slot].priority != .immediate else { continue }
            usage[tenant].lower += 1
            guard items[slot].state == .waiting else { continue }
            usage[tenant].waiting += 1
            if isStored { usage[tenant].returned += 1 }
        }
        budgets.count(usage, at: now.monotonicNanoseconds) { circuits[Int($0)].tenant }
    }

    private func topics(of tenant: Int) -> [Int] { circuits.indices.filter { circuits[$0].tenant == tenant } }

    /// Numbers of the tenants with pushes beyond their share that are parked, or take the room of others.
    public var tenantsOverShare: [UInt32] { budgets.overShare }

    // MARK: Parking

    /// Returns true when an arriving push of a parked tenant is parked as well. Priority 10, and the store's own pushes, may
    /// use the share.
    mutating func mustPark(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        let topic = Int(item.pointee.topic)
        guard circuits[topic].isParked, !item.pointee.isOrdered, !item.pointee.isIsolated,
            circuits[topic].probe != slot
        else { return false }
        let tenant = Int(circuits[topic].tenant)
        if budgets.parking(tenant) == .ahead { return mustParkAhead(slot, of: tenant, at: now) }
        // The bound doesn't end a device's order.
        guard budgets.mayPark(tenant) || isBehindParked(slot) else { return false }
        let isStored = item.pointee.flags.contains(.offsetDone)
        // The share may be full of pushes that wait for their time.
        let hasRoom = budgets.hasShareLeft(tenant) || isStored && budgets.lacksReady(tenant)
        guard isStored || item.pointee.priority == .immediate, hasRoom, !isBehindParked(slot) else {
            return true
        }
        budgets.enters(tenant)
        return false
    }

    /// Returns true when an arriving push is parked so that the records behind it are read. The store's own pushes have
    /// been parked before.
    private mutating func mustParkAhead(_ slot: UInt32, of tenant: Int, at now: DeliveryTime) -> Bool {
        guard items[Int(slot)].priority != .immediate else { return false }
        if isBehindParked(slot) { return true }
        if items[Int(slot)].flags.contains(.offsetDone) || expiresSoon(slot, at: now)
            || !budgets.parksAhead(
                tenant, waiting: milestones[.waiting], at: now.monotonicNanoseconds)
        {
            budgets.enters(tenant)
            return false
        }
        return true
    }

    /// Returns true when the store would bring the item back before long, because the item expires.
    private func expiresSoon(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        lastMoment(slot) - now.wallMilliseconds <= 2 * limits.residentMilliseconds
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
    private mutating func park(_ tenant: Int, beyond share: Int, at now: DeliveryTime) {
        if budgets.parking(tenant) != .share { beginParking(tenant, .share, at: now) }
        var urgent: [UInt32] = []
        var lower: [UInt32] = []
        for slot in 0..<UInt32(highWater) {
            let item = items + Int(slot)
            let topic = Int(item.pointee.topic)
            guard Int(circuits[topic].tenant) == tenant, !item.pointee.isOrdered, !item.pointee.isIsolated
            else { continue }
            switch item.pointee.state {
            case .waiting where circuits[topic].probe != slot:
                if item.pointee.priority == .immediate { urgent.append(slot) } else { lower.append(slot) }
            case .retrying, .coalescing, .scheduled, .confirming: relieveLongWait(slot, at: now)
            default: break
            }
        }
        let stay = budgets.stay(
            tenant, beyond: share, urgent: urgent.count,
            others: budgets.usage(tenant).all - urgent.count - lower.count)
        park(urgent, but: stay.urgent, of: tenant, at: now)
        park(lower, but: stay.lower, of: tenant, at: now)
    }

    /// Parks a tenant's waiting pushes of lower priority that take room for jobs, the newest first.
    private mutating func parkAhead(_ tenant: Int, but stay: Int, at now: DeliveryTime) {
        var slots: [UInt32] = []
        for slot in 0..<UInt32(highWater) {
            let item = items + Int(slot)
            let topic = Int(item.pointee.topic)
            guard item.pointee.state == .waiting, item.pointee.priority != .immediate,
                Int(circuits[topic].tenant) == tenant, circuits[topic].probe != slot,
                !item.pointee.isOrdered, !item.pointee.isIsolated,
                !item.pointee.flags.contains(.offsetDone),
                !expiresSoon(slot, at: now), !isBeforeParked(slot, at: now)
            else { continue }
            slots.append(slot)
        }
        guard slots.count > stay else { return }
        if budgets.parking(tenant) == nil { beginParking(tenant, .ahead, at: now) }
        park(slots, but: stay, of: tenant, at: now)
    }

    /// Returns true when a younger push of the item's device would be sent before the item returns: it is parked in memory, or
    /// waits for a stream and isn't parked any more.
    private func isBeforeParked(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        if isAlone(slot) { return false }
        var other = devices.entries[Int(items[Int(slot)].device)].first
        while other != Self.noSlot {
            let item = items + Int(other)
            let isParked = item.pointee.state == .topicCircuitOpen
            let stays =
                item.pointee.state == .waiting
                && (item.pointee.flags.contains(.offsetDone) || item.pointee.isIsolated
                    || expiresSoon(other, at: now))
            if isParked || stays, item.pointee.order > items[Int(slot)].order { return true }
            other = item.pointee.next
        }
        return false
    }

    /// Parks waiting pushes, except for the oldest ones.
    private mutating func park(_ slots: [UInt32], but stay: Int, of tenant: Int, at now: DeliveryTime) {
        for slot in slots.sorted(by: { items[Int($0)].order < items[Int($1)].order }).dropFirst(stay) {
            withdraw(slot)
            waitForCircuit(slot, at: now)
            budgets.leaves(tenant)
        }
    }

    private mutating func beginParking(_ tenant: Int, _ cause: Budgets.Parking, at now: DeliveryTime) {
        budgets.beginParking(tenant, cause, at: now.monotonicNanoseconds)
        let topics = topics(of: tenant)
        let pushes = budgets.usage(tenant).all
        switch cause {
        case .share:
            milestones.parkings += 1
            actions.append(.parked(topic: UInt16(topics[0]), pushes: pushes))
        case .ahead:
            milestones.readAheads += 1
            actions.append(.readsAhead(topic: UInt16(topics[0]), pushes: pushes))
        }
        for topic in topics where !circuits[topic].isParked { beginParking(topic: topic) }
    }

    private mutating func beginParking(topic: Int) {
        if !circuits[topic].isWatched { openCircuits += 1 }
        circuits[topic].isParked = true
        suspended(topic: UInt16(topic))
    }

    // MARK: Return

    /// Lets parked pushes return. Those in memory come first. The others are asked for.
    private mutating func returnParked(_ tenant: Int, at now: DeliveryTime) {
        let all = topics(of: tenant)
        let topics = all.filter { !circuits[$0].holdsBack && !isUnavailable(circuits[$0].pool) }
        var wanted = budgets.wanted(tenant, at: now.monotonicNanoseconds)
        for topic in topics {
            while wanted > 0, circuits[topic].waiting.count > 0 {
                let slot = circuits[topic].waiting.first
                withdraw(slot)
                dispatch(slot, at: now, mayPark: false)
                budgets.enters(tenant)
                budgets.returned(tenant, at: now.monotonicNanoseconds)
                wanted -= 1
            }
        }
        let asked = budgets.wantedOfStore(tenant, left: wanted)
        guard asked > 0, !topics.isEmpty else {
            return budgets.returned(tenant, at: now.monotonicNanoseconds)
        }
        let kept = budgets.keptTopics
        guard all.contains(where: { kept.contains(UInt16($0)) }),
            !budgets.isOverdue(tenant, at: now.monotonicNanoseconds)
        else {
            // Pushes in memory return first.
            return wanted > 0 ? endParking(tenant, at: now) : ()
        }
        for topic in topics where kept.contains(UInt16(topic)) {
            actions.append(.pushesWanted(topic: UInt16(topic), count: asked))
        }
    }

    /// Ends reading ahead for the tenant of a topic that sends again. Pushes of priority 10 have waited with the topic, also
    /// in the store, and must not return at the pace of the others.
    mutating func endReadingAhead(_ topic: UInt16, at now: DeliveryTime) {
        let circuit = circuits[Int(topic)]
        guard circuit.isParked, !circuit.holdsBack, budgets.parking(Int(circuit.tenant)) == .ahead else {
            return
        }
        endParking(Int(circuit.tenant), at: now)
    }

    /// Ends the parking of a tenant. What the store has returns with the topics.
    private mutating func endParking(_ tenant: Int, at now: DeliveryTime) {
        budgets.endParking(tenant)
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

    /// Notes that the store has brought back a push that waited there with its topic, whatever became of it.
    mutating func keptReturned(_ facts: PushFacts, at now: DeliveryTime) {
        let circuit = Int(facts.topic) < circuits.count ? circuits[Int(facts.topic)] : TopicCircuit()
        budgets.keeps(-1, partition: facts.partition, topic: facts.topic, of: circuit.tenant)
        guard circuit.isParked else { return }
        budgets.returned(Int(circuit.tenant), at: now.monotonicNanoseconds)
    }
}
