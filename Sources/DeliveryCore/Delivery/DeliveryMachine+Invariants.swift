extension DeliveryMachine {
    /// Returns the first invariant that doesn't hold; nil when all hold. O(items): for tests and the simulation.
    public func checkInvariants() -> String? {
        guard milestones.isBalanced else { return "milestones don't add up" }
        guard milestones[.undispatched] == 0 else { return "an item is undispatched" }
        var (live, flying, suspended, returns, timed, judged, isolated) = (0, 0, 0, 0, 0, 0, 0)
        for index in 0..<highWater where items[index].state.isLive {
            live += 1
            let item = items[index]
            let device = devices.entries[Int(item.device)]
            guard device.isUsed else { return "slot \(index) has no device" }
            if let problem = checkLinks(UInt32(index), item) { return problem }
            switch item.state {
            case .inFlight:
                flying += 1
                if item.isIsolated { isolated += 1 }
            case .topicCircuitOpen: suspended += 1
            case .returning: returns += 1
            default: break
            }
            if timers.due(of: UInt32(index)) != nil { timed += 1 }
            if item.round > 0 { judged += 1 }
            if let problem = checkTimer(UInt32(index), item) { return problem }
        }
        guard live == milestones.pending else { return "\(live) live items, \(milestones.pending) counted" }
        guard flying == milestones[.inFlight] else { return "in flight" }
        guard timed == timers.count else { return "timers of items that are gone" }
        guard isolated == isolations.reduce(0, { $0 + $1.value.inFlight }) else { return "isolated" }
        guard suspended == circuits.reduce(0, { $0 + $1.waiting.count }) else { return "suspended" }
        guard milestones[.poolUnavailable] == unavailablePools.reduce(0, { $0 + ($1?.count ?? 0) }) else {
            return "pool unavailable"
        }
        guard judged == circuits.reduce(0, { $0 + $1.tokens.inFlight }) else { return "rounds of tokens" }
        guard openCircuits == circuits.count(where: { $0.isWatched }) else { return "circuits" }
        for circuit in circuits where !circuit.isWatched && circuit.waiting.count > 0 {
            return "items are suspended at a closed circuit"
        }
        guard returns == returningCount else { return "returning" }
        return checkDevices()
    }

    /// Checks `slots` slots from `start` on, and the counts that need no other slots. For production, a part at a
    /// time.
    /// - Returns: the slot to continue with, and the first invariant that doesn't hold; nil when all hold.
    public func checkInvariants(from start: Int, slots: Int) -> (next: Int, problem: String?) {
        let end = min(highWater, max(0, start) + max(1, slots))
        let next = end == highWater ? 0 : end
        guard milestones.isBalanced else { return (next, "milestones don't add up") }
        guard milestones[.undispatched] == 0 else { return (next, "an item is undispatched") }
        guard start < end else { return (next, nil) }
        for index in max(0, start)..<end where items[index].state.isLive {
            let item = items[index]
            let device = devices.entries[Int(item.device)]
            guard device.isUsed else { return (next, "slot \(index) has no device") }
            if let problem = checkLinks(UInt32(index), item) { return (next, problem) }
            if let problem = checkTimer(UInt32(index), item) { return (next, problem) }
            guard device.pending <= Self.mostChecked else { continue }
            if let problem = checkItems(of: device, item.device) { return (next, problem) }
        }
        return (next, nil)
    }

    /// Items of a device up to which each item is compared with all others.
    private static var mostChecked: Int { 32 }

    private func checkTimer(_ slot: UInt32, _ item: DeliveryItem) -> String? {
        let isTimed = timers.due(of: slot) != nil
        switch item.state {
        case .coalescing, .retrying, .scheduled, .confirming:
            return isTimed ? nil : "slot \(slot) is \(item.state) without a timer"
        case .held: return nil
        default: return isTimed ? "slot \(slot) is \(item.state) with a timer" : nil
        }
    }

    private func checkLinks(_ slot: UInt32, _ item: DeliveryItem) -> String? {
        if item.next != Self.noSlot, items[Int(item.next)].previous != slot { return "list of slot \(slot)" }
        if item.peer == Self.noSlot {
            return item.state == .blocked ? "slot \(slot) is blocked behind nothing" : nil
        }
        let peer = items[Int(item.peer)]
        guard peer.peer == slot, peer.identity == item.identity else { return "peers of slot \(slot)" }
        guard
            item.state == .blocked && peer.state == .inFlight
                || item.state == .inFlight && peer.state == .blocked
        else { return "slot \(slot) is \(item.state), its peer \(peer.state)" }
        return nil
    }

    private func checkDevices() -> String? {
        var (used, items, known) = (0, 0, 0)
        for index in 0..<devices.highWater where devices.entries[index].isUsed {
            used += 1
            let device = devices.entries[index]
            if device.presence != Self.noSlot {
                known += 1
                guard presences[device.presence].device == UInt32(index) else {
                    return "presence of a device"
                }
            }
            guard devices.find(device.key) == UInt32(index) else { return "a device isn't found" }
            if let problem = checkItems(of: device, UInt32(index)) { return problem }
            items += Int(device.pending)
            guard device.pending > 0 || device.presence != Self.noSlot || device.isRetiring else {
                return "an idle device"
            }
        }
        guard used == devices.count else { return "devices in use" }
        guard known == presences.count, known <= presences.capacity else { return "presences" }
        return items == milestones.pending ? nil : "items of devices"
    }

    private func checkItems(of device: DeviceEntry, _ index: UInt32) -> String? {
        var (pending, flying, deviceLimited) = (0, 0, 0)
        var slot = device.first
        while slot != Self.noSlot {
            let item = items[Int(slot)]
            guard item.device == index, item.state.isLive else { return "slot \(slot) under a device" }
            pending += 1
            if item.state == .inFlight { flying += 1 }
            if item.state == .deviceLimited { deviceLimited += 1 }
            var other = item.next
            while other != Self.noSlot {
                let twin = items[Int(other)]
                if twin.identity == item.identity, twin.peer != slot {
                    return "two of one identity: \(slot), \(other)"
                }
                other = twin.next
            }
            slot = item.next
        }
        guard pending == Int(device.pending), flying == inFlight(index),
            deviceLimited == Int(device.deviceLimited)
        else { return "counts of a device" }
        return flying <= limits.inFlightPerDevice ? nil : "too many in flight for one device"
    }
}
