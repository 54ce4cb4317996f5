import DeliveryCore
import SluiceModel

/// Orders of the residency and of the delivery machine to the store, and the store's answers.
extension ShardProcess {
    func keep(_ event: Event) -> UInt32 {
        nextHandle &+= 1
        events[nextHandle] = event
        return nextHandle
    }

    // MARK: Partitions

    func begin(
        _ slot: UInt16, _ part: FleetPart?, readThrough: Int64, earlierFrom: Int64,
        _ committed: FleetCommitted, _ marks: [Int64: APNSID]
    ) {
        order.beginPartition(slot)
        if let part {
            stored[slot] = Stored(part: part, committed: committed)
            residency.begin(slot, readThrough: readThrough, earlierFrom: earlierFrom)
            residency.committed(slot, committed.offset)
            for (offset, id) in marks.sorted(by: { $0.key < $1.key }) {
                residency.foundMark(
                    RecordPlace(partitionSlot: slot, offset: offset), id, forgets: number == 0)
            }
        }
        delivery.begin(partition: slot)
        follow()
    }

    func found(_ slot: UInt16, _ items: [DueItem]) {
        for item in items
        where shardIndex(ofHash: item.device.low, shards: world.scenario.shards) == number {
            residency.found(item.device, offset: item.offset, slot)
        }
    }

    func due(_ slot: UInt16, _ items: [DueItem], readThrough: Int64, then report: ShardReport) {
        guard !hasEnded else { return process.report(number, report) }
        // Older records first, of which an item could be the newer.
        takeRecords()
        residency.hasRead(slot, through: readThrough)
        for item in items { residency.due(item.device, slot) }
        whenShort.append(report)
    }

    // MARK: What has to wait

    func deferred(_ record: Incoming, _ job: FleetJob) -> DeferredRecord {
        let needsPresence: Bool
        switch job.kind {
        case .push: needsPresence = job.facts.delivery != .accept
        case .online, .offline, .receipt: needsPresence = true
        case .cancel, .tokenChanged, .unregistered, .invalid: needsPresence = false
        }
        var deferred = DeferredRecord(
            device: world.keys[job.token], place: record.place,
            look: needsPresence ? .partition(record.slot) : .nowhere, isPush: job.kind == .push,
            isReturn: job.kind == .online)
        if job.kind == .tokenChanged, job.subject != job.token, shard(of: job.subject) == number {
            deferred.otherDevice = world.keys[job.subject]
        }
        return deferred
    }

    /// Has a record wait whose device isn't in memory, or has others waiting. False when it may go on.
    func mustWait(_ record: Incoming, _ job: FleetJob) -> Bool {
        var deferred = deferred(record, job)
        guard residency.mustDefer(deferred, delivery) else { return false }
        deferred.handle = keep(.record(record))
        residency.deferUntilLoaded(deferred, delivery)
        return true
    }

    /// The record's item was moved before, or has ended and is still in the store: the record is complete.
    func isDone(_ record: Incoming) -> Bool {
        guard
            residency.hasEnded(record.place, of: world.keys[world.jobs[record.job].token])
                || residency.isMarked(record.place, world.id(of: record.job))
        else { return false }
        complete(record.place, isRepeated: true)
        process.bytesHeld -= WorkerProcess.recordBytes
        return true
    }

    // MARK: The residency's actions

    func follow() {
        observeLoads()
        guard !isFollowing else { return }
        isFollowing = true
        while let action = residency.nextAction(delivery) {
            observeLoads()
            count(action)
            perform(action)
        }
        observeLoads()
        isFollowing = false
        for handle in residency.takeChangesGivenBack() { giveBackChange(handle) }
    }

    private func perform(_ action: ResidencyAction) {
        switch action {
        case .takeIn(let handle): if let record = record(handle) { take(record, isLoaded: false) }
        case .proceed(let handle): if let record = record(handle) { take(record, isLoaded: true) }
        case .refuse(let handle):
            guard let record = record(handle), !isDone(record) else { break }
            refuse(
                Held(
                    job: record.job, slot: record.slot, offset: record.offset,
                    address: world.jobs[record.job].token), nil, hasNoRoom: true)
        case .takeOver(let handle): if let departure = departure(handle) { takeOver(departure) }
        case .leaveInStore(let handle): if let departure = departure(handle) { leaveOut(departure.held) }
        case .letGo(let handle): letGo(handle)
        case .load(let device, let slot, let withItems):
            guard let part = stored[slot]?.part, let token = world.token(of: device) else {
                return world.broken(.sound, "a load of a partition that has gone")
            }
            batch.loads.append((part, token, withItems))
        case .removeMark(let place):
            guard let part = stored[place.partitionSlot]?.part else { break }
            batch.writes.append((part, .unmark(offset: place.offset)))
            if hasChangelog { change(place.partitionSlot, part, .unmark(offset: place.offset)) }
        case .removed(let place, let device):
            changelogKeys[EndedItem(device: device.low, place: place)] = nil
            let own = RecordPlace(partitionSlot: place.partitionSlot, offset: place.recordOffset)
            news.removed.append(ShardProgress.Removal(place: own, device: device))
        }
    }

    private func record(_ handle: UInt32) -> Incoming? {
        guard case .record(let record)? = events.removeValue(forKey: handle) else {
            world.broken(.sound, "what waits under a handle isn't a record")
            return nil
        }
        return record
    }

    private func departure(_ handle: UInt32) -> Departure? {
        guard case .departure(let departure)? = events.removeValue(forKey: handle) else {
            world.broken(.sound, "what waits under a handle isn't a departure")
            return nil
        }
        return departure
    }

    /// An event that has waited is of a partition that goes away.
    func letGo(_ handle: UInt32) {
        switch events.removeValue(forKey: handle) {
        case .record(let record)?, .change(let record)?:
            giveBack(record.slot)
            process.bytesHeld -= WorkerProcess.recordBytes
        case .departure(let departure)?:
            if !departure.held.isOffsetDone { giveBack(departure.held.slot) }
            free(departure.held)
        case nil: world.broken(.sound, "nothing waits under a handle")
        }
    }

    func giveBackChange(_ handle: UInt32) {
        guard case .change(let record)? = events.removeValue(forKey: handle) else { return }
        giveBack(record.slot)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    /// Gives the outcomes of token changes that nothing holds up any more.
    private func finishChanges() {
        for handle in residency.takeChangesDone() {
            guard case .change(let record)? = events.removeValue(forKey: handle) else { continue }
            if record.isReplay { replayed(record) } else { endControl(record) }
        }
    }

    // MARK: Puts

    func put(_ slot: UInt32, version: UInt64) {
        guard hasStore, delivery.state(slot).isLive else { return }
        guard residency.mayPut(slot, world.keys[held[Int(slot)].address]) else {
            return delivery.storeFailed(slot, version: version)
        }
        guard let part = stored[held[Int(slot)].slot]?.part else { return }
        write(slot, to: part)
        residency.confirms(slot, version: version)
    }

    /// Writes an item under its present token.
    private func write(_ slot: UInt32, to part: FleetPart) {
        let copy = held[Int(slot)]
        guard copy.job >= 0 else { return world.broken(.sound, "slot \(slot) is put without a push") }
        let progress = delivery.progressToStore(slot, at: now)
        let write = residency.put(
            slot, copy.place, world.keys[copy.address], due: progress.dueMilliseconds)
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

    func keepPresence(_ number: UInt32) {
        guard hasStore else { return }
        let known = residency.keep(delivery.presence(number, at: now))
        var slots = [known.partition]
        delivery.forEachPartition(ofPresence: number) { if !slots.contains($0) { slots.append($0) } }
        for slot in slots {
            guard let part = stored[slot]?.part, let token = world.token(of: known.device) else { continue }
            world.note(
                "process # keeps the presence of token # in partition #", process.serial, token,
                Int(part.partition))
            batch.writes.append((part, .presence(token: token, known)))
            if hasChangelog { change(slot, part, .presence(token: token, known)) }
        }
    }

    /// Presences of these devices have expired.
    func expired(_ slot: UInt16, _ devices: [DeviceKey]) {
        guard hasStore, !hasEnded else { return process.report(number, .expiredTaken(slot: slot)) }
        for device in devices { residency.expired(device, slot) }
        whenShort.append(.expiredTaken(slot: slot))
        observeLoads()
        world.coverage.reached(.presenceExpired)
    }

    private func forgetPresence(_ load: RequestedLoad) {
        guard residency.mayForgetPresence(load), let part = stored[load.partitionSlot]?.part,
            let token = world.token(of: load.device)
        else { return }
        world.coverage.reached(.presenceForgotten)
        world.note(
            "process # forgets the presence of token # in partition #", process.serial, token,
            Int(part.partition))
        batch.writes.append((part, .forget(token: token)))
        if hasChangelog { change(load.partitionSlot, part, .forget(token: token)) }
    }

    // MARK: Ends

    /// An item of the store has ended.
    func ended(_ copy: Held) {
        if world.scenario.mode == .transactions {
            guard let part = stored[copy.slot]?.part else { return }
            // In one transaction with the outcome.
            change(copy.slot, part, .remove(copy.changelogKey, due: nil))
        } else if hasChangelog {
            changelogKeys[EndedItem(device: world.keys[copy.address].low, place: copy.place)] =
                copy.changelogKey
        }
    }

    /// The outcomes of these items are safe.
    func remove(_ ended: [EndedItem]) {
        for ended in ended {
            let slot = ended.place.partitionSlot
            guard let (found, key) = residency.remove(ended), let part = stored[slot]?.part,
                let token = world.token(of: key.device)
            else { continue }
            let item = FleetItemKey(token: token, offset: found.place.recordOffset)
            batch.writes.append((part, .remove(item, due: key.due)))
            guard let changelogKey = changelogKeys.removeValue(forKey: found) else { continue }
            change(slot, part, .remove(changelogKey, due: nil))
        }
    }

    // MARK: Batches

    /// Hands over what has gathered in a turn, and tells the intake what it has to know.
    func submitToStore() {
        finishChanges()
        follow()
        if hasStore {
            forgetMarks()
            askForLoads()
        }
        tellIntake()
        guard hasStore, !batch.isEmpty else { return }
        process.submit(takeBatch(), of: number)
    }

    private func forgetMarks() {
        guard residency.mustForgetMarks(at: world.now) else { return }
        for (slot, stored) in stored { residency.committed(slot, stored.committed.offset) }
        residency.forgetMarks()
        follow()
    }

    private func askForLoads() {
        follow()
        _ = residency.askForLoads(at: world.now, delivery)
        follow()
        guard residency.isLineShort, !whenShort.isEmpty else { return }
        for report in whenShort { process.report(number, report) }
        whenShort = []
    }

    func batchEnded(_ batch: FleetBatch, _ loaded: [FleetLoaded]) {
        guard !hasEnded else { return }
        residency.done(batch.requests)
        for put in batch.requests.puts {
            delivery.stored(put.slot, version: put.version, at: now)
            act(Context(stored: put.slot))
        }
        follow()
        for (load, loaded) in zip(batch.requests.loads, loaded) { take(load, loaded) }
        // Requests of a partition that has ended are answered yet.
        let restored = held.count { $0.isRestored && residency.isBegun($0.slot) }
        if restored > world.scenario.residency.room {
            world.broken(.bounded, "process \(process.serial) has \(restored) items of the store")
        }
    }

    private func take(_ load: RequestedLoad, _ loaded: FleetLoaded) {
        if residency.beginLoad(load, last: loaded.items.last?.offset) {
            if var known = loaded.presence {
                known.partition = load.partitionSlot
                if delivery.restore(known, at: now) { act() } else { forgetPresence(load) }
            }
            for (offset, item) in loaded.items {
                let verdict = residency.judge(offset: offset, delivery)
                if let handle = verdict.completes, let record = record(handle) {
                    complete(record.place, isRepeated: true)
                    process.bytesHeld -= WorkerProcess.recordBytes
                }
                if let place = verdict.restore { restore(item, place, load) }
            }
        }
        residency.endLoad()
        follow()
    }

    /// Takes an item back.
    private func restore(_ item: FleetItem, _ place: RecordPlace, _ load: RequestedLoad) {
        guard let token = world.token(of: load.device) else { return }
        var facts = world.jobs[item.job].facts
        facts.device = load.device
        facts.partition = load.partitionSlot
        facts.offset = place.offset
        facts.coalesceWindowMilliseconds = 0
        var progress = item.progress
        progress.isAccepted = progress.wait == .confirming
        progress.isOffsetDone = true
        progress.isStored = true
        progress.notBeforeNanoseconds = 0
        progress.dueMilliseconds = item.due
        var copy = Held(job: item.job, slot: load.partitionSlot, offset: place.recordOffset, address: token)
        copy.isOfEarlierLog = place.isOfEarlierLog
        copy.isOffsetDone = true
        copy.isRestored = true
        process.bytesHeld += WorkerProcess.recordBytes
        let admission = delivery.restore(facts, progress, at: now)
        observe(admission, 1)
        guard admission != .full else {
            _ = residency.foundNoSlot(at: world.now)
            process.bytesHeld -= WorkerProcess.recordBytes
            return act()
        }
        world.note("process # restores job # for token #", process.serial, item.job, token)
        settle(copy, admission, ResidentFacts(restoredFrom: load.device, due: item.due))
    }

    // MARK: New tokens

    func readdress(_ slot: UInt32, _ context: Context) {
        let copy = held[Int(slot)]
        let token = copy.noted >= 0 ? copy.noted : context.newToken
        guard token >= 0 else { return world.broken(.sound, "job \(copy.job) moves to no token") }
        if residency.isStored(slot), copy.storedToken < 0, hasChangelog {
            held[Int(slot)].storedToken = copy.address
        }
        held[Int(slot)].noted = -1
        held[Int(slot)].address = token
        residency.moved(slot, copy.place)
        world.note("job # of process # goes to token #", copy.job, process.serial, token)
        world.moved(copy.job)
    }

    func depart(_ slot: UInt32, _ context: Context) {
        readdress(slot, context)
        var mustMove = false
        if hasStore, residency.isStored(slot), let part = stored[held[Int(slot)].slot]?.part {
            write(slot, to: part)
            mustMove = true
        }
        let resident = residency.facts(slot)
        let (facts, progress) = delivery.export(slot)
        let copy = held[Int(slot)]
        held[Int(slot)] = Held()
        residency.left(slot)
        delivery.release(slot)
        observeRelease(slot)
        var departure = Departure(
            held: copy, facts: facts, progress: progress, resident: resident,
            movedAtMilliseconds: context.movedAtMilliseconds)
        let shard = shard(of: copy.address)
        guard mustMove else { return process.handOver(departure, to: shard) }
        if hasChangelog {
            let release = Departure.Release()
            departure.release = release
            let (process, device) = (process, world.keys[copy.address])
            afterThis {
                release.isReleased = true
                process.released(device, at: shard)
            }
        }
        batch.departures.append(departure)
    }

    /// Takes an item over whose device has a token of this shard now.
    func adopt(_ departure: Departure) {
        guard !hasEnded, isHere(departure.held) else { return leaveOut(departure.held) }
        let handle = keep(.departure(departure))
        switch residency.adopt(deferred(departure, handle), delivery) {
        case .deferred: break
        case .takeOver:
            events[handle] = nil
            takeOver(departure)
            follow()
        case .leaveInStore:
            events[handle] = nil
            leaveOut(departure.held)
        }
    }

    private func deferred(_ departure: Departure, _ handle: UInt32) -> DeferredDeparture {
        DeferredDeparture(
            handle: handle, device: world.keys[departure.held.address], place: departure.held.place,
            isReleased: departure.isReleased, isRestored: departure.held.isRestored)
    }

    /// Its partition is this worker's still.
    private func isHere(_ copy: Held) -> Bool {
        !hasStore || stored[copy.slot].map { Int($0.part.partition) } == world.jobs[copy.job].partition
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        for handle in residency.unreleased(of: device) {
            guard case .departure(let departure)? = events[handle], departure.isReleased else { continue }
            residency.release(handle, of: device)
        }
        follow()
    }

    private func takeOver(_ departure: Departure) {
        let copy = departure.held
        guard !hasEnded, isHere(copy) else {
            if copy.isRestored { residency.left(copy.place) }
            return leaveOut(copy)
        }
        let admission = delivery.adopt(departure.facts, departure.progress, at: now)
        observe(admission, 2)
        guard admission != .full else {
            residency.deferUntilSlot(deferred(departure, keep(.departure(departure))))
            return act()
        }
        world.note("process # takes job # over for token #", process.serial, copy.job, copy.address)
        settle(copy, admission, departure.resident)
        if let movedAt = departure.movedAtMilliseconds { moveOn(world.keys[copy.address], after: movedAt) }
    }

    /// Gives an item back that can't be taken over: the store or Kafka has it.
    func leaveOut(_ copy: Held) {
        if !copy.isOffsetDone { process.report(number, .gaveBack(slot: copy.slot)) }
        free(copy)
    }

    // MARK: Token changes in a row

    func remember(_ token: Int, of device: DeviceKey, occurred: Int64, _ origin: RecordOrigin) {
        guard let number = residency.remember(device, occurredMilliseconds: occurred, origin: origin) else {
            return
        }
        while pastTokens.count <= number { pastTokens.append(-1) }
        pastTokens[number] = token
    }

    /// Pushes that came to a device by a token change go on to the device's own later token.
    func moveOn(_ device: DeviceKey, after occurred: Int64) {
        guard hasStore, let past = residency.change(of: device, after: occurred) else { return }
        let token = pastTokens[past.number]
        let context = Context(newToken: token, movedAtMilliseconds: past.occurredMilliseconds)
        _ = delivery.tokenChanged(
            device, to: world.keys[token], isElsewhere: true, origin: past.origin, at: now)
        act(context)
    }
}
