import APNS
import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel
import StoreEncryption

/// Carries out the machine's requests to the store, and reports the store's answers.
extension Shard {
    // MARK: Partitions

    /// Begins a partition under a slot that an earlier partition may have had. All records up to `readThrough` have
    /// been read.
    /// - Parameter earlierFrom: the store's items above `readThrough`, from this offset on, belong to an earlier log of
    ///   the topic.
    func beginPartition(
        _ slot: UInt16, _ handle: StorePartition, readThrough: Int64, earlierFrom: Int64,
        _ committed: CommittedOffset, _ marks: [RelocationMark]
    ) {
        guard let storage else { return }
        outcomes.begin(partitionSlot: slot)
        storage.beginPartition(slot, handle, committed)
        machine.beginPartition(
            slot, partition: handle.number, readThrough: readThrough, earlierFrom: earlierFrom,
            committed: committed.offset, marks: marks.map { (offset: $0.offset, id: $0.apnsID) })
        wallMilliseconds = wallClockMilliseconds()
        follow()
        askForTurnEnd()
    }

    /// Notes devices that have items in the store, as far as is known.
    func found(_ slot: UInt16, _ keys: [ItemKey]) {
        for key in keys { machine.found(key.device, offset: key.offset, slot) }
    }

    /// Notes devices whose items were on their way out.
    func awaited(_ slot: UInt16, _ devices: [DeviceKey]) {
        for device in devices { machine.awaited(device, slot) }
    }

    /// Ends a partition's scan: `found` has reported all that the store has of the partition.
    func scanned(_ slot: UInt16) {
        machine.scanned(slot)
        askForTurnEnd()
    }

    // MARK: Puts

    /// Writes an item under its present token.
    func write(_ slot: UInt32, _ writing: ItemWriting) {
        let partitionSlot = writing.place.partitionSlot
        guard let storage, let handle = storage.handle(partitionSlot) else { return }
        let job = jobs[slot]
        let key = ItemKey(device: writing.device, offset: job.pointee.offset)
        let (due, write) = (writing.progress.dueMilliseconds, writing.write)
        let stored = StoredPush(
            push: job.pointee.push, progress: StoredPush.Progress(writing.progress),
            partition: job.pointee.partition,
            offset: key.offset, polledMilliseconds: job.pointee.polledMilliseconds)
        // Encoded first: after a failure no part of the change is in the batch or the changelog.
        var value: (changelog: UnsafeRawBufferPointer, push: UnsafeRawBufferPointer)?
        if outcomes.hasChangelog || storage.sealing != nil {
            do throws(CipherFailure) {
                value = try storage.value(of: stored, due: due)
            } catch {
                return cannotSeal(error)
            }
        }
        var oldKey: [UInt8]?
        if let left = write.leaves {
            storage.leave(handle, ItemKey(device: left.device, offset: key.offset), due: left.due)
            if outcomes.hasChangelog {
                oldKey = Array(storage.key { job.pointee.writeChangelogKey(to: &$0) })
            }
        }
        job.pointee.forgetStoredToken()
        if let value {
            if outcomes.hasChangelog {
                change(
                    partitionSlot, handle, storage.key { job.pointee.writeChangelogKey(to: &$0) },
                    value.changelog)
            }
            storage.put(handle, key, due: due, replacingDue: write.replacesDue, value: value.push)
        } else {
            storage.put(handle, key, due: due, replacingDue: write.replacesDue, stored)
        }
        if write.marks {
            mark(
                RelocationMark(offset: key.offset, apnsID: job.pointee.push.apnsID), partitionSlot, handle,
                storage
            )
        }
        // Last, because without transactions a crash may happen in between. The item is then there twice rather than
        // lost.
        oldKey?.withUnsafeBytes { change(partitionSlot, handle, $0, nil) }
        askForTurnEnd()
    }

    /// Ends the worker at once, because a value can't be encrypted. The machine counts on the change already, so the
    /// store gets no further batch, and nothing is committed after the report.
    private func cannotSeal(_ failure: CipherFailure) {
        storage?.loseChange()
        report(.lostChange("a value of the store can't be encrypted: \(failure)"))
    }

    /// Uses other keys of the store from now on. Loop's thread.
    func use(_ keyring: StoreKeyring) {
        do throws(CipherFailure) {
            try storage?.use(keyring)
        } catch {
            port.fail("the store's keys can't be used: \(error)")
        }
    }

    /// Writes the store's present value of a key to the changelog; a nil value records the key's removal.
    private func change(
        _ slot: UInt16, _ handle: StorePartition, _ key: UnsafeRawBufferPointer,
        _ value: UnsafeRawBufferPointer?
    ) {
        outcomes.change(
            handle.number, key: key, value: value, opaque: ChangeSource(machine.changeEpoch).opaque,
            partitionSlot: slot)
        machine.changed()
    }

    // MARK: Marks

    /// Marks an item that the store has under another token than its record names. A worker that reads the record again
    /// needs the mark. Transactions need marks as well, because the item's offset may be committed later than the move.
    private func mark(
        _ mark: RelocationMark, _ slot: UInt16, _ handle: StorePartition, _ storage: ShardStore
    ) {
        storage.put(handle, mark)
        guard outcomes.hasChangelog else { return }
        let value = storage.value { ChangelogKey.encode(mark, into: &$0) }
        let key = storage.key { ChangelogKey.mark(offset: mark.offset).encode(into: &$0) }
        change(slot, handle, key, value)
    }

    func removeMark(_ place: RecordPlace) {
        guard let storage, let handle = storage.handle(place.partitionSlot) else { return }
        storage.removeMark(handle, offset: place.offset)
        guard outcomes.hasChangelog else { return }
        let key = storage.key { ChangelogKey.mark(offset: place.offset).encode(into: &$0) }
        change(place.partitionSlot, handle, key, nil)
    }

    // MARK: Presences

    /// - Parameter item: the slot of a push of the device; ``DeliveryMachine/noSlot`` when the device has no push here.
    func keepPresence(_ known: KnownPresence, in slot: UInt16, _ item: UInt32, _ context: ActionContext) {
        guard let storage, let handle = storage.handle(slot) else { return }
        let state = DeviceState(
            presence: known.presence.rawValue, isAwaited: known.isAwaited,
            learnedMilliseconds: known.learned.milliseconds, learnedOffset: known.learned.offset,
            expiryMilliseconds: known.expiryMilliseconds)
        askForTurnEnd()
        guard outcomes.hasChangelog, let token = token(of: known.device, item, context) else {
            return storage.put(handle, known.device, state)
        }
        do throws(CipherFailure) {
            try storage.put(handle, known.device, state, token: token)
        } catch {
            return cannotSeal(error)
        }
        let key = storage.key { ChangelogKey.device(deviceToken: token).encode(into: &$0) }
        change(slot, handle, key, storage.value { ChangelogKey.encode(state, into: &$0) })
    }

    /// Returns the token of a presence's device; nil when the token isn't known. Presences follow from device events,
    /// from items without receipts, and from items that move to a device. An event can move several items, and an item
    /// not moved yet still has the old token.
    private func token(
        of device: DeviceKey, _ item: UInt32, _ context: ActionContext
    ) -> UnsafeRawBufferPointer? {
        if let new = context.newToken {
            if plan.hasher.device(new) == device { return new }
        } else if let token = context.deviceToken {
            return token
        }
        return item == DeliveryMachine.noSlot ? nil : jobs[item].pointee.push.deviceToken
    }

    /// Removes an expired presence from the store and the changelog.
    private func forgetPresence(
        _ load: RequestedLoad, token: UnsafeRawBufferPointer, _ storage: ShardStore
    ) {
        forgetPresence(of: load.device, token: token, in: load.partitionSlot)
    }

    /// Removes a presence from the store and the changelog.
    /// - Parameter token: token of the device; empty when the store doesn't know the token.
    func forgetPresence(of device: DeviceKey, token: UnsafeRawBufferPointer, in slot: UInt16) {
        guard let storage, let handle = storage.handle(slot) else { return }
        storage.forget(handle, device)
        askForTurnEnd()
        guard outcomes.hasChangelog, !token.isEmpty else { return }
        let key = storage.key { ChangelogKey.device(deviceToken: token).encode(into: &$0) }
        change(slot, handle, key, nil)
    }

    /// Removes the presence of a device whose data is erased, and has the partition purged if its files can have bytes
    /// of the device.
    ///
    /// Items of the device that ended earlier left bytes too. Their records, and so the bytes, are in the partition of
    /// the event, which has the same key.
    /// - Parameter eventSlot: slot of the event's partition.
    func erasePresence(
        of device: DeviceKey, token: UnsafeRawBufferPointer, in slot: UInt16, _ eventSlot: UInt16?
    ) {
        guard let storage, let handle = storage.handle(slot) else { return }
        forgetPresence(of: device, token: token, in: slot)
        if slot == eventSlot {
            notePurge(slot, handle, storage)
        } else {
            storage.notePurge(handle, ifHas: device)
        }
    }

    /// Has a partition purged, here and in copies that are restored from the changelog.
    private func notePurge(_ slot: UInt16, _ handle: StorePartition, _ storage: ShardStore) {
        storage.notePurge(handle)
        guard outcomes.hasChangelog else { return }
        let value = storage.value {
            ChangelogKey.encode(erasedMilliseconds: wallClockMilliseconds(), into: &$0)
        }
        change(slot, handle, storage.key { ChangelogKey.erasure.encode(into: &$0) }, value)
    }

    // MARK: Ends

    /// Removes an ended item's changelog key, or keeps the key until the item is removed.
    func remove(_ removal: OutcomeFacts.Removal, _ slot: UInt16, _ writeKey: (inout ByteWriter) -> Void) {
        guard let storage else { return }
        switch removal {
        case .none: break
        case .now:
            // The same transaction has the removal and the outcome.
            if let handle = storage.handle(slot) { change(slot, handle, storage.key(writeKey), nil) }
        case .later(let item): storage.keepChangelogKey(of: item, storage.key(writeKey))
        }
    }

    /// Removes an item whose outcome is safe.
    func remove(_ item: EndedItem, _ key: StoredKey) {
        let slot = item.place.partitionSlot
        guard let storage, let handle = storage.handle(slot) else { return }
        storage.remove(handle, ItemKey(device: key.device, offset: item.place.recordOffset), due: key.due)
        storage.takeChangelogKey(of: item)?.withUnsafeBytes { change(slot, handle, $0, nil) }
        if storage.isErased(key.device, at: wallMilliseconds) { notePurge(slot, handle, storage) }
    }

    // MARK: Batches

    /// Submits the requests that a turn has gathered to the store, and reports progress to the intake.
    func submitToStore() {
        finishChanges()
        follow()
        if let storage {
            machine.forgetMarks(at: loop.now.nanoseconds) { storage.forEachCommitted($0) }
            follow()
            let mayBeMore = machine.askForLoads(at: loop.now.nanoseconds)
            follow()
            // Pushes that went on are sent first. The next loads follow after others have had their turn.
            if mayBeMore { wakeup.signal() }
        }
        for ready in machine.takeReports() { report(ready) }
        if let news = machine.takeProgress(holdsBack: outcomes.writesForNext) { report(.progress(news)) }
        if let storage { submitBatch(storage) }
    }

    private func submitBatch(_ storage: ShardStore) {
        guard storage.hasBatch else { return }
        let requests = ShardStore.Requests(
            residency: machine.takeRequests(), migrations: storage.takeMigrations())
        let (peers, shards) = (peers, plan.shards)
        storage.store.submit(storage.takeBatch()) { [self] result in
            // Runs on the store's thread, so another shard learns of an item before its own load can find the item.
            // That shard's requests for the item follow the requests made here.
            for migration in requests.migrations {
                peers.handOver(
                    migration, to: shardIndex(of: migration.item.facts.device, shards: shards))
            }
            loop.execute { [self] in batchEnded(requests.residency, result) }
        }
    }

    /// Handles a batch's result. After an error the batch will never be done, and the worker ends.
    private func batchEnded(_ requests: StoreRequests, _ result: BatchResult) {
        guard let storage, !machine.hasEnded, result.error == nil else { return }
        wallMilliseconds = wallClockMilliseconds()
        machine.done(requests, at: now)
        act()
        follow()
        for (load, loaded) in zip(requests.loads, result.loads) { restore(load, loaded, result, storage) }
        askForTurnEnd()
    }

    // MARK: Loads

    /// Restores the items and the presence that one load has found.
    private func restore(
        _ load: RequestedLoad, _ loaded: LoadedDevice, _ result: BatchResult, _ storage: ShardStore
    ) {
        let items = result.items[loaded.items]
        if machine.beginLoad(load, last: items.last?.offset) {
            restore(loaded, load, result, storage)
            for item in items {
                let verdict = machine.judge(offset: item.offset, load)
                if let handle = verdict.completes, let incoming = waiting.takeRecord(handle) {
                    free(incoming)
                }
                if let place = verdict.restore {
                    restore(item, of: loaded, place, load, result.push(item), storage)
                }
            }
        }
        machine.endLoad()
        follow()
    }

    private func restore(
        _ loaded: LoadedDevice, _ load: RequestedLoad, _ result: BatchResult, _ storage: ShardStore
    ) {
        guard let state = loaded.state, let presence = Presence(rawValue: state.presence) else { return }
        let known = KnownPresence(
            device: load.device, presence: presence,
            learned: ReportTime(milliseconds: state.learnedMilliseconds, offset: state.learnedOffset),
            partition: load.partitionSlot, expiryMilliseconds: state.expiryMilliseconds)
        if machine.restore(known, load, at: now) {
            do throws(SealedValueError) {
                forgetPresence(load, token: try storage.token(of: loaded, in: result), storage)
            } catch {
                storage.count(.undecryptable)
                notices.log(
                    .critical, .stateUndecryptable, of: Int(loaded.partition),
                    "the token of an expired device state can't be decrypted; the state stays in the store",
                    metadata: [
                        "directory": "\(storage.store.directory)", "partition": "\(loaded.partition)",
                        "problem": "\(error)",
                    ])
            }
        }
        act()
    }

    /// Restores an item to memory.
    private func restore(
        _ item: LoadedItem, of device: LoadedDevice, _ place: RecordPlace, _ load: RequestedLoad,
        _ bytes: UnsafeRawBufferPointer, _ storage: ShardStore
    ) {
        let plain: UnsafeRawBufferPointer
        do throws(SealedValueError) {
            plain = try storage.plain(bytes, at: .item(partition: device.partition, offset: item.offset))
        } catch {
            storage.count(.undecryptable)
            notices.log(
                .critical, .itemUndecryptable, of: Int(device.partition),
                "an item of the store can't be decrypted; it stays in the store",
                metadata: metadata(of: item, load, storage, error))
            return
        }
        let stored: StoredPush
        do throws(StoredPushError) {
            stored = try readItem(item, plain)
        } catch {
            storage.count(.damaged)
            notices.log(
                .critical, .itemUnreadable, of: Int(device.partition),
                "an item of the store can't be read; it stays in the store",
                metadata: metadata(of: item, load, storage, error))
            return
        }
        storage.count(.loaded)
        if let part = stored.unsendablePart {
            storage.count(.unsendable)
            notices.log(
                .error, .itemUnsendable, of: Int(device.partition),
                """
                an item of the store exceeds a limit of this version and ends as undeliverable; run the version that wrote \
                the item, or check why its producer exceeds the limit
                """,
                metadata: metadata(of: item, load, storage, part.rawValue, trace: stored.push.passedHeaders))
            return refuse(stored, .notSendable, item, place, load)
        }
        let push = stored.push
        guard
            let route = route(of: push)
        else {
            // The item's app is no longer configured.
            return refuse(stored, .noCredential, item, place, load)
        }
        let job = Job(
            push: push, record: nil, target: route.target, polledMilliseconds: stored.polledMilliseconds,
            partition: stored.partition, offset: item.offset, heldBytes: Job.heldBytes(of: plain.count),
            pool: route.pool, app: route.app)
        freedBytes -= job.heldBytes
        let settlement = machine.restore(
            facts(of: job, route, load.device, place), place, ItemProgress(stored.progress, due: item.due),
            at: now)
        settle(job, settlement)
    }

    /// Returns a push whose offset fits into an outcome's source.
    private func readItem(
        _ item: LoadedItem, _ bytes: UnsafeRawBufferPointer
    ) throws(StoredPushError) -> StoredPush {
        guard OutcomeSource.offsets.contains(item.offset) else { throw .invalid(.offset) }
        return try StoredPush.inOwnMemory(bytes)
    }

    private func metadata(
        of item: LoadedItem, _ load: RequestedLoad, _ storage: ShardStore, _ problem: some Sendable,
        trace headers: PassedHeaders = .none
    ) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "directory": "\(storage.store.directory)",
            "partition": "\(storage.handle(load.partitionSlot).map { "\($0.number)" } ?? "?")",
            "offset": "\(item.offset)", "problem": "\(problem)",
        ]
        if let trace = TraceIdentifier.text(of: headers) { metadata["trace"] = "\(trace)" }
        return metadata
    }

    /// Ends an item that can't be sent.
    private func refuse(
        _ stored: StoredPush, _ cause: OutcomeCause, _ item: LoadedItem, _ place: RecordPlace,
        _ load: RequestedLoad
    ) {
        let progress = ItemProgress(stored.progress, due: item.due)
        let facts = machine.refuseRestored(place, load, progress)
        var outcome = Outcome(
            .undeliverable, of: stored.push, sourceTopic: sourceTopic, partition: stored.partition,
            offset: item.offset, polledMilliseconds: stored.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.cause = cause
        outcome.attempts = stored.progress.attempts
        outcome.firstSentMilliseconds = stored.progress.firstSentMilliseconds
        remove(facts.removal, load.partitionSlot) {
            ChangelogKey.item(offset: item.offset, deviceToken: stored.push.deviceToken).encode(into: &$0)
        }
        write(outcome, source: OutcomeSource(facts), app: route(of: stored.push)?.app)
        stored.push.release()
    }
}
