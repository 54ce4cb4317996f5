/// Decides how much a worker takes in from Kafka. The gate counts the jobs that are taken and not finished, and decides
/// which partitions to pause and to resume.
///
/// A partition is paused for one or more of the reasons below (``Reason``).
/// - *limit*: the worker holds as many jobs or bytes as it may. At first the worker only stops polling, because a pause
///   discards what the consumer has fetched ahead. All partitions are paused when nothing has become free for
///   ``Limits/stall``. They resume at half of the limit. They are paused at once when the consumer has fetched too much
///   ahead, because the consumer's own limit leaves out keys and headers.
/// - *share*: long-held jobs of one partition take more than their share of the limit, while other partitions have
///   work. The partition is paused alone, until its jobs are down to half of the share.
/// - *window*: the partition's ``OffsetTracker`` has no room.
/// - *store*, *allPaused*: the owner holds all partitions.
/// - *refused*: a record of the partition can't get an outcome. The partition is paused until it ends.
///
/// A partition's pauses and resumes alternate strictly, whatever the reasons do. A poll exceeds the limit of bytes
/// by less than two records.
///
/// Partitions are named by small numbers that the owner assigns and reuses. Pure: time is an argument, in nanoseconds
/// of a monotonic clock. Each record costs O(1). Memory is allocated only when a partition is added or paused.
public struct IntakeGate: ~Copyable, Sendable {
    private struct Partition: Sendable {
        var isLive = false
        /// The group revokes the partition: the partition is neither paused nor resumed any more.
        var isEnding = false
        var reasons: Reason = []
        var load = Load()
        /// Part of `load` below `oldEnd`. `recent` is the part from `oldEnd` to `recentEnd`. The rest is younger than a
        /// turn.
        var old = Load()
        var recent = Load()
        var oldEnd = Int64.min
        var recentEnd = Int64.min
        /// Highest offset taken, plus one.
        var end = Int64.min

        /// True when the partition has jobs, or has taken a job in this turn.
        var isWorking: Bool { isLive && !isEnding && (load.jobs > 0 || end > recentEnd) }

        mutating func turn() {
            old.add(recent)
            // No more jobs can be old than are left, because the released jobs are only estimated.
            old.jobs = min(old.jobs, load.jobs)
            old.bytes = min(old.bytes, load.bytes)
            recent = load
            recent.subtract(old)
            oldEnd = recentEnd
            recentEnd = end
        }

        mutating func admit(_ job: Load, _ offset: Int64) {
            load.add(job)
            end = offset + 1
        }

        /// Removes jobs from the load, as if the oldest were gone.
        mutating func release(_ jobs: Int) -> Load {
            let gone = IntakeGate.mean(load, jobs)
            let oldOnes = min(old.jobs, gone.jobs)
            old.subtract(IntakeGate.mean(old, oldOnes))
            recent.subtract(IntakeGate.mean(recent, gone.jobs - oldOnes))
            return load.subtract(gone)
        }

        mutating func finish(_ job: Load, _ offset: Int64) -> Load {
            if offset < oldEnd {
                old.subtract(job)
            } else if offset < recentEnd {
                recent.subtract(job)
            }
            return load.subtract(job)
        }
    }

    public let limits: Limits
    private let share: Load
    private var partitions: [Partition] = []
    /// Partitions that are neither gone nor ending.
    private var livePartitions = 0
    /// Load of all partitions, without ``orphans``.
    public private(set) var load = Load()
    /// Jobs of removed partitions. Nobody waits for these jobs, but they take room.
    public private(set) var orphans = Load()
    /// Bytes held, finished or not. They count where they are more than the jobs' own bytes.
    public var bytesHeld = 0
    /// Mean bytes of the records polled last. Rises at once and falls slowly.
    private var meanBytes = 0
    /// Bytes that the consumer has fetched ahead, about.
    private var bytesAhead = 0
    /// All partitions are paused because the store is in trouble.
    public private(set) var waitsForStore = false
    /// True while an operator has paused all sending.
    public private(set) var isAllPaused = false
    /// All partitions are paused for the limit.
    public private(set) var isPausedForLimit = false
    /// Number of times that all partitions were paused for the limit.
    public private(set) var limitPauses = 0
    /// Number of times that one partition was paused alone for its share.
    public private(set) var sharePauses = 0
    /// Time since which the gate gives no room while nothing is paused for the limit, in nanoseconds; nil: no stall.
    private var stalledSince: UInt64?
    private var nextTurn: UInt64 = 0
    private var actions: [Action] = []
    private var firstAction = 0

    /// Creates a gate without partitions. `now`: nanoseconds of the monotonic clock.
    public init(limits: Limits, now: UInt64) {
        self.limits = limits
        share = Load(
            jobs: Self.part(limits.partitionShare, of: limits.jobs),
            bytes: Self.part(limits.partitionShare, of: limits.bytes))
        nextTurn = now &+ limits.longHold
    }

    private static func part(_ share: Double, of whole: Int) -> Int {
        share >= 1 ? .max : max(1, Int(share * Double(whole)))
    }

    // MARK: Partitions

    /// Adds an assigned partition. The partition is paused at once if the others are paused for the limit or the store.
    public mutating func add(_ partition: Int) {
        while partitions.count <= partition { partitions.append(Partition()) }
        precondition(!partitions[partition].isLive, "partition number \(partition) is in use")
        partitions[partition] = Partition()
        partitions[partition].isLive = true
        livePartitions += 1
        if isPausedForLimit { insert(.limit, partition) }
        if waitsForStore { insert(.store, partition) }
        if isAllPaused { insert(.allPaused, partition) }
    }

    /// Ends a partition that the group revokes. Its jobs still count, but its pauses stay as they are.
    public mutating func revoke(_ partition: Int) {
        guard isLive(partition), !partitions[partition].isEnding else { return }
        partitions[partition].isEnding = true
        livePartitions -= 1
        if livePartitions == 1 { liftShares() }
    }

    /// Removes the partition. Its jobs are ``orphans`` until they finish.
    /// - Returns: whether the partition was paused by an order to the owner.
    @discardableResult
    public mutating func remove(_ partition: Int) -> Bool {
        guard isLive(partition) else { return false }
        revoke(partition)
        let gone = partitions[partition]
        partitions[partition] = Partition()
        load.subtract(gone.load)
        orphans.add(gone.load)
        return !gone.reasons.isEmpty
    }

    private func isLive(_ partition: Int) -> Bool {
        partitions.indices.contains(partition) && partitions[partition].isLive
    }

    /// Returns the reasons for which the partition is paused; empty: the partition isn't paused.
    public func reasons(_ partition: Int) -> Reason { isLive(partition) ? partitions[partition].reasons : [] }

    /// Returns the partition's jobs that are taken and not finished.
    public func load(_ partition: Int) -> Load { isLive(partition) ? partitions[partition].load : Load() }

    // MARK: Records

    /// Counts a job that was taken. The offsets of one partition rise.
    public mutating func admit(_ partition: Int, offset: Int64, bytes: Int) {
        let job = Load(jobs: 1, bytes: bytes)
        partitions[partition].admit(job, offset)
        load.add(job)
    }

    /// Removes a finished job. `bytes` may be an estimate, as long as a partition's sum is right when no job is left.
    /// - Returns: the reasons for which the partition is paused.
    @discardableResult
    public mutating func finish(_ partition: Int, offset: Int64, bytes: Int) -> Reason {
        load.subtract(partitions[partition].finish(Load(jobs: 1, bytes: bytes), offset))
        guard !partitions[partition].reasons.isEmpty else { return [] }
        if partitions[partition].reasons.contains(.share) { checkShare(partition) }
        return partitions[partition].reasons
    }

    /// Takes bytes off a job that was taken and is not finished.
    public mutating func shrink(_ partition: Int, offset: Int64, bytes: Int) {
        load.subtract(partitions[partition].finish(Load(jobs: 0, bytes: bytes), offset))
        if partitions[partition].reasons.contains(.share) { checkShare(partition) }
    }

    /// Removes jobs of an ending partition that go back to Kafka. The jobs themselves are not known.
    public mutating func returnJobs(_ partition: Int, jobs: Int) {
        load.subtract(partitions[partition].load.subtract(Self.mean(partitions[partition].load, jobs)))
    }

    /// Removes jobs of a partition that take no room any more. The jobs themselves are not known.
    /// - Returns: the reasons for which the partition is paused.
    @discardableResult
    public mutating func release(_ partition: Int, jobs: Int) -> Reason {
        load.subtract(partitions[partition].release(jobs))
        if partitions[partition].reasons.contains(.share) { checkShare(partition) }
        return partitions[partition].reasons
    }

    /// Pauses all partitions while the store can't take what has to wait, and resumes them when the store can again.
    public mutating func setWaitsForStore(_ waits: Bool) {
        guard waits != waitsForStore else { return }
        waitsForStore = waits
        set(.store, waits)
    }

    /// Pauses all partitions while an operator has paused all sending, and resumes them afterwards.
    public mutating func setAllPaused(_ isPaused: Bool) {
        guard isPaused != isAllPaused else { return }
        isAllPaused = isPaused
        set(.allPaused, isPaused)
    }

    /// Inserts or removes a reason of all partitions.
    private mutating func set(_ reason: Reason, _ isPresent: Bool) {
        for partition in partitions.indices {
            if isPresent { insert(reason, partition) } else { remove(reason, partition) }
        }
    }

    /// Removes jobs of removed partitions that are finished or given back.
    public mutating func finishOrphans(_ jobs: Int) {
        orphans.subtract(Self.mean(orphans, jobs))
    }

    fileprivate static func mean(_ load: Load, _ jobs: Int) -> Load {
        guard jobs < load.jobs else { return load }
        return Load(jobs: jobs, bytes: load.bytes / load.jobs * jobs)
    }

    /// Pauses a partition whose window of offsets is full, and resumes the partition when the window has room. A window
    /// is full at its limit and has room at half of it. In between nothing changes.
    public mutating func window(_ partition: Int, isFull: Bool, hasRoom: Bool) {
        if isFull {
            insert(.window, partition)
        } else if hasRoom {
            remove(.window, partition)
        }
    }

    /// Pauses a partition for its rest.
    public mutating func refuse(_ partition: Int) { insert(.refused, partition) }

    // MARK: Polling

    /// Notes polled records and their bytes.
    public mutating func polled(_ records: Int, bytes: Int) {
        guard records > 0 else { return }
        let mean = bytes / records
        meanBytes = mean > meanBytes ? mean : meanBytes - (meanBytes - mean) / 8
    }

    /// Notes the number of records that the consumer has fetched ahead.
    public mutating func fetchedAhead(_ records: Int) { bytesAhead = records * meanBytes }

    /// Jobs and bytes that count against the limits.
    public var total: Load {
        Load(jobs: load.jobs + orphans.jobs, bytes: max(load.bytes + orphans.bytes, bytesHeld))
    }

    /// True when jobs or bytes have reached their limit.
    public var isAtLimit: Bool {
        let total = total
        return total.jobs >= limits.jobs || total.bytes >= limits.bytes
    }

    /// True when three quarters of the jobs or bytes are taken.
    public var isNearLimit: Bool {
        let total = total
        return total.jobs >= limits.jobs - limits.jobs / 4 || total.bytes >= limits.bytes - limits.bytes / 4
    }

    /// True when apps beyond their share have to give room back: near the limit, and while partitions are paused for the
    /// limit or for their share.
    public var wantsRoom: Bool { isNearLimit || isPausedForLimit || isPausedForShare }

    /// Jobs that all apps together may keep while room is wanted: three quarters of the load at which paused partitions
    /// resume. The rest is for the apps that send.
    public var jobsToKeep: Int {
        Self.jobsToKeep(of: roomForJobs, share: isPausedForShare ? limits.partitionShare : 1)
    }

    /// Jobs that all apps together may keep of a room, so that partitions resume that are paused for a share of it.
    public static func jobsToKeep(of room: Int, share: Double) -> Int {
        Int(Double(room) * share / 2 * 3 / 4)
    }

    private var isPausedForShare: Bool {
        partitions.contains { $0.isLive && !$0.isEnding && $0.reasons.contains(.share) }
    }

    /// Jobs that can be taken, by the limit that jobs of the present mean size reach first.
    public var roomForJobs: Int {
        let (jobs, bytes) = (load.jobs + orphans.jobs, load.bytes + orphans.bytes)
        guard jobs > 0, bytes > 0 else { return limits.jobs }
        return min(limits.jobs, Int(Double(jobs) * min(1e6, Double(limits.bytes) / Double(bytes))))
    }

    /// Returns how many records to poll now, at most. 0: don't poll; a later ``settle(at:)`` or ``advance(to:)`` may
    /// make room. The result is 1 while all is paused, because the consumer's events have to be served.
    public mutating func room(atMost batch: Int, at now: UInt64) -> Int {
        if isPausedForLimit || waitsForStore || isAllPaused { return 1 }
        if bytesAhead > limits.bytesAhead {
            pauseForLimit()
            return 1
        }
        guard isAtLimit else { return min(batch, limits.jobs - total.jobs) }
        if stalledSince == nil { stalledSince = now }
        return 0
    }

    /// Bytes that records polled now may take; 0 at the limit.
    public var bytesLeft: Int { max(0, limits.bytes - total.bytes) }

    /// The gate gives no room, and nothing is paused for the limit yet.
    public var isStalled: Bool { stalledSince != nil }

    /// Ends a stall or a pause at the limit when finished jobs have made room.
    /// - Returns: whether a stall or pause has ended; polling continues then.
    @discardableResult
    public mutating func settle(at now: UInt64) -> Bool {
        if isPausedForLimit {
            guard hasRoomForAll, bytesAhead <= limits.bytesAhead / 2 else { return false }
            isPausedForLimit = false
            for partition in partitions.indices { remove(.limit, partition) }
            return true
        }
        guard stalledSince != nil, !isAtLimit else { return false }
        stalledSince = nil
        return true
    }

    /// Pauses what has been at its limit for long enough. To be called a few times in each ``Limits/stall``.
    public mutating func advance(to now: UInt64) {
        if now >= nextTurn {
            nextTurn = now &+ limits.longHold
            // Room that becomes free belongs to the others. They have another while before they are paused as well.
            if turn(), stalledSince != nil { stalledSince = now }
        }
        if !isPausedForLimit, bytesAhead > limits.bytesAhead { return pauseForLimit() }
        guard !isPausedForLimit, let since = stalledSince, now >= since &+ limits.stall, isAtLimit else {
            return
        }
        if pauseLargestAlone() {
            stalledSince = now
            return
        }
        pauseForLimit()
    }

    private mutating func pauseForLimit() {
        stalledSince = nil
        isPausedForLimit = true
        limitPauses += 1
        for partition in partitions.indices { insert(.limit, partition) }
    }

    /// Returns the next action; nil: none is left. To be drained after every call that is not a question.
    public mutating func nextAction() -> Action? {
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

    /// True when ``nextAction()`` has an order.
    public var hasActions: Bool { firstAction < actions.count }

    // MARK: Decisions

    /// True when there is room for all partitions that are not paused for another reason. Their load has fallen to half
    /// of the room that the partitions paused for their share leave. A part of the whole limit must be free, because
    /// the partitions would stop again at once otherwise.
    private var hasRoomForAll: Bool {
        var held = Load()
        for partition in partitions where partition.isLive && partition.reasons.contains(.share) {
            held.add(partition.load)
        }
        let total = total
        return Self.isHalf(total.jobs, held.jobs, limits.jobs)
            && Self.isHalf(total.bytes, held.bytes, limits.bytes)
    }

    private static func isHalf(_ total: Int, _ held: Int, _ limit: Int) -> Bool {
        total - held <= (limit - held) / 2 && limit - total >= max(1, limit / 16)
    }

    /// Makes recent jobs old, because another `longHold` has passed.
    /// - Returns: whether a partition was paused for its share.
    private mutating func turn() -> Bool {
        var working = 0
        for partition in partitions where partition.isWorking { working += 1 }
        var hasPaused = false
        for index in partitions.indices where partitions[index].isLive {
            let others = working - (partitions[index].isWorking ? 1 : 0)
            partitions[index].turn()
            if others > 0, isOverShare(partitions[index].old), pauseForShare(index) { hasPaused = true }
        }
        return hasPaused
    }

    /// Pauses the partition with the most jobs, if its load is over the share. At the limit its jobs may be all there
    /// is, so that the others can't show that they have work.
    private mutating func pauseLargestAlone() -> Bool {
        var largest: Int?
        for (index, partition) in partitions.enumerated()
        where partition.isLive && !partition.isEnding && partition.reasons.isEmpty
            && isOverShare(partition.load)
        {
            if largest.map({ partitions[$0].load.jobs < partition.load.jobs }) ?? true { largest = index }
        }
        guard let largest, livePartitions > 1 else { return false }
        return pauseForShare(largest)
    }

    private func isOverShare(_ load: Load) -> Bool { load.jobs >= share.jobs || load.bytes >= share.bytes }

    private mutating func pauseForShare(_ partition: Int) -> Bool {
        guard livePartitions > 1, !partitions[partition].isEnding,
            !partitions[partition].reasons.contains(.share)
        else { return false }
        sharePauses += 1
        insert(.share, partition)
        return true
    }

    private mutating func checkShare(_ partition: Int) {
        let load = partitions[partition].load
        if load.jobs <= share.jobs / 2, load.bytes <= share.bytes / 2 { remove(.share, partition) }
    }

    /// Lifts all pauses for a share, because a partition that is alone has no share to keep to.
    private mutating func liftShares() {
        for partition in partitions.indices { remove(.share, partition) }
    }

    private mutating func insert(_ reason: Reason, _ partition: Int) {
        guard isLive(partition), !partitions[partition].isEnding else { return }
        let wasPaused = !partitions[partition].reasons.isEmpty
        partitions[partition].reasons.insert(reason)
        if !wasPaused { actions.append(.pause(partition, reason)) }
    }

    private mutating func remove(_ reason: Reason, _ partition: Int) {
        guard isLive(partition), !partitions[partition].isEnding,
            partitions[partition].reasons.contains(reason)
        else { return }
        partitions[partition].reasons.remove(reason)
        if partitions[partition].reasons.isEmpty { actions.append(.resume(partition)) }
    }
}
