import SluiceModel

extension DeliveryMachine {
    /// Withdraws what is pending under a collapse identifier or `apns-id` of a device.
    public mutating func cancel(
        _ device: DeviceKey, _ target: CancelTarget, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> CancelResult {
        milestones.events += 1
        var result = CancelResult()
        forEachItem(of: device) { machine, slot in
            let item = machine.items + Int(slot)
            // What is still in flight of a partition that went away is another worker's to withdraw.
            guard item.pointee.matches(target), item.pointee.isBefore(origin),
                !machine.isEnding(item.pointee.partition)
            else { return }
            if item.pointee.state == .inFlight {
                item.pointee.flags.insert(.withdrawn)
                result.tooLate += 1
            } else {
                result.cancelled += 1
                machine.end(slot, .cancelled, at: now)
            }
        }
        return result
    }

    /// Calls for each item of a device, oldest last; the body may end the item it is called for.
    mutating func forEachItem(of key: DeviceKey, _ body: (inout DeliveryMachine, UInt32) -> Void) {
        guard let device = devices.find(key) else { return }
        forEachItem(ofEntry: device, body)
    }

    mutating func forEachItem(ofEntry device: UInt32, _ body: (inout DeliveryMachine, UInt32) -> Void) {
        // What the body does to one item can end another, so the list is looked at first.
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

    /// The device is online: what is held for it goes out, urgent pushes first and in the order of their creation, paced
    /// with those of other devices. Returns how many items that are.
    public mutating func online(
        _ device: DeviceKey, occurred: ReportTime, partition: UInt16, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        return comesOnline(device, occurred, partition, at: now)
    }

    private mutating func comesOnline(
        _ device: DeviceKey, _ occurred: ReportTime, _ partition: UInt16, at now: DeliveryTime
    ) -> Int {
        learn(device, .online, occurred, partition, at: now).map { letReturn($0, at: now) } ?? 0
    }

    /// The device is offline: what is to be held then, is. Returns how many items that are.
    public mutating func offline(
        _ device: DeviceKey, occurred: ReportTime, partition: UInt16, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard let entry = learn(device, .offline, occurred, partition, at: now) else { return 0 }
        var count = 0
        forEachItem(ofEntry: entry) { machine, slot in
            let item = machine.items + Int(slot)
            guard item.pointee.delivery != .accept else { return }
            // The one attempt of a push with expiration 0 may still be confirmed.
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

    /// The device has shown the notification with this `apns-id`. Returns 1 when that confirms an item, 0 otherwise.
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
            // One that is blocked came from the store, and an older one is sent again: were it gone first, a crash would
            // bring back the older one alone.
            if item.pointee.state == .inFlight || item.pointee.state == .blocked {
                item.pointee.flags.insert(.receiptSeen)
            } else {
                machine.end(slot, .confirmed, at: now)
            }
        }
        _ = comesOnline(device, occurred, partition, at: now)
        return confirmed
    }

    /// Notes where a device is, unless something newer is known. Returns its entry then.
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

    /// Notes where a device is of which nothing is known. Returns its entry.
    @discardableResult
    mutating func remember(
        _ key: DeviceKey, _ presence: Presence, _ occurred: ReportTime, _ partition: UInt16,
        at now: DeliveryTime
    ) -> UInt32 {
        // Items have room in the table of devices, and so have known devices: one that is forgotten makes it. Before
        // the device is looked up: the one that goes from the table for it could be this very one, idle as yet.
        if let surplus = presences.surplus { forget(presences[surplus].device, surplus, at: now) }
        let device = devices.findOrInsert(key)
        let index = presences.insert(device: device, presence, learned: occurred, partition: partition)
        devices.entries[Int(device)].presence = index
        return device
    }

    /// Nothing is known of the device any more: what was held for it is sent.
    private mutating func forget(_ device: UInt32, _ presence: UInt32, at now: DeliveryTime) {
        presences.remove(presence)
        devices.entries[Int(device)].presence = Self.noSlot
        if devices.entries[Int(device)].pending == 0 {
            devices.retire(device)
        } else {
            _ = letReturn(device, at: now)
        }
    }

    /// Forgets what a partition's events have said: what they say from here on, another worker hears.
    mutating func forgetPresences(of partition: UInt16, at now: DeliveryTime) {
        for presence in presences.indices(of: partition) {
            forget(presences[presence].device, presence, at: now)
        }
    }

    /// No receipt of an item came in time. That is no report of the device: whatever it reports that is newer than its last
    /// report counts, also what is heard of late and was before this.
    mutating func presumeOffline(_ slot: UInt32, at now: DeliveryTime) {
        let device = items[Int(slot)].device
        let key = devices.entries[Int(device)].key
        let known = devices.entries[Int(device)].presence
        if known != Self.noSlot, presences[known].presence == .offline { return }
        let learned = known == Self.noSlot ? ReportTime.none : presences[known].learned
        let partition = known == Self.noSlot ? items[Int(slot)].partition : presences[known].partition
        learn(key, .presumedOffline, learned, partition, at: now)
    }

    /// Queues what is held for a device for its return.
    mutating func letReturn(_ device: UInt32, at now: DeliveryTime) -> Int {
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
        // The others stay held until the next sweep, see ``returnsNow(_:at:)``.
        for slot in held where !areReturnsFull {
            withdraw(slot)
            returns(slot)
        }
        return held.count
    }

    /// Has an item that is in no list wait for its turn.
    mutating func returns(_ slot: UInt32) {
        setState(slot, .returning)
        returning[returningList(of: slot)].append(slot, items)
    }

    // MARK: The token

    /// The app reports that the device token is no longer registered: what is pending for it ends as rejected, except
    /// what was registered after that. Returns how many items that are.
    public mutating func unregistered(
        _ device: DeviceKey, occurredMilliseconds: Int64, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard let entry = devices.find(device) else { return 0 }
        return endPending(of: entry, since: occurredMilliseconds, origin: origin, at: now)
    }

    /// Ends what is pending for a token that is no good any more, except what was registered after that was noticed.
    @discardableResult
    mutating func endPending(
        of device: UInt32, since: Int64?, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        var count = 0
        forEachItem(ofEntry: device) { machine, slot in
            let item = machine.items + Int(slot)
            // One that is unplaced is the one whose answer this is; one that moves goes to another token.
            guard item.pointee.state != .inFlight, item.pointee.state != .unplaced,
                !item.pointee.flags.contains(.moves), item.pointee.isBefore(origin)
            else { return }
            if let since, item.pointee.registeredAt > since { return }
            machine.end(slot, .rejected, .deviceUnregistered, at: now)
            count += 1
        }
        return count
    }

    /// The device has a new token: what is pending moves there. `isElsewhere` says that the new token belongs to another
    /// shard. Returns how many items move, those in flight included, which only do if they are tried again.
    public mutating func tokenChanged(
        _ device: DeviceKey, to new: DeviceKey, isElsewhere: Bool, origin: RecordOrigin? = nil,
        at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard device != new else { return 0 }
        let move = Move(device: new, isElsewhere: isElsewhere)
        var count = 0
        forEachItem(of: device) { machine, slot in
            let item = machine.items + Int(slot)
            guard item.pointee.isBefore(origin) else { return }
            count += 1
            guard item.pointee.state == .inFlight || item.pointee.state == .blocked else {
                return machine.move(slot, to: move, at: now)
            }
            item.pointee.flags.insert(.moves)
            machine.moves[slot] = move
            machine.actions.append(.noteMove(slot))
        }
        return count
    }

    /// Moves an item that isn't in flight to another device token.
    mutating func move(_ slot: UInt32, to move: Move, at now: DeliveryTime) {
        withdraw(slot)
        let item = items + Int(slot)
        // APNs has it for the old token, which no device has any more, and what was presumed was of that one.
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
        where other != Self.noSlot && item.pointee.isOlder(than: items[Int(other)]) {
            return end(slot, .superseded, successor: other, at: now)
        }
        if Int(devices.entries[Int(device)].pending) > Self.mostPerDevice, pending == Self.noSlot {
            return end(slot, .undeliverable, .deviceLimit, at: now)
        }
        storeMoved(slot)
        if pending != Self.noSlot { end(pending, .superseded, successor: slot, at: now) }
        if flying != Self.noSlot { return block(slot, behind: flying) }
        place(slot, at: now)
    }
}

extension DeliveryItem {
    /// By creation, as items that travelled did not arrive in one order.
    func isOlder(than other: DeliveryItem) -> Bool {
        (created, order) < (other.created, other.order)
    }

    /// Came before a cancel or device event, as far as one partition tells.
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
