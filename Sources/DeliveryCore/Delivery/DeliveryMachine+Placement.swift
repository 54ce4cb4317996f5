import CPrefetch
import SluiceModel

extension DeliveryMachine {
    /// Finds the place of an unplaced item: its end, the scheduler, or whatever it has to wait for first.
    mutating func place(_ slot: UInt32, at now: DeliveryTime, atFront: Bool = false) {
        let item = items + Int(slot)
        if isEnding(item.pointee.partition) { return drop(slot, at: now) }
        if lastMoment(slot) <= now.wallMilliseconds { return end(slot, .expired, at: now) }
        if item.pointee.flags.contains(.moves), let move = moves.removeValue(forKey: slot) {
            item.pointee.flags.remove(.moves)
            return self.move(slot, to: move, at: now)
        }
        if item.pointee.deliverAt > now.wallMilliseconds {
            if item.pointee.deliverAt >= item.pointee.expiry { return end(slot, .expired, at: now) }
            let wait = item.pointee.deliverAt - now.wallMilliseconds
            return delay(slot, .scheduled, until: now.monotonic(inMilliseconds: wait), at: now)
        }
        if item.pointee.notBefore > now.monotonicNanoseconds {
            let state: ItemState =
                item.pointee.attempts == 0 && item.pointee.refusals == 0 ? .coalescing : .retrying
            return delay(slot, state, until: item.pointee.notBefore, at: now)
        }
        if mustHold(slot) { return hold(slot, at: now) }
        if let until = heldByServer(slot, at: now) { return delay(slot, .retrying, until: until, at: now) }
        if isStalled(item.pointee.lane) { return stall(slot, at: now) }
        if openCircuits > 0, !circuitLets(slot) { return park(slot, at: now) }
        if isDeviceLimited(slot) {
            devices.entries[Int(item.pointee.device)].deviceLimited += 1
            return setWaiting(slot, .deviceLimited)
        }
        setState(slot, .waiting)
        actions.append(.enqueue(slot, atFront: atFront))
    }

    /// A state other than the scheduler's queue: a probe that gets there tells nothing.
    private mutating func setWaiting(_ slot: UInt32, _ state: ItemState) {
        setState(slot, state)
        if openCircuits > 0 { probeLeft(slot) }
    }

    /// Its device has as many others in flight as it may.
    private func isDeviceLimited(_ slot: UInt32) -> Bool {
        !isAlone(slot) && inFlight(items[Int(slot)].device) >= limits.inFlightPerDevice
    }

    /// Its device is offline, and the job says to keep it then.
    func mustHold(_ slot: UInt32) -> Bool {
        let item = items + Int(slot)
        return item.pointee.delivery != .accept && !item.pointee.flags.contains(.ignoresPresence)
            && isOffline(item.pointee.device)
    }

    /// Its device has said that it is offline, and not only failed to confirm something.
    func isReportedOffline(_ slot: UInt32) -> Bool {
        let presence = devices.entries[Int(items[Int(slot)].device)].presence
        return presence != Self.noSlot && presences[presence].presence == .offline
    }

    /// Until when APNs takes nothing for its device; nil when it does.
    private mutating func heldByServer(_ slot: UInt32, at now: DeliveryTime) -> UInt64? {
        guard deviceBackoff.count > 0 else { return nil }
        let key = devices.entries[Int(items[Int(slot)].device)].key
        return deviceBackoff.heldUntil(device: key.low, now: now.monotonicNanoseconds)
    }

    private mutating func delay(
        _ slot: UInt32, _ state: ItemState, until: UInt64, at now: DeliveryTime
    ) {
        setWaiting(slot, state)
        timers.insert(slot, due: until)
        if until > now.monotonic(inMilliseconds: limits.storeAfterMilliseconds) { store(slot, at: now) }
    }

    /// Keeps an item until its device is back. A device that only did not confirm in time gets another attempt without
    /// news of it, later and later.
    ///
    /// - Parameter until: when that is, in milliseconds since the epoch, if the item waits for it already; 0 if not.
    mutating func hold(_ slot: UInt32, until: Int64 = 0, at now: DeliveryTime) {
        let item = items + Int(slot)
        if item.pointee.flags.contains(.accepted) { item.pointee.flags.insert(.changed) }
        item.pointee.flags.remove(.accepted)
        setWaiting(slot, .held)
        let presence = devices.entries[Int(item.pointee.device)].presence
        if presence != Self.noSlot, presences[presence].presence == .presumedOffline {
            let attempts = UInt32(max(1, item.pointee.attempts))
            let window =
                until > 0 ? until - now.wallMilliseconds : limits.confirm.window(attempt: attempts)
            timers.insert(slot, due: now.monotonic(inMilliseconds: window))
        }
        store(slot, at: now)
    }

    /// It has time left, and its partition stays: what it waited for where it comes from it may go on waiting for.
    func mayWait(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        lastMoment(slot) > now.wallMilliseconds && !isEnding(items[Int(slot)].partition)
    }

    /// APNs has it; the device is to confirm it, until a moment of the wall clock or for as long as its job says.
    mutating func awaitReceipt(_ slot: UInt32, until: Int64? = nil, at now: DeliveryTime) {
        let item = items + Int(slot)
        item.pointee.flags.insert(.accepted)
        let wait =
            until.map { $0 - now.wallMilliseconds } ?? Int64(item.pointee.receiptTimeoutSeconds) * 1000
        delay(slot, .confirming, until: now.monotonic(inMilliseconds: wait), at: now)
    }

    // MARK: Its turn

    /// The scheduler has given the item a place on a connection. False when it must not be sent now: the owner takes
    /// the place back, and actions say what becomes of the item, if anything does at once.
    public mutating func begin(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        precondition(item.pointee.state == .waiting, "slot \(slot) is \(item.pointee.state), not waiting")
        let device = devices.entries + Int(item.pointee.device)
        // For the end of the attempt, at the latest.
        sluice_prefetch(device)
        if lastMoment(slot) <= now.wallMilliseconds || isDeviceLimited(slot)
            || (item.pointee.delivery != .accept && mustHold(slot))
            || (openCircuits > 0 && !circuitLets(slot)) || heldByServer(slot, at: now) != nil
        {
            setState(slot, .unplaced)
            place(slot, at: now)
            return false
        }
        setState(slot, .inFlight)
        item.pointee.flags.insert(.changed)
        if !isAlone(slot) { device.pointee.inFlight += 1 }
        item.pointee.attempts = min(item.pointee.attempts, .max - 1) + 1
        if item.pointee.firstSent == 0 { item.pointee.firstSent = now.wallMilliseconds }
        milestones.sent += 1
        return true
    }

    /// The connection took nothing after all: the item waits at the front of its queue again, as if it had not begun.
    public mutating func notSent(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        let flags = item.pointee.flags
        let device = land(slot)
        item.pointee.flags = flags
        item.pointee.attempts -= 1
        if item.pointee.attempts == 0, item.pointee.refusals == 0 { item.pointee.firstSent = 0 }
        milestones.sent -= 1
        again(slot, inMilliseconds: 0, isRetry: false, at: now)
        releaseDeviceLimited(device, at: now)
    }

    /// Takes an item off its stream: it is unplaced. Returns its device.
    mutating func land(_ slot: UInt32) -> UInt32 {
        let (device, state) = (items[Int(slot)].device, items[Int(slot)].state)
        precondition(state == .inFlight, "slot \(slot) is \(state), not in flight")
        items[Int(slot)].flags.remove(.ignoresPresence)
        if !isAlone(slot) { devices.entries[Int(device)].inFlight -= 1 }
        setState(slot, .unplaced)
        return device
    }

    /// One more of the device may go, the one that came first. Should it come to nothing, the next are found by the
    /// sweep.
    mutating func releaseDeviceLimited(_ device: UInt32, at now: DeliveryTime) {
        let entry = devices.entries + Int(device)
        guard entry.pointee.deviceLimited > 0, inFlight(device) < limits.inFlightPerDevice else {
            return
        }
        var oldest = Self.noSlot
        var slot = entry.pointee.first
        while slot != Self.noSlot {
            if items[Int(slot)].state == .deviceLimited,
                oldest == Self.noSlot || items[Int(slot)].order < items[Int(oldest)].order
            {
                oldest = slot
            }
            slot = items[Int(slot)].next
        }
        guard oldest != Self.noSlot else { return }
        withdraw(oldest)
        place(oldest, at: now)
    }
}
