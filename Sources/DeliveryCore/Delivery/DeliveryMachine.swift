import CPrefetch
import SluiceModel
import StreamScheduling

/// The decisions about every push between its Kafka record and its outcome (design §5, §6): it supersedes, orders,
/// holds, schedules, expires and retries. Values in, values out: no I/O, no clock, no threads.
///
/// A push has a slot from ``admit(_:at:)`` to ``release(_:)``. The owner keeps the job's bytes by slot, does what
/// ``nextAction()`` says after every call, and reports what happened:
///
///     job      ── admit ──▶ placed / replaced / ended
///     action   ── enqueue ──▶ stream scheduler ── its turn ──▶ begin ── true ──▶ request
///     answer   ── accepted, answered, failed ──▶ finish, or again later
///     timer    ── advance ──▶ what is due, what has expired
///
/// - Identity: device token, topic and collapse identifier, or the `apns-id` without one. Of one identity at most one
///   is in flight and at most one more is pending; a newer one takes the place of the pending one, and the one in flight
///   isn't tried again. That holds for a newer one that has expired as well: after a restart it can be one that APNs has
///   accepted before, and what is older would come after it.
/// - Everything is O(1) but for what concerns all items of one device (bounded by
///   ``DeliveryLimits/pendingPerDevice``), timers (logarithmic), and ``abandon(partition:at:)``. Nothing is allocated
///   per push in steady state.
/// - One owner, one thread.
public struct DeliveryMachine: ~Copyable {
    /// No slot.
    public static let noSlot = UInt32.max

    /// Items of one device that can come together when many tokens change to one: what moves is let in beyond
    /// ``DeliveryLimits/pendingPerDevice``, but not without an end.
    static let mostPerDevice = 4096

    public let limits: DeliveryLimits
    let items: UnsafeMutablePointer<DeliveryItem>
    private let freeSlots: UnsafeMutablePointer<UInt32>
    private var freeCount: Int
    /// Slots from here on were never used.
    private(set) var highWater = 0
    var devices: DeviceTable
    var presences: PresenceTable
    /// By the monotonic clock.
    var timers: DueQueue
    var actions = ActionQueue()
    public internal(set) var milestones = DeliveryMilestones()
    var deviceBackoff: DeviceBackoff
    var generator: SeededGenerator
    var nextOrder: UInt64 = 1
    var nextStoreVersion: UInt32 = 1

    var circuits: [TopicCircuit] = []
    /// Circuits that aren't closed.
    var openCircuits = 0
    /// By lane: until when a 503 with `Retry-After` holds it.
    var laneHolds: [LaneHold] = []
    /// Holds whose time isn't over, as of the last look.
    var heldLanes = 0
    /// By lane: items that wait for its pool; nil while that is well.
    var stalls: [ItemList?] = []
    /// Items of devices that are back: urgent ones, and others.
    var returning = InlineArray<2, ItemList>(repeating: ItemList())
    /// When the next return would be on time, if returns came at their rate.
    var returnSchedule: UInt64 = 0
    /// New tokens of items with ``DeliveryItem/Flags/moves``.
    var moves: [UInt32: Move] = [:]
    /// Partitions that go away: what fails isn't tried again here.
    var endingPartitions: Set<UInt16> = []
    var isDraining = false
    var sweepCursor = 0
    var sweptAt: UInt64 = 0
    /// The slots that were expected last, over which a cursor goes round.
    private var expected = InlineArray<8, UInt32>(repeating: 0)
    private var expectedCursor = 0
    /// Room for the slots of one device.
    var scratch: [UInt32] = []
    private let inPlace = InPlace()

    struct Move {
        var device: DeviceKey
        var isElsewhere: Bool
    }

    /// - Parameter seed: of the jitter.
    public init(limits: DeliveryLimits, seed: UInt64) {
        self.limits = limits
        items = allocateLines(capacity: limits.capacity)
        freeSlots = .allocate(capacity: limits.capacity)
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
    }

    /// What is to be done next; nil when all is done.
    public mutating func nextAction() -> DeliveryAction? { actions.popFirst() }

    /// Bytes of the tables that grow with the capacity, of which each page is resident once it was used.
    public var tableBytes: Int {
        let slot = MemoryLayout<DeliveryItem>.stride + MemoryLayout<UInt32>.stride + DueQueue.bytesPerSlot
        return limits.capacity * slot + devices.bytes
    }

    /// Items that have a slot.
    public var count: Int { highWater - freeCount }

    /// Slots below this one are in use, or were.
    package var usedSlots: Int { highWater }

    /// Value that changes with the number of items in any state.
    package var stateMark: UInt64 { milestones.stateMark }

    /// Part of the mark that an item in a state makes up.
    package static func markWeight(_ state: UInt8) -> UInt64 {
        state == ItemState.free.rawValue ? 0 : DeliveryMilestones.weight(state)
    }

    /// A push that comes now finds a slot.
    public var hasFreeSlot: Bool { count < limits.capacity }

    /// Holds an item of the partition. O(slots).
    public func holds(partition: UInt16) -> Bool {
        for index in 0..<highWater where items[index].partition == partition && items[index].state != .free {
            return true
        }
        return false
    }

    /// The offset of an item that has a slot is complete, as the store has it.
    public func isOffsetDone(_ slot: UInt32) -> Bool { items[Int(slot)].flags.contains(.offsetDone) }

    /// The record of an item that has a slot.
    public func place(_ slot: UInt32) -> RecordPlace {
        RecordPlace(partitionSlot: items[Int(slot)].partition, offset: items[Int(slot)].offset)
    }

    /// The device of an item that hasn't ended.
    public func device(_ slot: UInt32) -> DeviceKey { devices.entries[Int(items[Int(slot)].device)].key }

    /// What is known of an item.
    public func info(_ slot: UInt32) -> ItemInfo {
        let item = items + Int(slot)
        return ItemInfo(
            state: item.pointee.state, progress: item.pointee.progress, partition: item.pointee.partition,
            offset: item.pointee.offset, topic: item.pointee.topic)
    }

    /// The item in this slot will soon have its turn, or its answer: its memory is fetched meanwhile. Of no other effect.
    @inline(__always)
    public mutating func prefetch(_ slot: UInt32) {
        guard Int(slot) < highWater else { return }
        sluice_prefetch(items + Int(slot))
        // Where its device is can be told when the item is there.
        let earlier = expected[expectedCursor]
        expected[expectedCursor] = slot
        expectedCursor = (expectedCursor + 1) & 7
        sluice_prefetch(devices.entries + Int(items[Int(earlier)].device))
    }

    /// A push for this device will soon be handed in: what is known of it is fetched meanwhile. Of no other effect.
    @inline(__always)
    public mutating func prefetch(_ device: DeviceKey) {
        guard let earlier = devices.prefetch(device) else { return }
        let first = devices.entries[Int(earlier)].first
        guard first != Self.noSlot else { return }
        sluice_prefetch(items + Int(first))
        sluice_prefetch(UnsafeRawPointer(items + Int(first)) + 64)
    }

    /// Where an item stands.
    public func state(_ slot: UInt32) -> ItemState {
        Int(slot) < highWater ? items[Int(slot)].state : .free
    }

    // MARK: Slots

    /// A free slot; nil when there is none.
    mutating func takeSlot() -> UInt32? {
        if freeCount > 0 {
            freeCount -= 1
            return freeSlots[freeCount]
        }
        guard highWater < limits.capacity else { return nil }
        highWater += 1
        return UInt32(highWater - 1)
    }

    /// Gives the slot of an ended item back. The owner has no use for it any more.
    public mutating func release(_ slot: UInt32) {
        precondition(
            items[Int(slot)].state == .finished, "slot \(slot) is released before its item has ended")
        milestones.left(.finished)
        items[Int(slot)].state = .free
        // The next push is written there.
        sluice_prefetch(UnsafeRawPointer(items + Int(slot)) + 64)
        freeSlots[freeCount] = slot
        freeCount += 1
    }

    /// Puts a new item into a slot and under its device, unplaced.
    mutating func insert(_ facts: PushFacts, expiry: Int64, device: UInt32) -> UInt32? {
        guard let slot = takeSlot() else { return nil }
        (items + Int(slot)).initialize(
            to: DeliveryItem(facts, device: device, order: nextOrder, expiry: expiry))
        nextOrder += 1
        milestones.entered(.unplaced)
        link(slot, to: device)
        return slot
    }

    mutating func setState(_ slot: UInt32, _ state: ItemState) {
        milestones.moved(from: items[Int(slot)].state, to: state)
        items[Int(slot)].state = state
    }

    // MARK: Devices

    /// Items of a device in flight. While a device has one item only, its entry doesn't say, so that neither the begin
    /// nor the end of an attempt has to look at it.
    func inFlight(_ device: UInt32) -> Int {
        let entry = devices.entries + Int(device)
        if entry.pointee.pending > 1 { return Int(entry.pointee.inFlight) }
        guard entry.pointee.pending == 1 else { return 0 }
        return items[Int(entry.pointee.first)].state == .inFlight ? 1 : 0
    }

    /// Its device has no other item.
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

    /// Takes an item from its device, and the device from the table when nothing is left of it.
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

    /// From when on an item isn't sent any more. A push that APNs must not keep (expiration 0) asks for one attempt, as
    /// late as it may be. A push that APNs didn't process is tried again for a short while. A push that APNs processed
    /// has only its receipt to wait for.
    func lastMoment(_ slot: UInt32) -> Int64 {
        let item = items + Int(slot)
        guard item.pointee.flags.contains(.isOnce), item.pointee.firstSent > 0,
            !item.pointee.flags.contains(.accepted)
        else { return item.pointee.expiry }
        // Whatever the clock says now.
        if item.pointee.attempts > 0, item.pointee.state != .inFlight { return 0 }
        return min(item.pointee.expiry, item.pointee.firstSent + limits.retry.onceMilliseconds)
    }

    /// The device counts as offline.
    func isOffline(_ device: UInt32) -> Bool {
        let presence = devices.entries[Int(device)].presence
        return presence != Self.noSlot && presences[presence].presence != .online
    }

    // MARK: Ends

    /// Ends an item that isn't in flight: takes it from wherever it is, and lets what was blocked behind it go.
    mutating func end(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause? = nil,
        successor: UInt32 = DeliveryMachine.noSlot, at now: DeliveryTime
    ) {
        withdraw(slot)
        milestones.ended(kind)
        actions.append(.finish(slot, kind, cause, successor: successor))
        leave(slot, at: now)
    }

    /// Gives an item back without an outcome.
    mutating func drop(_ slot: UInt32, at now: DeliveryTime) {
        withdraw(slot)
        milestones.dropped += 1
        actions.append(.drop(slot))
        leave(slot, at: now)
    }

    /// The last step of an unplaced item.
    mutating func leave(_ slot: UInt32, at now: DeliveryTime) {
        let peer = items[Int(slot)].peer
        if openCircuits > 0 { probeLeft(slot) }
        if items[Int(slot)].flags.contains(.moves) { moves[slot] = nil }
        unlink(slot)
        setState(slot, .finished)
        if peer != Self.noSlot { unblock(peer, at: now) }
    }

    /// Has an unplaced item wait for the older one of its identity that is in flight.
    mutating func block(_ slot: UInt32, behind flying: UInt32) {
        items[Int(slot)].peer = flying
        items[Int(flying)].peer = slot
        setState(slot, .blocked)
    }

    /// What an item was blocked behind is gone.
    mutating func unblock(_ slot: UInt32, at now: DeliveryTime) {
        items[Int(slot)].peer = Self.noSlot
        setState(slot, .unplaced)
        if items[Int(slot)].flags.contains(.receiptSeen) {
            end(slot, .confirmed, at: now)
        } else if items[Int(slot)].flags.contains(.accepted), mayWait(slot, at: now) {
            awaitReceipt(slot, at: now)
        } else {
            place(slot, at: now)
        }
    }

    /// Takes an item that isn't in flight from wherever it waits.
    mutating func withdraw(_ slot: UInt32) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .unplaced: return
        case .waiting: actions.append(.dequeue(slot))
        case .coalescing, .retrying, .scheduled, .confirming, .held: timers.remove(slot)
        case .returning: returning[returningList(of: slot)].remove(slot, items)
        case .parked: circuits[Int(item.pointee.topic)].parked.remove(slot, items)
        case .stalled: stalls[Int(item.pointee.lane)]!.remove(slot, items)
        case .deviceLimited: devices.entries[Int(item.pointee.device)].deviceLimited -= 1
        case .blocked:
            items[Int(item.pointee.peer)].peer = Self.noSlot
            item.pointee.peer = Self.noSlot
        case .free, .inFlight, .finished:
            preconditionFailure("slot \(slot) is \(item.pointee.state)")
        }
        setState(slot, .unplaced)
    }
}
