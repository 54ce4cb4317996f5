import SluiceModel

/// State of the load that is being taken in.
struct CurrentLoad {
    var device: DeviceKey
    var partitionSlot: UInt16
    /// Offset of the last item that the load found; `.min` when the load found none or doesn't count.
    var last: Int64
    /// Offset of the partition's first push, up to `last`, that waits for the device; nil when none waits.
    var firstWaiting: Int64?
    /// True while every item that the partition has of the device is in memory.
    var isAllHere = true
    /// True when an item has found no slot. Newer items then stay in the store as well. A newer item that has expired
    /// would end, and the older item would be sent afterwards.
    var hasFoundNoSlot = false
}

/// Loads: selects the devices to load, and judges the items that a load finds.
extension DeviceResidency {
    // MARK: Asking

    /// Queues the device because an item of it is due. All records of the partition up to `readThrough` were handed
    /// to the shards before.
    public mutating func due(_ device: DeviceKey, _ slot: UInt16) {
        guard evicted.contains(device) else { return }
        if loads[device] != nil { return reload(device) }
        standInLine(device, .partition(slot))
    }

    /// Queues a load for a device because the store has an expired presence of it in a partition.
    /// ``mayForgetPresence(_:)`` follows the load. A device that is loaded or waits for a load is left for the next
    /// scan.
    public mutating func expired(_ device: DeviceKey, _ slot: UInt16) {
        guard isBegun(slot), !self[slot].isEnding, loads[device] == nil else { return }
        standInLine(device, .partition(slot))
    }

    /// Records that the store is asked to keep a device's presence, which a load under way may not see.
    /// - Returns: the presence to keep. A device whose items wait for their turn in the store is marked as awaited.
    public mutating func keepPresence(_ known: KnownPresence) -> KnownPresence {
        guard !loads.isEmpty, let load = loads[known.device] else { return known }
        loads[known.device]!.keepsPresence = true
        var known = known
        if load.isPutOff, known.presence == .online { known.isAwaited = true }
        return known
    }

    /// Returns true when the expired presence that a load has found is the last one that the store was asked to keep.
    public func mayForgetPresence(_ load: RequestedLoad) -> Bool {
        loads[load.device].map { !$0.keepsPresence } ?? false
    }

    /// Issues the loads that may be issued now. Issues no loads until every partition's scan has finished. After
    /// token changes, a device's items needn't be in the partitions that bring its events.
    /// - Returns: true when more loads may follow as soon as other work has had its turn.
    public mutating func askForLoads(at now: UInt64, _ delivery: borrowing DeliveryMachine) -> Bool {
        guard evicted.scansUnderWay == 0, now >= noLoadsBefore else { return false }
        let mayBeMore = lineUpTurns(delivery)
        var idle = 0
        while loadsUnderWay < limits.loads, idle < limits.idle, let device = nextInLine(delivery) {
            if !askFor(device, delivery) { idle += 1 }
        }
        return idle == limits.idle || mayBeMore
    }

    /// Puts devices in line for their loads while few items are returning. Returns true when more devices are left to
    /// look at.
    private mutating func lineUpTurns(_ delivery: borrowing DeliveryMachine) -> Bool {
        guard turns.count > 0 else { return false }
        var looks = 0
        // A load under way brings at least one item, and the item doesn't count as returning yet.
        var room = limits.returns - delivery.milestones[.returning] - loadsUnderWay
        while room > 0, line.count < limits.loads, looks < Self.turnsLookedAt,
            let (device, slot) = turns.popFirst()
        {
            looks += 1
            guard evicted.contains(device), loads[device] == nil else { continue }
            standInLine(device, .partition(slot))
            room -= 1
        }
        return looks == Self.turnsLookedAt
    }

    private static let turnsLookedAt = 4096

    /// Returns true when the device's items can stay in the store. Other devices' items have their turn first, and
    /// nothing but reports that the device is online waits for it. All items of the device are in the partition of
    /// these reports.
    private func isToBePutOff(
        _ device: DeviceKey, _ load: DeviceLoad, _ delivery: borrowing DeliveryMachine
    ) -> Bool {
        guard turns.count > 0 || delivery.milestones[.returning] >= limits.returns,
            case .partition(let slot) = load.look, !load.waiting.isEmpty, load.dependents.isEmpty,
            !load.needsItems, evicted.contains(device)
        else { return false }
        var isElsewhere = false
        evicted.forEachPartition(of: device) { if $0 != slot { isElsewhere = true } }
        guard !isElsewhere, isBegun(slot), !self[slot].isEnding else { return false }
        return load.waiting.allSatisfy { event in
            guard case .record(let record) = event else { return false }
            return record.isReturn && record.place.partitionSlot == slot
        }
    }

    /// Removes and returns the next device for which there is room. A device in the short line holds up all devices
    /// behind it, because they would take its room.
    private mutating func nextInLine(_ delivery: borrowing DeliveryMachine) -> DeviceKey? {
        while let device = shortLine.first {
            guard let load = loads[device], load.state == .queued else {
                shortLine.removeFirst()
                continue
            }
            guard hasRoom(for: max(load.needs, limits.itemsPerLoad)) else { return nil }
            shortLine.removeFirst()
            return device
        }
        guard let device = line.first else { return nil }
        // A load of the presence alone needs no room.
        guard
            restored.count < limits.restored && hasRoom(for: limits.itemsPerLoad)
                || loads[device].map({ isToBePutOff(device, $0, delivery) }) ?? false
        else { return nil }
        line.removeFirst()
        return device
    }

    private func hasRoom(for items: Int) -> Bool {
        restored.count + reserved + min(items, limits.room) <= limits.room
    }

    /// Issues the loads of a device. Returns false when there are none to issue, and the events that wait for the
    /// device continue.
    private mutating func askFor(_ device: DeviceKey, _ delivery: borrowing DeliveryMachine) -> Bool {
        guard var load = loads[device], load.state == .queued else { return true }
        var slots: [UInt16] = []
        load.isPutOff = isToBePutOff(device, load, delivery)
        if !load.isPutOff {
            load.needsItems = false
            evicted.forEachPartition(of: device) { slots.append($0) }
        }
        if limits.hasStore, !delivery.knowsPresence(of: device) {
            switch load.look {
            case .nowhere: break
            case .partition(let slot): if !slots.contains(slot) { slots.append(slot) }
            case .everywhere:
                slots = partitions.indices.filter { partitions[$0].isBegun }.map { UInt16($0) }
            }
        }
        for slot in slots where isBegun(slot) && !self[slot].isEnding {
            requests.loads.append(
                RequestedLoad(
                    device: device, partitionSlot: slot, assignment: self[slot].assignment,
                    isOfPresence: load.isPutOff))
            ask(.load(device, slot, withItems: !load.isPutOff))
            load.awaited += 1
        }
        loadsUnderWay += load.awaited
        load.reserved =
            load.awaited == 0 || load.isPutOff ? 0 : min(max(load.needs, limits.itemsPerLoad), limits.room)
        reserved += load.reserved
        load.state = .loading
        load.needsReload = false
        load.keepsPresence = false
        load.skipped = [:]
        (load.found, load.leftOut, load.needs, load.isPartial) = (0, 0, 0, false)
        loads[device] = load
        if load.awaited > 0 { return true }
        arrived(device)
        return false
    }

    private mutating func arrived(_ device: DeviceKey) {
        loads[device]!.state = .loaded
        resuming.append(device)
    }

    // MARK: Taking in

    /// Begins to take in the items that a load has found, up to the offset `last`; nil when it found none. Returns
    /// false when the load doesn't count because its partition has gone. ``endLoad()`` follows in either case.
    public mutating func beginLoad(_ requested: RequestedLoad, last: Int64?) -> Bool {
        assert(current == nil, "a load is taken in before the end of another")
        let slot = requested.partitionSlot
        current = CurrentLoad(device: requested.device, partitionSlot: slot, last: last ?? .min)
        guard isBegun(slot), !self[slot].isEnding, self[slot].assignment == requested.assignment else {
            // The load didn't look into the partition that has the slot now.
            if isBegun(slot), !self[slot].isEnding { loads[requested.device]?.needsReload = true }
            current!.last = .min
            current!.isAllHere = false
            return false
        }
        current!.firstWaiting = firstWaiting(requested.device, slot, through: current!.last)
        if requested.isOfPresence { current!.isAllHere = false }
        return true
    }

    /// Decides what to do with an item that the load has found. Items come in the order of their offsets.
    public mutating func judge(
        offset: Int64, _ delivery: borrowing DeliveryMachine
    ) -> LoadedItemVerdict {
        guard let load = current, loads[load.device] != nil else { return LoadedItemVerdict() }
        let (place, isHere) = recordPlace(ofFound: offset, load, delivery)
        if ended.has(place, storedUnder: load.device) { return LoadedItemVerdict() }
        if isStale(place, of: load.device) {
            return LoadedItemVerdict()
        }
        var verdict = LoadedItemVerdict()
        if !place.isOfEarlierLog {
            // The item's record, and older records before it, are still to be read.
            guard offset <= readThrough[Int(load.partitionSlot)] else {
                current!.isAllHere = false
                return verdict
            }
            if let first = load.firstWaiting {
                guard offset <= first else {
                    // In memory, the item could be sent before older items.
                    let before = loads[load.device]!.skipped[load.partitionSlot] ?? .max
                    loads[load.device]!.skipped[load.partitionSlot] = min(before, offset)
                    current!.isAllHere = false
                    return verdict
                }
                if offset == first {
                    // The item's record is read again, and the store has had the item before. The record needs no
                    // slot of its own.
                    verdict.completes = dropWaiting(place, load.device)
                    current!.firstWaiting = firstWaiting(load.device, load.partitionSlot, through: load.last)
                }
            }
        }
        if isHere, restored.contains(place) { return verdict }
        loads[load.device]!.found += 1
        guard restored.count < limits.room, !load.hasFoundNoSlot else {
            skipItem()
            return verdict
        }
        verdict.restore = place
        return verdict
    }

    /// Leaves an item in the store because the delivery machine had no slot for it.
    /// - Returns: the time before which no loads are issued, in nanoseconds of the monotonic clock.
    public mutating func foundNoSlot(at now: UInt64) -> UInt64 {
        assert(current != nil, "no load is taken in")
        skipItem()
        current?.hasFoundNoSlot = true
        noLoadsBefore = now + 100_000_000
        return noLoadsBefore
    }

    private mutating func skipItem() {
        guard let load = current else { return }
        loads[load.device]?.leftOut += 1
        current!.isAllHere = false
    }

    /// Ends the taking in of a load.
    public mutating func endLoad() {
        assert(current != nil, "no load is taken in")
        guard let ended = exchange(&current, with: nil) else { return }
        loadsUnderWay -= 1
        if ended.last != .min || ended.isAllHere, isBegun(ended.partitionSlot) {
            if ended.isAllHere {
                evicted.remove(ended.device, ended.partitionSlot)
            } else {
                evicted.insert(ended.device, ended.partitionSlot)
            }
        }
        guard var load = loads[ended.device], load.awaited > 0 else { return }
        load.awaited -= 1
        if load.awaited == 0 {
            reserved -= load.reserved
            // The device had all of the room, and the room didn't suffice.
            load.isPartial = load.leftOut > 0 && load.found > limits.room && load.reserved == limits.room
            load.reserved = 0
        }
        loads[ended.device] = load
        guard load.awaited == 0 else { return }
        if load.leftOut > 0, !load.isPartial {
            loads[ended.device]!.needs = load.found
            loads[ended.device]!.needsItems = true
            loads[ended.device]!.state = .queued
            shortLine.append(ended.device)
        } else if load.needsReload {
            queueAgain(ended.device)
        } else {
            arrived(ended.device)
        }
    }

    // MARK: Judging

    /// Determines the log in which the store's item was written, and whether the item is in memory. While the item is
    /// known here, the item keeps the log that it was assigned to. Otherwise an item above all offsets that were read
    /// belongs to an earlier log. So does an item whose place another device has.
    private func recordPlace(
        ofFound offset: Int64, _ load: CurrentLoad, _ delivery: borrowing DeliveryMachine
    ) -> (place: RecordPlace, isHere: Bool) {
        let slot = load.partitionSlot
        let place = RecordPlace(partitionSlot: slot, offset: offset)
        let earlier = place.inEarlierLog
        if delivery.contains(place, of: load.device) { return (place, true) }
        if delivery.contains(earlier, of: load.device) { return (earlier, true) }
        if ended.has(place, storedUnder: load.device) { return (place, false) }
        if ended.has(earlier, storedUnder: load.device) { return (earlier, false) }
        let isAbove = offset > readThrough[Int(slot)] && offset >= self[slot].earlierFrom
        return (isAbove || restored.contains(place) || ended.has(place) ? earlier : place, false)
    }

    /// Returns true when an item isn't to be restored: it has left this key since, or is on its way to this shard.
    private func isStale(_ place: RecordPlace, of device: DeviceKey) -> Bool {
        if !staleKeys.isEmpty {
            if staleKeys[StaleKey(place: place, device: device)] != nil { return true }
            // The log of the item is a guess.
            let own = RecordPlace(partitionSlot: place.partitionSlot, offset: place.recordOffset)
            if staleKeys[StaleKey(place: own, device: device)] != nil { return true }
        }
        return loads[device]!.waiting.contains { event in
            guard case .migration = event else { return false }
            return event.place.partitionSlot == place.partitionSlot
                && event.place.recordOffset == place.recordOffset
        }
    }

    /// Returns the offset of a partition's first push, up to `last`, that waits for the device. Such pushes exist
    /// only after a crash, because the store's items were read before the records that are read now.
    private func firstWaiting(_ device: DeviceKey, _ slot: UInt16, through last: Int64) -> Int64? {
        guard let load = loads[device] else { return nil }
        for case .record(let record) in load.waiting
        where record.isPush && record.place.partitionSlot == slot && record.place.offset <= last {
            return record.place.offset
        }
        return nil
    }

    /// Removes a waiting record because the store has its item. Returns the record's handle.
    private mutating func dropWaiting(_ place: RecordPlace, _ device: DeviceKey) -> UInt32? {
        guard
            let index = loads[device]!.waiting.firstIndex(where: { event in
                guard case .record = event else { return false }
                return event.place.partitionSlot == place.partitionSlot
                    && event.place.recordOffset == place.recordOffset
            })
        else { return nil }
        return loads[device]!.waiting.remove(at: index).handle
    }

    /// Records that an item of the device stays in the store.
    mutating func leaveInStore(_ device: DeviceKey, _ slot: UInt16) {
        guard isBegun(slot) else { return }
        evicted.insert(device, slot)
        // No timer loads an item that waited with its topic.
        if loads[device] == nil { standInLine(device, .partition(slot)) } else { reload(device) }
    }
}
