import DeliveryCore
import SluiceModel

/// Batches of the shards for the store, and their results.
extension World {
    // MARK: Batches

    /// Submits the batch that has gathered. Returns false when the batch is empty.
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

    /// Processes the store's oldest batch, all of it or nothing. A batch that fails is retried in a second, and later
    /// batches wait. Returns false when there is no batch to process.
    func serveBatch(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard worker.storeWaitsUntil <= monotonic, var batch = worker.batches.first else { return false }
        counts.events += 1
        guard !fails else { return storeFails(worker) }
        apply(batch)
        if !batch.loads.isEmpty, !isHealthy, draw.chance(20) {
            counts[.loadFailed] += 1
            // The writes are applied once more later, which makes no difference.
            batch.writes = []
            worker.batches[0] = batch
            return storeFails(worker)
        }
        _ = worker.batches.popFirst()
        // The other shard gets its arriving items before a load of its own can find them.
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

    /// Reports an answer of the store to the shards.
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

    /// Syncs every batch submitted so far. Returns false when the sync fails.
    func bringToDisk(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard scenario.limits.storeIsDurable else { return true }
        for shard in worker.shards { _ = submit(worker, shard) }
        while serveBatch(worker, fails: fails) {}
        // The shards have read some of the store's answers before the sync.
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

    /// Begins a partition. The store's data of it are unknown until they are scanned.
    func beginStore(_ partition: Int, _ worker: WorkerModel) {
        guard scenario.limits.storeIsDurable else { return }
        let state = worker.partitions[partition]
        for shard in worker.shards {
            shard.store.read[partition] = log.committed[partition].offset - 1
            shard.store.residency.beginPartition(state.slot, readThrough: log.committed[partition].offset - 1)
            for job in store.marks[partition] {
                counts[.markedOffset] += 1
                shard.store.residency.foundMark(
                    place(jobs[job].record, worker), markID(job), forgets: shard.number == 0)
            }
            follow(worker, shard)
        }
        worker.partitions[partition].isScanning = true
    }

    /// Returns the identifier by which the push of a mark is recognised.
    func markID(_ job: Int) -> APNSID { APNSID(high: UInt64(job), low: UInt64(jobs[job].apns)) }

    /// Ends all writes and loads of a partition.
    func endStore(_ partition: Int, _ worker: WorkerModel) {
        let state = worker.partitions[partition]
        for shard in worker.shards {
            // The same when the worker was cut off.
            shard.store.residency.abandon(state.slot)
            follow(worker, shard)
            shard.store.residency.endPartition(state.slot)
            follow(worker, shard)
            shard.store.batch.writes.removeAll { $0.partition == partition }
        }
        for index in worker.batches.indices {
            worker.batches[index].writes.removeAll { $0.partition == partition }
        }
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
        if draw.chance(200) { _ = lookForSuspended(worker) }
    }

    /// Processes the next request for the store, or reports its next answer. Returns false when there is neither.
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
