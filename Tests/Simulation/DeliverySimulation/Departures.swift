import DeliveryCore
import SluiceModel

/// Items whose devices have new tokens of other shards.
extension World {
    func depart(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.depart] += 1
        var copy = shard.copies[Int(slot)]
        let new = copy.noted >= 0 ? copy.noted : cause.newToken
        var (facts, progress) = shard.machine.export(slot)
        shard.departed += 1
        hasMovedOn(copy, worker)
        leave(slot, worker, shard)
        shard.machine.release(slot)
        guard facts.device == tokens[new].key else {
            return broken(.sound, "push \(copy.job) departs for another device than its event said")
        }
        facts.device = tokens[new].key
        let other = worker.shards[self.shard(of: new)]
        if copy.noted < 0 { jobs[copy.job].movedBy = cause.record }
        copy.address = new
        copy.noted = -1
        copy.notedBy = -1
        copy.hasMoved = true
        copy.hasNews = true
        copy.retrySteps = -1
        // What it waits for was decided where it comes from.
        copy.waitsUntil = .max
        moved(copy, other)
        handOver(.init(copy: copy, facts: facts, progress: progress), worker, shard)
        if !scenario.limits.storeIsDurable { takeArriving(worker, other) }
    }

    /// An item whose device has a new token of another shard goes there: when the store has it under that token, so that
    /// with the token change the old one is done, and neither shard takes it from the store meanwhile.
    func handOver(
        _ departure: ShardStore.Departure, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        let other = worker.shards[self.shard(of: departure.copy.address)]
        onTheWay(departure.copy, 1, worker, other)
        if departure.copy.key == nil || !isOurs(departure.copy, worker) {
            other.store.arriving.append(departure)
        } else {
            shard.store.departing[departure.copy.job] = departure
            putMoved(departure.copy.job, worker, shard)
        }
    }

    /// Takes what has come over, one after the other.
    func takeArriving(_ worker: WorkerModel, _ shard: ShardModel) {
        while violation == nil, let departure = shard.store.arriving.popFirst() {
            if putAside(
                .departure(departure), for: departure.copy.address, departure.copy.partition,
                needsPresence: true, worker, shard)
            {
                continue
            }
            takeOver(departure, worker, shard)
        }
    }

    /// The same, when all of its device is in memory.
    func takeOver(
        _ departure: ShardStore.Departure, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        var copy = departure.copy
        onTheWay(copy, -1, worker, shard)
        moved(copy, shard)
        if departure.progress.isAccepted { copy.acceptedAt = monotonic }
        counts[.adopted] += 1
        shard.adopted += 1
        note(worker, shard, "push # comes over, for token #", copy.job, copy.address)
        let kept = cause
        cause = Cause()
        let admission = shard.machine.adopt(departure.facts, departure.progress, at: now(worker))
        admitted(admission, copy, worker, shard, departure.progress)
        drain(worker, shard)
        cause = kept
    }

    /// Counts an item that is between two shards.
    func onTheWay(_ copy: Copy, _ change: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        // What came from the store doesn't count here: loads that it waits for would wait for it.
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
