import DeliveryCore
import SluiceModel

/// What the shards hand to the store, and what becomes of it.
extension World {
    // MARK: Batches

    /// Hands over what has gathered. False when that is nothing.
    func submit(_ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        takeArriving(worker, shard)
        finishChanges(worker, shard)
        if shard.store.residency.mustForgetMarks(at: monotonic) {
            for partition in owner.indices where owner[partition] == worker.number {
                shard.store.residency.committed(
                    worker.partitions[partition].slot, log.committed[partition].offset)
            }
            shard.store.residency.forgetMarks()
        }
        askForLoads(worker, shard)
        guard !shard.store.batch.isEmpty else { return false }
        var batch = exchange(&shard.store.batch, StoreBatch(shard: shard.number))
        batch.requests = shard.store.residency.takeRequests()
        if batch.loads.count != batch.requests.loads.count {
            broken(.sound, "\(batch.loads.count) loads are asked for as \(batch.requests.loads.count)")
        }
        worker.batches.append(batch)
        return true
    }

    /// The store does its oldest batch, all of it or nothing. One that fails is tried again in a second, and those behind
    /// it wait. False when there is none to be done.
    func serveBatch(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard worker.storeWaitsUntil <= monotonic, var batch = worker.batches.first else { return false }
        counts.events += 1
        guard !fails else { return storeFails(worker) }
        apply(batch)
        if !batch.loads.isEmpty, !isHealthy, draw.chance(20) {
            counts[.loadFailed] += 1
            // They are written once more later, which makes no difference.
            batch.writes = []
            worker.batches.replaceFirst(with: batch)
            return storeFails(worker)
        }
        _ = worker.batches.popFirst()
        // Another shard hears of what comes to it before a load of its own can find it.
        for migration in batch.migrations {
            worker.shards[shard(of: migration.copy.address)].store.arriving.append(migration)
        }
        worker.answers.append(
            .done(
                batch,
                loaded: batch.loads.map {
                    (
                        $0.hasItems ? store.entries($0.partition, $0.token) : [],
                        store.presence($0.partition, $0.token)
                    )
                }))
        if worker.storeWaitsUntil > 0, worker.batches.first == nil {
            worker.storeWaitsUntil = 0
            worker.answers.append(.isFailing(false))
        }
        return true
    }

    private func storeFails(_ worker: WorkerModel) -> Bool {
        happened(.storeFailed)
        worker.storeWaitsUntil = monotonic + 1_000_000_000
        worker.answers.append(.isFailing(true))
        return true
    }

    func apply(_ batch: StoreBatch) {
        store.beginBatch()
        for (partition, write) in batch.writes {
            store.write(write, partition)
            switch write {
            case .put(let entry, _):
                happened(.stored)
                note("the store has push # under token #", entry.job, entry.token)
            case .remove(let job, _):
                happened(.removed)
                note("push # leaves the store", job)
            default: break
            }
        }
    }

    /// The shards hear of the store.
    func take(_ answer: StoreAnswer, _ worker: WorkerModel) {
        counts.events += 1
        switch answer {
        case .isFailing(let isFailing):
            for shard in worker.shards { shard.store.residency.storeFails(isFailing) }
        case .done(let batch, let loaded): take(batch, loaded, worker)
        }
    }

    private func take(
        _ batch: StoreBatch, _ loaded: [(items: [StoreModel.Entry], presence: KnownPresence?)],
        _ worker: WorkerModel
    ) {
        let shard = worker.shards[batch.shard]
        takeArriving(worker, shard)
        shard.store.residency.done(batch.requests)
        for put in batch.requests.puts {
            shard.machine.stored(put.slot, version: put.version, at: now(worker))
            drain(worker, shard)
        }
        follow(worker, shard)
        for (load, loaded) in zip(batch.requests.loads, loaded) where violation == nil {
            take(load, loaded, worker, shard)
        }
    }

    /// Everything handed over so far is durable. False when that can't be.
    func bringToDisk(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard scenario.limits.storeIsDurable else { return true }
        for shard in worker.shards { _ = submit(worker, shard) }
        while serveBatch(worker, fails: fails) {}
        // Some of what the shards are to hear they have heard before that.
        while violation == nil, isHealthy || draw.chance(800), let answer = worker.answers.popFirst() {
            take(answer, worker)
        }
        guard !fails || draw.chance(500), worker.storeWaitsUntil == 0 else {
            counts[.syncFailed] += 1
            return false
        }
        for partition in owner.indices where owner[partition] == worker.number { store.sync(partition) }
        happened(.synced)
        return true
    }

    // MARK: Partitions

    /// A partition begins: what the store has of it isn't known before it is looked through.
    func beginStore(_ partition: Int, _ worker: WorkerModel) {
        guard scenario.limits.storeIsDurable else { return }
        let state = worker.partitions[partition]
        for shard in worker.shards {
            shard.store.read[partition] = log.committed[partition].offset - 1
            shard.store.residency.begin(state.slot, readThrough: log.committed[partition].offset - 1)
            for job in store.marks[partition] {
                counts[.markedOffset] += 1
                shard.store.residency.foundMark(
                    place(jobs[job].record, worker), markID(job), forgets: shard.number == 0)
            }
            follow(worker, shard)
        }
        worker.partitions[partition].isScanning = true
    }

    /// By which a push is known to be the one of a mark.
    func markID(_ job: Int) -> APNSID { APNSID(high: UInt64(job), low: UInt64(jobs[job].apns)) }

    /// Nothing more of a partition goes to the store, or comes from it.
    func endStore(_ partition: Int, _ worker: WorkerModel) {
        let state = worker.partitions[partition]
        for shard in worker.shards {
            // Also where the worker was cut off.
            shard.store.residency.abandon(state.slot)
            follow(worker, shard)
            shard.store.residency.end(state.slot)
            follow(worker, shard)
            shard.store.batch.writes.removeAll { $0.partition == partition }
        }
        worker.batches.forEach { $0.writes.removeAll { $0.partition == partition } }
        store.sync(partition)
    }
}

/// The store's own work.
extension World {
    func storeSome(_ count: Int) {
        let worker = anyWorker()
        for _ in 0..<count where violation == nil { _ = serveStore(worker, fails: weather.isStoreBroken) }
        if draw.chance(300) { _ = handDue(worker) }
        if draw.chance(100) { _ = scanSome(worker) }
        if draw.chance(200) { _ = lookForParked(worker) }
    }

    /// Does the next thing that is asked of the store, or tells what became of one. False when there is none.
    func serveStore(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard scenario.limits.storeIsDurable else { return false }
        if isHealthy || draw.chance(500), let answer = worker.answers.popFirst() {
            take(answer, worker)
            return true
        }
        if isHealthy || draw.chance(700), serveBatch(worker, fails: fails) { return true }
        var hasMore = false
        for shard in worker.shards where submit(worker, shard) { hasMore = true }
        return hasMore
    }
}
