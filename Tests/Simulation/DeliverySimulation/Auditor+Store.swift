import DeliveryCore
import SluiceModel

/// The auditor's view of items that leave memory and are restored.
extension World {
    /// Checks an item that leaves memory: the store has the item as it is, and will restore the item in time.
    func checkEvicted(_ copy: Copy, _ worker: WorkerModel, _ shard: ShardModel) {
        guard isOurs(copy, worker), store.token(of: copy.job) == copy.address,
            let entry = store.entries(copy.partition, copy.address).first(where: { $0.job == copy.job })
        else { return broken(.nothingLost, "push \(copy.job) leaves memory, and the store hasn't got it") }
        if !log.records[jobs[copy.job].record].isWritten,
            log.records[jobs[copy.job].record].completeEpoch != copy.epoch, !copy.isRestored
        {
            broken(.nothingLost, "push \(copy.job) leaves memory before its offset is complete")
        }
        let known = entry.copy
        if known.failures != copy.failures || known.firstSent != copy.firstSent || known.last != copy.last
            || known.acceptedAt != copy.acceptedAt || known.expiry != copy.expiry
        {
            broken(.noDuplicate, "push \(copy.job) leaves memory, and the store has what it was before")
        }
        // The machine rounds to a second, and the clock may have been set.
        if entry.due > lastMoment(copy) {
            broken(.progress, "push \(copy.job) comes back \(entry.due - lastMoment(copy)) ms after its end")
        }
        if copy.notBefore > monotonic, copy.notBefore > known.notBefore, entry.clockError == worker.clockError
        {
            let until = now(worker).wallMilliseconds + Int64((copy.notBefore - monotonic) / 1_000_000)
            if entry.progress.wakeMilliseconds < until - 3 {
                broken(.waits, "push \(copy.job) leaves memory, and the store has a shorter wait")
            }
        }
        let isScheduled = jobs[copy.job].facts.deliverAtMilliseconds > now(worker).wallMilliseconds
        if copy.notBefore > monotonic, entry.progress.wait == .held || isScheduled {
            broken(.waits, "push \(copy.job) leaves memory, and the store has one of its two waits")
        }
        if counts[.noteMove] > 0, shard.copies.contains(where: { $0.isLive && $0.noted == copy.address }) {
            broken(.newestWins, "push \(copy.job) leaves memory before another has moved to its token")
        }
        if copy.connection >= 0 || copy.noted >= 0 {
            broken(.sound, "push \(copy.job) leaves memory while it is in flight or moves")
        }
    }

    /// Checks that a restored item doesn't have a token that its device has replaced since.
    func checkRestored(_ entry: StoreModel.Entry) {
        let job = jobs[entry.job]
        // A record after the item's own has changed the token.
        let record = log.records[job.record]
        let changed = entry.token == job.token && !job.hasEnded ? tokens[job.token].change : -1
        let movedBy =
            changed >= 0 && log.records[changed].offset > record.offset ? changed : job.movedBy
        guard movedBy >= 0 else { return }
        let change = log.records[movedBy]
        if change.partition == entry.copy.partition, entry.token == change.token,
            change.offset < log.committed[change.partition].offset
        {
            broken(
                .nothingLost, "push \(entry.job) comes back from the store with its old token \(entry.token)")
        }
    }

    /// Checks that records superseded by the item are committed, so that Kafka doesn't repeat them after the item is
    /// removed.
    func checkRemoval(_ job: Int, _ epoch: Int) {
        let (device, partition) = (jobs[job].endedFor, log.records[jobs[job].record].partition)
        // Moved items are in the chains of other devices, and no order is promised among them.
        let hasStayed = { (job: Int) in self.tokens[self.jobs[job].token].key.low == device }
        guard hasStayed(job) else { return }
        for (old, before) in jobs[job].superseded where before == epoch && hasStayed(old) {
            let record = log.records[jobs[old].record]
            if record.partition == partition, !record.isCommitted {
                broken(
                    .newestWins,
                    "push \(job) leaves the store, and \(old), which it superseded, would come again")
            }
        }
    }

    /// Returns whether an item has ended in a shard and is still in the store.
    private func hasEnded(_ job: Int, _ worker: WorkerModel) -> Bool {
        let place = place(jobs[job].record, worker)
        return worker.shards.contains { $0.store.residency.hasEnded(place) }
    }

    /// Checks that a move to a token meets all stored items of the token, except items whose records are still to be
    /// read.
    func checkMeets(_ copy: Copy, _ token: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        guard isOurs(copy, worker), !worker.isEnding(copy.partition) else { return }
        // Items of earlier assignments are left out because their records may still have had to be read at the token
        // change.
        for entry in store.entries(copy.partition, token)
        where entry.job != copy.job && entry.copy.epoch == copy.epoch {
            let offset = log.records[jobs[entry.job].record].offset
            if jobs[entry.job].liveEpoch == copy.epoch || hasEnded(entry.job, worker)
                || offset > shard.store.read[copy.partition]
            {
                continue
            }
            broken(.newestWins, "push \(copy.job) moves to token \(token), and \(entry.job) isn't in memory")
        }
    }

    /// Returns the auditor's view of an item that is restored.
    func restoredCopy(_ entry: StoreModel.Entry, _ epoch: Int, _ worker: WorkerModel) -> Copy {
        // The view at the moment when the item left memory, also when the item was loaded before.
        let present = store.entries(entry.copy.partition, entry.token).first {
            $0.job == entry.job && $0.progress == entry.progress
        }
        var copy = present?.copy ?? entry.copy
        copy.isLive = true
        copy.address = entry.token
        copy.key = StoredKey(token: entry.token, due: entry.due)
        copy.isRestored = true
        copy.noted = -1
        copy.connection = -1
        copy.retrySteps = -1
        copy.probe = -1
        copy.isWithdrawn = false
        copy.isConfirmed = false
        copy.overdueSince = 0
        copy.freeSince = 0
        // The auditor learned of its wait after the store was asked.
        if copy.epoch != epoch { copy.waitsUntil = .max }
        // A hold of its device has become its own.
        if worker.shards[shard(of: entry.token)].wasBusy[entry.token] { copy.waitsUntil = .max }
        copy.epoch = epoch
        // The item was in flight when the store was asked.
        if jobs[entry.job].facts.isOnce, entry.progress.attempts > 0,
            copy.last == .none || copy.last == .unprocessed
        {
            copy.last = .unknown
        }
        copy.hasMoved = copy.hasMoved || entry.token != jobs[entry.job].token
        let isSent = entry.progress.wait == .confirming
        if copy.last == .accepted, !isSent { copy.hasNews = true }
        // The store keeps only one of two waits.
        if entry.progress.wait != .retrying { copy.notBefore = 0 }
        // The store knows milliseconds of the wall clock only.
        if entry.clockError == worker.clockError {
            copy.notBefore = copy.notBefore > 2_000_000 ? copy.notBefore - 2_000_000 : 0
            if copy.waitsUntil != .max { copy.waitsUntil += 5_000_000 }
            // The item may be restored late.
            let timeout = UInt64(jobs[entry.job].facts.receiptTimeoutSeconds) * 1_000_000_000
            let latest = monotonic > timeout ? monotonic - timeout : 0
            copy.awaitedSince = max(copy.awaitedSince, copy.acceptedAt + 5_000_000, latest)
        } else {
            copy.notBefore = 0
            copy.waitsUntil = .max
            copy.hasNews = true
            copy.awaitedSince = monotonic + 300_000_000_000
        }
        return copy
    }

    /// Checks that a device is loaded in parts only if it has more items than there is room for.
    func checkPartial(_ device: DeviceKey, _ worker: WorkerModel) {
        let token = tokenByKey[device.low]!
        let found = owner.indices.reduce(0) { count, partition in
            count + (owner[partition] == worker.number ? store.entries(partition, token).count : 0)
        }
        guard found <= scenario.restoredRoom else { return }
        broken(.newestWins, "token \(token) has \(found) items, and what waits for it goes on with a part")
    }

    /// Checks that stored items of the record's device from earlier records are in memory or have ended.
    func checkLoaded(_ record: Record, _ worker: WorkerModel, _ shard: ShardModel) {
        guard scenario.limits.storeIsDurable, record.kind != .receipt else { return }
        guard !shard.store.residency.isPartial(tokens[record.token].key) else {
            counts[.loadedInParts] += 1
            return
        }
        // Stored items await their turn behind those of devices that were back before.
        if record.kind == .online, shard.store.residency.isPutOff(tokens[record.token].key) {
            counts[.returnedAhead] += 1
            return
        }
        for partition in owner.indices
        where owner[partition] == worker.number && !worker.isEnding(partition) {
            let epoch = worker.partitions[partition].epoch
            for entry in store.entries(partition, record.token) {
                let push = log.records[jobs[entry.job].record]
                guard jobs[entry.job].liveEpoch != epoch, !hasEnded(entry.job, worker) else { continue }
                if partition == record.partition ? push.offset >= record.offset : true { continue }
                broken(
                    .newestWins,
                    "record at \(record.offset) of partition \(partition) goes ahead of push \(entry.job), which is in the store"
                )
            }
        }
    }
}
