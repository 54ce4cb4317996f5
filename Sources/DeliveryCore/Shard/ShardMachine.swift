import DequeModule
import SluiceModel

/// Decisions of one shard: the fate of each record and push, the devices in memory, and the requests to the store. It
/// composes a ``DeliveryMachine`` and a ``DeviceResidency``, and passes facts and actions between them.
///
/// The shard keeps bytes by slot and by handle. After each call the shard does the actions of ``nextAction(at:)`` until that
/// is nil. After each call that may let waiting events continue, the shard also does those of ``nextEvent(at:)``. A
/// request or event of several parts has steps, which the machine runs as the actions and events of earlier parts are done.
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
        /// Number of connection pools.
        public var pools: Int
        /// Seed of the retries' jitter.
        public var seed: UInt64

        public init(
            index: Int, shards: Int, mode: StoreMode, delivery: DeliveryLimits, residency: ResidencyLimits,
            pools: Int = 1, seed: UInt64
        ) {
            self.index = index
            self.shards = shards
            self.mode = mode
            self.delivery = delivery
            self.residency = residency
            self.pools = pools
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
    var phase = Phase.running
    /// Progress since the last report to the intake.
    var news = ShardProgress()
    /// Actions that follow from an action of the delivery machine.
    var followers = Deque<ShardAction>(minimumCapacity: 64)
    /// Parts of requests and events that are still to run.
    var steps = Deque<Step>()
    private var lastHandle: UInt32 = 0
    /// Jobs that are being given back; nil when there is no abandonment.
    var abandonment: Abandonment?
    /// Kafka's numbers of the begun partitions, by slot; `notBegun` otherwise.
    var partitions: [Int32] = []
    /// Slots of partitions whose settling is awaited before their end; `releasing` has those awaited after it.
    var settling: [UInt16] = []
    var releasing: [UInt16] = []
    /// True until the report that all is settled.
    var settlesAll = false
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
    var retryLoadsAt: UInt64 = 0
    var poolWatch: PoolWatch
    /// Write of the last ``ShardAction/put(_:)``; nil once it was taken.
    var writing: ItemWriting?
    /// Item of the last ``ShardAction/depart(_:)``; nil once it was taken.
    var departing: ItemMigration?

    /// True while an operator has paused all sending.
    public internal(set) var isAllPaused = false

    static let notBegun = Int32.min

    struct CatchUpEnd {
        /// Offset of the last record to take in.
        var last: Int64
        /// Nanoseconds of the monotonic clock at which the catch-up ends in any case.
        var deadline: UInt64
    }

    /// - Parameter isAllPaused: nothing is sent before ``setPauses(all:topics:at:)``.
    public init(_ settings: Settings, isAllPaused: Bool = false) {
        self.settings = settings
        self.isAllPaused = isAllPaused
        delivery = DeliveryMachine(limits: settings.delivery, seed: settings.seed)
        residency = DeviceResidency(limits: settings.residency)
        poolWatch = PoolWatch(pools: settings.pools)
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

    mutating func newHandle() -> UInt32 {
        lastHandle &+= 1
        return lastHandle
    }

    // MARK: Actions

    /// True when actions of an event are left.
    var hasActions: Bool { !followers.isEmpty || delivery.hasActions }

    /// Returns the next action for the shard; nil when there is none. Call after every other call.
    public mutating func nextAction(at now: DeliveryTime) -> ShardAction? {
        while true {
            if let action = followers.popFirst() { return action }
            guard let action = delivery.nextAction() else {
                change = nil
                if !steps.isEmpty, runStep(followsEvents: false, at: now) { continue }
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
            while let handle = residency.takeChangeGivenBack() { followers.append(.giveBackChange(handle)) }
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
            return .readdress(slot, isStored: residency.isStored(slot))
        case .depart(let slot): return depart(slot, at: now)
        case .moveWanted(let slot):
            if !mustAwaitRemovals(of: delivery.device(of: slot)) { delivery.moveOn(slot, at: now) }
            return nil
        case .alert(let topic, let slot, let fault): return .alert(topic: topic, slot: slot, fault)
        case .poolOverloaded(let pool): return .poolOverloaded(pool)
        case .recovered(let topic): return .recovered(topic: topic)
        case .suspended(let topic): return .suspended(topic: topic)
        case .resumed(let topic): return .resumed(topic: topic)
        case .pushesWanted(let topic, let count): return .pushesWanted(topic: topic, count: count)
        case .isolated(let topic): return .isolated(topic: topic)
        case .parked(let topic, let pushes): return .parked(topic: topic, pushes: pushes)
        case .readsAhead(let topic, let pushes): return .readsAhead(topic: topic, pushes: pushes)
        case .unparked(let topic): return .unparked(topic: topic)
        case .crowds(let topic, let pushes): return .crowds(topic: topic, pushes: pushes)
        case .limitsFlights(let tenant, let most): return .limitsFlights(tenant: tenant, most)
        case .tenant(let number, let isActive): return .tenant(number, isActive: isActive)
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

    mutating func reportReturned(_ partitionSlot: UInt16) { followers.append(.gaveBack(partitionSlot)) }

    /// Frees the slot of an item that has ended, was given back or was evicted.
    private mutating func release(_ slot: UInt32) {
        countFreed(slot)
        residency.removeItem(slot)
        delivery.release(slot)
    }

    mutating func countFreed(_ slot: UInt32) {
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

    /// Figures of this moment.
    public var figures: ShardFigures { ShardFigures(delivery, residency) }
}
