import DeliveryCore
import SluiceModel
import Testing

/// The scheduler against arrays that are searched from end to end.
@Suite struct StreamSchedulerPropertyTests {
    @Test(arguments: UInt64(1)...24)
    func agreesWithTheModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let slots = UInt32.random(in: 1...200, using: &random)
        let connections = UInt32.random(in: 1...12, using: &random)
        let floor = Int.random(in: 0...500, using: &random)
        var scheduler = StreamScheduler(
            .init(slots: Int(slots), connections: Int(connections), floorPerMille: floor))
        var model = SchedulerModel(connections: Int(connections), floor: floor)
        for step in 0..<2000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<4:
                let slot = UInt32.random(in: 0..<slots, using: &random)
                let priority = Priority.allCases.randomElement(using: &random) ?? .immediate
                let bytes = Int.random(in: 1...5120, using: &random)
                let atFront = Int.random(in: 0..<10, using: &random) == 0
                let added = scheduler.enqueue(
                    slot: slot, priority: priority, bytes: bytes, now: UInt64(step), atFront: atFront)
                if added != model.enqueue(slot, priority, bytes, atFront: atFront) {
                    Issue.record("seed \(seed) step \(step): enqueue(\(slot)) answered \(added)")
                    return
                }
            case 4:
                let slot = UInt32.random(in: 0..<slots, using: &random)
                if scheduler.remove(slot: slot) != model.remove(slot) {
                    Issue.record("seed \(seed) step \(step): remove(\(slot)) differs")
                    return
                }
            case 5:
                let connection = UInt32.random(in: 0..<connections, using: &random)
                if Int.random(in: 0..<4, using: &random) == 0 {
                    scheduler.connectionRemoved(connection)
                    model.connections[Int(connection)] = .init()
                } else {
                    let report = SchedulerModel.Connection(
                        inFlight: Int.random(in: 0...5000, using: &random),
                        free: Int.random(in: 0...5, using: &random),
                        window: Int.random(in: -100...40_000, using: &random),
                        ready: Int.random(in: 0..<5, using: &random) > 0)
                    scheduler.connectionChanged(
                        connection, inFlight: report.inFlight, streamsFree: report.free,
                        windowFree: report.window, state: report.ready ? .ready : .draining)
                    model.connections[Int(connection)] = report
                }
            default:
                let assignment = scheduler.nextAssignment()
                if let problem = model.check(assignment) {
                    Issue.record("seed \(seed) step \(step): \(problem)")
                    return
                }
            }
            if scheduler.waiting != model.waiting {
                Issue.record("seed \(seed) step \(step): \(scheduler.waiting) wait, model \(model.waiting)")
                return
            }
        }
    }

    /// With every class saturated, each gets at least its floor in every window of a thousand turns.
    @Test(arguments: UInt64(1)...8)
    func nobodyStarves(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let floor = Int.random(in: 10...500, using: &random)
        var scheduler = StreamScheduler(.init(slots: 9, connections: 1, floorPerMille: floor))
        for slot in UInt32(0)..<9 {
            scheduler.enqueue(slot: slot, priority: Priority.allCases[Int(slot % 3)], bytes: 1, now: 0)
        }
        var turns = [0, 0, 0]
        let total = 20_000
        for _ in 0..<total {
            scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 65_535, state: .ready)
            guard let next = scheduler.nextAssignment() else {
                Issue.record("seed \(seed): nothing assigned although all wait")
                return
            }
            let priority = Priority.allCases[Int(next.slot % 3)]
            turns[Int(next.slot % 3)] += 1
            scheduler.enqueue(slot: next.slot, priority: priority, bytes: 1, now: 0)
        }
        let share = Double(floor) / 1000
        let expected = [
            Priority.immediate: 1 - share, .powerAware: share * (1 - share), .lowPower: share * share,
        ]
        for (index, priority) in Priority.allCases.enumerated() {
            let wanted = (expected[priority] ?? 0) * Double(total)
            #expect(abs(Double(turns[index]) - wanted) <= 2, "seed \(seed), floor \(floor), \(priority)")
        }
    }
}

private struct SchedulerModel {
    struct Connection {
        var inFlight = 0
        var free = 0
        var window = 0
        var ready = false

        func fits(_ bytes: Int) -> Bool { ready && free > 0 && window >= bytes }
    }

    var queues: [[(slot: UInt32, bytes: Int)]] = [[], [], []]
    var connections: [Connection]
    let floor: Int
    var credits = [0, 0]

    init(connections: Int, floor: Int) {
        self.connections = Array(repeating: Connection(), count: connections)
        self.floor = floor
    }

    var waiting: Int { queues.reduce(0) { $0 + $1.count } }

    mutating func enqueue(_ slot: UInt32, _ priority: Priority, _ bytes: Int, atFront: Bool) -> Bool {
        guard !queues.joined().contains(where: { $0.slot == slot }) else { return false }
        let level = priority == .immediate ? 0 : priority == .powerAware ? 1 : 2
        queues[level].insert((slot, bytes), at: atFront ? 0 : queues[level].count)
        return true
    }

    mutating func remove(_ slot: UInt32) -> Bool {
        for level in 0..<3 {
            if let index = queues[level].firstIndex(where: { $0.slot == slot }) {
                queues[level].remove(at: index)
                return true
            }
        }
        return false
    }

    /// What is wrong with an answer of the scheduler; follows it when nothing is.
    mutating func check(_ assignment: StreamScheduler.Assignment?) -> String? {
        guard waiting > 0 else { return assignment == nil ? nil : "assigned although nothing waits" }
        var next = credits
        var level = 0
        if queues[0].isEmpty || (waiting > queues[0].count && Self.earn(&next[0], floor)) {
            level = queues[1].isEmpty || (!queues[2].isEmpty && Self.earn(&next[1], floor)) ? 2 : 1
        }
        let head = queues[level][0]
        let fitting = connections.filter { $0.fits(head.bytes) }
        guard let assignment else {
            return fitting.isEmpty ? nil : "nothing assigned although slot \(head.slot) fits"
        }
        guard assignment.slot == head.slot else { return "slot \(assignment.slot) instead of \(head.slot)" }
        let chosen = connections[Int(assignment.connection)]
        guard chosen.fits(head.bytes) else { return "connection \(assignment.connection) has no room" }
        let least = connections.filter { $0.fits(5120) }.map { min($0.inFlight, 4095) }.min()
        if let least, min(chosen.inFlight, 4095) != least || chosen.window < 5120 {
            return "connection \(assignment.connection) isn't the least loaded"
        }
        credits = next
        queues[level].removeFirst()
        connections[Int(assignment.connection)].inFlight += 1
        connections[Int(assignment.connection)].free -= 1
        connections[Int(assignment.connection)].window -= head.bytes
        return nil
    }

    private static func earn(_ credit: inout Int, _ floor: Int) -> Bool {
        credit += floor
        guard credit >= 1000 else { return false }
        credit -= 1000
        return true
    }
}
