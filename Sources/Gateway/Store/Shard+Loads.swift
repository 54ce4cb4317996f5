import APNS
import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// What the store has of a device comes back to memory before anything that concerns the device.
extension Shard {
    // MARK: What has to wait

    /// Puts an event aside whose device isn't in memory, or has others waiting. False when it may go on.
    func putAside(
        _ event: @autoclosure () -> ShardStore.Event, for device: DeviceKey, _ partitionSlot: UInt16,
        needsPresence: Bool, mustWait: Bool = false
    ) -> Bool {
        guard let storage else { return false }
        if !storage.arrivals.isEmpty, storage.arrivals[device] != nil {
            if storage.arrivals[device]!.partitionSlot != partitionSlot {
                // Of another assignment, perhaps.
                storage.arrivals[device]!.partitionSlot = partitionSlot
                storage.arrivals[device]!.looksAgain = true
            } else if storage.arrivals[device]!.state == .loaded,
                mustLoad(device, partitionSlot, needsPresence: needsPresence, storage)
            {
                storage.arrivals[device]!.looksAgain = true
            }
            storage.arrivals[device]!.waiting.append(event())
            return true
        }
        guard mustWait || mustLoad(device, partitionSlot, needsPresence: needsPresence, storage) else {
            return false
        }
        var arrival = ShardStore.Arrival(partitionSlot: partitionSlot)
        arrival.waiting.append(event())
        storage.arrivals[device] = arrival
        storage.loadQueue.append(device)
        return true
    }

    private func mustLoad(
        _ device: DeviceKey, _ partitionSlot: UInt16, needsPresence: Bool, _ storage: ShardStore
    ) -> Bool {
        if !storage.cold.isEmpty, storage.cold.contains(device) { return true }
        guard needsPresence, !machine.knowsPresence(of: device) else { return false }
        return storage[partitionSlot]?.hasDevices ?? false
    }

    /// Items of a partition are due, all of whose records up to `readThrough` have been handed to the shards. `taken` is
    /// called when more may come.
    func due(
        _ partitionSlot: UInt16, _ keys: [ItemKey], readThrough: Int64, taken: @escaping @Sendable () -> Void
    ) {
        guard let storage, !hasEnded else { return taken() }
        // Older records first, of which an item could be the newer.
        repeat { takeRecords() } while ring.count > 0
        storage.hasRead(partitionSlot, through: readThrough)
        for key in keys where storage.cold.contains(key.device) {
            guard storage.arrivals[key.device] == nil else {
                storage.arrivals[key.device]!.looksAgain = true
                continue
            }
            storage.arrivals[key.device] = ShardStore.Arrival(partitionSlot: partitionSlot)
            storage.loadQueue.append(key.device)
        }
        storage.whenShort.append(taken)
        askForTurnEnd()
    }

    /// The devices of these items have something in the store, as far as is known.
    func found(_ partitionSlot: UInt16, _ keys: [ItemKey]) {
        guard let storage, storage[partitionSlot] != nil else { return }
        for key in keys where shardIndex(of: key.device, shards: plan.shards) == plan.index {
            storage.cold.insert(key.device, partitionSlot)
        }
    }

    // MARK: Loads

    /// Asks for as many of the devices in line as may come now.
    func askForLoads(_ storage: ShardStore) {
        while storage.loadQueueHead < storage.loadQueue.count,
            storage.loadsUnderWay < ShardStore.mostLoads, storage.restored < ShardStore.mostRestored,
            loop.now >= storage.noLoadsBefore
        {
            let device = storage.loadQueue[storage.loadQueueHead]
            storage.loadQueueHead += 1
            ask(for: device, storage)
        }
        if storage.loadQueueHead == storage.loadQueue.count {
            storage.loadQueue.removeAll(keepingCapacity: true)
            storage.loadQueueHead = 0
        }
        if storage.loadQueue.count - storage.loadQueueHead < ShardStore.mostLoads {
            for taken in storage.whenShort { taken() }
            storage.whenShort.removeAll(keepingCapacity: true)
        }
    }

    private func ask(for device: DeviceKey, _ storage: ShardStore) {
        guard var arrival = storage.arrivals[device] else { return }
        var slots: [UInt16] = [arrival.partitionSlot]
        storage.cold.forEachPartition(of: device) { slot in
            // Of those that are being scanned nothing is known, and a device has one partition but for new tokens.
            if !slots.contains(slot), !storage.cold.isScanned(slot) { slots.append(slot) }
        }
        for slot in slots where storage[slot].map({ !$0.isEnding }) ?? false {
            storage.load(ShardStore.Load(device: device, partitionSlot: slot))
            arrival.awaited += 1
        }
        storage.loadsUnderWay += arrival.awaited
        arrival.state = .loading
        arrival.looksAgain = false
        storage.arrivals[device] = arrival
        if arrival.awaited == 0 { arrived(device, storage) }
    }

    /// What one load has brought.
    func take(_ load: ShardStore.Load, _ loaded: LoadedDevice, _ result: BatchResult, _ storage: ShardStore) {
        storage.loadsUnderWay -= 1
        restore(load, loaded, result, storage)
        guard var arrival = storage.arrivals[load.device] else { return }
        arrival.awaited -= 1
        storage.arrivals[load.device] = arrival
        guard arrival.awaited == 0 else { return }
        if arrival.looksAgain {
            lookAgain(load.device, storage)
        } else {
            arrived(load.device, storage)
        }
    }

    private func restore(
        _ load: ShardStore.Load, _ loaded: LoadedDevice, _ result: BatchResult, _ storage: ShardStore
    ) {
        let slot = load.partitionSlot
        guard let partition = storage[slot], !partition.isEnding, partition.handle.number == loaded.partition
        else { return }
        if let state = loaded.state, state.expiryMilliseconds > wallMilliseconds,
            let presence = Presence(rawValue: state.presence)
        {
            machine.restore(
                KnownPresence(
                    device: load.device, presence: presence, learnedMilliseconds: state.learnedMilliseconds,
                    partition: slot), at: now)
            act()
        }
        var isAllHere = true
        for item in result.items[loaded.items] {
            let place = ShardStore.Place(partitionSlot: slot, offset: item.offset)
            if isStale(place, of: load.device, storage) { continue }
            // Its record is still to be read, and before it others that are older.
            guard item.offset <= storage.readThrough[Int(slot)] else {
                isAllHere = false
                continue
            }
            if !restore(item, load, result.push(item), storage) {
                isAllHere = false
                storage.arrivals[load.device]?.looksAgain = true
                storage.noLoadsBefore = loop.now + .milliseconds(100)
                loop.schedule(at: storage.noLoadsBefore, handler: storage)
            }
        }
        if isAllHere {
            storage.cold.remove(load.device, slot)
        } else {
            storage.cold.insert(load.device, slot)
        }
    }

    /// Takes an item back. False when there is no room for it.
    private func restore(
        _ item: LoadedItem, _ load: ShardStore.Load, _ bytes: UnsafeRawBufferPointer, _ storage: ShardStore
    ) -> Bool {
        let stored: StoredPush
        do throws(StoredPushError) {
            stored = try StoredPush.inOwnMemory(bytes)
        } catch {
            storage.counters.damaged += 1
            logger.critical(
                "an item of the store can't be read; it stays there",
                metadata: [
                    "directory": "\(storage.store.directory)", "offset": "\(item.offset)",
                    "error": "\(error)",
                ])
            return true
        }
        storage.counters.loaded += 1
        let push = stored.push
        let heldBytes = Job.heldBytes(of: bytes.count)
        guard
            let route = routes.route(
                of: push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            refuse(stored, item, load, storage)
            return true
        }
        var job = Job(
            push: push, record: nil, topic: route.topic, polledMilliseconds: stored.polledMilliseconds,
            partition: stored.partition, offset: item.offset, heldBytes: heldBytes, lane: route.lane,
            app: route.app, partitionSlot: load.partitionSlot, device: load.device)
        job.storedDevice = load.device
        job.storedDue = item.due
        job.isOffsetDone = true
        job.isRestored = true
        storage.restored += 1
        freedBytes -= job.heldBytes
        let progress = ItemProgress(stored.progress, due: item.due)
        var facts = facts(of: job, route)
        facts.coalesceWindowMilliseconds = 0
        let admission = machine.restore(facts, progress, at: now)
        if admission == .full {
            free(job)
            return false
        }
        settle(job, admission, progress)
        return true
    }

    /// Ends an item whose app isn't configured any more.
    private func refuse(
        _ stored: StoredPush, _ item: LoadedItem, _ load: ShardStore.Load, _ storage: ShardStore
    ) {
        var outcome = Outcome(
            .undeliverable, of: stored.push, sourceTopic: sourceTopic, partition: stored.partition,
            offset: item.offset, polledMilliseconds: stored.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.cause = .noCredential
        storage.keyWriter.removeAll()
        ChangelogKey.item(offset: item.offset, deviceToken: stored.push.deviceToken)
            .encode(into: &storage.keyWriter)
        end(
            ShardStore.Place(partitionSlot: load.partitionSlot, offset: item.offset),
            storedUnder: load.device, due: item.due, of: load.device, storage)
        write(outcome, source: OutcomeSource(storedIn: load.partitionSlot, offset: item.offset))
        stored.push.release()
    }

    // MARK: What has waited

    /// All of a device is in memory: what has waited for it goes on.
    private func arrived(_ device: DeviceKey, _ storage: ShardStore) {
        storage.arrivals[device]?.state = .loaded
        resume(device, storage)
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        guard let storage, storage.arrivals[device]?.state == .loaded else { return }
        wallMilliseconds = wallClockMilliseconds()
        resume(device, storage)
        askForTurnEnd()
    }

    private func lookAgain(_ device: DeviceKey, _ storage: ShardStore) {
        storage.arrivals[device]?.state = .queued
        storage.loadQueue.append(device)
        askForTurnEnd()
    }

    private func resume(_ device: DeviceKey, _ storage: ShardStore) {
        var next = 0
        while let arrival = storage.arrivals[device], arrival.state == .loaded {
            if arrival.looksAgain {
                lookAgain(device, storage)
                break
            }
            guard next < arrival.waiting.count else {
                resumeDependents(of: device, storage)
                guard let left = storage.arrivals[device], left.state == .loaded, !left.looksAgain else {
                    continue
                }
                storage.arrivals[device] = nil
                return
            }
            let event = arrival.waiting[next]
            if case .record(let incoming) = event, let other = otherDevice(of: incoming),
                waits(for: other, incoming, storage)
            {
                break
            }
            if case .departure(let departure) = event, !departure.isReleased {
                resumeDependents(of: device, storage)
                break
            }
            next += 1
            switch event {
            case .record(let incoming): take(incoming, isLoaded: true)
            case .departure(let departure): takeOver(departure)
            }
        }
        if next > 0 { storage.arrivals[device]?.waiting.removeFirst(next) }
    }

    /// While a device is here, it counts as loaded for those that need it as well.
    private func resumeDependents(of device: DeviceKey, _ storage: ShardStore) {
        let dependents = storage.arrivals[device]!.dependents
        storage.arrivals[device]!.dependents = []
        for dependent in dependents where storage.arrivals[dependent]?.state == .loaded {
            resume(dependent, storage)
        }
    }

    /// The device of the new token of a token change, where it is another and this shard's.
    private func otherDevice(of incoming: IncomingRecord) -> DeviceKey? {
        guard
            case .control(let control)? = try? decoder.decode(
                jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
        else { return nil }
        defer { control.release() }
        return otherDevice(of: control, incoming)
    }

    private func otherDevice(of control: ControlJob, _ incoming: IncomingRecord) -> DeviceKey? {
        guard case .tokenChanged(let token) = control.detail else { return nil }
        let other = plan.hasher.device(token)
        return other != incoming.device && shardIndex(of: other, shards: plan.shards) == plan.index
            ? other : nil
    }

    /// Puts a cancel or device event aside whose device isn't in memory, or the one that its token changes to.
    func putAside(_ control: ControlJob, _ incoming: IncomingRecord) -> Bool {
        guard let storage else { return false }
        if putAside(
            .record(incoming), for: incoming.device, incoming.partitionSlot,
            needsPresence: control.detail.concernsPresence)
        {
            return true
        }
        guard let other = otherDevice(of: control, incoming), waits(for: other, incoming, storage) else {
            return false
        }
        var arrival = ShardStore.Arrival(partitionSlot: incoming.partitionSlot)
        arrival.state = .loaded
        arrival.waiting.append(.record(incoming))
        storage.arrivals[incoming.device] = arrival
        return true
    }

    /// True when an event has to wait for another device as well.
    private func waits(for other: DeviceKey, _ incoming: IncomingRecord, _ storage: ShardStore) -> Bool {
        if let arrival = storage.arrivals[other] {
            if arrival.state == .loaded { return false }
        } else {
            guard mustLoad(other, incoming.partitionSlot, needsPresence: true, storage) else { return false }
            storage.arrivals[other] = ShardStore.Arrival(partitionSlot: incoming.partitionSlot)
            storage.loadQueue.append(other)
        }
        storage.arrivals[other]!.dependents.append(incoming.device)
        return true
    }
}

extension ControlJob.Detail {
    /// What it says about its device is compared with what is known.
    var concernsPresence: Bool {
        switch self {
        case .online, .offline, .receipt: true
        default: false
        }
    }
}
