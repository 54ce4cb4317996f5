import DeliveryCore
import EventLoop
import Logging
import RetryStore
import SluiceModel

/// Carries out the machine's requests to the store and to the changelog.
extension Intake {
    // MARK: Taking over

    func perform(_ action: PartitionRestore.Action) {
        switch action {
        case .open(let attempt): open(attempt)
        case .openCopies(let attempts): openCopies(attempts)
        case .restore(let attempts):
            let starts = parts.begin(attempts)
            restorer?.restore(starts)
        case .cancel(let partitions):
            parts.cancelRestores(partitions)
            restorer?.cancel(partitions)
        case .loadMarks(let attempt): loadMarks(attempt)
        }
    }

    private func open(_ attempt: PartitionRestore.Attempt) {
        store?.open(partition: attempt.partition) { [self] result in
            loop.execute { [self] in
                let handle = try? result.get()
                if let handle { parts.keep(handle) }
                apply { machine, now in machine.opened(attempt, isOpen: handle != nil, at: now) }
            }
        }
    }

    private func openCopies(_ attempts: [PartitionRestore.Attempt]) {
        let now = wallClockMilliseconds()
        // Files of an earlier copy are removed with the copy's last handle.
        for attempt in attempts { parts.forget(attempt.partition) }
        store?.openCopies(
            partitions: attempts.map(\.partition), reachedAfter: now - settings.longestAbsence,
            notAfter: now + RestoreLimits.clockTolerance
        ) { [self] result in
            loop.execute { [self] in
                let copies = try? result.get()
                for copy in copies ?? [] {
                    parts.keep(copy)
                    log(copy)
                }
                apply { machine, now in machine.openedCopies(attempts, isOpen: copies != nil, at: now) }
            }
        }
    }

    private func log(_ copy: RestorablePartition) {
        guard let position = copy.position else { return }
        logger.info(
            "restore continues from the local copy",
            metadata: ["partition": "\(copy.handle.number)", "position": "\(position.offset)"])
    }

    private func loadMarks(_ attempt: PartitionRestore.Attempt) {
        guard let store, let handle = parts.handle(of: attempt.partition) else {
            return apply { machine, now in machine.loadedMarks(attempt, isLoaded: false, at: now) }
        }
        store.loadMarks(of: handle) { [self] result in
            loop.execute { [self] in
                let marks = try? result.get()
                if let marks, parts.handle(of: attempt.partition) === handle {
                    parts.keep(marks, of: attempt.partition)
                }
                apply { machine, now in machine.loadedMarks(attempt, isLoaded: marks != nil, at: now) }
            }
        }
    }

    /// Handles a report of the restorer.
    func receive(_ news: ChangelogRestorer.Report) {
        switch news {
        case .restored(let handle, let position):
            guard let attempt = parts.restoreEnded(handle.number, handle) else { return }
            logger.info(
                "partition restored", metadata: ["partition": "\(handle.number)", "position": "\(position)"])
            apply { machine, now in machine.restored(attempt, position: position, at: now) }
        case .outOfRange(let partition):
            guard let attempt = parts.restoreEnded(partition) else { return }
            apply { machine, now in machine.copyTooOld(attempt, at: now) }
        case .interrupted(let partition, let error):
            guard let attempt = parts.restoreEnded(partition) else { return }
            apply { machine, now in machine.restoreInterrupted(attempt, KafkaFault(error), at: now) }
        case .troubled(let error, let place):
            apply { machine, _ in machine.kafkaFailed() }
            notices.log(
                .warning, .restoreTroubled,
                "restore from the changelog failed; retrying",
                metadata: ["at": "\(place)", "error": "\(error)"])
        case .failed(let text, let error):
            apply { machine, _ in machine.kafkaFailed() }
            fail(.other(text), error)
        }
    }

    // MARK: Looks

    /// Reports to the shards the devices that the store has items of. Until the shards know, they send nothing that
    /// concerns a device.
    func scanItems(_ slot: UInt16, _ partition: Int32) {
        guard let store, let handle = parts.handle(of: partition) else { return }
        let shards = shards
        store.scanAwaitedDevices(handle, chunk: 4096) { devices in
            for shard in shards { shard.loop.execute { shard.awaited(slot, devices) } }
        } completion: { [self] error in
            if let error { return scanFailed(slot, error) }
            store.scanItems(handle, chunk: 4096) { keys in
                for shard in shards { shard.loop.execute { shard.found(slot, keys) } }
            } completion: { [self] error in
                if let error { return scanFailed(slot, error) }
                for shard in shards { shard.loop.execute { shard.scanned(slot) } }
            }
        }
    }

    private func scanFailed(_ slot: UInt16, _ error: RetryStoreError) {
        // Errors that aren't transient were reported to all.
        guard error.isTransient else { return }
        loop.execute { [self] in
            notices.log(
                .error, .scanFailed,
                "the store can't be scanned; nothing is sent until a scan succeeds",
                metadata: ["error": "\(error)"])
            apply { machine, _ in machine.scanFailed(slot: slot) }
        }
    }

    func scanDue(_ look: DueSchedule.Look, _ partition: Int32) {
        guard let store, let handle = parts.handle(of: partition) else {
            return apply { machine, now in machine.found(look.slot, nil, isEnd: true, at: now) }
        }
        let cursor = look.after.map { DueCursor(DueEntry($0)) }
        store.scanDue(handle, after: cursor, through: look.through, limit: DueSchedule.mostEntries) {
            [self] result in
            loop.execute { [self] in
                let scan = try? result.get()
                let items = scan?.entries.map { DueItem($0) }
                apply { machine, now in
                    machine.found(look.slot, items, isEnd: scan?.isEnd ?? true, at: now)
                }
            }
        }
    }

    func scanSuspended(_ look: SuspendedSchedule.Look, _ partition: Int32) {
        guard let store, let handle = parts.handle(of: partition) else {
            return apply { machine, now in
                machine.foundSuspended(look, nil, cursor: nil, isEnd: true, at: now)
            }
        }
        let cursor = look.after.map { DueCursor(DueEntry($0)) }
        store.scanSuspended(
            handle, topic: look.topic, without: look.stopped, after: cursor, limit: look.limit
        ) { [self] result in
            loop.execute { [self] in
                let scan = try? result.get()
                let items = scan?.entries.map {
                    SuspendedSchedule.Entry(item: DueItem($0.entry), topic: $0.topic)
                }
                apply { machine, now in
                    machine.foundSuspended(
                        look, items, cursor: scan?.cursor.map { DueItem($0.entry) },
                        isEnd: scan?.isEnd ?? true, at: now)
                }
            }
        }
    }

    func scanExpired(_ look: ExpirySchedule.Look, _ partition: Int32) {
        guard let store, let handle = parts.handle(of: partition) else {
            return apply { machine, now in
                machine.foundExpired(look, nil, last: nil, isEnd: true, at: now)
            }
        }
        store.scanExpired(
            handle, after: look.after, through: look.through, limit: ExpirySchedule.mostDevices
        ) { [self] result in
            loop.execute { [self] in
                let scan = try? result.get()
                if let count = scan?.unreadable, count > 0 {
                    logger.warning(
                        "states of devices that can't be read are removed from the store",
                        metadata: ["partition": "\(partition)", "devices": "\(count)"])
                }
                apply { machine, now in
                    machine.foundExpired(
                        look, scan?.devices, last: scan?.last, isEnd: scan?.isEnd ?? true, at: now)
                }
            }
        }
    }

    // MARK: Durability

    func sync() {
        store?.sync { [self] error in
            loop.execute { [self] in
                if let error {
                    if case .corrupt = error {
                        fail(.other("\(error)"))
                    } else {
                        notices.log(
                            .error, .syncFailed,
                            "the store can't be synced; offsets are not committed until a sync succeeds",
                            metadata: ["error": "\(error)"])
                    }
                }
                apply { machine, now in machine.synced(isDone: error == nil, at: now) }
            }
        }
    }

    /// Writes a checkpoint, which is durable when the store is closed at the latest.
    func checkpoint(_ partition: Int32, _ offset: Int64) {
        guard let store, let handle = parts.handle(of: partition) else { return }
        let position = ChangelogCheckpoint(offset: offset, reachedMilliseconds: wallClockMilliseconds())
        store.checkpoint(handle, position: position) { [logger] result in
            guard case .failure(let error) = result else { return }
            logger.warning(
                "the local copy can't be kept; the partition will be restored from the beginning of the changelog",
                metadata: ["partition": "\(partition)", "error": "\(error)"])
        }
    }

    /// Drops the store's copies that no partition will be restored from.
    func dropCopies(except kept: Set<Int32>) {
        guard let store else { return }
        parts.forgetAll(except: kept)
        store.dropCopies(
            except: kept, at: wallClockMilliseconds(), longestAbsence: settings.longestAbsence,
            atMost: RestoreLimits.mostDroppedAtOnce
        ) { [self] result in
            loop.execute { [self] in
                switch result {
                case .success(let dropped):
                    if !dropped.partitions.isEmpty {
                        logger.info(
                            "old local copies dropped",
                            metadata: [
                                "partitions":
                                    "\(dropped.partitions.map { "\($0)" }.joined(separator: ","))"
                            ])
                    }
                case .failure(let error):
                    notices.log(
                        .warning, .copiesNotDropped,
                        "old local copies can't be dropped; retrying",
                        metadata: ["error": "\(error)"])
                }
                let areMore = (try? result.get())?.areMore
                apply { machine, now in machine.droppedCopies(areMore: areMore, at: now) }
            }
        }
    }
}

extension DueItem {
    init(_ entry: DueEntry) {
        self.init(due: entry.due, device: entry.key.device, offset: entry.key.offset)
    }
}

extension DueEntry {
    init(_ item: DueItem) {
        self.init(due: item.due, key: ItemKey(device: item.device, offset: item.offset))
    }
}

/// Limits of copies of partitions.
enum RestoreLimits {
    /// Milliseconds for which tombstones are surely kept; an older copy is restored anew. Well below the time that the
    /// changelog topic must keep tombstones (``KafkaSetup``).
    static let longestAbsence: Int64 = 1_800_000
    /// Milliseconds by which the clock may have been set back since a copy was left.
    static let clockTolerance: Int64 = 60_000
    /// Most partitions dropped at once, because the store's thread does nothing else meanwhile.
    static let mostDroppedAtOnce = 8
}
