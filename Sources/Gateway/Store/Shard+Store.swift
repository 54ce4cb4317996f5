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
    func begin(
        partitionSlot: UInt16, _ handle: StorePartition, readThrough: Int64, _ committed: CommittedOffset,
        _ marks: [StoreMark]
    ) {
        guard let storage else { return }
        outcomes.begin(partitionSlot: partitionSlot)
        storage.begin(
            partitionSlot, ShardStore.Partition(handle: handle, committed: committed),
            readThrough: readThrough)
        begin(partitionSlot: partitionSlot, marks, storage)
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
        askForTurnEnd()
    }

    /// Nothing more of a partition goes to the store, or comes from it.
    func end(partitionSlot: UInt16) {
        outcomes.end(partitionSlot: partitionSlot)
        guard let storage else { return }
        storage.cold.endScan(partitionSlot)
        storage.cold.removeAll(partition: partitionSlot)
        giveBackChanges(partitionSlot: partitionSlot)
        storage.marked = storage.marked.filter { $0.key.partitionSlot != partitionSlot }
        storage.marks.removeAll { $0.partitionSlot == partitionSlot }
        storage[partitionSlot] = nil
        storage.ended = storage.ended.filter { $0.key.partitionSlot != partitionSlot }
        unsettled.removeAll { $0.partitionSlot == partitionSlot }
        askForTurnEnd()
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

    /// Has the store take what waits of a partition's records below `offset`, so that their offsets are complete.
    func relieve(partitionSlot: UInt16, below offset: Int64) {
        guard !hasEnded, storage?[partitionSlot] != nil else { return }
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
        if storage.isFailing, !jobs[slot].pointee.hasLeft {
            return machine.storeFailed(slot, version: version)
        }
        guard let partition = storage[jobs[slot].pointee.partitionSlot] else { return }
        write(slot, to: partition, storage)
        storage.requests.puts.append(ShardStore.Put(slot: slot, version: version))
        askForTurnEnd()
    }

    /// Writes an item under its present token.
    func write(_ slot: UInt32, to partition: ShardStore.Partition, _ storage: ShardStore) {
        let job = jobs[slot]
        let handle = partition.handle
        let progress = machine.progressToStore(slot, at: now)
        let key = ItemKey(device: job.pointee.device, offset: job.pointee.offset)
        var oldKey: [UInt8]?
        var replaced = job.pointee.storedDue
        if job.pointee.hasLeft {
            leave(job, handle, storage)
            replaced = nil
            if outcomes.hasChangelog {
                job.pointee.writeChangelogKey(to: &storage.keyWriter)
                oldKey = Array(storage.keyWriter.bytes)
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
        mark(job, in: partition, storage)
        if let oldKey {
            // Last: without transactions a crash may come between, and then the item is there twice rather than lost.
            storage.keyWriter.removeAll()
            oldKey.withUnsafeBytes { storage.keyWriter.append($0) }
            change(handle, job.pointee.partitionSlot, value: nil, storage)
        }
        storage.counters.puts += 1
        job.pointee.storedDevice = key.device
        job.pointee.storedDue = due
    }

    /// Has the store forget an item under the old token of its device.
    private func leave(_ job: UnsafeMutablePointer<Job>, _ handle: StorePartition, _ storage: ShardStore) {
        let left = ShardStore.Left(
            place: ShardStore.Place(partitionSlot: job.pointee.partitionSlot, offset: job.pointee.offset),
            device: job.pointee.storedDevice)
        storage.batch.remove(
            handle, ItemKey(device: left.device, offset: left.place.offset), due: job.pointee.storedDue!)
        storage.left[left, default: 0] += 1
        storage.requests.left.append(left)
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

    /// In the partition that brought it, and in those of the device's items: after a new token they can be others.
    func keepPresence(_ number: UInt32, _ context: ActionContext) {
        guard let storage else { return }
        let known = machine.presence(number)
        // What is presumed was not reported just now, or never was.
        let noted = known.presence == .presumedOffline ? wallMilliseconds : known.learned.milliseconds
        let state = DeviceState(
            presence: known.presence.rawValue, learnedMilliseconds: known.learned.milliseconds,
            learnedOffset: known.learned.offset,
            expiryMilliseconds: noted + plan.limits.maximumExpirationMilliseconds)
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
        guard let partition = storage[partitionSlot] else { return }
        storage.batch.put(partition.handle, device: device, state)
        guard outcomes.hasChangelog, let token = token(ofPresence: number, context) else { return }
        storage.keyWriter.removeAll()
        ChangelogKey.device(deviceToken: token).encode(into: &storage.keyWriter)
        storage.valueWriter.removeAll()
        ChangelogKey.encode(state, into: &storage.valueWriter)
        change(partition.handle, partitionSlot, value: storage.valueWriter.bytes, storage)
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
        if outcomes.hasChangelog { job.pointee.writeChangelogKey(to: &storage.keyWriter) }
        end(
            ShardStore.Place(partitionSlot: source.partitionSlot, offset: source.offset),
            storedUnder: job.pointee.storedDevice, due: due, of: job.pointee.device, storage)
        return source
    }

    /// An item of the store ends; where there is a changelog, its key was written.
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
        if let storage { finishChanges(storage) }
        tellIntake()
        guard let storage else { return }
        forgetMarks(storage)
        askForLoads(storage)
        submitBatch(storage)
    }

    private func submitBatch(_ storage: ShardStore) {
        guard !storage.batch.isEmpty else { return }
        let requests = storage.takeRequests()
        let (handOver, shards) = (handOver, plan.shards)
        storage.store.submit(storage.takeBatch()) { [self] result in
            // On the store's thread: so another shard hears of an item before a load of its own can find it, and what it
            // asks for the item comes after what was asked here.
            for departure in requests.departures {
                handOver(shardIndex(of: departure.job.device, shards: shards), departure)
            }
            loop.execute { [self] in batchEnded(requests, result) }
        }
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
        for left in requests.left {
            storage.left[left]! -= 1
            if storage.left[left] == 0 { storage.left[left] = nil }
        }
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
