import SluiceModel

/// A device whose items are on their way from the store, or that has to wait for that, with what is for it meanwhile.
package struct DeviceLoad {
    package enum State: UInt8, CaseIterable, Sendable {
        /// In line for its loads.
        case queued
        case loading
        /// All of it is in memory; its first event waits for another device, or for a departure's release.
        case loaded
        /// All of it is in memory; its first event waits for a slot of the delivery machine.
        case awaitsSlot
    }

    /// What waits for the device.
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
    /// In the order in which it came.
    var waiting: [Event] = []
    /// What was asked for doesn't cover all: once more before anything that waits goes on.
    var needsReload = false
    /// The store was asked to keep the device's presence since its loads were asked for.
    var keepsPresence = false
    /// By partition: the first item that was left in the store, as an older push waits here.
    var skipped: [UInt16: Int64] = [:]
    /// Loads that were asked for and haven't come.
    var awaited = 0
    /// Room that is reserved for them, in items.
    var reserved = 0
    /// Items that the last round has found and that weren't in memory; of those, the ones without room.
    var found = 0
    var leftOut = 0
    /// Items that the next round needs room for; 0: unknown.
    var needs = 0
    /// It has more items than there is room for: what waits goes on with those that are here.
    var isPartial = false
    /// Its items stay in the store until it is their turn: reports that the device is online go on without them.
    var isPutOff = false
    /// The device stands in line for its items as well, and not only for what waits.
    var needsItems = false
    /// Devices whose first event needs this one as well.
    var dependents: [DeviceKey] = []

    /// All of the device is in memory.
    var isWhole: Bool { state == .loaded && !isPartial && !isPutOff }

    init(look: PresenceLook) { self.look = look }
}

/// What waits for devices, and goes on.
extension DeviceResidency {
    // MARK: Questions

    func mustLoad(_ device: DeviceKey, _ look: PresenceLook, _ delivery: borrowing DeliveryMachine) -> Bool {
        if !evicted.isEmpty, evicted.contains(device) { return true }
        return look != .nowhere && limits.hasStore && !delivery.knowsPresence(of: device)
    }

    /// Whether what concerns a device has to wait: all of the device isn't in memory, or others wait for it.
    @inline(__always)
    public func mustDefer(
        _ device: DeviceKey, _ look: PresenceLook, _ delivery: borrowing DeliveryMachine
    ) -> Bool {
        if !loads.isEmpty, loads[device] != nil { return true }
        return mustLoad(device, look, delivery)
    }

    /// The same of a record that may concern another device as well.
    public func mustDefer(_ record: DeferredRecord, _ delivery: borrowing DeliveryMachine) -> Bool {
        if mustDefer(record.device, record.look, delivery) { return true }
        guard let other = record.otherDevice else { return false }
        if let load = loads[other] { return !load.isWhole || load.look != .everywhere }
        return mustLoad(other, .everywhere, delivery)
    }

    // MARK: Waiting

    /// Has a record wait of which ``mustDefer(_:_:)`` says that it must.
    public mutating func deferUntilLoaded(_ record: DeferredRecord, _ delivery: borrowing DeliveryMachine) {
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

    /// An item comes from another shard.
    public mutating func importItem(
        _ migration: DeferredMigration, _ delivery: borrowing DeliveryMachine
    ) -> ArrivalVerdict {
        // Another shard has read the record, and all before it were handed to the shards.
        let place = migration.place
        if !place.isOfEarlierLog { hasRead(place.partitionSlot, through: place.offset) }
        let mustWait = !migration.isReleased || mustDefer(migration.device, .everywhere, delivery)
        if migration.isRestored {
            // One that waits takes no slot: the loads that it waits for must not wait for it.
            guard mustWait ? waitingRestored < limits.room || !migration.isReleased : takeRoom(migration)
            else {
                leftInStore(migration.device, migration.place.partitionSlot)
                return .leaveInStore
            }
            if mustWait { waitingRestored += 1 }
        }
        guard mustWait else { return .takeOver }
        append(.migration(migration), migration.device, .everywhere, delivery)
        return .deferred
    }

    /// False when there is no room for a restored item to be taken over.
    private mutating func takeRoom(_ migration: DeferredMigration) -> Bool {
        guard restored.count < limits.room else { return false }
        restored.insert(migration.place)
        return true
    }

    private mutating func append(
        _ event: DeviceLoad.Event, _ device: DeviceKey, _ look: PresenceLook,
        _ delivery: borrowing DeliveryMachine
    ) {
        milestones.deferred += 1
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

    /// - Parameter needsItems: false: what will wait for the device may be all that it is loaded for.
    mutating func standInLine(_ device: DeviceKey, _ look: PresenceLook, needsItems: Bool = true) {
        loads[device] = DeviceLoad(look: look)
        loads[device]!.needsItems = needsItems
        line.append(device)
    }

    /// What is in memory of a device isn't all of it any more.
    mutating func reload(_ device: DeviceKey, needsItems: Bool = true) {
        if needsItems { loads[device]?.needsItems = true }
        switch loads[device]?.state {
        case .loading, .awaitsSlot: loads[device]!.needsReload = true
        case .loaded: queueAgain(device)
        case .queued, nil: break
        }
    }

    mutating func queueAgain(_ device: DeviceKey, needsItems: Bool = false) {
        milestones.reloaded += 1
        if needsItems { loads[device]!.needsItems = true }
        loads[device]!.state = .queued
        line.append(device)
    }

    /// True when the first event of a device has to wait for another one as well.
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
        milestones.waitedForTwo += 1
        loads[other]!.dependents.append(device)
        return true
    }

    // MARK: Slots

    /// The delivery machine had no slot for a record that was to go on: it waits for one, before all else of its device.
    public mutating func deferUntilSlot(_ record: DeferredRecord) {
        deferUntilSlot(.record(record), record.device, record.look)
    }

    /// The same of an item that was to be taken over.
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
        milestones.awaitedSlot += 1
        loads[device]!.waiting.insert(event, at: 0)
        // In line, it finds out again.
        guard loads[device]!.state == .loaded else { return }
        loads[device]!.state = .awaitsSlot
        awaitingSlot.append(device)
    }

    /// There is a slot: the device that has waited longest goes on.
    mutating func wakeForSlot() {
        guard let device = awaitingSlot.first else { return }
        awaitingSlot.removeFirst()
        guard loads[device]?.state == .awaitsSlot else { return }
        loads[device]!.state = .loaded
        resuming.append(device)
    }

    // MARK: Departures

    /// Handles of the departures that wait for a device and aren't released.
    public func unreleased(of device: DeviceKey) -> [UInt32] {
        guard let load = loads[device] else { return [] }
        return load.waiting.compactMap { event in
            guard case .migration(let migration) = event, !migration.isReleased else { return nil }
            return migration.handle
        }
    }

    /// A departure may be taken over.
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

    /// All of a device is in memory: its next event, in the order in which they came. Nil: nothing of it goes on for now, or
    /// others have to before it.
    ///
    /// A device stays on the stack while those that need it as well go on, and counts as loaded for them.
    mutating func resume(_ device: DeviceKey, _ delivery: borrowing DeliveryMachine) -> ResidencyAction? {
        guard let load = loads[device], load.state == .loaded else { return goOn() }
        if load.needsReload {
            queueAgain(device)
            return goOn()
        }
        if load.isPartial { return resumePart(device) }
        if load.isPutOff { return resumePutOff(device, delivery) }
        guard let event = load.waiting.first else {
            if !load.skipped.isEmpty {
                queueAgain(device, needsItems: true)
                return goOn()
            }
            if resumeDependents(device) { return nil }
            _ = resuming.popLast()
            loads[device] = nil
            return nil
        }
        switch event {
        case .record(let record):
            if let other = record.otherDevice, waits(device, for: other, delivery) { return goOn() }
            if let skipped = load.skipped[record.place.partitionSlot], skipped <= record.place.offset {
                queueAgain(device, needsItems: true)
                return goOn()
            }
            loads[device]!.waiting.removeFirst()
            return .proceed(record.handle)
        case .migration(let migration):
            guard migration.isReleased else { return resumeDependents(device) ? nil : goOn() }
            loads[device]!.waiting.removeFirst()
            if migration.isRestored {
                waitingRestored -= 1
                guard takeRoom(migration) else {
                    leftInStore(device, migration.place.partitionSlot)
                    return .leaveInStore(migration.handle)
                }
            }
            return .takeOver(migration.handle)
        }
    }

    /// As much of a device is in memory as there is room for. What says where the device is goes on, as its items may wait for
    /// that; a push is refused, as an older one of its identity may be among those that aren't here. All else waits for the
    /// rest, which comes when these have gone.
    private mutating func resumePart(_ device: DeviceKey) -> ResidencyAction? {
        let skipped = loads[device]!.skipped
        let index = loads[device]!.waiting.firstIndex { event in
            guard case .record(let record) = event else { return false }
            // What was skipped can be the push's own item.
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
        return goOn()
    }

    /// Reports that the device is online go on, all else needs its items. When nothing waits any more, the device has its
    /// turn after those that were back before.
    private mutating func resumePutOff(
        _ device: DeviceKey, _ delivery: borrowing DeliveryMachine
    ) -> ResidencyAction? {
        guard let load = loads[device] else { return goOn() }
        if let event = load.waiting.first {
            guard case .record(let record) = event, record.isReturn else {
                queueAgain(device, needsItems: true)
                return goOn()
            }
            loads[device]!.waiting.removeFirst()
            milestones.putOff += 1
            return .proceed(record.handle)
        }
        guard load.dependents.isEmpty, !load.needsItems else {
            queueAgain(device, needsItems: true)
            return goOn()
        }
        loads[device] = nil
        if case .partition(let slot) = load.look, delivery.isOnline(device) { awaited(device, slot) }
        return goOn()
    }

    private mutating func goOn() -> ResidencyAction? {
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
