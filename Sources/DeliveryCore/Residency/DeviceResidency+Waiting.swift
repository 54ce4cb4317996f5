import SluiceModel

/// A device that is being loaded or waits for its load, with the events that wait for the device meanwhile.
struct DeviceLoad {
    enum State: UInt8 {
        /// In line for its loads.
        case queued
        case loading
        /// All of the device is in memory; its first event waits for another device, or for a departure's release.
        case loaded
        /// All of the device is in memory; its first event waits for a slot of the delivery machine.
        case awaitsSlot
    }

    /// A record or departure that waits for the device.
    enum Event {
        case record(DeferredRecord)
        case migration(DeferredMigration)

        var handle: UInt32 {
            switch self {
            case .record(let record): record.handle
            case .migration(let migration): migration.handle
            }
        }

        var place: RecordPlace {
            switch self {
            case .record(let record): record.place
            case .migration(let migration): migration.place
            }
        }
    }

    var look: PresenceLook
    var state = State.queued
    /// Events in the order in which they came.
    var waiting: [Event] = []
    /// True when the issued loads don't cover all items: the device is loaded again before any waiting event continues.
    var needsReload = false
    /// True when the store was asked to keep the device's presence since its loads were issued.
    var keepsPresence = false
    /// Offset of the first item that was left in the store because an older push waits here; by partition.
    var skipped: [UInt16: Int64] = [:]
    /// Loads that were issued and haven't been taken in.
    var awaited = 0
    /// Room that is reserved for the awaited loads, in items.
    var reserved = 0
    /// Items that the last round found and that weren't in memory; `leftOut` counts those without room.
    var found = 0
    var leftOut = 0
    /// Items for which the next round needs room; 0 when unknown.
    var needs = 0
    /// True when the device has more items than there is room for: events continue with the items in memory.
    var isPartial = false
    /// True while the device's items stay in the store until their turn. Its `online` reports proceed without them.
    var isPutOff = false
    /// True when the device stands in line for its items as well, and not only for waiting events.
    var needsItems = false
    /// Devices whose first event needs this device as well.
    var dependents: [DeviceKey] = []

    /// True when all of the device is in memory.
    var isWhole: Bool { state == .loaded && !isPartial && !isPutOff }

    init(look: PresenceLook) { self.look = look }
}

/// Events that wait for devices, and how they continue.
extension DeviceResidency {
    // MARK: Questions

    func mustLoad(_ device: DeviceKey, _ look: PresenceLook, _ delivery: borrowing DeliveryMachine) -> Bool {
        if !evicted.isEmpty, evicted.contains(device) { return true }
        return look != .nowhere && limits.hasStore && !delivery.knowsPresence(of: device)
    }

    /// Returns true when the device stands in line for its load, is being loaded, or has events that wait.
    @inline(__always)
    func isAwaited(_ device: DeviceKey) -> Bool { !loads.isEmpty && loads[device] != nil }

    /// Returns true when an event of a device has to wait: some items aren't in memory, or other events wait for the
    /// device.
    @inline(__always)
    public func mustDefer(
        _ device: DeviceKey, _ look: PresenceLook, _ delivery: borrowing DeliveryMachine
    ) -> Bool {
        isAwaited(device) || mustLoad(device, look, delivery)
    }

    /// Does the same for a record that may concern another device as well.
    public func mustDefer(_ record: DeferredRecord, _ delivery: borrowing DeliveryMachine) -> Bool {
        if mustDefer(record.device, record.look, delivery) { return true }
        guard let other = record.otherDevice else { return false }
        if let load = loads[other] { return !load.isWhole || load.look != .everywhere }
        return mustLoad(other, .everywhere, delivery)
    }

    /// Returns the lowest and highest offset of each partition's records that wait for loads. O(waiting events).
    ///
    /// Records that wait for slots don't count, because they may wait until pushes of the partition have been sent.
    func recordsForLoads() -> [UInt16: ClosedRange<Int64>] {
        var offsets: [UInt16: ClosedRange<Int64>] = [:]
        for load in loads.values where isLoading(load) || waitsForOther(load) {
            for case .record(let record) in load.waiting {
                let (slot, offset) = (record.place.partitionSlot, record.place.offset)
                let known = offsets[slot] ?? offset...offset
                offsets[slot] = min(known.lowerBound, offset)...max(known.upperBound, offset)
            }
        }
        return offsets
    }

    private func isLoading(_ load: DeviceLoad) -> Bool { load.state == .queued || load.state == .loading }

    /// Returns true when the first event of a device waits for the load of another device.
    private func waitsForOther(_ load: DeviceLoad) -> Bool {
        guard load.state == .loaded, case .record(let record)? = load.waiting.first,
            let other = record.otherDevice, let otherLoad = loads[other]
        else { return false }
        return isLoading(otherLoad)
    }

    // MARK: Waiting

    /// Makes a record wait for which ``mustDefer(_:_:)`` returned true.
    public mutating func deferUntilLoaded(_ record: DeferredRecord, _ delivery: borrowing DeliveryMachine) {
        assert(mustDefer(record, delivery), "a record waits for nothing")
        if let other = record.otherDevice, !mustDefer(record.device, record.look, delivery),
            waits(record.device, for: other, delivery)
        {
            var load = DeviceLoad(look: record.look)
            load.state = .loaded
            load.waiting.append(.record(record))
            loads[record.device] = load
            return
        }
        append(.record(record), record.device, record.look, delivery)
    }

    /// Decides what to do with an item that comes from another shard.
    public mutating func importItem(
        _ migration: DeferredMigration, _ delivery: borrowing DeliveryMachine
    ) -> ArrivalVerdict {
        // The other shard has read the record, and all records before it were handed to the shards.
        let place = migration.place
        if !place.isOfEarlierLog { hasRead(place.partitionSlot, through: place.offset) }
        let mustWait = !migration.isReleased || mustDefer(migration.device, .everywhere, delivery)
        if migration.isRestored {
            // A waiting item takes no room: the loads that the item waits for must not wait for it.
            guard mustWait ? waitingRestored < limits.room || !migration.isReleased : reserveRoom(migration)
            else {
                leaveInStore(migration.device, migration.place.partitionSlot)
                return .leaveInStore
            }
            if mustWait { waitingRestored += 1 }
        }
        guard mustWait else { return .takeOver }
        append(.migration(migration), migration.device, .everywhere, delivery)
        return .deferred
    }

    /// Takes room for a restored item. Returns false when there is none.
    private mutating func reserveRoom(_ migration: DeferredMigration) -> Bool {
        guard restored.count < limits.room else { return false }
        restored.insert(migration.place)
        return true
    }

    private mutating func append(
        _ event: DeviceLoad.Event, _ device: DeviceKey, _ look: PresenceLook,
        _ delivery: borrowing DeliveryMachine
    ) {
        guard let load = loads[device] else {
            standInLine(device, look, needsItems: false)
            loads[device]!.waiting.append(event)
            return
        }
        loads[device]!.waiting.append(event)
        let union = load.look.union(look)
        loads[device]!.look = union
        switch load.state {
        case .queued: break
        case .loading: if union != load.look { loads[device]!.needsReload = true }
        case .loaded, .awaitsSlot: if mustLoad(device, look, delivery) { reload(device, needsItems: false) }
        }
    }

    /// - Parameter needsItems: false when the device may be loaded only for events that will wait for it.
    mutating func standInLine(_ device: DeviceKey, _ look: PresenceLook, needsItems: Bool = true) {
        loads[device] = DeviceLoad(look: look)
        loads[device]!.needsItems = needsItems
        line.append(device)
    }

    /// Loads a device again because some of its items aren't in memory any more.
    mutating func reload(_ device: DeviceKey, needsItems: Bool = true) {
        if needsItems { loads[device]?.needsItems = true }
        switch loads[device]?.state {
        case .loading, .awaitsSlot: loads[device]!.needsReload = true
        case .loaded: queueAgain(device)
        case .queued, nil: break
        }
    }

    mutating func queueAgain(_ device: DeviceKey, needsItems: Bool = false) {
        if needsItems { loads[device]!.needsItems = true }
        loads[device]!.state = .queued
        line.append(device)
    }

    /// Returns true when the first event of a device has to wait for another device as well.
    private mutating func waits(
        _ device: DeviceKey, for other: DeviceKey, _ delivery: borrowing DeliveryMachine
    ) -> Bool {
        if let load = loads[other] {
            if load.isWhole, load.look == .everywhere { return false }
            loads[other]!.look = .everywhere
            if load.look != .everywhere || load.isWhole { reload(other) }
        } else {
            guard mustLoad(other, .everywhere, delivery) else { return false }
            standInLine(other, .everywhere)
        }
        loads[other]!.dependents.append(device)
        return true
    }

    // MARK: Slots

    /// Makes a record wait for a slot of the delivery machine, before all other events of its device.
    public mutating func deferUntilSlot(_ record: DeferredRecord) {
        deferUntilSlot(.record(record), record.device, record.look)
    }

    /// Does the same for an item that was to be taken over.
    public mutating func deferUntilSlot(_ migration: DeferredMigration) {
        if migration.isRestored {
            restored.remove(migration.place)
            waitingRestored += 1
        }
        deferUntilSlot(.migration(migration), migration.device, .everywhere)
    }

    private mutating func deferUntilSlot(
        _ event: DeviceLoad.Event, _ device: DeviceKey, _ look: PresenceLook
    ) {
        if loads[device] == nil {
            loads[device] = DeviceLoad(look: look)
            loads[device]!.state = .loaded
        }
        loads[device]!.waiting.insert(event, at: 0)
        // A device in line looks for a slot again after its load.
        guard loads[device]!.state == .loaded else { return }
        loads[device]!.state = .awaitsSlot
        awaitingSlot.append(device)
    }

    /// Resumes the device that has waited longest for a slot, because a slot is free.
    mutating func wakeForSlot() {
        guard let device = awaitingSlot.first else { return }
        awaitingSlot.removeFirst()
        guard loads[device]?.state == .awaitsSlot else { return }
        loads[device]!.state = .loaded
        resuming.append(device)
    }

    // MARK: Departures

    /// Returns the handles of the departures that wait for a device and aren't released.
    public func unreleased(of device: DeviceKey) -> [UInt32] {
        guard let load = loads[device] else { return [] }
        return load.waiting.compactMap { event in
            guard case .migration(let migration) = event, !migration.isReleased else { return nil }
            return migration.handle
        }
    }

    /// Records that a departure may be taken over.
    public mutating func release(_ handle: UInt32, of device: DeviceKey) {
        guard let load = loads[device] else { return }
        for index in load.waiting.indices {
            guard case .migration(var migration) = load.waiting[index], migration.handle == handle else {
                continue
            }
            migration.isReleased = true
            loads[device]!.waiting[index] = .migration(migration)
        }
        if load.state == .loaded { resuming.append(device) }
    }

    // MARK: Going on

    /// Returns the action for the next event of a device that is all in memory, in the order of arrival. Returns nil
    /// when none of its events continues for now, or events of other devices have to continue before.
    ///
    /// A device stays on the stack while its dependents continue, and counts as loaded for them.
    mutating func resume(_ device: DeviceKey, _ delivery: borrowing DeliveryMachine) -> ResidencyAction? {
        guard let load = loads[device], load.state == .loaded else { return endResuming() }
        if load.needsReload {
            queueAgain(device)
            return endResuming()
        }
        if load.isPartial { return resumePart(device) }
        if load.isPutOff { return resumePutOff(device, delivery) }
        guard let event = load.waiting.first else {
            if !load.skipped.isEmpty {
                queueAgain(device, needsItems: true)
                return endResuming()
            }
            if resumeDependents(device) { return nil }
            _ = resuming.popLast()
            loads[device] = nil
            return nil
        }
        switch event {
        case .record(let record):
            if let other = record.otherDevice, waits(device, for: other, delivery) { return endResuming() }
            // A push that was complete before needs no item: it only outdates older pushes.
            if !record.isReplay, let skipped = load.skipped[record.place.partitionSlot],
                skipped <= record.place.offset
            {
                queueAgain(device, needsItems: true)
                return endResuming()
            }
            loads[device]!.waiting.removeFirst()
            return .proceed(record.handle)
        case .migration(let migration):
            guard migration.isReleased else { return resumeDependents(device) ? nil : endResuming() }
            loads[device]!.waiting.removeFirst()
            if migration.isRestored {
                waitingRestored -= 1
                guard reserveRoom(migration) else {
                    leaveInStore(device, migration.place.partitionSlot)
                    return .leaveInStore(migration.handle)
                }
            }
            return .takeOver(migration.handle)
        }
    }

    /// Resumes a device of which as many items are in memory as there is room for. Reports of the device's presence
    /// proceed, because its items may wait for them. A push is refused, because an older push of its identity may be
    /// among the items that aren't in memory. All other events wait for the rest of the items, which are loaded when
    /// the items in memory have left it.
    private mutating func resumePart(_ device: DeviceKey) -> ResidencyAction? {
        let skipped = loads[device]!.skipped
        let index = loads[device]!.waiting.firstIndex { event in
            guard case .record(let record) = event else { return false }
            // A skipped item can be the push's own.
            return record.isPush
                ? record.place.offset < skipped[record.place.partitionSlot] ?? .max : record.look != .nowhere
        }
        if let index, case .record(let record) = loads[device]!.waiting.remove(at: index) {
            return record.isPush ? .refuse(record.handle) : .proceed(record.handle)
        }
        loads[device]!.state = .queued
        loads[device]!.needsItems = true
        loads[device]!.needs = limits.room
        shortLine.append(device)
        return endResuming()
    }

    /// Resumes a device whose items stay in the store. Its `online` reports proceed; any other event needs the items.
    /// When no event waits any more, the device has its turn after the devices that were back before.
    private mutating func resumePutOff(
        _ device: DeviceKey, _ delivery: borrowing DeliveryMachine
    ) -> ResidencyAction? {
        guard let load = loads[device] else { return endResuming() }
        if let event = load.waiting.first {
            guard case .record(let record) = event, record.isReturn else {
                queueAgain(device, needsItems: true)
                return endResuming()
            }
            loads[device]!.waiting.removeFirst()
            return .proceed(record.handle)
        }
        guard load.dependents.isEmpty, !load.needsItems else {
            queueAgain(device, needsItems: true)
            return endResuming()
        }
        loads[device] = nil
        if case .partition(let slot) = load.look, delivery.isOnline(device) { awaited(device, slot) }
        return endResuming()
    }

    private mutating func endResuming() -> ResidencyAction? {
        _ = resuming.popLast()
        return nil
    }

    private mutating func resumeDependents(_ device: DeviceKey) -> Bool {
        let dependents = exchange(&loads[device]!.dependents, with: [])
        let loaded = dependents.filter { loads[$0]?.state == .loaded }
        resuming.append(contentsOf: loaded.reversed())
        return !loaded.isEmpty
    }
}
