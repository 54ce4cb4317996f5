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
        guard let owner = pools.first(where: { $0.connections === pool || $0.isolated === pool }) else {
            return
        }
        let index = Int(owner.index)
        let isIsolated = owner.isolated === pool
        switch event {
        case .opened(let connection, let address, let tls, let nanoseconds):
            notices.log(
                .info, .connectionOpened, of: index, "connection opened",
                metadata: owner.metadata([
                    "connection": "\(connection)", "address": "\(address)",
                    "tls": "\(tls)",
                    "milliseconds": "\(nanoseconds / 1_000_000)",
                ]))
        case .closed(let connection, let generation, let reason):
            owner.connectionClosed(connection, of: pool)
            let expected: Bool
            switch reason {
            case .drained, .closed: expected = true
            default: expected = machine.isDraining
            }
            let level: Logger.Level = expected || isIsolated ? .info : .warning
            let metadata = owner.metadata(["connection": "\(connection)", "reason": "\(reason)"])
            if case .permitEnded = reason {
                // The process was stopped, which is rare. Each such connection has its line at once.
                logger.log(level: level, "connection closed", metadata: metadata)
            } else {
                notices.log(
                    level, expected ? .connectionClosed : .connectionLost, of: index, "connection closed",
                    metadata: metadata)
            }
            // The pool's other connections have met the same refusal.
            if reason.refusesCertificate, !expected, pool.stopReason == nil {
                credentialRefused(.badCertificate, "\(reason)", generation, owner)
            }
        case .goAway(let connection, let generation, let code, let debugData):
            connectionEnds(connection, generation, code, GoAwayReason(debugData), owner)
        case .resolveFailed(let error):
            notices.log(
                .error, .hostUnresolved, of: index,
                "the host name of APNs can't be resolved",
                metadata: owner.metadata(["error": "\(error)"]))
        case .resolver(.silent(let host, let reason, let known)):
            notices.log(
                .error, .resolverSilent, of: index,
                "the resolver does not answer; known addresses are tried until it answers again",
                metadata: owner.metadata([
                    "host": "\(host)", "error": "\(reason)", "known": "\(known)",
                    "action": "check the name servers of this host (/etc/resolv.conf)",
                ]))
        case .resolver(.answers(let host)):
            notices.log(
                .notice, .resolverAnswers, of: index,
                "the resolver answers again", metadata: owner.metadata(["host": "\(host)"]))
        // The connection for isolated pushes ends because of what it carries.
        case .changed(let change): if !isIsolated { log(change, of: owner) }
        case .stopped(let reason, let nanoseconds):
            notices.log(
                .critical, .poolStopped, of: index,
                "APNs refuses this credential; nothing is sent with it until its pool opens again",
                metadata: owner.metadata([
                    "reason": "\(reason)", "next-try-in-seconds": "\(nanoseconds / 1_000_000_000)",
                ]))
        }
    }

    /// Handles a GOAWAY. A refused topic is recognized by the requests that the GOAWAY ends: ``topicRefused(in:)``.
    private func connectionEnds(
        _ connection: UInt32, _ generation: UInt32, _ code: HTTP2ErrorCode, _ reason: GoAwayReason,
        _ owner: CredentialPool
    ) {
        counters.goAways[Int(reason.reason.rawValue)] += 1
        counters.lastGoAways[Int(reason.reason.rawValue)] = wallClockMilliseconds()
        notices.log(
            .notice, .goAway, of: Int(owner.index), "APNs ends a connection",
            metadata: owner.metadata([
                "connection": "\(connection)", "code": "\(code)", "reason": "\(reason)",
            ]))
        switch reason.scope {
        case .credential: credentialRefused(reason.reason, "\(reason)", generation, owner)
        case .providerToken: owner.tokenExpired(on: generation)
        case .topic, .connection: break
        }
    }

    /// Handles a GOAWAY or a TLS alert that refuses the credential of a connection. Another key or certificate takes
    /// over, or the pool stops. A refused certificate is no fault of a credential that has none: the end of the
    /// connection counts as a failure like any other.
    private func credentialRefused(
        _ reason: Reason, _ text: String, _ generation: UInt32, _ owner: CredentialPool
    ) {
        if owner.isReplaced(after: reason, on: generation, text, now: loop.now) { return }
        if owner.stops(after: reason) { return owner.stop(reason: text) }
        guard reason.refusesCertificate else { return }
        notices.log(
            .warning, .certificateRefused, of: Int(owner.index),
            "APNs refuses a certificate, which this credential does not have; the connection counts as failed",
            metadata: owner.metadata(["reason": "\(text)"]))
    }

    /// Takes renewed credentials over, by their names. Loop's thread.
    func renew(_ credentials: [String: CredentialIdentity]) {
        guard !machine.hasEnded else { return }
        for pool in pools {
            guard let identity = credentials[pool.name] else { continue }
            pool.renew(identity)
        }
        askForTurnEnd()
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

    private func log(_ change: PoolChange, of owner: CredentialPool) {
        let index = Int(owner.index)
        switch change {
        case .grew(let count, let cause):
            logger.notice(
                "the pool grows",
                metadata: owner.metadata([
                    "connections": "\(count)", "cause": "\(cause)",
                    "waiting": "\(owner.connections.scheduler.waiting)",
                ]))
        case .shrank(let count):
            logger.notice(
                "the pool shrinks", metadata: owner.metadata(["connections": "\(count)"]))
        case .reserved(let connection):
            logger.info(
                "a connection moves into the reserve because it is not needed",
                metadata: owner.metadata(["connection": "\(connection)"]))
        case .recalled(let connection):
            logger.info(
                "a connection returns from the reserve because it is needed again",
                metadata: owner.metadata(["connection": "\(connection)"]))
        case .suspects(let connection):
            notices.log(
                .warning, .connectionSuspect, of: index,
                "a connection hasn't answered its first request for seconds; another is opened",
                metadata: owner.metadata(["connection": "\(connection)"]))
        case .rotates(let connection, let cause):
            notices.log(
                .info, .connectionReplaced, of: index, "a connection is replaced",
                metadata: owner.metadata(["connection": "\(connection)", "cause": "\(cause)"]))
        case .circuit(.closed):
            notices.log(
                .notice, .circuitClosed, of: index,
                "the circuit is closed because APNs works again", metadata: owner.metadata())
        case .circuit(.halfOpen(let fault)):
            notices.log(
                .info, .circuitHalfOpen, of: index,
                "the circuit is half open; a single request probes APNs",
                metadata: owner.metadata(["fault": "\(fault)"]))
        case .circuit(.open(let until, let fault)):
            notices.log(
                .error, .circuitOpen, of: index,
                "the circuit is open because APNs does not work; nothing is sent, and waiting pushes are kept",
                metadata: owner.metadata([
                    "fault": "\(fault)",
                    "next-try-in-milliseconds":
                        "\(MonotonicTime(nanoseconds: until).nanoseconds(since: loop.now) / 1_000_000)",
                ]))
        }
    }
}
