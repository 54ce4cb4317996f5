import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Logging
import SluiceModel

extension Shard {
    /// Puts an item into its lane's queue.
    func enqueue(_ slot: UInt32, atFront: Bool) {
        let item = items.item(slot)
        items.setState(slot, .waiting)
        lanes[Int(item.pointee.lane)].pool.scheduler.enqueue(
            slot: slot, app: UInt32(item.pointee.app), priority: item.pointee.push.priority,
            bytes: item.pointee.push.payload.count,
            now: loop.now.nanoseconds, atFront: atFront)
    }

    /// Likewise, or later if APNs has asked for a pause for its device.
    func enqueueUnlessHeld(_ slot: UInt32, atFront: Bool = false) {
        if !holdIfAsked(slot) { enqueue(slot, atFront: atFront) }
    }

    /// Puts an item that is in no queue aside while its device is held. Looked at again when it expires, should that
    /// come first, so that its outcome isn't held up.
    private func holdIfAsked(_ slot: UInt32) -> Bool {
        let now = loop.now.nanoseconds
        guard deviceBackoff.count > 0,
            var until = deviceBackoff.heldUntil(device: deviceHash(of: slot), now: now)
        else { return false }
        if let expiry = expiryMilliseconds(of: items.item(slot)) {
            // One more, as the clocks are read at different moments.
            let left = UInt64(max(expiry - wallMilliseconds, 0)) + 1
            until = min(until, now + left * 1_000_000)
        }
        items.setState(slot, .retrying)
        due.insert(slot, due: until)
        return true
    }

    private func deviceHash(of slot: UInt32) -> UInt64 {
        hexadecimalHash(items.item(slot).pointee.push.deviceToken)
    }

    /// Sends what the connections take; the requests leave together at the end of the turn.
    func sendAll() {
        for lane in lanes where lane.pool.scheduler.waiting > 0 {
            guard lane.refreshToken(logger: logger) else { continue }
            while let (slot, connection) = lane.pool.nextAssignment() {
                if expireIfDue(slot) {
                    lane.pool.withdraw(slot, from: connection)
                    continue
                }
                if holdIfAsked(slot) {
                    lane.pool.withdraw(slot, from: connection)
                    continue
                }
                send(slot, on: connection, of: lane)
            }
        }
    }

    private func send(_ slot: UInt32, on connection: ClientConnection, of lane: Lane) {
        let item = items.item(slot)
        let result = connection.submit(tag: slot, body: item.pointee.push.payload) { block in
            lane.encoder.encode(item.pointee.push, topic: item.pointee.topic, into: &block)
        }
        switch result {
        case .submitted:
            items.setState(slot, .inFlight)
            item.pointee.attempts += 1
            item.pointee.tokenGeneration = lane.tokenGeneration
            if item.pointee.firstSentMilliseconds == 0 {
                item.pointee.firstSentMilliseconds = wallMilliseconds
            }
            counters.sent += 1
        case .noCapacity:
            lane.pool.withdraw(slot, from: connection)
            enqueue(slot, atFront: true)
        case .headersTooLarge:
            // No valid job's headers are that long; the connection's header table is out of step now. Another
            // connection would fare no better: the job ends.
            logger.critical("a request's headers did not fit", metadata: ["credential": "\(lane.name)"])
            lane.pool.withdraw(slot, from: connection)
            finish(slot, .undeliverable, cause: .notSupported)
            connection.close()
        }
    }

    // MARK: Answers

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        guard !hasEnded else { return }
        wallMilliseconds = wallClockMilliseconds()
        var anyFailed = false
        for event in events {
            switch event.kind {
            case .response:
                if event.status == 200 {
                    if deviceBackoff.count > 0 { deviceBackoff.accepted(device: deviceHash(of: event.tag)) }
                    finish(event.tag, .accepted, verdict: Self.accepted)
                } else {
                    answered(event, on: connection)
                }
            case .failed: anyFailed = true
            case .capacityChanged, .goAway, .pingAnswered: break
            }
        }
        // Last first: each goes to the front of its queue, so that they are sent again in their order.
        if anyFailed { for event in events.reversed() where event.kind == .failed { failed(event) } }
    }

    private func failed(_ event: ClientEvent) {
        counters.unanswered += 1
        let item = items.item(event.tag)
        if event.processed == .no {
            item.pointee.attempts -= 1
            item.pointee.refusals += 1
            retry(event.tag, .notProcessed)
        } else {
            retry(event.tag, .unknownOutcome(item.pointee.push.duplicates))
        }
    }

    private static let accepted = ResponseVerdict.classify(
        status: 200, body: UnsafeRawBufferPointer(start: nil, count: 0))

    private func answered(_ event: ClientEvent, on connection: ClientConnection) {
        let verdict = ResponseVerdict.classify(status: event.status, body: event.body)
        counters.reasons[Int(verdict.reason.rawValue)] += 1
        let lane = lanes[Int(items.item(event.tag).pointee.lane)]
        lane.reasons[Int(verdict.reason.rawValue)] += 1
        items.item(event.tag).pointee.refusals = 0
        if verdict.reason == .tooManyProviderTokenUpdates { lane.tooManyTokenUpdates() }
        if verdict.class == .configuration { warn(of: verdict, lane) }
        let mustWait = replaceIfNoGood(connection, after: verdict, in: lane.pool)
        var retryAfter = Int64(event.retryAfterSeconds) * 1000
        if verdict.reason == .tooManyRequests {
            // Of this device token alone (HNR): what else is for it waits as well, and this one not less.
            let until = deviceBackoff.refused(
                device: deviceHash(of: event.tag), now: loop.now.nanoseconds,
                retryAfter: UInt64(retryAfter) * 1_000_000, using: &generator)
            retryAfter = Int64((until - loop.now.nanoseconds) / 1_000_000) + 1
        }
        retry(
            event.tag, .answered(verdict.class), verdict: verdict, retryAfterMilliseconds: retryAfter,
            atOnce: !mustWait)
    }

    /// Replaces the connection if the answer speaks against it. True if it is no good for the job but serves on, as
    /// it is the last one: the job would only come back to it, and has to wait for its successor.
    private func replaceIfNoGood(
        _ connection: ClientConnection, after verdict: ResponseVerdict, in pool: ConnectionPool
    ) -> Bool {
        // Servers in trouble give this on each connection: replacing all of them at once would only cost throughput.
        if verdict.reason == .internalServerError {
            pool.replace(connection.number, .whenSuccessorIsOpen)
            return false
        }
        guard connection.isOpen else { return false }
        // What the server holds against our credential it holds against it on this connection, for as long as that lives.
        if verdict.reason.replacesConnection, verdict.class != .connection {
            pool.replace(connection.number, .now)
            return false
        }
        guard verdict.class == .connection else { return false }
        let isLast = pool.openConnections == 1
        pool.replace(connection.number, isLast ? .whenSuccessorIsOpen : .now)
        return isLast
    }

    /// A credential or topic that APNs refuses is for a person to mend; said once a minute.
    private func warn(of verdict: ResponseVerdict, _ lane: Lane) {
        guard loop.now.nanoseconds(since: lastConfigurationWarning) > 60_000_000_000 else { return }
        lastConfigurationWarning = loop.now
        logger.error(
            "APNs refuses the credential or topic; its jobs are retried with long pauses, up to delivery.retry.max-attempts",
            metadata: [
                "credential": "\(lane.name)", "status": "\(verdict.status)",
                "reason": "\(verdict.reason.name)",
                "action": "\(verdict.reason.action)",
            ])
    }

    // MARK: Again or never

    private func retry(
        _ slot: UInt32, _ failure: AttemptFailure, verdict: ResponseVerdict? = nil,
        retryAfterMilliseconds: Int64 = 0, atOnce: Bool = true
    ) {
        let item = items.item(slot)
        var policy = plan.retry
        if !atOnce { policy.attemptsAtOnce = 0 }
        let decision = policy.decide(
            failure, attempt: item.pointee.attempts, refusals: item.pointee.refusals,
            retryAfterMilliseconds: retryAfterMilliseconds > 0 ? retryAfterMilliseconds : nil,
            expirationMilliseconds: lastMoment(of: item), nowMilliseconds: wallMilliseconds,
            using: &generator)
        if case .giveUp = decision {
        } else if isDraining || endingPartitions.contains(item.pointee.partitionSlot) {
            // Kafka has it still: whoever takes the partition over does it again.
            counters.abandoned += 1
            gaveBack(item.pointee.partitionSlot)
            return release(slot)
        }
        switch decision {
        case .giveUp(let reason): finish(slot, reason.outcome, verdict: verdict, cause: reason.cause)
        case .now(let remedy, _):
            apply(remedy, slot)
            counters.retried += 1
            enqueueUnlessHeld(slot, atFront: true)
        case .after(let milliseconds, let remedy, _):
            apply(remedy, slot)
            counters.retried += 1
            items.setState(slot, .retrying)
            due.insert(slot, due: loop.now.nanoseconds + UInt64(max(milliseconds, 0)) * 1_000_000)
        }
    }

    private func apply(_ remedy: Remedy, _ slot: UInt32) {
        // The connection itself was dealt with when the answer came.
        guard remedy == .newToken else { return }
        let item = items.item(slot)
        lanes[Int(item.pointee.lane)].tokenExpired(
            generation: item.pointee.tokenGeneration, now: loop.now, logger: logger)
    }

    /// From when on the item isn't sent any more, on the wall clock; nil while that is open. A push that APNs must not
    /// keep (expiration 0) has no limit until it is sent: it asks for one attempt, which may come as late as it will.
    /// Once it was sent, the limit of retries holds while it waits as well.
    func expiryMilliseconds(of item: UnsafeMutablePointer<Item>) -> Int64? {
        if item.pointee.firstSentMilliseconds > 0 { return lastMoment(of: item) }
        guard case .at(let seconds) = item.pointee.push.expiration else { return nil }
        return Int64(seconds) * 1000
    }

    /// Until when a retry makes sense: the expiration, or a short while for a push that APNs itself must not keep;
    /// at most the configured maximum.
    private func lastMoment(of item: UnsafeMutablePointer<Item>) -> Int64 {
        let push = item.pointee.push
        let first =
            item.pointee.firstSentMilliseconds > 0 ? item.pointee.firstSentMilliseconds : wallMilliseconds
        // Counted from when it was polled: a record's own timestamp may be anything.
        let bound = item.pointee.polledMilliseconds + plan.maximumExpirationMilliseconds
        return min(
            plan.retry.deadlineMilliseconds(push.expiration, firstAttemptMilliseconds: first) ?? bound, bound)
    }
}
