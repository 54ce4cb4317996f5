import SluiceModel

/// Decides for a worker's Kafka side which records are taken and when offsets are committed. The machine also decides
/// how partitions are assigned and revoked, how transactions follow each other, and how the worker ends. Facts in,
/// actions out.
///
/// After every call the owner carries out the actions of ``nextAction()``, and reports their results. Time is an
/// argument, in nanoseconds of a monotonic clock that continues while the machine sleeps. Wall-clock times are
/// milliseconds since the epoch.
///
/// | part | decides |
/// |---|---|
/// | ``PartitionArrivals`` | when an assigned partition is read |
/// | ``PartitionRestore`` | how a partition's part of the store is restored |
/// | ``PartitionLifecycle`` | which of a partition's offsets may be committed, and what its end awaits |
/// | ``IntakeGate`` | what is paused |
/// | ``Committer`` | plain commits, and what has to be durable before |
/// | ``TransactionalCommits`` | transactions |
/// | ``DueSchedule`` | when to look for due items |
/// | ``SuspendedSchedule`` | when to look for items that wait with their topic |
/// | ``ExpirySchedule`` | when to look for expired presences |
/// | ``MembershipLease`` | whether the partitions are still this worker's |
/// | ``PushWindow`` | how many pushes the shards may begin |
/// | ``Drain`` | how the worker ends |
///
/// A single owner calls the machine, on a single thread. Records and reports allocate nothing in steady state.
public struct WorkerMachine: ~Copyable {
    /// Settings of a worker, fixed for its life.
    public struct Settings: Sendable {
        /// Mode of keeping items that wait for long.
        public var mode: StoreMode
        /// Number of shards, at least 1.
        public var shards: Int
        /// Limits of the intake.
        public var gate: IntakeGate.Limits
        /// Nanoseconds between two plain commits. Load, a revocation or the worker's end may shorten the interval.
        public var commitInterval: UInt64
        /// Nanoseconds from a transaction's first record or offset change to its commit.
        public var transactionInterval: UInt64
        /// Nanoseconds that a stop may take.
        public var drainDeadline: UInt64
        /// Nanoseconds that a revocation may wait for jobs in flight.
        public var revokeDeadline: UInt64
        /// Nanoseconds after which the group considers a silent member lost.
        public var sessionTimeout: UInt64
        /// True: a partition without a committed offset is read from its beginning.
        public var readsFromBeginning: Bool
        /// Highest offset that outcomes can name.
        public var highestOffset: Int64
        /// Offsets between a partition's watermark and its end at which the partition is paused.
        public var spanLimit = OffsetTracker.usualSpanLimit
        /// Characters that the brokers accept as a commit's metadata.
        public var metadataBytes = CommitMetadata.maximumBytes
        /// Jobs that finish between two commits under load, at most.
        public var jobsPerCommit = 1000
        /// Bytes on their way to the store at which reading stops.
        public var storeQueueBytes = 64 << 20
        /// Limits of the pushes that are begun and not committed. The patience begins when a commit is due.
        public var window = PushWindow.Limits()
        /// Nanoseconds between two passes for expired presences through a partition's store.
        public var expiryInterval: UInt64 = 86_400_000_000_000

        public init(
            mode: StoreMode, shards: Int, gate: IntakeGate.Limits, commitInterval: UInt64,
            transactionInterval: UInt64, drainDeadline: UInt64, revokeDeadline: UInt64,
            sessionTimeout: UInt64,
            readsFromBeginning: Bool, highestOffset: Int64
        ) {
            self.mode = mode
            self.shards = shards
            self.gate = gate
            self.commitInterval = commitInterval
            self.transactionInterval = transactionInterval
            self.drainDeadline = drainDeadline
            self.revokeDeadline = revokeDeadline
            self.sessionTimeout = sessionTimeout
            self.readsFromBeginning = readsFromBeginning
            self.highestOffset = highestOffset
        }
    }

    /// Fate of a polled record.
    public enum RecordFate: Sendable, Equatable {
        /// Hand the record to its shard.
        case hand(slot: UInt16, isReplay: Bool)
        /// The machine keeps the record's handle.
        case deferred
        /// Destroy the record.
        case discard
    }

    /// Fate of a record that did not reach Kafka.
    public enum LostFate: Sendable, Equatable {
        /// Nothing follows: the record isn't needed, or the worker fails because of it.
        case done
        /// Produce the record again as it is.
        case produceAgain
        /// Keep the record until ``WorkerAction/produceAgain(_:)`` or ``WorkerAction/forgetRefused(_:)``, or
        /// until its partition ends.
        case keep
    }

    public let settings: Settings
    var partitions = PartitionSlots()
    var gate: IntakeGate
    var restore: PartitionRestore
    var committer: Committer
    /// Pushes that have ended and leave the store after a commit; without transactions.
    var deletes = DeferredDeletes()
    /// The worker's transactions; nil without transactions.
    var transactions: TransactionalCommits?
    var due = DueSchedule()
    var suspended: SuspendedSchedule
    var expiry: ExpirySchedule
    var lease: MembershipLease
    var responses: ResponseRounds
    var window: PushWindow
    /// Counts of pushes, as last read; nil before the first time.
    var counts: PushCounts?
    /// The window is held, and a note has said so.
    var isHoldNoted = false
    /// Pushes that the shards may have begun, as they were last allowed.
    var allowed = 0
    var drain: Drain
    /// Records that Kafka has refused, and what becomes of them.
    var refusals = Refusals()
    /// Partitions that stopped and were removed, with the offset that stopped each. Only with transactions.
    var stopped: [Int32: Int64] = [:]
    /// Counts since the worker's start.
    public internal(set) var counters = IntakeCounters()

    var arrivals: PartitionArrivals
    /// Partitions of which nothing is sent before they were read to an end.
    var catchUps: [Int32: CatchUp] = [:]
    var revocation: Revocation?
    /// True once all assigned partitions were read, until the group considers the worker lost.
    public internal(set) var isAssigned = false
    /// Highest known offset of the changelog plus one, by partition.
    public internal(set) var changelogEnds: [Int32: Int64] = [:]
    /// Failure of the worker; nil: the worker is well, or was asked to stop.
    public internal(set) var failure: WorkerFault?
    /// Time of the last call, in nanoseconds.
    var now: UInt64
    var lastCommit: UInt64
    var finishedSinceCommit = 0
    private var lastRelief: UInt64 = 0
    /// Tenants of each shard that had pushes when the worker was last nearly full.
    var activeTenants: [Int: Set<UInt32>] = [:]
    /// Time of the next ``checkInvariants()``, in nanoseconds.
    var nextInvariantCheck: UInt64 = 0
    /// The store's last write failed.
    var isStoreFailing = false
    /// Nanoseconds at which a store that goes on failing is opened anew; nil: it works, or can work again by itself.
    var reopensStoreAt: UInt64?
    /// More bytes are on their way to the store than the store takes.
    var isStoreBehind = false
    var copies = CopyCleaning()
    /// The lease has ended, and the shards send nothing.
    var isInDoubt = false
    /// Number of the last question to the shards, and shards that have yet to do what they were asked for.
    var passes: (number: UInt64, awaited: Int) = (0, 0)
    /// End of the permit, in nanoseconds.
    var permitEnd: UInt64 = 0
    /// Earliest time of the next attempt to extend the changelog, in nanoseconds.
    var nextExtension: UInt64 = 0
    /// Jobs of removed partitions by slot, as long as shards hold some.
    private var orphans: [UInt16: Orphans] = [:]

    var orphanedJobs: Int { orphans.values.reduce(0) { $0 + $1.jobs } }

    private struct Orphans {
        var jobs: Int
        /// Shards that may hold some of the jobs.
        var awaitedShards: Int
    }
    private var actions: [WorkerAction] = []
    private var firstAction = 0
    private let inPlace = InPlace()

    /// Least nanoseconds between two commits under load.
    static let leastCommitInterval: UInt64 = 20_000_000

    public init(_ settings: Settings, now: UInt64) {
        self.settings = settings
        self.now = now
        gate = IntakeGate(limits: settings.gate, now: now)
        arrivals = PartitionArrivals(mode: settings.mode)
        restore = PartitionRestore(hasChangelog: settings.mode.hasChangelog)
        committer = Committer(mode: settings.mode, shards: settings.shards)
        if settings.mode == .transactions {
            transactions = TransactionalCommits(
                interval: settings.transactionInterval, shards: settings.shards)
        }
        lease = MembershipLease(session: settings.sessionTimeout, now: now)
        responses = ResponseRounds(shards: settings.shards)
        let isTransactional = settings.mode == .transactions
        var limits = settings.window
        limits.patience += isTransactional ? settings.transactionInterval : settings.commitInterval
        window = PushWindow(limits, awaitsProducer: isTransactional)
        drain = Drain(shards: settings.shards)
        suspended = SuspendedSchedule(shards: settings.shards)
        expiry = ExpirySchedule(
            shards: settings.shards, interval: settings.mode.hasStore ? settings.expiryInterval : 0)
        lastCommit = now
    }

    // MARK: Actions

    /// Returns the next action; nil when all is done.
    public mutating func nextAction() -> WorkerAction? {
        guard firstAction < actions.count else {
            if firstAction > 0 {
                actions.removeAll(keepingCapacity: true)
                firstAction = 0
            }
            return nil
        }
        firstAction += 1
        return actions[firstAction - 1]
    }

    mutating func act(_ action: WorkerAction) { actions.append(action) }

    mutating func note(_ note: WorkerNote) { actions.append(.note(note)) }

    /// Counts a failed call to Kafka. The owner needs nothing else.
    public mutating func kafkaFailed() { counters.kafkaErrors += 1 }

    // MARK: The start

    /// Starts the worker's lease and, with transactions, its producer. Called once, before any other event.
    public mutating func start(at now: UInt64) {
        self.now = max(self.now, now)
        lease = MembershipLease(session: settings.sessionTimeout, now: now)
        permitEnd = lease.until
        act(.extendPermit(until: permitEnd))
        if transactions != nil {
            transactions!.start()
            followTransactions()
        }
    }

    // MARK: Records

    /// Returns how many records to poll now, at most; 0: none, as while the worker drains. The result is at least 1
    /// while the gate has paused all, because events have to be served.
    public mutating func room(
        atMost batch: Int, bytesHeld: Int, storeQueueBytes: Int, at now: UInt64
    ) -> Int {
        self.now = max(self.now, now)
        guard drain.phase == .running else { return 0 }
        gate.bytesHeld = bytesHeld
        watchStoreQueue(storeQueueBytes)
        guard !responses.isBehind else { return 0 }
        return gate.room(atMost: batch, at: now)
    }

    /// Bytes that the records of the next poll may take; 0 at the limit.
    public var bytesLeft: Int { gate.bytesLeft }

    /// Takes a polled record.
    ///
    /// - Parameters:
    ///   - shard: the shard of the record's device.
    ///   - handle: the owner's handle; the machine keeps the handle when the record is held back.
    ///   - milliseconds: time of the record since the epoch; 0: unknown, or too far ahead of the clock to be evidence.
    public mutating func accept(
        partition: Int32, offset: Int64, bytes: Int, milliseconds: Int64, shard: Int, handle: UInt,
        at now: UInt64
    ) -> RecordFate {
        self.now = max(self.now, now)
        guard let index = partitions.index(ofPartition: partition), !partitions[index].isEnding,
            drain.phase == .running
        else { return .discard }
        responses.polled(bytes)
        let record = PartitionLifecycle.PolledRecord(
            offset: offset, bytes: bytes, milliseconds: milliseconds, handle: handle, shard: shard)
        guard !partitions[index].hasDeferredRecords else {
            partitions[index].deferRecord(record)
            return .deferred
        }
        return accept(record, index)
    }

    private mutating func accept(_ record: PartitionLifecycle.PolledRecord, _ index: Int) -> RecordFate {
        guard (0...settings.highestOffset).contains(record.offset) else {
            fail(
                .offsetTooHigh(partition: partitions[index].partition, offset: record.offset), nil)
            return .discard
        }
        let fate: RecordFate
        switch partitions[index].track(
            record.offset, bytes: record.bytes, milliseconds: record.milliseconds, at: now)
        {
        case .tracked: fate = handed(record, index, isReplay: false)
        case .alreadyCompleted:
            counters.alreadyCompleted += 1
            fate = handed(record, index, isReplay: true)
        case .full:
            partitions[index].deferRecord(record)
            fate = .deferred
        case .outOfOrder:
            guard let index = startOver(index, at: record) else { return .discard }
            return accept(record, index)
        }
        checkWindow(index)
        return fate
    }

    private mutating func handed(
        _ record: PartitionLifecycle.PolledRecord, _ index: Int, isReplay: Bool
    ) -> RecordFate {
        gate.admit(index, offset: record.offset, bytes: record.bytes)
        counters.records += 1
        return .hand(slot: partitions[index].slot, isReplay: isReplay)
    }

    /// Pauses and resumes partitions after a batch was taken.
    /// - Parameters:
    ///   - records: records of the batch.
    ///   - bytes: their bytes.
    public mutating func polled(_ records: Int, bytes: Int) {
        gate.polled(records, bytes: bytes)
        endCatchUps()
        leaveResponses()
        followGate()
    }

    /// Starts a partition over whose log went back. The topic was recreated, or the group's offsets were reset. A log
    /// that has only lost its end is left to the next assignment, which follows when all jobs in flight have ended.
    /// - Returns: the partition's new index; nil: the worker ends.
    private mutating func startOver(_ index: Int, at record: PartitionLifecycle.PolledRecord) -> Int? {
        followGate()
        let slot = partitions[index].slot
        let (partition, offset) = (partitions[index].partition, record.offset)
        let newest = partitions[index].newestMilliseconds
        note(.logWentBack(partition, from: partitions[index].end, to: offset))
        let isNew = newest > 0 && record.milliseconds > newest && settings.readsFromBeginning
        guard isNew || transactions != nil else {
            startOverInOrder(.tailLost(partition: partition))
            return nil
        }
        guard transactions == nil else {
            // Items of the store may have their outcomes in a transaction that is open or about to end. Nothing shows
            // which items do.
            failAtOnce(.logWentBack(partition: partition), .logWentBack)
            return nil
        }
        act(.requestAll(.abandon(slots: [slot], isLost: false)))
        act(.requestAll(.forgetMarks(slot: slot)))
        if remove(index) { act(.resume([partition])) }
        return beginPartition(
            PartitionLifecycle(
                partition: partition, restartingAt: offset, spanLimit: settings.spanLimit,
                metadataBytes: settings.metadataBytes))
    }

    /// Removes a partition.
    /// - Returns: whether the partition was paused.
    @discardableResult
    mutating func remove(_ index: Int) -> Bool {
        discardDeferred(index)
        let slot = partitions[index].slot
        catchUps[partitions[index].partition] = nil
        act(.requestAll(.end(slots: [slot])))
        refusals.forget(slot)
        due.removePartition(slot)
        suspended.removePartition(slot)
        expiry.removePartition(slot)
        committer.forget(slot)
        let jobs = gate.load(index).jobs
        partitions.remove(index)
        let wasPaused = gate.remove(index)
        let waitingForDeletes = deletes.removeAll(slot)
        followDeletes()
        guard jobs > 0 else { return wasPaused }
        orphans[slot] = Orphans(jobs: jobs, awaitedShards: settings.shards)
        act(.requestAll(.release(slot: slot)))
        // Jobs that only waited for deletions take no room any more, because their outcomes are in Kafka.
        finishOrphans(of: slot, waitingForDeletes)
        return wasPaused
    }

    /// Removes jobs of a removed partition that have ended or were given back. How they ended is not known.
    mutating func finishOrphans(of slot: UInt16, _ jobs: Int) {
        guard let left = orphans[slot]?.jobs else { return }
        let ended = min(left, jobs)
        orphans[slot]!.jobs -= ended
        gate.finishOrphans(ended)
    }

    /// Notes that a shard holds nothing of a removed partition. Reports of the partition's jobs may never arrive, for
    /// instance because an aborted transaction had them.
    mutating func released(_ slot: UInt16) {
        guard orphans[slot] != nil else { return }
        orphans[slot]!.awaitedShards -= 1
        guard orphans[slot]!.awaitedShards == 0 else { return }
        finishOrphans(of: slot, .max)
        orphans[slot] = nil
    }

    mutating func discardDeferred(_ index: Int) {
        for record in partitions[index].takeDeferredRecords() {
            act(.discard(handle: record.handle, bytes: record.bytes))
        }
    }

    // MARK: Progress

    /// Completes a record's offset. `isJob` is false when the record's job continues to take room, or takes no room any
    /// more.
    mutating func complete(_ index: Int, _ offset: Int64, isJob: Bool = true) {
        let (completion, bytes) = partitions[index].complete(offset)
        switch completion {
        case .advanced, .completed:
            let paused = isJob ? gate.finish(index, offset: offset, bytes: bytes) : gate.reasons(index)
            counters.finished += 1
            finishedSinceCommit += 1
            if paused.contains(.window) { reopenWindow(index) }
        case .notOutstanding, .unknown:
            // Records of an aborted transaction are reported twice.
            guard transactions == nil || transactions!.aborted == 0 else { return }
            note(.secondOutcome(partitions[index].partition, offset: offset))
        }
    }

    /// Continues what waited for jobs to finish.
    mutating func afterProgress() {
        let isUrgent = finishedSinceCommit >= settings.jobsPerCommit || hastensCommits
        if transactions == nil, window.wantsCommit || isUrgent && now >= lastCommit + Self.leastCommitInterval
        {
            commitDirty()
        }
        checkRevocation()
        checkDrain()
        guard drain.phase == .running else { return }
        if gate.settle(at: now) { act(.poll) }
        followGate()
    }

    /// Counts a dropped change of the store as acknowledged, because its partition is lost.
    public mutating func changeDropped(_ epoch: ChangeEpoch, at now: UInt64) {
        self.now = max(self.now, now)
        committer.acknowledged(epoch, at: now)
        followCommitter()
    }

    // MARK: The gate

    /// Notes the number of records that the consumer has fetched ahead. To be called before each poll and tick.
    public mutating func fetchedAhead(_ records: Int) { gate.fetchedAhead(records) }

    /// Pauses all partitions because an operator has paused all sending, or resumes them. What was polled before stays
    /// with the shards.
    public mutating func setAllPaused(_ isPaused: Bool) {
        guard gate.isAllPaused != isPaused else { return }
        gate.setAllPaused(isPaused)
        followGate()
        if !isPaused { act(.poll) }
    }

    /// Jobs of assigned partitions that have no outcome yet.
    public var outstanding: Int { max(0, gate.load.jobs - drain.drained) }

    /// Jobs that shards still hold, including jobs of removed partitions.
    var unfinished: Int { gate.total.jobs - drain.drained }

    /// Carries out the gate's pauses and resumes. While draining, all partitions stay paused.
    mutating func followGate() {
        guard gate.hasActions else { return }
        var run: [Int32] = []
        var isPause = false
        while let action = gate.nextAction() {
            let (index, pauses): (Int, Bool) =
                switch action {
                case .pause(let index, _): (index, true)
                case .resume(let index): (index, false)
                }
            if pauses != isPause {
                flush(&run, isPause)
                isPause = pauses
            }
            run.append(partitions[index].partition)
            if case .pause(_, let reason) = action, drain.phase == .running { notePause(reason, index) }
        }
        flush(&run, isPause)
    }

    private mutating func flush(_ run: inout [Int32], _ isPause: Bool) {
        if !run.isEmpty, drain.phase == .running { act(isPause ? .pause(run) : .resume(run)) }
        run.removeAll()
    }

    private mutating func notePause(_ reason: IntakeGate.Reason, _ index: Int) {
        let partition = partitions[index].partition
        switch reason {
        case .window:
            counters.partitionPauses += 1
            note(
                .pausedForWindow(
                    partition, watermark: partitions[index].watermark,
                    finishedAbove: partitions[index].completedInWindow))
        case .share:
            counters.partitionPauses += 1
            let load = gate.load(index)
            note(.pausedForShare(partition, jobs: load.jobs, bytes: load.bytes))
        default: break
        }
    }

    /// Advances the gate's clock, and notes a pause for the limit.
    private mutating func advanceGate() {
        let pauses = gate.limitPauses
        gate.advance(to: now)
        if gate.limitPauses != pauses {
            counters.pauses += 1
            note(.pausedForLimit(jobs: outstanding, bytes: gate.total.bytes))
        }
        followGate()
    }

    /// Reports to the gate that a partition's window is full.
    private mutating func checkWindow(_ index: Int) {
        relieve(index, again: false)
        guard partitions[index].isFull || partitions[index].hasDeferredRecords else { return }
        gate.window(index, isFull: true, hasRoom: false)
    }

    /// Asks the shards to store the jobs that hold the watermark, when the commit's metadata runs out of room.
    private mutating func relieve(_ index: Int, again: Bool) {
        guard settings.mode.hasStore, let offset = partitions[index].askRelief(again: again) else { return }
        act(.requestAll(.relieve(slot: partitions[index].slot, below: offset)))
    }

    /// Repeats the relief for partitions that are paused until their watermark moves. Jobs that were in flight may wait
    /// by now.
    private mutating func relieveFullWindows() {
        guard now >= lastRelief + 1_000_000_000 else { return }
        lastRelief = now
        for index in partitions.indices where gate.reasons(index).contains(.window) {
            relieve(index, again: true)
            reopenWindow(index)
        }
    }

    /// Takes the records that the window could not hold, once the window has room for them again.
    mutating func reopenWindow(_ index: Int) {
        guard gate.reasons(index).contains(.window), !partitions[index].isEnding, partitions[index].hasRoom,
            drain.phase == .running
        else { return }
        let partition = partitions[index].partition
        let deferred = partitions[index].takeDeferredRecords()
        for (number, record) in deferred.enumerated() {
            // The log can go back in between, and the partition then has another index.
            guard let index = partitions.index(ofPartition: partition), drain.phase == .running else {
                act(.discard(handle: record.handle, bytes: record.bytes))
                continue
            }
            guard !gate.isAtLimit else {
                // All jobs together leave these records no room. The next tick retries.
                return partitions[index].deferRecords(deferred[number...])
            }
            switch accept(record, index) {
            case .hand(let slot, let isReplay):
                act(
                    .hand(
                        handle: record.handle, shard: record.shard, slot: slot, bytes: record.bytes,
                        isReplay: isReplay))
            case .deferred: return partitions[index].deferRecords(deferred[(number + 1)...])
            case .discard: act(.discard(handle: record.handle, bytes: record.bytes))
            }
        }
        updateWindow(partition)
    }

    private mutating func updateWindow(_ partition: Int32) {
        guard let index = partitions.index(ofPartition: partition), !partitions[index].hasDeferredRecords
        else { return }
        gate.window(index, isFull: partitions[index].isFull, hasRoom: partitions[index].hasRoom)
    }

    // MARK: Time

    /// Time of the next ``wake(at:)``, in nanoseconds; nil: ticks are enough.
    public var wakeAt: UInt64? { drain.phase < .leaving && !drain.isAtOnce ? transactions?.wakeAt : nil }

    /// Continues the transactions at the time of ``wakeAt``.
    public mutating func wake(at now: UInt64) {
        self.now = max(self.now, now)
        guard transactions != nil, drain.phase < .leaving, !drain.isAtOnce else { return }
        transactions!.wake(at: now)
        followTransactions()
        checkDrain()
    }

    /// Does all that depends on time. To be called ten times a second.
    public mutating func tick(at time: DeliveryTime) {
        now = max(now, time.monotonicNanoseconds)
        guard drain.phase != .leaving, drain.phase != .ended else { return }
        renewLease()
        if transactions == nil, now >= lastCommit + settings.commitInterval { commitDirty() }
        afterProgress()
        guard drain.phase == .running else { return }
        advanceGate()
        endCatchUps()
        leaveResponses()
        relieveFullWindows()
        if gate.wantsRoom {
            let (room, kept) = (gate.roomForJobs / settings.shards, gate.jobsToKeep / settings.shards)
            let tenants = activeTenants.values.reduce(into: Set()) { $0.formUnion($1) }
            act(.requestAll(.makeRoom(pushes: room, keeping: kept, tenants: tenants)))
        }
        scanForDue(time)
        cleanCopies()
        reopenStore()
        watchInvariants()
        if !gate.isStalled { act(.poll) }
        advanceArrivals()
    }
}
