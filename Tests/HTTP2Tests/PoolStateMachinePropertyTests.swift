import TestSupport
import Testing

@testable import HTTP2

/// Random lives of a pool: whatever happens, the limits hold.
@Suite struct PoolStateMachinePropertyTests {
    private struct World {
        var machine: PoolStateMachine
        var limits: PoolLimits
        var now: UInt64 = 1
        var lastOpening: UInt64?
        var circuit = PoolCircuit.closed
        var lastGrowth: UInt64?
        var problem: String?

        private static func isLegal(_ old: PoolCircuit, _ new: PoolCircuit) -> Bool {
            switch (old, new) {
            case (.closed, .open), (.open, .halfOpen), (.halfOpen, .open), (.halfOpen, .closed): true
            // One that was open all the time answers after all.
            case (.open(_, .unreachable), .closed): true
            default: false
            }
        }

        /// Carries the actions out and holds them against what they may be.
        mutating func take() {
            for action in machine.take() {
                switch action {
                case .open(let number):
                    if machine.members[Int(number)].phase != .opening {
                        problem = "\(number) opens in a wrong phase"
                    }
                    if let lastOpening, now < lastOpening + limits.openInterval { problem = "too soon" }
                    if now < machine.notBefore { problem = "opened during back-off" }
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
                case .reportAll, .changed: break
                }
            }
            if machine.live > limits.maximum { problem = "\(machine.live) connections" }
            if machine.target < limits.minimum || machine.target > limits.maximum {
                problem = "a target of \(machine.target)"
            }
            if machine.circuit != circuit { problem = "the circuit changed and nobody was told" }
            if machine.count(.active) + machine.count(.opening) + machine.missing < limits.minimum {
                problem = "\(machine.count(.active)) active, \(machine.missing) missing"
            }
            let serving = machine.count(.active) + machine.count(.reserve) + machine.count(.retiring)
            if machine.count(.retiring) > 0, serving > machine.target { problem = "one serves too long" }
            // Whatever happened: what is missing and may be opened is being opened.
            if machine.mayOpen, machine.earliestOpening <= now { problem = "something is missing" }
            if machine.count(.retiring) > machine.members.count / 2 { problem = "too many are replaced" }
        }
    }

    @Test(arguments: UInt64(1)...40)
    func theLimitsHold(seed: UInt64) {
        var random = SeededRandom(seed: seed)
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
        var world = World(
            machine: PoolStateMachine(limits, seed: seed), limits: limits)
        for step in 0..<4000 {
            world.now += UInt64.random(in: 0...40_000_000, using: &random)
            // The timer, before whatever happens.
            world.machine.maintain(now: world.now)
            world.take()
            happen(to: &world, &random)
            world.take()
            if let problem = world.problem {
                Issue.record("seed \(seed) step \(step): \(problem)")
                return
            }
        }
        // When all goes well again, there is a pool of the right size in the end.
        for _ in 0..<2000 {
            world.now += 50_000_000
            for number in world.machine.numbers(.draining) {
                world.machine.ended(number, .ours, now: world.now)
            }
            for number in world.machine.numbers(.opening) { world.machine.opened(number, now: world.now) }
            for number in world.machine.numbers(.active) { world.machine.answered(number) }
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

    private func happen(to world: inout World, _ random: inout SeededRandom) {
        let numbers = world.machine.members.indices
        let number = UInt32(numbers.randomElement(using: &random)!)
        let now = world.now
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<6:
            if world.machine.members[Int(number)].phase == .opening { world.machine.opened(number, now: now) }
        case 6: world.machine.ending(number, now: now)
        case 7..<9:
            guard world.machine.members[Int(number)].phase != .free else { return }
            let end: PoolStateMachine.End = [.ours, .failed, .failed, .settings].randomElement(
                using: &random)!
            world.machine.ended(number, end, now: now)
        case 9:
            guard world.machine.members[Int(number)].phase == .active else { return }
            world.machine.answered(number)
            world.machine.maintain(now: now)
            world.machine.answers(
                good: Int.random(in: 0...2, using: &random),
                serverErrors: Int.random(in: 0...9, using: &random),
                now: now)
            if Int.random(in: 0..<4, using: &random) == 0 { world.machine.probeUnanswered(now: now) }
        case 10: world.machine.replaceNow(number, now: now)
        case 11: world.machine.replaceWhenSuccessorIsOpen(number, now: now)
        case 12:
            if Int.random(in: 0..<20, using: &random) == 0 { world.machine.stop(until: now + 200_000_000) }
        default:
            let open = world.machine.numbers(.active) + world.machine.numbers(.reserve)
            let isBusy = Bool.random(using: &random)
            let views = open.map { number in
                PoolStateMachine.View(
                    number: number, inFlight: isBusy ? 100 : Int.random(in: 0...100, using: &random),
                    limit: 100,
                    isAuthenticated: Int.random(in: 0..<5, using: &random) > 0,
                    isNearlyExhausted: Int.random(in: 0..<50, using: &random) == 0)
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
    /// Connections that there should be, and are not yet.
    fileprivate var missing: Int { max(0, target - live) }
}
