import DeliveryCore
import SluiceModel

/// The intake's work for the store: looks for due items, and scans of a partition's items.
extension World {
    /// Looks for items a little before they are due.
    func lookForDue(_ worker: WorkerModel) {
        guard scenario.limits.storeIsDurable, monotonic >= worker.nextLook else { return }
        worker.nextLook = monotonic + 500_000_000
        for partition in owner.indices
        where owner[partition] == worker.number && !worker.isEnding(partition) {
            look(worker, partition)
        }
    }

    private func look(_ worker: WorkerModel, _ partition: Int) {
        let state = worker.partitions[partition]
        guard !state.isLooking, !weather.isStoreBroken || draw.chance(500) else { return }
        let through = now(worker).wallMilliseconds + scenario.leadMilliseconds
        // After a step of the clock, items put since are behind the cursor.
        let isBack = state.lookedThrough > through
        let after = isBack ? nil : state.dueCursor
        var found = store.dues[partition].filter { $0.due <= through && (after == nil || $0 > after!) }
        found.sort()
        if found.count > scenario.dueLimit {
            found.removeLast(found.count - scenario.dueLimit)
            worker.nextLook = monotonic
        }
        worker.partitions[partition].dueCursor = found.last ?? after
        worker.partitions[partition].lookedThrough = through
        guard !found.isEmpty || !state.ahead.isEmpty else { return }
        worker.partitions[partition].isLooking = true
        worker.due.append((partition, state.epoch, found))
    }

    /// Hands the due items that were found to their shards.
    func handDue(_ worker: WorkerModel) -> Bool {
        guard let (partition, epoch, found) = worker.due.popFirst() else { return false }
        guard worker.partitions[partition].isOwned, worker.partitions[partition].epoch == epoch else {
            return true
        }
        counts.events += 1
        worker.partitions[partition].isLooking = false
        guard !worker.isEnding(partition) else { return true }
        let all = worker.partitions[partition].ahead + found
        worker.partitions[partition].ahead = []
        for due in all {
            let offset = log.records[jobs[due.job].record].offset
            guard offset < nextOffset(worker, partition) else {
                counts[.dueAhead] += 1
                worker.partitions[partition].ahead.append(due)
                continue
            }
            let shard = worker.shards[shard(of: due.token)]
            let slot = worker.partitions[partition].slot
            shard.store.read[partition] = max(
                shard.store.read[partition], nextOffset(worker, partition) - 1)
            shard.store.residency.hasRead(slot, through: nextOffset(worker, partition) - 1)
            happened(.dueFound)
            shard.store.residency.due(tokens[due.token].key, slot)
            follow(worker, shard)
        }
        return true
    }

    /// Looks for items of a shard that wait with a topic. Returns false when no look is requested.
    func lookForSuspended(_ worker: WorkerModel) -> Bool {
        guard let look = worker.suspendedLooks.popFirst() else { return false }
        counts.events += 1
        let shard = worker.shards[look.shard]
        for partition in owner.indices where owner[partition] == worker.number && !worker.isEnding(partition)
        {
            loadSuspended(partition, worker, shard, isProbe: look.isProbe) { topic in topic == look.topic }
        }
        return true
    }

    /// Restores items that wait with topics, as far as their records were read; for a probe a single item.
    private func loadSuspended(
        _ partition: Int, _ worker: WorkerModel, _ shard: ShardModel, isProbe: Bool,
        _ isWanted: (Int) -> Bool
    ) {
        for due in store.dues[partition].sorted() where self.shard(of: due.token) == shard.number {
            let entry = store.entries(partition, due.token).first { $0.job == due.job }
            guard let entry, entry.progress.wait == .suspended, isWanted(Int(jobs[due.job].facts.topic)),
                log.records[jobs[due.job].record].offset < nextOffset(worker, partition)
            else { continue }
            counts[.suspendedFound] += 1
            let slot = worker.partitions[partition].slot
            shard.store.read[partition] = max(
                shard.store.read[partition], nextOffset(worker, partition) - 1)
            shard.store.residency.hasRead(slot, through: nextOffset(worker, partition) - 1)
            shard.store.residency.due(tokens[due.token].key, slot)
            follow(worker, shard)
            if isProbe { return }
        }
    }

    /// Returns the offset below which all records were handed to the shards.
    private func nextOffset(_ worker: WorkerModel, _ partition: Int) -> Int64 {
        let position = worker.partitions[partition].position
        guard position > 0 else { return 0 }
        return log.records[log.partitions[partition][position - 1]].offset + 1
    }

    /// Scans the stored items of a partition, a part at a time. Returns false when there is nothing to scan.
    func scanSome(_ worker: WorkerModel) -> Bool {
        for partition in owner.indices
        where owner[partition] == worker.number && worker.partitions[partition].isScanning {
            counts.events += 1
            if worker.partitions[partition].scan == nil {
                worker.partitions[partition].scan = store.dues[partition]
            }
            let slot = worker.partitions[partition].slot
            for _ in 0..<draw.among(1...40) {
                guard let due = worker.partitions[partition].scan!.popLast() else {
                    happened(.scanned)
                    worker.partitions[partition].isScanning = false
                    worker.partitions[partition].scan = nil
                    for shard in worker.shards {
                        shard.store.residency.scanned(slot)
                        loadSuspended(partition, worker, shard, isProbe: false) { _ in true }
                    }
                    return true
                }
                worker.shards[shard(of: due.token)].store.residency.found(
                    tokens[due.token].key, offset: log.records[jobs[due.job].record].offset, slot)
            }
            return true
        }
        return false
    }
}
