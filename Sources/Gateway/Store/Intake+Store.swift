import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// A partition's part of the store, as the intake has it.
struct PartitionStore {
    let handle: StorePartition
    let committed: CommittedOffset
    /// What was found when it was taken over.
    var marks: [StoreMark] = []
    /// Where the last look for due items ended.
    var dueCursor: DueCursor?
    /// By the clock of then.
    var lookedThrough = Int64.min
    /// A look for due items, and shards that haven't taken what it has brought.
    var looksUnderWay = 0
    /// Due, of records that are still to be read.
    var ahead: [DueEntry] = []
}

/// Commits on their way to Kafka.
struct IssuedCommit {
    var commits: [OffsetCommit] = []
    /// By the slots of their partitions; the offset where it is among the commits.
    var serials: [(slot: UInt16, serial: UInt64, offset: Int64?)] = []
    var reference: UInt64 = 0
    /// When Kafka was asked, on the monotonic clock.
    var requestedAt: UInt64 = 0

    var isEmpty: Bool { commits.isEmpty && serials.isEmpty }
}

/// Everything written so far is brought to the disk: the shards hand over what they have, then the store syncs.
struct Barrier {
    var awaited: Int
    var hasWritten: Bool
    /// Changes whose acknowledgement is awaited.
    var changes: Set<ChangeSource> = []
    var then: [(Bool) -> Void]
}

/// The intake's side of the store.
extension Intake {
    // MARK: Partitions

    func beginInShards(_ place: Int, _ slot: UInt16) {
        guard let store, let part = partitions[place].store else {
            for shard in shards { shard.loop.execute { shard.begin(partitionSlot: slot) } }
            return
        }
        let readThrough = partitions[place].tracker.end - 1
        let (handle, committed, marks) = (part.handle, part.committed, part.marks)
        partitions[place].store!.marks = []
        for shard in shards {
            shard.loop.execute {
                shard.begin(partitionSlot: slot, handle, readThrough: readThrough, committed, marks)
            }
        }
        scanItems(slot, handle, in: store)
    }

    /// Tells the shards which devices the store has items of. Until they know, nothing goes on that concerns a device.
    private func scanItems(_ slot: UInt16, _ handle: StorePartition, in store: RetryStore) {
        let shards = shards
        store.scanItems(handle, chunk: 4096) { keys in
            for shard in shards { shard.loop.execute { shard.found(slot, keys) } }
        } completion: { [self] error in
            if let error {
                // Those that aren't transient have been told to all.
                guard error.isTransient else { return }
                loop.execute { [self] in
                    logger.error(
                        "the store can't be looked through; nothing is sent until it can",
                        metadata: ["error": "\(error)"])
                    failedScans.append(slot)
                }
            } else {
                for shard in shards { shard.loop.execute { shard.scanned(slot) } }
            }
        }
    }

    private func scanAgain(in store: RetryStore) {
        for slot in exchange(&failedScans, with: []) {
            guard let place = partitions.place(ofSlot: slot), let part = partitions[place].store else {
                continue
            }
            scanItems(slot, part.handle, in: store)
        }
    }

    func endInShards(_ slots: [UInt16]) {
        guard store != nil else { return }
        for shard in shards {
            shard.loop.execute { for slot in slots { shard.end(partitionSlot: slot) } }
        }
    }

    /// Lets go of the store's handles.
    func forgetStores() {
        openedStores = [:]
        for place in partitions.places { partitions[place].store = nil }
    }

    // MARK: Outcomes

    /// An outcome is in Kafka. Whether its record's offset is complete with that; otherwise it waits for removals, or is
    /// complete already.
    func isComplete(_ source: OutcomeSource, _ place: Int, _ report: borrowing DeliveryReport) -> Bool {
        if let transactions {
            // With the outcome the changelog says so, and the offset follows: all or nothing.
            if source.isStored {
                let item = ShardStore.Place(partitionSlot: source.partitionSlot, offset: source.offset)
                transactions.removals.append((report.key.map { hasher.device($0).low } ?? 0, item))
            }
            return !source.isOffsetDone
        }
        guard source.isStored || partitions.awaitsRemovals(place) else { return true }
        let device = report.key.map { hasher.device($0).low } ?? 0
        return partitions[place].removals.acknowledged(
            device: device, offset: source.offset, isStored: source.isStored, completes: !source.isOffsetDone)
    }

    /// A shard's work has ended some more.
    func take(_ news: IntakeNews) {
        for (slot, jobs) in news.freed {
            guard let place = partitions.place(ofSlot: slot) else {
                gate.finishOrphans(jobs)
                continue
            }
            if gate.release(place, jobs: jobs).contains(.window) { reopenWindow(place) }
        }
        for replayed in news.replayed {
            guard let place = partitions.place(ofSlot: replayed.partitionSlot) else { continue }
            partitions[place].tracker.release(replayed.offset)
            partitions[place].isDirty = true
            reopenWindow(place)
        }
        for completion in news.completed {
            let place = partitions.place(ofSlot: completion.place.partitionSlot)
            if let place {
                complete(place, completion.place.offset, isJob: completion.isRepeated)
            } else if completion.isRepeated {
                gate.finishOrphans(1)
            }
        }
        for removed in news.removed {
            guard let place = partitions.place(ofSlot: removed.place.partitionSlot) else { continue }
            partitions[place].removals.removed(
                device: removed.device.low, offset: removed.place.offset)
            followRemovals(place)
        }
        afterProgress()
    }

    /// Kafka has taken commits, or has not.
    func ended(_ issued: IssuedCommit, isTaken: Bool) {
        for (slot, serial, offset) in issued.serials {
            guard let place = partitions.place(ofSlot: slot) else { continue }
            if isTaken {
                if let offset { partitions[place].store?.committed.advance(to: offset) }
                partitions[place].removals.commitTaken(serial)
                followRemovals(place)
            } else {
                partitions[place].removals.commitFailed(serial)
            }
        }
    }

    private func followRemovals(_ place: Int) {
        let slot = partitions[place].slot
        var items: [(device: UInt64, place: ShardStore.Place)] = []
        while let action = partitions[place].removals.nextAction() {
            switch action {
            case .complete(let offset): complete(place, offset)
            case .remove(let device, let offset):
                items.append((device, ShardStore.Place(partitionSlot: slot, offset: offset)))
            }
        }
        remove(items)
    }

    /// Has the store forget items whose outcomes are safe.
    func remove(_ items: [(device: UInt64, place: ShardStore.Place)]) {
        inShards(items, by: { shardIndex(ofHash: $0.device, shards: shards.count) }) { shard, items in
            let places = items.map(\.place)
            shard.loop.execute { shard.remove(places) }
        }
    }

    /// Calls `body` with each shard that has some of the values, and with these.
    private func inShards<Value>(
        _ values: [Value], by index: (Value) -> Int, _ body: (Shard, [Value]) -> Void
    ) {
        guard !values.isEmpty else { return }
        var parts = [[Value]](repeating: [], count: shards.count)
        for value in values { parts[index(value)].append(value) }
        for (index, part) in parts.enumerated() where !part.isEmpty { body(shards[index], part) }
    }

    /// Nothing of these partitions awaits its removal from the store.
    func isSettled(_ places: [Int]) -> Bool {
        guard transactions == nil else { return isCommitted(places) }
        return places.allSatisfy { partitions[$0].removals.isEmpty }
    }

    /// Something ends that waits for removals, and these for commits.
    var hastensCommits: Bool {
        guard store != nil, phase == .draining || revocation != nil else { return false }
        return partitions.places.contains {
            partitions[$0].isDirty || partitions[$0].removals.needsCommit
        }
    }

    // MARK: Durability

    /// Brings everything to the disk that was written so far, then goes on, at once where nothing was; with false when
    /// that failed.
    func bringToDisk(_ then: @escaping (Bool) -> Void) {
        guard store != nil else { return then(true) }
        guard barrier == nil else {
            barrier!.then.append(then)
            return
        }
        barrier = Barrier(awaited: shards.count, hasWritten: mustSync, then: [then])
        for shard in shards {
            shard.loop.execute { [self] in
                let flush = shard.flushToStore()
                loop.execute { [self] in flushed(flush) }
            }
        }
    }

    private func flushed(_ flush: StoreFlush) {
        barrier!.awaited -= 1
        if flush.hasWritten { barrier!.hasWritten = true }
        if countChanges(flush) { barrier!.changes.insert(flush.source) }
        guard barrier!.awaited == 0 else { return }
        guard let store else { return passBarrier(false) }
        if store.isCopy {
            // What counts is the changelog.
            if barrier!.changes.isEmpty { passBarrier(true) }
            return
        }
        guard barrier!.hasWritten else { return passBarrier(true) }
        store.sync { [self] error in
            loop.execute { [self] in
                mustSync = error != nil
                if let error { syncFailed(error) }
                passBarrier(error == nil)
            }
        }
    }

    /// Counts records of the changelog whose reports are to come. True: there are some.
    @discardableResult
    func countChanges(_ flush: StoreFlush) -> Bool {
        guard flush.produced > 0, transactions == nil else { return false }
        let open = unacknowledged[flush.source, default: 0] + flush.produced
        unacknowledged[flush.source] = open == 0 ? nil : open
        return open != 0
    }

    /// The commit that waited for it is tried again. Reading goes on: should writes fail as well, the store says so.
    private func syncFailed(_ error: RetryStoreError) {
        if case .corrupt = error { return fail("\(error)") }
        logger.error(
            "the store can't be synced; offsets are not committed until it can",
            metadata: ["error": "\(error)"])
    }

    /// Kafka has a change of the store, or has refused it.
    func acknowledged(_ change: ChangeSource, _ report: borrowing DeliveryReport) {
        if let error = report.error, transactions == nil {
            // In another order than they were made, changes can't be repeated.
            return fail("a change of the store did not reach the changelog: \(error)", error)
        }
        changelogEnds[report.partition] = max(changelogEnds[report.partition] ?? 0, report.offset + 1)
        guard transactions == nil else { return }
        let open = unacknowledged[change, default: 0] - 1
        unacknowledged[change] = open == 0 ? nil : open
        guard open == 0, barrier?.changes.remove(change) != nil else { return }
        if barrier!.changes.isEmpty, barrier!.awaited == 0 { passBarrier(true) }
    }

    private func passBarrier(_ isDone: Bool) {
        let then = barrier!.then
        barrier = nil
        for body in then { body(isDone) }
        afterProgress()
    }

    /// The same at the very end, when the shards have handed everything over. Blocks.
    func syncStore() -> Bool {
        guard let store else { return true }
        let answer = BlockingAnswer<RetryStoreError?>()
        store.sync { answer.set($0) }
        let error = answer.wait()
        if let error {
            logger.error(
                "the last offsets are not committed, as the store can't be synced",
                metadata: ["error": "\(error)"])
        }
        return error == nil
    }

    /// More is on its way to the store than it takes for now.
    var storeIsBehind: Bool { (store?.queuedBytes ?? 0) > Self.mostQueuedBytes }

    private static let mostQueuedBytes = 64 << 20

    /// The store failed, or (nil) works again. Nothing is lost meanwhile: what it has not taken isn't committed.
    func storeWorks(_ error: RetryStoreError?) {
        if error != nil { counters.storeFailures += 1 }
        if let error, !error.isTransient { return fail("\(error)") }
        guard gate.isHeld != (error != nil) else { return }
        if let error {
            logger.error(
                "the store failed; nothing is read until it works again", metadata: ["error": "\(error)"])
        } else {
            logger.notice("the store works again; reading goes on")
        }
        gate.hold(error != nil)
        for shard in shards { shard.loop.execute { shard.storeFails(error != nil) } }
        followGate()
        if error == nil { pollSoon() }
    }

    // MARK: Due items

    /// Items come back from the store a little before they are due.
    private static let lead: Int64 = 2_000
    private static let dueInterval: Duration = .seconds(1)
    /// Entries of a look. They are only keys: as many pushes are loaded as there is room for.
    private static let mostDue = 8192

    func lookForDue() {
        guard let store, loop.now >= nextDueScan else { return }
        nextDueScan = loop.now + Self.dueInterval
        scanAgain(in: store)
        let through = wallClockMilliseconds() + Self.lead
        for place in partitions.places where !partitions[place].isEnding {
            guard let part = partitions[place].store, part.looksUnderWay == 0 else { continue }
            let slot = partitions[place].slot
            partitions[place].store!.looksUnderWay = 1
            // After a step of the clock, what was put since is behind the cursor.
            let isBack = through < part.lookedThrough
            partitions[place].store!.lookedThrough = through
            let cursor = isBack ? nil : part.dueCursor
            store.scanDue(part.handle, after: cursor, through: through, limit: Self.mostDue) {
                [self] result in
                loop.execute { [self] in isDue(slot, result) }
            }
        }
    }

    private func isDue(_ slot: UInt16, _ result: Result<DueScan, RetryStoreError>) {
        guard let place = partitions.place(ofSlot: slot), partitions[place].store != nil else { return }
        partitions[place].store!.looksUnderWay -= 1
        switch result {
        case .failure: break
        case .success(let scan):
            let end = partitions[place].tracker.end
            let entries = partitions[place].store!.ahead + scan.entries
            partitions[place].store!.dueCursor = scan.cursor
            partitions[place].store!.ahead = entries.filter { $0.key.offset >= end }
            if !scan.isEnd { nextDueScan = loop.now }
            hand(entries.filter { $0.key.offset < end }.map(\.key), place, slot, readThrough: end - 1)
        }
    }

    private func hand(_ keys: [ItemKey], _ place: Int, _ slot: UInt16, readThrough: Int64) {
        inShards(keys, by: { shardIndex(of: $0.device, shards: shards.count) }) { shard, keys in
            partitions[place].store!.looksUnderWay += 1
            shard.loop.execute { [self] in
                shard.due(slot, keys, readThrough: readThrough) { [self] in
                    loop.execute { [self] in dueTaken(slot) }
                }
            }
        }
    }

    private func dueTaken(_ slot: UInt16) {
        guard let place = partitions.place(ofSlot: slot), partitions[place].store != nil else { return }
        partitions[place].store!.looksUnderWay -= 1
    }
}
