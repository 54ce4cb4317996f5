import SluiceModel

extension DeliveryMachine {
    /// Source of a push.
    private enum Arrival {
        case record
        case restored(ItemProgress)
        case imported(ItemProgress)

        /// Returns true when the item may be sent without waiting for anything that it brings with it.
        func mayGo(at now: DeliveryTime) -> Bool {
            switch self {
            case .record: true
            case .restored(let progress):
                !progress.isAccepted
                    && (progress.wait == .none || progress.wakeMilliseconds <= now.wallMilliseconds)
            case .imported(let progress):
                !progress.isAccepted && progress.notBeforeNanoseconds <= now.monotonicNanoseconds
            }
        }
    }

    /// Admits a push from its Kafka record.
    public mutating func admit(_ facts: PushFacts, at now: DeliveryTime) -> Admission {
        admit(facts, .record, at: now)
    }

    /// Admits an item from the store. A device's items come before the records that wait for the device.
    public mutating func restore(
        _ facts: PushFacts, _ progress: ItemProgress, at now: DeliveryTime
    ) -> Admission {
        follow(progress.storeVersion)
        let admission = admit(facts, .restored(progress), at: now)
        // A push without a slot stays in the store.
        if progress.wait == .suspended, admission != .full { keptReturned(facts, at: now) }
        return admission
    }

    /// Admits an item from another shard because its device has a new token. Its offset and its outcome belong to
    /// this shard from then on. An action drops an item whose partition was revoked meanwhile.
    public mutating func importItem(
        _ facts: PushFacts, _ progress: ItemProgress, at now: DeliveryTime
    ) -> Admission {
        admit(facts, .imported(progress), at: now)
    }

    private mutating func admit(
        _ facts: PushFacts, _ arrival: Arrival, at now: DeliveryTime
    ) -> Admission {
        var expiry = expiry(of: facts, at: now)
        switch arrival {
        case .record: break
        case .restored(let progress), .imported(let progress): expiry = progress.expiryMilliseconds
        }
        let known = devices.find(facts.device)
        let (pending, flying) = known.map { find(facts.identity, in: $0) } ?? (Self.noSlot, Self.noSlot)
        if let slot = repeats(facts, arrival, pending) ?? repeats(facts, arrival, flying) {
            count(arrival)
            milestones.repeated += 1
            return .repeated(slot, isDurable: items[Int(slot)].flags.contains(.offsetDone))
        }
        if let slot = final(facts, pending) ?? final(facts, flying)
            ?? newer(facts, arrival, flying) ?? newer(facts, arrival, pending)
        {
            count(arrival)
            milestones.ended(.superseded)
            return .obsolete(by: slot)
        }
        // The push is never to be sent, and an older push of its identity has to end as well. The push may have
        // arrived, and been sent, before a restart.
        let isOver = expiry <= now.wallMilliseconds || facts.deliverAtMilliseconds >= expiry
        if isOver, pending == Self.noSlot, flying == Self.noSlot {
            count(arrival)
            milestones.ended(.expired)
            return .expired
        }
        makeRoom(topic: facts.topic, pool: facts.pool)
        if pending != Self.noSlot {
            count(arrival)
            return replace(pending, with: facts, arrival, expiry: expiry, at: now)
        }
        // An expired push stays no longer than the attempt in flight that it outdates.
        if !isOver, let known, Int(devices.entries[Int(known)].pending) >= most(arrival) {
            count(arrival)
            milestones.ended(.undeliverable)
            return .deviceFull
        }
        guard count < limits.capacity else { return .full }
        let device = known ?? devices.insert(facts.device)
        let slot = insert(facts, expiry: expiry, device: device)!
        count(arrival)
        apply(arrival, slot, at: now)
        coalesce(slot, facts, at: now)
        if flying != Self.noSlot {
            block(slot, behind: flying)
            return .placed(slot)
        }
        settle(slot, arrival, at: now)
        return .placed(slot)
    }

    /// Returns the most items that the device of such an arrival may have.
    private func most(_ arrival: Arrival) -> Int {
        switch arrival {
        case .record: limits.pendingPerDevice
        case .imported: Self.mostPerDevice
        case .restored: Int(UInt16.max)
        }
    }

    private mutating func count(_ arrival: Arrival) {
        switch arrival {
        case .record: milestones.received += 1
        case .restored: milestones.restored += 1
        case .imported: milestones.imported += 1
        }
    }

    /// Returns the device's items of one identity: the pending item and the item in flight.
    func find(_ identity: PushIdentity, in device: UInt32) -> (pending: UInt32, flying: UInt32) {
        var (pending, flying) = (Self.noSlot, Self.noSlot)
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            let item = items + Int(slot)
            if item.pointee.identity == identity {
                if item.pointee.state == .inFlight { flying = slot } else { pending = slot }
            }
            slot = item.pointee.next
        }
        return (pending, flying)
    }

    /// Returns the slot when it holds the same record.
    private func repeats(_ facts: PushFacts, _ arrival: Arrival, _ slot: UInt32) -> UInt32? {
        if case .imported = arrival { return nil }
        guard slot != Self.noSlot, items[Int(slot)].partition == facts.partition,
            items[Int(slot)].offset == facts.offset
        else { return nil }
        return slot
    }

    /// Raises the next version above `version`. Versions grow over all items of the machine.
    private mutating func follow(_ version: UInt64) {
        nextStoreVersion = max(nextStoreVersion, UInt32(truncatingIfNeeded: version) &+ 1)
    }

    /// Returns true when the push is older than the item in `slot`. Records of one partition come in order, except
    /// repeats. Otherwise the later arrival is newer. When the push was restored or moved, the time of creation
    /// decides.
    private func isOlder(_ facts: PushFacts, _ arrival: Arrival, than slot: UInt32) -> Bool {
        let item = items + Int(slot)
        if item.pointee.partition == facts.partition { return facts.offset < item.pointee.offset }
        if case .record = arrival { return false }
        return facts.createdMilliseconds < item.pointee.created
    }

    /// Returns the slot when it holds a newer push. An update isn't newer than the end of its state.
    private func newer(_ facts: PushFacts, _ arrival: Arrival, _ slot: UInt32) -> UInt32? {
        guard slot != Self.noSlot, !facts.isFinal || items[Int(slot)].isFinal else { return nil }
        return isOlder(facts, arrival, than: slot) ? slot : nil
    }

    /// Returns the slot when it holds the last push of the identity that has a meaning.
    private func final(_ facts: PushFacts, _ slot: UInt32) -> UInt32? {
        slot != Self.noSlot && items[Int(slot)].isFinal && !facts.isFinal ? slot : nil
    }

    private mutating func apply(_ arrival: Arrival, _ slot: UInt32, at now: DeliveryTime) {
        let progress: ItemProgress
        switch arrival {
        case .record: return
        case .restored(let kept), .imported(let kept): progress = kept
        }
        let item = items + Int(slot)
        item.pointee.attempts = progress.attempts
        item.pointee.failures = progress.failures
        item.pointee.firstSent = progress.firstSentMilliseconds
        item.pointee.storeVersion = UInt32(truncatingIfNeeded: progress.storeVersion)
        item.pointee.storedDue = Self.seconds(progress.dueMilliseconds)
        item.pointee.isStoredSuspended = progress.wait == .suspended
        if progress.isAccepted { item.pointee.flags.insert(.accepted) }
        if progress.isStored { item.pointee.flags.insert(.stored) }
        if progress.isOffsetDone { item.pointee.flags.insert(.offsetDone) }
        if progress.wait == .retrying, case .restored = arrival {
            // Applies as well when the item first waits for another item.
            let notBefore = now.monotonic(inMilliseconds: progress.wakeMilliseconds - now.wallMilliseconds)
            item.pointee.notBefore = max(item.pointee.notBefore, notBefore)
        }
        if case .imported = arrival {
            item.pointee.notBefore = max(item.pointee.notBefore, progress.notBeforeNanoseconds)
            follow(progress.storeVersion)
            storeMoved(slot)
            keepPresence(with: slot)
        }
    }

    /// Delays a push with a coalesce window, so that a newer one can replace it, if it lives longer than the window.
    private mutating func coalesce(_ slot: UInt32, _ facts: PushFacts, at now: DeliveryTime) {
        let window = Int64(facts.coalesceWindowMilliseconds)
        guard facts.collapseKey != 0, window > 0, items[Int(slot)].attempts == 0,
            items[Int(slot)].expiry - now.wallMilliseconds > window
        else { return }
        items[Int(slot)].notBefore = now.monotonic(inMilliseconds: window)
    }

    /// Dispatches a new item, or makes it wait as it did before.
    private mutating func settle(_ slot: UInt32, _ arrival: Arrival, at now: DeliveryTime) {
        switch arrival {
        case .record: dispatch(slot, at: now)
        case .restored(let progress) where mayWait(slot, at: now): resume(slot, progress, at: now)
        case .imported(let progress) where progress.isAccepted && mayWait(slot, at: now):
            awaitReceipt(slot, at: now)
        case .restored, .imported: dispatch(slot, at: now)
        }
    }

    /// Lets an item of the store wait as it did before.
    private mutating func resume(_ slot: UInt32, _ progress: ItemProgress, at now: DeliveryTime) {
        let wake = progress.wakeMilliseconds
        if progress.isAccepted { return awaitReceipt(slot, until: wake == 0 ? nil : wake, at: now) }
        switch progress.wait {
        case .held where wake == 0 || wake > now.wallMilliseconds || isReportedOffline(slot):
            if mustHold(slot) { return hold(slot, until: wake, at: now) }
            if limits.storeIsDurable, isOnline(items[Int(slot)].device), !expiresBeforeReturn(slot, at: now) {
                return areReturnsFull ? hold(slot, until: wake, at: now) : returns(slot)
            }
        case .held: items[Int(slot)].flags.insert(.ignoresPresence)
        case .none, .retrying, .confirming, .suspended: break
        }
        dispatch(slot, at: now)
    }

    /// Replaces a pending push with a newer push, which keeps the slot and the order. The newer push also keeps the
    /// older push's waits for the device or the server. A steady stream of updates therefore neither starves itself nor
    /// shortens a wait. An expired push ends there, at once or behind the attempt in flight.
    private mutating func replace(
        _ slot: UInt32, with facts: PushFacts, _ arrival: Arrival, expiry: Int64, at now: DeliveryTime
    ) -> Admission {
        let item = items + Int(slot)
        let old = item.pointee
        let replaced = ReplacedPush(progress: old.progress, partition: old.partition, offset: old.offset)
        milestones.ended(.superseded)
        // Without a collapse identifier the newer push can belong to another topic.
        if openCircuits > 0, old.topic != facts.topic { probeLeft(slot) }
        var new = DeliveryItem(facts, device: old.device, order: old.order, expiry: expiry)
        (new.next, new.previous, new.peer) = (old.next, old.previous, old.peer)
        (new.queueNext, new.queuePrevious) = (old.queueNext, old.queuePrevious)
        new.notBefore = old.notBefore
        // The old push may wait among the isolated ones.
        new.losses = min(old.losses, Isolation.losses)
        new.state = old.state
        new.flags.formUnion(old.flags.intersection(.moves))
        // The store's copy of a restored push doesn't have this wait.
        if new.notBefore > now.monotonicNanoseconds { new.flags.insert(.changed) }
        let goesOnWaiting =
            old.state == .waiting && (old.topic, old.pool) == (facts.topic, facts.pool)
            && expiry > now.wallMilliseconds
            && facts.deliverAtMilliseconds <= now.wallMilliseconds && !isEnding(facts.partition)
            && (facts.delivery == .accept || !isOffline(old.device)) && arrival.mayGo(at: now)
            && !isUnavailable(facts.pool) && !catchingUp.contains(facts.partition)
        if old.state == .blocked || goesOnWaiting {
            item.pointee = new
            apply(arrival, slot, at: now)
            if goesOnWaiting { actions.append(.requeue(slot)) }
            return .replaced(slot, replaced)
        }
        // Leaves the old item's list before the priority changes, because the priority selects the list.
        withdraw(slot)
        new.state = .undispatched
        item.pointee = new
        apply(arrival, slot, at: now)
        settle(slot, arrival, at: now)
        return .replaced(slot, replaced)
    }

    /// Returns the expiration of a push that arrives now.
    private func expiry(of facts: PushFacts, at now: DeliveryTime) -> Int64 {
        let longest = now.wallMilliseconds + limits.maximumExpirationMilliseconds
        guard facts.expirationMilliseconds == .max, facts.delivery == .accept, !facts.isOnce else {
            return min(facts.expirationMilliseconds, longest)
        }
        let begin = max(now.wallMilliseconds, min(facts.deliverAtMilliseconds, longest))
        return min(begin + limits.defaultLifeMilliseconds, longest)
    }

    /// Grows the tables by topic and pool to the highest number.
    private mutating func makeRoom(topic: UInt16, pool: UInt16) {
        makeRoom(topic: topic)
        if circuits[Int(topic)].pool != pool { circuits[Int(topic)].pool = pool }
        growPauses(to: pool)
    }

    mutating func makeRoom(topic: UInt16) {
        guard Int(topic) >= circuits.count else { return }
        circuits.append(contentsOf: repeatElement(TopicCircuit(), count: Int(topic) + 1 - circuits.count))
    }

    // MARK: To another shard

    /// Returns the facts and progress with which another shard adopts an item that departs.
    public mutating func export(_ slot: UInt32) -> (facts: PushFacts, progress: ItemProgress) {
        let item = items[Int(slot)]
        let device = moves.removeValue(forKey: slot)?.device ?? DeviceKey(high: 0, low: 0)
        let facts = PushFacts(
            device: device, collapseKey: item.collapseKey, notificationKey: item.notificationKey,
            topic: item.topic, pool: item.pool, partition: item.partition, offset: item.offset,
            expirationMilliseconds: item.expiry, isOnce: item.flags.contains(.isOnce),
            deliverAtMilliseconds: item.deliverAt, createdMilliseconds: item.created,
            registeredAtMilliseconds: item.registeredAt, receiptTimeoutSeconds: item.receiptTimeoutSeconds,
            isOrdered: item.isOrdered, isFinal: item.isFinal, priority: item.priority,
            delivery: item.delivery, duplicates: item.duplicates)
        return (facts, item.progress)
    }
}
