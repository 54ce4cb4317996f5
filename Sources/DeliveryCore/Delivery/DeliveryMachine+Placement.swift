import CPrefetch
import SluiceModel

extension DeliveryMachine {
    /// Finds the state of an undispatched item: ends it, puts it in the scheduler, or makes it wait for the first
    /// cause that holds it up.
    /// - Parameter mayPark: false for a parked push whose turn it is.
    mutating func dispatch(
        _ slot: UInt32, at now: DeliveryTime, atFront: Bool = false, mayPark: Bool = true
    ) {
        let item = items + Int(slot)
        if isEnding(item.pointee.partition) { return drop(slot, at: now) }
        if lastMoment(slot) <= now.wallMilliseconds { return finish(slot, .expired, at: now) }
        if item.pointee.flags.contains(.moves) {
            guard moves[slot]?.mayWait == true else { return moveOn(slot, at: now) }
            // The store doesn't get the item under the old token: the token change may be done already.
            setWaiting(slot, .retrying)
            timers.insert(slot, due: now.monotonic(inMilliseconds: Self.moveInterval))
            return actions.append(.moveWanted(slot))
        }
        if item.pointee.deliverAt > now.wallMilliseconds {
            if item.pointee.deliverAt >= item.pointee.expiry { return finish(slot, .expired, at: now) }
            let wait = item.pointee.deliverAt - now.wallMilliseconds
            return delay(slot, .scheduled, until: now.monotonic(inMilliseconds: wait), at: now)
        }
        if item.pointee.notBefore > now.monotonicNanoseconds {
            let state: ItemState =
                item.pointee.attempts == 0 && item.pointee.refusals == 0 ? .coalescing : .retrying
            return delay(slot, state, until: item.pointee.notBefore, at: now)
        }
        if mustHold(slot) { return hold(slot, at: now) }
        if awaitsCatchUp(slot) { return waitForCatchUp(slot, at: now) }
        if let until = heldByServer(slot, at: now) { return delay(slot, .retrying, until: until, at: now) }
        if isUnavailable(item.pointee.pool) { return waitForPool(slot, at: now) }
        if openCircuits > 0, !circuitAdmits(slot) || mayPark && !atFront && mustPark(slot, at: now) {
            return waitForCircuit(slot, at: now)
        }
        if isDeviceLimited(slot) {
            devices.entries[Int(item.pointee.device)].deviceLimited += 1
            return setWaiting(slot, .deviceLimited)
        }
        setState(slot, .waiting)
        actions.append(.enqueue(slot, atFront: atFront))
    }

    /// Milliseconds between two requests for the move of an item that has to wait.
    private static let moveInterval: Int64 = 100

    /// Sets a waiting state outside of the scheduler. A probe in such a state reports nothing about its topic.
    mutating func setWaiting(_ slot: UInt32, _ state: ItemState) {
        setState(slot, state)
        if openCircuits > 0 { probeLeft(slot) }
    }

    /// Returns true when the item's device has as many other items in flight as it may, or the item is a broadcast and
    /// its channel isn't free for it.
    private func isDeviceLimited(_ slot: UInt32) -> Bool {
        if isAlone(slot) { return false }
        return inFlight(items[Int(slot)].device) >= limits.inFlightPerDevice
            || items[Int(slot)].isOrdered && isBehindBroadcast(slot)
    }

    /// Returns true when a broadcast of the item's channel is in flight, or an earlier one has not ended. A broadcast
    /// whose time of sending is to come holds up none, so that it may find a later one in flight at that time.
    private func isBehindBroadcast(_ slot: UInt32) -> Bool {
        let order = items[Int(slot)].order
        var other = devices.entries[Int(items[Int(slot)].device)].first
        while other != Self.noSlot {
            let item = items + Int(other)
            defer { other = item.pointee.next }
            guard item.pointee.isOrdered, other != slot else { continue }
            switch item.pointee.state {
            case .inFlight: return true
            case .scheduled, .free, .finished: continue
            default: if item.pointee.order < order { return true }
            }
        }
        return false
    }

    /// Returns true when the item's device is offline, and its job asks to keep it then.
    func mustHold(_ slot: UInt32) -> Bool {
        let item = items + Int(slot)
        return item.pointee.delivery != .accept && !item.pointee.flags.contains(.ignoresPresence)
            && isOffline(item.pointee.device)
    }

    /// Returns true when the device has reported that it is offline. A missing receipt alone doesn't count.
    func isReportedOffline(_ slot: UInt32) -> Bool {
        let presence = devices.entries[Int(items[Int(slot)].device)].presence
        return presence != Self.noSlot && presences[presence].presence == .offline
    }

    /// Returns the time until which APNs accepts nothing for the item's device, on the monotonic clock; nil when it
    /// accepts.
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

    /// Holds an item until its device is back. A device that only failed to confirm in time gets further attempts
    /// without news of it, at growing intervals.
    ///
    /// - Parameter until: end of the wait in milliseconds since the epoch, when the item waits for it already; 0
    ///   otherwise.
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

    /// Returns true when the item has time left and its partition stays. The item may then resume the wait that it
    /// arrived with.
    func mayWait(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        lastMoment(slot) > now.wallMilliseconds && !isEnding(items[Int(slot)].partition)
    }

    /// Waits for the device to confirm a push that APNs has accepted, until `until` on the wall clock or the job's
    /// timeout.
    mutating func awaitReceipt(_ slot: UInt32, until: Int64? = nil, at now: DeliveryTime) {
        let item = items + Int(slot)
        item.pointee.flags.insert(.accepted)
        let wait =
            until.map { $0 - now.wallMilliseconds } ?? Int64(item.pointee.receiptTimeoutSeconds) * 1000
        delay(slot, .confirming, until: now.monotonic(inMilliseconds: wait), at: now)
    }

    // MARK: Its turn

    /// Begins an attempt because the scheduler has given the item a place on a connection. Returns false when the
    /// item must not be sent now. The owner takes the place back, and actions decide about the item.
    public mutating func beginAttempt(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        precondition(item.pointee.state == .waiting, "slot \(slot) is \(item.pointee.state), not waiting")
        let device = devices.entries + Int(item.pointee.device)
        // The entry is needed by the end of the attempt.
        sluice_prefetch(device)
        if lastMoment(slot) <= now.wallMilliseconds || isDeviceLimited(slot)
            || (item.pointee.delivery != .accept && mustHold(slot))
            || (openCircuits > 0 && !circuitAdmits(slot)) || heldByServer(slot, at: now) != nil
        {
            setState(slot, .undispatched)
            dispatch(slot, at: now)
            return false
        }
        setState(slot, .inFlight)
        item.pointee.round = circuits[Int(item.pointee.topic)].begin()
        item.pointee.flags.insert(.changed)
        if item.pointee.isIsolated { isolations[item.pointee.pool, default: Isolation()].begin() }
        if !isAlone(slot) { device.pointee.inFlight += 1 }
        item.pointee.attempts = min(item.pointee.attempts, .max - 1) + 1
        if item.pointee.firstSent == 0 { item.pointee.firstSent = now.wallMilliseconds }
        milestones.sent += 1
        return true
    }

    /// Returns the item to the front of its queue, as if it had not begun, because the connection didn't accept the
    /// request.
    public mutating func notSent(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        assert(item.pointee.state == .inFlight, "slot \(slot) is \(item.pointee.state), and wasn't begun")
        let flags = item.pointee.flags
        let device = leaveStream(slot)
        item.pointee.flags = flags
        item.pointee.attempts -= 1
        if item.pointee.attempts == 0, item.pointee.refusals == 0 { item.pointee.firstSent = 0 }
        milestones.sent -= 1
        retryOrEnd(slot, inMilliseconds: 0, isRetry: false, at: now)
        releaseDeviceLimited(device, at: now)
    }

    /// Takes an item off its stream, which leaves it undispatched. Returns its device.
    /// - Parameter verdict: opinion of APNs on the item's device token.
    mutating func leaveStream(_ slot: UInt32, _ verdict: TokenVerdict = .unknown) -> UInt32 {
        let (device, state) = (items[Int(slot)].device, items[Int(slot)].state)
        precondition(state == .inFlight, "slot \(slot) is \(state), not in flight")
        let round = items[Int(slot)].round
        if round > 0 {
            circuits[Int(items[Int(slot)].topic)].tokens.end(round, verdict)
            items[Int(slot)].round = 0
        }
        if items[Int(slot)].isIsolated { isolations[items[Int(slot)].pool]?.end() }
        items[Int(slot)].flags.remove(.ignoresPresence)
        if !isAlone(slot) { devices.entries[Int(device)].inFlight -= 1 }
        setState(slot, .undispatched)
        return device
    }

    /// Releases the device's earliest limited item. If it isn't sent after all, the sweep finds the next items.
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
        dispatch(oldest, at: now)
    }
}
