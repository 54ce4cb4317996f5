import Testing

@testable import HTTP2

/// The pool's rules where load, replacement and failure meet. Times in milliseconds.
@Suite struct PoolStateMachineLoadTests {
    typealias Machine = PoolStateMachine

    private let ms: UInt64 = 1_000_000

    /// Connections 0..<open are active; of `reserves` the last ones are in reserve, with a target of all.
    private func machine(
        open: Int, reserves: Int = 0, _ change: (inout PoolLimits) -> Void = { _ in }
    ) -> Machine {
        var limits = PoolLimits()
        limits.minimum = 1
        limits.maximum = 4
        limits.idleTimeout = 8_000 * ms
        limits.openInterval = 0
        limits.growthInterval = 0
        limits.growthPatience = 0
        change(&limits)
        var machine = Machine(limits, seed: 1)
        machine.maintain(now: 0)
        var now: UInt64 = 0
        for _ in 0..<10 {
            while let number = machine.takeOpening() {
                machine.opened(number, now: now)
                machine.answered(number)
            }
            guard machine.count(.active) < open else { break }
            now += 10 * ms
            machine.tick(
                now: now, demand: .init(isWaiting: true),
                views: machine.numbers(.active).map { view($0, 100) }
            )
        }
        for second in UInt64(1)..<60 where machine.count(.reserve) < reserves {
            // A load that fits into as many as are to be left.
            let peak = (open - reserves) * 50
            machine.tick(
                now: now + second * 1000 * ms, demand: .init(peakInFlight: peak),
                views: (machine.numbers(.active) + machine.numbers(.reserve)).map { view($0, 1) })
        }
        _ = machine.take()
        return machine
    }

    private func view(_ number: UInt32, _ inFlight: Int, limit: Int = 100) -> Machine.View {
        Machine.View(number: number, inFlight: inFlight, limit: limit)
    }

    private let later: UInt64 = 100_000_000_000

    // MARK: Reserves

    @Test func aReserveFillsThePlaceOfALostConnection() {
        var machine = machine(open: 3, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let lost = machine.numbers(.active)[0]
        machine.ended(lost, .failed, now: later)
        #expect(machine.take() == [.report(reserve), .changed(.recalled(connection: reserve))])
        #expect(machine.target == 2)
        #expect(machine.count(.active) == 2)
    }

    @Test func aReserveFillsThePlaceOfOneThatTheServerEnds() {
        var machine = machine(open: 2, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let ending = machine.numbers(.active)[0]
        machine.ending(ending, now: later)
        #expect(machine.take() == [.report(reserve), .changed(.recalled(connection: reserve))])
        machine.ended(ending, .ours, now: later)
        #expect(machine.take() == [])
        #expect(machine.target == 1)
    }

    @Test func aLostReserveIsNotReplaced() {
        var machine = machine(open: 2, reserves: 1)
        machine.ended(machine.numbers(.reserve)[0], .failed, now: later)
        #expect(machine.take() == [])
        #expect(machine.target == 1)
    }

    @Test func aReserveThatIsTooOldEndsWithoutASuccessor() {
        var machine = machine(open: 2, reserves: 1) { $0.maximumAge = 200_000 * 1_000_000 }
        let reserve = machine.numbers(.reserve)[0]
        var exhausted = view(reserve, 0)
        exhausted.isNearlyExhausted = true
        machine.tick(now: later, demand: .init(), views: [exhausted])
        #expect(machine.take() == [.changed(.rotates(connection: reserve, .streamIDs)), .drain(reserve)])
        #expect(machine.target == 1)
    }

    @Test func aReserveIsTheSuccessorOfOneThatIsReplaced() {
        var machine = machine(open: 2, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let worn = machine.numbers(.active)[0]
        machine.replaceWhenSuccessorIsOpen(worn, now: later)
        #expect(
            machine.take() == [
                .changed(.rotates(connection: worn, .doubt)), .report(reserve),
                .changed(.recalled(connection: reserve)), .drain(worn),
            ])
    }

    // MARK: Replacement

    @Test func theOldOneServesUntilThereAreEnoughWithoutIt() {
        var machine = machine(open: 2) {
            $0.minimum = 2
            $0.openInterval = 0
        }
        machine.replaceWhenSuccessorIsOpen(0, now: later)
        #expect(machine.take() == [.changed(.rotates(connection: 0, .doubt)), .open(2)])
        // The other one is lost meanwhile: the next that opens takes its place.
        machine.ended(1, .failed, now: later)
        #expect(machine.takeOpening() == 1)
        machine.opened(2, now: later)
        #expect(machine.take() == [.report(2)])
        machine.opened(1, now: later)
        #expect(machine.take() == [.report(1), .drain(0)])
    }

    @Test func theOldOneGoesWithoutASuccessorWhenNoneIsNeeded() {
        var machine = machine(open: 2)
        // No successor opens for a long time.
        machine.stop(until: 10 * later)
        machine.replaceWhenSuccessorIsOpen(0, now: later)
        #expect(machine.take() == [.changed(.rotates(connection: 0, .doubt))])
        var now = later
        while machine.target == 2, now < 2 * later {
            now += 1000 * ms
            machine.tick(now: now, demand: .init(), views: [view(0, 0), view(1, 0)])
        }
        #expect(machine.take() == [.changed(.shrank(to: 1)), .drain(0)])
    }

    @Test func replacedOnesAreBeyondTheCapAndBounded() {
        var machine = machine(open: 4)
        for number in UInt32(0)..<4 { machine.replaceWhenSuccessorIsOpen(number, now: later) }
        #expect(machine.count(.retiring) == 4)
        #expect(machine.live == 4, "the successors, opening")
        #expect(machine.members.count == 10)
        while let number = machine.takeOpening() { machine.opened(number, now: later) }
        #expect(machine.count(.draining) == 4)
        #expect(machine.count(.active) == 4)
    }

    // MARK: Growth

    @Test func blockedConnectionsMakeItGrowWhenRequestsGetOld() {
        var machine = machine(open: 1)
        var blocked = view(0, 5)
        blocked.isBlocked = true
        machine.tick(now: later, demand: .init(isWaiting: true, age: 499 * ms), views: [blocked])
        #expect(machine.take() == [])
        machine.tick(now: later, demand: .init(isWaiting: true, age: 500 * ms), views: [blocked])
        #expect(machine.take() == [.changed(.grew(to: 2, .queueAge)), .open(1)])
    }

    @Test func oldRequestsAreNoReasonWhileThereIsRoom() {
        var machine = machine(open: 2)
        machine.tick(
            now: later, demand: .init(isWaiting: true, age: 60_000 * ms), views: [view(0, 100), view(1, 10)])
        #expect(machine.take() == [])
    }

    @Test func atTheCapNobodyNeedsToWatchWhatWaits() {
        #expect(machine(open: 3).mayGrow)
        #expect(!machine(open: 4).mayGrow)
        #expect(machine(open: 4, reserves: 1).mayGrow)
        var stopped = machine(open: 1)
        stopped.stop(until: later)
        #expect(!stopped.mayGrow)
    }

    @Test func theLoadWindowForgetsAfterItsLength() {
        var window = LoadWindow(length: 100)
        window.note(50, now: 0)
        window.note(7, now: 20)
        for now in stride(from: UInt64(25), to: 100, by: 25) {
            window.note(3, now: now)
            #expect(window.peak == nil, "not before the whole time is over")
        }
        window.note(3, now: 100)
        #expect(window.peak == 50)
        window.note(3, now: 125)
        #expect(window.peak == 3, "the fifty were a whole length ago")
        window.note(90, now: 130)
        #expect(window.peak == 90, "at once")
    }

    @Test func aConnectionThatCannotBeOpenedIsGivenUpWhenItIsNotNeeded() {
        var machine = machine(open: 1) { $0.reconnectInitial = 60_000_000_000 }
        machine.tick(now: later, demand: .init(isWaiting: true), views: [view(0, 100)])
        #expect(machine.take() == [.changed(.grew(to: 2, .connectionsFull)), .open(1)])
        machine.ended(1, .failed, now: later)
        var now = later
        // Needed still: the next attempt has its time.
        for _ in 0..<20 {
            now += 1000 * ms
            machine.tick(now: now, demand: .init(peakInFlight: 51), views: [view(0, 1)])
        }
        #expect(machine.target == 2)
        while let number = machine.takeOpening() { machine.ended(number, .failed, now: now) }
        _ = machine.take()
        for _ in 0..<20 {
            now += 1000 * ms
            machine.tick(now: now, demand: .init(peakInFlight: 50), views: [view(0, 1)])
            while let number = machine.takeOpening() { machine.ended(number, .failed, now: now) }
        }
        #expect(machine.take() == [.changed(.shrank(to: 1))])
    }

    // MARK: Failure

    @Test func theFirstAnswerEndsTheBackOff() {
        var machine = machine(open: 1) { $0.minimum = 2 }
        machine.ended(1, .failed, now: later)
        for _ in 0..<4 {
            guard let number = machine.takeOpening() else { break }
            machine.ended(number, .failed, now: max(later, machine.notBefore))
            machine.maintain(now: machine.notBefore)
        }
        #expect(machine.failures == 4)
        #expect(machine.notBefore > 0)
        machine.answered(0)
        #expect(machine.failures == 0)
        #expect(machine.notBefore == 0)
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
            windows.append(UInt64(machine.failures))
            machine.tick(now: machine.notBefore, demand: .init(), views: [view(0, 0)])
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
        machine.tick(now: machine.notBefore, demand: .init(), views: [view(0, 0), view(1, 0)])
        #expect(machine.probe == 0)
        _ = machine.take()
        machine.ended(0, .failed, now: machine.notBefore)
        #expect(machine.take() == [.reportAll])
        #expect(machine.probe == 1)
        // With the last one gone, one is opened.
        machine.ended(1, .failed, now: machine.notBefore)
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
        machine.tick(now: machine.notBefore, demand: .init(), views: [view(0, 1)])
        _ = machine.take()
        machine.probeUnanswered(now: machine.notBefore)
        #expect(machine.circuit == .open(until: machine.notBefore, .serverErrors))
        #expect(machine.failures == 2)
    }

    @Test func aHalfOpenCircuitDoesNotKeepTheTimerBusy() {
        var machine = machine(open: 2) {
            $0.minimum = 3
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
            $0.openInterval = 50_000_000
        }
        machine.answers(good: 0, serverErrors: 1, now: later)
        let now = machine.notBefore
        machine.tick(now: now, demand: .init(), views: [view(0, 0)])
        for number in machine.numbers(.active).dropFirst() { machine.ended(number, .ours, now: now) }
        #expect(machine.live < machine.target)
        #expect(machine.nextTick(now: now + 60 * ms, isWaiting: false) == now + 1060 * ms)
    }
}
