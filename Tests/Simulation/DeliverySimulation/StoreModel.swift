import DeliveryCore
import SluiceModel

/// A durable store that all workers reach, keyed by identity as the retry store is (design §8).
struct StoreModel {
    struct Entry {
        var key: Int
        var job: Int
        var address: Int
        var version: UInt64
        var progress: ItemProgress
        /// The auditor's copy of what it has seen of the item.
        var expiry: Int64
        var firstSent: Int64
        var failures: Int
    }

    private(set) var entries: [Entry] = []
    private var places: [Int: Int] = [:]

    var count: Int { entries.count }

    func entry(_ key: Int) -> Entry? { places[key].map { entries[$0] } }

    mutating func put(_ entry: Entry) {
        if let place = places[entry.key] {
            entries[place] = entry
        } else {
            places[entry.key] = entries.count
            entries.append(entry)
        }
    }

    mutating func remove(_ key: Int) {
        guard let place = places.removeValue(forKey: key) else { return }
        entries.swapAt(place, entries.count - 1)
        entries.removeLast()
        if place < entries.count { places[entries[place].key] = place }
    }

    /// A partition's items, the newest record first.
    func keys(of partition: Int, _ records: [Record], _ jobs: [Job]) -> [Int] {
        entries.filter { records[jobs[$0.job].record].partition == partition }
            .sorted { $0.job > $1.job }.map(\.key)
    }
}

extension World {
    func storeSome(_ count: Int) {
        guard !weather.isStoreBroken || draw.chance(300) else { return }
        let worker = anyWorker()
        for _ in 0..<count where violation == nil {
            if !serveStore(worker, fails: weather.isStoreBroken) { return }
        }
    }

    /// Does the next thing that is asked of the store. False when there is none that can be done.
    func serveStore(_ worker: WorkerModel, fails: Bool) -> Bool {
        if isHealthy || draw.chance(500), let write = worker.written.popFirst() {
            report(write, worker)
            return true
        }
        for _ in 0..<worker.writes.count {
            if let write = worker.writes.popFirst(), serve(write, worker, fails: fails) { return true }
        }
        guard !fails else { return false }
        for partition in owner.indices where owner[partition] == worker.number {
            guard let removal = nextRemoval(worker, partition) else { continue }
            counts.events += 1
            if removal.job >= 0 { remove(removal.job) }
            if removal.record >= 0 { complete(removal.record, worker, partition) }
            return true
        }
        return false
    }

    /// The partition's first removal, if it may be done now.
    private func nextRemoval(_ worker: WorkerModel, _ partition: Int) -> Removal? {
        guard var removal = worker.partitions[partition].removals.first else { return nil }
        if removal.job >= 0, removal.commit < 0 {
            removal.commit = nextCommit + 1
            worker.partitions[partition].removals.replaceFirst(removal)
            // For the sake of that commit.
            worker.partitions[partition].isDirty = true
        }
        guard removal.job < 0 || removal.commit <= worker.partitions[partition].committed else { return nil }
        return worker.partitions[partition].removals.popFirst()
    }

    /// False when nothing was done: the item is gone, or the write has to wait.
    private func serve(_ write: StoreWrite, _ worker: WorkerModel, fails: Bool) -> Bool {
        guard isCurrent(write, worker) else { return false }
        if isBlocked(write) {
            counts[.storeBlocked] += 1
            worker.writes.append(write)
            return false
        }
        let shard = worker.shards[write.shard]
        if fails {
            happened(.storeFailed)
            shard.machine.storeFailed(write.slot, version: write.version)
        } else {
            put(write)
            worker.written.append(write)
            return true
        }
        drain(worker, shard)
        return true
    }

    /// A machine hears that an item is durable, which may have ended or been replaced by then.
    private func report(_ write: StoreWrite, _ worker: WorkerModel) {
        let shard = worker.shards[write.shard]
        counts.events += 1
        shard.machine.stored(write.slot, version: write.version, at: now(worker))
        drain(worker, shard)
    }

    /// The item is still there, and its partition as well.
    func isCurrent(_ write: StoreWrite, _ worker: WorkerModel) -> Bool {
        let state = worker.partitions[write.partition]
        let copy = worker.shards[write.shard].copies[Int(write.slot)]
        return state.isOwned && state.epoch == write.epoch && copy.isLive && copy.job == write.copy.job
            && copy.epoch == write.epoch
    }

    /// Another push's item is never overwritten, but awaited: a crash would lose it while it has no outcome, and bring
    /// back what it has superseded while that isn't committed.
    func isBlocked(_ write: StoreWrite) -> Bool {
        guard let entry = store.entry(write.key) else { return false }
        return entry.job != write.copy.job
    }

    func put(_ write: StoreWrite) {
        let job = write.copy.job
        happened(.stored)
        note("the store has push # under key #", job, write.key)
        // Under the old token: replaced by the new one.
        if jobs[job].storeKey >= 0, jobs[job].storeKey != write.key { store.remove(jobs[job].storeKey) }
        jobs[job].storeKey = write.key
        store.put(
            .init(
                key: write.key, job: job, address: write.copy.address, version: write.version,
                progress: write.progress, expiry: write.copy.expiry, firstSent: write.copy.firstSent,
                failures: write.copy.failures))
    }

    private func remove(_ job: Int) {
        let key = jobs[job].storeKey
        guard key >= 0 else { return }
        guard log.records[jobs[job].record].isWritten else {
            return broken(.nothingLost, "push \(job) leaves the store before its outcome is in Kafka")
        }
        happened(.removed)
        note("push # leaves the store", job)
        jobs[job].storeKey = -1
        store.remove(key)
    }

    /// Takes an item of the store back into a machine.
    func restore(_ key: Int, _ worker: WorkerModel, _ partition: Int) {
        guard let entry = store.entry(key) else { return }
        let state = worker.partitions[partition]
        let shard = worker.shards[self.shard(of: entry.address)]
        let job = jobs[entry.job]
        if job.movedBy >= 0, !job.storedSinceMove,
            log.records[job.movedBy].offset < log.committed[log.records[job.movedBy].partition].offset,
            tokens[entry.address].key != tokens[log.records[job.movedBy].subject].key
        {
            broken(
                .nothingLost,
                "push \(entry.job) comes back from the store with its old token \(entry.address)")
        }
        var facts = job.facts
        facts.device = tokens[entry.address].key
        facts.partition = state.slot
        var progress = entry.progress
        progress.isOffsetDone = true
        progress.isStored = true
        progress.storeVersion = entry.version
        happened(.restored)
        note(worker, shard, "restores push # for token #", entry.job, entry.address)
        var copy = newCopy(entry.job, partition, state.epoch, address: entry.address, worker)
        copy.expiry = entry.expiry
        copy.firstSent = entry.firstSent
        copy.failures = entry.failures
        if entry.firstSent > 0 { copy.notBefore = 0 }
        copy.hasMoved = entry.address != job.token
        if progress.isAccepted {
            copy.last = .accepted
            copy.acceptedAt = monotonic
            copy.waitsUntil = .max
        }
        shard.restored += 1
        let admission = shard.machine.restore(facts, progress, at: now(worker))
        admitted(admission, copy, worker, shard, progress)
        drain(worker, shard)
    }
}
