import SluiceModel

/// Orders to the store, and the store's answers.
extension ShardMachine {
    // MARK: Puts

    /// Has the store take an item as it is.
    mutating func store(_ slot: UInt32, _ version: UInt64, at now: DeliveryTime) -> ShardAction? {
        guard hasStore else { return .keep(slot) }
        // It may have ended since, in the same call.
        guard delivery.state(slot).isLive else { return nil }
        let place = delivery.place(slot)
        let device = delivery.device(slot)
        // A move can't be put off: the token change that it follows from is done.
        guard residency.mayPut(slot, device) else {
            delivery.storeFailed(slot, version: version)
            return nil
        }
        guard isBegun(place.partitionSlot) else { return nil }
        writing = write(slot, place, device, delivery.progressToStore(slot, at: now))
        residency.confirms(slot, version: version)
        return .put(slot)
    }

    mutating func write(
        _ slot: UInt32, _ place: RecordPlace, _ device: DeviceKey, _ progress: ItemProgress
    ) -> ItemWriting {
        let write = residency.put(slot, place, device, due: progress.dueMilliseconds)
        return ItemWriting(place: place, device: device, progress: progress, write: write)
    }

    /// The store has the push in this slot, or was asked to take it.
    public func isStored(_ slot: UInt32) -> Bool { residency.isStored(slot) }

    /// Has the store take what waits of a partition's records below `offset`, so that their offsets are complete.
    public mutating func relieve(_ slot: UInt16, below offset: Int64, at now: DeliveryTime) {
        if mayRelieve(slot) { delivery.relieve(partition: slot, below: offset, at: now) }
    }

    /// Records that are still to be taken may be among those to relieve.
    public func mayRelieve(_ slot: UInt16) -> Bool { !hasEnded && hasStore && isBegun(slot) }

    /// The store fails, or works again.
    public mutating func storeFails(_ isFailing: Bool) { residency.storeFails(isFailing) }

    // MARK: Devices in the store

    /// The store has an item of this device.
    public mutating func found(_ device: DeviceKey, offset: Int64, _ slot: UInt16) {
        if shard(of: device) == settings.index { residency.found(device, offset: offset, slot) }
    }

    /// Items of this device were on their way out.
    public mutating func awaited(_ device: DeviceKey, _ slot: UInt16) {
        if shard(of: device) == settings.index { residency.awaited(device, slot) }
    }

    /// All that the store has of a partition was told by ``found(_:offset:_:)``.
    public mutating func scanned(_ slot: UInt16) { residency.scanned(slot) }

    /// Items are due, all of whose records up to `readThrough` were taken before.
    /// - Parameter report: is made when more may come.
    public mutating func due(_ slot: UInt16, _ items: [DueItem], readThrough: Int64, report: ShardReport) {
        guard hasStore, !hasEnded else { return whenShort.append(report) }
        residency.hasRead(slot, through: readThrough)
        for item in items { residency.due(item.device, slot) }
        whenShort.append(report)
    }

    /// Presences of these devices have expired.
    public mutating func expired(_ slot: UInt16, _ devices: [DeviceKey], report: ShardReport) {
        whenShort.append(report)
        guard hasStore, !hasEnded else { return }
        for device in devices { residency.expired(device, slot) }
    }

    // MARK: Loads

    /// Asks for as many of the devices in line as may come now. True when more may follow when others have had their turn.
    public mutating func askForLoads(at now: UInt64) -> Bool { residency.askForLoads(at: now, delivery) }

    /// Reports that more may come, when the line for loads is short or none are asked for any more.
    public mutating func takeReports() -> [ShardReport] {
        guard !whenShort.isEmpty, !hasStore || hasEnded || residency.isLineShort else { return [] }
        let reports = whenShort
        whenShort = []
        return reports
    }

    /// The store has done a batch. ``stored(_:at:)`` of each put follows, and then its loads are taken in, by
    /// ``beginLoad(_:last:)``.
    public mutating func done(_ requests: StoreRequests) { residency.done(requests) }

    /// The store has made an item durable.
    public mutating func stored(_ put: StoreRequests.Put, at now: DeliveryTime) {
        delivery.stored(put.slot, version: put.version, at: now)
    }

    /// Begins to take in what a load has found: items up to the offset `last`, nil for none. False when nothing of it counts.
    /// ``endLoad()`` follows in either case.
    public mutating func beginLoad(_ load: RequestedLoad, last: Int64?) -> Bool {
        residency.beginLoad(load, last: last)
    }

    /// The load has found what is known of the device.
    /// - Returns: true when that has expired, and the store is to forget it.
    public mutating func restore(_ known: KnownPresence, _ load: RequestedLoad, at now: DeliveryTime) -> Bool
    {
        var known = known
        known.device = load.device
        known.partition = load.partitionSlot
        return !delivery.restore(known, at: now) && residency.mayForgetPresence(load)
            && isBegun(load.partitionSlot)
    }

    /// Judges an item that the load has found. Items come in the order of their offsets. A record that waits no more because
    /// of the item is complete, and the shard frees it.
    public mutating func judge(offset: Int64, _ load: RequestedLoad) -> LoadedItemVerdict {
        let verdict = residency.judge(offset: offset, delivery)
        if verdict.completes != nil {
            complete(RecordPlace(partitionSlot: load.partitionSlot, offset: offset), isRepeated: true)
        }
        return verdict
    }

    /// Takes an item back.
    /// - Parameters:
    ///   - place: as ``judge(offset:_:)`` has said.
    ///   - progress: as the store has it, with the moment that it is due.
    public mutating func restore(
        _ facts: PushFacts, _ place: RecordPlace, _ progress: ItemProgress, at now: DeliveryTime
    ) -> Settlement {
        var facts = facts
        facts.partition = place.partitionSlot
        facts.offset = place.offset
        facts.coalesceWindowMilliseconds = 0
        var progress = progress
        progress.isAccepted = progress.wait == .confirming
        progress.isOffsetDone = true
        progress.isStored = true
        progress.notBeforeNanoseconds = 0
        let admission = delivery.restore(facts, progress, at: now)
        guard admission != .full else {
            retryLoadsAt = residency.foundNoSlot(at: now.monotonicNanoseconds)
            return .leftOut
        }
        return settle(
            place, facts.device, admission, progress,
            ResidentFacts(restoredFrom: facts.device, due: progress.dueMilliseconds))
    }

    /// An item that the load has found can't be sent: it ends.
    public mutating func refuseRestored(
        _ place: RecordPlace, _ load: RequestedLoad, _ progress: ItemProgress
    ) -> OutcomeFacts {
        var facts = OutcomeFacts(place, progress)
        let resident = ResidentFacts(restoredFrom: load.device, due: progress.dueMilliseconds)
        isEnding(&facts, true, residency.ends(place, resident, load.device)?.item)
        return facts
    }

    /// All of the load was taken in.
    public mutating func endLoad() { residency.endLoad() }

    // MARK: Removals

    /// The outcome of an item is safe.
    /// - Returns: the item in the log that it is of, and the key that the next batch removes; nil: it is gone already.
    public mutating func remove(_ item: EndedItem) -> (item: EndedItem, key: StoredKey)? {
        residency.remove(item)
    }

    // MARK: Marks

    /// True when it is time to look for marks that are of no more use. ``committed(_:_:)`` of each partition, and then
    /// ``forgetMarks()``, follow.
    public mutating func mustForgetMarks(at now: UInt64) -> Bool { residency.mustForgetMarks(at: now) }

    /// A partition's committed watermark.
    public mutating func committed(_ slot: UInt16, _ offset: Int64) { residency.committed(slot, offset) }

    /// Marks of records that are committed by now are of no more use.
    public mutating func forgetMarks() { residency.forgetMarks() }

    /// The partition's log began anew: its marks are of other records.
    public mutating func forgetMarks(_ slot: UInt16) { residency.forgetMarks(slot) }
}
