import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// The test's own record of failures: the earliest time at which the pool may open a connection.
private struct FailureRecord {
    private struct Connection {
        var openedAt: UInt64
        var isAccepted = false
    }

    let limits: PoolLimits
    private var connections: [UInt32: Connection] = [:]
    private var failures = 0
    private var lastFailure: UInt64 = 0
    private var lastSettings: UInt64 = 0
    private var notBefore: UInt64 = 0
    /// Earliest opening after a settings failure. Only the acceptance of a newer connection clears it.
    private var notBeforeForSettings: UInt64 = 0

    init(_ limits: PoolLimits) { self.limits = limits }

    func forbidsOpening(at now: UInt64) -> Bool { now < max(notBefore, notBeforeForSettings) }

    mutating func opened(_ number: UInt32, now: UInt64) { connections[number] = Connection(openedAt: now) }

    private mutating func failed(now: UInt64) {
        failures += 1
        lastFailure = now
        let window = min(limits.reconnectInitial << UInt64(min(failures - 1, 30)), limits.reconnectMaximum)
        notBefore = max(notBefore, now + window / 10)
    }

    /// - Parameter isCircuitOpen: Whether the circuit is open, in which case a failed opening isn't counted.
    mutating func ended(
        _ number: UInt32, _ end: PoolStateMachine.End, wasOpening: Bool, isCircuitOpen: Bool, now: UInt64
    ) {
        connections[number] = nil
        guard wasOpening, end != .ours else { return }
        if end == .settings {
            lastSettings = now
            notBeforeForSettings = now + limits.reconnectMaximum / 2
        }
        if !isCircuitOpen { failed(now: now) }
    }

    mutating func replacedNow(_ number: UInt32, now: UInt64) {
        if connections[number]?.isAccepted == false { failed(now: now) }
    }

    mutating func accepted(_ number: UInt32) {
        guard let connection = connections[number] else { return }
        connections[number]?.isAccepted = true
        if connection.openedAt >= lastSettings { notBeforeForSettings = 0 }
        let isFirst = !connection.isAccepted && connection.openedAt >= lastSettings
        guard isFirst || connection.openedAt >= lastFailure else { return }
        failures = 0
        notBefore = 0
    }
}

/// Drives the pool's machine through random events and checks its limits after each.
@Suite struct PoolStateMachinePropertyTests {
    private struct World {
        var machine: PoolStateMachine
        var limits: PoolLimits
        var now: UInt64 = 1
        var lastOpening: UInt64?
        var circuit = PoolCircuit.closed
        var lastGrowth: UInt64?
        var record: FailureRecord
        /// Whether the pool was stopped at the last report of all connections.
        var isStopped = false
        /// Whether a request waits or a connection is blocked, so that no connection can be spared.
        var isShort = false
        var problem: String?

        init(_ limits: PoolLimits, seed: UInt64) {
            machine = PoolStateMachine(limits, seed: seed)
            self.limits = limits
            record = FailureRecord(limits)
        }

        private static func isLegal(_ old: PoolCircuit, _ new: PoolCircuit) -> Bool {
            switch (old, new) {
            // A server that has answered doesn't count as unreachable after a failed opening.
            case (.halfOpen(.serverErrors), .open(_, .unreachable)): false
            case (.closed, .open), (.open, .halfOpen), (.halfOpen, .open), (.halfOpen, .closed): true
            // A connection that stayed open can still answer.
            case (.open(_, .unreachable), .closed), (.open(_, .noAnswer), .closed): true
            default: false
            }
        }

        /// Carries out the machine's actions and checks each of them.
        mutating func take() {
            var reserved = 0
            var recalled = 0
            for action in machine.take() {
                switch action {
                case .open(let number):
                    if machine.members[Int(number)].phase != .opening {
                        problem = "\(number) opens in a wrong phase"
                    }
                    if let lastOpening, now < lastOpening + limits.openInterval {
                        problem = "opened too soon after another"
                    }
                    if now < machine.notBefore { problem = "opened during back-off" }
                    if record.forbidsOpening(at: now) { problem = "opened soon after a failure" }
                    if let until = machine.stoppedUntil, now < until { problem = "opened while stopped" }
                    if case .open = machine.circuit { problem = "opened with an open circuit" }
                    if case .halfOpen = machine.circuit, machine.count(.opening) > 1 {
                        problem = "more than one probe"
                    }
                    lastOpening = now
                case .drain(let number):
                    if machine.members[Int(number)].phase != .draining {
                        problem = "\(number) drains in a wrong phase"
                    }
                case .report(let number):
                    if machine.members[Int(number)].phase == .free {
                        problem = "a report of \(number), which is free"
                    }
                case .changed(.circuit(let new)):
                    if !Self.isLegal(circuit, new) { problem = "\(circuit) became \(new)" }
                    circuit = new
                case .changed(.grew(let size, _)):
                    if let lastGrowth, now < lastGrowth + limits.growthInterval { problem = "grows too fast" }
                    if size > limits.maximum { problem = "grows to \(size)" }
                    lastGrowth = now
                case .changed(.shrank(let size)):
                    if size < limits.minimum { problem = "shrinks to \(size)" }
                case .changed(.reserved): reserved += 1
                case .changed(.recalled): recalled += 1
                case .reportAll: isStopped = machine.stoppedUntil != nil
                case .changed(.rotates): break
                case .changed(.suspects(let number)):
                    if machine.members[Int(number)].hasAnswered { problem = "\(number) has answered" }
                }
            }
            if reserved > 0, recalled > 0 { problem = "recalled and reserved at once" }
            if reserved > 0, isShort { problem = "reserved though it is needed" }
            if reserved > 0, let lastGrowth, now < lastGrowth + limits.idleTimeout {
                problem = "reserved soon after it grew"
            }
            if isStopped != (machine.stoppedUntil != nil) {
                problem = "a stop began or ended without a report"
            }
            isShort = false
            let extra = machine.members.count { $0.isExtra && $0.phase != .draining }
            if extra > limits.maximum { problem = "\(extra) connections beside suspects" }
            if machine.live > limits.maximum + extra { problem = "\(machine.live) connections" }
            if machine.target < limits.minimum || machine.target > limits.maximum {
                problem = "a target of \(machine.target)"
            }
            if machine.circuit != circuit { problem = "the circuit changed without a report" }
            if machine.count(.active) + machine.count(.opening) + machine.missing < limits.minimum {
                problem = "\(machine.count(.active)) active, \(machine.missing) missing"
            }
            let working = machine.members.count { $0.phase == .active && !$0.isSuspect }
            let serving = working + machine.count(.reserve) + machine.count(.retiring)
            if machine.count(.retiring) > 0, serving > machine.target {
                problem = "a retiring connection serves too long"
            }
            // A missing connection is opened as soon as the limits allow it.
            if machine.mayOpen, machine.earliestOpening <= now { problem = "a due opening is missing" }
            if machine.count(.retiring) > machine.members.count / 2 { problem = "too many are replaced" }
        }
    }

    @Test(arguments: UInt64(1)...40)
    func randomEventsNeverBreakThePoolsLimits(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var limits = PoolLimits()
        limits.minimum = Int.random(in: 1...4, using: &random)
        limits.maximum = limits.minimum + Int.random(in: 0...5, using: &random)
        limits.openInterval = [0, 50_000_000].randomElement(using: &random)!
        limits.growthInterval = [0, 300_000_000].randomElement(using: &random)!
        limits.growthPatience = 20_000_000
        limits.idleTimeout = 2_000_000_000
        limits.maximumAge = [0, 5_000_000_000].randomElement(using: &random)!
        limits.leastAgeToReplace = 500_000_000
        limits.circuitServerErrors = 20
        limits.circuitErrorTime = 50_000_000
        limits.progressTimeout = [100_000_000, 1_000_000_000].randomElement(using: &random)!
        limits.stopInitial = 100_000_000
        limits.stopMaximum = 400_000_000
        var world = World(limits, seed: seed)
        for step in 0..<4000 {
            world.now += UInt64.random(in: 0...40_000_000, using: &random)
            // The timer runs before each event.
            world.machine.maintain(now: world.now)
            world.take()
            applyRandomEvent(to: &world, &random)
            world.take()
            if let problem = world.problem {
                Issue.record("seed \(seed) step \(step): \(problem)")
                return
            }
        }
        // Without further faults the pool returns to its minimum size.
        for _ in 0..<2000 {
            world.now += 50_000_000
            for number in world.machine.numbers(.draining) { end(number, .ours, &world) }
            for number in world.machine.numbers(.opening) { open(number, &world) }
            for number in world.machine.numbers(.active) { answer(number, isAccepted: true, &world) }
            world.machine.answers(good: 1, serverErrors: 0, now: world.now)
            let views = world.machine.numbers(.active) + world.machine.numbers(.reserve)
            world.machine.tick(
                now: world.now, demand: .init(),
                views: views.map { .init(number: $0, inFlight: 0, limit: 100) })
            world.take()
        }
        #expect(world.problem == nil, "seed \(seed)")
        #expect(world.machine.circuit == .closed, "seed \(seed)")
        #expect(world.machine.live == limits.minimum, "seed \(seed)")
    }

    private func open(_ number: UInt32, _ world: inout World) {
        world.record.opened(number, now: world.now)
        world.machine.opened(number, now: world.now)
    }

    private func end(_ number: UInt32, _ end: PoolStateMachine.End, _ world: inout World) {
        world.record.ended(
            number, end, wasOpening: world.machine.members[Int(number)].phase == .opening,
            isCircuitOpen: world.machine.isOpenUntil != nil, now: world.now)
        world.machine.ended(number, end, now: world.now)
    }

    private func answer(_ number: UInt32, isAccepted: Bool, _ world: inout World) {
        if isAccepted { world.record.accepted(number) }
        world.machine.answered(number, isAccepted: isAccepted)
    }

    private func applyRandomEvent(to world: inout World, _ random: inout SeededGenerator) {
        let numbers = world.machine.members.indices
        let number = UInt32(numbers.randomElement(using: &random)!)
        let now = world.now
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<6:
            if world.machine.members[Int(number)].phase == .opening { open(number, &world) }
        case 6: world.machine.ending(number, now: now)
        case 7..<9:
            guard world.machine.members[Int(number)].phase != .free else { return }
            let end: PoolStateMachine.End = [.ours, .failed, .failed, .settings].randomElement(
                using: &random)!
            self.end(number, end, &world)
        case 9:
            guard [.active, .retiring, .draining].contains(world.machine.members[Int(number)].phase) else {
                return
            }
            answer(number, isAccepted: Int.random(in: 0..<4, using: &random) > 0, &world)
            world.machine.maintain(now: now)
            // Openings that are due are taken before the circuit may open.
            world.take()
            world.machine.answers(
                good: Int.random(in: 0...2, using: &random),
                serverErrors: Int.random(in: 0...9, using: &random),
                now: now)
            if Int.random(in: 0..<4, using: &random) == 0 { world.machine.probeUnanswered(now: now) }
        case 10:
            if [.active, .reserve, .retiring].contains(world.machine.members[Int(number)].phase) {
                world.record.replacedNow(number, now: now)
            }
            world.machine.replaceNow(number, now: now)
        case 11: world.machine.replaceWhenSuccessorIsOpen(number, now: now)
        case 12:
            if Int.random(in: 0..<20, using: &random) == 0 { _ = world.machine.stop(now: now) }
        case 13: world.machine.replaceIfAllowed(number, now: now)
        default:
            let open = world.machine.numbers(.active) + world.machine.numbers(.reserve)
            let isBusy = Bool.random(using: &random)
            // A stalled pool is limited by windows or sockets instead of streams.
            let isStalled = Int.random(in: 0..<3, using: &random) == 0
            let views = open.map { number in
                PoolStateMachine.View(
                    number: number,
                    inFlight: isStalled
                        ? Int.random(in: 0...2, using: &random)
                        : isBusy ? 100 : Int.random(in: 0...100, using: &random),
                    limit: 100,
                    isAuthenticated: Int.random(in: 0..<5, using: &random) > 0,
                    isWindowFull: isStalled && Int.random(in: 0..<5, using: &random) > 0,
                    isBlocked: isStalled && Bool.random(using: &random),
                    isNearlyExhausted: Int.random(in: 0..<50, using: &random) == 0)
            }
            world.isShort =
                isBusy
                || views.contains {
                    ($0.isWindowFull || $0.isBlocked)
                        && world.machine.members[Int($0.number)].phase == .active
                }
            world.machine.tick(
                now: now,
                demand: .init(
                    isWaiting: isBusy, age: UInt64.random(in: 0...900_000_000, using: &random),
                    peakInFlight: views.reduce(0) { $0 + $1.inFlight }), views: views)
        }
    }
}

extension PoolStateMachine {
    /// Number of connections short of the target.
    fileprivate var missing: Int { max(0, target - live) }
}
