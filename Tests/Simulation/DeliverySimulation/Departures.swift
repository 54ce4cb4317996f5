import DeliveryCore
import SluiceModel

/// Items whose devices have new tokens of other shards.
extension World {
    func depart(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.depart] += 1
        let noted = shard.copies[Int(slot)].noted
        let new = noted >= 0 ? noted : cause.newToken
        shard.store.residency.moved(slot, place(shard.copies[Int(slot)], worker), to: tokens[new].key)
        if noted < 0 { jobs[shard.copies[Int(slot)].job].movedBy = cause.record }
        let old = shard.copies[Int(slot)]
        shard.copies[Int(slot)].address = new
        shard.copies[Int(slot)].noted = -1
        shard.copies[Int(slot)].hasMoved = true
        shard.copies[Int(slot)].hasNews = true
        shard.copies[Int(slot)].retrySteps = -1
        // The shard that the item leaves has decided the item's waits.
        shard.copies[Int(slot)].waitsUntil = .max
        let mustMove = shard.store.residency.isStored(slot) && isOurs(old, worker)
        if mustMove { put(slot, worker, shard) }
        let resident = shard.store.residency.facts(slot)
        let copy = shard.copies[Int(slot)]
        let (facts, progress) = shard.machine.export(slot)
        shard.departed += 1
        shard.copies[Int(slot)].address = old.address
        leave(slot, worker, shard)
        shard.store.residency.removeItem(slot)
        shard.machine.release(slot)
        guard facts.device == tokens[new].key else {
            return broken(.sound, "push \(copy.job) departs for another device than its event said")
        }
        let other = worker.shards[self.shard(of: new)]
        moved(copy, other)
        let migration = ShardStore.Migration(
            copy: copy, facts: facts, progress: progress, resident: resident)
        onTheWay(copy, 1, worker, other)
        // A stored item is handed over after the store has it under the new token. So the old token is done with the
        // token change, and neither shard loads the item meanwhile.
        if mustMove {
            shard.store.batch.migrations.append(migration)
        } else {
            other.store.arriving.append(migration)
        }
        if !scenario.limits.storeIsDurable { takeArriving(worker, other) }
    }

    /// Processes the items that have arrived from other shards, in order.
    func takeArriving(_ worker: WorkerModel, _ shard: ShardModel) {
        while violation == nil, let migration = shard.store.arriving.popFirst() {
            guard isOurs(migration.copy, worker) else {
                gone(migration, worker, shard)
                continue
            }
            let handle = shard.store.keep(.migration(migration))
            let verdict = shard.store.residency.importItem(
                deferred(migration, handle, worker), shard.machine)
            guard verdict != .deferred else {
                counts[.putAside] += 1
                continue
            }
            _ = shard.store.take(handle)
            if verdict == .takeOver {
                takeOver(migration, worker, shard)
                follow(worker, shard)
            } else {
                staysInStore(migration, worker, shard)
            }
        }
    }

    /// Leaves an item in the store because memory has no room for it.
    func staysInStore(_ migration: ShardStore.Migration, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = migration.copy
        note(worker, shard, "push # stays in the store, for token #", copy.job, copy.address)
        if store.token(of: copy.job) != copy.address {
            broken(.nothingLost, "push \(copy.job) leaves memory, and the store hasn't got it")
        }
        onTheWay(copy, -1, worker, shard)
    }

    private func deferred(
        _ migration: ShardStore.Migration, _ handle: UInt32, _ worker: WorkerModel
    ) -> DeferredMigration {
        DeferredMigration(
            handle: handle, device: tokens[migration.copy.address].key,
            place: place(migration.copy, worker), isReleased: true,
            isRestored: migration.resident.isRestored)
    }

    /// Imports an item after all of its device is in memory.
    func takeOver(
        _ migration: ShardStore.Migration, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        var copy = migration.copy
        moved(copy, shard)
        let kept = cause
        cause = Cause()
        let admission = shard.machine.importItem(migration.facts, migration.progress, at: now(worker))
        guard admission != .full else {
            cause = kept
            if isHealthy { metLimit = true }
            let handle = shard.store.keep(.migration(migration))
            shard.store.residency.deferUntilSlot(deferred(migration, handle, worker))
            return drain(worker, shard)
        }
        onTheWay(copy, -1, worker, shard)
        if migration.progress.isAccepted { copy.acceptedAt = monotonic }
        counts[.imported] += 1
        shard.imported += 1
        note(worker, shard, "push # comes over, for token #", copy.job, copy.address)
        admitted(admission, copy, migration.resident, worker, shard, migration.progress)
        drain(worker, shard)
        cause = kept
    }

    /// Counts an item between two shards.
    func onTheWay(_ copy: Copy, _ change: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        // Restored items don't count, because loads that the item waits for would wait for the item.
        if !copy.isRestored { shard.store.waiting += change }
        if change > 0 {
            shard.store.comingOver.insert(copy.job)
        } else {
            shard.store.comingOver.remove(copy.job)
        }
        if worker.partitions[copy.partition].epoch == copy.epoch {
            worker.partitions[copy.partition].live += change
            if change > 0 {
                jobs[copy.job].liveEpoch = copy.epoch
            } else if jobs[copy.job].liveEpoch == copy.epoch {
                jobs[copy.job].liveEpoch = -1
            }
        }
    }
}
