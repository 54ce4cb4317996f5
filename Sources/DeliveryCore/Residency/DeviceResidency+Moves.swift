import SluiceModel

/// Items whose devices get new tokens while the store has the items.
extension DeviceResidency {
    // MARK: Marks

    /// Records a mark that was found when the partition was assigned. Every shard records the mark, and one shard has
    /// it removed.
    public mutating func foundMark(_ place: RecordPlace, _ id: APNSID, forgets: Bool) {
        guard isBegun(place.partitionSlot) else { return }
        marked[place] = id
        if forgets { marks.append(place) }
    }

    /// Returns true when the item of a push's record was moved before the worker crashed: the record is complete. A
    /// mark answers once.
    @inline(__always)
    public mutating func isMarked(_ place: RecordPlace, _ id: APNSID) -> Bool {
        !marked.isEmpty && marked.removeValue(forKey: place) == id
    }

    /// Records a partition's committed watermark.
    public mutating func committed(_ slot: UInt16, _ offset: Int64) {
        guard Int(slot) < partitions.count else { return }
        partitions[Int(slot)].committed = offset
    }

    /// Returns true when it is time to look for marks that are no longer needed: at most every 200 ms.
    public mutating func mustForgetMarks(at now: UInt64) -> Bool {
        guard !marks.isEmpty, now >= nextForgetting else { return false }
        nextForgetting = now + 200_000_000
        return true
    }

    /// Removes the marks whose records are committed.
    public mutating func forgetMarks() {
        for place in exchange(&marks, with: []) {
            if place.offset < self[place.partitionSlot].committed {
                forget(place)
            } else if isBegun(place.partitionSlot) {
                marks.append(place)
            }
        }
    }

    /// Removes the partition's marks because its log began anew: they belong to other records.
    public mutating func forgetMarks(_ slot: UInt16) {
        marked = marked.filter { $0.key.partitionSlot != slot }
        for place in marks where place.partitionSlot == slot { forget(place) }
        marks.removeAll { $0.partitionSlot == slot }
    }

    private mutating func forget(_ place: RecordPlace) {
        guard isBegun(place.partitionSlot) else { return }
        marked[place] = nil
        ask(.removeMark(place))
    }

    // MARK: Token changes that wait

    /// Records that an item in flight takes a new token over when it is retried. When the store has the item, it is
    /// there under the old token until the retry. The token change with the record `change` isn't done before.
    public mutating func noted(_ slot: UInt32, by change: RecordPlace?) {
        movedOn(slot)
        guard let change, isStored(slot) else { return }
        flags[Int(slot)].insert(.noted)
        residents[Int(slot)].change = change
        changes[change, default: TokenChange()].items += 1
    }

    /// Returns true when an item holds up a token change or erasure.
    func isNoted(_ slot: UInt32) -> Bool { flags[Int(slot)].contains(.noted) }

    /// Returns true when the outcome of a token change has to wait for items in flight.
    @inline(__always)
    public func mustWait(_ change: RecordPlace) -> Bool { !changes.isEmpty && changes[change] != nil }

    /// Keeps a token change for which ``mustWait(_:)`` returned true.
    public mutating func keepChange(_ change: RecordPlace, _ handle: UInt32) {
        assert(mustWait(change), "no item holds up the change")
        changes[change]?.handle = handle
    }

    /// Records that an item has moved or ended, and no longer holds up its token change.
    mutating func movedOn(_ slot: UInt32) {
        guard flags[Int(slot)].contains(.noted) else { return }
        flags[Int(slot)].remove(.noted)
        let place = residents[Int(slot)].change
        guard let items = changes[place]?.items else { return }
        changes[place]!.items = items - 1
        guard items == 1, let done = changes.removeValue(forKey: place) else { return }
        // Without a handle the token change is still being taken in.
        if let handle = done.handle { changesDone.append(handle) }
    }

    /// Gives the token change that an item holds up back to Kafka with the item, when both have the same partition.
    public mutating func givenBack(_ slot: UInt32) {
        guard flags[Int(slot)].contains(.noted) else { return }
        let place = residents[Int(slot)].change
        guard place.partitionSlot == residents[Int(slot)].place.partitionSlot else { return movedOn(slot) }
        flags[Int(slot)].remove(.noted)
        if let handle = changes.removeValue(forKey: place)?.handle { changesGivenBack.append(handle) }
    }

    /// Gives the waiting token changes of a partition, or of all when `slot` is nil, back to Kafka.
    public mutating func giveBackChanges(_ slot: UInt16?) {
        let given = changes.filter { slot == nil || $0.key.partitionSlot == slot }
        for (place, change) in given.sorted(by: {
            ($0.key.partitionSlot, $0.key.offset) < ($1.key.partitionSlot, $1.key.offset)
        }) {
            changes[place] = nil
            if let handle = change.handle { changesGivenBack.append(handle) }
        }
    }

    /// Returns the handles of token changes that no item holds up any more. Call when all other work of a turn is
    /// done.
    public mutating func takeChangesDone() -> [UInt32] { exchange(&changesDone, with: []) }

    /// Removes and returns the handle of a token change that is given back to Kafka; nil when there is none.
    public mutating func takeChangeGivenBack() -> UInt32? {
        changesGivenBack.isEmpty ? nil : changesGivenBack.removeFirst()
    }

    /// Returns true when the store has ended items of a device. A push that moves from the device waits for their removal.
    ///
    /// Outcomes of two devices are acknowledged in any order. If the push had moved and were done while the store has an
    /// older push that it has replaced, a crash would bring back the older push alone.
    public func mustAwaitRemovals(of device: DeviceKey) -> Bool { ended.has(storedUnder: device) }

    // MARK: Token changes in a row

    /// Remembers the new token of a device; the oldest entry is evicted when all numbers are taken. Returns the
    /// number under which the owner keeps the new token; nil when a later change is known.
    public mutating func remember(
        _ device: DeviceKey, to new: DeviceKey, occurredMilliseconds: Int64, origin: RecordOrigin
    ) -> Int? {
        var change = PastChange(
            number: 0, to: new, occurredMilliseconds: occurredMilliseconds, origin: origin)
        if let known = pastChanges[device] {
            guard known.occurredMilliseconds <= occurredMilliseconds else { return nil }
            change.number = known.number
        } else if pastDevices.count < limits.pastChanges {
            change.number = pastDevices.count
            pastDevices.append(device)
        } else {
            change.number = oldestPast
            pastChanges[pastDevices[oldestPast]] = nil
            pastDevices[oldestPast] = device
            oldestPast = (oldestPast + 1) % limits.pastChanges
        }
        pastChanges[device] = change
        return change.number
    }

    /// Forgets the token changes from and to a device. Returns the numbers under which the owner keeps their tokens.
    public mutating func forgetChanges(of device: DeviceKey) -> [Int] {
        let known = pastChanges.filter { $0.key == device || $0.value.to == device }
        for (old, change) in known {
            pastChanges[old] = nil
            // No device has this key, so that the number is taken again only in its turn.
            pastDevices[change.number] = DeviceKey(high: 0, low: 0)
        }
        return known.values.map(\.number)
    }

    /// Returns the change of the device's token after this moment; nil when none is known. Two such events come
    /// through two partitions, and the later event may come first.
    public func change(of device: DeviceKey, after occurredMilliseconds: Int64) -> PastChange? {
        guard let change = pastChanges[device], change.occurredMilliseconds > occurredMilliseconds else {
            return nil
        }
        return change
    }
}
