import DeliveryCore
import SluiceModel

/// One shard of a worker: the shell of its machines, whose actions it carries out on a model of APNs, on the producer and
/// on the disk.
final class ShardProcess {
    /// A record from the intake.
    struct Incoming {
        var job: Int
        var offset: Int64
        var slot: UInt16
        var isReplay: Bool
    }

    /// A push in a slot of the delivery machine.
    private struct Held {
        var job = -1
        var slot: UInt16 = 0
        var offset: Int64 = 0
        var isQueued = false
    }

    /// A request that APNs has, or has answered.
    private struct Request {
        var slot: UInt32
        var answersAt: UInt64
    }

    /// A record that the order keeps.
    private struct Output {
        var topic: KafkaModel.Topic
        var job: Int
        var word: FleetWord
    }

    private unowned let process: WorkerProcess
    private let number: Int
    private var delivery: DeliveryMachine
    private var order: ProduceOrder
    private var requests = Queue<ShardRequest>()
    private var ring = Queue<Incoming>()
    private var held: [Held]
    /// Slots in the order of their turns.
    private var waiting: [UInt32] = []
    private var inFlight: [Request] = []
    /// Records of the order, by handle.
    private var outputs: [UInt32: Output] = [:]
    private var progress = ShardProgress()
    /// Slots of partitions whose settling is asked for.
    private var settling: [UInt16] = []
    private var settlesAll = false
    /// Slots of partitions that have ended, of which something may be in memory.
    private var releasing: [UInt16] = []
    private var isDraining = false
    private var hasEnded = false
    private var isAbandoning = false
    private var abandoned = 0
    private var timerAt = UInt64.max
    private var epoch: UInt32 = 0

    init(_ process: WorkerProcess, number: Int) {
        self.process = process
        self.number = number
        let scenario = process.world.scenario
        delivery = DeliveryMachine(limits: scenario.limits, seed: process.world.random())
        order = ProduceOrder(isTransactional: scenario.mode == .transactions)
        held = [Held](repeating: Held(), count: scenario.limits.capacity)
    }

    private var world: FleetWorld { process.world }
    private var now: DeliveryTime { process.time }
    private var isPermitted: Bool { world.now < process.permit }

    var isIdle: Bool { requests.isEmpty && ring.isEmpty && delivery.count == 0 && order.waiting == 0 }

    var summary: String {
        "shard \(number): \(delivery.count) held, \(waiting.count) wait, \(order.waiting) to produce, frozen \(order.isFrozen)"
    }

    // MARK: From the worker

    func ask(_ request: ShardRequest) { requests.append(request) }

    func take(_ record: Incoming) { ring.append(record) }

    // MARK: Turns

    func turn() {

        var count = requests.count
        while count > 0, process.isRunning, let request = requests.popFirst() {
            count -= 1
            world.counts.events += 1
            perform(request)
        }
        guard process.isRunning else { return }
        takeRecords()
        answer()
        if let wake = delivery.nextWake(after: now), wake <= world.now {
            delivery.advance(to: now)
            act()
        }
        endTurn()
    }

    private func endTurn() {
        if timerAt <= world.now {
            timerAt = .max
            order.timerDue(isPermitted: isPermitted)
        } else {
            order.flush(isPermitted: isPermitted)
        }
        produce()
        if !isDraining, !hasEnded, !order.isBlocked, isPermitted { send() }
        tellProgress()
        tellSettled()
    }

    private func tellProgress() {
        // What is complete because of a record that waits for the next transaction is told with that.
        guard !progress.isEmpty, !order.isFrozen || hasEnded else { return }
        process.report(number, .progress(progress))
        progress = ShardProgress()
    }

    private func tellSettled() {
        settling.removeAll { slot in
            guard isSettled(slot) else { return false }
            process.report(number, .settled(slot: slot))
            return true
        }
        releasing.removeAll { slot in
            guard isSettled(slot) else { return false }
            process.report(number, .released(slot: slot))
            return true
        }
        if settlesAll, delivery.count == 0 {
            settlesAll = false
            process.report(number, .settledAll)
        }
    }

    private func isSettled(_ slot: UInt16) -> Bool { !held.contains { $0.job >= 0 && $0.slot == slot } }

    // MARK: Requests

    private func perform(_ request: ShardRequest) {
        switch request {
        case .begin(let slot, _, _, _, _):
            order.beginPartition(slot)
            delivery.begin(partition: slot)
        case .abandon(let slots, let isLost):
            process.report(
                number,
                .abandoned(slots.map { SlotCount(slot: $0, count: abandon($0, isLost: isLost)) }))
        case .settle(let slot): settling.append(slot)
        case .release(let slot): releasing.append(slot)
        case .end(let slots):
            for slot in slots {
                order.endPartition(slot)
                settling.removeAll { $0 == slot }
            }
            produce()
        case .freeze(let number, let atOnce):
            tellProgress()
            order.freeze(number, atOnce: atOnce)
            produce()
        case .thaw(let number, let repeating, let omitsValues):
            order.thaw(number, repeating: repeating, omitsValues: omitsValues != nil)
            produce()
        case .pass(let number): process.report(self.number, .passed(number))
        case .flush: process.report(number, .flushed(flush()))
        case .drain:
            isDraining = true
            process.report(number, .drained(abandon(nil, isLost: false)))
            settlesAll = true
        case .finish: finish()
        case .relieve, .due, .remove, .forgetMarkers, .storeFails, .wake: break
        }
    }

    private func flush() -> ShardFlush {
        epoch &+= 1
        return ShardFlush(epoch: ChangeEpoch(shard: UInt16(number), epoch: epoch - 1))
    }

    /// - Parameter slot: nil: of all partitions.
    private func abandon(_ slot: UInt16?, isLost: Bool) -> Int {
        takeRecords()
        isAbandoning = true
        abandoned = 0
        delivery.abandon(partition: slot, at: now)
        act()
        if isLost, let slot { abandoned += order.abandon(slot) }
        isAbandoning = false
        produce()
        return abandoned
    }

    private func finish() {
        hasEnded = true
        takeRecords()
        for request in inFlight where held[Int(request.slot)].job >= 0 {
            let facts = world.jobs[held[Int(request.slot)].job].facts
            guard facts.duplicates == .avoid || facts.isOnce else { continue }
            delivery.giveUp(request.slot, .undeliverable, .answerLost, at: now)
            act()
        }
        inFlight = []
        order.flush(isPermitted: isPermitted)
        produce()
        tellProgress()
        let ending = order.end()
        process.report(
            number,
            .finished(
                ShardEnding(
                    flush: flush(), produced: ending.produced, changesLeft: ending.changesLeft,
                    isTorn: ending.isTorn)))
    }

    // MARK: Records

    private func takeRecords() {
        while let record = ring.popFirst() {
            world.counts.events += 1
            guard !hasEnded else { continue }
            decide(record)
        }
    }

    private func decide(_ record: Incoming) {
        let job = world.jobs[record.job]
        world.note("process # takes job #, replay #", process.serial, record.job, record.isReplay ? 1 : 0)
        if record.isReplay, job.kind == .push || job.kind == .invalid { return replayed(record) }
        switch job.kind {
        case .invalid: write(.deadLetters, record.job, record.slot, record.offset)
        case .push: admit(record, job)
        case .cancel:
            _ = delivery.cancel(
                world.keys[job.token], job.target,
                origin: RecordOrigin(partition: record.slot, offset: record.offset), at: now)
            act()
            control(record)
        case .online, .offline: control(record)
        }
    }

    private func control(_ record: Incoming) {
        if record.isReplay { return replayed(record) }
        write(.outcomes, record.job, record.slot, record.offset)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    private func replayed(_ record: Incoming) {
        progress.freed[record.slot, default: 0] += 1
        progress.replayed.append(RecordPlace(partitionSlot: record.slot, offset: record.offset))
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    private func admit(_ record: Incoming, _ job: FleetJob) {
        var facts = job.facts
        facts.partition = record.slot
        facts.offset = record.offset
        let copy = Held(job: record.job, slot: record.slot, offset: record.offset)
        switch delivery.admit(facts, at: now) {
        case .placed(let slot): held[Int(slot)] = copy
        case .replaced(let slot, _):
            let old = held[Int(slot)]
            write(.outcomes, old.job, old.slot, old.offset)
            process.bytesHeld -= WorkerProcess.recordBytes
            held[Int(slot)] = copy
            held[Int(slot)].isQueued = old.isQueued
        case .obsolete, .deviceFull, .expired:
            write(.outcomes, record.job, record.slot, record.offset)
            process.bytesHeld -= WorkerProcess.recordBytes
        case .repeated: world.broken(.noDuplicate, "job \(record.job) is in a slot already")
        case .full: world.broken(.bounded, "process \(process.serial) has no slot for job \(record.job)")
        }
        act()
    }

    // MARK: The delivery machine

    private func act() {
        while let action = delivery.nextAction() { perform(action) }
    }

    private func perform(_ action: DeliveryAction) {
        switch action {
        case .enqueue(let slot, let atFront):
            held[Int(slot)].isQueued = true
            if atFront { waiting.insert(slot, at: 0) } else { waiting.append(slot) }
        case .dequeue(let slot):
            held[Int(slot)].isQueued = false
            waiting.removeAll { $0 == slot }
        case .requeue: break
        case .finish(let slot, _, _, _):
            let ended = held[Int(slot)]
            write(.outcomes, ended.job, ended.slot, ended.offset)
            release(slot)
        case .drop(let slot):
            if isAbandoning {
                abandoned += 1
            } else {
                process.report(number, .gaveBack(slot: held[Int(slot)].slot))
            }
            release(slot)
        case .store, .evict, .keepPresence, .noteMove, .readdress, .depart, .offsetDone: break
        case .alert, .recovered: break
        }
    }

    private func release(_ slot: UInt32) {
        held[Int(slot)] = Held()
        process.bytesHeld -= WorkerProcess.recordBytes
        delivery.release(slot)
    }

    // MARK: APNs

    private func send() {
        while inFlight.count < world.scenario.streams, !waiting.isEmpty {
            let slot = waiting.removeFirst()
            held[Int(slot)].isQueued = false
            guard delivery.begin(slot, at: now) else {
                act()
                continue
            }
            let copy = held[Int(slot)]
            world.auditor.pushed(copy.job, by: process, slot: copy.slot, world)
            world.pushed(copy.job)
            world.note("process # sends job #, slot #", process.serial, copy.job, Int(copy.slot))
            world.counts.pushes += 1
            world.counts.events += 1
            let length = world.chance(20) ? world.below(5_000_000_000) : world.below(60_000_000)
            inFlight.append(Request(slot: slot, answersAt: world.now + UInt64(length)))
        }
    }

    private func answer() {
        var index = 0
        while index < inFlight.count {
            guard inFlight[index].answersAt <= world.now else {
                index += 1
                continue
            }
            let slot = inFlight[index].slot
            inFlight.swapAt(index, inFlight.count - 1)
            inFlight.removeLast()
            world.counts.events += 1
            answer(slot)
            act()
        }
    }

    private func answer(_ slot: UInt32) {
        guard !world.isHealthy, world.chance(world.scenario.badAnswerPerMille) else {
            return delivery.accepted(slot, at: now)
        }
        switch world.below(4) {
        case 0: delivery.failed(slot, processed: world.chance(500), at: now)
        case 1: delivery.answered(slot, AttemptAnswer(class: .later, reason: .serviceUnavailable), at: now)
        case 2: delivery.answered(slot, AttemptAnswer(class: .later, reason: .tooManyRequests), at: now)
        default: delivery.answered(slot, AttemptAnswer(class: .job, reason: .payloadTooLarge), at: now)
        }
    }

    // MARK: Producing

    private func write(_ topic: KafkaModel.Topic, _ job: Int, _ slot: UInt16, _ offset: Int64) {
        let word = FleetWord(slot: slot, offset: offset, partition: world.jobs[job].partition)
        write(Output(topic: topic, job: job, word: word), isJob: true)
        if topic == .deadLetters { process.bytesHeld -= WorkerProcess.recordBytes }
    }

    private func write(_ output: Output, isJob: Bool) {
        let kind: ProduceOrder.Kind =
            output.topic == .outcomes ? .outcome : output.topic == .deadLetters ? .deadLetter : .change
        switch order.write(kind, partition: output.word.slot, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            let answer = produce(output, omitsValue: false)
            if order.answered(handle, answer) { outputs[handle] = output }
        case .wait(let handle): outputs[handle] = output
        case .drop: break
        }
        produce()
    }

    private func produce() {
        while let action = order.nextAction() {
            switch action {
            case .produce(let handle, let omitsValue):
                guard let output = outputs[handle] else {
                    world.broken(.sound, "the order asks for a record that it never got")
                    return
                }
                if !order.answered(handle, produce(output, omitsValue: omitsValue)) { outputs[handle] = nil }
            case .forget(let handle):
                for key in outputs.keys where Int32(bitPattern: key &- handle) < 0 { outputs[key] = nil }
            case .gaveBack(let slot, _):
                process.report(number, .gaveBack(slot: slot))
            case .frozen(let number, let produced):
                process.report(self.number, .frozen(number: number, produced: produced))
            case .armTimer: timerAt = world.now + 5_000_000
            case .failed: world.note("a record of process # can't be produced", process.serial)
            case .refused(let number): process.report(self.number, .refused(number: number))
            case .released, .resumed, .droppedChange: break
            }
        }
    }

    private func produce(_ output: Output, omitsValue: Bool) -> ProduceAnswer {
        var word = output.word
        if omitsValue { word.isOmitted = true }
        let payload = world.output(of: output.job)
        world.note(
            "process # produces the outcome of job #, slot #", process.serial, output.job, Int(word.slot))
        let answer = process.produce(
            .init(payload: payload, key: world.jobs[output.job].token), to: output.topic, output.job, word)
        switch answer {
        case .queued: return .queued
        case .queueFull: return .queueFull
        case .noTransaction: return .noTransaction
        case .failed(.tooLarge): return .tooLarge
        case .failed: return .failed
        }
    }
}
