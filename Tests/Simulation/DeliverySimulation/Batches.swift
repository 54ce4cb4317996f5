import DeliveryCore
import SluiceModel

/// What the shards hand to the store, and what becomes of it.
extension World {
    // MARK: Batches

    /// Hands over what has gathered. False when that is nothing.
    func submit(_ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        if shard.store.failedUntil > 0 {
            guard monotonic >= shard.store.failedUntil else { return false }
            shard.store.failedUntil = 0
            let removals = exchange(&shard.store.failedRemovals, [])
            let order = { (job: Int) in shard.store.ended[job]?.order ?? 0 }
            for job in removals.sorted(by: { order($0) < order($1) }) { writeRemoval(job, shard) }
            for (job, epoch) in exchange(&shard.store.failedDepartures, [])
            where shard.store.departing[job]?.copy.epoch == epoch {
                putMoved(job, worker, shard)
            }
            for (token, partition, epoch) in exchange(&shard.store.failedPresences, []) {
                writePresence(token, partition, epoch, worker, shard)
            }
        }
        takeArriving(worker, shard)
        askForLoads(worker, shard)
        guard !shard.store.batch.isEmpty else { return false }
        shard.store.batch.generation = shard.store.failures
        worker.batches.append(exchange(&shard.store.batch, StoreBatch(shard: shard.number)))
        return true
    }

    /// Once more, what is known now.
    private func writePresence(
        _ token: Int, _ partition: Int, _ epoch: Int, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        guard worker.partitions[partition].isOwned, worker.partitions[partition].epoch == epoch,
            let known = shard.lastPresence[token]
        else { return }
        write(.presence(known, token: token), partition, shard)
        shard.store.batch.presences.append((token, partition, epoch))
    }

    /// The store does a batch, all of it or nothing.
    func serve(_ batch: StoreBatch, _ worker: WorkerModel, fails: Bool) {
        let isBehind = batch.generation == worker.failedGenerations[batch.shard]
        var answer = StoreAnswer(batch: batch, isWritten: !fails && !isBehind)
        counts.events += 1
        if !answer.isWritten {
            worker.failedGenerations[batch.shard] = batch.generation
            happened(isBehind ? .failedBehind : .storeFailed)
        } else {
            apply(batch)
            if isHealthy || !draw.chance(20) {
                answer.loaded = batch.loads.map {
                    (store.entries($0.partition, $0.token), store.presence($0.partition, $0.token))
                }
            }
        }
        worker.answers.append(answer)
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

    /// A shard hears what became of a batch.
    func take(_ answer: StoreAnswer, _ worker: WorkerModel) {
        let shard = worker.shards[answer.batch.shard]
        counts.events += 1
        guard answer.isWritten else {
            failed(answer.batch, worker, shard)
            for load in answer.batch.loads { take(load, nil, worker, shard) }
            return
        }
        for put in answer.batch.puts {
            confirm(put, worker, shard)
            shard.machine.stored(put.slot, version: put.version, at: now(worker))
            drain(worker, shard)
        }
        for (job, epoch) in answer.batch.moves where shard.store.departing[job]?.copy.epoch == epoch {
            worker.failedMoves.remove(job)
            let departure = shard.store.departing.removeValue(forKey: job)!
            worker.shards[self.shard(of: departure.copy.address)].store.arriving.append(departure)
        }
        for job in answer.batch.removals {
            guard let ended = shard.store.ended.removeValue(forKey: job) else { continue }
            removed(job, ended, worker)
        }
        let isLoaded = answer.loaded.count == answer.batch.loads.count
        for (index, load) in answer.batch.loads.enumerated() {
            take(load, isLoaded ? answer.loaded[index] : nil, worker, shard)
        }
        if !isLoaded {
            counts[.loadFailed] += 1
            shard.store.failedUntil = monotonic + 1_000_000_000
        }
    }

    /// The item is under this key, and under none before it.
    private func confirm(_ put: StoreBatch.Put, _ worker: WorkerModel, _ shard: ShardModel) {
        worker.failedMoves.remove(put.job)
        let copy = shard.copies[Int(put.slot)]
        guard copy.isLive, copy.job == put.job, copy.epoch == put.epoch,
            let index = copy.keys.firstIndex(of: put.key)
        else { return }
        if put.key.token == copy.address { shard.store.moving.remove(put.job) }
        shard.copies[Int(put.slot)].keys.removeFirst(index)
    }

    /// Nothing is lost: what could not be written is tried again in a second.
    private func failed(_ batch: StoreBatch, _ worker: WorkerModel, _ shard: ShardModel) {
        shard.store.failedUntil = monotonic + 1_000_000_000
        if batch.generation == shard.store.failures { shard.store.failures += 1 }
        for put in batch.puts {
            // Also when it has been given back since.
            let partition = log.records[jobs[put.job].record].partition
            let state = worker.partitions[partition]
            if put.key.token != jobs[put.job].token, state.isOwned, state.epoch == put.epoch,
                jobs[put.job].liveEpoch == put.epoch || worker.isEnding(partition)
            {
                worker.failedMoves.insert(put.job)
            }
            shard.machine.storeFailed(put.slot, version: put.version)
            drain(worker, shard)
        }
        for (job, epoch) in batch.moves where shard.store.departing[job]?.copy.epoch == epoch {
            worker.failedMoves.insert(job)
        }
        shard.store.failedDepartures += batch.moves
        shard.store.failedRemovals += batch.removals
        shard.store.failedPresences += batch.presences
    }

    /// Everything handed over so far is durable. False when that can't be.
    func bringToDisk(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard scenario.limits.storeIsDurable else { return true }
        for shard in worker.shards { _ = submit(worker, shard) }
        // What waits for the end of a pause after a failure isn't even handed over.
        let hasMore = worker.shards.contains { !$0.store.batch.isEmpty }
        while let batch = worker.batches.popFirst() { serve(batch, worker, fails: fails) }
        // What failed is known when the shards have heard of it.
        while violation == nil, let answer = worker.answers.popFirst() { take(answer, worker) }
        guard !fails || draw.chance(500), !worker.isUnsafe, !hasMore else {
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
            shard.store.readThrough[partition] = log.committed[partition].offset - 1
            shard.store.cold.beginScan(state.slot)
            // What is in memory of a device, or is on its way there, isn't all of it any more.
            for token in tokens.indices { loadAgain(token, shard) }
        }
        worker.partitions[partition].isScanning = true
    }

    /// Nothing more of a partition goes to the store, or comes from it.
    func endStore(_ partition: Int, _ worker: WorkerModel) {
        let state = worker.partitions[partition]
        for shard in worker.shards {
            shard.store.cold.removeAll(partition: state.slot)
            shard.store.moving = shard.store.moving.filter {
                log.records[jobs[$0].record].partition != partition
            }
            shard.store.ended = shard.store.ended.filter { $0.value.partition != partition }
            shard.store.failedRemovals.removeAll { log.records[jobs[$0].record].partition == partition }
            shard.store.failedPresences.removeAll { $0.partition == partition }
            shard.store.batch.writes.removeAll { $0.partition == partition }
            shard.store.batch.loads.removeAll { $0.partition == partition && $0.epoch != state.epoch }
        }
        worker.failedMoves = worker.failedMoves.filter { log.records[jobs[$0].record].partition != partition }
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
    }

    /// Does the next thing that is asked of the store, or tells what became of one. False when there is none.
    func serveStore(_ worker: WorkerModel, fails: Bool) -> Bool {
        guard scenario.limits.storeIsDurable else { return false }
        if isHealthy || draw.chance(500), let answer = worker.answers.popFirst() {
            take(answer, worker)
            return true
        }
        if isHealthy || draw.chance(700), let batch = worker.batches.popFirst() {
            serve(batch, worker, fails: fails)
            return true
        }
        var hasMore = false
        for shard in worker.shards where submit(worker, shard) { hasMore = true }
        return hasMore
    }
}
