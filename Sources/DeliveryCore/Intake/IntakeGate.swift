/// How much of Kafka a worker takes in: it counts the jobs that are taken and not finished, and says which
/// partitions to pause and to resume.
///
/// A partition is paused for one or more of these reasons (``Reason``):
/// - *limit*: the worker holds as many jobs or bytes as it may. It first only stops polling, because a pause throws
///   away what the consumer has fetched ahead; all partitions are paused when nothing has become free for a while.
///   They resume at half.
/// - *share*: one partition's jobs are held for long and take more than their share of the limit, while others have
///   work: it is paused alone, until its jobs are down to half of the share.
/// - *window*: its ``OffsetTracker`` has no room.
/// - *store*: the owner says so, of all.
///
/// Per partition a pause and a resume alternate strictly, whatever the reasons do. The limit is passed by less than
/// one batch of records.
///
/// Partitions go by small numbers that the owner gives and uses again. Pure: time is an argument, in nanoseconds of a
/// monotonic clock. O(1) for each record; nothing is allocated but when a partition is added or paused.
public struct IntakeGate: ~Copyable, Sendable {
    private struct Partition: Sendable {
        var isLive = false
        /// The group takes it away: it is neither paused nor resumed any more.
        var isEnding = false
        var reasons: Reason = []
        var load = Load()
        /// Of `load`: what was taken below `oldEnd`, and from there to `recentEnd`. The rest is younger than a turn.
        var old = Load()
        var recent = Load()
        var oldEnd = Int64.min
        var recentEnd = Int64.min
        /// One above the highest offset taken.
        var end = Int64.min

        /// It has jobs, or had one in this turn.
        var isWorking: Bool { isLive && !isEnding && (load.jobs > 0 || end > recentEnd) }

        mutating func turn() {
            old.add(recent)
            // Which jobs were released is an estimate: no more of them are old than are left.
            old.jobs = min(old.jobs, load.jobs)
            old.bytes = min(old.bytes, load.bytes)
            recent = load
            recent.subtract(old)
            oldEnd = recentEnd
            recentEnd = end
        }

        mutating func take(_ job: Load, _ offset: Int64) {
            load.add(job)
            end = offset + 1
        }

        /// The oldest are taken for those that are gone.
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
    /// Of all partitions, without ``orphans``.
    public private(set) var load = Load()
    /// Jobs of partitions that went away: nobody waits for them, but they take room.
    public private(set) var orphans = Load()
    /// Bytes that are held whatever is finished; counted where they are more than the jobs' own.
    public var bytesHeld = 0
    /// All partitions are paused as the store is in trouble.
    public private(set) var isHeld = false
    /// All partitions are paused for the limit.
    public private(set) var isPausedForLimit = false
    /// How often that happened.
    public private(set) var limitPauses = 0
    /// How often one partition was paused alone for its share.
    public private(set) var sharePauses = 0
    /// Since when the gate gives no room although nothing is paused for the limit.
    private var stalledSince: UInt64?
    private var nextTurn: UInt64 = 0
    private var actions: [Action] = []
    private var firstAction = 0

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

    /// A partition is assigned. It is paused at once if the others are paused for the limit.
    public mutating func add(_ partition: Int) {
        while partitions.count <= partition { partitions.append(Partition()) }
        precondition(!partitions[partition].isLive, "partition number \(partition) is in use")
        partitions[partition] = Partition()
        partitions[partition].isLive = true
        livePartitions += 1
        if isPausedForLimit { insert(.limit, partition) }
        if isHeld { insert(.store, partition) }
    }

    /// The group takes the partition away: its jobs still count, but it is left as it is from now on.
    public mutating func end(_ partition: Int) {
        guard isLive(partition), !partitions[partition].isEnding else { return }
        partitions[partition].isEnding = true
        livePartitions -= 1
        if livePartitions == 1 { liftShares() }
    }

    /// The partition is gone; its jobs are ``orphans`` until they finish.
    /// - Returns: whether it was paused, as its owner was told.
    @discardableResult
    public mutating func remove(_ partition: Int) -> Bool {
        guard isLive(partition) else { return false }
        end(partition)
        let gone = partitions[partition]
        partitions[partition] = Partition()
        load.subtract(gone.load)
        orphans.add(gone.load)
        return !gone.reasons.isEmpty
    }

    private func isLive(_ partition: Int) -> Bool {
        partitions.indices.contains(partition) && partitions[partition].isLive
    }

    /// Why the partition is paused; empty: it is not.
    public func reasons(_ partition: Int) -> Reason { isLive(partition) ? partitions[partition].reasons : [] }

    /// The partition's jobs taken and not finished.
    public func load(_ partition: Int) -> Load { isLive(partition) ? partitions[partition].load : Load() }

    // MARK: Records

    /// A job was taken. Offsets of one partition rise.
    public mutating func take(_ partition: Int, offset: Int64, bytes: Int) {
        let job = Load(jobs: 1, bytes: bytes)
        partitions[partition].take(job, offset)
        load.add(job)
    }

    /// A job is finished. `bytes` may be an estimate, as long as a partition's sum is right when none is left.
    /// - Returns: why the partition is paused.
    @discardableResult
    public mutating func finish(_ partition: Int, offset: Int64, bytes: Int) -> Reason {
        load.subtract(partitions[partition].finish(Load(jobs: 1, bytes: bytes), offset))
        guard !partitions[partition].reasons.isEmpty else { return [] }
        if partitions[partition].reasons.contains(.share) { checkShare(partition) }
        return partitions[partition].reasons
    }

    /// Jobs of an ending partition go back to Kafka; which ones is not known.
    public mutating func giveBack(_ partition: Int, jobs: Int) {
        load.subtract(partitions[partition].load.subtract(Self.mean(partitions[partition].load, jobs)))
    }

    /// Jobs of a partition that take no room any more; which ones is not known.
    /// - Returns: why the partition is paused.
    @discardableResult
    public mutating func release(_ partition: Int, jobs: Int) -> Reason {
        load.subtract(partitions[partition].release(jobs))
        if partitions[partition].reasons.contains(.share) { checkShare(partition) }
        return partitions[partition].reasons
    }

    /// The store can't take what has to wait, or can again.
    public mutating func hold(_ isHeld: Bool) {
        guard isHeld != self.isHeld else { return }
        self.isHeld = isHeld
        for partition in partitions.indices {
            if isHeld { insert(.store, partition) } else { remove(.store, partition) }
        }
    }

    /// Jobs of partitions that went away are finished, or given back.
    public mutating func finishOrphans(_ jobs: Int) {
        orphans.subtract(Self.mean(orphans, jobs))
    }

    fileprivate static func mean(_ load: Load, _ jobs: Int) -> Load {
        guard jobs < load.jobs else { return load }
        return Load(jobs: jobs, bytes: load.bytes / load.jobs * jobs)
    }

    /// What the partition's window of offsets says: full at its limit, roomy at half of it, nothing in between.
    public mutating func window(_ partition: Int, isFull: Bool, hasRoom: Bool) {
        if isFull {
            insert(.window, partition)
        } else if hasRoom {
            remove(.window, partition)
        }
    }

    // MARK: Polling

    /// Jobs and bytes that count against the limits.
    public var total: Load {
        Load(jobs: load.jobs + orphans.jobs, bytes: max(load.bytes + orphans.bytes, bytesHeld))
    }

    public var isAtLimit: Bool {
        let total = total
        return total.jobs >= limits.jobs || total.bytes >= limits.bytes
    }

    /// How many records to poll now, at most. 0: don't poll; a later ``settle(at:)`` or ``advance(to:)`` may make
    /// room. While all is paused it is 1: the consumer's events have to be served.
    public mutating func room(atMost batch: Int, at now: UInt64) -> Int {
        if isPausedForLimit || isHeld { return 1 }
        guard isAtLimit else { return min(batch, limits.jobs - total.jobs) }
        if stalledSince == nil { stalledSince = now }
        return 0
    }

    /// The gate gives no room, and nothing is paused for it (yet).
    public var isStalled: Bool { stalledSince != nil }

    /// After jobs were finished: ends a stall or a pause at the limit when there is room again.
    /// - Returns: whether it did; polling goes on then.
    @discardableResult
    public mutating func settle(at now: UInt64) -> Bool {
        if isPausedForLimit {
            guard hasRoomForAll else { return false }
            isPausedForLimit = false
            for partition in partitions.indices { remove(.limit, partition) }
            return true
        }
        guard stalledSince != nil, !isAtLimit else { return false }
        stalledSince = nil
        return true
    }

    /// Time has passed: pauses what has been at its limit for long enough. Call it a few times in each ``Limits/stall``.
    public mutating func advance(to now: UInt64) {
        if now >= nextTurn {
            nextTurn = now &+ limits.longHold
            // What comes free is the others' now: they have another while before they are paused as well.
            if turn(), stalledSince != nil { stalledSince = now }
        }
        guard !isPausedForLimit, let since = stalledSince, now >= since &+ limits.stall, isAtLimit else {
            return
        }
        if pauseLargestAlone() {
            stalledSince = now
            return
        }
        stalledSince = nil
        isPausedForLimit = true
        limitPauses += 1
        for partition in partitions.indices { insert(.limit, partition) }
    }

    /// What to do next; to be drained after every call that is not a question.
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

    public var hasActions: Bool { firstAction < actions.count }

    // MARK: Decisions

    /// Room for all partitions that are not paused for another reason: what is theirs has fallen to half of what the
    /// held-up partitions leave them. Some of the whole must be free, or they would stop again at once.
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

    /// Another `longHold` has passed: what was recent is old now.
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

    /// At the limit, one partition's jobs may be all there is: the others have no chance to show that they have work.
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

    /// A partition that is alone has no share to keep to.
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
