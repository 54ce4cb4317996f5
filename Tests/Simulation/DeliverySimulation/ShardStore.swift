import DeliveryCore
import SluiceModel

/// A shard's side of the store: what it asks for, what it awaits, and which devices have items there only.
final class ShardStore {
    /// What waits for a device.
    enum Event {
        case record(Int, isReplay: Bool, epoch: Int)
        case departure(Departure)
    }

    /// An item on its way to the shard of its device's new token.
    struct Departure {
        var copy: Copy
        var facts: PushFacts
        var progress: ItemProgress
    }

    /// A device whose items are on their way from the store, with what is for it meanwhile, in order.
    struct Arrival {
        enum State { case queued, loading, loaded }

        /// Where to look besides the partitions that are known to have something.
        var partition: Int
        var waiting = Queue<Event>()
        var state = State.queued
        var awaited = 0
        /// There was no room for all of it, or more of it has come since.
        var isIncomplete = false
        /// By partition: the first item that is newer than what waits, and so has to come later.
        var skipped: [Int: Int64] = [:]
        /// Devices whose first event needs this one as well.
        var dependents: [Int] = []
    }

    /// An item that has ended and is still in the store: until its outcome is safe.
    struct Ended {
        var key: StoredKey
        /// Of its chain of removals.
        var device: UInt64
        var partition: Int
        var epoch: Int
    }

    var batch: StoreBatch
    var cold = ColdDevices()
    /// By token.
    var arrivals: [Arrival?]
    var arrivalCount = 0
    var loadQueue = Queue<Int>()
    var loadsUnderWay = 0
    /// There was no room for one: none before this moment.
    var noLoadsBefore: UInt64 = 0
    /// By partition: all records of this shard up to here were taken.
    var readThrough: [Int64]
    /// Items in memory that came from the store: they take room that the intake doesn't know of.
    var restored = 0
    /// Records that wait for devices, and those on their way from another shard that didn't come from the store.
    var waiting = 0
    /// By job.
    var ended: [Int: Ended] = [:]
    /// The store was heard to fail, and not yet to work again.
    var isFailing = false
    /// By job: items that go to other shards, until the store has them under their new tokens.
    var departing: [Int: Departure] = [:]
    /// Items that have moved, until the store has them under their new tokens.
    var moving: Set<Int> = []
    /// Those that come.
    var arriving = Queue<Departure>()
    /// Of these, of those that wait for their devices, and of those that are announced.
    var comingOver: Set<Int> = []

    init(_ scenario: Scenario, shard: Int) {
        batch = StoreBatch(shard: shard)
        arrivals = [Arrival?](repeating: nil, count: scenario.tokens)
        readThrough = [Int64](repeating: -1, count: scenario.partitions)
    }
}

/// What the machines ask of the store, and what it answers.
extension World {
    // MARK: Puts

    func requestStore(_ slot: UInt32, _ version: UInt64, _ worker: WorkerModel, _ shard: ShardModel) {
        guard scenario.limits.storeIsDurable else { return }
        let copy = shard.copies[Int(slot)]
        guard shard.machine.state(slot).isLive, isOurs(copy, worker) else { return }
        // A move can't be put off: the token change that it follows from is done.
        if shard.store.isFailing, copy.key.map({ $0.token == copy.address }) ?? true {
            counts[.putOff] += 1
            return shard.machine.storeFailed(slot, version: version)
        }
        let progress = shard.machine.progressToStore(slot, at: now(worker))
        let key = put(slot, progress, worker, shard)
        shard.store.batch.puts.append(
            .init(slot: slot, version: version, job: copy.job, epoch: copy.epoch, key: key))
    }

    /// Writes an item of a slot under its token.
    private func put(
        _ slot: UInt32, _ progress: ItemProgress, _ worker: WorkerModel, _ shard: ShardModel
    ) -> StoredKey {
        var copy = shard.copies[Int(slot)]
        let key = StoredKey(token: copy.address, due: progress.dueMilliseconds)
        let replaced = copy.key
        copy.key = key
        // Its receipt is awaited since now, as the store is told.
        if progress.wait == .confirming, copy.isReceiptPutOff, copy.awaitedSince == 0 {
            copy.awaitedSince = monotonic
            shard.copies[Int(slot)].awaitedSince = monotonic
        }
        write(
            .put(
                .init(
                    job: copy.job, token: copy.address, due: key.due, progress: progress, copy: copy,
                    clockError: worker.clockError),
                replacing: replaced), copy.partition, shard)
        if copy.address != jobs[copy.job].token { write(.mark(job: copy.job), copy.partition, shard) }
        shard.copies[Int(slot)].key = key
        return key
    }

    /// Writes an item that goes to another shard under its new token.
    func putMoved(_ job: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        guard let departure = shard.store.departing[job] else { return }
        var progress = departure.progress
        progress.dueMilliseconds = now(worker).wallMilliseconds
        progress.wakeMilliseconds = 0
        let key = StoredKey(token: departure.copy.address, due: progress.dueMilliseconds)
        shard.store.departing[job]!.copy.key = key
        var kept = departure.copy
        kept.key = key
        write(
            .put(
                .init(
                    job: job, token: key.token, due: key.due, progress: progress, copy: kept,
                    clockError: worker.clockError),
                replacing: departure.copy.key), departure.copy.partition, shard)
        write(.mark(job: job), departure.copy.partition, shard)
        shard.store.batch.moves.append((job, departure.copy.epoch))
    }

    func write(_ write: StoreModel.Write, _ partition: Int, _ shard: ShardModel) {
        shard.store.batch.writes.append((partition, write))
    }

    func keepPresence(_ number: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let known = shard.machine.presence(number)
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

    /// An item leaves memory; the store has it.
    func evict(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        happened(.evicted)
        note(worker, shard, "push # leaves memory, for token #", copy.job, copy.address)
        checkEvicted(copy, worker, shard)
        store.see(copy, copy.partition)
        shard.store.cold.insert(tokens[copy.address].key, worker.partitions[copy.partition].slot)
        loadAgain(copy.address, shard)
        shard.evicted += 1
        leave(slot, worker, shard)
        shard.machine.release(slot)
    }

    // MARK: Removals

    /// An item that may be in the store has ended: it is removed when its outcome is safe.
    func ends(_ copy: Copy, _ worker: WorkerModel) {
        let shard = worker.shards[shard(of: copy.address)]
        shard.store.moving.remove(copy.job)
        guard let key = copy.key, isOurs(copy, worker) else { return }
        jobs[copy.job].endedIn = shard.number
        shard.store.ended[copy.job] = .init(
            key: key, device: tokens[copy.address].key.low, partition: copy.partition,
            epoch: copy.epoch)
    }

    /// The outcome of this item is safe.
    func removeFromStore(_ job: Int, _ worker: WorkerModel) {
        let shard = worker.shards[jobs[job].endedIn]
        guard let ended = shard.store.ended[job] else { return }
        guard log.records[jobs[job].record].isWritten else {
            return broken(.nothingLost, "push \(job) leaves the store before its outcome is in Kafka")
        }
        checkRemoval(job, ended)
        write(.remove(job: job, ended.key), ended.partition, shard)
        write(.unmark(job: job), ended.partition, shard)
        shard.store.batch.removals.append(job)
    }
}

func exchange<Value>(_ value: inout Value, _ new: Value) -> Value {
    let old = value
    value = new
    return old
}
