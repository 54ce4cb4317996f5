import Testing

@testable import HTTP2

/// Tests the pool's rules for load combined with replacement and failure. Times are in milliseconds.
@Suite struct PoolStateMachineLoadTests {
    typealias Machine = PoolStateMachine

    private let ms: UInt64 = 1_000_000

    /// A machine with `open` connections, the last `reserves` of which are in reserve. All of them count for
    /// the target.
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
            machine.tickAnswering(
                now: now, demand: .init(isWaiting: true),
                views: machine.numbers(.active).map { view($0, 100) }
            )
        }
        for second in UInt64(1)..<60 where machine.count(.reserve) < reserves {
            // A load that fits into the connections that should stay active.
            let peak = (open - reserves) * 50
            machine.tickAnswering(
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

    @Test func reserveReplacesALostConnection() {
        var machine = machine(open: 3, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let lost = machine.numbers(.active)[0]
        machine.ended(lost, .failed, now: later)
        #expect(machine.take() == [.report(reserve), .changed(.recalled(connection: reserve))])
        #expect(machine.target == 2)
        #expect(machine.count(.active) == 2)
    }

    @Test func reserveReplacesAConnectionAfterGoAway() {
        var machine = machine(open: 2, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let ending = machine.numbers(.active)[0]
        machine.ending(ending, now: later)
        #expect(machine.take() == [.report(reserve), .changed(.recalled(connection: reserve))])
        machine.ended(ending, .ours, now: later)
        #expect(machine.take() == [])
        #expect(machine.target == 1)
    }

    @Test func lostReserveIsNotReplaced() {
        var machine = machine(open: 2, reserves: 1)
        machine.ended(machine.numbers(.reserve)[0], .failed, now: later)
        #expect(machine.take() == [])
        #expect(machine.target == 1)
    }

    @Test func exhaustedReserveIsDrainedWithoutASuccessor() {
        var machine = machine(open: 2, reserves: 1) { $0.maximumAge = 200_000 * 1_000_000 }
        let reserve = machine.numbers(.reserve)[0]
        var exhausted = view(reserve, 0)
        exhausted.isNearlyExhausted = true
        machine.tickAnswering(now: later, demand: .init(), views: [exhausted])
        #expect(machine.take() == [.changed(.rotates(connection: reserve, .streamIDs)), .drain(reserve)])
        #expect(machine.target == 1)
    }

    @Test func reserveBecomesTheSuccessorOfAReplacedConnection() {
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

    @Test func recalledSuccessorIsNotReservedInTheSameTick() {
        var machine = machine(open: 4, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        let worn = machine.numbers(.active)[0]
        machine.load = LoadWindow(length: 1)
        let views = (machine.numbers(.active) + machine.numbers(.reserve)).map { number in
            var view = view(number, 1)
            view.isNearlyExhausted = number == worn
            return view
        }
        // The window of one nanosecond ends after four notes of a load for one connection.
        for look in UInt64(0)..<4 { machine.load.note(1, now: later + look) }
        machine.tickAnswering(now: later + 4, demand: .init(peakInFlight: 1), views: views)
        #expect(
            machine.take() == [
                .changed(.rotates(connection: worn, .streamIDs)), .report(reserve),
                .changed(.recalled(connection: reserve)), .drain(worn),
            ])
    }

    // MARK: Replacement

    @Test func retiringConnectionServesUntilTargetIsMetWithoutIt() {
        var machine = machine(open: 2) {
            $0.minimum = 2
            $0.openInterval = 0
        }
        machine.replaceWhenSuccessorIsOpen(0, now: later)
        #expect(machine.take() == [.changed(.rotates(connection: 0, .doubt)), .open(2)])
        // The other active connection is lost, and the first successor to open replaces that connection.
        machine.ended(1, .failed, now: later)
        #expect(machine.takeOpening() == 1)
        machine.opened(2, now: later)
        #expect(machine.take() == [.report(2)])
        machine.opened(1, now: later)
        #expect(machine.take() == [.report(1), .drain(0)])
    }

    @Test func retiringConnectionDrainsWithoutSuccessorWhenThePoolShrinks() {
        var machine = machine(open: 2) { $0.stopInitial = 10 * later }
        // The stop prevents a successor from opening.
        _ = machine.stop(now: 0)
        machine.replaceWhenSuccessorIsOpen(0, now: later)
        #expect(machine.take() == [.reportAll, .changed(.rotates(connection: 0, .doubt))])
        var now = later
        while machine.target == 2, now < 2 * later {
            now += 1000 * ms
            machine.tickAnswering(now: now, demand: .init(), views: [view(0, 0), view(1, 0)])
        }
        #expect(machine.take() == [.changed(.shrank(to: 1)), .drain(0)])
    }

    @Test func retiringConnectionsDoNotCountTowardsTheMaximum() {
        var machine = machine(open: 4)
        for number in UInt32(0)..<4 { machine.replaceWhenSuccessorIsOpen(number, now: later) }
        #expect(machine.count(.retiring) == 4)
        #expect(machine.live == 4, "four opening successors")
        #expect(machine.members.count == 10)
        while let number = machine.takeOpening() { machine.opened(number, now: later) }
        #expect(machine.count(.draining) == 4)
        #expect(machine.count(.active) == 4)
    }

    // MARK: Growth

    @Test func blockedConnectionsGrowThePoolWhenRequestsAge() {
        var machine = machine(open: 1)
        var blocked = view(0, 5)
        blocked.isBlocked = true
        machine.tickAnswering(now: later, demand: .init(isWaiting: true, age: 499 * ms), views: [blocked])
        #expect(machine.take() == [])
        machine.tickAnswering(now: later, demand: .init(isWaiting: true, age: 500 * ms), views: [blocked])
        #expect(machine.take() == [.changed(.grew(to: 2, .queueAge)), .open(1)])
    }

    @Test func oldRequestsDoNotGrowAPoolWithRoom() {
        var machine = machine(open: 2)
        machine.tickAnswering(
            now: later, demand: .init(isWaiting: true, age: 60_000 * ms), views: [view(0, 100), view(1, 10)])
        #expect(machine.take() == [])
    }

    @Test func poolMayGrowUnlessFullyActiveOrStopped() {
        #expect(machine(open: 3).mayGrow)
        #expect(!machine(open: 4).mayGrow)
        #expect(machine(open: 4, reserves: 1).mayGrow)
        var stopped = machine(open: 1)
        _ = stopped.stop(now: 0)
        #expect(!stopped.mayGrow)
    }

    /// Load limited by the send window has few requests in flight, but needs every connection.
    @Test func fullWindowsRecallReserveThenGrowPool() {
        var machine = machine(open: 3, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        var now = later
        for _ in 0..<2 {
            now += 100 * ms
            let views = (machine.numbers(.active) + machine.numbers(.reserve)).map {
                var view = view($0, 5)
                view.isWindowFull = true
                return view
            }
            machine.tickAnswering(now: now, demand: .init(isWaiting: true, peakInFlight: 15), views: views)
        }
        #expect(
            machine.take() == [
                .report(reserve), .changed(.recalled(connection: reserve)),
                .changed(.grew(to: 4, .connectionsFull)), .open(3),
            ])
    }

    @Test func nothingIsReservedWithinIdleTimeoutOfRecall() {
        var machine = machine(open: 2, reserves: 1)
        let reserve = machine.numbers(.reserve)[0]
        machine.tickAnswering(
            now: later, demand: .init(isWaiting: true, peakInFlight: 2), views: [view(0, 100), view(1, 100)])
        #expect(machine.take() == [.report(reserve), .changed(.recalled(connection: reserve))])
        let calm = PoolStateMachine.Demand(peakInFlight: 2)
        // Clears the peak of a hundred, so that only the recent recall prevents a reserve.
        machine.load = LoadWindow(length: 1)
        for time in stride(from: UInt64(1000), to: 8000, by: 1000) {
            machine.tickAnswering(now: later + time * ms, demand: calm, views: [view(0, 1), view(1, 1)])
        }
        #expect(machine.take() == [])
        machine.tickAnswering(now: later + 8000 * ms, demand: calm, views: [view(0, 1), view(1, 1)])
        #expect(machine.take() == [.report(0), .changed(.reserved(connection: 0))])
    }

    @Test(arguments: [Stall.waiting, .window, .blocked])
    func stalledLoadKeepsConnectionsFromReserve(_ stall: Stall) {
        var machine = machine(open: 2)
        var stalled = view(0, 1)
        stalled.isWindowFull = stall == .window
        stalled.isBlocked = stall == .blocked
        for second in UInt64(1)..<60 {
            machine.tickAnswering(
                now: later + second * 1000 * ms, demand: .init(isWaiting: stall == .waiting, peakInFlight: 2),
                views: [stalled, view(1, 1)])
        }
        #expect(machine.take() == [])
        // Without the stall a connection is reserved at once.
        machine.tickAnswering(
            now: later + 60_000 * ms, demand: .init(peakInFlight: 2), views: [view(0, 1), view(1, 1)])
        #expect(machine.take() == [.report(0), .changed(.reserved(connection: 0))])
    }

    enum Stall: String, CustomTestStringConvertible {
        case waiting = "requests wait", window = "a window is full", blocked = "a socket is blocked"
        var testDescription: String { rawValue }
    }

    @Test func loadWindowForgetsAPeakAfterItsLength() {
        var window = LoadWindow(length: 100)
        window.note(50, now: 0)
        window.note(7, now: 20)
        for now in stride(from: UInt64(25), to: 100, by: 25) {
            window.note(3, now: now)
            #expect(window.peak == nil, "no peak before the window is over")
        }
        window.note(3, now: 100)
        #expect(window.peak == 50)
        window.note(3, now: 125)
        #expect(window.peak == 3, "the peak of 50 is older than the window")
        window.note(90, now: 130)
        #expect(window.peak == 90, "a higher peak counts at once")
    }

    @Test func failingConnectionIsAbandonedWhenNoLongerNeeded() {
        var machine = machine(open: 1) { $0.reconnectInitial = 60_000_000_000 }
        machine.tickAnswering(now: later, demand: .init(isWaiting: true), views: [view(0, 100)])
        #expect(machine.take() == [.changed(.grew(to: 2, .connectionsFull)), .open(1)])
        machine.ended(1, .failed, now: later)
        var now = later
        // The load still needs the connection, so the target stays.
        for _ in 0..<20 {
            now += 1000 * ms
            machine.tickAnswering(now: now, demand: .init(peakInFlight: 51), views: [view(0, 1)])
        }
        #expect(machine.target == 2)
        while let number = machine.takeOpening() { machine.ended(number, .failed, now: now) }
        _ = machine.take()
        for _ in 0..<20 {
            now += 1000 * ms
            machine.tickAnswering(now: now, demand: .init(peakInFlight: 50), views: [view(0, 1)])
            while let number = machine.takeOpening() { machine.ended(number, .failed, now: now) }
        }
        #expect(machine.take() == [.changed(.shrank(to: 1))])
    }
}
