import APNS
import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// What the residency of devices asks for is done here.
extension Shard {
    // MARK: What has to wait

    /// Has a push wait whose device isn't in memory, or has others waiting. False when it may go on.
    func mustWait(_ push: PushJob, _ incoming: IncomingRecord) -> Bool {
        let look: PresenceLook =
            push.delivery == .accept ? .nowhere : .partition(incoming.partitionSlot)
        guard residency.mustDefer(incoming.device, look, machine) else { return false }
        residency.deferUntilLoaded(
            DeferredRecord(
                handle: waiting.keep(.record(incoming)), device: incoming.device, place: incoming.place,
                look: look, isPush: true), machine)
        askForTurnEnd()
        return true
    }

    /// The same of a cancel or device event, which may need the device of the new token as well.
    func mustWait(_ control: ControlJob, _ incoming: IncomingRecord) -> Bool {
        var record = DeferredRecord(
            device: incoming.device, place: incoming.place,
            look: control.detail.concernsPresence ? .partition(incoming.partitionSlot) : .nowhere,
            isPush: false)
        if case .online = control.detail { record.isReturn = true }
        record.otherDevice = otherDevice(of: control, incoming)
        guard residency.mustDefer(record, machine) else { return false }
        record.handle = waiting.keep(.record(incoming))
        residency.deferUntilLoaded(record, machine)
        askForTurnEnd()
        return true
    }

    /// The device of the new token of a token change, where it is another and this shard's.
    private func otherDevice(of control: ControlJob, _ incoming: IncomingRecord) -> DeviceKey? {
        guard case .tokenChanged(let token) = control.detail else { return nil }
        let other = plan.hasher.device(token)
        return other != incoming.device && shardIndex(of: other, shards: plan.shards) == plan.index
            ? other : nil
    }

    /// The delivery machine has no slot for a push.
    func waitForSlot(_ push: PushJob, _ incoming: IncomingRecord) {
        residency.deferUntilSlot(
            DeferredRecord(
                handle: waiting.keep(.record(incoming)), device: incoming.device, place: incoming.place,
                look: push.delivery == .accept ? .nowhere : .partition(incoming.partitionSlot), isPush: true))
        askForTurnEnd()
    }

    /// Items of a partition are due, all of whose records up to `readThrough` have been handed to the shards. `taken` is
    /// called when more may come.
    func due(
        _ partitionSlot: UInt16, _ keys: [ItemKey], readThrough: Int64, taken: @escaping @Sendable () -> Void
    ) {
        guard let storage, !hasEnded else { return taken() }
        // Older records first, of which an item could be the newer.
        repeat { takeRecords() } while ring.count > 0
        residency.hasRead(partitionSlot, through: readThrough)
        for key in keys { residency.due(key.device, partitionSlot) }
        storage.callWhenShort(taken)
        askForTurnEnd()
    }

    /// Presences of these devices have expired. `taken` is called when more may come.
    func expired(_ partitionSlot: UInt16, _ devices: [DeviceKey], taken: @escaping @Sendable () -> Void) {
        guard let storage, !hasEnded else { return taken() }
        for device in devices { residency.expired(device, partitionSlot) }
        storage.callWhenShort(taken)
        askForTurnEnd()
    }

    /// The devices of these items have something in the store, as far as is known.
    func found(_ partitionSlot: UInt16, _ keys: [ItemKey]) {
        for key in keys where shardIndex(of: key.device, shards: plan.shards) == plan.index {
            residency.found(key.device, offset: key.offset, partitionSlot)
        }
    }

    /// Items of these devices were on their way out.
    func awaited(_ partitionSlot: UInt16, _ devices: [DeviceKey]) {
        for device in devices where shardIndex(of: device, shards: plan.shards) == plan.index {
            residency.awaited(device, partitionSlot)
        }
    }

    // MARK: Actions

    /// Does all that the residency has to say.
    func follow() {
        guard !isFollowing else { return }
        isFollowing = true
        while let action = residency.nextAction(machine) { perform(action) }
        isFollowing = false
        for handle in residency.takeChangesGivenBack() { giveBackChange(handle) }
    }

    private func perform(_ action: ResidencyAction) {
        switch action {
        case .takeIn(let handle): if let incoming = takeRecord(handle) { take(incoming) }
        case .proceed(let handle): if let incoming = takeRecord(handle) { take(incoming, isLoaded: true) }
        case .refuse(let handle): if let incoming = takeRecord(handle) { refuse(incoming) }
        case .takeOver(let handle): if let departure = takeDeparture(handle) { takeOver(departure) }
        case .leaveInStore(let handle):
            if let departure = takeDeparture(handle) { leaveOut(departure.job) }
        case .letGo(let handle): letGo(handle)
        case .load(let device, let slot, let withItems):
            guard let storage, let handle = storage.handle(slot) else { return }
            storage.write { $0.load(handle, device, withItems: withItems) }
            storage.counters.loads += 1
        case .removeMark(let place): removeMark(place)
        case .removed(let place, let device):
            _ = storage?.takeChangelogKey(of: EndedItem(device: device.low, place: place))
            news.removed.append(
                ShardProgress.Removal(
                    place: RecordPlace(partitionSlot: place.partitionSlot, offset: place.recordOffset),
                    device: device))
        }
    }

    private func takeRecord(_ handle: UInt32) -> IncomingRecord? {
        if case .record(let incoming)? = waiting.take(handle) { incoming } else { nil }
    }

    private func takeDeparture(_ handle: UInt32) -> Departure? {
        if case .departure(let departure)? = waiting.take(handle) { departure } else { nil }
    }

    /// An event that has waited is of a partition that goes away.
    func letGo(_ handle: UInt32) {
        counters.abandoned += 1
        switch waiting.take(handle) {
        case .record(let incoming)?:
            // Also one that is read once more: the intake counts it.
            giveBack(incoming.partitionSlot)
            free(incoming.record)
        case .departure(let departure)?:
            if !departure.job.isOffsetDone { giveBack(departure.job.partitionSlot) }
            free(departure.job)
        case .change(let incoming, _)?:
            giveBack(incoming.partitionSlot)
            free(incoming.record)
        case nil: break
        }
    }

    /// Ends a push whose device has more items than there is room for.
    private func refuse(_ incoming: IncomingRecord) {
        guard
            case .push(let push)? = try? decoder.decode(
                jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
        else { return take(incoming, isLoaded: true) }
        guard !isDone(push, incoming) else { return }
        refuse(
            push, incoming.record,
            OutcomeSource(record: incoming.record, partitionSlot: incoming.partitionSlot), .undeliverable,
            cause: .deviceLimit)
    }

    // MARK: Loads

    /// Asks for as many of the devices in line as may come now.
    func askForLoads(_ storage: ShardStore) {
        follow()
        let mayBeMore = residency.askForLoads(at: loop.now.nanoseconds, machine)
        follow()
        if residency.isLineShort { storage.lineIsShort() }
        // What has gone on is sent, and the next ones follow, when others have had their turn.
        if mayBeMore { wakeup.signal() }
    }

    /// What one load has brought.
    func take(_ load: RequestedLoad, _ loaded: LoadedDevice, _ result: BatchResult, _ storage: ShardStore) {
        let items = result.items[loaded.items]
        if residency.beginLoad(load, last: items.last?.offset) {
            restore(loaded, load, result, storage)
            for item in items {
                let verdict = residency.judge(offset: item.offset, machine)
                if let handle = verdict.completes, let incoming = takeRecord(handle) {
                    complete(load.partitionSlot, item.offset, isRepeated: true)
                    free(incoming.record)
                }
                if let place = verdict.restore { restore(item, place, load, result.push(item), storage) }
            }
        }
        residency.endLoad()
        follow()
    }

    private func restore(
        _ loaded: LoadedDevice, _ load: RequestedLoad, _ result: BatchResult, _ storage: ShardStore
    ) {
        guard let state = loaded.state, let presence = Presence(rawValue: state.presence) else { return }
        let isValid = machine.restore(
            KnownPresence(
                device: load.device, presence: presence,
                learned: ReportTime(milliseconds: state.learnedMilliseconds, offset: state.learnedOffset),
                partition: load.partitionSlot, expiryMilliseconds: state.expiryMilliseconds), at: now)
        guard isValid else { return forgetPresence(load, token: result.token(loaded), storage) }
        act()
    }

    /// Takes an item back.
    private func restore(
        _ item: LoadedItem, _ place: RecordPlace, _ load: RequestedLoad, _ bytes: UnsafeRawBufferPointer,
        _ storage: ShardStore
    ) {
        let stored: StoredPush
        do throws(StoredPushError) {
            stored = try readItem(item, bytes)
        } catch {
            storage.counters.damaged += 1
            logger.critical(
                "an item of the store can't be read; it stays there",
                metadata: metadata(of: item, load, storage, error))
            return
        }
        storage.counters.loaded += 1
        if let part = stored.unsendablePart {
            storage.counters.unsendable += 1
            logger.error(
                """
                an item of the store exceeds a limit of this version, which can't send it: it ends as undeliverable. Run the \
                version that wrote it, or see why its producer needs that
                """, metadata: metadata(of: item, load, storage, part.rawValue))
            return refuse(stored, .notSendable, item, place, load, storage)
        }
        let push = stored.push
        guard
            let route = routes.route(
                of: push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            // The item's app isn't configured any more.
            return refuse(stored, .noCredential, item, place, load, storage)
        }
        var job = Job(
            push: push, record: nil, topic: route.topic, polledMilliseconds: stored.polledMilliseconds,
            partition: stored.partition, offset: item.offset, heldBytes: Job.heldBytes(of: bytes.count),
            lane: route.lane, app: route.app, partitionSlot: load.partitionSlot, device: load.device)
        job.isOfEarlierLog = place.isOfEarlierLog
        job.isOffsetDone = true
        job.isRestored = true
        freedBytes -= job.heldBytes
        let progress = ItemProgress(stored.progress, due: item.due)
        var facts = facts(of: job, route)
        facts.coalesceWindowMilliseconds = 0
        let admission = machine.restore(facts, progress, at: now)
        guard admission != .full else {
            loop.schedule(
                at: MonotonicTime(nanoseconds: residency.foundNoSlot(at: loop.now.nanoseconds)),
                handler: storage)
            return free(job)
        }
        settle(job, admission, progress, ResidentFacts(restoredFrom: load.device, due: item.due))
    }

    /// Reads a push whose offset fits into an outcome's source.
    private func readItem(
        _ item: LoadedItem, _ bytes: UnsafeRawBufferPointer
    ) throws(StoredPushError) -> StoredPush {
        guard OutcomeSource.offsets.contains(item.offset) else { throw .invalid(.offset) }
        return try StoredPush.inOwnMemory(bytes)
    }

    private func metadata(
        of item: LoadedItem, _ load: RequestedLoad, _ storage: ShardStore, _ problem: some Sendable
    ) -> Logger.Metadata {
        [
            "directory": "\(storage.store.directory)",
            "partition": "\(storage.handle(load.partitionSlot).map { "\($0.number)" } ?? "?")",
            "offset": "\(item.offset)", "problem": "\(problem)",
        ]
    }

    /// Ends an item that can't be sent.
    private func refuse(
        _ stored: StoredPush, _ cause: OutcomeCause, _ item: LoadedItem, _ place: RecordPlace,
        _ load: RequestedLoad, _ storage: ShardStore
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
        let facts = ResidentFacts(restoredFrom: load.device, due: item.due)
        if residency.ends(place, facts, load.device) != nil {
            end(EndedItem(device: load.device.low, place: place), storage)
        }
        write(outcome, source: OutcomeSource(storedIn: load.partitionSlot, offset: item.offset))
        stored.push.release()
    }
}

extension IncomingRecord {
    var place: RecordPlace { RecordPlace(partitionSlot: partitionSlot, offset: record.offset) }
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
