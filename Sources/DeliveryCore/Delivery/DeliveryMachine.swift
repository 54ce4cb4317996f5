import CPrefetch
import DequeModule
import SluiceModel
import StreamScheduling

/// Decisions about every push between its Kafka record and its outcome: it supersedes, orders, holds, schedules,
/// expires and retries. Values in, values out: no I/O, no clock, no threads.
///
/// A push has a slot from ``admit(_:at:)`` to ``release(_:)``. The owner keeps the job's bytes by slot. After every
/// call the owner does the actions of ``nextAction()``. The owner reports the results:
///
///     job      ── admit ──▶ placed / replaced / ended
///     action   ── enqueue ──▶ stream scheduler ── its turn ──▶ begin ── true ──▶ request
///     answer   ── accepted, answered, failed ──▶ finish, or again later
///     timer    ── advance ──▶ what is due, what has expired
///
/// - Identity: device token, topic and collapse identifier, or the `apns-id` without a collapse identifier.
/// - At most one push of an identity is in flight, and at most one more is pending. A newer push replaces the pending
///   one, and the push in flight isn't retried. A newer push that has expired does the same. After a restart APNs may
///   have accepted it before, and an older push would arrive after it.
/// - Everything is O(1), with three exceptions. Work on all items of one device is bounded by
///   ``DeliveryLimits/pendingPerDevice`` for admitted records. Timers are logarithmic. Functions over all slots, such
///   as ``abandon(partition:at:)``, are O(slots).
/// - Nothing is allocated per push in steady state.
/// - The machine has one owner and one thread.
public struct DeliveryMachine: ~Copyable {
    /// Slot number that stands for no slot.
    public static let noSlot = UInt32.max

    /// Most items of one device after many tokens have changed to one. Moved items are admitted beyond
    /// ``DeliveryLimits/pendingPerDevice``, up to this number.
    static let mostPerDevice = 4096

    public let limits: DeliveryLimits
    let items: UnsafeMutablePointer<DeliveryItem>
    private let freeSlots: UnsafeMutablePointer<UInt32>
    private var freeCount: Int
    /// First slot that was never used.
    private(set) var highWater = 0
    var devices: DeviceTable
    var presences: PresenceTable
    /// Timers of waiting items, by the monotonic clock.
    var timers: DueQueue
    var actions = Deque<DeliveryAction>(minimumCapacity: 256)
    /// Counts since the machine's creation.
    public internal(set) var milestones = DeliveryMilestones()
    var deviceBackoff: DeviceBackoff
    var generator: SeededGenerator
    var nextOrder: UInt64 = 1
    var nextStoreVersion: UInt32 = 1

    var circuits: [TopicCircuit] = []
    /// Circuits for which arriving pushes may have to wait.
    var openCircuits = 0
    var budgets: Budgets
    /// Holds by a 503 with `Retry-After`, by pool.
    var poolPauses: [RetryAfterPause] = []
    /// Holds that had not ended at the last check.
    var pausedPools = 0
    /// Isolated items in flight, by pool.
    var isolations: [UInt16: Isolation] = [:]
    /// Items that wait for their pool, by pool; nil while the pool is available.
    var unavailablePools: [ItemList?] = []
    /// Items of devices that are back: urgent items, and others.
    var returning = InlineArray<2, ItemList>(repeating: ItemList())
    /// Time of the next return if returns keep their rate, in nanoseconds of the monotonic clock.
    var returnSchedule: UInt64 = 0
    /// New tokens of items with ``DeliveryItem/Flags/moves``, or that depart.
    var moves: [UInt32: Move] = [:]
    /// Partitions that are being revoked: failed items aren't retried here.
    var endingPartitions: Set<UInt16> = []
    /// Partitions whose uncommitted records are still being read: nothing of them is sent.
    var catchingUp: Set<UInt16> = []
    var isDraining = false
    var sweepCursor = 0
    var sweptAt: UInt64 = 0
    /// Ring of the slots that were prefetched last.
    private let expected = UnsafeMutablePointer<UInt32>.allocate(capacity: 8)
    private var expectedCursor = 0
    /// Room for the slots of one device.
    var scratch: [UInt32] = []
    private let inPlace = InPlace()

    struct Move {
        var device: DeviceKey
        var isElsewhere: Bool
        /// True when the owner decides when the item moves.
        var mayWait: Bool
        /// Time at which the token was changed, in milliseconds since the epoch; nil when unknown.
        var occurredMilliseconds: Int64?
    }

    /// - Parameter seed: seed of the jitter.
    public init(limits: DeliveryLimits, seed: UInt64) {
        self.limits = limits
        budgets = Budgets(limits: limits)
        items = allocateLines(capacity: limits.capacity)
        freeSlots = .allocate(capacity: limits.capacity)
        expected.initialize(repeating: 0, count: 8)
        freeCount = 0
        devices = DeviceTable(capacity: limits.capacity + limits.knownDevices + 2)
        presences = PresenceTable(capacity: limits.knownDevices)
        timers = DueQueue(capacity: limits.capacity)
        deviceBackoff = DeviceBackoff(
            .init(
                capacity: min(4096, limits.capacity),
                retryAfterLimit: UInt64(max(0, limits.retry.retryAfterLimitMilliseconds)) * 1_000_000))
        generator = SeededGenerator(seed: seed)
        scratch.reserveCapacity(limits.pendingPerDevice)
    }

    deinit {
        items.deallocate()
        freeSlots.deallocate()
        expected.deallocate()
    }

    /// Returns the next action; nil when there is none.
    public mutating func nextAction() -> DeliveryAction? { actions.popFirst() }

    /// True when actions are left.
    var hasActions: Bool { !actions.isEmpty }

    /// Bytes of the tables that grow with the capacity. Each page of them is resident once it was used.
    public var tableBytes: Int {
        let slot = MemoryLayout<DeliveryItem>.stride + MemoryLayout<UInt32>.stride + DueQueue.bytesPerSlot
        return limits.capacity * slot + devices.bytes
    }

    /// Items that have a slot.
    public var count: Int { highWater - freeCount }

    /// Upper bound of the slots that are or were in use.
    package var usedSlots: Int { highWater }

    /// True when an arriving push finds a slot.
    public var hasFreeSlot: Bool { count < limits.capacity }

    /// Returns true when a slot holds an item of the partition. O(slots).
    public func hasItems(partition: UInt16) -> Bool {
        for index in 0..<highWater where items[index].partition == partition && items[index].state != .free {
            return true
        }
        return false
    }

    /// Returns true when the offset of an item that has a slot is complete because the store has the item.
    public func isOffsetDone(_ slot: UInt32) -> Bool { items[Int(slot)].flags.contains(.offsetDone) }

    /// Returns the record of an item that has a slot.
    public func recordPlace(_ slot: UInt32) -> RecordPlace {
        RecordPlace(partitionSlot: items[Int(slot)].partition, offset: items[Int(slot)].offset)
    }

    /// Returns the device of an item that hasn't ended.
    public func device(_ slot: UInt32) -> DeviceKey { devices.entries[Int(items[Int(slot)].device)].key }

    /// Returns the state and progress of an item.
    public func info(_ slot: UInt32) -> ItemInfo {
        let item = items + Int(slot)
        return ItemInfo(
            state: item.pointee.state, progress: item.pointee.progress, partition: item.pointee.partition,
            offset: item.pointee.offset, topic: item.pointee.topic)
    }

    /// Prefetches the memory of an item that will soon have its turn or its answer. Affects timing only.
    @inline(__always)
    public mutating func prefetch(_ slot: UInt32) {
        guard Int(slot) < highWater else { return }
        sluice_prefetch(items + Int(slot))
        // The item's device is read only once the item is in the cache.
        let earlier = expected[expectedCursor]
        expected[expectedCursor] = slot
        expectedCursor = (expectedCursor + 1) & 7
        sluice_prefetch(devices.entries + Int(items[Int(earlier)].device))
    }

    /// Prefetches the memory of a device for which a push will soon be handed in. Affects timing only.
    @inline(__always)
    public mutating func prefetch(_ device: DeviceKey) {
        guard let earlier = devices.prefetch(device) else { return }
        let first = devices.entries[Int(earlier)].first
        guard first != Self.noSlot else { return }
        sluice_prefetch(items + Int(first))
        sluice_prefetch(UnsafeRawPointer(items + Int(first)) + 64)
    }

    /// Returns the state of an item.
    public func state(_ slot: UInt32) -> ItemState {
        Int(slot) < highWater ? items[Int(slot)].state : .free
    }

    // MARK: Slots

    /// Takes a free slot; returns nil when there is none.
    mutating func takeSlot() -> UInt32? {
        if freeCount > 0 {
            freeCount -= 1
            return freeSlots[freeCount]
        }
        guard highWater < limits.capacity else { return nil }
        highWater += 1
        return UInt32(highWater - 1)
    }

    /// Frees the slot of an ended item, which the owner doesn't need any more.
    public mutating func release(_ slot: UInt32) {
        precondition(
            items[Int(slot)].state == .finished, "slot \(slot) is released before its item has ended")
        milestones.exited(.finished)
        items[Int(slot)].state = .free
        // The next push is written to this slot.
        sluice_prefetch(UnsafeRawPointer(items + Int(slot)) + 64)
        freeSlots[freeCount] = slot
        freeCount += 1
    }

    /// Puts a new item into a slot and under its device, undispatched.
    mutating func insert(_ facts: PushFacts, expiry: Int64, device: UInt32) -> UInt32? {
        guard let slot = takeSlot() else { return nil }
        (items + Int(slot)).initialize(
            to: DeliveryItem(facts, device: device, order: nextOrder, expiry: expiry))
        nextOrder += 1
        milestones.entered(.undispatched)
        link(slot, to: device)
        return slot
    }

    mutating func setState(_ slot: UInt32, _ state: ItemState) {
        milestones.moved(from: items[Int(slot)].state, to: state)
        items[Int(slot)].state = state
    }

    // MARK: Devices

    /// Returns the items of a device in flight. The entry of a device with one item doesn't count them. Neither the
    /// begin nor the end of an attempt therefore has to read the entry.
    func inFlight(_ device: UInt32) -> Int {
        let entry = devices.entries + Int(device)
        if entry.pointee.pending > 1 { return Int(entry.pointee.inFlight) }
        guard entry.pointee.pending == 1 else { return 0 }
        return items[Int(entry.pointee.first)].state == .inFlight ? 1 : 0
    }

    /// Returns true when the item's device has no other item.
    func isAlone(_ slot: UInt32) -> Bool {
        let item = items + Int(slot)
        return item.pointee.next == Self.noSlot && item.pointee.previous == Self.noSlot
    }

    func link(_ slot: UInt32, to device: UInt32) {
        let entry = devices.entries + Int(device)
        if entry.pointee.pending == 1 { entry.pointee.inFlight = UInt16(inFlight(device)) }
        items[Int(slot)].device = device
        items[Int(slot)].previous = Self.noSlot
        items[Int(slot)].next = entry.pointee.first
        if entry.pointee.first != Self.noSlot { items[Int(entry.pointee.first)].previous = slot }
        entry.pointee.first = slot
        entry.pointee.pending += 1
    }

    /// Unlinks an item from its device, and retires a device without items and presence.
    mutating func unlink(_ slot: UInt32) {
        let item = items + Int(slot)
        let entry = devices.entries + Int(item.pointee.device)
        if item.pointee.next != Self.noSlot { items[Int(item.pointee.next)].previous = item.pointee.previous }
        if item.pointee.previous == Self.noSlot {
            entry.pointee.first = item.pointee.next
        } else {
            items[Int(item.pointee.previous)].next = item.pointee.next
        }
        entry.pointee.pending -= 1
        if entry.pointee.pending == 0, entry.pointee.presence == Self.noSlot {
            devices.retire(item.pointee.device)
        }
    }

    /// Returns the time from which on an item isn't sent any more, in milliseconds since the epoch. A push that APNs
    /// must not keep (expiration 0) asks for one attempt, as late as it may be. A push that APNs didn't process is
    /// retried for a short while. A push that APNs processed only waits for its receipt.
    func lastMoment(_ slot: UInt32) -> Int64 {
        let item = items + Int(slot)
        guard item.pointee.flags.contains(.isOnce), item.pointee.firstSent > 0,
            !item.pointee.flags.contains(.accepted)
        else { return item.pointee.expiry }
        // Applies at any time of the clock.
        if item.pointee.attempts > 0, item.pointee.state != .inFlight { return 0 }
        return min(item.pointee.expiry, item.pointee.firstSent + limits.retry.onceMilliseconds)
    }

    /// Returns true when the device counts as offline.
    func isOffline(_ device: UInt32) -> Bool {
        let presence = devices.entries[Int(device)].presence
        return presence != Self.noSlot && presences[presence].presence != .online
    }

    // MARK: Ends

    /// Ends an item that isn't in flight: withdraws it from its list, and unblocks the item behind it.
    mutating func finish(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause? = nil,
        successor: UInt32 = DeliveryMachine.noSlot, at now: DeliveryTime
    ) {
        withdraw(slot)
        milestones.ended(kind)
        circuits[Int(items[Int(slot)].topic)].ended &+= 1
        actions.append(.finish(slot, kind, cause, successor: successor))
        leave(slot, at: now)
    }

    /// Drops an item without an outcome.
    mutating func drop(_ slot: UInt32, at now: DeliveryTime) {
        withdraw(slot)
        milestones.dropped += 1
        actions.append(.drop(slot))
        leave(slot, at: now)
    }

    /// Ends an undispatched item: unlinks it and unblocks the item behind it.
    mutating func leave(_ slot: UInt32, at now: DeliveryTime) {
        let peer = items[Int(slot)].peer
        if openCircuits > 0 { probeLeft(slot) }
        if items[Int(slot)].flags.contains(.moves) { moves[slot] = nil }
        unlink(slot)
        setState(slot, .finished)
        if peer != Self.noSlot { unblock(peer, at: now) }
    }

    /// Makes an undispatched item wait for the older item of its identity that is in flight.
    mutating func block(_ slot: UInt32, behind flying: UInt32) {
        items[Int(slot)].peer = flying
        items[Int(flying)].peer = slot
        setState(slot, .blocked)
    }

    /// Unblocks an item because the item before it is gone.
    mutating func unblock(_ slot: UInt32, at now: DeliveryTime) {
        items[Int(slot)].peer = Self.noSlot
        setState(slot, .undispatched)
        if items[Int(slot)].flags.contains(.receiptSeen) {
            finish(slot, .confirmed, at: now)
        } else if items[Int(slot)].flags.contains(.accepted), mayWait(slot, at: now) {
            awaitReceipt(slot, at: now)
        } else {
            dispatch(slot, at: now)
        }
    }

    /// Takes an item that isn't in flight out of the list in which it waits.
    mutating func withdraw(_ slot: UInt32) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .undispatched: return
        case .waiting: actions.append(.dequeue(slot))
        case .coalescing, .retrying, .scheduled, .confirming, .held: timers.remove(slot)
        case .returning: returning[returningList(of: slot)].remove(slot, items)
        case .topicCircuitOpen: circuits[Int(item.pointee.topic)].waiting.remove(slot, items)
        case .poolUnavailable: unavailablePools[Int(item.pointee.pool)]!.remove(slot, items)
        case .deviceLimited: devices.entries[Int(item.pointee.device)].deviceLimited -= 1
        case .blocked:
            items[Int(item.pointee.peer)].peer = Self.noSlot
            item.pointee.peer = Self.noSlot
        case .free, .inFlight, .finished:
            preconditionFailure("slot \(slot) is \(item.pointee.state)")
        }
        setState(slot, .undispatched)
    }
}
