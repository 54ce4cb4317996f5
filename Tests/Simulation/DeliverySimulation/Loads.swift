import DeliveryCore
import SluiceModel

/// What the store has of a device comes back to memory before anything that concerns the device.
extension World {
    typealias Event = ShardStore.Event

    // MARK: What has to wait

    /// Puts an event aside whose device isn't in memory, or has others waiting. False when it may go on.
    func putAside(
        _ event: Event, for token: Int, _ partition: Int, needsPresence: Bool, _ worker: WorkerModel,
        _ shard: ShardModel
    ) -> Bool {
        guard scenario.limits.storeIsDurable else { return false }
        if shard.store.arrivals[token] == nil {
            guard mustLoad(token, needsPresence: needsPresence, shard) else { return false }
            standInLine(token, partition, shard)
        } else if shard.store.arrivals[token]!.partition != partition {
            // That one's presence wasn't asked for.
            shard.store.arrivals[token]!.partition = partition
            loadAgain(token, shard)
        } else if shard.store.arrivals[token]!.state == .loaded,
            mustLoad(token, needsPresence: needsPresence, shard)
        {
            // What was of records still to be read may have been read since; or what came before didn't ask for presence.
            loadAgain(token, shard)
        }
        counts[.putAside] += 1
        shard.store.arrivals[token]!.waiting.append(event)
        if case .record = event { shard.store.waiting += 1 }
        return true
    }

    private func standInLine(_ token: Int, _ partition: Int, _ shard: ShardModel) {
        shard.store.arrivals[token] = ShardStore.Arrival(partition: partition)
        shard.store.arrivalCount += 1
        shard.store.loadQueue.append(token)
    }

    /// What was loaded of a device isn't all of it any more, and something waits for it.
    func loadAgain(_ token: Int, _ shard: ShardModel) {
        switch shard.store.arrivals[token]?.state {
        case .loading: shard.store.arrivals[token]!.isIncomplete = true
        case .loaded:
            counts[.loadedTwice] += 1
            shard.store.arrivals[token]!.state = .queued
            shard.store.loadQueue.append(token)
        case .queued, nil: break
        }
    }

    private func mustLoad(_ token: Int, needsPresence: Bool, _ shard: ShardModel) -> Bool {
        let key = tokens[token].key
        if shard.store.cold.contains(key) { return true }
        return needsPresence && !shard.machine.knowsPresence(of: key)
    }

    /// Puts a cancel or device event aside whose device isn't in memory, or the one that its token changes to.
    func putAsideControl(
        _ number: Int, isReplay: Bool, _ worker: WorkerModel, _ shard: ShardModel
    ) -> Bool {
        guard scenario.limits.storeIsDurable else { return false }
        let record = log.records[number]
        let event = Event.record(
            number, isReplay: isReplay, epoch: worker.partitions[record.partition].epoch)
        let needsPresence = [.online, .offline, .receipt].contains(record.kind)
        if putAside(event, for: record.token, record.partition, needsPresence: needsPresence, worker, shard) {
            return true
        }
        guard let other = otherToken(number, shard), waits(for: other, number, shard) else { return false }
        var arrival = ShardStore.Arrival(partition: record.partition, state: .loaded)
        arrival.waiting.append(event)
        shard.store.arrivals[record.token] = arrival
        shard.store.arrivalCount += 1
        shard.store.waiting += 1
        return true
    }

    /// The new token of a token change, where it is this shard's.
    private func otherToken(_ number: Int, _ shard: ShardModel) -> Int? {
        let record = log.records[number]
        guard record.kind == .tokenChanged, self.shard(of: record.subject) == shard.number else { return nil }
        return record.subject
    }

    /// True when an event has to wait for another device as well.
    private func waits(for other: Int, _ number: Int, _ shard: ShardModel) -> Bool {
        let record = log.records[number]
        if let arrival = shard.store.arrivals[other] {
            if arrival.state == .loaded { return false }
        } else {
            guard mustLoad(other, needsPresence: true, shard) else { return false }
            standInLine(other, record.partition, shard)
        }
        counts[.waitsForTwo] += 1
        shard.store.arrivals[other]!.dependents.append(record.token)
        return true
    }

    /// Lets go of what waits for devices: of a partition that goes away, or of all.
    func abandonWaiting(_ partition: Int?, _ worker: WorkerModel) {
        for shard in worker.shards {
            for token in shard.store.arrivals.indices where shard.store.arrivals[token] != nil {
                shard.store.arrivals[token]!.waiting.removeAll { event in
                    switch event {
                    case .record(let number, _, _):
                        guard partition == nil || log.records[number].partition == partition else {
                            return false
                        }
                        shard.store.waiting -= 1
                        return true
                    case .departure(let departure):
                        guard partition == nil || departure.copy.partition == partition else { return false }
                        gone(departure, worker, shard)
                        return true
                    }
                }
            }
            for (job, departure) in shard.store.departing
            where partition == nil || departure.copy.partition == partition {
                shard.store.departing[job] = nil
                gone(departure, worker, worker.shards[self.shard(of: departure.copy.address)])
            }
            shard.store.arriving.removeAll {
                guard partition == nil || $0.copy.partition == partition else { return false }
                gone($0, worker, shard)
                return true
            }
        }
    }

    private func gone(_ departure: ShardStore.Departure, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.drop] += 1
        onTheWay(departure.copy, -1, worker, shard)
    }

    // MARK: Loads

    /// Asks for as many of the devices in line as may come now.
    func askForLoads(_ worker: WorkerModel, _ shard: ShardModel) {
        guard monotonic >= shard.store.noLoadsBefore else { return }
        var inLine = shard.store.loadQueue.count
        while inLine > 0, shard.store.loadsUnderWay < scenario.mostLoads,
            shard.store.restored < scenario.mostRestored
        {
            inLine -= 1
            ask(for: shard.store.loadQueue.popFirst()!, worker, shard)
        }
        if !shard.store.loadQueue.isEmpty {
            counts[.loadsPutOff] += 1
            if shard.store.restored >= scenario.mostRestored { metLimit = true }
        }
    }

    private func ask(for token: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        guard let arrival = shard.store.arrivals[token] else { return }
        var partitions = [arrival.partition]
        shard.store.cold.forEachPartition(of: tokens[token].key) { slot in
            let partition = worker.partitionBySlot[Int(slot)]
            if !partitions.contains(partition) { partitions.append(partition) }
        }
        shard.store.arrivals[token]!.state = .loading
        shard.store.arrivals[token]!.isIncomplete = false
        shard.store.arrivals[token]!.skipped = [:]
        for partition in partitions
        where worker.partitions[partition].isOwned && !worker.isEnding(partition) {
            shard.store.batch.loads.append(
                .init(token: token, partition: partition, epoch: worker.partitions[partition].epoch))
            shard.store.loadsUnderWay += 1
            shard.store.arrivals[token]!.awaited += 1
        }
        if shard.store.arrivals[token]!.awaited == 0 { arrived(token, worker, shard) }
    }

    /// What one load has brought.
    func take(
        _ load: StoreBatch.Load, _ loaded: (items: [StoreModel.Entry], presence: KnownPresence?),
        _ worker: WorkerModel, _ shard: ShardModel
    ) {
        shard.store.loadsUnderWay -= 1
        counts.events += 1
        let isAllHere = restore(load, loaded.items, loaded.presence, worker, shard)
        guard shard.store.arrivals[load.token] != nil else { return }
        shard.store.arrivals[load.token]!.awaited -= 1
        if !isAllHere { shard.store.arrivals[load.token]!.isIncomplete = true }
        guard shard.store.arrivals[load.token]!.awaited == 0 else { return }
        if shard.store.arrivals[load.token]!.isIncomplete {
            shard.store.arrivals[load.token]!.state = .queued
            shard.store.loadQueue.append(load.token)
        } else {
            arrived(load.token, worker, shard)
        }
    }

    /// False when not all found room that may come.
    private func restore(
        _ load: StoreBatch.Load, _ items: [StoreModel.Entry], _ known: KnownPresence?, _ worker: WorkerModel,
        _ shard: ShardModel
    ) -> Bool {
        let state = worker.partitions[load.partition]
        // Of an earlier assignment: what the store has now is to be seen.
        guard state.isOwned, state.epoch == load.epoch else { return !state.isOwned }
        guard !worker.isEnding(load.partition) else { return true }
        let key = tokens[load.token].key
        let wall = now(worker).wallMilliseconds
        if var known, known.learned.milliseconds + scenario.limits.maximumExpirationMilliseconds > wall {
            known.partition = state.slot
            restore(known, load.token, worker, shard)
        }
        var hasRoom = true
        var isCold = false
        for item in items.sorted(by: { $0.job < $1.job }) where violation == nil {
            if shard.store.ended[item.job] != nil || shard.store.comingOver.contains(item.job)
                || shard.store.departing[item.job] != nil || shard.store.moving.contains(item.job)
            {
                counts[shard.store.ended[item.job] != nil ? .endedFiltered : .departureFiltered] += 1
                continue
            }
            // Its record is still to be read, and before it others that are older.
            let offset = log.records[jobs[item.job].record].offset
            guard offset <= shard.store.readThrough[load.partition] else {
                counts[.futureFiltered] += 1
                isCold = true
                continue
            }
            if let first = firstWaiting(load, shard), offset > first {
                counts[.skipped] += 1
                let before = shard.store.arrivals[load.token]!.skipped[load.partition] ?? .max
                shard.store.arrivals[load.token]!.skipped[load.partition] = min(before, offset)
                isCold = true
                continue
            }
            if comesAgain(item, worker, shard) { happened(.repeated) }
            guard shard.store.restored < scenario.restoredRoom else {
                hasRoom = false
                break
            }
            restore(item, worker, shard)
        }
        if isCold || !hasRoom {
            shard.store.cold.insert(key, state.slot)
        } else {
            shard.store.cold.remove(key, state.slot)
        }
        if !hasRoom {
            metLimit = true
            shard.store.noLoadsBefore = monotonic + 200_000_000
            counts[.noRoomForLoad] += 1
        }
        return hasRoom
    }

    /// The offset of the first push of the partition that waits for the device: it is older than items from after it. A
    /// cancel or device event spares those by itself.
    private func firstWaiting(_ load: StoreBatch.Load, _ shard: ShardModel) -> Int64? {
        shard.store.arrivals[load.token]?.waiting.first(where: { event in
            guard case .record(let number, _, _) = event, log.records[number].partition == load.partition,
                log.records[number].kind == .push
            else { return nil }
            return log.records[number].offset
        })
    }

    /// The record of an item that the store has had since before the assignment waits for the item: it is complete. Should
    /// the record be taken later, the item could have ended by then.
    private func comesAgain(_ item: StoreModel.Entry, _ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        guard let arrival = shard.store.arrivals[item.token], !arrival.waiting.isEmpty else { return false }
        let number = jobs[item.job].record
        let before = arrival.waiting.count
        shard.store.arrivals[item.token]!.waiting.removeAll { event in
            if case .record(number, _, _) = event { true } else { false }
        }
        guard shard.store.arrivals[item.token]!.waiting.count < before else { return false }
        shard.store.waiting -= 1
        complete(number, worker, log.records[number].partition)
        return true
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
        shard.machine.restore(known, at: now(worker))
        drain(worker, shard)
    }

    /// Takes an item of the store back into a machine.
    private func restore(_ entry: StoreModel.Entry, _ worker: WorkerModel, _ shard: ShardModel) {
        let partition = entry.copy.partition
        let state = worker.partitions[partition]
        let job = jobs[entry.job]
        checkRestored(entry)
        var facts = job.facts
        facts.device = tokens[entry.token].key
        facts.partition = state.slot
        facts.coalesceWindowMilliseconds = 0
        // As it is read from the store.
        var progress = entry.progress
        progress.isAccepted = progress.wait == .confirming
        progress.isOffsetDone = true
        progress.isStored = true
        progress.notBeforeNanoseconds = 0
        progress.dueMilliseconds = entry.due
        happened(.restored)
        note(worker, shard, "restores push # for token #", entry.job, entry.token)
        let copy = restoredCopy(entry, state.epoch, worker)
        shard.restored += 1
        let admission = shard.machine.restore(facts, progress, at: now(worker))
        if case .repeated = admission {
            counts[.alreadyInMemory] += 1
            shard.repeated += 1
        } else {
            admitted(admission, copy, worker, shard, progress)
        }
        drain(worker, shard)
    }

    // MARK: What has waited

    /// All of a device is in memory: what has waited for it goes on.
    private func arrived(_ token: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        shard.store.arrivals[token]!.state = .loaded
        resume(token, worker, shard)
    }

    private func resume(_ token: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        while violation == nil, shard.store.arrivals[token]?.state == .loaded {
            guard let event = shard.store.arrivals[token]!.waiting.first else {
                guard shard.store.arrivals[token]!.skipped.isEmpty else { return loadAgain(token, shard) }
                // Those that need this device go on while it counts as loaded.
                if let dependent = shard.store.arrivals[token]!.dependents.popLast() {
                    if dependent != token { resume(dependent, worker, shard) }
                    continue
                }
                shard.store.arrivals[token] = nil
                shard.store.arrivalCount -= 1
                return
            }
            if case .record(let number, _, _) = event, let other = otherToken(number, shard),
                waits(for: other, number, shard)
            {
                return
            }
            if case .record(let number, _, _) = event {
                let record = log.records[number]
                let skipped = shard.store.arrivals[token]!.skipped[record.partition] ?? .max
                if skipped <= record.offset { return loadAgain(token, shard) }
            }
            _ = shard.store.arrivals[token]!.waiting.popFirst()
            switch event {
            case .record(let number, let isReplay, let epoch):
                shard.store.waiting -= 1
                take(number, isReplay: isReplay, epoch: epoch, worker, shard)
            case .departure(let departure): takeOver(departure, worker, shard)
            }
        }
    }
}
