import SluiceModel

/// The decisions about devices that may have items in the store only: what must be loaded before what, what waits for it,
/// what a load brings, what is still in the store of what has ended or moved, and how much of it all may be in memory.
/// Values in, values out, as in ``DeliveryMachine``: no I/O, no clock, no bytes.
///
/// An *evicted* device has items that only the store has. Whatever concerns it waits until all of it is in memory again.
/// The owner keeps records, departures and tokens under handles, and does what ``nextAction(_:)`` says after each call.
///
///     record ── mustDefer ── true ──▶ deferUntilLoaded ──▶ load ──▶ judge each item ──▶ endLoad ──▶ proceed
///                      └──── false ─▶ the delivery machine
///
/// - The question whether a record may go on takes two tests for emptiness while no device is evicted.
/// - Restored items never exceed ``ResidencyLimits/room``; a device with more is taken in parts.
public struct DeviceResidency: ~Copyable {
    public let limits: ResidencyLimits

    // Partitions, by slot.
    var partitions: [Partition] = []
    /// All records of the partition up to this offset have been handed to the shards. Apart from the rest, as it is
    /// written for each record.
    var readThrough: [Int64] = []
    /// Handles of records that came before the news that their partition begins.
    var early: [(slot: UInt16, handle: UInt32)] = []

    // What is loaded.
    var evicted = EvictedDevices()
    var loads: [DeviceKey: DeviceLoad] = [:]
    var line = DeviceLine()
    /// Devices that found no room: before all others, and once there is room for what they have.
    var shortLine = DeviceLine()
    var loadsUnderWay = 0
    /// Room for what loads under way may bring, in items.
    var reserved = 0
    /// The delivery machine had no slot for what came: no loads until then, by the monotonic clock.
    var noLoadsBefore: UInt64 = 0
    /// The load that is being taken in; nil between two.
    var current: CurrentLoad?
    /// Devices whose events may go on; the last one first.
    var resuming: [DeviceKey] = []
    /// Devices whose first event waits for a slot of the delivery machine.
    var awaitingSlot = DeviceLine()
    var earlierDevices = 0
    /// Devices that are online and whose items wait for their turn in the store.
    var turns = TurnLine()

    // What the store has.
    /// By slot of the delivery machine.
    let residents: UnsafeMutablePointer<Resident>
    let flags: UnsafeMutablePointer<Resident.Flags>
    /// Items in memory that came from the store.
    var restored: Set<RecordPlace> = []
    /// Such items that come from other shards and wait to be taken over.
    var waitingRestored = 0
    var ended = EndedItems()
    /// Keys that a load which was asked for before may still find, and how often they were left.
    var staleKeys: [LocalCopy: Int] = [:]
    var requests = StoreRequests()
    /// The store doesn't do for now what it is asked for.
    var isFailing = false

    // Moves.
    /// Records that may be read once more although the store has their items, under other tokens.
    var marked: [RecordPlace: APNSID] = [:]
    /// Marks in the store that are to be forgotten when their records are committed.
    var marks: [RecordPlace] = []
    var nextForgetting: UInt64 = 0
    /// Token changes by their records, of items in flight that the store has under the old token.
    var changes: [RecordPlace: TokenChange] = [:]
    /// Handles of those that wait no more.
    var changesDone: [UInt32] = []
    /// Handles of those that are given back to Kafka.
    var changesGivenBack: [UInt32] = []
    /// The latest token changes, by the device of the old token.
    var pastChanges: [DeviceKey: PastChange] = [:]
    /// The same devices, by the numbers of their changes.
    var pastDevices: [DeviceKey] = []
    var oldestPast = 0

    /// How often what is rare has happened.
    public internal(set) var milestones = ResidencyMilestones()
    private var actions: [ResidencyAction] = []
    private var actionHead = 0
    private let inPlace = InPlace()

    struct Partition {
        var isBegun = false
        /// It goes away: nothing of it comes back to memory.
        var isEnding = false
        /// Grows with each assignment of the slot.
        var assignment: UInt32 = 0
        /// The watermark that is committed, as far as it was told.
        var committed = Int64.min
        /// Items that the store has from this offset on, above what was read, are of an earlier log; `.max`: none are.
        var earlierFrom = Int64.max
    }

    /// What the store has of the item in a slot.
    struct Resident: BitwiseCopyable {
        struct Flags: OptionSet, BitwiseCopyable {
            let rawValue: UInt8
            static let stored = Flags(rawValue: 1)
            static let restored = Flags(rawValue: 2)
            static let moved = Flags(rawValue: 4)
            static let marked = Flags(rawValue: 8)
            /// A token change waits for it.
            static let noted = Flags(rawValue: 16)
        }

        var place: RecordPlace
        /// That of its present token.
        var device: DeviceKey
        /// Of the partition's assignment.
        var assignment: UInt32
        var storedUnder = DeviceKey(high: 0, low: 0)
        var storedDue: Int64 = 0
        /// The token change that waits for it.
        var change = RecordPlace(partitionSlot: 0, offset: 0)
    }

    /// A token change whose outcome waits for items in flight.
    struct TokenChange {
        /// Nil while it is being taken in.
        var handle: UInt32?
        /// Items that it waits for.
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

    /// What is to be done next; nil when all is done.
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

    /// Nothing waits for a device.
    public var isIdle: Bool { loads.isEmpty }
    /// Devices with items in the store only.
    public var evictedDevices: Int { evicted.count }
    /// Items in memory that came from the store.
    public var restoredItems: Int { restored.count }
    /// Partitions of which it isn't known yet what the store has.
    public var scansUnderWay: Int { evicted.scansUnderWay }
    /// So few devices stand in line that more can be named.
    public var isLineShort: Bool { line.count < limits.loads }

    /// What waits for the device goes on with a part of it: it has more items than there is room for.
    public func isPartial(_ device: DeviceKey) -> Bool { loads[device]?.isPartial ?? false }

    /// Calls with each device that is loaded or waits, and with its state.
    package func forEachLoad(_ body: (DeviceKey, DeviceLoad.State) -> Void) {
        for (device, load) in loads { body(device, load.state) }
    }

    /// The device is loaded, or waits for that.
    package func isLoading(_ device: DeviceKey) -> Bool { loads[device] != nil }

    /// Value that changes with the state of any load, but not when two loads swap their states.
    package var loadMark: SIMD8<Int32> {
        guard !loads.isEmpty else { return .zero }
        return SIMD8(
            Int32(truncatingIfNeeded: loads.count), Int32(truncatingIfNeeded: line.count),
            Int32(truncatingIfNeeded: shortLine.count), Int32(truncatingIfNeeded: loadsUnderWay),
            Int32(truncatingIfNeeded: resuming.count), Int32(truncatingIfNeeded: awaitingSlot.count),
            Int32(truncatingIfNeeded: milestones.reloaded &+ milestones.awaitedSlot),
            Int32(truncatingIfNeeded: milestones.shortOfRoom))
    }

    /// A device is in line, and there is no room for what it may have.
    public var isWaitingForRoom: Bool {
        shortLine.count > 0 || line.count > 0 && restored.count >= limits.restored
    }

    /// A record of this device comes soon. Of no other effect than on time.
    @inline(__always)
    public func prefetch(_ device: DeviceKey) {
        if evicted.count > 0 { evicted.prefetch(device) }
    }

    // MARK: Partitions

    subscript(slot: UInt16) -> Partition {
        Int(slot) < partitions.count ? partitions[Int(slot)] : Partition()
    }

    /// Has begun and hasn't ended.
    @inline(__always)
    public func isBegun(_ slot: UInt16) -> Bool {
        Int(slot) < partitions.count && partitions[Int(slot)].isBegun
    }

    /// A partition begins under a slot that an earlier one may have had; all records up to `readThrough` are read.
    /// - Parameter earlierFrom: items that the store has above what is read, from this offset on, are of an earlier log, and
    ///   older than all that will be read; `.max`: none are.
    public mutating func begin(_ slot: UInt16, readThrough offset: Int64, earlierFrom: Int64 = .max) {
        while partitions.count <= Int(slot) {
            partitions.append(Partition())
            readThrough.append(.max)
        }
        partitions[Int(slot)] = Partition(
            isBegun: true, assignment: partitions[Int(slot)].assignment &+ 1, earlierFrom: earlierFrom)
        readThrough[Int(slot)] = offset
        if earlierFrom < .max { earlierDevices = 0 }
        evicted.beginScan(slot)
        // Of a device that is on its way to memory, or there for an event, the partition may have items as well.
        for device in loads.keys.sorted(by: DeviceKey.precedes) { reload(device) }
        guard !early.isEmpty else { return }
        for record in early where record.slot == slot { ask(.takeIn(record.handle)) }
        early.removeAll { $0.slot == slot }
    }

    /// Keeps a record that came before its partition begins.
    public mutating func keepUntilBegun(_ handle: UInt32, _ slot: UInt16) { early.append((slot, handle)) }

    /// All records of a partition up to an offset have been handed to the shards.
    @inline(__always)
    public mutating func hasRead(_ slot: UInt16, through offset: Int64) {
        guard Int(slot) < readThrough.count, readThrough[Int(slot)] < offset else { return }
        readThrough[Int(slot)] = offset
    }

    /// The store has an item of this device.
    public mutating func found(_ device: DeviceKey, offset: Int64, _ slot: UInt16) {
        guard isBegun(slot) else { return }
        evicted.insert(device, slot)
        guard offset >= self[slot].earlierFrom, offset > readThrough[Int(slot)], loads[device] == nil,
            earlierDevices < limits.earlierDevices
        else { return }
        earlierDevices += 1
        standInLine(device, .partition(slot))
    }

    /// The device is online, and the store has items of it as held. They are loaded without a report, after those of devices
    /// that were back before.
    public mutating func awaited(_ device: DeviceKey, _ slot: UInt16) {
        if isBegun(slot), !self[slot].isEnding { turns.append(device, slot, self[slot].assignment) }
    }

    /// The device's items stay in the store until it is their turn; what waits for it goes on without them.
    public func isPutOff(_ device: DeviceKey) -> Bool { !loads.isEmpty && loads[device]?.isPutOff ?? false }

    /// Devices that are online and whose items wait for their turn in the store.
    public var devicesAwaitingTurn: Int { turns.count }

    /// All that the store has of a partition was told by ``found(_:offset:_:)``.
    public mutating func scanned(_ slot: UInt16) { evicted.endScan(slot) }

    /// Nothing more of a partition goes to the store, or comes from it.
    public mutating func end(_ slot: UInt16) {
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

    /// Lets go of what waits of a partition that goes away, or of all (nil): nothing of it comes back to memory.
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
                ask(.letGo(event.handle))
            }
            loads[device]!.waiting = waiting.filter { !leaves($0) }
            // What waited behind it, or has needed the device, may go on.
            if loads[device]!.state == .loaded { resuming.append(device) }
        }
    }

    /// Handles of all that waits or was kept, which are the owner's to free: the worker ends.
    public mutating func takeAllHandles() -> [UInt32] {
        abandon(nil)
        var handles = exchange(&early, with: []).map(\.handle)
        for action in actions[actionHead...] {
            switch action {
            case .takeIn(let handle), .proceed(let handle), .refuse(let handle), .takeOver(let handle),
                .leaveInStore(let handle), .letGo(let handle):
                handles.append(handle)
            case .load, .removeMark, .removed: break
            }
        }
        actions.removeAll()
        actionHead = 0
        return handles
    }

    /// Nothing that has ended is still in the store: of a partition, or of all (nil).
    public func isSettled(_ slot: UInt16?) -> Bool {
        guard let slot else { return ended.isEmpty }
        return ended.isEmpty || !ended.has(partitionSlot: slot)
    }
}

extension DeviceKey {
    /// An order that doesn't change from run to run.
    static func precedes(_ one: DeviceKey, _ other: DeviceKey) -> Bool {
        (one.high, one.low) < (other.high, other.low)
    }
}

/// Devices in a line, first come first served.
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

/// Devices in the order in which they were back, each once in a partition.
struct TurnLine: ~Copyable {
    private struct Entry: BitwiseCopyable {
        var device: DeviceKey
        var slot: UInt16
        /// Number of the slot's assignment to its partition.
        var assignment: UInt32
    }

    /// Includes entries of partitions that have gone.
    private var entries = RingQueue<Entry>(capacity: 16)
    /// By slot: its assignment, and the devices that stand in the line for that assignment.
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

    /// The slot's partition goes away. An entry of it is dropped when it comes to the front.
    mutating func removeAll(_ slot: UInt16) {
        count -= members.removeValue(forKey: slot)?.devices.count ?? 0
        if count == 0 { entries = RingQueue(capacity: 16) }
    }
}
