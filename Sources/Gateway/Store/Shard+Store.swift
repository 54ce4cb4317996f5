import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// What the delivery machine asks of the store, and what the store answers.
extension Shard {
    // MARK: Partitions

    /// A partition begins under a slot that an earlier one may have had; all records up to `readThrough` are read.
    /// - Parameter earlierFrom: items that the store has above that, from this offset on, are of an earlier log of the topic.
    func begin(
        partitionSlot: UInt16, _ handle: StorePartition, readThrough: Int64, earlierFrom: Int64,
        _ committed: CommittedOffset, _ marks: [StoreMark]
    ) {
        guard let storage else { return }
        outcomes.begin(partitionSlot: partitionSlot)
        storage.begin(partitionSlot, handle, committed)
        residency.begin(partitionSlot, readThrough: readThrough, earlierFrom: earlierFrom)
        residency.committed(partitionSlot, committed.offset)
        for mark in marks {
            // All shards know them, and one has them forgotten.
            residency.foundMark(
                RecordPlace(partitionSlot: partitionSlot, offset: mark.offset), mark.apnsID,
                forgets: plan.index == 0)
        }
        machine.begin(partition: partitionSlot)
        wallMilliseconds = wallClockMilliseconds()
        follow()
        askForTurnEnd()
    }

    /// All that the store has of a partition was told by `found`.
    func scanned(_ partitionSlot: UInt16) {
        residency.scanned(partitionSlot)
        askForTurnEnd()
    }

    /// Nothing more of a partition goes to the store, or comes from it.
    func end(partitionSlot: UInt16) {
        outcomes.end(partitionSlot: partitionSlot)
        unsettled.removeAll { $0.partitionSlot == partitionSlot }
        guard let storage else { return }
        residency.end(partitionSlot)
        follow()
        storage.end(partitionSlot)
        askForTurnEnd()
    }

    /// Lets go of what waits for devices to come from the store.
    func abandonWaiting(partitionSlot: UInt16?) {
        residency.abandon(partitionSlot)
        follow()
    }

    // MARK: Puts

    /// Has the store take what waits of a partition's records below `offset`, so that their offsets are complete.
    func relieve(partitionSlot: UInt16, below offset: Int64) {
        guard !hasEnded, storage?.handle(partitionSlot) != nil else { return }
        // Records that are still in the ring may be among them.
        takeRecords()
        machine.relieve(partition: partitionSlot, below: offset, at: now)
        act()
    }

    /// Has the store take an item as it is.
    func put(_ slot: UInt32, version: UInt64) {
        guard let storage else {
            freedBytes += jobs[slot].pointee.moveToOwnMemory()
            return
        }
        // It may have ended since, in the same call.
        guard machine.state(slot).isLive else { return }
        // A move can't be put off: the token change that it follows from is done.
        guard residency.mayPut(slot, jobs[slot].pointee.device) else {
            return machine.storeFailed(slot, version: version)
        }
        guard let handle = storage.handle(jobs[slot].pointee.partitionSlot) else { return }
        write(slot, to: handle, storage)
        residency.confirms(slot, version: version)
        askForTurnEnd()
    }

    /// Writes an item under its present token.
    func write(_ slot: UInt32, to handle: StorePartition, _ storage: ShardStore) {
        let job = jobs[slot]
        let progress = machine.progressToStore(slot, at: now)
        let key = ItemKey(device: job.pointee.device, offset: job.pointee.offset)
        let due = progress.dueMilliseconds
        let write = residency.put(slot, job.pointee.place, key.device, due: due)
        var oldKey: [UInt8]?
        if let left = write.leaves {
            storage.write {
                $0.remove(handle, ItemKey(device: left.device, offset: key.offset), due: left.due)
            }
            if outcomes.hasChangelog {
                job.pointee.writeChangelogKey(to: &storage.keyWriter)
                oldKey = Array(storage.keyWriter.bytes)
            }
        }
        let stored = StoredPush(
            push: job.pointee.push, progress: StoredPush.Progress(progress), partition: job.pointee.partition,
            offset: key.offset, polledMilliseconds: job.pointee.polledMilliseconds)
        job.pointee.storedToken = nil
        if outcomes.hasChangelog {
            storage.valueWriter.removeAll()
            let push = ChangelogKey.encode(stored, due: due, into: &storage.valueWriter)
            job.pointee.writeChangelogKey(to: &storage.keyWriter)
            change(handle, job.pointee.partitionSlot, value: storage.valueWriter.bytes, storage)
            storage.write {
                $0.put(
                    handle, key, due: due, replacingDue: write.replacesDue,
                    value: UnsafeRawBufferPointer(rebasing: storage.valueWriter.bytes[push...]))
            }
        } else {
            storage.write { $0.put(handle, key, due: due, replacingDue: write.replacesDue, stored) }
        }
        if write.marks { mark(job, in: handle, storage) }
        if let oldKey {
            // Last: without transactions a crash may come between, and then the item is there twice rather than lost.
            storage.keyWriter.removeAll()
            oldKey.withUnsafeBytes { storage.keyWriter.append($0) }
            change(handle, job.pointee.partitionSlot, value: nil, storage)
        }
        storage.counters.puts += 1
    }

    /// Tells the changelog of what the store has now under the key that was written, or (nil) hasn't any more.
    func change(
        _ handle: StorePartition, _ partitionSlot: UInt16, value: UnsafeRawBufferPointer?,
        _ storage: ShardStore
    ) {
        outcomes.change(
            handle.number, key: storage.keyWriter.bytes, value: value,
            opaque: ChangeSource(shard: UInt16(plan.index), epoch: storage.epoch).opaque,
            partitionSlot: partitionSlot)
        storage.changed()
    }

    /// In the partition that brought it, and in those of the device's items: after a new token they can be others.
    func keepPresence(_ number: UInt32, _ context: ActionContext) {
        guard let storage else { return }
        let known = residency.keep(machine.presence(number, at: now))
        let state = DeviceState(
            presence: known.presence.rawValue, isAwaited: known.isAwaited,
            learnedMilliseconds: known.learned.milliseconds, learnedOffset: known.learned.offset,
            expiryMilliseconds: known.expiryMilliseconds)
        keep(state, of: known.device, in: known.partition, number, context, storage)
        var last = known.partition
        machine.forEachPartition(ofPresence: number) { partition in
            guard partition != last else { return }
            last = partition
            keep(state, of: known.device, in: partition, number, context, storage)
        }
        askForTurnEnd()
    }

    private func keep(
        _ state: DeviceState, of device: DeviceKey, in partitionSlot: UInt16, _ number: UInt32,
        _ context: ActionContext, _ storage: ShardStore
    ) {
        guard let handle = storage.handle(partitionSlot) else { return }
        guard outcomes.hasChangelog, let token = token(ofPresence: number, context) else {
            return storage.write { $0.put(handle, device: device, state) }
        }
        storage.write { $0.put(handle, device: device, state, token: token) }
        storage.keyWriter.removeAll()
        ChangelogKey.device(deviceToken: token).encode(into: &storage.keyWriter)
        storage.valueWriter.removeAll()
        ChangelogKey.encode(state, into: &storage.valueWriter)
        change(handle, partitionSlot, value: storage.valueWriter.bytes, storage)
    }

    /// Has the store and the changelog forget a presence that has expired.
    func forgetPresence(_ load: RequestedLoad, token: UnsafeRawBufferPointer, _ storage: ShardStore) {
        guard residency.mayForgetPresence(load), let handle = storage.handle(load.partitionSlot) else {
            return
        }
        storage.write { $0.remove(handle, device: load.device) }
        storage.counters.forgotten += 1
        guard outcomes.hasChangelog, !token.isEmpty else { return }
        storage.keyWriter.removeAll()
        ChangelogKey.device(deviceToken: token).encode(into: &storage.keyWriter)
        change(handle, load.partitionSlot, value: nil, storage)
    }

    /// Presences come from device events, from items whose receipts don't come, and with items that come to a device: then
    /// the event's token is the old one.
    private func token(ofPresence number: UInt32, _ context: ActionContext) -> UnsafeRawBufferPointer? {
        if context.newToken == nil, let token = context.deviceToken { return token }
        let slot = machine.item(ofPresence: number)
        return slot == DeliveryMachine.noSlot ? nil : jobs[slot].pointee.push.deviceToken
    }

    /// The item leaves memory; the store has it.
    func evict(_ slot: UInt32) {
        residency.evict(slot, jobs[slot].pointee.device, jobs[slot].pointee.partitionSlot)
        release(slot)
        askForTurnEnd()
    }

    // MARK: Ends

    /// What an outcome of this slot's job is for. An item of the store is to be removed when the outcome is safe.
    func source(of slot: UInt32) -> OutcomeSource {
        let job = jobs[slot]
        var source = OutcomeSource(job: job)
        guard residency.isStored(slot), let storage else { return source }
        source.isStored = true
        source.isOffsetDone = job.pointee.isOffsetDone
        if outcomes.hasChangelog { job.pointee.writeChangelogKey(to: &storage.keyWriter) }
        if residency.ends(slot, job.pointee.device) != nil { end(job.pointee.ended, storage) }
        return source
    }

    /// The same of a job without a slot.
    func source(of job: UnsafeMutablePointer<Job>, _ facts: ResidentFacts?) -> OutcomeSource {
        var source = OutcomeSource(job: job)
        guard let facts, facts.storedDue != nil, let storage else { return source }
        source.isStored = true
        source.isOffsetDone = job.pointee.isOffsetDone
        if outcomes.hasChangelog { job.pointee.writeChangelogKey(to: &storage.keyWriter) }
        if residency.ends(job.pointee.place, facts, job.pointee.device) != nil {
            end(job.pointee.ended, storage)
        }
        return source
    }

    /// An item of the store ends; where there is a changelog, its key was written.
    func end(_ item: EndedItem, _ storage: ShardStore) {
        if outcomes.isTransactional, let handle = storage.handle(item.place.partitionSlot) {
            // In one transaction with the outcome.
            change(handle, item.place.partitionSlot, value: nil, storage)
        } else if outcomes.hasChangelog {
            storage.keepChangelogKey(of: item)
        }
    }

    /// The outcomes of these items are safe.
    func remove(_ items: [EndedItem]) {
        guard let storage else { return }
        for item in items {
            let slot = item.place.partitionSlot
            guard let (found, key) = residency.remove(item), let handle = storage.handle(slot)
            else { continue }
            storage.write {
                $0.remove(handle, ItemKey(device: key.device, offset: found.place.recordOffset), due: key.due)
            }
            storage.counters.removals += 1
            guard let changelogKey = storage.takeChangelogKey(of: found) else { continue }
            storage.keyWriter.removeAll()
            changelogKey.withUnsafeBytes { storage.keyWriter.append($0) }
            change(handle, slot, value: nil, storage)
        }
        askForTurnEnd()
    }

    // MARK: Batches

    /// Hands over what has gathered in a turn, and tells the intake what it has to know.
    func submitToStore() {
        finishChanges()
        follow()
        if let storage {
            forgetMarks(storage)
            askForLoads(storage)
        }
        tellIntake()
        if let storage { submitBatch(storage) }
    }

    private func submitBatch(_ storage: ShardStore) {
        guard !storage.batch.isEmpty else { return }
        let requests = ShardStore.Requests(
            residency: residency.takeRequests(), departures: storage.takeDepartures())
        let (peers, shards) = (peers, plan.shards)
        storage.store.submit(storage.takeBatch()) { [self] result in
            // On the store's thread: so another shard hears of an item before a load of its own can find it, and what it
            // asks for the item comes after what was asked here.
            for departure in requests.departures {
                peers.handOver(departure, to: shardIndex(of: departure.job.device, shards: shards))
            }
            loop.execute { [self] in batchEnded(requests, result) }
        }
    }

    private func tellIntake() {
        // What is complete because of a record that waits for the next transaction must not be committed in this one.
        guard !news.isEmpty, !outcomes.writesForNext || hasEnded else { return }
        report(.progress(exchange(&news, with: ShardProgress())))
    }

    /// A batch was done, or never will be: then the worker ends.
    private func batchEnded(_ requests: ShardStore.Requests, _ result: BatchResult) {
        guard let storage, !hasEnded, result.error == nil else { return }
        wallMilliseconds = wallClockMilliseconds()
        residency.done(requests.residency)
        for put in requests.residency.puts {
            machine.stored(put.slot, version: put.version, at: now)
            act(ActionContext(stored: put.slot))
        }
        follow()
        for (load, loaded) in zip(requests.residency.loads, result.loads) {
            take(load, loaded, result, storage)
        }
        askForTurnEnd()
    }

    /// The store fails, or works again.
    func storeFails(_ isFailing: Bool) { residency.storeFails(isFailing) }

    /// All that was asked of the store so far is on its way to it. Returns what was written since this was asked last.
    func flushToStore() -> StoreFlush {
        guard let storage else { return StoreFlush() }
        submitToStore()
        return storage.takeFlush(shard: plan.index)
    }
}
