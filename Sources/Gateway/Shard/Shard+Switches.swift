import DeliveryCore
import EventLoop
import SluiceModel

/// Applies an operator's pauses.
extension Shard {
    /// Pauses and resumes what the switches name. Shard's thread only.
    func apply(_ switches: Switches) {
        guard !machine.hasEnded, switches != self.switches else { return }
        self.switches = switches
        wallMilliseconds = wallClockMilliseconds()
        applyPauses()
        act()
        askForTurnEnd()
    }

    private func applyPauses() {
        var paused: Set<UInt16> = []
        routes.forEachRoute { route, topic in if pauses(route, topic) { paused.insert(route.number) } }
        machine.setPauses(all: switches.pausesAll, topics: paused, at: now)
    }

    /// Pauses a topic that a push names for the first time, if a switch concerns the topic.
    func pauseIfNeeded(_ route: RouteTable.Route, _ topic: UnsafeRawBufferPointer) {
        if pauses(route, topic) { applyPauses() }
    }

    private func pauses(_ route: RouteTable.Route, _ topic: UnsafeRawBufferPointer) -> Bool {
        switches.pausesParts
            && switches.pauses(
                app: plan.appNames[Int(route.app)], topic: String(decoding: topic, as: UTF8.self),
                credential: pools[Int(route.pool)].name)
    }
}
