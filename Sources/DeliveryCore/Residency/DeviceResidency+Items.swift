import SluiceModel

/// State in the store of the items in memory, by slot of the delivery machine, and of ended items.
///
/// A push that was never handed to the store has no flag. At its end the shard reads one byte for it.
extension DeviceResidency {
    // MARK: Slots

    /// Records that an item has got a slot, with the facts that the store has of the item.
    public mutating func addItem(
        _ slot: UInt32, _ place: RecordPlace, _ facts: ResidentFacts, _ device: DeviceKey
    ) {
        var new: Resident.Flags = []
        if facts.storedDue != nil { new.insert(.stored) }
        if facts.isRestored { new.insert(.restored) }
        if facts.hasMoved { new.insert(.moved) }
        if facts.isMarked { new.insert(.marked) }
        flags[Int(slot)] = new
        guard new != [] else { return }
        var resident = Resident(
            place: place, device: device, assignment: self[place.partitionSlot].assignment)
        resident.storedUnder = facts.storedUnder
        resident.storedDue = facts.storedDue ?? 0
        residents[Int(slot)] = resident
        if facts.isRestored { restored.insert(place) }
    }

    /// Records that an item has replaced an older one, whose end was reported before. The new item takes over a new
    /// token that the older item waits for. When the store has the new item, the token change waits for the new item
    /// instead.
    public mutating func replaced(
        _ slot: UInt32, _ place: RecordPlace, _ facts: ResidentFacts, _ device: DeviceKey
    ) {
        let isNoted = flags[Int(slot)].contains(.noted)
        let change = isNoted ? residents[Int(slot)].change : place
        if isNoted, facts.storedDue != nil { flags[Int(slot)].remove(.noted) }
        removeItem(slot)
        addItem(slot, place, facts, device)
        guard isNoted, facts.storedDue != nil else { return }
        flags[Int(slot)].insert(.noted)
        residents[Int(slot)].change = change
    }

    /// Records that the arrived item was in this slot already. At its end the item has to leave the store as well.
    public mutating func repeated(
        _ slot: UInt32, _ place: RecordPlace, _ facts: ResidentFacts, _ device: DeviceKey
    ) {
        guard let due = facts.storedDue, !flags[Int(slot)].contains(.stored) else { return }
        addResident(slot, place, device)
        flags[Int(slot)].insert(.stored)
        residents[Int(slot)].storedUnder = facts.storedUnder
        residents[Int(slot)].storedDue = due
    }

    /// Returns the state in the store of the item in a slot.
    public func facts(_ slot: UInt32) -> ResidentFacts {
        var facts = ResidentFacts()
        let flags = flags[Int(slot)]
        guard flags != [] else { return facts }
        if flags.contains(.stored) {
            facts.storedUnder = residents[Int(slot)].storedUnder
            facts.storedDue = residents[Int(slot)].storedDue
        }
        facts.isRestored = flags.contains(.restored)
        facts.hasMoved = flags.contains(.moved)
        facts.isMarked = flags.contains(.marked)
        return facts
    }

    /// Returns true when the store was asked to keep the item.
    @inline(__always)
    public func isStored(_ slot: UInt32) -> Bool { flags[Int(slot)].contains(.stored) }

    /// Returns true when the item came from the store.
    @inline(__always)
    public func isRestored(_ slot: UInt32) -> Bool { flags[Int(slot)].contains(.restored) }

    /// Removes an item from its slot because it has ended, was evicted, departs, or is replaced.
    @inline(__always)
    public mutating func removeItem(_ slot: UInt32) {
        if flags[Int(slot)] != [] { forget(slot) }
    }

    private mutating func forget(_ slot: UInt32) {
        let resident = residents[Int(slot)]
        movedOn(slot)
        if flags[Int(slot)].contains(.restored), isCurrent(resident) { restored.remove(resident.place) }
        flags[Int(slot)] = []
    }

    /// Releases a restored item that had no slot: it came from another shard and couldn't be taken over.
    public mutating func removeItem(_ place: RecordPlace) { restored.remove(place) }

    /// Evicts an item from memory; the store has it. Events of its device continue when the item is loaded again.
    public mutating func evict(_ slot: UInt32) {
        let resident = residents[Int(slot)]
        removeItem(slot)
        evicted.insert(resident.device, resident.place.partitionSlot)
        reload(resident.device)
    }

    /// Puts the device of a stored item in the line for its turn. The device is online, and the item is evicted next.
    /// The item is loaded when the device has its turn.
    public mutating func awaitsTurn(_ slot: UInt32) {
        awaited(residents[Int(slot)].device, residents[Int(slot)].place.partitionSlot)
    }

    /// Returns true while the assignment of the item's partition lasts. After its end nobody removes the item, and
    /// the slot may belong to another partition.
    private func isCurrent(_ resident: Resident) -> Bool {
        let partition = self[resident.place.partitionSlot]
        return partition.isBegun && partition.assignment == resident.assignment
    }

    private mutating func addResident(_ slot: UInt32, _ place: RecordPlace, _ device: DeviceKey) {
        guard flags[Int(slot)] == [] else { return }
        residents[Int(slot)] = Resident(
            place: place, device: device, assignment: self[place.partitionSlot].assignment)
    }

    // MARK: Puts

    /// Records whether the store fails at present.
    public mutating func storeFails(_ isFailing: Bool) { self.isFailing = isFailing }

    /// Returns true when the store may be asked to keep an item for a device. While the store fails, requests wait.
    /// Only a move is added to the waiting requests, because the token change that caused the move is done.
    public func mayPut(_ slot: UInt32, _ device: DeviceKey) -> Bool { !isFailing || hasLeft(slot, device) }

    /// Returns true when the store has the item under an old token of its device.
    private func hasLeft(_ slot: UInt32, _ device: DeviceKey) -> Bool {
        isStored(slot) && residents[Int(slot)].storedUnder != device
    }

    /// Records that an item is written under its device's present token. Returns the requests for the same batch.
    public mutating func put(
        _ slot: UInt32, _ place: RecordPlace, _ device: DeviceKey, due: Int64
    ) -> StoreWrite {
        addResident(slot, place, device)
        var write = StoreWrite(replacesDue: nil, leaves: nil, marks: false)
        let resident = residents[Int(slot)]
        if hasLeft(slot, device) {
            write.leaves = StoredKey(device: resident.storedUnder, due: resident.storedDue)
            let stale = StaleKey(place: place, device: resident.storedUnder)
            staleKeys[stale, default: 0] += 1
            requests.staleKeys.append(stale)
        } else if isStored(slot) {
            write.replacesDue = resident.storedDue
        }
        residents[Int(slot)].device = device
        residents[Int(slot)].storedUnder = device
        residents[Int(slot)].storedDue = due
        flags[Int(slot)].insert(.stored)
        if flags[Int(slot)].contains(.moved), !flags[Int(slot)].contains(.marked),
            place.offset >= self[place.partitionSlot].committed
        {
            write.marks = true
            flags[Int(slot)].insert(.marked)
            marks.append(place)
        }
        return write
    }

    /// Requests a report to the delivery machine when this version of the item is durable.
    public mutating func confirms(_ slot: UInt32, version: UInt64) {
        requests.puts.append(StoreRequests.Put(slot: slot, version: version))
    }

    /// Records that the token of an item's device differs from the token in the item's record.
    public mutating func moved(_ slot: UInt32, _ place: RecordPlace, to device: DeviceKey) {
        addResident(slot, place, device)
        residents[Int(slot)].device = device
        flags[Int(slot)].insert(.moved)
        movedOn(slot)
    }

    // MARK: Batches

    /// Returns the requests of a batch that is handed over now, and begins an empty list.
    public mutating func takeRequests() -> StoreRequests { exchange(&requests, with: StoreRequests()) }

    /// Records that the store has done a batch. The loads of the batch are still to be taken in.
    public mutating func done(_ requests: StoreRequests) {
        for stale in requests.staleKeys {
            guard let count = staleKeys[stale] else { continue }
            staleKeys[stale] = count > 1 ? count - 1 : nil
        }
        for item in requests.removals {
            guard let entry = ended.removed(item) else { continue }
            ask(.removed(item.place, entry.device))
        }
    }

    // MARK: Ends

    /// Records that the item in a slot has ended, with an outcome for its device. Returns the ended item and its key
    /// in the store; nil when the store doesn't have it. The store keeps the item until the outcome is safe.
    public mutating func itemEnded(_ slot: UInt32) -> (item: EndedItem, key: StoredKey)? {
        guard isStored(slot) else { return nil }
        let resident = residents[Int(slot)]
        let key = StoredKey(device: resident.storedUnder, due: resident.storedDue)
        if isCurrent(resident) { ended.insert(resident.place, key, resident.device) }
        return (EndedItem(device: resident.device.low, place: resident.place), key)
    }

    /// Does the same for an item without a slot.
    public mutating func itemEnded(
        _ place: RecordPlace, _ facts: ResidentFacts, _ device: DeviceKey
    ) -> (item: EndedItem, key: StoredKey)? {
        guard let due = facts.storedDue else { return nil }
        let key = StoredKey(device: facts.storedUnder, due: due)
        if isBegun(place.partitionSlot) { ended.insert(place, key, device) }
        return (EndedItem(device: device.low, place: place), key)
    }

    /// Returns true when the item of a record for this device has ended and is still in the store.
    @inline(__always)
    public func hasEnded(_ place: RecordPlace, of device: DeviceKey) -> Bool {
        !ended.isEmpty
            && (ended.has(place, storedUnder: device)
                || ended.has(EndedItem(device: device.low, place: place)))
    }

    /// Requests an item's removal in the next batch, because its outcome is safe. Returns the key to remove, and the
    /// item in the log that it belongs to. Returns nil when the item is gone already.
    public mutating func remove(_ item: EndedItem) -> (item: EndedItem, key: StoredKey)? {
        guard isBegun(item.place.partitionSlot) else { return nil }
        let earlier = EndedItem(device: item.device, place: item.place.inEarlierLog)
        for found in [item, earlier] {
            guard let key = ended.remove(found) else { continue }
            requests.removals.append(found)
            return (found, key)
        }
        return nil
    }
}
