import SluiceModel

/// Decides when copies of partitions that this worker doesn't have are dropped. A partition that is assigned again soon
/// is restored from its copy on. Older copies take room, and keep payloads that may have been sent long ago.
struct CopyCleaning: Sendable {
    /// True when the last look left something to drop, or a partition went away since.
    var mustLook = true
    /// True while the store drops copies.
    var isUnderWay = false
    /// Earliest time of the next look, in nanoseconds of the monotonic clock.
    var nextLook: UInt64 = 0
    /// Time of the next look without need, for copies that become old, in nanoseconds of the monotonic clock.
    var nextRegularLook: UInt64 = 0

    static let interval: UInt64 = 1_000_000_000
    static let regularInterval: UInt64 = 60_000_000_000
}

extension WorkerMachine {
    // MARK: Copies

    /// Partitions whose part of the store has to stay: this worker's, and partitions on their way here.
    public var keptPartitions: Set<Int32> {
        var kept = Set(partitions.numbers)
        kept.formUnion(restore.partitions)
        kept.formUnion(arrivals.partitions)
        return kept
    }

    mutating func cleanCopies() {
        guard settings.mode.hasChangelog, !copies.isUnderWay, now >= copies.nextLook,
            copies.mustLook || now >= copies.nextRegularLook
        else { return }
        copies.nextLook = now + CopyCleaning.interval
        copies.nextRegularLook = now + CopyCleaning.regularInterval
        copies.isUnderWay = true
        copies.mustLook = false
        // Partitions that are assigned from here on are opened after the drop.
        act(.dropCopies(except: keptPartitions))
    }

    /// - Parameter areMore: more copies are to be dropped; nil: the store failed.
    public mutating func droppedCopies(areMore: Bool?, at now: UInt64) {
        self.now = max(self.now, now)
        copies.isUnderWay = false
        copies.mustLook = areMore ?? true
        if areMore == true { copies.nextLook = now }
    }

    // MARK: Due items

    mutating func scanForDue(_ time: DeliveryTime) {
        guard settings.mode.hasStore else { return }
        let (looks, scans) = due.tick(at: time)
        for slot in scans {
            guard let index = partitions.index(ofSlot: slot) else { continue }
            act(.scanItems(slot: slot, partition: partitions[index].partition))
        }
        for look in looks {
            guard let index = partitions.index(ofSlot: look.slot) else { continue }
            act(.scanDue(look, partition: partitions[index].partition))
        }
        scanForSuspended()
        scanForExpired(time)
    }

    /// Takes the result of a look for due items. Nil `items`: the store failed.
    public mutating func found(_ slot: UInt16, _ items: [DueItem]?, isEnd: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        guard let index = partitions.index(ofSlot: slot) else { return }
        let end = partitions[index].end
        let due = due.found(slot, items, isEnd: isEnd, mayReturn: partitions[index].mayReturn)
        guard !due.isEmpty else { return }
        var parts = [[DueItem]](repeating: [], count: settings.shards)
        for item in due { parts[shardIndex(ofHash: item.device.low, shards: settings.shards)].append(item) }
        for (shard, part) in parts.enumerated() where !part.isEmpty {
            self.due.handed(slot)
            act(.request(shard: shard, .due(slot: slot, part, readThrough: end - 1)))
        }
    }

    // MARK: Suspended items

    private mutating func scanForSuspended() {
        guard settings.mode.hasStore else { return }
        for (slot, offset) in suspended.ahead {
            guard let index = partitions.index(ofSlot: slot), partitions[index].mayReturn(offset) else {
                continue
            }
            suspended.readAhead(slot)
        }
        guard let look = suspended.next(at: now) else { return }
        guard let index = partitions.index(ofSlot: look.slot) else {
            return suspended.removePartition(look.slot)
        }
        act(.scanSuspended(look, partition: partitions[index].partition))
    }

    /// Takes the result of a look for suspended items. Nil `items`: the store failed.
    /// - Parameter cursor: the last entry that was seen, whether it was found or not.
    public mutating func foundSuspended(
        _ look: SuspendedSchedule.Look, _ items: [SuspendedSchedule.Entry]?, cursor: DueItem?, isEnd: Bool,
        at now: UInt64
    ) {
        self.now = max(self.now, now)
        let index = partitions.index(ofSlot: look.slot)
        let end = index.map { partitions[$0].end } ?? 0
        let mayReturn = index.map { partitions[$0].mayReturn } ?? { _ in false }
        let parts = suspended.found(
            look, items, cursor: cursor, isEnd: isEnd, at: self.now, mayReturn: mayReturn)
        for part in parts {
            act(.request(shard: part.shard, .suspended(slot: look.slot, part.items, readThrough: end - 1)))
        }
        scanForSuspended()
    }

    // MARK: Presences

    private mutating func scanForExpired(_ time: DeliveryTime) {
        guard let look = expiry.next(at: time) else { return }
        guard let index = partitions.index(ofSlot: look.slot) else {
            return expiry.removePartition(look.slot)
        }
        act(.scanExpired(look, partition: partitions[index].partition))
    }

    /// Takes the result of a look for presences that have expired.
    /// - Parameters:
    ///   - devices: nil: the store failed.
    ///   - last: the last device that was seen, whether its presence has expired or not; nil: there was none.
    public mutating func foundExpired(
        _ look: ExpirySchedule.Look, _ devices: [DeviceKey]?, last: DeviceKey?, isEnd: Bool, at now: UInt64
    ) {
        self.now = max(self.now, now)
        for part in expiry.found(look, devices, last: last, isEnd: isEnd, at: self.now) {
            act(.request(shard: part.shard, .expired(slot: look.slot, part.devices)))
        }
    }

    /// Has a partition's scan repeated, because the scan failed. Until a scan succeeds, nothing is sent that concerns a
    /// device.
    public mutating func scanFailed(slot: UInt16) { due.scanFailed(slot) }

    // MARK: The store's state

    /// Takes the result of ``WorkerAction/sync``. `isDone`: everything handed over before is on the disk.
    public mutating func synced(isDone: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        committer.synced(isDone: isDone, at: now)
        followCommitter()
        afterProgress()
    }

    /// Notes that the store failed, or works again. Nothing is lost meanwhile, because what the store hasn't taken
    /// isn't committed.
    /// - Parameter needsReopening: whether the store can't work again before it is opened anew.
    public mutating func storeFails(_ isFailing: Bool, needsReopening: Bool = false, at now: UInt64) {
        self.now = max(self.now, now)
        if isFailing { counters.storeFailures += 1 }
        if !isFailing {
            reopensStoreAt = nil
        } else if needsReopening {
            reopensStoreAt = reopensStoreAt ?? self.now &+ Self.storePatience
        }
        guard isFailing != isStoreFailing else { return }
        isStoreFailing = isFailing
        note(isFailing ? .storeFailed : .storeWorks)
        act(.requestAll(.storeFails(isFailing)))
        followStore()
    }

    /// Starts over when the store has failed for a while in a way that only a new opening ends. Other workers take the
    /// partitions meanwhile.
    mutating func reopenStore() {
        guard let reopensStoreAt, now >= reopensStoreAt else { return }
        startOverInOrder(.store)
    }

    /// Nanoseconds for which a store may fail before it is opened anew.
    static let storePatience: UInt64 = 10_000_000_000

    /// Stops reading while more bytes are on their way to the store than ``Settings/storeQueueBytes``. Reading resumes
    /// at half.
    mutating func watchStoreQueue(_ bytes: Int) {
        let most = settings.storeQueueBytes
        guard bytes > most || isStoreBehind && bytes > most / 2 else {
            guard isStoreBehind else { return }
            isStoreBehind = false
            note(.storeHasCaughtUp)
            return followStore()
        }
        guard !isStoreBehind else { return }
        isStoreBehind = true
        note(.storeIsBehind)
        followStore()
    }

    private mutating func followStore() {
        let waits = isStoreFailing || isStoreBehind
        guard gate.waitsForStore != waits else { return }
        gate.setWaitsForStore(waits)
        followGate()
        if !waits { act(.poll) }
    }

    // MARK: Shards

    /// Takes a shard's report.
    public mutating func shard(_ shard: Int, _ report: ShardReport, at now: UInt64) {
        self.now = max(self.now, now)
        switch report {
        case .abandoned(let given): abandoned(given)
        case .settled(let slot):
            guard let index = partitions.index(ofSlot: slot) else { return }
            partitions[index].shardSettled()
            checkRevocation()
        case .settledAll:
            drain.shardSettled()
            checkDrain()
        case .gaveBack(let slot):
            if let index = partitions.index(ofSlot: slot) {
                gate.returnJobs(index, jobs: 1)
            } else {
                finishOrphans(of: slot, 1)
            }
            checkRevocation()
            checkDrain()
        case .progress(let progress): apply(progress)
        case .dueTaken(let slot): due.consumed(slot)
        case .suspendedTaken(let slot):
            suspended.consumed(slot)
            scanForSuspended()
        case .expiredTaken(let slot): expiry.consumed(slot)
        case .catchUpCut(let slot, let readTo, let end):
            guard let index = partitions.index(ofSlot: slot) else { break }
            note(.catchUpCut(partitions[index].partition, readTo: readTo, logEnd: end))
        case .topicSuspended(let topic): suspended.suspended(topic, shard: shard)
        case .topicResumed(let topic):
            suspended.resumed(topic, shard: shard)
            scanForSuspended()
        case .pushesWanted(let topic, let count):
            suspended.pushesWanted(topic, count: count, shard: shard)
            scanForSuspended()
        case .tenant(let number, true): activeTenants[shard, default: []].insert(number)
        case .tenant(let number, false): activeTenants[shard, default: []].remove(number)
        case .flushed(let flush):
            committer.flushed(flush, at: now)
            followCommitter()
            shardFlushedAtEnd()
        case .frozen(let number, let produced):
            transactions?.frozen(number, produced: produced)
            followTransactions()
        case .refused(let number):
            transactions?.refused(number)
            followTransactions()
        case .neverFits(let outcome, let topic, let fault): neverFits(outcome, topic: topic, fault, at: now)
        case .droppedChange(let epoch): changeDropped(epoch, at: now)
        case .released(let slot): released(slot)
        case .passed(let number): passed(number)
        case .leftResponses(let shrunk): leftResponses(shrunk)
        case .drained(let jobs):
            drain.shardDrained(jobs)
            checkDrain()
        // Nothing more is committed, because the shard's next report may name the lost change as durable.
        case .lostChange(let text): failAtOnce(.other(text), nil)
        case .finished(let ending): shardFinished(ending)
        }
    }

    private mutating func abandoned(_ given: SlotCount) {
        if let index = partitions.index(ofSlot: given.slot) {
            gate.returnJobs(index, jobs: given.count)
            partitions[index].shardGaveBack()
        } else {
            finishOrphans(of: given.slot, given.count)
        }
        checkRevocation()
    }

    private mutating func apply(_ progress: ShardProgress) {
        for (slot, jobs) in progress.freed {
            guard let index = partitions.index(ofSlot: slot) else {
                finishOrphans(of: slot, jobs)
                continue
            }
            if gate.release(index, jobs: jobs).contains(.window) { reopenWindow(index) }
        }
        for replayed in progress.replayed {
            guard let index = partitions.index(ofSlot: replayed.partitionSlot) else { continue }
            partitions[index].replayed(replayed.offset)
            reopenWindow(index)
        }
        for completion in progress.completed {
            if let index = partitions.index(ofSlot: completion.place.partitionSlot) {
                complete(index, completion.place.offset, isJob: completion.isRepeated)
            } else if completion.isRepeated {
                finishOrphans(of: completion.place.partitionSlot, 1)
            }
        }
        for removed in progress.removed {
            deletes.removed(EndedItem(device: removed.device.low, place: removed.place))
            followDeletes()
        }
        afterProgress()
    }
}

/// Snapshot of an assigned partition.
public struct PartitionReport: Sendable, Equatable {
    /// Name of the jobs topic.
    public var topic: String
    /// Kafka's number of the partition.
    public var partition: Int32
    /// Next offset to commit. Everything below it is finished.
    public var watermark: Int64
    /// Highest offset taken, plus one.
    public var end: Int64
    /// Jobs taken and not finished.
    public var outstanding: Int
    /// Bytes of the outstanding jobs' records, about.
    public var outstandingBytes: Int
    /// Time since the oldest unfinished record was polled. That record holds the watermark. Overstated by at most a
    /// tenth of a second or 1/128. Zero: all is finished.
    public var headOfLineAge: Duration
    /// Reasons of the partition's pause; empty: the partition is being read.
    public var pauseReasons: IntakeGate.Reason
    /// True: the group revokes the partition, and its jobs in flight still end.
    public var isEnding: Bool

    public init(
        topic: String, partition: Int32, watermark: Int64, end: Int64, outstanding: Int,
        outstandingBytes: Int, headOfLineAge: Duration, pauseReasons: IntakeGate.Reason, isEnding: Bool
    ) {
        self.topic = topic
        self.partition = partition
        self.watermark = watermark
        self.end = end
        self.outstanding = outstanding
        self.outstandingBytes = outstandingBytes
        self.headOfLineAge = headOfLineAge
        self.pauseReasons = pauseReasons
        self.isEnding = isEnding
    }
}

extension WorkerMachine {
    // MARK: Observation

    public var phase: Drain.Phase { drain.phase }
    /// Number of partitions that are read, or whose jobs still end.
    public var assignedPartitions: Int { partitions.count }
    /// Numbers of the assigned partitions, in no order.
    public var partitionNumbers: [Int32] { partitions.indices.map { partitions[$0].partition } }
    /// The store's last write failed.
    public var hasStoreFailed: Bool { isStoreFailing }
    /// True while the group hasn't confirmed partitions of this worker since their lease ended. Nothing is sent then.
    public var isMembershipInDoubt: Bool { lease.isDoubtful && partitions.count > 0 }
    /// True when the store is looked through for pushes that wait with their topics, or is to be.
    public var looksForSuspended: Bool { !suspended.isIdle }
    /// Partitions that were assigned and aren't read yet; nil: there are none.
    public var arriving: Int? { arrivals.isEmpty ? nil : arrivals.count }
    /// Assigned partitions that aren't read, because the group's offset lies beyond the log's end and nothing shows why.
    public var unexplainedPartitions: [Int32] { arrivals.unexplainedPartitions }
    /// Partitions whose part of the store is being opened.
    public var opening: [Int32] { restore.partitions.filter { restore.stage($0) == .opening } }
    /// Partitions that are restored from the changelog.
    public var restoring: [Int32] { restore.partitions.filter { restore.stage($0) == .restoring } }
    /// Changelog records that Kafka hasn't acknowledged, as far as shards have counted them.
    public var unacknowledgedChanges: Int { committer.unacknowledgedChanges }
    /// State and counts of the transactions; nil without transactions.
    public var transactionState: (state: TransactionCycle.State, begun: UInt64, aborted: Int)? {
        transactions.map { ($0.state, $0.begun, $0.aborted) }
    }

    /// Returns snapshots of the assigned partitions, in their order. `topic`: name of the jobs topic.
    public func partitionReports(topic: String, at now: UInt64) -> [PartitionReport] {
        let read = partitions.indices.map { index in
            let oldest = partitions[index].oldestPollTime
            return PartitionReport(
                topic: topic, partition: partitions[index].partition, watermark: partitions[index].watermark,
                end: partitions[index].end, outstanding: partitions[index].outstanding,
                outstandingBytes: partitions[index].outstandingBytes,
                headOfLineAge: .nanoseconds(oldest.map { now > $0 ? now - $0 : 0 } ?? 0),
                pauseReasons: gate.reasons(index), isEnding: partitions[index].isEnding)
        }
        let rest = stopped.map { partition, offset in
            PartitionReport(
                topic: topic, partition: partition, watermark: offset, end: offset, outstanding: 0,
                outstandingBytes: 0, headOfLineAge: .zero, pauseReasons: .refused, isEnding: false)
        }
        return (read + rest).sorted { $0.partition < $1.partition }
    }
}
