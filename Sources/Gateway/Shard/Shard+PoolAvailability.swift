import DeliveryCore
import EventLoop
import Logging

extension Shard {
    /// Time without a connection after which a pool is unavailable.
    private static let unavailableAfter: Duration = .seconds(10)
    /// Interval between two checks.
    private static let availabilityCheck: Duration = .milliseconds(500)

    /// Suspends a pool that has no connection while another pool has one. The pool's jobs move to the store, because
    /// they must not fill the worker. When all pools are down, none is suspended, because Kafka keeps the backlog.
    func checkPoolAvailability() {
        guard storage != nil, pools.count > 1, !machine.hasEnded, loop.now >= nextAvailabilityCheck else {
            return
        }
        nextAvailabilityCheck = loop.now + Self.availabilityCheck
        for pool in pools { pool.watchConnections(at: loop.now) }
        let anyIsConnected = pools.contains { $0.downSince == nil }
        for pool in pools {
            let isDown = pool.downSince.map { loop.now >= $0 + Self.unavailableAfter } ?? false
            let isUnavailable = anyIsConnected && isDown
            guard isUnavailable != machine.isUnavailable(pool.index) else { continue }
            if isUnavailable {
                logger.warning(
                    "the credential has had no connection for a while; its pushes wait in the store",
                    metadata: pool.metadata())
                machine.suspend(pool: pool.index, at: now)
            } else {
                logger.notice(
                    isDown
                        ? "no credential has a connection; the credential's pushes no longer move to the store"
                        : "the credential has a connection again; its pushes resume",
                    metadata: pool.metadata())
                machine.resume(pool: pool.index, at: now)
            }
            act()
        }
    }
}
