import SluiceModel

extension DeliveryMachine {
    /// Interval at which each item is checked for its expiration, in nanoseconds; each call checks a part of the
    /// items.
    private static let sweepInterval: UInt64 = 1_000_000_000
    /// Longest interval between two parts of a sweep, in nanoseconds, when nothing else wakes the owner.
    private static let sweepStep: UInt64 = 250_000_000

    /// Advances the time: ends waits, expires items, returns held items, and lets topics probe.
    public mutating func advance(to now: DeliveryTime) {
        while let slot = timers.popDue(now: now.monotonicNanoseconds) { timerFired(slot, at: now) }
        if openCircuits > 0 { advanceCircuits(at: now) }
        if pausedPools > 0 { endPauses(at: now) }
        advanceBudgets(at: now)
        returnItems(at: now)
        sweep(at: now)
    }

    /// Returns when to call ``advance(to:)`` again, on the monotonic clock; nil while nothing waits for time to pass.
    public func nextWake(after now: DeliveryTime) -> UInt64? {
        var wake = timers.nextDue ?? .max
        if count - milestones[.finished] > milestones[.inFlight] {
            // By then at least one item is checked.
            let share = Self.sweepInterval / UInt64(max(1, highWater)) + 1_000_000
            wake = min(wake, sweptAt &+ max(Self.sweepStep, share))
        }
        if openCircuits > 0 { wake = min(wake, nextCircuitWake) }
        if returningCount > 0 { wake = min(wake, nextReturn) }
        if pausedPools > 0 { wake = min(wake, nextPauseEnd(after: now)) }
        if let next = nextBudgetWake { wake = min(wake, next) }
        return wake == .max ? nil : max(wake, now.monotonicNanoseconds)
    }

    private mutating func timerFired(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .coalescing, .retrying, .scheduled:
            setState(slot, .undispatched)
            dispatch(slot, at: now)
        case .held:
            // The item gets another attempt without news of its device.
            item.pointee.flags.insert(.ignoresPresence)
            setState(slot, .undispatched)
            dispatch(slot, at: now)
        case .confirming:
            setState(slot, .undispatched)
            presumeOffline(slot, at: now)
            if item.pointee.flags.contains(.isOnce) { return finish(slot, .expired, at: now) }
            // A device that comes and goes doesn't receive the item each time.
            let pause = limits.retry.later.wait(
                attempt: UInt32(max(1, item.pointee.attempts)), using: &generator)
            item.pointee.notBefore = max(item.pointee.notBefore, now.monotonic(inMilliseconds: pause))
            hold(slot, at: now)
        default: preconditionFailure("a timer of slot \(slot), which is \(item.pointee.state)")
        }
    }

    // MARK: Returns

    var returningCount: Int { returning[0].count + returning[1].count }

    func returningList(of slot: UInt32) -> Int { items[Int(slot)].priority == .immediate ? 0 : 1 }

    private var returnInterval: UInt64 { 1_000_000_000 / UInt64(limits.returnsPerSecond) }

    /// Time of the next return.
    private var nextReturn: UInt64 {
        let ahead = returnInterval * UInt64(limits.returnBurst - 1)
        return returnSchedule > ahead ? returnSchedule - ahead : 0
    }

    /// Longest length of the lists, as the time that they take at their rate, in nanoseconds.
    private static let returnsListed: UInt64 = 10_000_000_000

    /// True when no further item returns for now: held items wait in the store. Always false without a durable store.
    var areReturnsFull: Bool {
        guard limits.storeIsDurable else { return false }
        return returningCount >= limits.returning
            || UInt64(returningCount) * returnInterval > Self.returnsListed
    }

    /// Returns true when the item expires within ten seconds. Full lists may not reach it, so it is sent without
    /// waiting.
    func expiresBeforeReturn(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        lastMoment(slot) - now.wallMilliseconds < Int64(Self.returnsListed / 1_000_000)
    }

    /// Releases a held item of an online device, if there is room by now or the item is about to expire.
    /// - Returns: false when the item stays held.
    private mutating func returnsNow(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        guard limits.storeIsDurable, isOnline(items[Int(slot)].device) else { return false }
        let isLast = expiresBeforeReturn(slot, at: now)
        guard isLast || !areReturnsFull else { return false }
        withdraw(slot)
        if isLast { dispatch(slot, at: now) } else { returns(slot) }
        return true
    }

    private mutating func returnItems(at now: DeliveryTime) {
        while returningCount > 0, nextReturn <= now.monotonicNanoseconds {
            let slot = returning[returning[0].count > 0 ? 0 : 1].first
            returnSchedule = max(returnSchedule, now.monotonicNanoseconds) + returnInterval
            withdraw(slot)
            dispatch(slot, at: now)
        }
    }

    // MARK: Expirations

    /// Checks as many items as the time since the last call requires, so that each is checked once a second. The
    /// sweep also finds scheduled items that became due by a step of the wall clock.
    private mutating func sweep(at now: DeliveryTime) {
        let elapsed = now.monotonicNanoseconds &- sweptAt
        if elapsed >= Self.sweepInterval || highWater == 0 {
            sweptAt = now.monotonicNanoseconds
            for slot in 0..<highWater { check(at: UInt32(slot), at: now) }
            return
        }
        let part = Int(elapsed / 1000) * highWater / Int(Self.sweepInterval / 1000)
        guard part > 0 else { return }
        sweptAt &+= UInt64(part) * Self.sweepInterval / UInt64(highWater)
        for _ in 0..<part {
            if sweepCursor >= highWater { sweepCursor = 0 }
            check(at: UInt32(sweepCursor), at: now)
            sweepCursor += 1
        }
    }

    private mutating func check(at slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .free, .finished, .inFlight: return
        default: break
        }
        // A blocked item ends with the attempt before it. Otherwise that attempt would be retried.
        if lastMoment(slot) <= now.wallMilliseconds, item.pointee.state != .blocked {
            return finish(slot, .expired, at: now)
        }
        let isDue = item.pointee.state == .scheduled && item.pointee.deliverAt <= now.wallMilliseconds
        let hasRoom =
            item.pointee.state == .deviceLimited && inFlight(item.pointee.device) < limits.inFlightPerDevice
        if isDue || hasRoom {
            withdraw(slot)
            return dispatch(slot, at: now)
        }
        if item.pointee.flags.contains(.storeAgain) { return storeAgain(slot) }
        if item.pointee.state == .held, returnsNow(slot, at: now) { return }
        if item.pointee.flags.contains(.offsetDone), isEvictable(slot, at: now) {
            evict(item.pointee.device, at: now)
        }
    }

    // MARK: Partitions

    func isEnding(_ partition: UInt16) -> Bool {
        isDraining || (!endingPartitions.isEmpty && endingPartitions.contains(partition))
    }

    /// Begins a partition under a number that an earlier partition may have had.
    public mutating func begin(partition: UInt16) {
        endingPartitions.remove(partition)
    }

    /// Ends a partition, of which no item is left but those in flight.
    public mutating func end(partition: UInt16) {
        catchingUp.remove(partition)
        budgets.forget(partition: partition)
    }

    /// Drops items that aren't in flight: those of a revoked partition, or all items when `partition` is nil, to
    /// drain. Kafka or the store still has these items. Items in flight get their outcomes, or are dropped when they
    /// fail.
    public mutating func abandon(partition: UInt16?, at now: DeliveryTime) {
        if let partition { endingPartitions.insert(partition) } else { isDraining = true }
        for index in 0..<highWater {
            let item = items + index
            switch item.pointee.state {
            case .free, .finished, .inFlight: continue
            default: break
            }
            guard partition == nil || item.pointee.partition == partition else { continue }
            if item.pointee.flags.contains(.receiptSeen) {
                // The receipt isn't reported again.
                finish(UInt32(index), .confirmed, at: now)
            } else {
                drop(UInt32(index), at: now)
            }
        }
        if let partition { forgetPresences(of: partition, at: now) }
    }
}
