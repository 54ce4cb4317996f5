import SluiceModel

/// Records on their way in, and items from other shards.
extension ShardMachine {
    // MARK: Before a record is decoded

    /// A record of this device comes soon. The call saves time, and has no other effect.
    @inline(__always)
    public mutating func prefetch(_ device: DeviceKey) {
        delivery.prefetch(device)
        residency.prefetch(device)
    }

    /// A record has come. Non-nil: its partition hasn't begun, and the record waits under this handle.
    @inline(__always)
    public mutating func arrives(_ place: RecordPlace) -> UInt32? {
        guard hasStore else { return nil }
        guard residency.isBegun(place.partitionSlot) else { return keptUntilBegun(place.partitionSlot) }
        residency.hasRead(place.partitionSlot, through: place.offset)
        return nil
    }

    private mutating func keptUntilBegun(_ slot: UInt16) -> UInt32 {
        let handle = newHandle()
        residency.keepUntilBegun(handle, slot)
        return handle
    }

    /// A record that was complete before has had its effect once more, and takes no room from here on.
    public mutating func replayed(_ place: RecordPlace) {
        freed(place.partitionSlot)
        news.replayed.append(place)
    }

    // MARK: What has to wait

    /// Non-nil: all of the push's device isn't in memory, and the push waits under this handle.
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

    /// The same of a cancel or device event.
    /// - Parameters:
    ///   - concernsPresence: what it reports is compared with what is known of the device.
    ///   - new: the device of the new token of a token change; nil: it is none.
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

    public func shard(of device: DeviceKey) -> Int { shardIndex(ofHash: device.low, shards: settings.shards) }

    // MARK: Pushes

    /// The record's item was moved before the worker crashed, or has ended and is still in the store: the record is complete,
    /// and the shard frees it.
    @inline(__always)
    public mutating func isDone(_ place: RecordPlace, _ device: DeviceKey, _ id: APNSID) -> Bool {
        guard residency.hasEnded(place, of: device) || residency.isMarked(place, id) else { return false }
        complete(place, isRepeated: true)
        return true
    }

    /// Takes a push from its record.
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

    /// - Parameter resident: what the store has of the push; nil: it comes from its record.
    mutating func settle(
        _ place: RecordPlace, _ device: DeviceKey, _ admission: Admission, _ progress: ItemProgress,
        _ resident: ResidentFacts?
    ) -> Settlement {
        switch admission {
        case .placed(let slot):
            if let resident { residency.placed(slot, place, resident, device) }
            return .placed(slot)
        case .replaced(let slot, let old):
            var facts = OutcomeFacts(
                RecordPlace(partitionSlot: old.partition, offset: old.offset), old.progress)
            if residency.isStored(slot), hasStore {
                isEnding(&facts, old.progress.isOffsetDone, residency.ends(slot)?.item)
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
            // The slot's push completes the offset, unless it is complete because the store has it.
            if let resident { residency.repeated(slot, place, resident, device) }
            let isRestored = resident?.isRestored ?? false
            if isDurable, !isRestored { complete(place, isRepeated: true) }
            freed(place, progress.isOffsetDone, resident ?? ResidentFacts())
            return .repeated
        case .full: return .leftOut
        }
    }

    /// A push ends that has no slot.
    private mutating func refuse(
        _ place: RecordPlace, _ device: DeviceKey, _ kind: OutcomeKind, _ cause: OutcomeCause?,
        newer: UInt32 = DeliveryMachine.noSlot, _ progress: ItemProgress, _ resident: ResidentFacts?
    ) -> Settlement {
        var facts = OutcomeFacts(place, progress)
        if let resident {
            if resident.storedDue != nil, hasStore {
                isEnding(&facts, progress.isOffsetDone, residency.ends(place, resident, device)?.item)
            }
            if resident.isRestored { residency.left(place) }
            freed(place, progress.isOffsetDone, resident)
        }
        return .refused(kind, cause, newer: newer, facts)
    }

    // MARK: Cancels and device events

    public mutating func cancel(
        _ device: DeviceKey, _ target: CancelTarget, _ place: RecordPlace, at now: DeliveryTime
    ) -> CancelResult {
        delivery.cancel(device, target, origin: RecordOrigin(place), at: now)
    }

    /// How many held items go out; nil: the store may have more of them.
    public mutating func online(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int? {
        let released = delivery.online(
            device, occurred: ReportTime(occurredMilliseconds, place), partition: place.partitionSlot, at: now
        )
        return residency.isPutOff(device) ? nil : released
    }

    /// How many items are held.
    public mutating func offline(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int {
        delivery.offline(
            device, occurred: ReportTime(occurredMilliseconds, place), partition: place.partitionSlot, at: now
        )
    }

    /// How many items that confirms.
    public mutating func receipt(
        _ device: DeviceKey, notificationKey: UInt64, occurredMilliseconds: Int64, _ place: RecordPlace,
        at now: DeliveryTime
    ) -> Int {
        delivery.receipt(
            device, notificationKey: notificationKey, occurred: ReportTime(occurredMilliseconds, place),
            partition: place.partitionSlot, at: now)
    }

    /// How many items end.
    public mutating func unregistered(
        _ device: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace, at now: DeliveryTime
    ) -> Int {
        delivery.unregistered(
            device, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place), at: now)
    }

    /// How many items move. ``remember(_:to:occurredMilliseconds:_:)`` and ``moveOn(_:after:at:)`` follow.
    public mutating func tokenChanged(
        _ device: DeviceKey, to new: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace,
        at now: DeliveryTime
    ) -> Int {
        change = place
        movedAt = occurredMilliseconds
        return delivery.tokenChanged(
            device, to: new, isElsewhere: shard(of: new) != settings.index, origin: RecordOrigin(place),
            at: now
        )
    }

    /// The number under which to keep the new token for ``moveOn(_:after:at:)``; nil: that needs none.
    public mutating func remember(
        _ device: DeviceKey, to new: DeviceKey, occurredMilliseconds: Int64, _ place: RecordPlace
    ) -> Int? {
        guard hasStore else { return nil }
        return residency.remember(
            device, to: new, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place))
    }

    /// Items that came to a device by a token change go on where the device's own token was changed to after that: the two
    /// events come through two partitions, the later one perhaps first.
    /// - Returns: the number of that token, which the actions are about; nil: nothing goes on.
    public mutating func moveOn(
        _ device: DeviceKey, after occurredMilliseconds: Int64, at now: DeliveryTime
    ) -> Int? {
        guard hasStore, let past = residency.change(of: device, after: occurredMilliseconds) else {
            return nil
        }
        change = nil
        movedAt = past.occurredMilliseconds
        // Also where it is this shard: as a departure it waits until all of that device is in memory.
        _ = delivery.tokenChanged(device, to: past.to, isElsewhere: true, origin: past.origin, at: now)
        return past.number
    }

    /// A cancel or device event has had its effect.
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

    /// Handles of token changes that nothing holds up any more. To be asked when all else of a turn is done.
    public mutating func takeChangesDone() -> [UInt32] { residency.takeChangesDone() }

    // MARK: Departures

    mutating func depart(_ slot: UInt32, at now: DeliveryTime) -> ShardAction {
        let place = delivery.place(slot)
        let isWritten = hasStore && residency.isStored(slot) && isBegun(place.partitionSlot)
        let progressToStore = isWritten ? delivery.progressToStore(slot, at: now) : nil
        let (facts, progress) = delivery.export(slot)
        residency.moved(slot, place, to: facts.device)
        // Here, and not by the shard that takes it over: that one may have to wait for the device first.
        let writing = progressToStore.map { write(slot, place, facts.device, $0) }
        let partition =
            Int(place.partitionSlot) < partitions.count ? partitions[Int(place.partitionSlot)] : 0
        departing = ItemMigration(
            facts: facts, progress: progress, resident: residency.facts(slot), movedAtMilliseconds: movedAt,
            partition: partition, writing: writing)
        residency.left(slot)
        delivery.release(slot)
        return .depart(slot)
    }

    /// An item comes whose device has a token of this shard now. Its older records were taken before.
    /// - Parameter isReleased: what its old shard has written of it can't come after what this one writes.
    public mutating func arrives(_ migration: borrowing ItemMigration, isReleased: Bool) -> MigrationVerdict {
        guard !hasEnded, has(migration.facts.partition, migration.partition) else {
            leftOut(migration)
            return .leftOut
        }
        let deferred = deferred(migration, isReleased: isReleased)
        switch residency.importItem(deferred, delivery) {
        case .deferred: return .deferred(deferred.handle)
        case .takeOver: return .takeOver
        case .leaveInStore:
            leftOut(migration)
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

    /// An item that was to be taken over can't be: the store has it under its new token, or Kafka has it after a restart.
    public mutating func cannotTakeOver(_ migration: borrowing ItemMigration) -> Settlement {
        if migration.resident.isRestored { residency.left(migration.place) }
        leftOut(migration)
        return .leftOut
    }

    /// An item from another shard stays in the store.
    public mutating func leftOut(_ migration: borrowing ItemMigration) {
        if !migration.progress.isOffsetDone { tellGaveBack(migration.facts.partition) }
        freed(migration.place, migration.progress.isOffsetDone, migration.resident)
    }

    /// Handles of departures that wait for a device and aren't released.
    public func unreleased(of device: DeviceKey) -> [UInt32] { residency.unreleased(of: device) }

    /// A departure may be taken over.
    public mutating func release(_ handle: UInt32, of device: DeviceKey) {
        residency.release(handle, of: device)
    }

    // MARK: Waiting events

    /// The next of the waiting events that may go on; nil: none may. Not to be asked while such an event is being dealt with.
    public mutating func nextEvent() -> ResidencyAction? {
        guard let action = residency.nextAction(delivery) else { return nil }
        if case .removed(let place, let device) = action {
            let own = RecordPlace(partitionSlot: place.partitionSlot, offset: place.recordOffset)
            news.removed.append(ShardProgress.Removal(place: own, device: device))
        }
        return action
    }

    /// Handles of token changes that Kafka brings again. To be asked when no event goes on any more.
    public mutating func takeChangesGivenBack() -> [UInt32] { residency.takeChangesGivenBack() }

    /// A record that waited is of a partition that goes away.
    public mutating func letGo(record place: RecordPlace) { giveBack(place.partitionSlot) }

    /// A departure that waited is of a partition that goes away.
    public mutating func letGo(_ migration: borrowing ItemMigration) {
        if !migration.progress.isOffsetDone { giveBack(migration.facts.partition) }
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
