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
    func begin(partitionSlot: UInt16, _ handle: StorePartition, readThrough: Int64) {
        guard let storage else { return }
        storage[partitionSlot] = ShardStore.Partition(handle: handle, readThrough: readThrough)
        storage.cold.beginScan(partitionSlot)
        machine.begin(partition: partitionSlot)
        let early = storage.early.filter { $0.partitionSlot == partitionSlot }
        guard !early.isEmpty else { return }
        storage.early.removeAll { $0.partitionSlot == partitionSlot }
        wallMilliseconds = wallClockMilliseconds()
        for incoming in early { take(incoming) }
        askForTurnEnd()
    }

    /// All that the store has of a partition was told by `found`.
    func scanned(_ partitionSlot: UInt16) {
        storage?.cold.endScan(partitionSlot)
    }

    /// Nothing more of a partition goes to the store, or comes from it.
    func end(partitionSlot: UInt16) {
        guard let storage else { return }
        storage.cold.endScan(partitionSlot)
        storage.cold.removeAll(partition: partitionSlot)
        storage[partitionSlot] = nil
        storage.ended = storage.ended.filter { $0.key.partitionSlot != partitionSlot }
        unsettled.removeAll { $0.partitionSlot == partitionSlot }
    }

    /// Lets go of what waits for devices to come from the store. Returns how many records that are.
    func abandonWaiting(partitionSlot: UInt16?) -> Int {
        guard let storage else { return 0 }
        var count = 0
        if let partitionSlot {
            storage[partitionSlot]?.isEnding = true
        } else {
            for slot in storage.partitionSlots { storage[slot]?.isEnding = true }
        }
        for device in Array(storage.arrivals.keys) {
            storage.arrivals[device]!.waiting.removeAll { event in
                switch event {
                case .record(let incoming):
                    guard partitionSlot == nil || incoming.partitionSlot == partitionSlot else {
                        return false
                    }
                    // Also one that is read once more: the intake counts it.
                    count += 1
                    free(incoming.record)
                case .departure(let departure):
                    guard partitionSlot == nil || departure.job.partitionSlot == partitionSlot else {
                        return false
                    }
                    if !departure.job.isOffsetDone { count += 1 }
                    free(departure.job)
                }
                counters.abandoned += 1
                return true
            }
        }
        return count
    }

    // MARK: Puts

    /// Has the store take an item as it is.
    func put(_ slot: UInt32, version: UInt64) {
        guard let storage else {
            freedBytes += jobs[slot].pointee.moveToOwnMemory()
            return
        }
        // It may have ended since, in the same call.
        guard machine.state(slot).isLive else { return }
        if storage.isFailing { return machine.storeFailed(slot, version: version) }
        guard let partition = storage[jobs[slot].pointee.partitionSlot] else { return }
        write(slot, to: partition.handle, storage)
        storage.requests.puts.append(ShardStore.Put(slot: slot, version: version))
        askForTurnEnd()
    }

    /// An item in flight has a new token to go to next, which also the store should know.
    func putMoved(_ slot: UInt32, to token: UnsafeRawBufferPointer) {
        let job = jobs[slot]
        guard let storage, job.pointee.isStored, let partition = storage[job.pointee.partitionSlot] else {
            return
        }
        let (oldToken, oldDevice) = (job.pointee.push.deviceToken, job.pointee.device)
        if outcomes.hasChangelog, job.pointee.storedToken == nil { job.pointee.storedToken = Array(oldToken) }
        job.pointee.push.deviceToken = token
        job.pointee.device = plan.hasher.device(token)
        storage.moved.insert(
            ShardStore.Place(partitionSlot: job.pointee.partitionSlot, offset: job.pointee.offset))
        job.pointee.isMovedInStore = true
        write(slot, to: partition.handle, storage)
        job.pointee.push.deviceToken = oldToken
        job.pointee.device = oldDevice
        if outcomes.hasChangelog { job.pointee.storedToken = Array(token) }
        askForTurnEnd()
    }

    private func write(_ slot: UInt32, to handle: StorePartition, _ storage: ShardStore) {
        let job = jobs[slot]
        let progress = machine.progressToStore(slot, at: now)
        let key = ItemKey(device: job.pointee.device, offset: job.pointee.offset)
        var replaced = job.pointee.storedDue
        if let due = replaced, job.pointee.storedDevice != key.device {
            // Under the old token of its device.
            storage.batch.remove(
                handle, ItemKey(device: job.pointee.storedDevice, offset: key.offset), due: due)
            replaced = nil
            if outcomes.hasChangelog {
                job.pointee.writeChangelogKey(to: &storage.keyWriter)
                change(handle, job.pointee.partitionSlot, value: nil, storage)
            }
        }
        let stored = StoredPush(
            push: job.pointee.push, progress: StoredPush.Progress(progress), partition: job.pointee.partition,
            offset: key.offset, polledMilliseconds: job.pointee.polledMilliseconds)
        job.pointee.storedToken = nil
        let due = progress.dueMilliseconds
        if outcomes.hasChangelog {
            storage.valueWriter.removeAll()
            let push = ChangelogKey.encode(stored, due: due, into: &storage.valueWriter)
            job.pointee.writeChangelogKey(to: &storage.keyWriter)
            change(handle, job.pointee.partitionSlot, value: storage.valueWriter.bytes, storage)
            storage.batch.put(
                handle, key, due: due, replacingDue: replaced,
                value: UnsafeRawBufferPointer(rebasing: storage.valueWriter.bytes[push...]))
        } else {
            storage.batch.put(handle, key, due: due, replacingDue: replaced, stored)
        }
        storage.counters.puts += 1
        job.pointee.storedDevice = key.device
        job.pointee.storedDue = due
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
        storage.produced += 1
    }

    func keepPresence(_ number: UInt32, _ context: ActionContext) {
        let known = machine.presence(number)
        guard let storage, let partition = storage[known.partition] else { return }
        let state = DeviceState(
            presence: known.presence.rawValue, learnedMilliseconds: known.learnedMilliseconds,
            expiryMilliseconds: known.learnedMilliseconds + plan.limits.maximumExpirationMilliseconds)
        storage.batch.put(partition.handle, device: known.device, state)
        if outcomes.hasChangelog, let token = token(ofPresence: number, context) {
            storage.keyWriter.removeAll()
            ChangelogKey.device(deviceToken: token).encode(into: &storage.keyWriter)
            storage.valueWriter.removeAll()
            ChangelogKey.encode(state, into: &storage.valueWriter)
            change(partition.handle, known.partition, value: storage.valueWriter.bytes, storage)
        }
        storage[known.partition]?.hasDevices = true
        askForTurnEnd()
    }

    /// Presences come from device events, and from items whose receipts don't come.
    private func token(ofPresence number: UInt32, _ context: ActionContext) -> UnsafeRawBufferPointer? {
        if let token = context.deviceToken { return token }
        let slot = machine.item(ofPresence: number)
        return slot == DeliveryMachine.noSlot ? nil : jobs[slot].pointee.push.deviceToken
    }

    /// The item leaves memory; the store has it.
    func evict(_ slot: UInt32) {
        guard let storage else { preconditionFailure("an item leaves memory without a store") }
        let job = jobs[slot]
        storage.cold.insert(job.pointee.device, job.pointee.partitionSlot)
        // Its device's events go on when it is here again.
        storage.arrivals[job.pointee.device]?.looksAgain = true
        release(slot)
        askForTurnEnd()
    }

    // MARK: Ends

    /// What an outcome of this job is for. An item of the store is to be removed when the outcome is safe.
    func source(of job: UnsafeMutablePointer<Job>) -> OutcomeSource {
        var source = OutcomeSource(job: job)
        guard let storage, let due = job.pointee.storedDue else { return source }
        source.isStored = true
        source.isOffsetDone = job.pointee.isOffsetDone
        job.pointee.writeChangelogKey(to: &storage.keyWriter)
        end(
            ShardStore.Place(partitionSlot: source.partitionSlot, offset: source.offset),
            storedUnder: job.pointee.storedDevice, due: due, of: job.pointee.device, storage)
        return source
    }

    /// An item of the store ends, whose key of the changelog was written.
    func end(
        _ place: ShardStore.Place, storedUnder key: DeviceKey, due: Int64, of device: DeviceKey,
        _ storage: ShardStore
    ) {
        var changelogKey: [UInt8]?
        if outcomes.isTransactional, let partition = storage[place.partitionSlot] {
            // In one transaction with the outcome.
            change(partition.handle, place.partitionSlot, value: nil, storage)
        } else if outcomes.hasChangelog {
            changelogKey = Array(storage.keyWriter.bytes)
        }
        storage.ended[place] = ShardStore.Ended(
            key: ItemKey(device: key, offset: place.offset), due: due, device: device,
            changelogKey: changelogKey)
    }

    /// An item of the store has ended, and is still there.
    func hasEnded(_ partitionSlot: UInt16, _ offset: Int64) -> Bool {
        guard let storage, !storage.ended.isEmpty else { return false }
        return storage.ended[ShardStore.Place(partitionSlot: partitionSlot, offset: offset)] != nil
    }

    /// The outcomes of these items are safe.
    func remove(_ places: [ShardStore.Place]) {
        guard let storage else { return }
        for place in places {
            storage.remove(place)
            guard let key = storage.ended[place]?.changelogKey, let partition = storage[place.partitionSlot]
            else { continue }
            storage.ended[place]?.changelogKey = nil
            storage.keyWriter.removeAll()
            key.withUnsafeBytes { storage.keyWriter.append($0) }
            change(partition.handle, place.partitionSlot, value: nil, storage)
        }
        askForTurnEnd()
    }

    // MARK: Batches

    /// Hands over what has gathered in a turn, and tells the intake what it has to know.
    func submitToStore() {
        tellIntake()
        guard let storage else { return }
        askForLoads(storage)
        submitBatch(storage)
    }

    private func submitBatch(_ storage: ShardStore) {
        guard !storage.batch.isEmpty else { return }
        let requests = storage.takeRequests()
        storage.store.submit(storage.takeBatch()) { [self] result in
            loop.execute { [self] in batchEnded(requests, result) }
        }
    }

    /// What was asked of the store for an item comes before what another shard, which takes it over, asks for it.
    func submitBeforeDeparture(of job: borrowing Job) {
        guard let storage, job.storedDue != nil else { return }
        submitBatch(storage)
    }

    private func tellIntake() {
        // What is complete because of a record that waits for the next transaction must not be committed in this one.
        guard !news.isEmpty, !outcomes.isFrozen || hasEnded else { return }
        report(exchange(&news, with: IntakeNews()))
    }

    /// A batch was done, or never will be: then the worker ends.
    private func batchEnded(_ requests: ShardStore.Requests, _ result: BatchResult) {
        guard let storage, !hasEnded, result.error == nil else { return }
        wallMilliseconds = wallClockMilliseconds()
        for put in requests.puts {
            machine.stored(put.slot, version: put.version, at: now)
            act(ActionContext(stored: put.slot))
        }
        for place in requests.removals {
            guard let item = storage.ended.removeValue(forKey: place) else { continue }
            news.removed.append(IntakeNews.Removed(place: place, device: item.device))
        }
        for (load, loaded) in zip(requests.loads, result.loads) { take(load, loaded, result, storage) }
        askForTurnEnd()
    }

    /// The store fails, or works again.
    func storeFails(_ isFailing: Bool) {
        storage?.isFailing = isFailing
    }

    /// All that was asked of the store so far is on its way to it. Returns what was written since this was asked last.
    func flushToStore() -> StoreFlush {
        guard let storage else { return StoreFlush() }
        submitToStore()
        var flush = StoreFlush()
        flush.hasWritten = storage.hasWritten
        flush.source = ChangeSource(shard: UInt16(plan.index), epoch: storage.epoch)
        flush.produced = storage.produced
        storage.hasWritten = false
        storage.epoch &+= 1
        storage.produced = 0
        return flush
    }
}
