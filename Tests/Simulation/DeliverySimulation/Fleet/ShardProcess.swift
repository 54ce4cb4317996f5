import DeliveryCore
import SluiceModel

/// One shard of a worker: the shell of its machines, whose actions it carries out on a model of APNs, on the producer and
/// on the disk.
final class ShardProcess {
    // Unsafe: the process owns the shard.
    unowned(unsafe) let process: WorkerProcess
    let number: Int
    var delivery: DeliveryMachine
    var residency: DeviceResidency
    var order: ProduceOrder
    var watch: Watch
    private var messages = Queue<Message>()
    private var ring = Queue<Incoming>()
    var held: [Held]
    /// Slots in the order of their turns.
    var waiting: [UInt32] = []
    private var inFlight: [Request] = []
    /// Records of the order, by handle.
    private var outputs: [UInt32: Output] = [:]
    var news = ShardProgress()
    /// Slots of partitions whose settling is asked for.
    private var settling: [UInt16] = []
    private var settlesAll = false
    /// Slots of partitions that have ended, of which something may be in memory.
    private var releasing: [UInt16] = []
    private(set) var isDraining = false
    private(set) var hasEnded = false
    private(set) var isAbandoning = false
    var abandoned = 0
    private var timerAt = UInt64.max

    // The store.
    /// By slot of the partition.
    var stored: [UInt16: Stored] = [:]
    var batch = FleetBatch()
    var events: [UInt32: Event] = [:]
    var nextHandle: UInt32 = 0
    var isFollowing = false
    /// Tokens of token changes, by their numbers.
    var pastTokens: [Int] = []
    /// Slots of partitions whose due items were taken when the line is short.
    var whenShort: [ShardReport] = []
    private var turns = 0
    /// Keys of ended items in the changelog, where tombstones don't go with the outcomes.
    var changelogKeys: [EndedItem: FleetItemKey] = [:]
    private var epoch: UInt32 = 0
    private var produced = 0
    private var hasWritten = false
    private var afterwards: [(ticket: UInt64, body: () -> Void)] = []
    private var nextTicket: UInt64 = 0

    init(_ process: WorkerProcess, number: Int) {
        self.process = process
        self.number = number
        let scenario = process.world.scenario
        delivery = DeliveryMachine(limits: scenario.limits, seed: process.world.random())
        residency = DeviceResidency(limits: scenario.residency)
        order = ProduceOrder(isTransactional: scenario.mode == .transactions)
        held = [Held](repeating: Held(), count: scenario.limits.capacity)
        watch = Watch(
            items: [UInt8](repeating: 0, count: scenario.limits.capacity), order: order.state.rawValue)
    }

    var world: FleetWorld { process.world }
    var now: DeliveryTime { process.time }
    var hasStore: Bool { world.scenario.mode.hasStore }
    var hasChangelog: Bool { world.scenario.mode.hasChangelog }
    var hasTurns: Bool { residency.devicesAwaitingTurn > 0 }

    private var isPermitted: Bool { world.now < process.permit }

    var isIdle: Bool {
        messages.isEmpty && ring.isEmpty && delivery.count == 0 && order.waiting == 0 && batch.isEmpty
            && residency.isIdle && events.isEmpty
    }

    var summary: String {
        "shard \(number): \(delivery.count) held, \(waiting.count) wait, \(order.waiting) to produce, frozen \(order.isFrozen), \(events.count) wait for devices"
    }

    /// A push is in memory.
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
        takeRecords()
        answer()
        if !hasEnded, let wake = delivery.nextWake(after: now), wake <= world.now {
            delivery.advance(to: now)
            act()
        }
        endTurn()
        checkInvariants()
    }

    /// Now and then, as that looks at everything.
    private func checkInvariants() {
        turns += 1
        guard turns % 64 == 0, !hasEnded else { return }
        let (next, sample) = delivery.checkInvariants(from: turns % 40, slots: 32)
        guard let problem = delivery.checkInvariants() ?? residency.checkInvariants() ?? sample else {
            return
        }
        world.broken(.sound, "shard \(number) of process \(process.serial): \(problem), \(next)")
    }

    private func perform(_ message: Message) {
        switch message {
        case .request(let request): perform(request)
        case .begin(let slot, let part, let readThrough, let earlierFrom, let committed, let marks):
            begin(slot, part, readThrough: readThrough, earlierFrom: earlierFrom, committed, marks)
        case .awaited(let slot, let tokens):
            for token in tokens where shard(of: token) == number {
                residency.awaited(world.keys[token], slot)
            }
        case .found(let slot, let items): found(slot, items)
        case .scanned(let slot): residency.scanned(slot)
        case .batchEnded(let batch, let loaded): batchEnded(batch, loaded)
        case .adopt(let departure): adopt(departure)
        case .released(let device): goOn(device)
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
        if !isDraining, !hasEnded, !order.isBlocked, isPermitted { send() }
        submitToStore()
        tellSettled()
    }

    func tellIntake() {
        // What is complete because of a record that waits for the next transaction is told with that.
        guard !news.isEmpty, !order.writesForNext || hasEnded else { return }
        process.report(number, .progress(news))
        news = ShardProgress()
    }

    private func tellSettled() {
        let settled = settling.filter { isSettled($0) }
        let released = releasing.filter { isSettled($0) }
        settling.removeAll { settled.contains($0) }
        releasing.removeAll { released.contains($0) }
        for slot in settled { afterThis { [self] in process.report(number, .settled(slot: slot)) } }
        for slot in released { afterThis { [self] in process.report(number, .released(slot: slot)) } }
        if settlesAll, delivery.count == 0, residency.isSettled(nil) {
            settlesAll = false
            process.report(number, .settledAll)
        }
    }

    private func isSettled(_ slot: UInt16) -> Bool {
        !delivery.holds(partition: slot) && residency.isSettled(slot)
    }

    // MARK: Requests

    private func perform(_ request: ShardRequest) {
        switch request {
        case .begin: world.broken(.sound, "a partition begins without its part of the store")
        case .abandon(let slots, let isLost):
            process.report(
                number,
                .abandoned(slots.map { SlotCount(slot: $0, count: abandon($0, isLost: isLost)) }))
        case .settle(let slot): settling.append(slot)
        case .release(let slot): releasing.append(slot)
        case .end(let slots): for slot in slots { end(slot) }
        case .freeze(let number, let atOnce):
            submitToStore()
            order.freeze(number, atOnce: atOnce)
            produce()
        case .thaw(let number, let repeating, let omitsValues):
            order.thaw(number, repeating: repeating, omitsValues: omitsValues != nil)
            produce()
        case .pass(let number): process.report(self.number, .passed(number))
        case .flush: process.report(number, .flushed(flushToStore()))
        case .drain:
            isDraining = true
            process.report(number, .drained(abandon(nil, isLost: false)))
            settlesAll = true
        case .finish: finish()
        case .relieve(let slot, let offset):
            guard !hasEnded, stored[slot] != nil else { break }
            takeRecords()
            delivery.relieve(partition: slot, below: offset, at: now)
            act()
        case .due(let slot, let items, let readThrough):
            due(slot, items, readThrough: readThrough, then: .dueTaken(slot: slot))
        case .parked(let slot, let items, let readThrough):
            due(slot, items, readThrough: readThrough, then: .parkedTaken(slot: slot))
        case .expired(let slot, let devices): expired(slot, devices)
        case .remove(let items): remove(items)
        case .forgetMarkers(let slot):
            residency.forgetMarks(slot)
            follow()
        case .storeFails(let isFailing): residency.storeFails(isFailing)
        case .wake: break
        }
    }

    private func end(_ slot: UInt16) {
        order.endPartition(slot)
        settling.removeAll { $0 == slot }
        produce()
        guard hasStore else { return }
        residency.end(slot)
        follow()
        stored[slot] = nil
        changelogKeys = changelogKeys.filter { $0.key.place.partitionSlot != slot }
    }

    private func flushToStore() -> ShardFlush {
        if hasStore { submitToStore() }
        let flush = ShardFlush(
            hasWritten: hasWritten, produced: produced,
            epoch: ChangeEpoch(shard: UInt16(number), epoch: epoch))
        hasWritten = false
        produced = 0
        epoch &+= 1
        return flush
    }

    /// Takes what has gathered for the store.
    func takeBatch() -> FleetBatch {
        hasWritten = true
        var taken = batch
        batch = FleetBatch()
        taken.requests = residency.takeRequests()
        return taken
    }

    /// - Parameter slot: nil: of all partitions.
    private func abandon(_ slot: UInt16?, isLost: Bool) -> Int {
        takeRecords()
        isAbandoning = true
        abandoned = 0
        delivery.abandon(partition: slot, at: now)
        act()
        residency.abandon(slot)
        follow()
        if isLost, let slot { abandoned += order.abandon(slot) }
        isAbandoning = false
        produce()
        return abandoned
    }

    private func finish() {
        hasEnded = true
        takeRecords()
        residency.giveBackChanges(nil)
        follow()
        for request in inFlight where held[Int(request.slot)].job >= 0 {
            let facts = world.jobs[held[Int(request.slot)].job].facts
            guard facts.duplicates == .avoid || facts.isOnce else { continue }
            delivery.giveUp(request.slot, .undeliverable, .answerLost, at: now)
            act()
        }
        inFlight = []
        for slot in held.indices where held[slot].job >= 0 {
            free(held[slot])
            held[slot] = Held()
        }
        residency.abandon(nil)
        follow()
        for handle in residency.takeAllHandles() { letGo(handle) }
        order.flush(isPermitted: isPermitted)
        produce()
        let flush = flushToStore()
        tellIntake()
        let ending = order.end()
        produce()
        process.report(
            number,
            .finished(
                ShardEnding(
                    flush: flush, produced: ending.produced, changesLeft: ending.changesLeft,
                    isTorn: ending.isTorn)))
    }

    // MARK: Records

    func takeRecords() {
        while let record = ring.popFirst() {
            world.counts.events += 1
            guard !hasEnded else { continue }
            take(record, isLoaded: false)
        }
        follow()
    }

    /// Takes a record; `isLoaded` when all of its device is in memory.
    func take(_ record: Incoming, isLoaded: Bool) {
        let job = world.jobs[record.job]
        if !isLoaded, hasStore {
            guard residency.isBegun(record.slot) else {
                return residency.keepUntilBegun(keep(.record(record)), record.slot)
            }
            residency.hasRead(record.slot, through: record.offset)
        }
        world.note("process # takes job #, replay #", process.serial, record.job, record.isReplay ? 1 : 0)
        switch job.kind {
        case .invalid:
            if record.isReplay { return replayed(record) }
            write(
                .deadLetters, Held(job: record.job, slot: record.slot, offset: record.offset), isStored: false
            )
            process.bytesHeld -= WorkerProcess.recordBytes
        case .push:
            if record.isReplay { return replayed(record) }
            if !isLoaded, mustWait(record, job) { return }
            guard !isDone(record) else { return }
            admit(record, job)
        case .cancel, .online, .offline, .receipt, .tokenChanged, .unregistered:
            if !isLoaded, mustWait(record, job) { return }
            apply(record, job)
            guard !residency.mustWait(record.place) else {
                return residency.keepChange(record.place, keep(.change(record)))
            }
            if record.isReplay { return replayed(record) }
            endControl(record)
        }
    }

    func endControl(_ record: Incoming) {
        write(.outcomes, Held(job: record.job, slot: record.slot, offset: record.offset), isStored: false)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    func replayed(_ record: Incoming) {
        news.freed[record.slot, default: 0] += 1
        news.replayed.append(record.place)
        process.bytesHeld -= WorkerProcess.recordBytes
    }

    private func apply(_ record: Incoming, _ job: FleetJob) {
        let key = world.keys[job.token]
        let origin = RecordOrigin(partition: record.slot, offset: record.offset)
        let time = ReportTime(milliseconds: job.occurred, offset: record.offset)
        switch job.kind {
        case .cancel:
            _ = delivery.cancel(key, job.target, origin: origin, at: now)
            act()
        case .online:
            world.note("process # hears that token # is online", process.serial, job.token)
            _ = delivery.online(key, occurred: time, partition: record.slot, at: now)
            act()
        case .offline:
            world.note("process # hears that token # is offline", process.serial, job.token)
            _ = delivery.offline(key, occurred: time, partition: record.slot, at: now)
            act()
        case .receipt:
            world.note("process # hears of job # from token #", process.serial, job.subject, job.token)
            _ = delivery.receipt(
                key, notificationKey: UInt64(job.subject + 1), occurred: time, partition: record.slot, at: now
            )
            act()
        case .unregistered:
            _ = delivery.unregistered(key, occurredMilliseconds: job.occurred, origin: origin, at: now)
            act()
        case .tokenChanged:
            let new = world.keys[job.subject]
            let context = Context(
                newToken: job.subject, change: record.place, movedAtMilliseconds: job.occurred)
            _ = delivery.tokenChanged(
                key, to: new, isElsewhere: shard(of: job.subject) != number, origin: origin, at: now)
            act(context)
            guard hasStore else { return }
            remember(job.subject, of: key, occurred: job.occurred, origin)
            moveOn(new, after: job.occurred)
        case .push, .invalid: break
        }
    }

    func shard(of token: Int) -> Int {
        shardIndex(ofHash: world.keys[token].low, shards: world.scenario.shards)
    }

    private func admit(_ record: Incoming, _ job: FleetJob) {
        var facts = job.facts
        facts.partition = record.slot
        facts.offset = record.offset
        let copy = Held(job: record.job, slot: record.slot, offset: record.offset, address: job.token)
        let admission = delivery.admit(facts, at: now)
        observe(admission, 0)
        guard admission != .full else {
            guard hasStore else {
                return world.broken(.bounded, "process \(process.serial) has no slot for job \(record.job)")
            }
            var deferred = deferred(record, job)
            deferred.handle = keep(.record(record))
            residency.deferUntilSlot(deferred)
            return act()
        }
        settle(copy, admission)
    }

    /// Keeps a push where the machine says, or ends it.
    func settle(_ copy: Held, _ admission: Admission, _ resident: ResidentFacts? = nil) {
        switch admission {
        case .placed(let slot):
            if let resident { residency.placed(slot, copy.place, resident) }
            held[Int(slot)] = copy
        case .replaced(let slot, _):
            let old = held[Int(slot)]
            world.note("process # has job # replaced by job #", process.serial, old.job, copy.job)
            writeOutcome(of: slot)
            var successor = copy
            successor.noted = old.noted
            successor.isQueued = old.isQueued
            residency.replaced(slot, copy.place, resident ?? ResidentFacts())
            free(old)
            held[Int(slot)] = successor
        case .obsolete(let newer):
            world.note(
                "process # has job # superseded by job #", process.serial, copy.job, held[Int(newer)].job)
            refuse(copy, resident)
        case .deviceFull:
            refuse(copy, resident, hasNoRoom: true)
        case .expired:
            world.note("process # finds job # expired", process.serial, copy.job)
            refuse(copy, resident)
        case .repeated(let slot, let isDurable):
            if let resident { residency.repeated(slot, copy.place, resident) }
            if isDurable, !copy.isRestored { complete(copy.place, isRepeated: true) }
            free(copy)
        case .full: leaveOut(copy)
        }
        act()
    }

    /// Ends a push that has no slot.
    func refuse(_ copy: Held, _ resident: ResidentFacts?, hasNoRoom: Bool = false) {
        if hasNoRoom { world.note("process # has no room for job # of its device", process.serial, copy.job) }
        var isStored = false
        if let resident, resident.storedDue != nil, hasStore {
            isStored = true
            if residency.ends(copy.place, resident, world.keys[copy.address]) != nil { ended(copy) }
        }
        write(.outcomes, copy, isStored: isStored, isRefused: hasNoRoom)
        if copy.isRestored { residency.left(copy.place) }
        free(copy)
    }

    func complete(_ place: RecordPlace, isRepeated: Bool) {
        news.completed.append(ShardProgress.Completion(place: place, isRepeated: isRepeated))
    }

    func free(_ copy: Held) {
        process.bytesHeld -= WorkerProcess.recordBytes
        if !copy.isRestored, copy.isOffsetDone { news.freed[copy.slot, default: 0] += 1 }
    }

    func giveBack(_ slot: UInt16) {
        if isAbandoning { abandoned += 1 } else { process.report(number, .gaveBack(slot: slot)) }
    }

    // MARK: The delivery machine

    /// - Parameter slot: of the item that the machine was called for, if it was for one.
    func act(_ context: Context = Context(), about slot: UInt32 = DeliveryMachine.noSlot) {
        observeItems(slot)
        while let action = delivery.nextAction() {
            count(action)
            perform(action, context)
        }
    }

    private func perform(_ action: DeliveryAction, _ context: Context) {
        switch action {
        case .enqueue(let slot, let atFront):
            held[Int(slot)].isQueued = true
            if atFront { waiting.insert(slot, at: 0) } else { waiting.append(slot) }
        case .dequeue(let slot):
            held[Int(slot)].isQueued = false
            waiting.removeAll { $0 == slot }
        case .requeue: break
        case .finish(let slot, let kind, _, _):
            world.note(
                "process # ends job # as #", process.serial, held[Int(slot)].job, Int(kind.rawValue))
            writeOutcome(of: slot)
            release(slot)
        case .drop(let slot):
            if !held[Int(slot)].isOffsetDone { giveBack(held[Int(slot)].slot) }
            residency.givenBack(slot)
            release(slot)
            for handle in residency.takeChangesGivenBack() { giveBackChange(handle) }
        case .store(let slot, let version): put(slot, version: version)
        case .evict(let slot):
            world.note("process # has job # leave memory", process.serial, held[Int(slot)].job)
            residency.evict(slot, world.keys[held[Int(slot)].address], held[Int(slot)].slot)
            release(slot)
        case .awaitsTurn(let slot):
            world.note("process # has job # await its turn", process.serial, held[Int(slot)].job)
            residency.awaited(world.keys[held[Int(slot)].address], held[Int(slot)].slot)
        case .keepPresence(let number): keepPresence(number)
        case .noteMove(let slot):
            guard context.newToken >= 0 else { break }
            held[Int(slot)].noted = context.newToken
            residency.noted(slot, by: hasStore ? context.change : nil)
        case .readdress(let slot): readdress(slot, context)
        case .depart(let slot): depart(slot, context)
        case .offsetDone:
            held[Int(context.stored)].isOffsetDone = true
            complete(held[Int(context.stored)].place, isRepeated: false)
        case .alert(let topic, _, _): world.note("process # stops topic #", process.serial, Int(topic))
        case .recovered(let topic): world.note("topic # of process # goes on", Int(topic), process.serial)
        case .parked(let topic): process.report(number, .topicParked(UInt32(topic)))
        case .resumed(let topic): process.report(number, .topicResumed(UInt32(topic)))
        case .probeWanted(let topic): process.report(number, .probeWanted(UInt32(topic)))
        }
    }

    func release(_ slot: UInt32) {
        residency.left(slot)
        let copy = held[Int(slot)]
        held[Int(slot)] = Held()
        free(copy)
        delivery.release(slot)
        observeRelease(slot)
    }

    /// Writes the outcome of the push in a slot.
    private func writeOutcome(of slot: UInt32) {
        let copy = held[Int(slot)]
        var isStored = false
        if residency.isStored(slot), hasStore {
            isStored = true
            if residency.ends(slot, world.keys[copy.address]) != nil { ended(copy) }
        }
        write(.outcomes, copy, isStored: isStored)
    }

    // MARK: APNs

    /// The pool has no connection, while others have, or is well again.
    func stall(_ isStalled: Bool) {
        guard !hasEnded else { return }
        if isStalled { delivery.stall(lane: 0, at: now) } else { delivery.resume(lane: 0, at: now) }
        act()
    }

    private func send() {
        while inFlight.count < world.scenario.streams, !waiting.isEmpty {
            let slot = waiting.removeFirst()
            held[Int(slot)].isQueued = false
            guard delivery.begin(slot, at: now) else {
                act(about: slot)
                continue
            }
            observeItems(slot)
            let copy = held[Int(slot)]
            world.auditor.pushed(copy.job, to: copy.address, by: process, slot: copy.slot, world)
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
            act(about: slot)
        }
    }

    private func answer(_ slot: UInt32) {
        let topic = world.jobs[held[Int(slot)].job].facts.topic
        if let refusal = world.refusal(of: topic) { return delivery.answered(slot, refusal, at: now) }
        guard !world.isHealthy, world.chance(world.scenario.badAnswerPerMille) else {
            world.shown(held[Int(slot)].job, to: held[Int(slot)].address)
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

    private func write(_ topic: KafkaModel.Topic, _ copy: Held, isStored: Bool, isRefused: Bool = false) {
        var word = FleetWord(
            slot: copy.slot, job: copy.job, token: topic == .outcomes ? copy.address : 0)
        word.isStored = isStored
        word.isOffsetDone = isStored && copy.isOffsetDone
        write(
            Output(topic: topic, job: copy.job, word: word, isRefused: isRefused), slot: copy.slot,
            isJob: !word.isOffsetDone)
    }

    /// Says in the changelog what the store has under a key, or hasn't any more.
    func change(_ slot: UInt16, _ part: FleetPart, _ change: FleetChange) {
        let epoch = ChangeEpoch(shard: UInt16(number), epoch: epoch)
        var output = Output(topic: .changelog, job: -1, word: FleetWord(change: epoch), change: change)
        output.partition = Int(part.partition)
        write(output, slot: slot, isJob: false)
        produced += 1
    }

    private func write(_ output: Output, slot: UInt16, isJob: Bool) {
        let kind: ProduceOrder.Kind =
            output.topic == .outcomes ? .outcome : output.topic == .deadLetters ? .deadLetter : .change
        switch order.write(kind, partition: slot, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            let answer = produce(output, omitsValue: false)
            if order.answered(handle, answer) { outputs[handle] = output }
        case .wait(let handle): outputs[handle] = output
        case .drop: break
        }
        produce()
    }

    /// Calls `body` when what another shard produces from then on comes after all that was written here so far.
    func afterThis(_ body: @escaping () -> Void) {
        afterwards.append((nextTicket, body))
        order.afterThis(ticket: nextTicket)
        nextTicket += 1
        produce()
    }

    private func produce() {
        observeOrder()
        while let action = order.nextAction() {
            count(action)
            switch action {
            case .produce(let handle, let omitsValue):
                guard let output = outputs[handle] else {
                    world.broken(.sound, "the order asks for a record that it never got")
                    return
                }
                if !order.answered(handle, produce(output, omitsValue: omitsValue)) { outputs[handle] = nil }
                observeOrder()
            case .forget(let handle):
                for key in outputs.keys where Int32(bitPattern: key &- handle) < 0 { outputs[key] = nil }
            case .gaveBack(let slot, _):
                process.report(number, .gaveBack(slot: slot))
            case .frozen(let number, let produced):
                process.report(self.number, .frozen(number: number, produced: produced))
            case .armTimer: timerAt = world.now + 5_000_000
            case .failed: world.note("a record of process # can't be produced", process.serial)
            case .refused(let number): process.report(self.number, .refused(number: number))
            case .released(let ticket):
                guard let index = afterwards.firstIndex(where: { $0.ticket == ticket }) else { break }
                afterwards.remove(at: index).body()
            case .droppedChange(let handle):
                guard let epoch = outputs[handle]?.word.epoch else { break }
                process.report(self.number, .droppedChange(epoch))
            case .resumed: break
            }
        }
    }

    private func produce(_ output: Output, omitsValue: Bool) -> ProduceAnswer {
        var word = output.word
        if omitsValue { word.isOmitted = true }
        let record: KafkaModel.Record
        if let change = output.change {
            record = .init(
                payload: world.change(change), key: change.key, isTombstone: change.isTombstone)
        } else {
            record = .init(
                payload: world.output(of: output.job, by: process, isRefused: output.isRefused),
                key: world.jobs[output.job].token)
            world.note(
                "process # produces the outcome of job #, slot #", process.serial, output.job, Int(word.slot))
        }
        if case .put(_, let item, _) = output.change {
            world.note("process # produces the item of job #, shard #", process.serial, item.job, number)
        }
        if case .remove(let key, _) = output.change {
            world.note(
                "process # produces the removal of offset # under token #", process.serial, Int(key.offset),
                key.token)
        }
        let answer = process.produce(
            record, to: output.topic, output.job, word, changelogPartition: output.partition)
        switch answer {
        case .queued: return .queued
        case .queueFull: return .queueFull
        case .noTransaction: return .noTransaction
        case .failed(.tooLarge): return .tooLarge
        case .failed: return .failed
        }
    }
}
