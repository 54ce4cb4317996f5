import SluiceModel

@testable import StreamScheduling

/// A model of ``StreamScheduler`` with arrays that are searched from end to end.
struct SchedulerModel {
    struct Connection {
        var inFlight = 0
        var free = 0
        var window = 0
        /// Number of streams that are kept for priority 10.
        var kept = 0
        var state = StreamScheduler.ConnectionState.suspended

        func fits(_ bytes: Int) -> Bool { free > 0 && window > 0 && window >= bytes }

        /// Whether `bytes` fit; only urgent notifications use kept streams.
        func takes(_ bytes: Int, isUrgent: Bool) -> Bool {
            fits(bytes) && (isUrgent || state == .reserve || window < 5120 || free > kept)
        }

        func isRoomy() -> Bool { state == .ready && window >= 5120 && free > kept }
    }

    struct App {
        var limits = AppLimits()
        var queues: [[UInt32]] = [[], [], []]
        var inFlight = 0
        var isPaused = false
        var isPaced = false
        /// Nanoseconds per token; a whole number for the rates that tests use.
        var interval: UInt64 { UInt64(1e9 / (limits.ratePerSecond ?? 1)) }
        /// Time at which the bucket is full, in nanoseconds.
        var full: UInt64 = 0

        var isCapped: Bool { inFlight >= limits.maximumInFlight ?? .max }
        var isEligible: Bool { !isPaused && !isPaced && !isCapped }
        var waits: Bool { queues.contains { !$0.isEmpty } }
        var tokenAt: UInt64 {
            let spare = UInt64(limits.burst - 1) * interval
            return full > spare ? full - spare : 0
        }
    }

    var apps: [App]
    var connections: [Connection]
    let floor: Int
    var credits = [0, 0]
    /// Eligible apps of each class; the app whose turn it is comes first.
    var rings: [[Int]] = [[], [], []]
    /// Notifications that the first app of each ring may still send; 0 before its turn begins.
    var deficits = [0, 0, 0]
    var bytes: [UInt32: Int] = [:]
    var since: [UInt32: UInt64] = [:]
    /// App of each assigned slot.
    var assigned: [UInt32: Int] = [:]

    init(apps: Int, connections: Int, floor: Int) {
        self.apps = Array(repeating: App(), count: apps)
        self.connections = Array(repeating: Connection(), count: connections)
        self.floor = floor
    }

    var waiting: Int { apps.reduce(0) { $0 + $1.queues.joined().count } }

    func waits(_ slot: UInt32) -> Bool { apps.contains { $0.queues.joined().contains(slot) } }

    static func level(_ priority: Priority) -> Int {
        switch priority {
        case .immediate: 0
        case .powerAware: 1
        case .lowPower: 2
        }
    }

    /// Updates the rings to the eligible apps; returning apps are appended.
    private mutating func settle(_ app: Int) {
        for level in 0..<3 {
            let belongs = apps[app].isEligible && !apps[app].queues[level].isEmpty
            let place = rings[level].firstIndex(of: app)
            if belongs, place == nil { rings[level].append(app) }
            if !belongs, let place {
                rings[level].remove(at: place)
                if place == 0 { deficits[level] = 0 }
            }
        }
    }

    private mutating func recheckPace(_ app: Int, _ now: UInt64) {
        if apps[app].limits.ratePerSecond == nil || apps[app].tokenAt <= now { apps[app].isPaced = false }
    }

    // MARK: Calls

    mutating func enqueue(
        _ slot: UInt32, _ app: Int, _ priority: Priority, _ size: Int, _ now: UInt64, atFront: Bool
    ) -> Bool {
        guard !waits(slot), assigned[slot] == nil else { return false }
        if !apps[app].waits { recheckPace(app, now) }
        let level = Self.level(priority)
        apps[app].queues[level].insert(slot, at: atFront ? 0 : apps[app].queues[level].count)
        bytes[slot] = size
        since[slot] = now
        settle(app)
        return true
    }

    mutating func remove(_ slot: UInt32) -> Bool {
        for app in apps.indices {
            for level in 0..<3 {
                guard let place = apps[app].queues[level].firstIndex(of: slot) else { continue }
                apps[app].queues[level].remove(at: place)
                settle(app)
                return true
            }
        }
        return false
    }

    mutating func ended(_ slot: UInt32, _ now: UInt64) -> UInt64 {
        guard let app = assigned.removeValue(forKey: slot) else { return 0 }
        apps[app].inFlight -= 1
        settle(app)
        return now - (since[slot] ?? 0)
    }

    mutating func withdrawn(_ slot: UInt32, _ now: UInt64) -> Bool {
        guard let app = assigned.removeValue(forKey: slot) else { return false }
        apps[app].inFlight -= 1
        if apps[app].limits.ratePerSecond != nil {
            apps[app].full = apps[app].full > apps[app].interval ? apps[app].full - apps[app].interval : 0
            recheckPace(app, now)
        }
        settle(app)
        return true
    }

    /// A rate can't be changed once it is set, in this model.
    mutating func setLimits(_ app: Int, _ limits: AppLimits, _ now: UInt64) {
        let had = apps[app].limits.ratePerSecond
        apps[app].limits = limits
        if had == nil { apps[app].full = 0 }
        apps[app].isPaced = limits.ratePerSecond != nil && apps[app].tokenAt > now
        for level in 0..<3 where rings[level].first == app {
            deficits[level] = min(deficits[level], limits.weight)
        }
        settle(app)
    }

    mutating func setPaused(_ app: Int, _ isPaused: Bool) {
        apps[app].isPaused = isPaused
        settle(app)
    }

    /// Returns the fault of a scheduler's answer. Updates the model, and returns nil, when there is no fault.
    mutating func check(_ assignment: StreamScheduler.Assignment?, _ now: UInt64) -> String? {
        let woken = apps.indices.filter { apps[$0].isPaced && apps[$0].waits && apps[$0].tokenAt <= now }
        for app in woken.sorted(by: { (apps[$0].tokenAt, $0) < (apps[$1].tokenAt, $1) }) {
            apps[app].isPaced = false
            settle(app)
        }
        guard rings.contains(where: { !$0.isEmpty }) else {
            return assignment == nil ? nil : "assigned although nothing is eligible"
        }
        var next = credits
        var level = 0
        var isFloor = false
        if rings[0].isEmpty || (!(rings[1] + rings[2]).isEmpty && Self.earn(&next[0], floor)) {
            isFloor = !rings[0].isEmpty
            level = rings[1].isEmpty || (!rings[2].isEmpty && Self.earn(&next[1], floor)) ? 2 : 1
        }
        var app = rings[level][0]
        var slot = apps[app].queues[level][0]
        var size = bytes[slot] ?? 0
        func fittingConnections() -> [Connection] {
            connections.filter {
                ($0.state == .ready || $0.state == .reserve)
                    && $0.takes(size, isUrgent: level == 0 || isFloor)
            }
        }
        var fitting = fittingConnections()
        if fitting.isEmpty, level > 0, !rings[0].isEmpty {
            level = 0
            app = rings[0][0]
            slot = apps[app].queues[0][0]
            size = bytes[slot] ?? 0
            next = [min(credits[0] + floor, 16_000), credits[1]]
            isFloor = false
            fitting = fittingConnections()
        }
        guard let assignment else {
            return fitting.isEmpty ? nil : "nothing assigned although slot \(slot) of app \(app) fits"
        }
        guard assignment.slot == slot else { return "slot \(assignment.slot) instead of \(slot)" }
        if let problem = problem(with: Int(assignment.connection), size, isUrgent: level == 0 || isFloor) {
            return problem
        }

        credits = next
        apps[app].queues[level].removeFirst()
        if !apps[app].queues[level].isEmpty {
            if deficits[level] == 0 { deficits[level] = apps[app].limits.weight }
            deficits[level] -= 1
            if deficits[level] == 0 { rings[level].append(rings[level].removeFirst()) }
        }
        assigned[slot] = app
        apps[app].inFlight += 1
        if apps[app].limits.ratePerSecond != nil {
            apps[app].full = max(apps[app].full, now) + apps[app].interval
            apps[app].isPaced = apps[app].tokenAt > now
        }
        settle(app)
        connections[Int(assignment.connection)].inFlight += 1
        connections[Int(assignment.connection)].free -= 1
        connections[Int(assignment.connection)].window -= size
        return nil
    }

    private func problem(with number: Int, _ size: Int, isUrgent: Bool) -> String? {
        let chosen = connections[number]
        guard chosen.state == .ready || chosen.state == .reserve, chosen.takes(size, isUrgent: isUrgent)
        else {
            return "connection \(number) has no room"
        }
        if let least = connections.filter({ $0.isRoomy() }).map({ min($0.inFlight, 4095) }).min() {
            return chosen.isRoomy() && min(chosen.inFlight, 4095) == least
                ? nil : "connection \(number) isn't the least loaded"
        }
        let isReadyUsed = connections.contains { $0.state == .ready && $0.takes(size, isUrgent: isUrgent) }
        return isReadyUsed && chosen.state == .reserve
            ? "connection \(number) is in reserve, and a ready connection has room" : nil
    }

    private static func earn(_ credit: inout Int, _ floor: Int) -> Bool {
        credit += floor
        guard credit >= 1000 else { return false }
        credit -= 1000
        return true
    }
}
