import DeliveryCore
import DequeModule
import SluiceModel

/// A shard's side of the store: the machine that decides, and its shell's data.
final class ShardStore {
    /// A record or an item that waits for a device.
    enum Event {
        case record(Int, isReplay: Bool, epoch: Int)
        case migration(Migration)
    }

    /// An item on its way to the shard of its device's new token.
    struct Migration {
        var copy: Copy
        var facts: PushFacts
        var progress: ItemProgress
        var resident: ResidentFacts
    }

    var residency: DeviceResidency
    /// Whether the machine's actions are being carried out.
    var isFollowing = false
    /// Milestones that the auditor has counted.
    var seen = ResidencyMilestones()
    var batch: StoreBatch
    /// By partition: offset up to which all records of this shard were read, as far as the auditor knows.
    var read: [Int64]
    /// Number of records that wait for devices, and of items from another shard that weren't restored from the store.
    var waiting = 0
    /// Items that have arrived from other shards.
    var arriving = Deque<Migration>()
    /// Jobs whose items are between two shards: arriving, waiting for their devices, or still with the store.
    var comingOver: Set<Int> = []
    /// Events by handle.
    private var events: [UInt32: Event] = [:]
    private var nextHandle: UInt32 = 0

    init(_ scenario: Scenario, shard: Int) {
        batch = StoreBatch(shard: shard)
        read = [Int64](repeating: -1, count: scenario.partitions)
        residency = DeviceResidency(limits: scenario.residency)
    }

    func keep(_ event: Event) -> UInt32 {
        nextHandle += 1
        events[nextHandle] = event
        return nextHandle
    }

    func take(_ handle: UInt32) -> Event? { events.removeValue(forKey: handle) }

    /// Whether nothing waits and nothing is requested.
    var isDone: Bool { residency.isIdle && batch.isEmpty && comingOver.isEmpty && events.isEmpty }
}

/// Requests of the machines to the store, and its answers.
extension World {
    func place(_ record: Int, _ worker: WorkerModel) -> RecordPlace {
        let record = log.records[record]
        return RecordPlace(
            partitionSlot: worker.partitions[record.partition].slot, offset: record.offset)
    }

    func place(_ copy: Copy, _ worker: WorkerModel) -> RecordPlace {
        place(jobs[copy.job].record, worker)
    }

    // MARK: Puts

    func requestStore(_ slot: UInt32, _ version: UInt64, _ worker: WorkerModel, _ shard: ShardModel) {
        guard scenario.limits.storeIsDurable else { return }
        let copy = shard.copies[Int(slot)]
        guard shard.machine.state(slot).isLive, isOurs(copy, worker) else { return }
        guard shard.store.residency.mayPut(slot, tokens[copy.address].key) else {
            counts[.putOff] += 1
            return shard.machine.storeFailed(slot, version: version)
        }
        put(slot, worker, shard)
        shard.store.residency.confirms(slot, version: version)
    }

    /// Writes the item of a slot under its token.
    func put(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let progress = shard.machine.progressToStore(slot, at: now(worker))
        var copy = shard.copies[Int(slot)]
        if jobs[copy.job].facts.isOrdered { broken(.inTurn, "the store gets push \(copy.job), a broadcast") }
        let key = StoredKey(token: copy.address, due: progress.dueMilliseconds)
        let write = shard.store.residency.put(
            slot, place(copy, worker), tokens[copy.address].key, due: key.due)
        var replaced = write.replacesDue.map { StoredKey(token: copy.address, due: $0) }
        if let left = write.leaves {
            replaced = StoredKey(token: tokenByKey[left.device.low]!, due: left.due)
        }
        if replaced != copy.key { broken(.sound, "push \(copy.job) is in the store as \(copy.key as Any)") }
        copy.key = key
        // The receipt's wait begins now because the store is asked to write it now.
        if progress.wait == .confirming, copy.isReceiptPutOff, copy.awaitedSince == 0 {
            copy.awaitedSince = monotonic
            shard.copies[Int(slot)].awaitedSince = monotonic
        }
        self.write(
            .put(
                .init(
                    job: copy.job, token: copy.address, due: key.due, progress: progress, copy: copy,
                    clockError: worker.clockError),
                replacing: replaced), copy.partition, shard)
        if write.marks { self.write(.mark(job: copy.job), copy.partition, shard) }
        shard.copies[Int(slot)].key = key
    }

    func write(_ write: StoreModel.Write, _ partition: Int, _ shard: ShardModel) {
        shard.store.batch.writes.append((partition, write))
    }

    func keepPresence(_ number: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let known = shard.store.residency.keepPresence(shard.machine.presence(number, at: now(worker)))
        var slots = [known.partition]
        shard.machine.forEachPartition(ofPresence: number) { if !slots.contains($0) { slots.append($0) } }
        for slot in slots {
            let partition = worker.partitionBySlot[Int(slot)]
            let state = worker.partitions[partition]
            guard state.isOwned, state.slot == slot else { continue }
            counts[.presenceKept] += 1
            write(.presence(known, token: tokenByKey[known.device.low]!), partition, shard)
        }
    }

    /// Evicts an item that the store has.
    func evict(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        happened(.evicted)
        note(worker, shard, "push # leaves memory, for token #", copy.job, copy.address)
        checkEvicted(copy, worker, shard)
        store.see(copy, copy.partition)
        shard.evicted += 1
        leave(slot, worker, shard)
        shard.store.residency.evict(slot)
        shard.machine.release(slot)
    }

    // MARK: Removals

    /// Ends an item. A stored item is removed when its outcome is safe.
    func ends(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        let copy = shard.copies[Int(slot)]
        let key = shard.store.residency.itemEnded(slot)?.key
        ended(copy, key, shard)
        return key != nil
    }

    /// Ends an item without a slot, in the same way.
    func ends(_ copy: Copy, _ facts: ResidentFacts, _ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        let key = shard.store.residency.itemEnded(place(copy, worker), facts, tokens[copy.address].key)?.key
        ended(copy, key, shard)
        return key != nil
    }

    private func ended(_ copy: Copy, _ key: DeliveryCore.StoredKey?, _ shard: ShardModel) {
        if key != nil {
            (jobs[copy.job].endedIn, jobs[copy.job].endedFor) = (shard.number, tokens[copy.address].key.low)
        }
        let key = key.map { StoredKey(token: tokenByKey[$0.device.low]!, due: $0.due) }
        if key != copy.key {
            broken(
                .sound, "push \(copy.job) ends, and is in the store as \(copy.key as Any), not \(key as Any)")
        }
    }

    /// Removes an item whose outcome is safe.
    func removeFromStore(_ job: Int, _ worker: WorkerModel) {
        let shard = worker.shards[jobs[job].endedIn]
        let partition = log.records[jobs[job].record].partition
        let item = EndedItem(device: jobs[job].endedFor, place: place(jobs[job].record, worker))
        guard let (_, key) = shard.store.residency.remove(item) else { return }
        guard log.records[jobs[job].record].isWritten else {
            return broken(.nothingLost, "push \(job) leaves the store before its outcome is in Kafka")
        }
        let token = tokenByKey[key.device.low]!
        checkRemoval(job, worker.partitions[partition].epoch)
        write(.remove(job: job, StoredKey(token: token, due: key.due)), partition, shard)
    }
}

func exchange<Value>(_ value: inout Value, _ new: Value) -> Value {
    let old = value
    value = new
    return old
}
