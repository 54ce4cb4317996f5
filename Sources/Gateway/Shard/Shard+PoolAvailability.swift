import DeliveryCore
import Logging

extension Shard {
    /// Suspends a pool that has no connection while another pool has one. The pool's jobs move to the store.
    func checkPoolAvailability() {
        guard storage != nil, !machine.hasEnded, poolWatch.isDue(at: loop.now.nanoseconds) else { return }
        let changes = poolWatch.look(
            at: loop.now.nanoseconds, hasConnection: { pools[$0].connections.openConnections > 0 },
            isSuspended: { machine.isUnavailable(UInt16($0)) })
        for (index, change) in changes {
            let pool = pools[index]
            switch change {
            case .suspend:
                logger.warning(
                    "the credential has had no connection for a while; its pushes wait in the store",
                    metadata: pool.metadata())
                machine.suspend(pool: pool.index, at: now)
            case .resume(let isConnected):
                logger.notice(
                    isConnected
                        ? "the credential has a connection again; its pushes resume"
                        : "no credential has a connection; the credential's pushes no longer move to the store",
                    metadata: pool.metadata())
                machine.resume(pool: pool.index, at: now)
            }
            act()
        }
    }
}
