import DeliveryCore
import EventLoop
import Logging

extension Shard {
    /// Time that a pool must have been without a connection before its lane stalls.
    private static let stallAfter: Duration = .seconds(10)
    private static let stallCheck: Duration = .milliseconds(500)

    /// Stalls a lane whose pool has no connection while another pool has one. The lane's jobs go to the store, because
    /// they must not fill the worker. When all pools are down, no lane stalls, because Kafka keeps the backlog.
    func checkStalls() {
        guard storage != nil, lanes.count > 1, !machine.hasEnded, loop.now >= nextStallCheck else { return }
        nextStallCheck = loop.now + Self.stallCheck
        for lane in lanes { lane.watchConnections(at: loop.now) }
        let someWork = lanes.contains { $0.downSince == nil }
        for lane in lanes {
            let isDown = lane.downSince.map { loop.now >= $0 + Self.stallAfter } ?? false
            let mustStall = someWork && isDown
            guard mustStall != machine.isStalled(lane.index) else { continue }
            if mustStall {
                logger.warning(
                    "no connection for a while: the credential's pushes wait in the store",
                    metadata: ["credential": "\(lane.name)"])
                machine.stall(lane: lane.index, at: now)
            } else {
                logger.notice("the credential's pushes go on", metadata: ["credential": "\(lane.name)"])
                machine.resume(lane: lane.index, at: now)
            }
            act()
        }
    }
}
