import DeliveryCore

/// Pauses of an operator in a fleet's world, with choices of their own, so that worlds without pauses stay as they are.
/// Each loop of a worker learns of a change after a while.
struct FleetSwitches {
    /// Number of changes so far.
    private(set) var version = 0
    private(set) var pausesAll = false
    private(set) var topics: Set<UInt16> = []
    private var draw: Draw
    private let isUsed: Bool

    /// - Parameter isAllowed: false: nothing is ever paused.
    init(seed: UInt64, isAllowed: Bool) {
        var draw = Draw(seed: seed ^ 0x5357_4954_4348)
        let isDrawn = draw.chance(250)
        isUsed = isAllowed && isDrawn
        self.draw = draw
    }

    /// True when workers of this world start without knowing what is paused.
    var areUsed: Bool { isUsed }

    /// Lets an operator change something now and then. Returns a description of the change.
    mutating func change(topics count: Int) -> (topic: Int, isPaused: Bool)? {
        guard isUsed, draw.chance(20) else { return nil }
        version += 1
        if draw.chance(300) {
            pausesAll = !pausesAll && draw.chance(700)
            return (-1, pausesAll)
        }
        let topic = UInt16(draw.below(count))
        if topics.remove(topic) == nil { topics.insert(topic) }
        return (Int(topic), topics.contains(topic))
    }

    /// Returns whether a loop that has learned of a version learns of the present one now.
    mutating func isLearned(after version: Int) -> Bool { version != self.version && draw.chance(200) }

    mutating func resumeAll() {
        guard isUsed else { return }
        version += 1
        pausesAll = false
        topics = []
    }
}

extension ShardProcess {
    /// Learns of an operator's change.
    func followSwitches() {
        guard world.learns(after: &learnedSwitches), !machine.hasEnded else { return }
        machine.setAllPaused(world.switches.pausesAll)
        let all = (0..<UInt16(world.scenario.topics))
        machine.pause(topics: all.filter { world.switches.topics.contains($0) }, at: now)
        machine.resume(topics: all.filter { !world.switches.topics.contains($0) }, at: now)
        pausedTopics = world.switches.topics
        act()
    }

    /// Checks that a push may be sent while operators have paused something.
    func checkPauses(_ job: Int) {
        let topic = world.jobs[job].facts.topic
        guard machine.isAllPaused || pausedTopics.contains(topic) else { return }
        world.broken(.waits, "job \(job) is sent, and its topic \(topic) or all sending is paused")
    }
}
