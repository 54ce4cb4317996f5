import DeliveryCore
import DequeModule
import SluiceModel

/// A shard of a worker: the shell of the shard's machines.
///
/// The shell carries out their actions on a model of APNs, on the producer and on the disk.
final class ShardProcess {
    // Unsafe: the process owns the shard.
    unowned(unsafe) let process: WorkerProcess
    let number: Int
    var machine: ShardMachine
    var order: ProduceOrder
    var watch: Watch
    private var messages = Deque<Message>()
    private var ring = Deque<Incoming>()
    /// By slot.
    var held: [Held]
    /// Events that wait, by handle.
    var events: [UInt32: Event] = [:]
    var isFollowing = false
    /// Slots in the order of their turns.
    var waiting: [UInt32] = []
    var inFlight: [Request] = []
    /// Records of the order, by handle.
    var outputs: [UInt32: Output] = [:]
    /// Nanoseconds at which the order is to be called; `.max`: not at all.
    var timerAt = UInt64.max
    var afterwards: [(ticket: UInt64, body: () -> Void)] = []
    var nextTicket: UInt64 = 0
    private var turns = 0
    /// Counts of pushes that the process has.
    private var counted = (ended: 0, records: 0)
    /// Last change of the operator's switches that the shard knows; -1: none.
    var learnedSwitches = -1
    var pausedTopics: Set<UInt16> = []

    // The store.
    /// By slot of the partition.
    var stored: [UInt16: Stored] = [:]
    var batch = FleetBatch()
    /// A change couldn't be made, so that no batch is submitted any more.
    var hasLostChange = false
    /// Tokens of token changes, by their numbers.
    var pastTokens: [Int] = []
    /// Keys of ended items in the changelog, where tombstones don't go with the outcomes.
    var changelogKeys: [EndedItem: FleetItemKey] = [:]

    init(_ process: WorkerProcess, number: Int) {
        self.process = process
        self.number = number
        let scenario = process.world.scenario
        machine = ShardMachine(
            .init(
                index: number, shards: scenario.shards, mode: scenario.mode, delivery: scenario.limits,
                residency: scenario.residency, seed: process.world.random()),
            isAllPaused: process.world.switches.areUsed)
        order = ProduceOrder(isTransactional: scenario.mode == .transactions)
        held = [Held](repeating: Held(), count: scenario.limits.capacity)
        watch = Watch(
            items: [UInt8](repeating: 0, count: scenario.limits.capacity), order: order.state.rawValue)
    }

    var world: FleetWorld { process.world }
    var now: DeliveryTime { process.time }
    var hasStore: Bool { world.scenario.mode.hasStore }
    var hasChangelog: Bool { world.scenario.mode.hasChangelog }
    var hasTurns: Bool { machine.devicesAwaitingTurn > 0 }

    var isPermitted: Bool { world.now < process.permit }

    var isIdle: Bool {
        messages.isEmpty && ring.isEmpty && machine.count == 0 && order.waiting == 0 && batch.isEmpty
            && machine.residency.isIdle && events.isEmpty
    }

    var summary: String {
        "shard \(number): \(machine.count) held, \(waiting.count) wait, \(order.waiting) to produce, frozen \(order.isFrozen), \(events.count) wait for devices"
    }

    /// Returns whether a push is in memory.
    func has(_ job: Int) -> Bool { held.contains { $0.job == job } }

    // MARK: Messages

    func ask(_ request: ShardRequest) { messages.append(.request(request)) }

    func send(_ message: Message) { messages.append(message) }

    func take(_ record: Incoming) { ring.append(record) }

    // MARK: Turns

    func turn() {
        var count = messages.count
        while count > 0, process.isRunning, let message = messages.popFirst() {
            count -= 1
            world.counts.events += 1
            perform(message)
        }
        guard process.isRunning else { return }
        followSwitches()
        takeRecords()
        answer()
        if let wake = machine.nextWake(after: now), wake <= world.now {
            machine.advance(to: now)
            act()
        }
        endTurn()
        checkInvariants()
    }

    /// Checks invariants now and then only, because the check reads everything.
    private func checkInvariants() {
        turns += 1
        guard turns % 64 == 0, !machine.hasEnded else { return }
        let (next, sample) = machine.checkInvariants(from: turns % 40, slots: 32)
        guard let problem = machine.checkInvariants() ?? sample else { return }
        world.broken(.sound, "shard \(number) of process \(process.serial): \(problem), \(next)")
    }

    private func perform(_ message: Message) {
        switch message {
        case .request(let request): perform(request)
        case .begin(let slot, let part, let readThrough, let earlierFrom, let committed, let marks):
            begin(slot, part, readThrough: readThrough, earlierFrom: earlierFrom, committed, marks)
        case .awaited(let slot, let tokens):
            for token in tokens { machine.awaited(world.keys[token], slot) }
        case .found(let slot, let items):
            for item in items { machine.found(item.device, offset: item.offset, slot) }
        case .scanned(let slot): machine.scanned(slot)
        case .batchEnded(let batch, let loaded): batchEnded(batch, loaded)
        case .importItem(let migration): importItem(migration)
        case .released(let device): releaseMigrations(device)
        }
    }

    private func endTurn() {
        if timerAt <= world.now {
            timerAt = .max
            order.timerDue(isPermitted: isPermitted)
        } else {
            order.flush(isPermitted: isPermitted)
        }
        produce()
        if machine.maySend, !order.isBlocked, isPermitted { send() }
        countPushes()
        submitToStore()
        tellSettled()
    }

    /// Makes the turn's counts visible to the worker's loop.
    private func countPushes() {
        let (ended, records) = (machine.endedPushes, order.waiting + order.retained)
        process.pushes.ended += ended - counted.ended
        process.pushes.records += records - counted.records
        counted = (ended, records)
    }

    func tellIntake() {
        guard let news = machine.takeProgress(holdsBack: order.writesForNext) else { return }
        process.report(number, .progress(news))
    }

    private func tellSettled() {
        for report in machine.takeSettled() {
            guard report != .settledAll else { return process.report(number, report) }
            afterThis { [self] in process.report(number, report) }
        }
    }

    // MARK: Requests

    private func perform(_ request: ShardRequest) {
        switch request {
        case .begin: world.broken(.sound, "a partition begins without its part of the store")
        case .catchUp(let slot):
            world.note("process # catches up, slot #", process.serial, Int(slot))
            machine.beginCatchUp(slot)
        case .caughtUp(let slot):
            world.note("process # has caught up, slot #", process.serial, Int(slot))
            takeRecords()
            machine.endCatchUp(slot, at: now)
            act()
        case .abandon(let slots, let isLost):
            process.report(
                number,
                .abandoned(slots.map { SlotCount(slot: $0, count: abandon($0, isLost: isLost)) }))
        case .settle(let slot): machine.settle(slot)
        case .release(let slot): machine.awaitRelease(slot)
        case .end(let slots): for slot in slots { end(slot) }
        case .freeze(let number, let atOnce):
            submitToStore()
            order.freeze(number, atOnce: atOnce)
            produce()
        case .thaw(let number, let repeating, let refused):
            let cuts = Dictionary(refused.map { ($0.outcome, $0.cuts) }, uniquingKeysWith: max)
            let refusals =
                cuts.isEmpty
                ? []
                : outputs.compactMap { handle, output in
                    output.change == nil
                        ? cuts[output.word.outcome(world)].map {
                            ProduceOrder.Refusal(handle: handle, cuts: $0)
                        }
                        : nil
                }
            order.thaw(number, repeating: repeating, refused: refusals)
            produce()
        case .leaveResponses: process.report(self.number, .leftResponses([]))
        case .pass(let number): process.report(self.number, .passed(number))
        case .flush: process.report(number, .flushed(flushToStore()))
        case .drain:
            machine.drain()
            process.report(number, .drained(abandon(nil, isLost: false)))
        case .finish: finish()
        case .relieve(let slot, let offset):
            guard machine.mayRelieve(slot) else { break }
            takeRecords()
            machine.relieve(slot, below: offset, at: now)
            act()
        case .due(let slot, let items, let readThrough):
            // Older records are processed first, because an item could be newer than theirs.
            takeRecords()
            machine.due(slot, items, readThrough: readThrough, report: .dueTaken(slot: slot))
        case .suspended(let slot, let items, let readThrough):
            takeRecords()
            machine.due(slot, items, readThrough: readThrough, report: .suspendedTaken(slot: slot))
        case .expired(let slot, let devices): expired(slot, devices)
        case .remove(let items): remove(items)
        case .forgetMarks(let slot):
            machine.forgetMarks(slot)
            follow()
        case .storeFails(let isFailing): machine.storeFails(isFailing)
        case .wake: break
        }
    }

    private func end(_ slot: UInt16) {
        order.endPartition(slot)
        produce()
        machine.endPartition(slot)
        guard hasStore else { return }
        follow()
        stored[slot] = nil
        changelogKeys = changelogKeys.filter { $0.key.place.partitionSlot != slot }
    }

    private func flushToStore() -> ShardFlush {
        if hasStore { submitToStore() }
        return machine.flushed()
    }

    /// - Parameter slot: Slot of the partition; nil: all partitions.
    private func abandon(_ slot: UInt16?, isLost: Bool) -> Int {
        takeRecords()
        machine.abandon(slot, at: now)
        act()
        machine.abandonWaiting(slot)
        follow()
        var count = machine.abandonmentEnded()
        if isLost, let slot { count += order.abandon(slot) }
        produce()
        return count
    }

    private func finish() {
        machine.finish()
        takeRecords()
        follow()
        machine.giveUpUnanswered(at: now)
        act()
        inFlight = []
        machine.leaveAll()
        for slot in held.indices where held[slot].job >= 0 {
            free(held[slot])
            held[slot] = Held()
        }
        machine.abandonWaiting(nil)
        follow()
        for handle in machine.takeAllHandles() { discard(handle) }
        act()
        order.flush(isPermitted: isPermitted)
        produce()
        let flush = flushToStore()
        tellIntake()
        let ending = order.stop()
        produce()
        process.report(
            number,
            .finished(
                ShardEnding(
                    flush: flush, produced: ending.produced, changesLeft: ending.changesLeft,
                    isTorn: ending.isTorn)))
    }

    // MARK: The machine

    /// - Parameters:
    ///   - newToken: of the token change that the actions follow from; -1: they don't.
    ///   - slot: of the item that the machine was called for, if it was for one.
    func act(newToken: Int = -1, about slot: UInt32 = DeliveryMachine.noSlot) {
        observeItems(slot)
        while let action = machine.nextAction(at: now) {
            count(action)
            perform(action, newToken)
        }
    }

    private func perform(_ action: ShardAction, _ newToken: Int) {
        switch action {
        case .enqueue(let slot, let atFront):
            held[Int(slot)].isQueued = true
            if atFront { waiting.insert(slot, at: 0) } else { waiting.append(slot) }
        case .dequeue(let slot):
            held[Int(slot)].isQueued = false
            waiting.removeAll { $0 == slot }
        case .requeue, .keep: break
        case .finish(let slot, let kind, _, _, let facts):
            world.note(
                "process # ends job # as #", process.serial, held[Int(slot)].job, Int(kind.rawValue))
            process.endsPush(held[Int(slot)])
            write(.outcomes, held[Int(slot)], facts)
            release(slot)
        case .giveBack(let slot):
            process.commitAudit.returned(held[Int(slot)].job)
            release(slot)
        case .evict(let slot):
            world.note("process # has job # leave memory", process.serial, held[Int(slot)].job)
            release(slot)
        case .gaveBack(let slot): process.report(number, .gaveBack(slot: slot))
        case .giveBackChange(let handle): giveBackChange(handle)
        case .put(let slot): if let writing = machine.writing { write(slot, writing) }
        case .keepPresence(let known, let slot, _): keepPresence(known, in: slot)
        case .forgetPresence(let device, let slot): forgetPresence(of: device, in: slot)
        case .noteMove(let slot): if newToken >= 0 { held[Int(slot)].noted = newToken }
        case .readdress(let slot): readdress(slot, isStored: machine.isStored(slot), newToken)
        case .depart(let slot): depart(slot, newToken)
        case .alert(let topic, _, _): world.note("process # stops topic #", process.serial, Int(topic))
        case .recovered(let topic): world.note("topic # of process # goes on", Int(topic), process.serial)
        case .suspended(let topic): process.report(number, .topicSuspended(UInt32(topic)))
        case .resumed(let topic): process.report(number, .topicResumed(UInt32(topic)))
        case .probeWanted(let topic): process.report(number, .probeWanted(UInt32(topic)))
        }
    }

    private func release(_ slot: UInt32) {
        free(held[Int(slot)])
        held[Int(slot)] = Held()
        observeRelease(slot)
    }

    func free(_ copy: Held) { process.bytesHeld -= WorkerProcess.recordBytes }

    // MARK: Records

    func takeRecords() {
        while let record = ring.popFirst() {
            world.counts.events += 1
            guard !machine.hasEnded else { continue }
            take(record, isLoaded: false)
        }
        follow()
    }
}
