import DeliveryCore
import SluiceModel

/// Records on their way in.
extension ShardProcess {
    /// Takes a record; `isLoaded` when all of its device is in memory.
    func take(_ record: Incoming, isLoaded: Bool) {
        let job = world.jobs[record.job]
        if !isLoaded, let handle = machine.arrives(record.place) {
            events[handle] = .record(record)
            return
        }
        world.note("process # takes job #, replay #", process.serial, record.job, record.isReplay ? 1 : 0)
        switch job.kind {
        case .invalid:
            if record.isReplay { return replayed(record) }
            write(.deadLetters, Held(job: record.job, slot: record.slot, offset: record.offset), nil)
            process.bytesHeld -= WorkerProcess.recordBytes
        case .push:
            if record.isReplay {
                machine.outdate(by: facts(record, job), at: now)
                act()
                return replayed(record)
            }
            if !isLoaded,
                let handle = machine.mustWait(push: world.keys[job.token], record.place, job.facts.delivery)
            {
                events[handle] = .record(record)
                return
            }
            guard !isDone(record) else { return }
            admit(record, job)
        case .cancel, .online, .offline, .receipt, .tokenChanged, .unregistered, .erase:
            if !isLoaded, let handle = mustWait(record, job) {
                events[handle] = .record(record)
                return
            }
            apply(record, job)
            switch machine.applied(record.place, isReplay: record.isReplay) {
            case .outcome: endControl(record)
            case .replayed: process.bytesHeld -= WorkerProcess.recordBytes
            case .waits(let handle): events[handle] = .change(record)
            }
        }
    }

    private func mustWait(_ record: Incoming, _ job: FleetJob) -> UInt32? {
        let concernsPresence =
            switch job.kind {
            case .online, .offline, .receipt: true
            default: false
            }
        return machine.mustWait(
            control: world.keys[job.token], record.place, concernsPresence: concernsPresence,
            isReturn: job.kind == .online, new: job.kind == .tokenChanged ? world.keys[job.subject] : nil)
    }

    func endControl(_ record: Incoming) {
        write(.outcomes, Held(job: record.job, slot: record.slot, offset: record.offset), nil)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    func replayed(_ record: Incoming) {
        machine.replayed(record.place)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    /// Returns whether the record is complete: its item was moved before, or has ended and is still in the store.
    func isDone(_ record: Incoming) -> Bool {
        guard
            machine.isDone(record.place, world.keys[world.jobs[record.job].token], world.id(of: record.job))
        else { return false }
        process.bytesHeld -= WorkerProcess.recordBytes
        return true
    }

    private func apply(_ record: Incoming, _ job: FleetJob) {
        let key = world.keys[job.token]
        let (place, occurred) = (record.place, job.occurred)
        switch job.kind {
        case .cancel:
            _ = machine.cancel(key, job.target, place, at: now)
            act()
        case .online:
            world.note("process # hears that token # is online", process.serial, job.token)
            _ = machine.online(key, occurredMilliseconds: occurred, place, at: now)
            act()
        case .offline:
            world.note("process # hears that token # is offline", process.serial, job.token)
            _ = machine.offline(key, occurredMilliseconds: occurred, place, at: now)
            act()
        case .receipt:
            world.note("process # hears of job # from token #", process.serial, job.subject, job.token)
            _ = machine.receipt(
                key, notificationKey: UInt64(job.subject + 1), occurredMilliseconds: occurred, place, at: now)
            act()
        case .unregistered:
            _ = machine.unregistered(key, occurredMilliseconds: occurred, place, at: now)
            act()
        case .erase:
            world.note("process # erases token #", process.serial, job.token)
            for number in machine.erase(key, place, at: now).changes { pastTokens[number] = -1 }
            act()
            checkErased(job.token, before: record)
        case .tokenChanged:
            let new = world.keys[job.subject]
            _ = machine.tokenChanged(key, to: new, occurredMilliseconds: occurred, place, at: now)
            act(newToken: job.subject)
            if let number = machine.remember(key, to: new, occurredMilliseconds: occurred, place) {
                while pastTokens.count <= number { pastTokens.append(-1) }
                pastTokens[number] = job.subject
            }
            moveOn(new, after: occurred)
        case .push, .invalid: break
        }
    }

    /// Checks that an erasure leaves nothing of the device in memory but pushes in flight.
    private func checkErased(_ token: Int, before record: Incoming) {
        if machine.delivery.knowsPresence(of: world.keys[token]) {
            world.broken(
                .rightOutcome, "process \(process.serial) knows the presence of erased token \(token)")
        }
        for (slot, copy) in held.enumerated()
        where copy.job >= 0 && copy.address == token && copy.slot == record.slot
            && copy.offset < record.offset && !inFlight.contains(where: { Int($0.slot) == slot })
        {
            world.broken(
                .rightOutcome, "process \(process.serial) keeps job \(copy.job) of erased token \(token)")
        }
    }

    /// Moves pushes that reached a device by a token change to the device's own later token.
    func moveOn(_ device: DeviceKey, after occurred: Int64) {
        guard let number = machine.moveOn(device, after: occurred, at: now) else { return }
        act(newToken: pastTokens[number])
    }

    private func facts(_ record: Incoming, _ job: FleetJob) -> PushFacts {
        var facts = job.facts
        facts.partition = record.slot
        facts.offset = record.offset
        return facts
    }

    private func admit(_ record: Incoming, _ job: FleetJob) {
        let facts = facts(record, job)
        let copy = Held(job: record.job, slot: record.slot, offset: record.offset, address: job.token)
        let settlement = machine.admit(facts, at: now)
        observe(settlement, 0)
        if case .deferred(let handle) = settlement {
            if !hasStore {
                world.broken(.bounded, "process \(process.serial) has no slot for job \(record.job)")
            }
            events[handle] = .record(record)
            return act()
        }
        settle(copy, settlement)
    }

    /// Keeps a push in the machine's slot, or ends it.
    func settle(_ copy: Held, _ settlement: Settlement) {
        switch settlement {
        case .placed(let slot): held[Int(slot)] = copy
        case .replaced(let slot, let facts):
            let old = held[Int(slot)]
            world.note("process # has job # replaced by job #", process.serial, old.job, copy.job)
            write(.outcomes, old, facts)
            var successor = copy
            successor.noted = old.noted
            successor.isQueued = old.isQueued
            free(old)
            held[Int(slot)] = successor
        case .refused(let kind, let cause, let newer, let facts):
            if newer != DeliveryMachine.noSlot {
                world.note(
                    "process # has job # superseded by job #", process.serial, copy.job, held[Int(newer)].job)
            } else if kind == .expired {
                world.note("process # finds job # expired", process.serial, copy.job)
            }
            let hasNoRoom = cause == .deviceLimit
            if hasNoRoom {
                world.note("process # has no room for job # of its device", process.serial, copy.job)
            }
            write(.outcomes, copy, facts, isRefused: hasNoRoom)
            free(copy)
        case .repeated, .leftOut: free(copy)
        case .deferred: world.broken(.sound, "job \(copy.job) waits for a slot under no handle")
        }
        act()
    }

    // MARK: What has waited

    func follow() {
        observeLoads()
        guard !isFollowing else { return }
        isFollowing = true
        var goesOn = false
        while let action = machine.nextEvent() {
            observeLoads()
            count(action)
            perform(action)
            goesOn = true
        }
        isFollowing = false
        for handle in machine.takeChangesGivenBack() {
            giveBackChange(handle)
            goesOn = true
        }
        guard goesOn else { return }
        observeLoads()
        act()
    }

    private func perform(_ action: ResidencyAction) {
        switch action {
        case .takeIn(let handle): if let record = record(handle) { take(record, isLoaded: false) }
        case .proceed(let handle): if let record = record(handle) { take(record, isLoaded: true) }
        case .refuse(let handle):
            guard let record = record(handle), !isDone(record) else { break }
            let job = world.jobs[record.job]
            world.note("process # has no room for job # of its device", process.serial, record.job)
            write(
                .outcomes,
                Held(job: record.job, slot: record.slot, offset: record.offset, address: job.token), nil,
                isRefused: true)
            process.bytesHeld -= WorkerProcess.recordBytes
        case .takeOver(let handle): if let migration = migration(handle) { takeOver(migration) }
        case .leaveInStore(let handle):
            guard let migration = migration(handle) else { break }
            machine.skip(migration.item)
            free(migration.held)
            act()
        case .discard(let handle): discard(handle)
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
        }
    }

    func record(_ handle: UInt32) -> Incoming? {
        guard case .record(let record)? = events.removeValue(forKey: handle) else {
            world.broken(.sound, "what waits under a handle isn't a record")
            return nil
        }
        return record
    }

    private func migration(_ handle: UInt32) -> Migration? {
        guard case .migration(let migration)? = events.removeValue(forKey: handle) else {
            world.broken(.sound, "what waits under a handle isn't a departure")
            return nil
        }
        return migration
    }

    /// Drops a waiting event, because its partition is revoked.
    func discard(_ handle: UInt32) {
        switch events.removeValue(forKey: handle) {
        case .record(let record)?, .change(let record)?:
            machine.discard(record: record.place)
            process.bytesHeld -= WorkerProcess.recordBytes
        case .migration(let migration)?:
            machine.discard(migration.item)
            free(migration.held)
        case nil: world.broken(.sound, "nothing waits under a handle")
        }
    }

    func giveBackChange(_ handle: UInt32) {
        guard case .change(let record)? = events.removeValue(forKey: handle) else { return }
        machine.discard(record: record.place)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    /// Writes the outcomes of token changes that nothing holds up any more.
    func finishChanges() {
        for handle in machine.takeChangesDone() {
            guard case .change(let record)? = events.removeValue(forKey: handle) else { continue }
            if record.isReplay { replayed(record) } else { endControl(record) }
        }
    }
}
