import DequeModule
import SluiceModel

/// Decisions about devices that may have items in the store only. It decides which items are loaded before which
/// events, which events wait, and how many items may be in memory. It also records which ended or moved items the
/// store still has. Values in, values out, as in ``DeliveryMachine``: no I/O, no clock, no bytes.
///
/// An *evicted* device has items that only the store has. Its events wait until all of its items are in memory again.
/// The owner keeps records, departures and tokens under handles. After each call the owner does the actions of
/// ``nextAction(_:)``.
///
///     record ── mustDefer ── true ──▶ deferUntilLoaded ──▶ load ──▶ judge each item ──▶ endLoad ──▶ proceed
///                      └──── false ─▶ the delivery machine
///
/// - While no device is evicted, the check whether a record may continue costs two tests for emptiness.
/// - Restored items never exceed ``ResidencyLimits/room``; a device with more is loaded in parts.
public struct DeviceResidency: ~Copyable {
    public let limits: ResidencyLimits

    // Partitions, by slot.
    var partitions: [Partition] = []
    /// Offset up to which all records of the partition have been handed to the shards; by slot. Kept apart from
    /// ``partitions`` because each record writes it.
    var readThrough: [Int64] = []
    /// Handles of records that arrived before their partition began.
    var early: [(slot: UInt16, handle: UInt32)] = []

    // Devices and loads.
    var evicted = EvictedDevices()
    var loads: [DeviceKey: DeviceLoad] = [:]
    var line = DeviceLine()
    /// Devices that found no room. They stand before all others, and are loaded once there is room for their items.
    var shortLine = DeviceLine()
    var loadsUnderWay = 0
    /// Room for the items that loads under way may bring, in items.
    var reserved = 0
    /// Time before which no loads are issued, in nanoseconds of the monotonic clock: the delivery machine had no
    /// slot.
    var noLoadsBefore: UInt64 = 0
    /// Load that is being taken in; nil between two loads.
    var current: CurrentLoad?
    /// Stack of devices whose events may continue; the last one first.
    var resuming: [DeviceKey] = []
    /// Devices whose first event waits for a slot of the delivery machine.
    var awaitingSlot = DeviceLine()
    var earlierDevices = 0
    /// Line of devices that are online and whose items wait for their turn in the store.
    var turns = TurnLine()

    // State in the store.
    /// States of the items in memory, by slot of the delivery machine.
    let residents: UnsafeMutablePointer<Resident>
    let flags: UnsafeMutablePointer<Resident.Flags>
    /// Items in memory that came from the store.
    var restored: Set<RecordPlace> = []
    /// Count of restored items that come from other shards and wait to be taken over.
    var waitingRestored = 0
    var ended = EndedItems()
    /// Keys that a load issued earlier may still find, with the number of times that items left them.
    var staleKeys: [StaleKey: Int] = [:]
    var requests = StoreRequests()
    /// True while the store doesn't carry out requests.
    var isFailing = false

    // Moves.
    /// Records that may be read again although the store has their items under other tokens.
    var marked: [RecordPlace: APNSID] = [:]
    /// Marks in the store that are to be removed when their records are committed.
    var marks: [RecordPlace] = []
    var nextForgetting: UInt64 = 0
    /// Token changes by their records, for items in flight that the store has under the old token.
    var changes: [RecordPlace: TokenChange] = [:]
    /// Handles of token changes that wait no more.
    var changesDone: [UInt32] = []
    /// Handles of token changes that are given back to Kafka.
    var changesGivenBack: [UInt32] = []
    /// Latest token changes, by the device of the old token.
    var pastChanges: [DeviceKey: PastChange] = [:]
    /// Devices of ``pastChanges``, by the numbers of their changes.
    var pastDevices: [DeviceKey] = []
    var oldestPast = 0

    private var actions: [ResidencyAction] = []
    private var actionHead = 0
    private let inPlace = InPlace()

    struct Partition {
        var isBegun = false
        /// True when the partition is being revoked: none of its items is loaded any more.
        var isEnding = false
        /// Number that grows with each assignment of the slot.
        var assignment: UInt32 = 0
        /// Watermark that is committed, as far as it was reported.
        var committed = Int64.min
        /// Offset from which stored items above the last read record belong to an earlier log; `.max` when none do.
        var earlierFrom = Int64.max
    }

    /// State in the store of the item in a slot.
    struct Resident: BitwiseCopyable {
        struct Flags: OptionSet, BitwiseCopyable {
            let rawValue: UInt8
            static let stored = Flags(rawValue: 1)
            static let restored = Flags(rawValue: 2)
            static let moved = Flags(rawValue: 4)
            static let marked = Flags(rawValue: 8)
            /// A token change waits for the item.
            static let noted = Flags(rawValue: 16)
        }

        var place: RecordPlace
        /// Device of the item's present token.
        var device: DeviceKey
        /// Number of the partition's assignment.
        var assignment: UInt32
        var storedUnder = DeviceKey(high: 0, low: 0)
        var storedDue: Int64 = 0
        /// Token change that waits for the item.
        var change = RecordPlace(partitionSlot: 0, offset: 0)
    }

    /// A token change whose outcome waits for items in flight.
    struct TokenChange {
        /// Handle of the token change; nil while the change is being taken in.
        var handle: UInt32?
        /// Items that the token change waits for.
        var items = 0
    }

    public init(limits: ResidencyLimits) {
        self.limits = limits
        residents = .allocate(capacity: limits.capacity)
        flags = .allocate(capacity: limits.capacity)
        flags.initialize(repeating: [], count: limits.capacity)
    }

    deinit {
        residents.deallocate()
        flags.deallocate()
    }

    // MARK: Actions

    /// Returns the next action; nil when there is none.
    public mutating func nextAction(_ delivery: borrowing DeliveryMachine) -> ResidencyAction? {
        if awaitingSlot.count > 0, delivery.hasFreeSlot { wakeForSlot() }
        while true {
            if actionHead < actions.count {
                actionHead += 1
                let action = actions[actionHead - 1]
                if actionHead == actions.count {
                    actions.removeAll(keepingCapacity: true)
                    actionHead = 0
                }
                return action
            }
            guard let device = resuming.last else { return nil }
            if let action = resume(device, delivery) { return action }
        }
    }

    mutating func ask(_ action: ResidencyAction) { actions.append(action) }

    /// True when no event waits for a device.
    public var isIdle: Bool { loads.isEmpty }
    /// Devices that have items in the store only.
    public var evictedDevices: Int { evicted.count }
    /// Items in memory that came from the store.
    public var restoredItems: Int { restored.count }
    /// Partitions whose scan of the store has not finished.
    public var scansUnderWay: Int { evicted.scansUnderWay }
    /// True while so few devices stand in line that more can be added.
    public var isLineShort: Bool { line.count < limits.loads }

    /// Returns true when events of the device continue with a part of its items: it has more items than there is room
    /// for.
    public func isPartial(_ device: DeviceKey) -> Bool { loads[device]?.isPartial ?? false }

    /// Prefetches the entry of a device because a record of it comes soon. Affects timing only.
    @inline(__always)
    public func prefetch(_ device: DeviceKey) {
        if evicted.count > 0 { evicted.prefetch(device) }
    }

    // MARK: Partitions

    subscript(slot: UInt16) -> Partition {
        Int(slot) < partitions.count ? partitions[Int(slot)] : Partition()
    }

    /// Returns true when the partition has begun and hasn't ended.
    @inline(__always)
    public func isBegun(_ slot: UInt16) -> Bool {
        Int(slot) < partitions.count && partitions[Int(slot)].isBegun
    }

    /// Begins a partition under a slot that an earlier partition may have had. All records up to `readThrough` are
    /// read.
    /// - Parameter earlierFrom: offset from which stored items above the last read record belong to an earlier log.
    ///   They are older than all records that will be read; `.max` when there are none.
    public mutating func beginPartition(_ slot: UInt16, readThrough offset: Int64, earlierFrom: Int64 = .max)
    {
        while partitions.count <= Int(slot) {
            partitions.append(Partition())
            readThrough.append(.max)
        }
        partitions[Int(slot)] = Partition(
            isBegun: true, assignment: partitions[Int(slot)].assignment &+ 1, earlierFrom: earlierFrom)
        readThrough[Int(slot)] = offset
        if earlierFrom < .max { earlierDevices = 0 }
        evicted.beginScan(slot)
        // The partition may also have items of a device that is being loaded, or is in memory for an event.
        for device in loads.keys.sorted(by: DeviceKey.precedes) { reload(device) }
        guard !early.isEmpty else { return }
        for record in early where record.slot == slot { ask(.takeIn(record.handle)) }
        early.removeAll { $0.slot == slot }
    }

    /// Keeps a record that arrived before its partition begins.
    public mutating func deferUntilBegun(_ handle: UInt32, _ slot: UInt16) {
        assert(!isBegun(slot), "a record waits for a partition that has begun")
        early.append((slot, handle))
    }

    /// Records that all records of a partition up to an offset have been handed to the shards.
    @inline(__always)
    public mutating func hasRead(_ slot: UInt16, through offset: Int64) {
        guard Int(slot) < readThrough.count, readThrough[Int(slot)] < offset else { return }
        readThrough[Int(slot)] = offset
    }

    /// Records that the store has an item of this device.
    public mutating func found(_ device: DeviceKey, offset: Int64, _ slot: UInt16) {
        guard isBegun(slot) else { return }
        evicted.insert(device, slot)
        guard offset >= self[slot].earlierFrom, offset > readThrough[Int(slot)], loads[device] == nil,
            earlierDevices < limits.earlierDevices
        else { return }
        earlierDevices += 1
        standInLine(device, .partition(slot))
    }

    /// Puts a device in the line for its turn: it is online, and the store has items of it as held. The items are
    /// loaded without a report, after the items of devices that were back before.
    public mutating func awaited(_ device: DeviceKey, _ slot: UInt16) {
        if isBegun(slot), !self[slot].isEnding { turns.append(device, slot, self[slot].assignment) }
    }

    /// Returns true when the device's items stay in the store until their turn. Waiting reports continue without the
    /// items.
    public func isPutOff(_ device: DeviceKey) -> Bool { !loads.isEmpty && loads[device]?.isPutOff ?? false }

    /// Devices that are online and whose items wait for their turn in the store.
    public var devicesAwaitingTurn: Int { turns.count }

    /// Records that ``found(_:offset:_:)`` has reported all devices that the store has of a partition.
    public mutating func scanned(_ slot: UInt16) { evicted.endScan(slot) }

    /// Ends a partition: no more of its items are put in the store or loaded.
    public mutating func endPartition(_ slot: UInt16) {
        guard isBegun(slot) else { return }
        partitions[Int(slot)].isBegun = false
        partitions[Int(slot)].earlierFrom = .max
        evicted.removeAll(partition: slot)
        turns.removeAll(slot)
        giveBackChanges(slot)
        marked = marked.filter { $0.key.partitionSlot != slot }
        marks.removeAll { $0.partitionSlot == slot }
        ended.removeAll(slot)
        restored = restored.filter { $0.partitionSlot != slot }
    }

    /// Releases the waiting events of a partition that is revoked, or of all (nil). None of its items is loaded any
    /// more.
    public mutating func abandon(_ slot: UInt16?) {
        for index in partitions.indices where slot == nil || index == Int(slot!) {
            partitions[index].isEnding = true
        }
        for device in loads.keys.sorted(by: DeviceKey.precedes) {
            let waiting = loads[device]!.waiting
            let leaves = { (event: DeviceLoad.Event) in slot == nil || event.place.partitionSlot == slot }
            guard waiting.contains(where: leaves) else { continue }
            for event in waiting where leaves(event) {
                if case .migration(let migration) = event, migration.isRestored { waitingRestored -= 1 }
                ask(.discard(event.handle))
            }
            loads[device]!.waiting = waiting.filter { !leaves($0) }
            // Events that waited behind the released one, or have needed the device, may continue.
            if loads[device]!.state == .loaded { resuming.append(device) }
        }
    }

    /// Has the owner free all events that wait or were kept, because the worker ends.
    public mutating func discardAll() {
        abandon(nil)
        var handles = exchange(&early, with: []).map(\.handle)
        for action in actions[actionHead...] {
            switch action {
            case .takeIn(let handle), .proceed(let handle), .refuse(let handle), .takeOver(let handle),
                .leaveInStore(let handle), .discard(let handle):
                handles.append(handle)
            case .load, .removeMark, .removed: break
            }
        }
        actions.removeAll()
        actionHead = 0
        for handle in handles { ask(.discard(handle)) }
    }

    /// Returns true when no ended item is still in the store: of a partition, or of all (nil).
    public func isSettled(_ slot: UInt16?) -> Bool {
        guard let slot else { return ended.isEmpty }
        return ended.isEmpty || !ended.has(partitionSlot: slot)
    }
}

extension DeviceKey {
    /// Returns an order that is the same in every run.
    static func precedes(_ one: DeviceKey, _ other: DeviceKey) -> Bool {
        (one.high, one.low) < (other.high, other.low)
    }
}

/// Line of devices, first come first served.
struct DeviceLine {
    private var devices: [DeviceKey] = []
    private var head = 0

    var count: Int { devices.count - head }
    var first: DeviceKey? { head < devices.count ? devices[head] : nil }

    mutating func append(_ device: DeviceKey) { devices.append(device) }

    mutating func removeFirst() {
        head += 1
        guard head == devices.count || head >= 1024 && 2 * head >= devices.count else { return }
        devices.removeFirst(head)
        head = 0
    }
}

/// Line of devices in the order in which they were back; each device stands once per partition.
struct TurnLine: ~Copyable {
    private struct Entry: BitwiseCopyable {
        var device: DeviceKey
        var slot: UInt16
        /// Number of the slot's assignment to its partition.
        var assignment: UInt32
    }

    /// Entries, including entries of partitions that have gone.
    private var entries = Deque<Entry>(minimumCapacity: 16)
    /// Assignment of each slot, and the devices that stand in the line for that assignment.
    private var members: [UInt16: (assignment: UInt32, devices: Set<DeviceKey>)] = [:]
    /// Devices in the line, without those of partitions that have gone.
    private(set) var count = 0

    mutating func append(_ device: DeviceKey, _ slot: UInt16, _ assignment: UInt32) {
        if members[slot]?.assignment != assignment {
            removeAll(slot)
            members[slot] = (assignment, [])
        }
        guard members[slot]!.devices.insert(device).inserted else { return }
        count += 1
        entries.append(Entry(device: device, slot: slot, assignment: assignment))
    }

    mutating func popFirst() -> (device: DeviceKey, slot: UInt16)? {
        while let entry = entries.popFirst() {
            guard members[entry.slot]?.assignment == entry.assignment,
                members[entry.slot]!.devices.remove(entry.device) != nil
            else { continue }
            count -= 1
            return (entry.device, entry.slot)
        }
        return nil
    }

    /// Removes a slot's devices because its partition is revoked. Their entries are dropped when they reach the
    /// front.
    mutating func removeAll(_ slot: UInt16) {
        count -= members.removeValue(forKey: slot)?.devices.count ?? 0
        if count == 0 { entries = Deque(minimumCapacity: 16) }
    }
}
