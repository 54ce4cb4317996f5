import SluiceModel

extension DeliveryMachine {
    /// Withdraws the pending items under a collapse identifier or `apns-id` of a device.
    public mutating func cancel(
        _ device: DeviceKey, _ target: CancelTarget, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> CancelResult {
        milestones.events += 1
        var result = CancelResult()
        forEachItem(of: device) { machine, slot in
            let item = machine.items + Int(slot)
            // An item still in flight of a revoked partition is withdrawn by the partition's next worker.
            guard item.pointee.matches(target), item.pointee.isBefore(origin),
                !machine.isEnding(item.pointee.partition)
            else { return }
            if item.pointee.state == .inFlight {
                item.pointee.flags.insert(.withdrawn)
                result.tooLate += 1
            } else {
                result.cancelled += 1
                machine.finish(slot, .cancelled, at: now)
            }
        }
        return result
    }

    /// Calls `body` for each item of a device, oldest last; the body may end the item that it is called for.
    mutating func forEachItem(of key: DeviceKey, _ body: (inout DeliveryMachine, UInt32) -> Void) {
        guard let device = devices.find(key) else { return }
        forEachItem(ofEntry: device, body)
    }

    mutating func forEachItem(ofEntry device: UInt32, _ body: (inout DeliveryMachine, UInt32) -> Void) {
        // The body can end another item, so the list is copied first.
        var slots = scratch
        scratch = []
        slots.removeAll(keepingCapacity: true)
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            slots.append(slot)
            slot = items[Int(slot)].next
        }
        for slot in slots where items[Int(slot)].state.isLive { body(&self, slot) }
        scratch = slots
    }

    // MARK: Presence

    /// Records that the device is online, and queues its held items. Urgent pushes are sent first, in the order of
    /// their creation, paced with those of other devices. Returns the number of held items.
    public mutating func online(
        _ device: DeviceKey, occurred: ReportTime, partition: UInt16, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        return comesOnline(device, occurred, partition, at: now)
    }

    private mutating func comesOnline(
        _ device: DeviceKey, _ occurred: ReportTime, _ partition: UInt16, at now: DeliveryTime
    ) -> Int {
        learn(device, .online, occurred, partition, at: now).map { queueReturns($0, at: now) } ?? 0
    }

    /// Records that the device is offline, and holds the items that are to be held then. Returns their number.
    public mutating func offline(
        _ device: DeviceKey, occurred: ReportTime, partition: UInt16, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard let entry = learn(device, .offline, occurred, partition, at: now) else { return 0 }
        var count = 0
        forEachItem(ofEntry: entry) { machine, slot in
            let item = machine.items + Int(slot)
            guard item.pointee.delivery != .accept else { return }
            // The only attempt of a push with expiration 0 may still be confirmed.
            if item.pointee.state == .confirming, item.pointee.flags.contains(.isOnce) { return }
            switch item.pointee.state {
            case .waiting, .returning, .confirming, .held:
                machine.withdraw(slot)
                machine.hold(slot, at: now)
                count += 1
            default: break
            }
        }
        return count
    }

    /// Records that the device has shown the notification with this `apns-id`. Returns 1 when that confirms an item,
    /// else 0.
    public mutating func receipt(
        _ device: DeviceKey, notificationKey: UInt64, occurred: ReportTime, partition: UInt16,
        at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        var confirmed = 0
        forEachItem(of: device) { machine, slot in
            let item = machine.items + Int(slot)
            guard item.pointee.delivery == .confirm, item.pointee.notificationKey == notificationKey,
                item.pointee.firstSent > 0, !item.pointee.flags.contains(.receiptSeen)
            else { return }
            confirmed = 1
            // A blocked item came from the store, and an older one is in flight. If the blocked item ended first, a
            // crash would bring back the older item alone.
            if item.pointee.state == .inFlight || item.pointee.state == .blocked {
                item.pointee.flags.insert(.receiptSeen)
            } else {
                machine.finish(slot, .confirmed, at: now)
            }
        }
        _ = comesOnline(device, occurred, partition, at: now)
        return confirmed
    }

    /// Records a device's presence, unless newer news is known. Returns its entry when it was recorded.
    @discardableResult
    private mutating func learn(
        _ key: DeviceKey, _ presence: Presence, _ occurred: ReportTime, _ partition: UInt16,
        at now: DeliveryTime
    ) -> UInt32? {
        let entry: UInt32
        if let device = devices.find(key), devices.entries[Int(device)].presence != Self.noSlot {
            let known = devices.entries[Int(device)].presence
            guard occurred >= presences[known].learned else { return nil }
            presences.update(known, presence, learned: occurred, partition: partition)
            entry = device
        } else {
            entry = remember(key, presence, occurred, partition, at: now)
        }
        if limits.storeIsDurable { actions.append(.keepPresence(devices.entries[Int(entry)].presence)) }
        return entry
    }

    /// Records the presence of a device without one. Returns its entry.
    @discardableResult
    mutating func remember(
        _ key: DeviceKey, _ presence: Presence, _ occurred: ReportTime, _ partition: UInt16,
        at now: DeliveryTime
    ) -> UInt32 {
        // The table of devices has room for items and for known devices; forgetting a device makes room. This comes
        // before the lookup, because the idle entry that leaves the table could be this device's.
        if let surplus = presences.surplus { forget(presences[surplus].device, surplus, at: now) }
        let device = devices.findOrInsert(key)
        let index = presences.insert(device: device, presence, learned: occurred, partition: partition)
        devices.entries[Int(device)].presence = index
        return device
    }

    /// Forgets a device's presence. Its held items are sent.
    mutating func forget(_ device: UInt32, _ presence: UInt32, at now: DeliveryTime) {
        presences.remove(presence)
        devices.entries[Int(device)].presence = Self.noSlot
        if devices.entries[Int(device)].pending == 0 {
            devices.retire(device)
        } else {
            _ = queueReturns(device, at: now)
        }
    }

    /// Forgets the presences that a partition's events reported. From here on, another worker receives its events.
    mutating func forgetPresences(of partition: UInt16, at now: DeliveryTime) {
        for presence in presences.indices(of: partition) {
            forget(presences[presence].device, presence, at: now)
        }
    }

    /// Presumes a device offline because the receipt of an item didn't come in time. The presumption isn't a report
    /// of the device. Any report newer than its last one counts, even a late report from before the presumption.
    mutating func presumeOffline(_ slot: UInt32, at now: DeliveryTime) {
        let device = items[Int(slot)].device
        let key = devices.entries[Int(device)].key
        let known = devices.entries[Int(device)].presence
        if known != Self.noSlot, presences[known].presence == .offline { return }
        let learned = known == Self.noSlot ? ReportTime.none : presences[known].learned
        let partition = known == Self.noSlot ? items[Int(slot)].partition : presences[known].partition
        learn(key, .presumedOffline, learned, partition, at: now)
    }

    /// Queues a device's held items for their return. Returns their number.
    mutating func queueReturns(_ device: UInt32, at now: DeliveryTime) -> Int {
        var held: [UInt32] = []
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            if items[Int(slot)].state == .held { held.append(slot) }
            slot = items[Int(slot)].next
        }
        guard !held.isEmpty else { return 0 }
        let items = self.items
        held.sort { one, other in
            let (one, other) = (items[Int(one)], items[Int(other)])
            return (one.created, one.order) < (other.created, other.order)
        }
        // The other items stay held until the next sweep, see ``returnsNow(_:at:)``.
        for slot in held where !areReturnsFull {
            withdraw(slot)
            returns(slot)
        }
        return held.count
    }

    /// Puts an item that is in no list into the list of returning items.
    mutating func returns(_ slot: UInt32) {
        setState(slot, .returning)
        returning[returningList(of: slot)].append(slot, items)
    }

    // MARK: The token

    /// Records that the device token is no longer registered, as the app reports. Its pending items end as rejected,
    /// except those registered after that. Returns the number of items that ended.
    public mutating func unregistered(
        _ device: DeviceKey, occurredMilliseconds: Int64, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard let entry = devices.find(device) else { return 0 }
        return endPending(of: entry, since: occurredMilliseconds, origin: origin, at: now)
    }

    /// Ends the pending items of an invalid token, except those registered after it was noticed. Returns their
    /// number.
    @discardableResult
    mutating func endPending(
        of device: UInt32, since: Int64?, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        var count = 0
        forEachItem(ofEntry: device) { machine, slot in
            let item = machine.items + Int(slot)
            // An undispatched item is the item whose answer this is; a moving item is sent to another token.
            guard item.pointee.state != .inFlight, item.pointee.state != .undispatched,
                !item.pointee.flags.contains(.moves), item.pointee.isBefore(origin)
            else { return }
            if let since, item.pointee.registeredAt > since { return }
            machine.finish(slot, .rejected, .deviceUnregistered, at: now)
            count += 1
        }
        return count
    }

    /// Moves a device's pending items to its new token. Returns the number of items that move. Items in flight are
    /// included, although they move only if they are retried.
    /// - Parameters:
    ///   - isElsewhere: true when the new token belongs to another shard.
    ///   - mayWait: true when the owner decides when an item moves: ``DeliveryAction/moveWanted(_:)``.
    ///   - waits: true when items that aren't in flight have to wait as well, instead of moving at once.
    public mutating func tokenChanged(
        _ device: DeviceKey, to new: DeviceKey, isElsewhere: Bool, mayWait: Bool = false, waits: Bool = false,
        occurredMilliseconds: Int64? = nil, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard device != new else { return 0 }
        let move = Move(
            device: new, isElsewhere: isElsewhere, mayWait: mayWait,
            occurredMilliseconds: occurredMilliseconds)
        var count = moveFurther(device, move)
        forEachItem(of: device) { machine, slot in
            let item = machine.items + Int(slot)
            guard item.pointee.isBefore(origin) else { return }
            count += 1
            // The item waits for this change already.
            if machine.moves[slot]?.device == new { return }
            let isBusy = item.pointee.state == .inFlight || item.pointee.state == .blocked
            guard isBusy || waits || item.pointee.flags.contains(.moves) else {
                return machine.move(slot, to: move, at: now)
            }
            item.pointee.flags.insert(.moves)
            machine.moves[slot] = move
            machine.actions.append(.noteMove(slot))
            guard !isBusy else { return }
            machine.withdraw(slot)
            machine.dispatch(slot, at: now)
        }
        return count
    }

    /// Has items that are to move to a device move to its new token instead. Returns their number.
    private mutating func moveFurther(_ device: DeviceKey, _ move: Move) -> Int {
        var count = 0
        for (slot, earlier) in moves.sorted(by: { $0.key < $1.key })
        where earlier.device == device && !earlier.isElsewhere
            && earlier.occurredMilliseconds ?? .min <= move.occurredMilliseconds ?? .max
        {
            var further = move
            further.mayWait = earlier.mayWait
            moves[slot] = further
            actions.append(.noteMove(slot))
            count += 1
        }
        return count
    }

    /// Returns the time of the token change by which an item moves, in milliseconds since the epoch; nil when unknown.
    func movedAt(_ slot: UInt32) -> Int64? { moves[slot]?.occurredMilliseconds }

    /// Returns the device to whose token an item belongs at present.
    func device(of slot: UInt32) -> DeviceKey { devices.entries[Int(items[Int(slot)].device)].key }

    /// Moves an item to another device token, after ``DeliveryAction/moveWanted(_:)``.
    mutating func moveOn(_ slot: UInt32, at now: DeliveryTime) {
        guard items[Int(slot)].state.isLive, let move = moves.removeValue(forKey: slot) else { return }
        items[Int(slot)].flags.remove(.moves)
        self.move(slot, to: move, at: now)
    }

    /// Moves an item that isn't in flight to another device token.
    mutating func move(_ slot: UInt32, to move: Move, at now: DeliveryTime) {
        withdraw(slot)
        let item = items + Int(slot)
        // APNs has the item for the old token, which no device has any more. The presumption was of the old token as
        // well.
        item.pointee.flags.remove([.accepted, .ignoresPresence])
        if openCircuits > 0 { probeLeft(slot) }
        unlink(slot)
        if move.isElsewhere {
            moves[slot] = move
            milestones.departed += 1
            setState(slot, .finished)
            actions.append(.depart(slot))
            return
        }
        let device = devices.findOrInsert(move.device)
        let (pending, flying) = find(item.pointee.identity, in: device)
        link(slot, to: device)
        actions.append(.readdress(slot, move.device))
        keepPresence(with: slot)
        for other in [flying, pending]
        where other != Self.noSlot && item.pointee.isSuperseded(by: items[Int(other)]) {
            return finish(slot, .superseded, successor: other, at: now)
        }
        if Int(devices.entries[Int(device)].pending) > Self.mostPerDevice, pending == Self.noSlot {
            return finish(slot, .undeliverable, .deviceLimit, at: now)
        }
        storeMoved(slot)
        if pending != Self.noSlot { finish(pending, .superseded, successor: slot, at: now) }
        if flying != Self.noSlot { return block(slot, behind: flying) }
        dispatch(slot, at: now)
    }
}

extension DeliveryItem {
    /// Compares by creation, because items that moved or were restored didn't arrive in one order.
    func isOlder(than other: DeliveryItem) -> Bool {
        (created, order) < (other.created, other.order)
    }

    /// Returns true when another push of the identity makes this push obsolete, because that one is newer or because it
    /// alone ends the state.
    func isSuperseded(by other: DeliveryItem) -> Bool {
        isFinal == other.isFinal ? isOlder(than: other) : other.isFinal
    }

    /// Returns true when the item came before a cancel or device event, as far as the offsets of one partition show.
    func isBefore(_ origin: RecordOrigin?) -> Bool {
        guard let origin, origin.partition == partition else { return true }
        return offset < origin.offset
    }

    func matches(_ target: CancelTarget) -> Bool {
        switch target {
        case .notificationKey(let key): notificationKey == key
        case .collapseKey(let key, let topic): collapseKey == key && (topic == nil || topic == self.topic)
        }
    }
}
