import DeliveryCore
import SluiceModel

/// Observation of a shard's machines, between their calls.
extension ShardProcess {
    struct Watch {
        /// By slot of the delivery machine: the state that was seen last.
        var items: [UInt8]
        /// The delivery machine's mark when they were seen.
        var itemMark: UInt64 = 0
        var circuit: UInt8 = 0
        var order: UInt8
        var loads: [DeviceKey: UInt8] = [:]
        var loadMark = SIMD8<Int32>.zero
    }

    // MARK: The delivery machine

    /// Call after each call of the delivery machine, before its actions are carried out.
    /// - Parameter slot: of the item that the call was about, if it was about one.
    @inline(__always)
    func observeItems(_ slot: UInt32 = DeliveryMachine.noSlot) {
        if slot != DeliveryMachine.noSlot { observeItem(slot) }
        if machine.delivery.stateMark != watch.itemMark {
            for slot in 0..<UInt32(machine.delivery.usedSlots) { observeItem(slot) }
        }
        let circuit = machine.delivery.circuit(0).rawValue
        if circuit != watch.circuit {
            world.coverage.moved(.circuit, from: watch.circuit, to: circuit)
            watch.circuit = circuit
        }
    }

    @inline(__always)
    private func observeItem(_ slot: UInt32) {
        let state = machine.delivery.state(slot).rawValue
        let old = watch.items[Int(slot)]
        guard state != old else { return }
        world.coverage.moved(.item, from: old, to: state)
        watch.items[Int(slot)] = state
        watch.itemMark &+= DeliveryMachine.markWeight(state) &- DeliveryMachine.markWeight(old)
    }

    /// Records that a slot is released.
    func observeRelease(_ slot: UInt32) { observeItem(slot) }

    /// - Parameter arrival: 0: from its record, 1: from the store, 2: from another shard.
    func observe(_ settlement: Settlement, _ arrival: UInt8) {
        let to: UInt8
        switch settlement {
        case .placed(let slot):
            observeItems(slot)
            to = 3
        case .replaced(let slot, _):
            observeItems(slot)
            to = 4
        case .refused(.superseded, _, _, _): to = 5
        case .repeated: to = 6
        case .refused(.undeliverable, _, _, _): to = 7
        case .refused: to = 8
        case .deferred, .leftOut: to = 9
        }
        world.coverage.moved(.admission, from: arrival, to: to)
    }

    func count(_ action: ShardAction) {
        switch action {
        case .finish(let slot, let kind, _, _, _):
            observeRelease(slot)
            if let milestone = Self.milestone(kind) { world.coverage.reached(milestone) }
        case .giveBack(let slot):
            observeRelease(slot)
            world.coverage.reached(.dropped)
        case .evict(let slot):
            observeRelease(slot)
            world.coverage.reached(.evicted)
        case .depart: world.coverage.reached(.departed)
        case .put, .keep: world.coverage.reached(.stored)
        case .requeue: world.coverage.reached(.requeued)
        case .noteMove: world.coverage.reached(.moveNoted)
        case .readdress: world.coverage.reached(.readdressed)
        case .alert: world.coverage.reached(.alert)
        case .recovered: world.coverage.reached(.recovered)
        case .keepPresence: world.coverage.reached(.presenceKept)
        case .suspended: world.coverage.reached(.topicSuspended)
        case .resumed: world.coverage.reached(.topicResumed)
        case .probeWanted: world.coverage.reached(.probeWanted)
        case .enqueue, .dequeue, .gaveBack, .giveBackChange, .forgetPresence: break
        }
    }

    private static func milestone(_ kind: OutcomeKind) -> FleetMilestone? {
        switch kind {
        case .accepted: .accepted
        case .confirmed: .confirmed
        case .rejected: .rejected
        case .expired: .expired
        case .superseded: .superseded
        case .cancelled: .cancelled
        case .undeliverable: .undeliverable
        // Cancels and device events end this way.
        default: nil
        }
    }

    // MARK: The residency

    /// Call after each call of the residency.
    @inline(__always)
    func observeLoads() {
        let mark = machine.residency.loadMark
        guard mark != watch.loadMark else { return }
        watch.loadMark = mark
        compareLoads()
    }

    private func compareLoads() {
        var count = 0
        machine.residency.forEachLoad { device, state in
            count += 1
            let new = state.rawValue + 1
            let old = watch.loads.updateValue(new, forKey: device) ?? 0
            if old != new { world.coverage.moved(.load, from: old, to: new) }
        }
        guard watch.loads.count > count else { return }
        for (device, old) in watch.loads where !machine.residency.isLoading(device) {
            world.coverage.moved(.load, from: old, to: 0)
            watch.loads[device] = nil
        }
    }

    func count(_ action: ResidencyAction) {
        switch action {
        case .takeIn: world.coverage.reached(.takeIn)
        case .proceed: world.coverage.reached(.proceed)
        case .refuse: world.coverage.reached(.refuse)
        case .takeOver: world.coverage.reached(.takeOver)
        case .leaveInStore: world.coverage.reached(.leaveInStore)
        case .discard: world.coverage.reached(.letGo)
        case .load: world.coverage.reached(.load)
        case .removeMark: world.coverage.reached(.removeMark)
        case .removed: world.coverage.reached(.removed)
        }
    }

    /// Adds what the machines have counted themselves, at the end of the world.
    func addMilestones(to coverage: inout FleetCoverage) {
        let own = machine.residency.milestones
        coverage.reached(.deferred, times: own.deferred)
        coverage.reached(.waitedForTwo, times: own.waitedForTwo)
        coverage.reached(.reloaded, times: own.reloaded)
        coverage.reached(.shortOfRoom, times: own.shortOfRoom)
        coverage.reached(.partial, times: own.partial)
        coverage.reached(.awaitedSlot, times: own.awaitedSlot)
        coverage.reached(.leftInStore, times: own.leftInStore)
        coverage.reached(.skipped, times: own.skipped)
        coverage.reached(.putOff, times: own.putOff)
        coverage.reached(.future, times: own.future)
        coverage.reached(.stale, times: own.stale)
        coverage.reached(.awaitsTurn, times: machine.milestones.awaitedTurn)
        coverage.reached(.offsetDone, times: machine.milestones.offsetsDone)
        coverage.reached(.retried, times: machine.delivery.milestones.retried)
        coverage.reached(.repeated, times: machine.delivery.milestones.repeated)
    }

    // MARK: The order of records

    /// Call after each call of the order.
    @inline(__always)
    func observeOrder() {
        let state = order.state.rawValue
        guard state != watch.order else { return }
        world.coverage.moved(.order, from: watch.order, to: state)
        watch.order = state
    }

    func count(_ action: ProduceAction) {
        switch action {
        case .gaveBack: world.coverage.reached(.gaveBack)
        case .released: world.coverage.reached(.released)
        case .armTimer: world.coverage.reached(.armTimer)
        case .refused: world.coverage.reached(.refused)
        case .droppedChange: world.coverage.reached(.droppedChange)
        case .failed: world.coverage.reached(.recordFailed)
        case .resumed: world.coverage.reached(.resumed)
        case .produce, .forget, .frozen, .neverFits: break
        }
    }
}
