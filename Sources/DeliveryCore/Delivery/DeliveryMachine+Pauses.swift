import SluiceModel

/// Topics that an operator has paused, by themselves, with their app or with their credential. Their pushes wait like
/// those of a stopped topic: in the store where there is one, otherwise in memory. They expire in their time.
extension DeliveryMachine {
    /// Pauses topics. Pushes in flight end as usual, and aren't sent again before the topic resumes.
    public mutating func pause(topics: [UInt16], at now: DeliveryTime) {
        var hasNew = false
        for topic in topics {
            makeRoom(topic: topic)
            guard !circuits[Int(topic)].isPaused else { continue }
            if !circuits[Int(topic)].isWatched { openCircuits += 1 }
            circuits[Int(topic)].isPaused = true
            suspended(topic: topic)
            hasNew = true
        }
        guard hasNew else { return }
        for slot in 0..<UInt32(highWater)
        where items[Int(slot)].state == .waiting && circuits[Int(items[Int(slot)].topic)].isPaused {
            withdraw(slot)
            probeLeft(slot)
            dispatch(slot, at: now)
        }
    }

    /// Resumes topics. A topic that APNs has stopped meanwhile stays stopped, and probes.
    public mutating func resume(topics: [UInt16], at now: DeliveryTime) {
        for topic in topics where isPaused(topic: topic) {
            circuits[Int(topic)].isPaused = false
            guard !circuits[Int(topic)].isWatched else {
                endReadingAhead(topic, at: now)
                continue
            }
            openCircuits -= 1
            resumed(topic: topic)
            releaseWaiting(topic, at: now)
        }
    }

    /// Returns whether an operator has paused the topic.
    public func isPaused(topic: UInt16) -> Bool {
        Int(topic) < circuits.count && circuits[Int(topic)].isPaused
    }

    /// Topics that an operator has paused.
    public var pausedTopics: [UInt16] { circuits.indices.filter { circuits[$0].isPaused }.map { UInt16($0) } }
}
