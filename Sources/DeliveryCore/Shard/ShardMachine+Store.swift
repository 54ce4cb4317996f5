import SluiceModel

/// Requests to the store, and the store's answers.
extension ShardMachine {
    // MARK: Puts

    /// Requests that the store keep an item in its present state.
    mutating func store(_ slot: UInt32, _ version: UInt64, at now: DeliveryTime) -> ShardAction? {
        guard hasStore else { return .keep(slot) }
        // The item may have ended since, in the same call.
        guard delivery.state(slot).isLive else { return nil }
        let place = delivery.recordPlace(slot)
        let device = delivery.device(slot)
        // A move can't be put off, because the token change that caused it is done.
        guard residency.mayPut(slot, device) else {
            delivery.storeFailed(slot, version: version)
            return nil
        }
        guard isBegun(place.partitionSlot) else { return nil }
        assert(writing == nil, "the write before wasn't taken")
        writing = write(slot, place, device, delivery.progressToStore(slot, at: now))
        residency.confirms(slot, version: version)
        return .put(slot)
    }

    /// Removes and returns the write of a ``ShardAction/put(_:)``, before the next action. An action with its write would
    /// make all actions larger.
    public mutating func takeWriting() -> ItemWriting {
        guard let taken = exchange(&writing, with: nil) else {
            preconditionFailure("nothing is to be written")
        }
        return taken
    }

    mutating func write(
        _ slot: UInt32, _ place: RecordPlace, _ device: DeviceKey, _ progress: ItemProgress
    ) -> ItemWriting {
        let write = residency.put(slot, place, device, due: progress.dueMilliseconds)
        return ItemWriting(place: place, device: device, progress: progress, write: write)
    }

    // MARK: Devices in the store

    /// Records that the store has an item of this device.
    public mutating func found(_ device: DeviceKey, offset: Int64, _ slot: UInt16) {
        if shard(of: device) == settings.index { residency.found(device, offset: offset, slot) }
    }

    /// Records that items of this device were on their way out.
    public mutating func awaited(_ device: DeviceKey, _ slot: UInt16) {
        if shard(of: device) == settings.index { residency.awaited(device, slot) }
    }

    /// Records that ``found(_:offset:_:)`` has reported all devices that the store has of a partition.
    public mutating func scanned(_ slot: UInt16) { residency.scanned(slot) }

    // MARK: Loads

    /// Issues the loads that may be issued now. Returns true when more may follow as soon as other work has had its
    /// turn.
    public mutating func askForLoads(at now: UInt64) -> Bool { residency.askForLoads(at: now, delivery) }

    /// Returns the reports that are due. Reports that more may come are due when the line for loads is short, or no loads
    /// are issued any more.
    public mutating func takeReports() -> [ShardReport] {
        if !reportsWhenLineIsShort.isEmpty, !hasStore || hasEnded || residency.isLineShort {
            reports += exchange(&reportsWhenLineIsShort, with: [])
        }
        return reports.isEmpty ? [] : exchange(&reports, with: [])
    }

    /// Records that the store has done a batch: its items are durable. Then the batch's loads are taken in, by
    /// ``beginLoad(_:last:)``.
    public mutating func done(_ requests: StoreRequests, at now: DeliveryTime) {
        residency.done(requests)
        for put in requests.puts { delivery.stored(put.slot, version: put.version, at: now) }
    }

    /// Begins to take in the items that a load has found, up to the offset `last`; nil when it found none. Returns
    /// false when the load doesn't count. ``endLoad()`` follows in either case.
    public mutating func beginLoad(_ load: RequestedLoad, last: Int64?) -> Bool {
        residency.beginLoad(load, last: last)
    }

    /// Restores the device's presence that the load has found.
    /// - Returns: true when the presence has expired, and the store is to remove it.
    public mutating func restore(_ known: KnownPresence, _ load: RequestedLoad, at now: DeliveryTime) -> Bool
    {
        var known = known
        known.device = load.device
        known.partition = load.partitionSlot
        return !delivery.restore(known, at: now) && residency.mayForgetPresence(load)
            && isBegun(load.partitionSlot)
    }

    /// Judges an item that the load has found. Items come in the order of their offsets. A record that waits no more
    /// because of the item is complete, and the shard frees the record.
    public mutating func judge(offset: Int64, _ load: RequestedLoad) -> LoadedItemVerdict {
        let verdict = residency.judge(offset: offset, delivery)
        if verdict.completes != nil {
            complete(RecordPlace(partitionSlot: load.partitionSlot, offset: offset), isRepeated: true)
        }
        return verdict
    }

    /// Restores an item.
    /// - Parameters:
    ///   - place: place from the verdict of ``judge(offset:_:)``.
    ///   - progress: progress in the store, with the item's due time.
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

    /// Ends an item that the load has found, because it can't be sent.
    public mutating func refuseRestored(
        _ place: RecordPlace, _ load: RequestedLoad, _ progress: ItemProgress
    ) -> OutcomeFacts {
        var facts = OutcomeFacts(place, progress)
        let resident = ResidentFacts(restoredFrom: load.device, due: progress.dueMilliseconds)
        isEnding(&facts, true, residency.itemEnded(place, resident, load.device)?.item)
        return facts
    }

    /// Ends the taking in of a load.
    public mutating func endLoad() { residency.endLoad() }

    // MARK: Marks

    /// Forgets the marks whose records are committed, when it is time to look for them.
    /// - Parameter forEachCommitted: passes the committed watermark of each partition.
    public mutating func forgetMarks(at now: UInt64, _ forEachCommitted: ((UInt16, Int64) -> Void) -> Void) {
        guard residency.mustForgetMarks(at: now) else { return }
        forEachCommitted { residency.committed($0, $1) }
        residency.forgetMarks()
    }
}
