import DequeModule
import SluiceModel

/// Decisions of one shard: the fate of each record and push, the devices in memory, and the requests to the store. It
/// composes a ``DeliveryMachine`` and a ``DeviceResidency``, and passes facts and actions between them.
///
/// The shard keeps bytes by slot and by handle. After each call it does the actions of ``nextAction()`` until that is
/// nil. It also does the actions of ``nextEvent()`` after each call that may let waiting events continue.
///
///     record ── mustWait ── handle ──▶ nextEvent: proceed ─┐
///                  └──── nil ──────────────────────────────┴▶ admit ──▶ Settlement, then nextAction
///
/// The machine has one owner and one thread. Nothing is allocated per push in steady state.
public struct ShardMachine: ~Copyable {
    /// Settings of a shard, fixed for its life.
    public struct Settings: Sendable {
        /// The shard's number among all shards of its worker.
        public var index: Int
        /// Number of the worker's shards.
        public var shards: Int
        /// Mode of keeping items that wait for long.
        public var mode: StoreMode
        /// Limits of the delivery machine.
        public var delivery: DeliveryLimits
        /// Limits of loads from the store.
        public var residency: ResidencyLimits
        /// Seed of the retries' jitter.
        public var seed: UInt64

        public init(
            index: Int, shards: Int, mode: StoreMode, delivery: DeliveryLimits, residency: ResidencyLimits,
            seed: UInt64
        ) {
            self.index = index
            self.shards = shards
            self.mode = mode
            self.delivery = delivery
            self.residency = residency
            self.seed = seed
        }
    }

    enum Phase: UInt8 {
        case running
        /// Sends nothing new.
        case draining
        /// The worker has ended: later answers are ignored.
        case ended
    }

    let settings: Settings
    /// Only observers read it from outside.
    package internal(set) var delivery: DeliveryMachine
    /// Only observers read it from outside.
    var residency: DeviceResidency
    private(set) var phase = Phase.running
    /// Progress since the last report to the intake.
    var news = ShardProgress()
    /// Actions that follow from an action of the delivery machine.
    private var followers = Deque<ShardAction>(minimumCapacity: 64)
    private var lastHandle: UInt32 = 0
    /// Jobs that the current abandonment has given back; nil when there is none.
    private var abandoned: Int?
    /// Kafka's numbers of the begun partitions, by slot; `notBegun` otherwise.
    var partitions: [Int32] = []
    /// Slots of partitions whose settling is awaited before their end; `releasing` has those awaited after it.
    private var settling: [UInt16] = []
    private var releasing: [UInt16] = []
    private var settlesAll = false
    /// Reports that are due.
    var reports: [ShardReport] = []
    /// Reports that are due when the line for loads is short.
    var reportsWhenLineIsShort: [ShardReport] = []
    /// True when a batch was handed to the store since the last flush.
    private var hasWritten = false
    private var produced = 0
    private var epoch: UInt32 = 0
    /// Catch-ups that end when records that wait for loads were taken in, by the partition's slot.
    var catchUpEnds: [UInt16: CatchUpEnd] = [:]
    /// Record of the token change that is being applied; nil when there is none, or it may not wait.
    var change: RecordPlace?

    /// Time before which no load is issued, in nanoseconds of the monotonic clock, because the last load found no
    /// slot; 0 when none has.
    public internal(set) var retryLoadsAt: UInt64 = 0
    /// Item of the last ``ShardAction/put(_:)``.
    public internal(set) var writing: ItemWriting?
    /// Item of the last ``ShardAction/depart(_:)``.
    public internal(set) var departing: ItemMigration?

    /// True while an operator has paused all sending.
    public private(set) var isAllPaused = false

    private static let notBegun = Int32.min

    struct CatchUpEnd {
        /// Offset of the last record to take in.
        var last: Int64
        /// Nanoseconds of the monotonic clock at which the catch-up ends in any case.
        var deadline: UInt64
    }

    /// - Parameter isAllPaused: nothing is sent before ``setAllPaused(_:)``.
    public init(_ settings: Settings, isAllPaused: Bool = false) {
        self.settings = settings
        self.isAllPaused = isAllPaused
        delivery = DeliveryMachine(limits: settings.delivery, seed: settings.seed)
        residency = DeviceResidency(limits: settings.residency)
    }

    public var mode: StoreMode { settings.mode }
    var hasStore: Bool { settings.mode.hasStore }

    /// True while pushes that wait for their turn may be sent.
    public var maySend: Bool { phase == .running && !isAllPaused }
    /// True when nothing new is sent, because the worker drains or has ended.
    public var isDraining: Bool { phase != .running }
    /// True when the worker has ended and later answers are ignored.
    public var hasEnded: Bool { phase == .ended }
    /// Pushes in memory.
    public var count: Int { delivery.count }

    /// Pauses all sending, or resumes it. Pushes in flight end as usual.
    public mutating func setAllPaused(_ isPaused: Bool) { isAllPaused = isPaused }

    mutating func newHandle() -> UInt32 {
        lastHandle &+= 1
        return lastHandle
    }

    // MARK: Actions

    /// Returns the next action for the shard; nil when there is none. Call after every other call.
    public mutating func nextAction(at now: DeliveryTime) -> ShardAction? {
        while true {
            if let action = followers.popFirst() { return action }
            guard let action = delivery.nextAction() else {
                change = nil
                return nil
            }
            if let action = follow(action, at: now) { return action }
        }
    }

    /// Passes an action of the delivery machine to the residency. Returns the action that is left for the shard; nil
    /// when none is.
    @inline(__always)
    private mutating func follow(_ action: DeliveryAction, at now: DeliveryTime) -> ShardAction? {
        switch action {
        case .enqueue(let slot, let atFront): return .enqueue(slot, atFront: atFront)
        case .dequeue(let slot): return .dequeue(slot)
        case .requeue(let slot): return .requeue(slot)
        case .finish(let slot, let kind, let cause, let successor):
            var facts = OutcomeFacts(delivery.recordPlace(slot), delivery.info(slot).progress)
            if residency.isStored(slot), hasStore {
                isEnding(&facts, delivery.isOffsetDone(slot), residency.itemEnded(slot)?.item)
            }
            release(slot)
            return .finish(slot, kind, cause, successor: successor, facts)
        case .drop(let slot):
            let partition = delivery.recordPlace(slot).partitionSlot
            // The intake doesn't wait for items that the store has.
            if !delivery.isOffsetDone(slot) { countReturned(partition) }
            residency.givenBack(slot)
            release(slot)
            for handle in residency.takeChangesGivenBack() { followers.append(.giveBackChange(handle)) }
            return .giveBack(slot)
        case .store(let slot, let version): return store(slot, version, at: now)
        case .evict(let slot):
            countFreed(slot)
            residency.evict(slot)
            delivery.release(slot)
            return .evict(slot)
        case .awaitsTurn(let slot):
            residency.awaitsTurn(slot)
            return nil
        case .keepPresence(let number):
            keepPresence(number, at: now)
            return nil
        case .noteMove(let slot):
            // A crash must repeat the first of several changes, because the store has the item under the first token.
            if !residency.isNoted(slot) { residency.noted(slot, by: hasStore ? change : nil) }
            return .noteMove(slot)
        case .noteErasure(let slot):
            residency.noted(slot, by: hasStore ? change : nil)
            return nil
        case .readdress(let slot, let device):
            residency.moved(slot, delivery.recordPlace(slot), to: device)
            return .readdress(slot)
        case .depart(let slot): return depart(slot, at: now)
        case .moveWanted(let slot):
            if !mustAwaitRemovals(of: delivery.device(of: slot)) { delivery.moveOn(slot, at: now) }
            return nil
        case .alert(let topic, let slot, let fault): return .alert(topic: topic, slot: slot, fault)
        case .recovered(let topic): return .recovered(topic: topic)
        case .suspended(let topic): return .suspended(topic: topic)
        case .resumed(let topic): return .resumed(topic: topic)
        case .probeWanted(let topic): return .probeWanted(topic: topic)
        case .offsetDone(let partition, let offset):
            complete(RecordPlace(partitionSlot: partition, offset: offset), isRepeated: false)
            return nil
        }
    }

    /// Sets the facts of an ended item that the store has, for the changelog and the delivery report.
    mutating func isEnding(_ facts: inout OutcomeFacts, _ isOffsetDone: Bool, _ ended: EndedItem?) {
        facts.isStored = true
        facts.isOffsetDone = isOffsetDone
        guard let ended else { return }
        switch mode {
        case .none, .local: break
        case .changelog: facts.removal = .later(ended)
        // A revoked partition has no items left to remove.
        case .transactions: if isBegun(ended.place.partitionSlot) { facts.removal = .now(ended) }
        }
    }

    mutating func forgetPresence(of device: DeviceKey, in slot: UInt16) {
        followers.append(.forgetPresence(device, in: slot))
    }

    mutating func reportReturned(_ partitionSlot: UInt16) { followers.append(.gaveBack(partitionSlot)) }

    /// Frees the slot of an item that has ended, was given back or was evicted.
    private mutating func release(_ slot: UInt32) {
        countFreed(slot)
        residency.removeItem(slot)
        delivery.release(slot)
    }

    private mutating func countFreed(_ slot: UInt32) {
        if delivery.isOffsetDone(slot), !residency.isRestored(slot) {
            freed(delivery.recordPlace(slot).partitionSlot)
        }
    }

    /// Counts a job that is gone and whose offset was complete before.
    mutating func freed(_ partitionSlot: UInt16) { news.freed[partitionSlot, default: 0] += 1 }

    /// Does the same for an item without a slot.
    mutating func freed(_ place: RecordPlace, _ isOffsetDone: Bool, _ resident: ResidentFacts) {
        if isOffsetDone, !resident.isRestored { freed(place.partitionSlot) }
    }

    /// Completes the offset of a record because the store has its item.
    mutating func complete(_ place: RecordPlace, isRepeated: Bool) {
        news.completed.append(ShardProgress.Completion(place: place, isRepeated: isRepeated))
    }

    /// Counts a job that the intake has to count off.
    mutating func countReturned(_ partitionSlot: UInt16) {
        guard let count = abandoned else { return followers.append(.gaveBack(partitionSlot)) }
        abandoned = count + 1
    }

    private mutating func keepPresence(_ number: UInt32, at now: DeliveryTime) {
        guard hasStore else { return }
        let known = residency.keepPresence(delivery.presence(number, at: now))
        let item = delivery.item(ofPresence: number)
        var slots = [known.partition]
        delivery.forEachPartition(ofPresence: number) { if !slots.contains($0) { slots.append($0) } }
        for slot in slots where isBegun(slot) {
            followers.append(.keepPresence(known, in: slot, item: item))
        }
    }

    // MARK: Partitions

    func isBegun(_ slot: UInt16) -> Bool {
        Int(slot) < partitions.count && partitions[Int(slot)] != Self.notBegun
    }

    /// Returns true when the partition of this number still has the slot.
    func has(_ slot: UInt16, _ partition: Int32) -> Bool {
        !hasStore || isBegun(slot) && partitions[Int(slot)] == partition
    }

    /// Begins a partition under a slot that an earlier partition may have had. All records up to `readThrough` are
    /// read.
    /// - Parameters:
    ///   - earlierFrom: offset from which stored items above `readThrough` belong to an earlier log of the topic.
    ///   - marks: records whose items the store has under other tokens.
    public mutating func beginPartition(
        _ slot: UInt16, partition: Int32, readThrough: Int64 = -1, earlierFrom: Int64 = .max,
        committed: Int64 = 0, marks: [(offset: Int64, id: APNSID)] = []
    ) {
        if hasStore {
            while partitions.count <= Int(slot) { partitions.append(Self.notBegun) }
            partitions[Int(slot)] = partition
            residency.beginPartition(slot, readThrough: readThrough, earlierFrom: earlierFrom)
            residency.committed(slot, committed)
            for mark in marks {
                // All shards know the marks, and one shard has them removed.
                residency.foundMark(
                    RecordPlace(partitionSlot: slot, offset: mark.offset), mark.id,
                    forgets: settings.index == 0)
            }
        }
        delivery.begin(partition: slot)
    }

    /// Sends nothing of a partition that begins next, until ``endCatchUp(_:at:)``.
    public mutating func beginCatchUp(_ slot: UInt16) { delivery.beginCatchUp(partition: slot) }

    /// Sends the pushes of a partition, because its uncommitted records were handed in. Records that still wait for loads
    /// are taken in before, because each of them may outdate a push.
    public mutating func endCatchUp(_ slot: UInt16, at now: DeliveryTime) {
        guard let last = residency.recordsForLoads()[slot]?.upperBound else {
            return delivery.endCatchUp(partition: slot, at: now)
        }
        catchUpEnds[slot] = CatchUpEnd(
            last: last, deadline: now.monotonicNanoseconds + CatchUp.patience)
    }

    /// Ends the catch-ups whose records were taken in, or whose time is up.
    mutating func endCatchUps(at now: DeliveryTime) {
        let waiting = residency.recordsForLoads()
        for (slot, end) in catchUpEnds.sorted(by: { $0.key < $1.key }) {
            if let first = waiting[slot]?.lowerBound, first <= end.last {
                guard now.monotonicNanoseconds >= end.deadline else { continue }
                reports.append(.catchUpCut(slot: slot, readTo: first, end: end.last + 1))
            }
            catchUpEnds[slot] = nil
            delivery.endCatchUp(partition: slot, at: now)
        }
    }

    /// Ends a partition: no more of its items are put in the store or loaded.
    public mutating func endPartition(_ slot: UInt16) {
        delivery.end(partition: slot)
        catchUpEnds[slot] = nil
        settling.removeAll { $0 == slot }
        releasing.removeAll { $0 == slot }
        guard hasStore else { return }
        if Int(slot) < partitions.count { partitions[Int(slot)] = Self.notBegun }
        residency.endPartition(slot)
    }

    /// Gives the jobs of a partition, or of all (nil), back to Kafka, except those in flight. ``abandonWaiting(_:)``
    /// follows.
    public mutating func abandon(_ slot: UInt16?, at now: DeliveryTime) {
        abandoned = 0
        delivery.abandon(partition: slot, at: now)
    }

    /// Does the same for events that wait for devices.
    public mutating func abandonWaiting(_ slot: UInt16?) { residency.abandon(slot) }

    /// Ends an abandonment, when all of its actions are done. Returns the number of jobs that were given back.
    public mutating func abandonmentEnded() -> Int {
        defer { abandoned = nil }
        return abandoned ?? 0
    }

    /// Requests a report of ``takeSettled()`` once no item of the partition is in memory or awaits its removal.
    public mutating func settle(_ slot: UInt16) { settling.append(slot) }

    /// Does the same for a partition that has ended.
    public mutating func awaitRelease(_ slot: UInt16) { releasing.append(slot) }

    /// Stops sending new pushes. An abandonment of all partitions follows, and a report when everything is settled.
    public mutating func drain() {
        if phase == .running { phase = .draining }
        settlesAll = true
    }

    /// Returns the reports of settled partitions. All but ``ShardReport/settledAll`` wait until the records written
    /// so far are produced.
    public mutating func takeSettled() -> [ShardReport] {
        guard !settling.isEmpty || !releasing.isEmpty || settlesAll else { return [] }
        let settled = settling.filter { isSettled($0) }
        let released = releasing.filter { isSettled($0) }
        var reports: [ShardReport] =
            settled.map { .settled(slot: $0) } + released.map { .released(slot: $0) }
        settling.removeAll { settled.contains($0) }
        releasing.removeAll { released.contains($0) }
        if settlesAll, delivery.count == 0, residency.isSettled(nil) {
            settlesAll = false
            reports.append(.settledAll)
        }
        return reports
    }

    private func isSettled(_ slot: UInt16) -> Bool {
        !delivery.hasItems(partition: slot) && residency.isSettled(slot)
    }

    // MARK: The end

    /// Ends the machine because the worker ends. Token changes that wait for items in flight are given back to Kafka,
    /// because the items don't move here any more. ``giveUpUnanswered(at:)``, ``leaveAll()`` and
    /// ``abandonWaiting(_:)`` follow.
    public mutating func finish() {
        phase = .ended
        residency.giveBackChanges(nil)
    }

    /// Ends items in flight that must not be sent twice.
    public mutating func giveUpUnanswered(at now: DeliveryTime) { delivery.giveUpUnanswered(at: now) }

    /// Counts all pushes in memory as gone without an outcome; the shard frees them.
    public mutating func leaveAll() {
        for slot in 0..<UInt32(delivery.usedSlots)
        where delivery.state(slot).isLive { countFreed(slot) }
    }

    /// Returns the handles of all waiting events, which the shard frees with ``discard(record:)`` and ``discard(_:)``.
    public mutating func takeAllHandles() -> [UInt32] { residency.takeAllHandles() }

    // MARK: The intake

    /// Returns this turn's progress for the intake; nil when there is none.
    /// - Parameter holdsBack: true when records wait for the next transaction. Offsets that are complete because of
    ///   these records must not be committed in the present one.
    public mutating func takeProgress(holdsBack: Bool) -> ShardProgress? {
        guard !news.isEmpty, !holdsBack || hasEnded else { return nil }
        let taken = news
        news = ShardProgress()
        return taken
    }

    /// Returns the requests of a batch that is handed to the store now.
    public mutating func takeRequests() -> StoreRequests {
        hasWritten = true
        return residency.takeRequests()
    }

    /// Epoch of a changelog record that is produced now.
    public var changeEpoch: ChangeEpoch { ChangeEpoch(shard: UInt16(settings.index), epoch: epoch) }

    /// Counts a record of the changelog that was produced.
    public mutating func changed() { produced += 1 }

    /// Ends an epoch, because all requests to the store so far are on their way to it.
    public mutating func flushed() -> ShardFlush {
        defer {
            hasWritten = false
            produced = 0
            epoch &+= 1
        }
        return ShardFlush(hasWritten: hasWritten, produced: produced, epoch: changeEpoch)
    }

    // MARK: Observation

    /// Checks the invariants of a part of the slots, and of waiting events while few devices wait.
    /// - Returns: the slot to continue with, and the first invariant that doesn't hold; nil when all hold.
    public func checkInvariants(from start: Int, slots: Int) -> (next: Int, problem: String?) {
        let (next, problem) = delivery.checkInvariants(from: start, slots: slots)
        let isSmall = residency.waitingDevices <= slots
        return (next, problem ?? (isSmall ? residency.checkInvariants() : nil))
    }

    public var deliveryMilestones: DeliveryMilestones { delivery.milestones }
    /// Partitions whose items in the store are still being scanned.
    public var scansUnderWay: Int { residency.scansUnderWay }
    /// Devices that have items only in the store.
    public var evictedDevices: Int { residency.evictedDevices }
    /// Items in memory that came from the store.
    public var restoredItems: Int { residency.restoredItems }
    /// Devices that are online and whose items wait for their turn in the store.
    public var devicesAwaitingTurn: Int { residency.devicesAwaitingTurn }
}
