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
    /// - Parameter look: for what is known of the device, where the event has to know that.
    func putAside(
        _ event: @autoclosure () -> ShardStore.Event, for device: DeviceKey,
        _ look: ShardStore.PresenceLook, mustWait: Bool = false
    ) -> Bool {
        guard let storage else { return false }
        if !storage.arrivals.isEmpty, let arrival = storage.arrivals[device] {
            let union = arrival.look.union(look)
            storage.arrivals[device]!.look = union
            switch arrival.state {
            case .queued: break
            case .loading: if union != arrival.look { storage.arrivals[device]!.looksAgain = true }
            case .loaded: if mustLoad(device, look, storage) { storage.arrivals[device]!.looksAgain = true }
            }
            storage.arrivals[device]!.waiting.append(event())
            return true
        }
        guard mustWait || mustLoad(device, look, storage) else { return false }
        var arrival = ShardStore.Arrival(look: look)
        arrival.waiting.append(event())
        storage.arrivals[device] = arrival
        storage.loadQueue.append(device)
        return true
    }

    func mustLoad(
        _ device: DeviceKey, _ look: ShardStore.PresenceLook, _ storage: ShardStore
    ) -> Bool {
        if !storage.cold.isEmpty, storage.cold.contains(device) { return true }
        return look != .nowhere && !machine.knowsPresence(of: device)
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
            storage.arrivals[key.device] = ShardStore.Arrival(look: .partition(partitionSlot))
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

    /// Asks for as many of the devices in line as may come now. None as long as it isn't known of a partition which devices
    /// it has items of: after new tokens these needn't be the partitions that bring the devices' events.
    func askForLoads(_ storage: ShardStore) {
        var idle = 0
        while storage.loadQueueHead < storage.loadQueue.count, storage.cold.scansUnderWay == 0,
            storage.loadsUnderWay < ShardStore.mostLoads, storage.restored < ShardStore.mostRestored,
            loop.now >= storage.noLoadsBefore, idle < ShardStore.mostIdle
        {
            let device = storage.loadQueue[storage.loadQueueHead]
            storage.loadQueueHead += 1
            if !ask(for: device, storage) { idle += 1 }
        }
        if storage.loadQueueHead == storage.loadQueue.count {
            storage.loadQueue.removeAll(keepingCapacity: true)
            storage.loadQueueHead = 0
        }
        if storage.loadQueue.count - storage.loadQueueHead < ShardStore.mostLoads {
            for taken in storage.whenShort { taken() }
            storage.whenShort.removeAll(keepingCapacity: true)
        }
        // What has gone on is sent, and the next ones follow, when others have had their turn.
        if idle > 0 { wakeup.signal() }
    }

    /// Asks for what the store has of a device. False when that is nothing, and what has waited for it has gone on.
    private func ask(for device: DeviceKey, _ storage: ShardStore) -> Bool {
        guard var arrival = storage.arrivals[device] else { return true }
        var slots: [UInt16] = []
        storage.cold.forEachPartition(of: device) { slots.append($0) }
        if !machine.knowsPresence(of: device) {
            switch arrival.look {
            case .nowhere: break
            case .partition(let slot): if !slots.contains(slot) { slots.append(slot) }
            case .everywhere: slots = storage.partitionSlots
            }
        }
        for slot in slots where storage[slot].map({ !$0.isEnding }) ?? false {
            storage.load(ShardStore.Load(device: device, partitionSlot: slot))
            arrival.awaited += 1
        }
        storage.loadsUnderWay += arrival.awaited
        arrival.state = .loading
        arrival.looksAgain = false
        arrival.skipped = [:]
        storage.arrivals[device] = arrival
        if arrival.awaited > 0 { return true }
        arrived(device, storage)
        return false
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
                    device: load.device, presence: presence,
                    learned: ReportTime(
                        milliseconds: state.learnedMilliseconds, offset: state.learnedOffset),
                    partition: slot), at: now)
            act()
        }
        var isAllHere = true
        let last = result.items[loaded.items].last?.offset ?? .min
        var first = firstWaiting(load, through: last, storage)
        for item in result.items[loaded.items] {
            let place = ShardStore.Place(partitionSlot: slot, offset: item.offset)
            if isStale(place, of: load.device, storage) { continue }
            // Its record is still to be read, and before it others that are older.
            guard item.offset <= storage.readThrough[Int(slot)] else {
                isAllHere = false
                continue
            }
            if let waiting = first, item.offset > waiting {
                // Were it in memory, it could be sent before what is older.
                let before = storage.arrivals[load.device]?.skipped[slot] ?? .max
                storage.arrivals[load.device]?.skipped[slot] = min(before, item.offset)
                isAllHere = false
                continue
            }
            if item.offset == first {
                // It comes again, and the store has had it since before: it needs no place of its own.
                dropWaiting(place, load.device, storage)
                first = firstWaiting(load, through: last, storage)
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

    /// The offset of the first push of the load's partition, up to an offset, that waits for the device. There are such
    /// after a crash only: what the store has came before what is read.
    private func firstWaiting(_ load: ShardStore.Load, through last: Int64, _ storage: ShardStore) -> Int64? {
        guard let waiting = storage.arrivals[load.device]?.waiting else { return nil }
        for case .record(let incoming) in waiting
        where incoming.partitionSlot == load.partitionSlot && incoming.record.offset <= last {
            if isPush(incoming) { return incoming.record.offset }
        }
        return nil
    }

    private func isPush(_ incoming: IncomingRecord) -> Bool {
        switch try? decoder.decode(jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds) {
        case .push(let push)?:
            push.release()
            return true
        case .control(let control)?:
            control.release()
            return false
        case nil: return false
        }
    }

    /// A waiting record is complete, as the store has its item.
    private func dropWaiting(_ place: ShardStore.Place, _ device: DeviceKey, _ storage: ShardStore) {
        storage.arrivals[device]?.waiting.removeAll { event in
            guard case .record(let incoming) = event, incoming.partitionSlot == place.partitionSlot,
                incoming.record.offset == place.offset
            else { return false }
            complete(place.partitionSlot, place.offset, isRepeated: true)
            free(incoming.record)
            return true
        }
    }

    /// Takes an item back. False when there is no room for it.
    private func restore(
        _ item: LoadedItem, _ load: ShardStore.Load, _ bytes: UnsafeRawBufferPointer, _ storage: ShardStore
    ) -> Bool {
        let stored: StoredPush
        do throws(StoredPushError) {
            stored = try readItem(item, bytes)
        } catch {
            storage.counters.damaged += 1
            logger.critical(
                "an item of the store can't be read; it stays there",
                metadata: metadata(of: item, load, storage, error))
            return true
        }
        storage.counters.loaded += 1
        if let part = stored.unsendablePart {
            storage.counters.unsendable += 1
            logger.error(
                """
                an item of the store exceeds a limit of this version, which can't send it: it ends as undeliverable. Run the \
                version that wrote it, or see why its producer needs that
                """, metadata: metadata(of: item, load, storage, part.rawValue))
            refuse(stored, .notSendable, item, load, storage)
            return true
        }
        let push = stored.push
        let heldBytes = Job.heldBytes(of: bytes.count)
        guard
            let route = routes.route(
                of: push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            // The item's app isn't configured any more.
            refuse(stored, .noCredential, item, load, storage)
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
        // Records have the rest of the room, as the intake counts.
        guard storage.restored < ShardStore.room else {
            job.release()
            return false
        }
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

    /// Reads a push whose offset fits into an outcome's source.
    private func readItem(
        _ item: LoadedItem, _ bytes: UnsafeRawBufferPointer
    ) throws(StoredPushError) -> StoredPush {
        guard OutcomeSource.offsets.contains(item.offset) else { throw .invalid(.offset) }
        return try StoredPush.inOwnMemory(bytes)
    }

    private func metadata(
        of item: LoadedItem, _ load: ShardStore.Load, _ storage: ShardStore, _ problem: some Sendable
    ) -> Logger.Metadata {
        [
            "directory": "\(storage.store.directory)",
            "partition": "\(storage[load.partitionSlot].map { "\($0.handle.number)" } ?? "?")",
            "offset": "\(item.offset)", "problem": "\(problem)",
        ]
    }

    /// Ends an item that can't be sent.
    private func refuse(
        _ stored: StoredPush, _ cause: OutcomeCause, _ item: LoadedItem, _ load: ShardStore.Load,
        _ storage: ShardStore
    ) {
        var outcome = Outcome(
            .undeliverable, of: stored.push, sourceTopic: sourceTopic, partition: stored.partition,
            offset: item.offset, polledMilliseconds: stored.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.cause = cause
        outcome.attempts = stored.progress.attempts
        outcome.firstSentMilliseconds = stored.progress.firstSentMilliseconds
        storage.keyWriter.removeAll()
        ChangelogKey.item(offset: item.offset, deviceToken: stored.push.deviceToken)
            .encode(into: &storage.keyWriter)
        end(
            ShardStore.Place(partitionSlot: load.partitionSlot, offset: item.offset),
            storedUnder: load.device, due: item.due, of: load.device, storage)
        write(outcome, source: OutcomeSource(storedIn: load.partitionSlot, offset: item.offset))
        stored.push.release()
    }
}
