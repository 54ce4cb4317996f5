import Testing

@testable import HTTP2

/// The pool's circuit, and pools that are stopped or closing. One script each; times in milliseconds.
@Suite struct PoolStateMachineCircuitTests: PoolStateMachineScript {
    private let ms: UInt64 = 1_000_000
    private let later: UInt64 = 100_000_000_000

    /// With as many connections that have answered.
    private func machine(open: Int, _ change: (inout PoolLimits) -> Void) -> Machine {
        var machine = machine {
            $0.openInterval = 0
            change(&$0)
        }
        var now: UInt64 = 0
        while machine.count(.active) < open {
            machine.maintain(now: now)
            while let number = machine.takeOpening() {
                machine.opened(number, now: now)
                machine.answered(number)
            }
            now += 50 * ms
        }
        _ = machine.take()
        return machine
    }

    @Test func failuresBackOffAndOpenTheCircuit() {
        var machine = machine()
        var now: UInt64 = 0
        machine.maintain(now: now)
        for failure in 1...5 {
            #expect(machine.takeOpening() == 0)
            machine.ended(0, .failed, now: now)
            guard failure < 5 else { break }
            #expect(machine.circuit == .closed)
            let wait = machine.notBefore - now
            #expect(wait <= 250 * ms << UInt64(failure - 1))
            now = max(machine.notBefore, now + 200 * ms)
            machine.tick(now: now, demand: .init(isWaiting: true), views: [])
        }
        let until = machine.notBefore
        #expect(machine.circuit == .open(until: until, .unreachable))
        #expect(machine.take() == [.changed(.circuit(.open(until: until, .unreachable))), .reportAll])
        // One probe, whose failure opens it again, and whose first answer closes it.
        now = max(until, now + 200 * ms)
        machine.tick(now: now, demand: .init(isWaiting: true), views: [])
        #expect(machine.circuit == .halfOpen(.unreachable))
        #expect(machine.takeOpening() == 0)
        machine.ended(0, .failed, now: now)
        #expect(machine.circuit == .open(until: machine.notBefore, .unreachable))
        now = max(machine.notBefore, now + 200 * ms)
        machine.tick(now: now, demand: .init(isWaiting: true), views: [])
        #expect(machine.takeOpening() == 0)
        machine.opened(0, now: now)
        #expect(machine.probe == 0)
        machine.answered(0)
        machine.answers(good: 1, serverErrors: 0, now: now)
        #expect(machine.circuit == .closed)
        #expect(machine.failures == 0)
    }

    @Test func aHalfOpenCircuitOpensOneConnectionOnly() {
        var machine = machine {
            $0.minimum = 3
            $0.openInterval = 0
            $0.circuitFailures = 3
        }
        machine.maintain(now: 0)
        for number in UInt32(0)..<3 { machine.ended(number, .failed, now: 10 * ms) }
        _ = machine.take()
        machine.tick(now: 60_000 * ms, demand: .init(), views: [])
        #expect(machine.take().filter { if case .open = $0 { true } else { false } } == [.open(0)])
        machine.opened(0, now: 60_001 * ms)
        machine.answered(0)
        machine.answers(good: 1, serverErrors: 0, now: 60_002 * ms)
        machine.maintain(now: 60_003 * ms)
        #expect(machine.count(.opening) == 2)
    }

    @Test func aSettingsProblemIsTriedSeldom() {
        var machine = machine()
        machine.maintain(now: 0)
        machine.ended(0, .settings, now: 0)
        #expect(machine.notBefore >= 15_000 * ms)
    }

    @Test func serverErrorsOpenTheCircuit() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 99, now: 0)
        machine.answers(good: 1, serverErrors: 50, now: 500 * ms)
        machine.answers(good: 0, serverErrors: 50, now: 1400 * ms)
        #expect(machine.circuit == .closed, "a hundred, but in less than a second")
        machine.answers(good: 0, serverErrors: 1, now: 1500 * ms)
        let first = machine.isOpenUntil ?? 0
        #expect(machine.circuit == .open(until: first, .serverErrors))
        // Answers to what was sent before do not close it.
        machine.answers(good: 3, serverErrors: 0, now: 1501 * ms)
        #expect(machine.circuit != .closed)
        machine.tick(now: first, demand: .init(isWaiting: true), views: [view(0, 0)])
        #expect(machine.circuit == .halfOpen(.serverErrors))
        machine.answers(good: 0, serverErrors: 1, now: first)
        let second = machine.isOpenUntil ?? 0
        #expect(machine.circuit == .open(until: second, .serverErrors))
        machine.tick(now: second, demand: .init(isWaiting: true), views: [view(0, 0)])
        machine.answers(good: 1, serverErrors: 0, now: second)
        #expect(machine.circuit == .closed)
    }

    @Test func aStoppedPoolOpensNothing() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.stop(until: 300_000 * ms)
        #expect(machine.take() == [.reportAll])
        machine.ending(0, now: 1000 * ms)
        machine.ended(0, .failed, now: 1000 * ms)
        machine.tick(now: 299_999 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.take() == [])
        machine.tick(now: 300_000 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.take() == [.reportAll, .open(0)])
    }

    @Test func aClosingPoolOpensNothing() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.close()
        machine.ended(0, .failed, now: 1000 * ms)
        machine.tick(now: 99_000 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.take() == [])
    }

    @Test func answersToOldRequestsDoNotShortenTheBackOff() {
        var machine = machine(open: 1) {
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        var windows: [UInt64] = []
        for _ in 0..<7 {
            machine.answers(good: 0, serverErrors: 1, now: later)
            machine.answers(good: 5, serverErrors: 0, now: later)
            windows.append(UInt64(machine.serverFailures))
            machine.tick(now: machine.isOpenUntil ?? 0, demand: .init(), views: [view(0, 0)])
        }
        #expect(windows == [1, 2, 3, 4, 5, 6, 7])
    }

    @Test func aProbeThatIsLostMakesWayForAnother() {
        var machine = machine(open: 2) {
            $0.minimum = 2
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        machine.answers(good: 0, serverErrors: 1, now: later)
        let now = machine.isOpenUntil ?? 0
        machine.tick(now: now, demand: .init(), views: [view(0, 0), view(1, 0)])
        #expect(machine.probe == 0)
        _ = machine.take()
        machine.ended(0, .failed, now: now)
        #expect(machine.take() == [.reportAll])
        #expect(machine.probe == 1)
        // With the last one gone, one is opened.
        machine.ended(1, .failed, now: now)
        #expect(machine.take() == [.reportAll, .open(0)])
    }

    @Test func aProbeWithoutAnAnswerIsAFailure() {
        var machine = machine(open: 1) {
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        machine.probeUnanswered(now: later)
        #expect(machine.circuit == .closed)
        machine.answers(good: 0, serverErrors: 1, now: later)
        let now = machine.isOpenUntil ?? 0
        machine.tick(now: now, demand: .init(), views: [view(0, 1)])
        _ = machine.take()
        machine.probeUnanswered(now: now)
        #expect((machine.isOpenUntil ?? 0) > now)
        #expect(machine.circuit == .open(until: machine.isOpenUntil ?? 0, .serverErrors))
        #expect(machine.serverFailures == 2)
    }

    @Test func aHalfOpenCircuitDoesNotKeepTheTimerBusy() {
        var machine = machine(open: 2) {
            $0.minimum = 3
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
            $0.openInterval = 50_000_000
        }
        machine.answers(good: 0, serverErrors: 1, now: later)
        let now = machine.isOpenUntil ?? 0
        machine.tick(now: now, demand: .init(), views: [view(0, 0)])
        for number in machine.numbers(.active).dropFirst() { machine.ended(number, .ours, now: now) }
        #expect(machine.live < machine.target)
        #expect(machine.nextTick(now: now + 60 * ms, isWaiting: false) == now + 1060 * ms)
    }
}
