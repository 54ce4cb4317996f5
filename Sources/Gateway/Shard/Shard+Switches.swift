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
        machine.setAllPaused(switches.pausesAll)
        var (paused, resumed): ([UInt16], [UInt16]) = ([], [])
        routes.forEachRoute { route, topic in
            let isPaused = pauses(route, topic)
            guard isPaused != machine.isPaused(topic: route.number) else { return }
            if isPaused { paused.append(route.number) } else { resumed.append(route.number) }
        }
        machine.pause(topics: paused, at: now)
        machine.resume(topics: resumed, at: now)
        act()
        askForTurnEnd()
    }

    /// Pauses a topic that a push names for the first time, if a switch concerns the topic.
    func pauseIfNeeded(_ route: RouteTable.Route, _ topic: UnsafeRawBufferPointer) {
        guard pauses(route, topic) else { return }
        machine.pause(topics: [route.number], at: now)
    }

    private func pauses(_ route: RouteTable.Route, _ topic: UnsafeRawBufferPointer) -> Bool {
        switches.pausesParts
            && switches.pauses(
                app: plan.appNames[Int(route.app)], topic: String(decoding: topic, as: UTF8.self),
                credential: pools[Int(route.pool)].name)
    }
}
