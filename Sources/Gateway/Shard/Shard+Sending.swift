import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Logging
import SluiceModel

extension Shard {
    /// Sends as many pushes as the connections accept and the worker allows. The requests leave together at the end of
    /// the turn.
    func sendAll() {
        let before = machine.begunPushes
        // Pushes claimed, and the part that is surely left.
        var (claimed, left) = (0, 0)
        defer { pushes.giveBack(claimed - (machine.begunPushes - before)) }
        let first = firstPool
        for number in pools.indices {
            let index = (first + number) % pools.count
            let pool = pools[index]
            var mayGoOn = true
            // These are few, and must not wait for a campaign's end.
            if let isolated = pool.isolated {
                let room = machine.isolationRoom(pool.index)
                mayGoOn = send(on: isolated, of: pool, room: room, &claimed, &left)
            }
            if mayGoOn {
                mayGoOn = send(on: pool.connections, of: pool, room: .max, &claimed, &left)
            }
            guard mayGoOn else {
                // All pools get their turns, however little is allowed.
                firstPool = (index + 1) % pools.count
                return
            }
        }
    }

    /// Sends waiting pushes on connections of a pool.
    /// - Parameters:
    ///   - room: most pushes to send.
    ///   - claimed: pushes claimed so far.
    ///   - left: part of them that is surely left.
    /// - Returns: false when the worker allows no further push.
    private func send(
        on connections: ConnectionPool, of pool: CredentialPool, room: Int, _ claimed: inout Int,
        _ left: inout Int
    ) -> Bool {
        guard connections.scheduler.waiting > 0, room > 0 else { return true }
        let clocks = ClockReading.now()
        var room = room
        var gate = machine.poolGate(pool.index, restsUntil: pool.rest(at: clocks), at: now)
        guard gate != .closed else { return true }
        var keys = pool.keyGate(at: loop.now, mayProbe: connections.openConnections > 0)
        guard pool.refreshToken(at: clocks) else { return true }
        if connections !== pool.connections, pool.connections.scheduler.waiting > 0,
            gate != .open || keys != .open
        {
            // A push that ends its connection is a bad probe.
            return true
        }
        while true {
            if left <= 0 {
                let more = pushes.claim(atMost: min(Self.claimedAtOnce, connections.scheduler.waiting))
                guard more > 0 || connections.scheduler.waiting == 0 else {
                    connections.scheduler.endRun()
                    return false
                }
                claimed += more
                left = more
            }
            guard
                let (slot, connection) = connections.nextAssignment(urgentOnly: gate == .urgentOnly)
            else { return true }
            if let next = connections.scheduler.upcoming {
                machine.prefetch(next)
                jobs.prefetch(next)
            }
            if case .closed(let until) = keys { machine.keysRefused(slot, probeAt: until, at: now) }
            guard machine.beginAttempt(slot, at: now) else {
                connections.withdraw(slot, from: connection)
                act()
                continue
            }
            left -= 1
            let isSent = send(slot, on: connection, of: pool, connections)
            room -= 1
            if isSent, keys == .probe { keys = pool.keyProbed() }
            if isSent, gate == .probe { gate = machine.probed(pool.index, at: now) }
            guard room <= 0 || gate == .closed else { continue }
            connections.scheduler.endRun()
            return true
        }
    }

    /// - Returns: whether the push was submitted.
    private func send(
        _ slot: UInt32, on connection: ClientConnection, of pool: CredentialPool,
        _ connections: ConnectionPool
    ) -> Bool {
        jobs.prefetchRequest(slot)
        let job = jobs[slot]
        let collapses = plan.collapsesRepeats[Int(job.pointee.app)]
        let (encoder, tokenGeneration) = pool.encoder(of: connection)
        let result = connection.submit(tag: slot, body: job.pointee.push.payload) { block in
            encoder.encode(
                job.pointee.push, to: job.pointee.target, collapsesByIdentifier: collapses, into: &block)
        }
        switch result {
        case .submitted:
            job.pointee.tokenGeneration = tokenGeneration
            job.pointee.sentAt = loop.now.nanoseconds
            return true
        case .noCapacity:
            connections.withdraw(slot, from: connection)
            machine.attemptEnded(slot, .notSent, at: now)
            act()
        case .headersTooLarge:
            // No valid job's headers are that long. The connection's header table is out of step now. The job ends,
            // because it would fare no better on another connection.
            notices.log(
                .critical, .headersTooLong, of: Int(pool.index),
                "request headers are too long; the push is undeliverable, and its connection closes",
                metadata: pool.metadata())
            connections.withdraw(slot, from: connection)
            machine.attemptEnded(slot, .unsendable, at: now)
            act()
            connection.close()
        }
        return false
    }

    // MARK: Answers

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        guard !machine.hasEnded else { return }
        wallMilliseconds = wallClockMilliseconds()
        // Number of the connection's pool, once an answer has accepted its credential, and once a request has failed.
        var (accepting, failing): (UInt16?, UInt16?)
        // By address, because a loop over the events would copy each.
        guard let first = events.baseAddress else { return }
        for index in events.indices where (first + index).pointee.kind == .response {
            machine.prefetch((first + index).pointee.tag)
        }
        for index in events.indices {
            // Jobs of answers that follow soon. A free slot's answer is the pool's fault, and only its memory is touched.
            if index + 8 < events.count { jobs.prefetch((first + index + 8).pointee.tag) }
            if index + 4 < events.count { jobs.prefetchOutcome((first + index + 4).pointee.tag) }
            let event = first + index
            switch event.pointee.kind {
            case .response:
                let tag = event.pointee.tag
                let job = jobs[tag]
                let number = job.pointee.pool
                pools[Int(number)].answered(
                    job.pointee.push.priority, after: loop.now.nanoseconds &- job.pointee.sentAt)
                if event.pointee.status / 100 == 2 {
                    accepting = number
                    machine.accepted(tag, at: now)
                    act(event.pointee.uniqueID.isEmpty ? .none : accepted(event.pointee))
                } else if answered(event.pointee, on: connection) {
                    accepting = number
                }
            case .failed: failing = jobs[event.pointee.tag].pointee.pool
            case .capacityChanged, .goAway, .pingAnswered: break
            }
        }
        if let accepting { pools[Int(accepting)].accepted(on: connection) }
        // Failed pushes go to the front of their queues, last first, so that they are sent again in their order.
        guard let failing else { return }
        pools[Int(failing)].unanswered(on: connection)
        let refusal = topicRefused(in: events)
        for event in events.reversed() where event.kind == .failed { failed(event, refusal) }
    }

    /// Returns what an accepting answer adds to the outcome.
    private func accepted(_ event: ClientEvent) -> ActionContext {
        ActionContext(answered: event.tag, uniqueID: APNSID(anyCase: event.uniqueID))
    }

    private func failed(_ event: ClientEvent, _ refusal: ResponseVerdict?) {
        counters.unanswered += 1
        if let refusal, event.processed == .no {
            machine.attemptEnded(event.tag, .topicRefused, at: now)
            act(ActionContext(verdict: refusal))
        } else {
            let end: AttemptEnd =
                event.isConnectionLoss ? .connectionLost : .unanswered(processed: event.processed != .no)
            machine.attemptEnded(event.tag, end, at: now)
            act()
        }
    }

    static let accepted = ResponseVerdict.classify(
        status: 200, body: UnsafeRawBufferPointer(start: nil, count: 0))

    /// Handles an answer other than 2xx.
    /// - Returns: whether the answer is about the request, so that APNs has accepted key or certificate. An answer of
    ///   another sender, or one that is cut, shows nothing.
    private func answered(_ event: ClientEvent, on connection: ClientConnection) -> Bool {
        var verdict = ResponseVerdict.classify(status: event.status, body: event.body)
        // The missing reason decides about the push, which is retried because APNs hasn't accepted it.
        if event.isCut, verdict.reason == .absent, verdict.class != .token { verdict.class = .later }
        if verdict.reason == .unknown, counters.note(unknownReason: verdict.reasonText) {
            logger.warning(
                "APNs answered with an unknown reason; the status decides",
                metadata: [
                    "status": "\(verdict.status)", "reason": "\(verdict.reasonText)",
                    "class": "\(verdict.class.name)",
                ])
        }
        let job = jobs[event.tag]
        job.pointee.lastStatus = verdict.status
        job.pointee.lastReason = verdict.reason
        let pool = pools[Int(job.pointee.pool)]
        pool.count(verdict.reason)
        if verdict.class == .configuration,
            pool.isReplaced(
                after: verdict.reason, on: connection.generation, "\(verdict.reason.name)", now: loop.now)
        {
            // Another key or certificate takes over, so the push is sent again and the attempt doesn't count.
            machine.attemptEnded(event.tag, .unanswered(processed: false), at: now)
            act()
            return false
        }
        var retryAfter = Int64(event.retryAfterSeconds) * 1000
        if verdict.reason == .tooManyProviderTokenUpdates {
            let rest = pool.tooManyTokenUpdates(on: connection.generation)
            retryAfter = max(retryAfter, rest)
        }
        let connections = pool.owner(of: connection)
        let remedy = verdict.remedy(
            isOpen: connection.isOpen, isOnly: connections.openConnections == 1)
        if let replacement = remedy.replacement { connections.replace(connection.number, replacement) }
        if verdict.class == .authentication {
            pool.tokenExpired(
                on: connection, tokenGeneration: job.pointee.tokenGeneration, sentAt: job.pointee.sentAt,
                at: loop.now)
        }
        machine.attemptEnded(
            event.tag,
            .answered(
                AttemptAnswer(
                    class: verdict.class, reason: verdict.reason,
                    invalidSinceMilliseconds: verdict.timestampMilliseconds,
                    retryAfterMilliseconds: retryAfter, mustWait: remedy.pushWaits)), at: now)
        act(ActionContext(verdict: verdict, answered: event.tag))
        let isKnown = verdict.reason != .absent && verdict.reason != .unknown
        return isKnown && !event.isCut && (verdict.class == .token || verdict.class == .job)
    }
}
