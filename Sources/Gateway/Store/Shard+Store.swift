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
        storage.failedRemovals.removeAll { $0.partitionSlot == partitionSlot }
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
        guard machine.state(slot).isLive, let partition = storage[jobs[slot].pointee.partitionSlot] else {
            return
        }
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
        if outcomes.hasChangelog {
            storage.valueWriter.removeAll()
            ChangelogKey.encode(stored, due: progress.dueMilliseconds, into: &storage.valueWriter)
            job.pointee.writeChangelogKey(to: &storage.keyWriter)
            change(handle, job.pointee.partitionSlot, value: storage.valueWriter.bytes, storage)
        }
        storage.batch.put(
            handle, key, due: progress.dueMilliseconds, replacingDue: replaced, stored)
        storage.counters.puts += 1
        job.pointee.storedDevice = key.device
        job.pointee.storedDue = progress.dueMilliseconds
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
        let place = ShardStore.Place(partitionSlot: source.partitionSlot, offset: source.offset)
        storage.ended[place] = ShardStore.Ended(
            key: ItemKey(device: job.pointee.storedDevice, offset: source.offset), due: due,
            device: job.pointee.device, changelogKey: changelogKey(of: job, storage))
        return source
    }

    /// Nil when there is no changelog, or it says so already: in one transaction with the outcome.
    private func changelogKey(of job: UnsafeMutablePointer<Job>, _ storage: ShardStore) -> [UInt8]? {
        guard outcomes.hasChangelog else { return nil }
        job.pointee.writeChangelogKey(to: &storage.keyWriter)
        if outcomes.isTransactional, let partition = storage[job.pointee.partitionSlot] {
            change(partition.handle, job.pointee.partitionSlot, value: nil, storage)
            return nil
        }
        return Array(storage.keyWriter.bytes)
    }

    /// An item of the store has ended, and is still there.
    func hasEnded(_ partitionSlot: UInt16, _ offset: Int64) -> Bool {
        guard let storage, !storage.ended.isEmpty else { return false }
        return storage.ended[ShardStore.Place(partitionSlot: partitionSlot, offset: offset)] != nil
    }

    /// The outcomes of these items are safe.
    func remove(_ places: [ShardStore.Place]) {
        guard let storage else { return }
        if storage.failedUntil != nil {
            // After those before them.
            storage.failedRemovals += places
        } else {
            for place in places { remove(place, storage) }
        }
        askForTurnEnd()
    }

    private func remove(_ place: ShardStore.Place, _ storage: ShardStore) {
        storage.remove(place)
        guard let key = storage.ended[place]?.changelogKey, let partition = storage[place.partitionSlot]
        else {
            return
        }
        storage.ended[place]?.changelogKey = nil
        storage.keyWriter.removeAll()
        key.withUnsafeBytes { storage.keyWriter.append($0) }
        change(partition.handle, place.partitionSlot, value: nil, storage)
    }

    // MARK: Batches

    /// Hands over what has gathered in a turn, and tells the intake what it has to know.
    func submitToStore() {
        tellIntake()
        guard let storage else { return }
        if let until = storage.failedUntil {
            guard loop.now >= until else { return }
            storage.failedUntil = nil
            for place in storage.failedRemovals { remove(place, storage) }
            storage.failedRemovals = []
        }
        askForLoads(storage)
        if storage.isFailing, storage.batch.isEmpty { probe(storage) }
        submitBatch(storage)
    }

    /// Writes something that says nothing: only a write can tell that the store works again.
    private func probe(_ storage: ShardStore) {
        guard let slot = storage.partitionSlots.first, let partition = storage[slot] else { return }
        storage.batch.put(
            partition.handle, device: DeviceKey(high: 0, low: 0),
            DeviceState(presence: 0, learnedMilliseconds: 0, expiryMilliseconds: 0))
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
        report(exchange(&news, IntakeNews()))
    }

    private func batchEnded(_ requests: ShardStore.Requests, _ result: BatchResult) {
        guard let storage, !hasEnded else { return }
        wallMilliseconds = wallClockMilliseconds()
        if let error = result.error {
            failed(requests, error, result, storage)
        } else {
            if storage.isFailing, result.loadError == nil {
                storage.isFailing = false
                storeWorks(nil)
            }
            for put in requests.puts {
                machine.stored(put.slot, version: put.version, at: now)
                act(ActionContext(stored: put.slot))
            }
            // Behind a batch that failed, they come once more, in their order.
            let removals = storage.failedUntil == nil ? requests.removals : []
            if removals.isEmpty { storage.failedRemovals += requests.removals }
            for place in removals {
                guard let item = storage.ended.removeValue(forKey: place) else { continue }
                news.removed.append(IntakeNews.Removed(place: place, device: item.device))
            }
            for (index, load) in requests.loads.enumerated() {
                take(load, index < result.loads.count ? result.loads[index] : nil, result, storage)
            }
            if let error = result.loadError { failed(ShardStore.Requests(), error, result, storage) }
        }
        askForTurnEnd()
    }

    /// Nothing is lost: what could not be written is still the intake's, and is tried again in a second.
    private func failed(
        _ requests: ShardStore.Requests, _ error: RetryStoreError, _ result: BatchResult,
        _ storage: ShardStore
    ) {
        storage.counters.failures += 1
        storage.isFailing = true
        storage.failedUntil = loop.now + .seconds(1)
        loop.schedule(at: storage.failedUntil!, handler: storage)
        for put in requests.puts {
            machine.storeFailed(put.slot, version: put.version)
            act()
        }
        storage.failedRemovals += requests.removals
        for load in requests.loads { take(load, nil, result, storage) }
        storeWorks(error)
    }

    /// All that was asked of the store so far is on its way to it. Returns what was written since this was asked last.
    func flushToStore() -> StoreFlush {
        guard let storage else { return StoreFlush() }
        submitToStore()
        var flush = StoreFlush()
        flush.hasWritten = storage.hasWritten
        flush.hasFailed = storage.isFailing || storage.failedUntil != nil
        flush.source = ChangeSource(shard: UInt16(plan.index), epoch: storage.epoch)
        flush.produced = storage.produced
        storage.hasWritten = false
        storage.epoch &+= 1
        storage.produced = 0
        return flush
    }
}

/// What a shard has written since the barrier before.
struct StoreFlush: Sendable {
    var hasWritten = false
    /// Something could not be written, and is still to be.
    var hasFailed = false
    /// Records of the changelog, all of which have this in their opaque word.
    var produced = 0
    var source = ChangeSource(shard: 0, epoch: 0)
}

/// Who produced a record of the changelog, and between which barriers: rides in the producer's opaque word.
struct ChangeSource: Hashable, Sendable {
    var shard: UInt16
    var epoch: UInt32

    /// No slot of a partition.
    private static let mark: UInt = 0xFFFF << 48

    init(shard: UInt16, epoch: UInt32) {
        self.shard = shard
        self.epoch = epoch
    }

    /// Nil for the word of an outcome.
    init?(opaque: UInt) {
        guard opaque & Self.mark == Self.mark else { return nil }
        shard = UInt16(truncatingIfNeeded: opaque >> 32)
        epoch = UInt32(truncatingIfNeeded: opaque)
    }

    var opaque: UInt { Self.mark | UInt(shard) << 32 | UInt(epoch) }
}

/// What a shard has to tell the intake at the end of a turn.
struct IntakeNews: Sendable {
    struct Completion: Sendable {
        var place: ShardStore.Place
        /// The record was handed out although the store had it: it is a job no more.
        var isRepeated: Bool
    }

    struct Removed: Sendable {
        var place: ShardStore.Place
        var device: DeviceKey
    }

    /// Offsets that are complete as the store has their records.
    var completed: [Completion] = []
    /// Jobs that are gone whose offsets were complete before, by the slots of their partitions.
    var freed: [UInt16: Int] = [:]
    /// Items that have left the store.
    var removed: [Removed] = []

    var isEmpty: Bool { completed.isEmpty && freed.isEmpty && removed.isEmpty }
}
