import DeliveryCore
import SluiceModel

/// Loads of a device's stored items, which precede anything that concerns the device.
extension World {
    typealias Event = ShardStore.Event

    // MARK: What has to wait

    /// Returns the description of a record that the machine gets.
    func deferred(_ number: Int, _ worker: WorkerModel, _ shard: ShardModel) -> DeferredRecord {
        let record = log.records[number]
        let place = place(number, worker)
        let needsPresence =
            record.kind == .push
            ? jobs[record.subject].facts.delivery != .accept
            : [.online, .offline, .receipt].contains(record.kind)
        var deferred = DeferredRecord(
            device: tokens[record.token].key, place: place,
            look: needsPresence ? .partition(place.partitionSlot) : .nowhere, isPush: record.kind == .push,
            isReturn: record.kind == .online)
        if record.kind == .tokenChanged, self.shard(of: record.subject) == shard.number,
            record.subject != record.token
        {
            deferred.otherDevice = tokens[record.subject].key
        }
        return deferred
    }

    /// Defers a record whose device, or its new token's device, isn't in memory. Returns false when the record may
    /// proceed.
    func mustWait(
        _ number: Int, isReplay: Bool, epoch: Int, _ worker: WorkerModel, _ shard: ShardModel
    ) -> Bool {
        var deferred = deferred(number, worker, shard)
        guard shard.store.residency.mustDefer(deferred, shard.machine) else { return false }
        counts[.putAside] += 1
        deferred.handle = shard.store.keep(.record(number, isReplay: isReplay, epoch: epoch))
        shard.store.waiting += 1
        shard.store.residency.deferUntilLoaded(deferred, shard.machine)
        return true
    }

    /// Defers a record because no slot is free.
    func waitForSlot(
        _ number: Int, isReplay: Bool, epoch: Int, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        if isHealthy { metLimit = true }
        var deferred = deferred(number, worker, shard)
        deferred.handle = shard.store.keep(.record(number, isReplay: isReplay, epoch: epoch))
        shard.store.waiting += 1
        shard.store.residency.deferUntilSlot(deferred)
    }

    /// Abandons deferred records and items of a revoked partition, or of all partitions (nil).
    func abandonWaiting(_ partition: Int?, _ worker: WorkerModel) {
        for shard in worker.shards {
            shard.store.residency.abandon(partition.map { worker.partitions[$0].slot })
            follow(worker, shard)
            shard.store.arriving.removeAll {
                guard partition == nil || $0.copy.partition == partition else { return false }
                gone($0, worker, shard)
                return true
            }
        }
    }

    func gone(_ migration: ShardStore.Migration, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.drop] += 1
        onTheWay(migration.copy, -1, worker, shard)
    }

    // MARK: Actions

    /// Performs all actions of a shard's residency machine.
    func follow(_ worker: WorkerModel, _ shard: ShardModel) {
        guard !shard.store.isFollowing else { return }
        shard.store.isFollowing = true
        while violation == nil, let action = shard.store.residency.nextAction(shard.machine) {
            perform(action, worker, shard)
        }
        shard.store.isFollowing = false
        // The partition's next owner reads these records again.
        for handle in shard.store.residency.takeChangesGivenBack() { _ = shard.store.take(handle) }
        count(shard)
    }

    private func perform(_ action: ResidencyAction, _ worker: WorkerModel, _ shard: ShardModel) {
        switch action {
        case .takeIn: broken(.sound, "a record came before its partition")
        case .proceed(let handle):
            guard case .record(let number, let isReplay, let epoch)? = shard.store.take(handle) else {
                return broken(.sound, "what goes on isn't a record that waits")
            }
            shard.store.waiting -= 1
            take(number, isReplay: isReplay, epoch: epoch, worker, shard)
        case .refuse(let handle):
            guard case .record(let number, _, let epoch)? = shard.store.take(handle) else {
                return broken(.sound, "what is refused isn't a record that waits")
            }
            shard.store.waiting -= 1
            refuse(number, epoch: epoch, worker, shard)
        case .takeOver(let handle):
            guard case .migration(let migration)? = shard.store.take(handle) else {
                return broken(.sound, "what is taken over isn't an item that waits")
            }
            takeOver(migration, worker, shard)
        case .leaveInStore(let handle):
            guard case .migration(let migration)? = shard.store.take(handle) else {
                return broken(.sound, "what stays in the store isn't an item that waits")
            }
            staysInStore(migration, worker, shard)
        case .discard(let handle):
            switch shard.store.take(handle) {
            case .record(let number, _, _):
                let state = worker.partitions[log.records[number].partition]
                if !worker.isDraining, state.isOwned, !state.isEnding {
                    broken(.nothingLost, "record \(number) is let go though its partition stays")
                }
                shard.store.waiting -= 1
            case .migration(let migration): gone(migration, worker, shard)
            case nil: broken(.sound, "what is let go doesn't wait")
            }
        case .load(let device, let slot, let withItems):
            shard.store.batch.loads.append(
                .init(
                    token: tokenByKey[device.low]!, partition: worker.partitionBySlot[Int(slot)],
                    hasItems: withItems))
        case .removeMark(let place):
            let partition = worker.partitionBySlot[Int(place.partitionSlot)]
            write(
                .unmark(job: log.records[record(partition, place.offset)!].subject), partition, shard)
        case .removed(let place, let device):
            removed(place, device, worker)
        }
    }

    private func count(_ shard: ShardModel) {
        let (now, seen) = (shard.store.residency.milestones, shard.store.seen)
        guard now != seen else { return }
        shard.store.seen = now
        counts[.waitsForTwo] += now.waitedForTwo - seen.waitedForTwo
        counts[.loadedTwice] += now.reloaded - seen.reloaded
        counts[.noRoomForLoad] += now.shortOfRoom - seen.shortOfRoom
        counts[.awaitedSlot] += now.awaitedSlot - seen.awaitedSlot
        counts[.leftInStore] += now.leftInStore - seen.leftInStore
        counts[.skipped] += now.skipped - seen.skipped
        counts[.futureFiltered] += now.future - seen.future
        counts[.migrationFiltered] += now.stale - seen.stale
        if now.shortOfRoom != seen.shortOfRoom || now.leftInStore != seen.leftInStore { metLimit = true }
    }

    // MARK: Loads

    /// Requests loads for as many of the waiting devices as there is room for.
    func askForLoads(_ worker: WorkerModel, _ shard: ShardModel) {
        repeat {
            follow(worker, shard)
        } while violation == nil
            && shard.store.residency.askForLoads(at: monotonic, shard.machine)
        follow(worker, shard)
        if shard.store.residency.isWaitingForRoom {
            counts[.loadsPutOff] += 1
            metLimit = true
        }
    }

    /// Processes the result of a load.
    func take(
        _ load: RequestedLoad, _ loaded: (items: [StoreModel.Entry], presence: KnownPresence?),
        _ worker: WorkerModel, _ shard: ShardModel
    ) {
        counts.events += 1
        let items = loaded.items.sorted { offset(of: $0) < offset(of: $1) }
        if shard.store.residency.beginLoad(load, last: items.last.map { offset(of: $0) }) {
            let token = tokenByKey[load.device.low]!
            let wall = now(worker).wallMilliseconds
            if var known = loaded.presence, known.expiryMilliseconds > wall {
                known.partition = load.partitionSlot
                restore(known, token, worker, shard)
            }
            for item in items where violation == nil { take(item, worker, shard) }
        }
        let partial = shard.store.residency.milestones.partial
        shard.store.residency.endLoad()
        if shard.store.residency.milestones.partial > partial { checkPartial(load.device, worker) }
        follow(worker, shard)
    }

    private func offset(of item: StoreModel.Entry) -> Int64 { log.records[jobs[item.job].record].offset }

    private func take(_ item: StoreModel.Entry, _ worker: WorkerModel, _ shard: ShardModel) {
        let number = jobs[item.job].record
        let partition = log.records[number].partition
        if shard.store.residency.hasEnded(place(number, worker)) { counts[.endedFiltered] += 1 }
        let verdict = shard.store.residency.judge(
            offset: log.records[number].offset, shard.machine)
        if let handle = verdict.completes {
            guard case .record(number, _, _)? = shard.store.take(handle) else {
                return broken(.nothingLost, "push \(item.job) is taken for the record of another")
            }
            happened(.repeated)
            shard.store.waiting -= 1
            complete(number, worker, partition)
        }
        guard verdict.restore != nil else {
            if jobs[item.job].liveEpoch == worker.partitions[partition].epoch {
                counts[.alreadyInMemory] += 1
            }
            return
        }
        restore(item, worker, shard)
    }

    private func restore(
        _ known: KnownPresence, _ token: Int, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        if shard.machine.knowsPresence(of: known.device),
            !Self.isNewer(known.learned, than: shard.lastPresence[token]?.learned ?? .none)
        {
            return
        }
        happened(.presenceRestored)
        note(worker, shard, "the store knows where token # is", token)
        if Self.isNewer(known.learned, than: shard.presenceAt[token]) {
            shard.presenceAt[token] = known.learned
            shard.isOffline[token] = known.presence != .online
        }
        if known.presence == .presumedOffline { shard.isPresumable[token] = true }
        shard.lastPresence[token] = known
        if !shard.machine.restore(known, at: now(worker)) {
            broken(.sound, "a presence has no effect though it hasn't expired")
        }
        drain(worker, shard)
    }

    /// Restores a stored item into a machine.
    private func restore(_ entry: StoreModel.Entry, _ worker: WorkerModel, _ shard: ShardModel) {
        let partition = entry.copy.partition
        let state = worker.partitions[partition]
        let job = jobs[entry.job]
        checkRestored(entry)
        var facts = job.facts
        facts.device = tokens[entry.token].key
        facts.partition = state.slot
        facts.coalesceWindowMilliseconds = 0
        // The state of an item as the store returns it.
        var progress = entry.progress
        progress.isAccepted = progress.wait == .confirming
        progress.isOffsetDone = true
        progress.isStored = true
        progress.notBeforeNanoseconds = 0
        progress.dueMilliseconds = entry.due
        let copy = restoredCopy(entry, state.epoch, worker)
        let resident = ResidentFacts(restoredFrom: facts.device, due: entry.due)
        let admission = shard.machine.restore(facts, progress, at: now(worker))
        if admission == .full {
            _ = shard.store.residency.foundNoSlot(at: monotonic)
            metLimit = true
            return drain(worker, shard)
        }
        happened(.restored)
        note(worker, shard, "restores push # for token #", entry.job, entry.token)
        shard.restored += 1
        if case .repeated(let slot, _) = admission {
            counts[.alreadyInMemory] += 1
            shard.repeated += 1
            shard.store.residency.repeated(
                slot, place(copy, worker), resident, tokens[copy.address].key)
            if shard.copies[Int(slot)].key == nil { shard.copies[Int(slot)].key = copy.key }
        } else {
            admitted(admission, copy, resident, worker, shard, progress)
        }
        drain(worker, shard)
    }
}
