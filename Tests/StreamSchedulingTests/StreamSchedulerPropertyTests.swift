import SluiceModel
import Testing

@testable import StreamScheduling

/// Compares the scheduler with a model, and checks its guarantees under random calls.
@Suite struct StreamSchedulerPropertyTests {
    /// Without placement runs, each assignment equals the model's.
    @Test(arguments: UInt64(1)...32)
    func randomCallsAgreeWithTheModel(seed: UInt64) {
        var run = Comparison(seed: seed)
        for step in 0..<2500 {
            if let problem = run.step() {
                Issue.record("seed \(seed) step \(step): \(problem)")
                return
            }
        }
    }

    /// Each class gets its floor. Each app gets its weight's share of each class, to within one turn.
    @Test(arguments: UInt64(1)...12)
    func saturatedClassesAndAppsGetTheirExactShares(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let floor = Int.random(in: 10...500, using: &random)
        let apps = Int.random(in: 1...6, using: &random)
        let weights = (0..<apps).map { _ in Int.random(in: 1...20, using: &random) }
        var scheduler = StreamScheduler(
            .init(connections: 1, apps: apps, floorPerMille: floor),
            notifications: NotificationTable(capacity: apps * 6))
        for (app, weight) in weights.enumerated() {
            scheduler.setLimits(app: UInt32(app), .init(weight: weight), now: 0)
        }
        // Two notifications for each app and class, so that no queue runs dry.
        let classOf = { (slot: UInt32) in Priority.allCases[Int(slot % 3)] }
        let appOf = { (slot: UInt32) in slot / 6 }
        for slot in 0..<UInt32(apps * 6) {
            scheduler.enqueue(slot: slot, app: appOf(slot), priority: classOf(slot), bytes: 1, now: 0)
        }
        var turns = [[Int]](repeating: [0, 0, 0], count: apps)
        let total = 20_000
        for _ in 0..<total {
            scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 65_535, state: .ready)
            guard let next = scheduler.nextAssignment(now: 0) else {
                Issue.record("seed \(seed): nothing assigned although all wait")
                return
            }
            turns[Int(appOf(next.slot))][Int(next.slot % 3)] += 1
            scheduler.ended(slot: next.slot, now: 0)
            scheduler.enqueue(
                slot: next.slot, app: appOf(next.slot), priority: classOf(next.slot), bytes: 1, now: 0)
        }
        let share = Double(floor) / 1000
        let expected = [
            Priority.immediate: 1 - share, .powerAware: share * (1 - share), .lowPower: share * share,
        ]
        for (index, priority) in Priority.allCases.enumerated() {
            let got = turns.reduce(0) { $0 + $1[index] }
            let wanted = (expected[priority] ?? 0) * Double(total)
            #expect(abs(Double(got) - wanted) <= 2, "seed \(seed), floor \(floor), \(priority)")
            for app in 0..<apps {
                let fair = Double(got) * Double(weights[app]) / Double(weights.reduce(0, +))
                #expect(
                    abs(Double(turns[app][index]) - fair) <= Double(weights[app]),
                    "seed \(seed), app \(app) of \(weights), \(priority)")
            }
        }
    }

    /// Caps and rates hold in every window. Each assigned notification was allowed. No eligible notification
    /// waits longer than its app's and class's turns.
    @Test(arguments: UInt64(1)...12)
    func randomTrafficKeepsLimitsAndStarvesNoNotification(seed: UInt64) {
        var traffic = Traffic(seed: seed)
        for step in 0..<1000 {
            if let problem = traffic.step() {
                Issue.record("seed \(seed) step \(step): \(problem)")
                return
            }
        }
        if let problem = traffic.finish() { Issue.record("seed \(seed): \(problem)") }
    }
}

/// Random calls to a scheduler and the model.
private struct Comparison: ~Copyable {
    var random: SeededGenerator
    var scheduler: StreamScheduler
    var model: SchedulerModel
    let slots: UInt32
    let apps: Int
    let connections: Int
    var now: UInt64 = 0
    var steps = 0
    let rates: [Double?]
    let urgentPerMille: Int

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        slots = UInt32.random(in: 1...200, using: &random)
        apps = Int.random(in: 1...12, using: &random)
        connections = Int.random(in: 1...12, using: &random)
        let floor = Int.random(in: 0...500, using: &random)
        urgentPerMille = Bool.random(using: &random) ? Int.random(in: 1...500, using: &random) : 0
        scheduler = StreamScheduler(
            .init(
                connections: connections, apps: apps, floorPerMille: floor, placementRun: 1,
                urgentPerMille: urgentPerMille),
            notifications: NotificationTable(capacity: Int(slots)))
        model = SchedulerModel(apps: apps, connections: connections, floor: floor)
        // These rates have intervals of whole nanoseconds, so that the model is exact.
        let choices: [Double?] = [nil, 5e8, 1e8, 2.5e7]
        var rates: [Double?] = []
        for _ in 0..<apps { rates.append(choices[Int.random(in: 0..<choices.count, using: &random)]) }
        self.rates = rates
    }

    mutating func step() -> String? {
        steps += 1
        now += UInt64.random(in: 0...4, using: &random)
        let slot = UInt32.random(in: 0..<slots, using: &random)
        let app = Int.random(in: 0..<apps, using: &random)
        switch Int.random(in: 0..<16, using: &random) {
        case 0..<5:
            let priority = Priority.allCases.randomElement(using: &random) ?? .immediate
            let bytes = Int.random(in: 1...5120, using: &random)
            let atFront = Int.random(in: 0..<10, using: &random) == 0
            let added = scheduler.enqueue(
                slot: slot, app: UInt32(app), priority: priority, bytes: bytes, now: now, atFront: atFront)
            if added != model.enqueue(slot, app, priority, bytes, now, atFront: atFront) {
                return "enqueue(\(slot)) answered \(added)"
            }
        case 5: if scheduler.remove(slot: slot) != model.remove(slot) { return "remove(\(slot)) differs" }
        case 6, 7, 8:
            // Mostly an assigned slot.
            let one = model.assigned.keys.sorted().randomElement(using: &random) ?? slot
            let (age, expected) = (scheduler.ended(slot: one, now: now), model.ended(one, now))
            if age != expected { return "ended(\(one)) answered \(age), not \(expected)" }
        case 9:
            let one = model.assigned.keys.sorted().randomElement(using: &random) ?? slot
            if scheduler.withdrawn(slot: one, now: now) != model.withdrawn(one, now) {
                return "withdrawn(\(one)) differs"
            }
        case 10: if let problem = changeApp(app) { return problem }
        case 11: changeConnection()
        default:
            if let problem = model.check(scheduler.nextAssignment(now: now), now) { return problem }
        }
        return observe(slot, app)
    }

    private mutating func changeApp(_ app: Int) -> String? {
        if Int.random(in: 0..<3, using: &random) == 0 {
            let isPaused = Bool.random(using: &random)
            model.setPaused(app, isPaused)
            return scheduler.setPaused(app: UInt32(app), isPaused) ? nil : "setPaused(\(app)) failed"
        }
        let limits = AppLimits(
            weight: Int.random(in: 1...5, using: &random), ratePerSecond: rates[app],
            burst: Int.random(in: 1...4, using: &random),
            maximumInFlight: Bool.random(using: &random) ? Int.random(in: 1...8, using: &random) : nil)
        var kept = limits
        // The burst of an existing rate stays, because a smaller burst would cut off spent tokens.
        if rates[app] != nil, model.apps[app].limits.ratePerSecond != nil {
            kept.burst = model.apps[app].limits.burst
        }
        model.setLimits(app, kept, now)
        return scheduler.setLimits(app: UInt32(app), kept, now: now) ? nil : "setLimits(\(app)) failed"
    }

    private mutating func changeConnection() {
        let connection = Int.random(in: 0..<connections, using: &random)
        guard Int.random(in: 0..<5, using: &random) > 0 else {
            scheduler.connectionRemoved(UInt32(connection))
            model.connections[connection] = .init()
            return
        }
        let states: [StreamScheduler.ConnectionState] = [.ready, .ready, .ready, .reserve, .draining]
        var report = SchedulerModel.Connection(
            inFlight: Int.random(in: 0...(urgentPerMille == 0 ? 5000 : 20), using: &random),
            free: Int.random(in: 0...9, using: &random),
            window: Int.random(in: -100...40_000, using: &random),
            state: states.randomElement(using: &random) ?? .ready)
        report.kept = (report.inFlight + report.free) * urgentPerMille / 1000
        scheduler.connectionChanged(
            UInt32(connection), inFlight: report.inFlight, streamsFree: report.free,
            windowFree: report.window,
            state: report.state)
        model.connections[connection] = report
    }

    private func observe(_ slot: UInt32, _ app: Int) -> String? {
        let number = UInt32(app)
        if scheduler.waiting != model.waiting { return "\(scheduler.waiting) wait, model \(model.waiting)" }
        if scheduler.isWaiting(slot: slot) != model.waits(slot) { return "isWaiting(\(slot)) differs" }
        if scheduler.isAssigned(slot: slot) != (model.assigned[slot] != nil) {
            return "isAssigned(\(slot)) differs"
        }
        if scheduler.inFlight(app: number) != model.apps[app].inFlight { return "inFlight(\(app)) differs" }
        let waiting = model.apps.filter(\.waits)
        let blocked = BlockedApps(
            capped: waiting.count { $0.isCapped }, paced: waiting.count { $0.isPaced },
            paused: waiting.count { $0.isPaused })
        if scheduler.blockedApps != blocked { return "blocked \(scheduler.blockedApps), model \(blocked)" }
        // The next wake isn't later than the first due token.
        let due = waiting.filter(\.isPaced).map(\.tokenAt).min()
        if let due, scheduler.nextWake ?? .max > due {
            return "wakes at \(String(describing: scheduler.nextWake)), not \(due)"
        }
        for priority in Priority.allCases {
            let queue = model.apps[app].queues[SchedulerModel.level(priority)]
            if scheduler.depth(app: number, priority) != queue.count {
                return "depth(\(app), \(priority)) differs"
            }
            let age = queue.first.flatMap { model.since[$0] }.map { now - $0 }
            if scheduler.oldestAge(app: number, priority, now: now) != age {
                return "oldestAge(\(app)) differs"
            }
            let ages = model.apps.compactMap { $0.queues[SchedulerModel.level(priority)].first }
                .compactMap { model.since[$0] }.map { now - $0 }
            if scheduler.oldestAge(priority, now: now) != ages.max() {
                return "oldestAge(\(priority)) differs"
            }
        }
        return steps % 16 == 0 ? scheduler.checkInvariants() : nil
    }
}

/// Apps with limits, random arrivals and answers, runs on several connections.
private struct Traffic: ~Copyable {
    private static let perApp = 40

    var random: SeededGenerator
    var scheduler: StreamScheduler
    let limits: [AppLimits]
    let connections: Int
    var now: UInt64 = 0
    var assigned: [(slot: UInt32, connection: Int)] = []
    var inFlight: [Int]
    /// Assignment times of each app's notifications, in nanoseconds.
    var times: [[UInt64]]
    /// Number of assignments during which a waiting slot's app could have sent, by slot.
    var passedBy: [UInt32: Int] = [:]
    let bound: Int

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        let apps = Int.random(in: 1...20, using: &random)
        connections = Int.random(in: 1...6, using: &random)
        let floor = Int.random(in: 50...500, using: &random)
        var limits: [AppLimits] = []
        for _ in 0..<apps {
            limits.append(
                AppLimits(
                    weight: Int.random(in: 1...10, using: &random),
                    ratePerSecond: Bool.random(using: &random)
                        ? Double.random(in: 0.5...5000, using: &random) : nil,
                    burst: Int.random(in: 1...10, using: &random),
                    maximumInFlight: Bool.random(using: &random)
                        ? Int.random(in: 1...10, using: &random) : nil))
        }
        self.limits = limits
        scheduler = StreamScheduler(
            .init(connections: connections, apps: apps, floorPerMille: floor),
            notifications: NotificationTable(capacity: apps * Self.perApp))
        for (app, limits) in limits.enumerated() { scheduler.setLimits(app: UInt32(app), limits, now: 0) }
        inFlight = Array(repeating: 0, count: connections)
        times = Array(repeating: [], count: apps)
        // A notification waits behind all others of its app, each of which waits for a round of all apps. The
        // lowest class has the fewest turns.
        let round = limits.reduce(0) { $0 + $1.weight } + 1
        bound = (Self.perApp + 1) * round * (1000 * 1000 / (floor * floor) + 2)
    }

    private func appOf(_ slot: UInt32) -> Int { Int(slot) / Self.perApp }

    mutating func step() -> String? {
        now += UInt64.random(in: 0...2_000_000, using: &random)
        for _ in 0..<Int.random(in: 0...8, using: &random) {
            let slot = UInt32.random(in: 0..<UInt32(limits.count * Self.perApp), using: &random)
            let priority = Priority.allCases.randomElement(using: &random) ?? .immediate
            scheduler.enqueue(slot: slot, app: UInt32(appOf(slot)), priority: priority, bytes: 100, now: now)
        }
        for _ in 0..<min(assigned.count, Int.random(in: 0...10, using: &random)) {
            let index = Int.random(in: 0..<assigned.count, using: &random)
            let (slot, connection) = assigned.remove(at: index)
            inFlight[connection] -= 1
            scheduler.ended(slot: slot, now: now)
            report(connection)
        }
        if Int.random(in: 0..<10, using: &random) == 0 {
            report(Int.random(in: 0..<connections, using: &random))
            scheduler.endRun()
        }
        let before = assigned.count
        while let next = scheduler.nextAssignment(now: now) {
            if let problem = recordAssignment(next) { return problem }
        }
        if let problem = checkWaits(after: assigned.count - before) { return problem }
        // Work-conserving: no eligible notification waits while there is room.
        if inFlight.contains(where: { $0 < 20 }) && scheduler.hasEligible
            && scheduler.placeableConnections > 0
        {
            return "an eligible notification waits although there is room"
        }
        return scheduler.checkInvariants()
    }

    private mutating func recordAssignment(_ next: StreamScheduler.Assignment) -> String? {
        let app = appOf(next.slot)
        times[app].append(now)
        assigned.append((next.slot, Int(next.connection)))
        inFlight[Int(next.connection)] += 1
        passedBy[next.slot] = nil
        if inFlight[Int(next.connection)] > 20 {
            return "connection \(next.connection) has more than its streams"
        }
        let ofApp = assigned.count { appOf($0.slot) == app }
        if ofApp > limits[app].maximumInFlight ?? .max { return "app \(app) has \(ofApp) in flight" }
        return nil
    }

    /// Returns a problem when a notification without limits has waited for too many of the `count` new
    /// assignments.
    private mutating func checkWaits(after count: Int) -> String? {
        let free = limits.indices.filter {
            limits[$0].ratePerSecond == nil && limits[$0].maximumInFlight == nil
        }
        for app in free where scheduler.waiting > 0 {
            for slot in UInt32(app * Self.perApp)..<UInt32((app + 1) * Self.perApp)
            where scheduler.isWaiting(slot: slot) {
                passedBy[slot, default: 0] += count
                if passedBy[slot, default: 0] > bound {
                    return "slot \(slot) waits for more than \(bound) turns"
                }
            }
        }
        return nil
    }

    private mutating func report(_ connection: Int) {
        scheduler.connectionChanged(
            UInt32(connection), inFlight: inFlight[connection], streamsFree: 20 - inFlight[connection],
            windowFree: 1 << 20, state: .ready)
    }

    /// Ends all remaining notifications, and checks each app's rate over every window.
    mutating func finish() -> String? {
        var rounds = 0
        while scheduler.waiting > 0 {
            for (slot, connection) in assigned {
                inFlight[connection] -= 1
                scheduler.ended(slot: slot, now: now)
            }
            assigned = []
            for connection in 0..<connections { report(connection) }
            while let next = scheduler.nextAssignment(now: now) {
                if let problem = recordAssignment(next) { return problem }
            }
            if assigned.isEmpty {
                guard let wake = scheduler.nextWake, wake > now else {
                    return "\(scheduler.waiting) wait for ever"
                }
                now = wake
            }
            rounds += 1
            if rounds > 100_000 { return "\(scheduler.waiting) still wait" }
        }
        for (app, limits) in limits.enumerated() {
            guard let rate = limits.ratePerSecond else { continue }
            for first in times[app].indices {
                for last in first..<times[app].count {
                    let span = Double(times[app][last] - times[app][first]) / 1e9
                    let most = span * rate + Double(limits.burst)
                    if Double(last - first + 1) > most + 1e-6 {
                        return "app \(app): \(last - first + 1) in \(span) s at \(rate)/s and \(limits.burst)"
                    }
                }
            }
        }
        return scheduler.checkInvariants()
    }
}
