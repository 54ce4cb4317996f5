import DeliveryCore
import EventLoop
import Logging

extension Shard {
    /// How long a pool must have been without a connection.
    private static let stallAfter: Duration = .seconds(10)
    private static let stallCheck: Duration = .milliseconds(500)

    /// One pool of several that has no connection must not fill the worker with its jobs: they go to the store. When all are
    /// down, Kafka keeps the backlog.
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
