/// Checks of the whole structure, from end to end; for tests.
extension AppQueues {
    /// Describes the first error; nil when there is none.
    func problem() -> String? {
        guard MemoryLayout<App>.offset(of: \.queues) == 0, MemoryLayout<App>.stride == 64 else {
            return "an app's record is laid out otherwise"
        }
        var waitingNodes = 0
        var assignedNodes = 0
        var inFlight = [Int](repeating: 0, count: capacity)
        for slot in 0..<slots where nodes[slot].owner == owner {
            if nodes[slot].state == .waiting { waitingNodes += 1 }
            guard nodes[slot].state == .assigned else { continue }
            assignedNodes += 1
            inFlight[Int(nodes[slot].app)] += 1
        }
        guard waitingNodes == waiting, assignedNodes == assigned else {
            return "\(waitingNodes) wait, \(assignedNodes) assigned; counted \(waiting), \(assigned)"
        }
        var toWake = [Bool](repeating: false, count: capacity)
        var wakesTwice = false
        wakes.forEach {
            if toWake[Int($0.app)] { wakesTwice = true }
            toWake[Int($0.app)] = true
        }
        guard !wakesTwice else { return "an app wakes twice" }
        var counted = BlockedApps()
        for app in 0..<capacity {
            let record = apps[app]
            if let problem = problem(of: UInt16(app)) { return "app \(app): \(problem)" }
            guard Int(record.inFlight) == inFlight[app] else {
                return "app \(app): \(inFlight[app]) in flight, counted \(record.inFlight)"
            }
            guard record.isToWake == toWake[app] else { return "app \(app): isToWake is \(record.isToWake)" }
            let isCapped = record.blocked & Block.capped != 0
            guard isCapped == (record.inFlight >= record.maximumInFlight) else {
                return "app \(app): capped \(isCapped) with \(record.inFlight) of \(record.maximumInFlight)"
            }
            let isPaced = record.blocked & Block.paced != 0
            guard record.hasRate || !isPaced else { return "app \(app): paced without a rate" }
            guard record.waiting != 0 else { continue }
            guard !isPaced || record.isToWake else { return "app \(app): paced, and never woken" }
            if isCapped { counted.capped += 1 }
            if isPaced { counted.paced += 1 }
            if record.blocked & Block.paused != 0 { counted.paused += 1 }
        }
        guard counted == blocked else { return "blocked \(counted), counted \(blocked)" }
        for level in 0..<Self.levels {
            if let problem = problem(ofRing: level) { return "class \(level): \(problem)" }
        }
        return nil
    }

    private func problem(of app: UInt16) -> String? {
        for level in 0..<Self.levels {
            let queue = queue(app, level).pointee
            let isMarked = apps[Int(app)].waiting & 1 << UInt8(level) != 0
            guard isMarked == (queue.count > 0) else { return "class \(level) is marked wrongly" }
            var slot = queue.head
            for index in 0..<queue.count {
                let node = nodes[Int(slot)]
                guard node.state == .waiting, node.app == app, Int(node.level) == level, node.owner == owner
                else { return "slot \(slot) is in a queue that isn't its own" }
                if index == queue.count - 1 {
                    guard slot == queue.tail else { return "class \(level) ends in \(slot) before its end" }
                } else {
                    guard nodes[Int(node.next)].previous == slot
                    else { return "slot \(node.next) has another before it" }
                    slot = node.next
                }
            }
        }
        return nil
    }

    private func problem(ofRing level: Int) -> String? {
        let ring = rings[level]
        let isMarked = active & 1 << UInt8(level) != 0
        guard isMarked == (ring.current != Self.none) else { return "marked wrongly" }
        var eligible = 0
        var total = 0
        for app in 0..<capacity {
            let count = Int(queue(UInt16(app), level).pointee.count)
            total += count
            if count > 0, apps[app].blocked == 0 { eligible += 1 }
        }
        guard total == ring.waiting else { return "\(total) wait, counted \(ring.waiting)" }
        guard eligible == Int(ring.active) else { return "\(eligible) may go, counted \(ring.active)" }
        guard ring.current != Self.none else {
            return eligible == 0 ? nil : "empty though \(eligible) may go"
        }
        guard ring.deficit < 1000 else { return "a deficit of \(ring.deficit)" }
        var app = ring.current
        var members = 0
        repeat {
            let queue = queue(app, level).pointee
            guard queue.count > 0, apps[Int(app)].blocked == 0 else { return "app \(app) has no place in it" }
            guard self.queue(queue.next, level).pointee.previous == app else {
                return "app \(app) is linked wrongly"
            }
            members += 1
            app = queue.next
        } while app != ring.current && members <= eligible
        return members == eligible ? nil : "\(members) in the ring of \(eligible)"
    }
}

extension StreamScheduler {
    /// Describes the first error in the scheduler's lists and counts; nil when there is none.
    func checkInvariants() -> String? {
        queues.problem() ?? connections.problem()
    }
}
