import EventLoop
import HTTP2
import Logging
import SluiceModel

/// Logs the pools' events.
extension Shard {
    func poolHasCapacity(_ pool: ConnectionPool) {
        askForTurnEnd()
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        let name = pools.first { $0.connections === pool }?.name ?? "unknown"
        switch event {
        case .opened(let connection, let address, let tls, let nanoseconds):
            logger.info(
                "connection opened",
                metadata: [
                    "credential": "\(name)", "connection": "\(connection)", "address": "\(address)",
                    "tls": "\(tls)",
                    "milliseconds": "\(nanoseconds / 1_000_000)",
                ])
        case .closed(let connection, let reason):
            let expected: Bool
            switch reason {
            case .drained, .closed: expected = true
            default: expected = machine.isDraining
            }
            logger.log(
                level: expected ? .info : .warning, "connection closed",
                metadata: ["credential": "\(name)", "connection": "\(connection)", "reason": "\(reason)"])
            // The pool's other connections have met the same refusal.
            if case .tls(let error) = reason, error.kind == .certificateRefused, !expected,
                pool.stopReason == nil
            {
                pool.stop(reason: "\(error)", retryAfter: .seconds(300))
            }
        case .goAway(let connection, let code, let debugData):
            connectionEnds(connection, code, GoAwayReason(debugData), pool)
        case .resolveFailed(let error):
            logger.error(
                "the host name of APNs can't be resolved",
                metadata: ["credential": "\(name)", "error": "\(error)"])
        case .resolver(.silent(let host, let reason, let known)):
            logger.error(
                "the resolver does not answer; known addresses are tried until it answers again",
                metadata: [
                    "credential": "\(name)", "host": "\(host)", "error": "\(reason)", "known": "\(known)",
                    "action": "check the name servers of this host (/etc/resolv.conf)",
                ])
        case .resolver(.answers(let host)):
            logger.notice(
                "the resolver answers again", metadata: ["credential": "\(name)", "host": "\(host)"])
        case .changed(let change): log(change, of: name, pool)
        case .stopped(let reason):
            logger.critical(
                "APNs refuses this credential; nothing is sent with it, and its pool opens again in 5 minutes",
                metadata: ["credential": "\(name)", "reason": "\(reason)"])
        }
    }

    /// Handles a GOAWAY. A refused topic is recognized by the requests that the GOAWAY ends: ``topicRefused(in:)``.
    private func connectionEnds(
        _ connection: UInt32, _ code: HTTP2ErrorCode, _ reason: GoAwayReason, _ pool: ConnectionPool
    ) {
        counters.goAways[Int(reason.reason.rawValue)] += 1
        counters.lastGoAways[Int(reason.reason.rawValue)] = wallClockMilliseconds()
        let owner = pools.first { $0.connections === pool }
        logger.notice(
            "APNs ends a connection",
            metadata: [
                "credential": "\(owner?.name ?? "unknown")", "connection": "\(connection)", "code": "\(code)",
                "reason": "\(reason)",
            ])
        switch reason.scope {
        case .credential: pool.stop(reason: "\(reason)", retryAfter: .seconds(300))
        case .providerToken:
            guard let owner else { break }
            owner.tokenExpired(generation: owner.tokenGeneration, now: loop.now, logger: logger)
        case .topic, .connection: break
        }
    }

    /// Returns the verdict of a GOAWAY that blames a topic, if all requests that it ends unprocessed have one topic.
    /// Returns nil for several topics, because the GOAWAY doesn't name the topic. The requests' own answers will show
    /// it.
    func topicRefused(in events: UnsafeBufferPointer<ClientEvent>) -> ResponseVerdict? {
        var verdict: ResponseVerdict?
        var topic: UInt16?
        for event in events {
            switch event.kind {
            case .goAway:
                let reason = GoAwayReason(event.body)
                guard reason.scope == .topic else { break }
                verdict = ResponseVerdict.classify(status: reason.reason.status, body: event.body)
            case .failed where event.processed == .no:
                let other = machine.topic(event.tag)
                if topic ?? other != other { return nil }
                topic = other
            default: break
            }
        }
        return verdict
    }

    private func log(_ change: PoolChange, of name: String, _ pool: ConnectionPool) {
        switch change {
        case .grew(let count, let cause):
            logger.notice(
                "the pool grows",
                metadata: [
                    "credential": "\(name)", "connections": "\(count)", "cause": "\(cause)",
                    "waiting": "\(pool.scheduler.waiting)",
                ])
        case .shrank(let count):
            logger.notice(
                "the pool shrinks", metadata: ["credential": "\(name)", "connections": "\(count)"])
        case .reserved(let connection):
            logger.info(
                "a connection moves into the reserve because it is not needed",
                metadata: ["credential": "\(name)", "connection": "\(connection)"])
        case .recalled(let connection):
            logger.info(
                "a connection returns from the reserve because it is needed again",
                metadata: ["credential": "\(name)", "connection": "\(connection)"])
        case .rotates(let connection, let cause):
            logger.info(
                "a connection is replaced",
                metadata: ["credential": "\(name)", "connection": "\(connection)", "cause": "\(cause)"])
        case .circuit(.closed):
            logger.notice(
                "the circuit is closed because APNs works again", metadata: ["credential": "\(name)"])
        case .circuit(.halfOpen(let fault)):
            logger.info(
                "the circuit is half open; a single request probes APNs",
                metadata: ["credential": "\(name)", "fault": "\(fault)"])
        case .circuit(.open(let until, let fault)):
            logger.error(
                "the circuit is open because APNs does not work; nothing is sent, and waiting pushes are kept",
                metadata: [
                    "credential": "\(name)", "fault": "\(fault)",
                    "next-try-in-milliseconds":
                        "\(MonotonicTime(nanoseconds: until).nanoseconds(since: loop.now) / 1_000_000)",
                ])
        }
    }
}
