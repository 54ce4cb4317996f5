import DeliveryCore
import SluiceModel

/// Orders of the machine to the store, and the store's answers.
extension ShardProcess {
    // MARK: Partitions

    func begin(
        _ slot: UInt16, _ part: FleetPart?, readThrough: Int64, earlierFrom: Int64,
        _ committed: FleetCommitted, _ marks: [Int64: APNSID]
    ) {
        order.beginPartition(slot)
        if let part { stored[slot] = Stored(part: part, committed: committed) }
        machine.beginPartition(
            slot, partition: part.map { Int32($0.partition) } ?? 0, readThrough: readThrough,
            earlierFrom: earlierFrom, committed: committed.offset,
            marks: marks.sorted { $0.key < $1.key }.map { (offset: $0.key, id: $0.value) })
        follow()
    }

    /// Queues devices whose presences have expired.
    func expired(_ slot: UInt16, _ devices: [DeviceKey]) {
        machine.expired(slot, devices, report: .expiredTaken(slot: slot))
        observeLoads()
        if hasStore, !machine.hasEnded { world.coverage.reached(.presenceExpired) }
    }

    // MARK: Puts

    /// Writes an item under its present token.
    func write(_ slot: UInt32, _ writing: ItemWriting) {
        let copy = held[Int(slot)]
        guard copy.job >= 0 else { return world.broken(.sound, "slot \(slot) is put without a push") }
        guard let part = stored[copy.slot]?.part else {
            return world.broken(.sound, "job \(copy.job) is put into a partition that has gone")
        }
        if world.failsOnce(1) { return loseChange("the push can't be encrypted") }
        let (progress, write) = (writing.progress, writing.write)
        var oldKey: FleetItemKey?
        if let left = write.leaves, let token = world.token(of: left.device) {
            batch.writes.append(
                (part, .remove(FleetItemKey(token: token, offset: copy.offset), due: left.due)))
            if hasChangelog { oldKey = copy.changelogKey }
        }
        held[Int(slot)].storedToken = -1
        let key = FleetItemKey(token: copy.address, offset: copy.offset)
        let item = FleetItem(job: copy.job, due: progress.dueMilliseconds, progress: progress)
        if hasChangelog { change(copy.slot, part, .put(key, item, replacingDue: nil)) }
        batch.writes.append((part, .put(key, item, replacingDue: write.replacesDue ?? item.due)))
        if write.marks {
            let mark = FleetChange.mark(offset: copy.offset, world.id(of: copy.job))
            batch.writes.append((part, mark))
            if hasChangelog { change(copy.slot, part, mark) }
        }
        if let oldKey { change(copy.slot, part, .remove(oldKey, due: nil)) }
    }

    /// A change on which the machine counts is missing, so the store gets no further batch.
    private func loseChange(_ text: String) {
        hasLostChange = true
        process.report(number, .lostChange(text))
    }

    func keepPresence(_ known: KnownPresence, in slot: UInt16) {
        guard let part = stored[slot]?.part, let token = world.token(of: known.device) else { return }
        if world.failsOnce(1) { return loseChange("the token can't be encrypted") }
        world.note(
            "process # keeps the presence of token # in partition #", process.serial, token,
            Int(part.partition))
        batch.writes.append((part, .presence(token: token, known)))
        if hasChangelog { change(slot, part, .presence(token: token, known)) }
    }

    private func forgetPresence(_ load: RequestedLoad) {
        world.coverage.reached(.presenceForgotten)
        forgetPresence(of: load.device, in: load.partitionSlot)
    }

    func forgetPresence(of device: DeviceKey, in slot: UInt16) {
        guard let part = stored[slot]?.part, let token = world.token(of: device) else { return }
        world.note(
            "process # forgets the presence of token # in partition #", process.serial, token,
            Int(part.partition))
        batch.writes.append((part, .forget(token: token)))
        if hasChangelog { change(slot, part, .forget(token: token)) }
    }

    /// Requests the removal of items whose outcomes are safe.
    func remove(_ ended: [EndedItem]) {
        for ended in ended {
            let slot = ended.place.partitionSlot
            guard let (found, key) = machine.remove(ended), let part = stored[slot]?.part,
                let token = world.token(of: key.device)
            else { continue }
            let item = FleetItemKey(token: token, offset: found.place.recordOffset)
            batch.writes.append((part, .remove(item, due: key.due)))
            guard let changelogKey = changelogKeys.removeValue(forKey: found) else { continue }
            change(slot, part, .remove(changelogKey, due: nil))
        }
    }

    // MARK: Batches

    /// Submits the batch of a turn, and reports to the intake.
    func submitToStore() {
        finishChanges()
        follow()
        if hasStore {
            forgetMarks()
            follow()
            _ = machine.askForLoads(at: world.now)
            follow()
        }
        for report in machine.takeReports() { process.report(number, report) }
        tellIntake()
        guard hasStore, !hasLostChange, !batch.isEmpty else { return }
        var taken = batch
        batch = FleetBatch()
        taken.requests = machine.takeRequests()
        process.submit(taken, of: number)
    }

    private func forgetMarks() {
        guard machine.mustForgetMarks(at: world.now) else { return }
        for (slot, stored) in stored { machine.committed(slot, stored.committed.offset) }
        machine.forgetMarks()
    }

    func batchEnded(_ batch: FleetBatch, _ loaded: [FleetLoaded]) {
        guard !machine.hasEnded else { return }
        machine.done(batch.requests)
        for put in batch.requests.puts {
            machine.stored(put, at: now)
            act()
        }
        follow()
        for (load, loaded) in zip(batch.requests.loads, loaded) { take(load, loaded) }
        // Requests of an ended partition are still answered.
        guard !loaded.isEmpty else { return }
        let restored = held.count { $0.isRestored && machine.residency.isBegun($0.slot) }
        if restored > world.scenario.residency.room {
            world.broken(.bounded, "process \(process.serial) has \(restored) items of the store")
        }
    }

    private func take(_ load: RequestedLoad, _ loaded: FleetLoaded) {
        if machine.beginLoad(load, last: loaded.items.last?.offset) {
            if let known = loaded.presence {
                if machine.restore(known, load, at: now) { forgetPresence(load) }
                act()
            }
            for (offset, item) in loaded.items {
                let verdict = machine.judge(offset: offset, load)
                if let handle = verdict.completes, record(handle) != nil {
                    process.bytesHeld -= WorkerProcess.recordBytes
                }
                if let place = verdict.restore { restore(item, place, load) }
            }
        }
        machine.endLoad()
        follow()
    }

    /// Takes an item back.
    private func restore(_ item: FleetItem, _ place: RecordPlace, _ load: RequestedLoad) {
        guard let token = world.token(of: load.device) else { return }
        var facts = world.jobs[item.job].facts
        facts.device = load.device
        var progress = item.progress
        progress.dueMilliseconds = item.due
        var copy = Held(job: item.job, slot: load.partitionSlot, offset: place.recordOffset, address: token)
        copy.isRestored = true
        process.bytesHeld += WorkerProcess.recordBytes
        let settlement = machine.restore(facts, place, progress, at: now)
        observe(settlement, 1)
        if settlement != .leftOut {
            world.note("process # restores job # for token #", process.serial, item.job, token)
        }
        settle(copy, settlement)
    }

    // MARK: New tokens

    /// - Parameter isStored: the store has the push, under its old token.
    func readdress(_ slot: UInt32, isStored: Bool, _ newToken: Int) {
        let copy = held[Int(slot)]
        let token = copy.noted >= 0 ? copy.noted : newToken
        guard token >= 0 else { return world.broken(.sound, "job \(copy.job) moves to no token") }
        if isStored, copy.storedToken < 0 { held[Int(slot)].storedToken = copy.address }
        held[Int(slot)].noted = -1
        held[Int(slot)].address = token
        world.note("job # of process # goes to token #", copy.job, process.serial, token)
        world.moved(copy.job)
    }

    func depart(_ slot: UInt32, _ newToken: Int) {
        guard let item = machine.departing else {
            return world.broken(.sound, "slot \(slot) departs as nothing")
        }
        readdress(slot, isStored: item.resident.storedDue != nil, newToken)
        if let writing = item.writing { write(slot, writing) }
        let copy = held[Int(slot)]
        held[Int(slot)] = Held()
        observeRelease(slot)
        var migration = Migration(held: copy, item: item)
        let shard = machine.shard(of: item.facts.device)
        guard item.writing != nil else { return process.handOver(migration, to: shard) }
        if hasChangelog {
            let release = Migration.Release()
            migration.release = release
            let (process, device) = (process, item.facts.device)
            afterThis {
                release.isReleased = true
                process.released(device, at: shard)
            }
        }
        batch.migrations.append(migration)
    }

    /// Takes an item whose device now has a token of this shard.
    func importItem(_ migration: Migration) {
        switch machine.arrives(migration.item, isReleased: migration.isReleased) {
        case .deferred(let handle): events[handle] = .migration(migration)
        case .takeOver:
            takeOver(migration)
            follow()
        case .leftOut:
            free(migration.held)
            act()
        }
    }

    /// Releases departures of this device, which may now be taken over.
    func releaseMigrations(_ device: DeviceKey) {
        for handle in machine.unreleased(of: device) {
            guard case .migration(let migration)? = events[handle], migration.isReleased else { continue }
            machine.release(handle, of: device)
        }
        follow()
    }

    func takeOver(_ migration: Migration) {
        let copy = migration.held
        let settlement = machine.takeOver(migration.item, at: now)
        observe(settlement, 2)
        switch settlement {
        case .deferred(let handle):
            events[handle] = .migration(migration)
            return act()
        case .leftOut:
            free(copy)
            return act()
        default: break
        }
        world.note("process # takes job # over for token #", process.serial, copy.job, copy.address)
        settle(copy, settlement)
        if let movedAt = migration.item.movedAtMilliseconds {
            moveOn(migration.item.facts.device, after: movedAt)
        }
    }
}
