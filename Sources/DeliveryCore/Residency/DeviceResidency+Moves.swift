import SluiceModel

/// Items whose devices get new tokens while the store has them.
extension DeviceResidency {
    // MARK: Marks

    /// A mark was found when the partition was taken over. All shards know it, and one has it forgotten.
    public mutating func foundMark(_ place: RecordPlace, _ id: APNSID, forgets: Bool) {
        guard isBegun(place.partitionSlot) else { return }
        marked[place] = id
        if forgets { marks.append(place) }
    }

    /// The item of a push's record was moved before the worker crashed: the record is complete. Asked once.
    @inline(__always)
    public mutating func isMarked(_ place: RecordPlace, _ id: APNSID) -> Bool {
        !marked.isEmpty && marked.removeValue(forKey: place) == id
    }

    /// A partition's committed watermark.
    public mutating func committed(_ slot: UInt16, _ offset: Int64) {
        guard Int(slot) < partitions.count else { return }
        partitions[Int(slot)].committed = offset
    }

    /// Whether it is time to look for marks that are of no more use.
    public mutating func mustForgetMarks(at now: UInt64) -> Bool {
        guard !marks.isEmpty, now >= nextForgetting else { return false }
        nextForgetting = now + 200_000_000
        return true
    }

    /// Marks of records that are committed by now are of no more use.
    public mutating func forgetMarks() {
        for place in exchange(&marks, with: []) {
            if place.offset < self[place.partitionSlot].committed {
                forget(place)
            } else if isBegun(place.partitionSlot) {
                marks.append(place)
            }
        }
    }

    /// The partition's log began anew: its marks are of other records.
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

    /// An item in flight takes a new token over when it is tried again. When the store has it, it does so under the old
    /// token until then: the token change, whose record this is, isn't done before.
    public mutating func noted(_ slot: UInt32, by change: RecordPlace?) {
        movedOn(slot)
        guard let change, isStored(slot) else { return }
        flags[Int(slot)].insert(.noted)
        residents[Int(slot)].change = change
        changes[change, default: TokenChange()].items += 1
    }

    /// Whether the outcome of a token change has to wait for items in flight.
    @inline(__always)
    public func mustWait(_ change: RecordPlace) -> Bool { !changes.isEmpty && changes[change] != nil }

    /// Keeps a token change of which ``mustWait(_:)`` says that it has to wait.
    public mutating func keepChange(_ change: RecordPlace, _ handle: UInt32) {
        changes[change]?.handle = handle
    }

    /// An item has moved or ended: the token change that it held up isn't held up by it any more.
    mutating func movedOn(_ slot: UInt32) {
        guard flags[Int(slot)].contains(.noted) else { return }
        flags[Int(slot)].remove(.noted)
        let place = residents[Int(slot)].change
        guard let items = changes[place]?.items else { return }
        changes[place]!.items = items - 1
        guard items == 1, let done = changes.removeValue(forKey: place) else { return }
        // Without a handle it is being taken in.
        if let handle = done.handle { changesDone.append(handle) }
    }

    /// An item is given back to Kafka, and so is the token change that it holds up, if that is of the same partition.
    public mutating func givenBack(_ slot: UInt32) {
        guard flags[Int(slot)].contains(.noted) else { return }
        let place = residents[Int(slot)].change
        guard place.partitionSlot == residents[Int(slot)].place.partitionSlot else { return movedOn(slot) }
        flags[Int(slot)].remove(.noted)
        if let handle = changes.removeValue(forKey: place)?.handle { changesGivenBack.append(handle) }
    }

    /// Gives the waiting token changes of a partition, or all of them, back to Kafka.
    public mutating func giveBackChanges(_ slot: UInt16?) {
        let given = changes.filter { slot == nil || $0.key.partitionSlot == slot }
        for (place, change) in given.sorted(by: {
            ($0.key.partitionSlot, $0.key.offset) < ($1.key.partitionSlot, $1.key.offset)
        }) {
            changes[place] = nil
            if let handle = change.handle { changesGivenBack.append(handle) }
        }
    }

    /// Handles of token changes that nothing holds up any more. To be asked when all else of a turn is done.
    public mutating func takeChangesDone() -> [UInt32] { exchange(&changesDone, with: []) }

    /// Handles of token changes that are given back to Kafka.
    public mutating func takeChangesGivenBack() -> [UInt32] { exchange(&changesGivenBack, with: []) }

    // MARK: Token changes in a row

    /// Remembers what a device's token was changed to; the oldest gives way. The number under which the owner keeps the new
    /// token; nil: a later change is known.
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

    /// What the token of a device was changed to after this moment; nil: nothing is known of that. The two events come
    /// through two partitions, the later one perhaps first.
    public func change(of device: DeviceKey, after occurredMilliseconds: Int64) -> PastChange? {
        guard let change = pastChanges[device], change.occurredMilliseconds > occurredMilliseconds else {
            return nil
        }
        return change
    }
}
