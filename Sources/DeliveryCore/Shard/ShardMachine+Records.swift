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

    /// Ends the waiting push that is older than a push whose record is complete. ``replayed(_:)`` follows.
    public mutating func outdate(by facts: PushFacts, at now: DeliveryTime) {
        delivery.outdate(by: facts, at: now)
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

    // MARK: Cancels and device events

    /// Withdraws the pending items under a collapse identifier or `apns-id` of a device.
    public mutating func cancel(
        _ device: DeviceKey, _ target: CancelTarget, _ place: RecordPlace, at now: DeliveryTime
    ) -> CancelResult {
        delivery.cancel(device, target, origin: RecordOrigin(place), at: now)
    }

    /// Records that the device is online. Returns the number of released items; nil when the store may have more of
    /// them.
    public mutating func online(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int? {
        let released = delivery.online(
            device, occurred: ReportTime(occurredMilliseconds, place), partition: place.partitionSlot, at: now
        )
        return residency.isPutOff(device) ? nil : released
    }

    /// Records that the device is offline. Returns the number of held items.
    public mutating func offline(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int {
        delivery.offline(
            device, occurred: ReportTime(occurredMilliseconds, place), partition: place.partitionSlot, at: now
        )
    }

    /// Records a receipt. Returns the number of items that it confirms.
    public mutating func receipt(
        _ device: DeviceKey, notificationKey: UInt64, occurredMilliseconds: Int64, _ place: RecordPlace,
        at now: DeliveryTime
    ) -> Int {
        delivery.receipt(
            device, notificationKey: notificationKey, occurred: ReportTime(occurredMilliseconds, place),
            partition: place.partitionSlot, at: now)
    }

    /// Records that the device token is no longer registered. Returns the number of items that end.
    public mutating func unregistered(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int {
        delivery.unregistered(
            device, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place), at: now)
    }

    /// Ends all pending items of a device whose data is to be erased, and removes its presence from memory and store. An
    /// item in flight ends with its attempt; if the store has the item, the event isn't done before.
    /// - Returns: the number of items that end, and the numbers of token changes whose tokens the owner forgets.
    public mutating func erase(
        _ device: DeviceKey, _ place: RecordPlace, at now: DeliveryTime
    ) -> (count: Int, changes: [Int]) {
        change = place
        let count = delivery.erase(device, origin: RecordOrigin(place), at: now)
        guard hasStore else { return (count, []) }
        // Any partition can have a copy of the presence, which went with an item.
        for slot in partitions.indices where isBegun(UInt16(slot)) {
            forgetPresence(of: device, in: UInt16(slot))
        }
        return (count, residency.forgetChanges(of: device))
    }

    /// Moves a device's items to its new token. Returns the number of items that move.
    /// ``remember(_:to:occurredMilliseconds:_:)`` and ``moveOn(_:after:at:)`` follow.
    public mutating func tokenChanged(
        _ device: DeviceKey, to new: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace,
        at now: DeliveryTime
    ) -> Int {
        change = place
        return delivery.tokenChanged(
            device, to: new, isElsewhere: shard(of: new) != settings.index,
            mayWait: hasStore, waits: mustAwaitRemovals(of: device),
            occurredMilliseconds: occurredMilliseconds,
            origin: RecordOrigin(place), at: now)
    }

    /// Returns true when items that move from a device have to wait. With transactions an outcome and its item's removal
    /// are one unit.
    func mustAwaitRemovals(of device: DeviceKey) -> Bool {
        mode != .transactions && residency.mustAwaitRemovals(of: device)
    }

    /// Remembers a token change. Returns the number under which to keep the new token for ``moveOn(_:after:at:)``;
    /// nil when no token is kept.
    public mutating func remember(
        _ device: DeviceKey, to new: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace
    ) -> Int? {
        guard hasStore else { return nil }
        return residency.remember(
            device, to: new, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place))
    }

    /// Moves items that reached a device by a token change on to that device's own later token. The two events come
    /// through two partitions, and the later event may come first.
    /// - Returns: the number of that token, which the actions refer to; nil when no item moves on.
    public mutating func moveOn(
        _ device: DeviceKey, after occurredMilliseconds: Int64, at now: DeliveryTime
    ) -> Int? {
        guard hasStore, let past = residency.change(of: device, after: occurredMilliseconds) else {
            return nil
        }
        change = nil
        // Applies also when the token is this shard's: as a departure, the item waits until all of that device is in
        // memory.
        _ = delivery.tokenChanged(
            device, to: past.to, isElsewhere: true, mayWait: true, waits: mustAwaitRemovals(of: device),
            occurredMilliseconds: past.occurredMilliseconds, origin: past.origin, at: now)
        return past.number
    }

    /// Ends a cancel or device event that has had its effect.
    public mutating func applied(_ place: RecordPlace, isReplay: Bool) -> ControlEnd {
        if residency.mustWait(place) {
            let handle = newHandle()
            residency.keepChange(place, handle)
            return .waits(handle)
        }
        guard isReplay else { return .outcome }
        replayed(place)
        return .replayed
    }

    /// Returns the handles of token changes that no item holds up any more. Call when all other work of a turn is
    /// done.
    public mutating func takeChangesDone() -> [UInt32] { residency.takeChangesDone() }

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
        departing = ItemMigration(
            facts: facts, progress: progress, resident: residency.facts(slot), movedAtMilliseconds: movedAt,
            partition: partition, writing: writing)
        residency.removeItem(slot)
        delivery.release(slot)
        return .depart(slot)
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

    /// Takes an item over when all of its device is in memory. ``moveOn(_:after:at:)`` follows.
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

    /// Returns the handles of departures that wait for a device and aren't released.
    public func unreleased(of device: DeviceKey) -> [UInt32] { residency.unreleased(of: device) }

    /// Records that a departure may be taken over.
    public mutating func release(_ handle: UInt32, of device: DeviceKey) {
        residency.release(handle, of: device)
    }

    // MARK: Waiting events

    /// Returns the action for the next waiting event that may continue; nil when none may. Don't call while handling an
    /// event.
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
