import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import Logging
import SluiceModel
import Synchronization

/// What an event was about that the delivery machine's actions follow from.
struct ActionContext {
    /// APNs' answer, and to which slot.
    var verdict: ResponseVerdict?
    var answered = DeliveryMachine.noSlot
    /// The new token of a device event.
    var newToken: UnsafeRawBufferPointer?
    /// The device token of a device event.
    var deviceToken: UnsafeRawBufferPointer?
    /// Whose item the store has.
    var stored = DeliveryMachine.noSlot
    /// The record of a token change that isn't complete yet.
    var change: RecordPlace?
    /// When the token was changed.
    var movedAtMilliseconds: Int64?

    static var none: ActionContext { ActionContext() }
}

/// An item on its way to the shard of its device's new token.
// Sendable: its job has memory of its own, and is handed over with it; the sender keeps nothing.
struct Departure: @unchecked Sendable {
    var job: Job
    var facts: PushFacts
    var progress: ItemProgress
    /// What the store has of it.
    var resident: ResidentFacts
    /// When its token was changed; nil: some time before.
    var movedAtMilliseconds: Int64?
    /// Nil: it may be taken over at once.
    var release: DepartureRelease?

    var isReleased: Bool { release?.isReleased ?? true }
}

/// Says when a departure may be taken over: the changelog must not get what its new shard says of it before what the old
/// one has said.
final class DepartureRelease: Sendable {
    private let value = Atomic<Bool>(false)

    var isReleased: Bool { value.load(ordering: .acquiring) }
    func release() { value.store(true, ordering: .releasing) }
}

/// What the delivery machine asks for, done.
extension Shard {
    var now: DeliveryTime {
        DeliveryTime(wallMilliseconds: wallMilliseconds, monotonicNanoseconds: loop.now.nanoseconds)
    }

    /// Does all that the machine has to say. After every call to it.
    func act(_ context: ActionContext = .none) {
        while let action = machine.nextAction() {
            switch action {
            case .finish(let slot, let kind, let cause, let successor):
                finish(slot, kind, cause, successor: successor, context)
            case .enqueue(let slot, let atFront): enqueue(slot, atFront: atFront)
            case .dequeue(let slot): lanes[Int(jobs[slot].pointee.lane)].pool.scheduler.remove(slot: slot)
            case .requeue(let slot): requeue(slot)
            case .drop(let slot): drop(slot)
            case .store(let slot, let version): put(slot, version: version)
            case .evict(let slot): evict(slot)
            case .awaitsTurn(let slot):
                residency.awaited(jobs[slot].pointee.device, jobs[slot].pointee.partitionSlot)
            case .keepPresence(let number): keepPresence(number, context)
            case .noteMove(let slot): noteMove(slot, context)
            case .readdress(let slot): readdress(slot, context)
            case .depart(let slot): depart(slot, context)
            case .alert(_, let slot, let fault):
                if fault == .tokens { counters.tokenStops += 1 }
                warn(of: context.verdict, slot, fault)
            case .recovered(let topic):
                logger.notice(
                    "APNs takes pushes for the topic again", metadata: ["topic": "\(routes.name(of: topic))"])
            case .parked(let topic): report(.topicParked(hash(of: topic)))
            case .resumed(let topic): report(.topicResumed(hash(of: topic)))
            case .probeWanted(let topic): report(.probeWanted(hash(of: topic)))
            case .offsetDone(let partition, let offset):
                jobs[context.stored].pointee.isOffsetDone = true
                complete(partition, offset, isRepeated: false)
            }
        }
    }

    /// Hash of a topic's name, as the store has it.
    private func hash(of topic: UInt16) -> UInt32 {
        var name = routes.name(of: topic)
        return name.withUTF8 { StoredPush.topicHash(UnsafeRawBufferPointer($0)) }
    }

    private func enqueue(_ slot: UInt32, atFront: Bool) {
        let job = jobs[slot]
        let isQueued = lanes[Int(job.pointee.lane)].pool.scheduler.enqueue(
            slot: slot, app: UInt32(job.pointee.app), priority: job.pointee.push.priority,
            bytes: job.pointee.push.payload.count, now: loop.now.nanoseconds, atFront: atFront)
        precondition(isQueued, "slot \(slot) can't be queued")
    }

    /// A successor took the job's place in the queue.
    private func requeue(_ slot: UInt32) {
        let job = jobs[slot]
        let isReplaced = lanes[Int(job.pointee.lane)].pool.scheduler.replaced(
            slot: slot, priority: job.pointee.push.priority, bytes: job.pointee.push.payload.count,
            now: loop.now.nanoseconds)
        precondition(isReplaced, "slot \(slot) does not wait")
    }

    // MARK: Ends

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        counters.outcomes[Int(outcome.kind.rawValue)] += 1
        outcomes.write(outcome, source: source)
    }

    /// Writes the outcome of an item that has ended, and frees its slot.
    private func finish(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause?, successor: UInt32,
        _ context: ActionContext
    ) {
        let progress = machine.info(slot).progress
        let job = jobs[slot]
        var outcome = outcome(of: job, kind, progress)
        outcome.cause = cause
        switch kind {
        case .accepted, .confirmed: outcome.apply(Self.accepted, registeredAtMilliseconds: nil)
        case .superseded where successor != DeliveryMachine.noSlot:
            outcome.supersededBy = jobs[successor].pointee.push.apnsID
        case .rejected, .undeliverable, .expired:
            let concerns = slot == context.answered || cause == .deviceUnregistered
            explain(&outcome, job, concerns ? context.verdict : nil)
        default: break
        }
        write(outcome, source: source(of: slot))
        release(slot)
    }

    /// What APNs had to say.
    private func explain(
        _ outcome: inout Outcome, _ job: UnsafeMutablePointer<Job>, _ verdict: ResponseVerdict?
    ) {
        let registered = job.pointee.push.registeredAtMilliseconds
        if let verdict {
            outcome.apply(verdict, registeredAtMilliseconds: registered)
        } else if outcome.cause == .deviceUnregistered {
            outcome.reason = .unregistered
            outcome.reasonClass = .token
            outcome.deleteToken = true
        } else if job.pointee.lastStatus > 0 {
            outcome.status = job.pointee.lastStatus
            // The text of an unknown one isn't kept.
            if job.pointee.lastReason != .unknown { outcome.reason = job.pointee.lastReason }
        }
    }

    func outcome(of job: UnsafeMutablePointer<Job>, _ kind: OutcomeKind, _ progress: ItemProgress) -> Outcome
    {
        var outcome = Outcome(
            kind, of: job.pointee.push, sourceTopic: sourceTopic, partition: job.pointee.partition,
            offset: job.pointee.offset, polledMilliseconds: job.pointee.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.attempts = UInt32(progress.attempts)
        if progress.firstSentMilliseconds > 0 {
            outcome.firstSentMilliseconds = progress.firstSentMilliseconds
        }
        return outcome
    }

    /// Gives an item back to Kafka.
    private func drop(_ slot: UInt32) {
        counters.abandoned += 1
        // What the store has the intake doesn't wait for.
        if !jobs[slot].pointee.isOffsetDone {
            giveBack(jobs[slot].pointee.partitionSlot)
        }
        residency.givenBack(slot)
        release(slot)
        for handle in residency.takeChangesGivenBack() { giveBackChange(handle) }
    }

    /// A job of a partition is the intake's to count off.
    func giveBack(_ partitionSlot: UInt16) {
        if isAbandoning { abandoned += 1 } else { gaveBack(partitionSlot) }
    }

    func release(_ slot: UInt32) {
        residency.left(slot)
        free(jobs.remove(slot))
        machine.release(slot)
    }

    func free(_ job: consuming Job) {
        freedBytes += job.heldBytes
        if !job.isRestored, job.isOffsetDone { news.freed[job.partitionSlot, default: 0] += 1 }
        job.release()
    }

    /// The offset of a record is complete as the store has it.
    func complete(_ partitionSlot: UInt16, _ offset: Int64, isRepeated: Bool) {
        let place = RecordPlace(partitionSlot: partitionSlot, offset: offset)
        news.completed.append(ShardProgress.Completion(place: place, isRepeated: isRepeated))
        askForTurnEnd()
    }

    func free(_ record: ConsumedRecord) {
        freedBytes += InFlightBytes.size(of: record)
        record.destroy()
    }

    // MARK: New tokens

    private func readdress(_ slot: UInt32, _ context: ActionContext) {
        let job = jobs[slot]
        let noted = job.pointee.notedToken
        job.pointee.notedToken = nil
        guard let token = noted.map({ UnsafeRawBufferPointer($0) }) ?? context.newToken else {
            preconditionFailure("slot \(slot) moves to no token")
        }
        if residency.isStored(slot), job.pointee.storedToken == nil, outcomes.hasChangelog {
            job.pointee.storedToken = Array(job.pointee.push.deviceToken)
        }
        freedBytes += job.pointee.moveToOwnMemory(deviceToken: token)
        job.pointee.device = plan.hasher.device(token)
        residency.moved(slot, job.pointee.place)
        noted?.deallocate()
    }

    private func depart(_ slot: UInt32, _ context: ActionContext) {
        readdress(slot, context)
        var mustMove = false
        if let storage, residency.isStored(slot),
            let handle = storage.handle(jobs[slot].pointee.partitionSlot)
        {
            // Here, and not by the shard that takes it over: that one may have to wait for the device first.
            write(slot, to: handle, storage)
            mustMove = true
        }
        let resident = residency.facts(slot)
        let (facts, progress) = machine.export(slot)
        let job = jobs.remove(slot)
        residency.left(slot)
        machine.release(slot)
        let shard = shardIndex(of: job.device, shards: plan.shards)
        var departure = Departure(
            job: job, facts: facts, progress: progress, resident: resident,
            movedAtMilliseconds: context.movedAtMilliseconds)
        guard mustMove else { return peers.handOver(departure, to: shard) }
        if outcomes.hasChangelog {
            let release = DepartureRelease()
            departure.release = release
            outcomes.afterThis { [self, device = job.device] in
                release.release()
                peers.released(device, at: shard)
            }
        }
        storage?.depart(departure)
        askForTurnEnd()
    }

    /// Takes an item over whose device has a token of this shard now.
    func adopt(_ departure: Departure) {
        wallMilliseconds = wallClockMilliseconds()
        guard !hasEnded, isHere(departure.job) else { return leaveOut(departure.job) }
        // Older records first, of which the push could be the newer.
        repeat { takeRecords() } while ring.count > 0
        let handle = waiting.keep(.departure(departure))
        switch residency.adopt(deferred(departure, handle), machine) {
        case .deferred: askForTurnEnd()
        case .takeOver:
            _ = waiting.take(handle)
            takeOver(departure)
            follow()
        case .leaveInStore:
            _ = waiting.take(handle)
            leaveOut(departure.job)
        }
    }

    private func deferred(_ departure: Departure, _ handle: UInt32) -> DeferredDeparture {
        DeferredDeparture(
            handle: handle, device: departure.job.device, place: departure.job.place,
            isReleased: departure.isReleased, isRestored: departure.job.isRestored)
    }

    /// Its partition is this worker's still.
    private func isHere(_ job: Job) -> Bool {
        storage.map { $0.handle(job.partitionSlot)?.number == job.partition } ?? true
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        wallMilliseconds = wallClockMilliseconds()
        for handle in residency.unreleased(of: device)
        where waiting.departure(handle)?.isReleased == true { residency.release(handle, of: device) }
        follow()
        askForTurnEnd()
    }

    /// Takes an item over when all of its device is in memory.
    func takeOver(_ departure: Departure) {
        var job = departure.job
        guard !hasEnded, isHere(job),
            let route = routes.route(
                of: job.push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            if job.isRestored { residency.left(job.place) }
            return leaveOut(job)
        }
        var facts = departure.facts
        facts.topic = route.number
        job.topic = route.topic
        let device = job.device
        let admission = machine.adopt(facts, departure.progress, at: now)
        guard admission != .full else {
            residency.deferUntilSlot(deferred(departure, waiting.keep(.departure(departure))))
            return act()
        }
        settle(job, admission, departure.progress, departure.resident)
        if let movedAt = departure.movedAtMilliseconds { moveOn(device, after: movedAt) }
        askForTurnEnd()
    }

    /// Gives an item back that can't be taken over. The store has it under its new token and brings it when it is due, or
    /// Kafka has it after a restart.
    func leaveOut(_ job: consuming Job) {
        counters.abandoned += 1
        if !job.isOffsetDone { gaveBack(job.partitionSlot) }
        free(job)
    }

    // MARK: Warnings

    /// A credential or topic that APNs refuses is for a person to mend.
    private func warn(of verdict: ResponseVerdict?, _ slot: UInt32, _ fault: TopicFault) {
        guard let verdict, jobs.holds(slot) else { return }
        let job = jobs[slot]
        var metadata: Logger.Metadata = [
            "credential": "\(lanes[Int(job.pointee.lane)].name)",
            "app": "\(plan.appNames[Int(job.pointee.app)])",
            "topic": "\(String(decoding: job.pointee.push.topic, as: UTF8.self))",
            "status": "\(verdict.status)", "reason": "\(verdict.reasonText)",
        ]
        switch fault {
        case .refusal:
            metadata["action"] = "\(verdict.reason.action)"
            logger.error(
                "APNs refuses the credential or topic: the topic's pushes wait; one of them tries now and then",
                metadata: metadata)
        case .tokens:
            // Some good tokens among many wrong ones make the topic go on and stop again.
            if let last = lastTokenAlert, loop.now.nanoseconds(since: last) < 60_000_000_000 { return }
            lastTokenAlert = loop.now
            metadata["action"] =
                "check apns.environment, the topic and the credential against the app that registered the tokens"
            logger.critical(
                "APNs takes most device tokens of the topic for wrong: its pushes wait; one of them tries now and then",
                metadata: metadata)
        }
    }
}
