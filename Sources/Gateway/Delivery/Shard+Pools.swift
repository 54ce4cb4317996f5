import EventLoop
import HTTP2
import Logging
import SluiceModel

/// What the pools tell, in the log.
extension Shard {
    func poolHasCapacity(_ pool: ConnectionPool) {
        askForTurnEnd()
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        let name = lanes.first { $0.pool === pool }?.name ?? "unknown"
        switch event {
        case .opened(let connection, let address, let tls, let nanoseconds):
            logger.info(
                "connection open",
                metadata: [
                    "credential": "\(name)", "connection": "\(connection)", "address": "\(address)",
                    "tls": "\(tls)",
                    "milliseconds": "\(nanoseconds / 1_000_000)",
                ])
        case .closed(let connection, let reason):
            let expected: Bool
            switch reason {
            case .drained, .closed: expected = true
            default: expected = isDraining
            }
            logger.log(
                level: expected ? .info : .warning, "connection closed",
                metadata: ["credential": "\(name)", "connection": "\(connection)", "reason": "\(reason)"])
        case .goAway(let connection, let code, let debugData):
            let reason = debugData.withUnsafeBytes { ReasonBody($0) }
            logger.notice(
                "APNs ends a connection",
                metadata: [
                    "credential": "\(name)", "connection": "\(connection)", "code": "\(code)",
                    "reason": "\(reason.reason.name)",
                ])
            if reason.reason.class == .configuration {
                pool.stop(reason: "\(reason.reason.name)", retryAfter: .seconds(300))
            }
        case .resolveFailed(let error):
            logger.error("cannot find APNs", metadata: ["credential": "\(name)", "error": "\(error)"])
        case .changed(let change): log(change, of: name, pool)
        case .stopped(let reason):
            logger.critical(
                "APNs refuses this credential: nothing is sent with it; opened again in 5 minutes",
                metadata: ["credential": "\(name)", "reason": "\(reason)"])
        }
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
                "a connection is not needed and goes into reserve",
                metadata: ["credential": "\(name)", "connection": "\(connection)"])
        case .recalled(let connection):
            logger.info(
                "a connection is needed again",
                metadata: ["credential": "\(name)", "connection": "\(connection)"])
        case .rotates(let connection, let cause):
            logger.info(
                "a connection is replaced",
                metadata: ["credential": "\(name)", "connection": "\(connection)", "cause": "\(cause)"])
        case .circuit(.closed):
            logger.notice("APNs works again: the circuit is closed", metadata: ["credential": "\(name)"])
        case .circuit(.halfOpen(let fault)):
            logger.info(
                "one request will show whether APNs works again",
                metadata: ["credential": "\(name)", "fault": "\(fault)"])
        case .circuit(.open(let until, let fault)):
            logger.error(
                "APNs does not work: the circuit is open and nothing is sent; what waits is kept",
                metadata: [
                    "credential": "\(name)", "fault": "\(fault)",
                    "next-try-in-milliseconds":
                        "\(MonotonicTime(nanoseconds: until).nanoseconds(since: loop.now) / 1_000_000)",
                ])
        }
    }
}
