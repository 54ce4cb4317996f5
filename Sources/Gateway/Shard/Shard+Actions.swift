import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import Logging
import SluiceModel
import Synchronization

/// Event from which the machine's actions follow.
struct ActionContext {
    /// APNs' answer, and the slot that it answers.
    var verdict: ResponseVerdict?
    var answered = DeliveryMachine.noSlot
    /// Identifier of the accepted push in APNs' delivery log; nil where the answer has none.
    var uniqueID: APNSID?
    /// The new token of a device event.
    var newToken: UnsafeRawBufferPointer?
    /// The device token of a device event.
    var deviceToken: UnsafeRawBufferPointer?
    /// Slot of the partition of an erasure's record.
    var eventSlot: UInt16?

    static var none: ActionContext { ActionContext() }
}

/// Carries out the machine's actions.
extension Shard {
    var now: DeliveryTime {
        DeliveryTime(wallMilliseconds: wallMilliseconds, monotonicNanoseconds: loop.now.nanoseconds)
    }

    /// Carries out all pending actions of the machine. Called after every call to the machine.
    func act(_ context: ActionContext = .none) {
        let now = now
        while let action = machine.nextAction(at: now) {
            switch action {
            case .finish(let slot, let kind, let cause, let successor, let facts):
                finish(slot, kind, cause, successor: successor, facts, context)
            case .enqueue(let slot, let atFront): enqueue(slot, atFront: atFront)
            case .dequeue(let slot): pools[Int(jobs[slot].pointee.pool)].dequeue(slot)
            case .requeue(let slot): requeue(slot)
            case .giveBack(let slot):
                counters.abandoned += 1
                freedBytes += jobs.free(slot)
            case .evict(let slot):
                freedBytes += jobs.free(slot)
                askForTurnEnd()
            case .gaveBack(let partitionSlot): report(.gaveBack(slot: partitionSlot))
            case .giveBackChange(let handle): discard(handle)
            case .abandoned(var given, let isLost):
                if isLost { given.count += outcomes.abandon(partitionSlot: given.slot) }
                report(.abandoned(given))
            case .drained(let count): report(.drained(count))
            case .remove(let item, let key): remove(item, key)
            case .keep(let slot): keepInOwnMemory(slot)
            case .put(let slot): write(slot, machine.takeWriting())
            case .keepPresence(let known, let slot, let item): keepPresence(known, in: slot, item, context)
            case .forgetPresence(let device, let slot):
                if let token = context.deviceToken {
                    erasePresence(of: device, token: token, in: slot, context.eventSlot)
                }
            case .noteMove(let slot): if let token = context.newToken { jobs[slot].pointee.keepToken(token) }
            case .keepToken(let number):
                if let token = context.newToken { storage?.keepToken(token, number: number) }
            case .forgetToken(let number): storage?.forgetToken(number: number)
            case .moveOn(let number):
                storage?.pastToken(number).withUnsafeBytes { act(ActionContext(newToken: $0)) }
            case .readdress(let slot, let isStored): readdress(slot, isStored: isStored, context)
            case .depart(let slot): depart(slot, machine.takeDeparture(), context)
            case .poolSuspended(let pool):
                notices.log(
                    .warning, .poolSuspended, of: Int(pool),
                    "the credential has had no connection for a while; its pushes wait in the store",
                    metadata: pools[Int(pool)].metadata())
            case .poolResumed(let pool, let isConnected):
                notices.log(
                    .notice, .poolResumed, of: Int(pool),
                    isConnected
                        ? "the credential has a connection again; its pushes resume"
                        : "no credential has a connection; the credential's pushes no longer move to the store",
                    metadata: pools[Int(pool)].metadata())
            case .alert(let topic, let slot, let fault):
                if fault == .tokens { counters.tokenStops += 1 }
                warn(of: context.verdict, topic, slot, fault)
            case .poolOverloaded(let pool):
                notices.log(
                    .warning, .poolOverloaded, of: Int(pool),
                    "APNs asks for a pause (503 with Retry-After); the credential's pushes wait, except for alerts and probes",
                    metadata: pools[Int(pool)].metadata())
            case .recovered(let topic):
                notices.log(
                    .notice, .topicRecovered, of: Int(topic),
                    "APNs accepts pushes for the topic again",
                    metadata: ["topic": "\(routes.name(of: topic))"])
            case .suspended(let topic): for hash in hashes(of: topic) { report(.topicSuspended(hash)) }
            case .resumed(let topic): for hash in hashes(of: topic) { report(.topicResumed(hash)) }
            case .pushesWanted(let topic, let count):
                for hash in hashes(of: topic) { report(.pushesWanted(hash, count: count)) }
            case .isolated(let topic):
                notices.log(
                    .warning, .pushIsolated, of: Int(topic),
                    "connections ended again and again with a push in flight; it is sent on a connection of its own",
                    metadata: tenant(ofTopic: topic))
            case .parked(let topic, let pushes):
                notices.log(
                    .warning, .appParked, of: Int(topic),
                    "an app takes more than its share of the worker and can't send as fast; its pushes wait in the store",
                    metadata: tenant(ofTopic: topic, pushes: pushes))
            case .readsAhead(let topic, let pushes):
                notices.log(
                    .notice, .appReadsAhead, of: Int(topic),
                    """
                    the worker is nearly full and reads ahead; the app's pushes of priority 5 and 1 wait in the store \
                    until their turn
                    """,
                    metadata: tenant(ofTopic: topic, pushes: pushes))
            case .unparked(let topic):
                notices.log(
                    .notice, .appUnparked, of: Int(topic),
                    "the app's pushes are not parked any more",
                    metadata: tenant(ofTopic: topic))
            case .crowds(let topic, let pushes):
                notices.log(
                    .warning, .appCrowds, of: Int(topic),
                    """
                    an app takes more than its share of the worker and can't send as fast; its pushes hold up those of \
                    other apps, because there is no store, or the app is at store.parked-limit
                    """,
                    metadata: tenant(ofTopic: topic, pushes: pushes))
            case .tenant(let number, let isActive): report(.tenant(number, isActive: isActive))
            case .limitsFlights(let tenant, let most): limitFlights(tenant: tenant, most)
            }
        }
    }

    /// Returns the route of a valid job; nil when no app has the job's topic, or no credential for its environment.
    @inline(__always)
    func route(of push: borrowing PushJob) -> RouteTable.Route? {
        let known = routes.count
        let route = routes.route(
            of: push, makeTarget: { [pools] in pools[Int($0)].target($1, isBroadcast: $2) })
        if let route, routes.count != known { learned(route, push) }
        return route
    }

    /// Number of the tenant of a route: an app on a pool.
    private static func tenant(_ route: RouteTable.Route) -> UInt32 {
        UInt32(route.app) << 16 | UInt32(route.pool)
    }

    private func limitFlights(tenant: UInt32, _ most: Int) {
        let (app, pool) = (tenant >> 16, Int(tenant & 0xffff))
        // Topics without pushes are tenants of their own, with other numbers.
        if pool < pools.count { pools[pool].limitFlights(app: app, most) }
    }

    /// Handles the first push of a topic, or of a form in which jobs name its environment.
    private func learned(_ route: RouteTable.Route, _ push: borrowing PushJob) {
        let limits = plan.appLimits[Int(route.app)]
        machine.setTenant(
            Self.tenant(route), ofTopic: route.number, weight: limits.weight,
            isLimited: limits.ratePerSecond != nil || limits.maximumInFlight != nil)
        pauseIfNeeded(route, push.topic)
        if !push.isBroadcast, machine.isSuspended(topic: route.number) {
            // Jobs name the environment of a suspended topic in a new way.
            report(.topicSuspended(StoredPush.topicHash(push.topic, push.environment)))
        }
    }

    /// Returns what names a tenant: its app, and its credential and environment.
    private func tenant(ofTopic topic: UInt16, pushes: Int? = nil) -> Logger.Metadata {
        guard let route = routes.route(of: topic) else { return [:] }
        var metadata = pools[Int(route.pool)].metadata()
        metadata["app"] = "\(plan.appNames[Int(route.app)])"
        if let pushes { metadata["pushes"] = "\(pushes)" }
        return metadata
    }

    /// Returns the hashes of a topic, as the store has them: one for each way in which jobs name its environment.
    private func hashes(of topic: UInt16) -> [UInt32] {
        var hashes: [UInt32] = []
        routes.forEachForm(of: topic) { hashes.append(StoredPush.topicHash($0, $1)) }
        return hashes
    }

    /// Returns the connections that a push is sent on.
    @inline(__always)
    private func connections(of slot: UInt32) -> ConnectionPool {
        let pool = pools[Int(jobs[slot].pointee.pool)]
        return machine.isIsolated(slot) ? pool.isolate() : pool.connections
    }

    private func enqueue(_ slot: UInt32, atFront: Bool) {
        let job = jobs[slot]
        let isQueued = connections(of: slot).scheduler.enqueue(
            slot: slot, app: UInt32(job.pointee.app), priority: job.pointee.push.priority,
            bytes: job.pointee.push.payload.count, now: loop.now.nanoseconds, atFront: atFront)
        precondition(isQueued, "slot \(slot) can't be queued")
    }

    /// Requeues a slot whose job was replaced by a successor in the queue.
    private func requeue(_ slot: UInt32) {
        let job = jobs[slot]
        let isReplaced = connections(of: slot).scheduler.replaced(
            slot: slot, priority: job.pointee.push.priority, bytes: job.pointee.push.payload.count,
            now: loop.now.nanoseconds)
        precondition(isReplaced, "slot \(slot) does not wait")
    }

    // MARK: Ends

    /// Writes the outcome of a job that has no place in the table. `app` is nil for a job that no app has.
    func write(_ outcome: borrowing Outcome, source: OutcomeSource, app: UInt16? = nil) {
        metrics.count(outcome, app: app)
        produce(outcome, source)
    }

    private func produce(_ outcome: borrowing Outcome, _ source: OutcomeSource) {
        counters.outcomes[Int(outcome.kind.rawValue)] += 1
        outcomes.write(outcome, source: source)
    }

    /// Writes the outcome of a push that has ended.
    func write(_ outcome: borrowing Outcome, of job: UnsafeMutablePointer<Job>, _ facts: OutcomeFacts) {
        if facts.removal != .none {
            remove(facts.removal, facts.place.partitionSlot) { job.pointee.writeChangelogKey(to: &$0) }
        }
        metrics.count(outcome, app: job.pointee.app)
        metrics.measure(outcome, of: job.pointee, at: wallMilliseconds)
        produce(outcome, OutcomeSource(facts))
    }

    /// Writes the outcome of an item that has ended, and frees its job.
    private func finish(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause?, successor: UInt32,
        _ facts: OutcomeFacts, _ context: ActionContext
    ) {
        let job = jobs[slot]
        var outcome = outcome(of: job, kind, facts)
        outcome.cause = cause
        switch kind {
        case .accepted, .confirmed:
            outcome.apply(Self.accepted, registeredAtMilliseconds: nil)
            if slot == context.answered { outcome.uniqueID = context.uniqueID }
        case .superseded where successor != DeliveryMachine.noSlot:
            outcome.supersededBy = jobs[successor].pointee.push.apnsID
        case .rejected, .undeliverable, .expired:
            let concerns = slot == context.answered || cause == .deviceUnregistered
            explain(&outcome, job, concerns ? context.verdict : nil)
        default: break
        }
        write(outcome, of: job, facts)
        freedBytes += jobs.free(slot)
    }

    /// Adds APNs' answer to an outcome: the given verdict, or the job's last answer.
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
            // The text of an unknown reason isn't kept.
            if job.pointee.lastReason != .unknown { outcome.reason = job.pointee.lastReason }
        }
    }

    func outcome(of job: UnsafeMutablePointer<Job>, _ kind: OutcomeKind, _ facts: OutcomeFacts) -> Outcome {
        var outcome = Outcome(
            kind, of: job.pointee.push, sourceTopic: sourceTopic, partition: job.pointee.partition,
            offset: job.pointee.offset, polledMilliseconds: job.pointee.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.attempts = UInt32(facts.attempts)
        if facts.firstSentMilliseconds > 0 { outcome.firstSentMilliseconds = facts.firstSentMilliseconds }
        return outcome
    }

    func free(_ job: consuming Job) {
        freedBytes += job.heldBytes
        job.release()
    }

    func free(_ incoming: IncomingRecord) {
        freedBytes += Int(incoming.bytes)
        incoming.record.destroy()
    }

    // MARK: Warnings

    /// Logs a credential or topic that APNs refuses, because a person has to mend it.
    private func warn(of verdict: ResponseVerdict?, _ topic: UInt16, _ slot: UInt32, _ fault: TopicFault) {
        guard jobs.contains(slot) else { return }
        let job = jobs[slot]
        var metadata: Logger.Metadata = [
            "credential": "\(pools[Int(job.pointee.pool)].name)",
            "environment": "\(pools[Int(job.pointee.pool)].environment.rawValue)",
            "app": "\(plan.appNames[Int(job.pointee.app)])",
            "topic": "\(String(decoding: job.pointee.push.topic, as: UTF8.self))",
        ]
        guard let verdict else {
            return notices.log(
                .error, .topicRefused, of: Int(topic),
                "APNs refuses all keys of the credential; the topic's pushes wait, except for single probes",
                metadata: metadata)
        }
        metadata["status"] = "\(verdict.status)"
        metadata["reason"] = "\(verdict.reasonText)"
        switch fault {
        case .refusal:
            metadata["action"] = "\(verdict.reason.action)"
            notices.log(
                .error, .topicRefused, of: Int(topic),
                "APNs refuses the credential or topic; the topic's pushes wait, except for single probes",
                metadata: metadata)
        case .overload:
            notices.log(
                .warning, .topicOverloaded, of: Int(topic),
                "APNs asks for a pause (503 with Retry-After); the topic's pushes wait, except for single probes",
                metadata: metadata)
        case .tokens:
            metadata["action"] =
                "check the environment, the topic and the credential against the app that registered the tokens"
            notices.log(
                .critical, .tokensRefused, of: Int(topic),
                "APNs refuses most device tokens of the topic; its pushes wait, except for single probes",
                metadata: metadata)
        }
    }
}
