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
        let worker = anyWorker()
        for _ in 0..<count where violation == nil {
            if !serveStore(worker, fails: weather.isStoreBroken) { return }
        }
    }

    /// Does the next request to the store. False when there is none that can be done.
    func serveStore(_ worker: WorkerModel, fails: Bool) -> Bool {
        for _ in 0..<worker.requests.count {
            guard let request = worker.requests.first else { return false }
            let state = worker.partitions[request.partition]
            guard state.isOwned, state.epoch == request.epoch else {
                _ = worker.requests.popFirst()
                continue
            }
            switch request.kind {
            case .write(let shard, let slot, let progress, let copy):
                _ = worker.requests.popFirst()
                if write(request, worker, shard, slot, progress, copy, fails: fails) { return true }
            case .remove:
                if fails { return false }
                _ = worker.requests.popFirst()
                remove(request)
                worker.partitions[request.partition].removals -= 1
                if request.record >= 0 { complete(request.record, worker, request.partition) }
                return true
            case .barrier:
                _ = worker.requests.popFirst()
                complete(request.record, worker, request.partition)
                counts.events += 1
                return true
            }
        }
        return false
    }

    /// False when nothing was done: the item is gone, or the write has to wait.
    private func write(
        _ request: StoreRequest, _ worker: WorkerModel, _ number: Int, _ slot: UInt32,
        _ progress: ItemProgress, _ asked: Copy, fails: Bool
    ) -> Bool {
        let shard = worker.shards[number]
        let copy = shard.copies[Int(slot)]
        guard copy.isLive, copy.job == request.job, copy.epoch == request.epoch else { return false }
        // Another push's item must not be overwritten before its outcome is in Kafka: it would be lost in a crash.
        if let entry = store.entry(request.key), entry.job != request.job,
            !log.records[jobs[entry.job].record].isWritten
        {
            counts[.storeBlocked] += 1
            worker.requests.append(request)
            return false
        }
        if fails {
            happened(.storeFailed)
            shard.machine.storeFailed(slot, version: request.version)
            drain(worker, shard)
            return true
        }
        put(request, progress, asked)
        shard.machine.stored(slot, version: request.version)
        drain(worker, shard)
        return true
    }

    func put(_ request: StoreRequest, _ progress: ItemProgress, _ copy: Copy) {
        happened(.stored)
        note("the store has push # under key #", request.job, request.key)
        if let entry = store.entry(request.key), entry.job != request.job { jobs[entry.job].storeKey = -1 }
        if jobs[request.job].storeKey >= 0, jobs[request.job].storeKey != request.key {
            // Under the old token: replaced by the new one.
            store.remove(jobs[request.job].storeKey)
        }
        jobs[request.job].storeKey = request.key
        store.put(
            .init(
                key: request.key, job: request.job, address: copy.address, version: request.version,
                progress: progress, expiry: copy.expiry,
                firstSent: copy.firstSent,
                failures: copy.failures))
    }

    func remove(_ request: StoreRequest) {
        let key = jobs[request.job].storeKey
        guard key >= 0 else { return }
        guard log.records[jobs[request.job].record].isWritten else {
            return broken(.nothingLost, "push \(request.job) leaves the store before its outcome is in Kafka")
        }
        happened(.removed)
        jobs[request.job].storeKey = -1
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
