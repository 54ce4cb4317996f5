import SluiceModel

/// Arrival of records, and of items from other shards.
extension ShardMachine {
    // MARK: Before a record is decoded

    /// Prefetches the entries of a device because a record of it comes soon. Affects timing only.
    @inline(__always)
    public mutating func prefetch(_ device: DeviceKey) {
        delivery.prefetch(device)
        residency.prefetch(device)
    }

    /// Records that a record has arrived. Returns the handle under which it waits when its partition hasn't begun;
    /// nil otherwise.
    @inline(__always)
    public mutating func arrives(_ place: RecordPlace) -> UInt32? {
        guard hasStore else { return nil }
        guard residency.isBegun(place.partitionSlot) else { return keptUntilBegun(place.partitionSlot) }
        residency.hasRead(place.partitionSlot, through: place.offset)
        return nil
    }

    private mutating func keptUntilBegun(_ slot: UInt16) -> UInt32 {
        let handle = newHandle()
        residency.deferUntilBegun(handle, slot)
        return handle
    }

    /// Records that a complete push is read once more. Ends the waiting push that is older, if the push has a route.
    public mutating func replayed(_ place: RecordPlace, outdatedBy facts: PushFacts?, at now: DeliveryTime) {
        if let facts { delivery.outdate(by: facts, at: now) }
        replayed(place)
    }

    /// Records that a complete record has had its effect once more. From here on the record takes no room.
    public mutating func replayed(_ place: RecordPlace) {
        freed(place.partitionSlot)
        news.replayed.append(place)
    }

    // MARK: What has to wait

    /// Returns the handle under which the push waits, because its device isn't all in memory; nil when it may continue.
    @inline(__always)
    public mutating func mustWait(
        push device: DeviceKey, _ place: RecordPlace, _ mode: DeliveryMode
    ) -> UInt32? {
        let look = Self.look(place, mode)
        guard residency.mustDefer(device, look, delivery) else { return nil }
        return waits(DeferredRecord(device: device, place: place, look: look, isPush: true))
    }

    /// Does the same for a push that was complete before. The push follows the older ones that wait for its device,
    /// because it outdates them.
    public mutating func mustWait(replay device: DeviceKey, _ place: RecordPlace) -> UInt32? {
        guard residency.isAwaited(device) else { return nil }
        return waits(
            DeferredRecord(device: device, place: place, look: .nowhere, isPush: false, isReplay: true))
    }

    private static func look(_ place: RecordPlace, _ mode: DeliveryMode) -> PresenceLook {
        mode == .accept ? .nowhere : .partition(place.partitionSlot)
    }

    private mutating func waits(_ record: DeferredRecord) -> UInt32 {
        var record = record
        record.handle = newHandle()
        residency.deferUntilLoaded(record, delivery)
        return record.handle
    }

    /// Does the same for a cancel or device event.
    /// - Parameters:
    ///   - concernsPresence: true when the event's report is compared with the device's presence.
    ///   - new: device of a token change's new token; nil for other events.
    public mutating func mustWait(
        control device: DeviceKey, _ place: RecordPlace, concernsPresence: Bool, isReturn: Bool,
        new: DeviceKey?
    ) -> UInt32? {
        var record = DeferredRecord(
            device: device, place: place,
            look: concernsPresence ? .partition(place.partitionSlot) : .nowhere, isPush: false,
            isReturn: isReturn)
        if let new, new != device, shard(of: new) == settings.index { record.otherDevice = new }
        return residency.mustDefer(record, delivery) ? waits(record) : nil
    }

    /// Returns the number of the shard that owns the device.
    public func shard(of device: DeviceKey) -> Int { shardIndex(ofHash: device.low, shards: settings.shards) }

    // MARK: Pushes

    /// Returns true when the record is complete. Its item was moved before the worker crashed, or has ended and is
    /// still in the store. The shard frees the record.
    @inline(__always)
    public mutating func isDone(_ place: RecordPlace, _ device: DeviceKey, _ id: APNSID) -> Bool {
        guard residency.hasEnded(place, of: device) || residency.isMarked(place, id) else { return false }
        complete(place, isRepeated: true)
        return true
    }

    /// Admits a push from its record.
    public mutating func admit(_ facts: PushFacts, at now: DeliveryTime) -> Settlement {
        let admission = delivery.admit(facts, at: now)
        if case .placed(let slot) = admission { return .placed(slot) }
        let place = RecordPlace(partitionSlot: facts.partition, offset: facts.offset)
        guard admission != .full else {
            let record = DeferredRecord(
                handle: newHandle(), device: facts.device, place: place,
                look: Self.look(place, facts.delivery),
                isPush: true)
            residency.deferUntilSlot(record)
            return .deferred(record.handle)
        }
        return settle(place, facts.device, admission, ItemProgress(), nil)
    }

    /// - Parameter resident: state of the push in the store; nil when it comes from its record.
    mutating func settle(
        _ place: RecordPlace, _ device: DeviceKey, _ admission: Admission, _ progress: ItemProgress,
        _ resident: ResidentFacts?
    ) -> Settlement {
        switch admission {
        case .placed(let slot):
            if let resident { residency.addItem(slot, place, resident, device) }
            return .placed(slot)
        case .replaced(let slot, let old):
            var facts = OutcomeFacts(
                RecordPlace(partitionSlot: old.partition, offset: old.offset), old.progress)
            if residency.isStored(slot), hasStore {
                isEnding(&facts, old.progress.isOffsetDone, residency.itemEnded(slot)?.item)
            }
            if old.progress.isOffsetDone, !residency.isRestored(slot) { freed(old.partition) }
            residency.replaced(slot, place, resident ?? ResidentFacts(), device)
            return .replaced(slot, facts)
        case .obsolete(let newer):
            return refuse(place, device, .superseded, nil, newer: newer, progress, resident)
        case .deviceFull:
            return refuse(place, device, .undeliverable, .deviceLimit, progress, resident)
        case .expired: return refuse(place, device, .expired, nil, progress, resident)
        case .repeated(let slot, let isDurable):
            // The slot's push completes the offset, unless the offset is complete already because the store has the
            // push.
            if let resident { residency.repeated(slot, place, resident, device) }
            let isRestored = resident?.isRestored ?? false
            if isDurable, !isRestored { complete(place, isRepeated: true) }
            freed(place, progress.isOffsetDone, resident ?? ResidentFacts())
            return .repeated
        case .full: return .leftOut
        }
    }

    /// Ends a push that has no slot.
    private mutating func refuse(
        _ place: RecordPlace, _ device: DeviceKey, _ kind: OutcomeKind, _ cause: OutcomeCause?,
        newer: UInt32 = DeliveryMachine.noSlot, _ progress: ItemProgress, _ resident: ResidentFacts?
    ) -> Settlement {
        var facts = OutcomeFacts(place, progress)
        if let resident {
            if resident.storedDue != nil, hasStore {
                isEnding(&facts, progress.isOffsetDone, residency.itemEnded(place, resident, device)?.item)
            }
            if resident.isRestored { residency.removeItem(place) }
            freed(place, progress.isOffsetDone, resident)
        }
        return .refused(kind, cause, newer: newer, facts)
    }

    // MARK: Departures

    mutating func depart(_ slot: UInt32, at now: DeliveryTime) -> ShardAction {
        let place = delivery.recordPlace(slot)
        let isWritten = hasStore && residency.isStored(slot) && isBegun(place.partitionSlot)
        let progressToStore = isWritten ? delivery.progressToStore(slot, at: now) : nil
        let movedAt = delivery.movedAt(slot)
        let (facts, progress) = delivery.export(slot)
        residency.moved(slot, place, to: facts.device)
        // The old shard writes the item, because the shard that takes it over may have to wait for the device first.
        let writing = progressToStore.map { write(slot, place, facts.device, $0) }
        let partition =
            Int(place.partitionSlot) < partitions.count ? partitions[Int(place.partitionSlot)] : 0
        assert(departing == nil, "the item that departed before wasn't taken")
        departing = ItemMigration(
            facts: facts, progress: progress, resident: residency.facts(slot), movedAtMilliseconds: movedAt,
            partition: partition, writing: writing)
        residency.removeItem(slot)
        delivery.release(slot)
        return .depart(slot)
    }

    /// Removes and returns the item of a ``ShardAction/depart(_:)``, before the next action.
    public mutating func takeDeparture() -> ItemMigration {
        guard let item = exchange(&departing, with: nil) else { preconditionFailure("no item departs") }
        return item
    }

    /// Decides what to do with an item whose device now has a token of this shard. Its older records were taken
    /// before.
    /// - Parameter isReleased: true when the old shard's reports of the item can't come after this shard's.
    public mutating func arrives(_ migration: borrowing ItemMigration, isReleased: Bool) -> MigrationVerdict {
        guard !hasEnded, has(migration.facts.partition, migration.partition) else {
            skip(migration)
            return .leftOut
        }
        let deferred = deferred(migration, isReleased: isReleased)
        switch residency.importItem(deferred, delivery) {
        case .deferred: return .deferred(deferred.handle)
        case .takeOver: return .takeOver
        case .leaveInStore:
            skip(migration)
            return .leftOut
        }
    }

    private mutating func deferred(
        _ migration: borrowing ItemMigration, isReleased: Bool
    ) -> DeferredMigration {
        DeferredMigration(
            handle: newHandle(), device: migration.facts.device, place: migration.place,
            isReleased: isReleased, isRestored: migration.resident.isRestored)
    }

    /// Takes an item over when all of its device is in memory.
    public mutating func takeOver(
        _ migration: borrowing ItemMigration, at now: DeliveryTime
    ) -> Settlement {
        guard !hasEnded, has(migration.facts.partition, migration.partition) else {
            return cannotTakeOver(migration)
        }
        let admission = delivery.importItem(migration.facts, migration.progress, at: now)
        guard admission != .full else {
            let deferred = deferred(migration, isReleased: true)
            residency.deferUntilSlot(deferred)
            return .deferred(deferred.handle)
        }
        if hasStore, let movedAt = migration.movedAtMilliseconds {
            steps.prepend(.moveOn(migration.facts.device, after: movedAt))
        }
        return settle(
            migration.place, migration.facts.device, admission, migration.progress, migration.resident)
    }

    /// Releases an item that can't be taken over after all. The store has it under its new token, or Kafka has it
    /// after a restart.
    public mutating func cannotTakeOver(_ migration: borrowing ItemMigration) -> Settlement {
        if migration.resident.isRestored { residency.removeItem(migration.place) }
        skip(migration)
        return .leftOut
    }

    /// Leaves an item from another shard in the store.
    public mutating func skip(_ migration: borrowing ItemMigration) {
        if !migration.progress.isOffsetDone { reportReturned(migration.facts.partition) }
        freed(migration.place, migration.progress.isOffsetDone, migration.resident)
    }

    /// Takes over the departures that wait for a device and were released meanwhile.
    public mutating func release(_ device: DeviceKey, _ isReleased: (UInt32) -> Bool) {
        for handle in residency.unreleased(of: device) where isReleased(handle) {
            residency.release(handle, of: device)
        }
    }

    // MARK: Waiting events

    /// Returns the action for the next waiting event that may continue; nil when none may. Not called while an event is
    /// handled.
    public mutating func nextEvent(at now: DeliveryTime) -> ResidencyAction? {
        if let handle = residency.takeChangeGivenBack() { return .discard(handle) }
        guard let action = residency.nextAction(delivery) else {
            return !steps.isEmpty && runStep(followsEvents: true, at: now) ? nextEvent(at: now) : nil
        }
        if case .removed(let place, let device) = action {
            let own = RecordPlace(partitionSlot: place.partitionSlot, offset: place.recordOffset)
            news.removed.append(ShardProgress.Removal(place: own, device: device))
        }
        return action
    }

    /// Releases a record that waited, because its partition is revoked.
    public mutating func discard(record place: RecordPlace) { countReturned(place.partitionSlot) }

    /// Releases a departure that waited, because its partition is revoked.
    public mutating func discard(_ migration: borrowing ItemMigration) {
        if !migration.progress.isOffsetDone { countReturned(migration.facts.partition) }
        freed(migration.place, migration.progress.isOffsetDone, migration.resident)
    }
}

extension RecordOrigin {
    init(_ place: RecordPlace) { self.init(partition: place.partitionSlot, offset: place.offset) }
}

extension ReportTime {
    init(_ milliseconds: Int64, _ place: RecordPlace) {
        self.init(milliseconds: milliseconds, offset: place.offset)
    }
}
