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
        job.pointee.push.deviceToken = token
        job.pointee.device = plan.hasher.device(token)
        write(slot, to: partition.handle, storage)
        job.pointee.push.deviceToken = oldToken
        job.pointee.device = oldDevice
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
        }
        let stored = StoredPush(
            push: job.pointee.push, progress: StoredPush.Progress(progress), partition: job.pointee.partition,
            offset: key.offset, polledMilliseconds: job.pointee.polledMilliseconds)
        storage.batch.put(
            handle, key, due: progress.dueMilliseconds, replacingDue: replaced, stored)
        storage.counters.puts += 1
        job.pointee.storedDevice = key.device
        job.pointee.storedDue = progress.dueMilliseconds
    }

    func keepPresence(_ number: UInt32) {
        let known = machine.presence(number)
        guard let storage, let partition = storage[known.partition] else { return }
        storage.batch.put(
            partition.handle, device: known.device,
            DeviceState(
                presence: known.presence.rawValue, learnedMilliseconds: known.learnedMilliseconds,
                expiryMilliseconds: known.learnedMilliseconds + plan.limits.maximumExpirationMilliseconds))
        storage[known.partition]?.hasDevices = true
        askForTurnEnd()
    }

    /// The item leaves memory; the store has it.
    func evict(_ slot: UInt32) {
        guard let storage else { preconditionFailure("an item leaves memory without a store") }
        let job = jobs[slot]
        storage.cold.insert(job.pointee.device, job.pointee.partitionSlot)
        if storage.arrivals[job.pointee.device]?.state == .loaded {
            storage.arrivals[job.pointee.device]!.state = .queued
            storage.loadQueue.append(job.pointee.device)
        }
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
            device: job.pointee.device)
        return source
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
            for place in places { storage.remove(place) }
        }
        askForTurnEnd()
    }

    // MARK: Batches

    /// Hands over what has gathered in a turn, and tells the intake what it has to know.
    func submitToStore() {
        tellIntake()
        guard let storage else { return }
        if let until = storage.failedUntil {
            guard loop.now >= until else { return }
            storage.failedUntil = nil
            for place in storage.failedRemovals { storage.remove(place) }
            storage.failedRemovals = []
        }
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
        guard !news.isEmpty else { return }
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

    /// All that was asked of the store so far is on its way to it. Returns whether something was written since this was
    /// asked last.
    func flushToStore() -> Bool {
        guard let storage else { return false }
        submitToStore()
        defer { storage.hasWritten = false }
        return storage.hasWritten
    }
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
