import Testing

@testable import HTTP2

/// Tests each of the pool's rules by a script of events and exact actions. Times are in milliseconds.
@Suite struct PoolStateMachineTests {
    typealias Machine = PoolStateMachine

    /// A machine of one to four connections. Growth takes 100 ms, with 2 s in between; the idle timeout is 10
    /// s.
    private func machine(_ change: (inout PoolLimits) -> Void = { _ in }) -> Machine {
        var limits = PoolLimits()
        limits.minimum = 1
        limits.maximum = 4
        limits.idleTimeout = 10_000 * ms
        change(&limits)
        return Machine(limits, seed: 1)
    }

    private let ms: UInt64 = 1_000_000

    private func view(_ number: UInt32, _ inFlight: Int, limit: Int = 100) -> Machine.View {
        Machine.View(number: number, inFlight: inFlight, limit: limit)
    }

    /// Opens connections until the machine asks for no more.
    private func openAll(_ machine: inout Machine, at now: UInt64) {
        machine.maintain(now: now)
        while let number = machine.takeOpening() { machine.opened(number, now: now) }
        _ = machine.take()
    }

    /// Reports full connections and waiting requests from `start` on, so that the machine grows by one.
    private func growOnce(_ machine: inout Machine, at start: UInt64) {
        let views = machine.numbers(.active).map { view($0, 100) }
        machine.tickAnswering(now: start, demand: .init(isWaiting: true, peakInFlight: 100), views: views)
        machine.tickAnswering(
            now: start + 100 * ms, demand: .init(isWaiting: true, peakInFlight: 100), views: views)
        openAll(&machine, at: start + 100 * ms)
    }

    // MARK: To the minimum

    @Test func minimumOpensOneConnectionPerInterval() {
        var machine = machine { $0.minimum = 3 }
        machine.maintain(now: 0)
        #expect(machine.take() == [.open(0)])
        machine.maintain(now: 199 * ms)
        #expect(machine.take() == [])
        #expect(machine.nextTick(now: 199 * ms, isWaiting: false) == 200 * ms)
        machine.maintain(now: 200 * ms)
        machine.maintain(now: 400 * ms)
        machine.maintain(now: 600 * ms)
        #expect(machine.take() == [.open(1), .open(2)])
    }

    @Test func minimumOpensAtOnceWithoutAnInterval() {
        var machine = machine {
            $0.minimum = 3
            $0.openInterval = 0
        }
        machine.maintain(now: 5)
        #expect(machine.take() == [.open(0), .open(1), .open(2)])
    }

    @Test func lostConnectionIsReplacedAtOnce() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.ended(0, .failed, now: 5000 * ms)
        #expect(machine.take() == [.open(0)])
    }

    // MARK: Growth

    @Test func fullPoolGrowsAfterPatienceAndAtIntervals() {
        var machine = machine()
        openAll(&machine, at: 0)
        let full = Machine.Demand(isWaiting: true)
        machine.tickAnswering(now: 1000 * ms, demand: full, views: [view(0, 90)])
        machine.tickAnswering(now: 1099 * ms, demand: full, views: [view(0, 90)])
        #expect(machine.take() == [])
        machine.tickAnswering(now: 1100 * ms, demand: full, views: [view(0, 90)])
        #expect(machine.take() == [.changed(.grew(to: 2, .connectionsFull)), .open(1)])
        machine.opened(1, now: 1200 * ms)
        _ = machine.take()
        // The next growth waits for 2 s, however full the connections are.
        for time in stride(from: UInt64(1200), to: 3100, by: 100) {
            machine.tickAnswering(now: time * ms, demand: full, views: [view(0, 100), view(1, 100)])
        }
        #expect(machine.take() == [])
        machine.tickAnswering(now: 3100 * ms, demand: full, views: [view(0, 100), view(1, 100)])
        #expect(machine.take() == [.changed(.grew(to: 3, .connectionsFull)), .open(2)])
    }

    @Test func roomOnAConnectionRestartsGrowthPatience() {
        var machine = machine()
        openAll(&machine, at: 0)
        let waiting = Machine.Demand(isWaiting: true)
        machine.tickAnswering(now: 1000 * ms, demand: waiting, views: [view(0, 100)])
        machine.tickAnswering(now: 1060 * ms, demand: waiting, views: [view(0, 89)])
        machine.tickAnswering(now: 1120 * ms, demand: waiting, views: [view(0, 100)])
        machine.tickAnswering(now: 1219 * ms, demand: waiting, views: [view(0, 100)])
        #expect(machine.take() == [])
        // Full connections alone don't grow the pool.
        machine.tickAnswering(now: 1400 * ms, demand: .init(), views: [view(0, 100)])
        #expect(machine.take() == [])
    }

    @Test func oldRequestsGrowThePoolBeforePatienceEnds() {
        var machine = machine { $0.growthPatience = 10_000 * ms }
        openAll(&machine, at: 0)
        let old = Machine.Demand(isWaiting: true, age: 500 * ms)
        machine.tickAnswering(now: 1000 * ms, demand: old, views: [view(0, 100)])
        #expect(machine.take() == [.changed(.grew(to: 2, .queueAge)), .open(1)])
    }

    @Test func fullSendWindowCountsAsAFullConnection() {
        var machine = machine { $0.growthPatience = 0 }
        openAll(&machine, at: 0)
        var stuck = view(0, 3)
        stuck.isWindowFull = true
        machine.tickAnswering(now: 1000 * ms, demand: .init(isWaiting: true), views: [stuck])
        #expect(machine.take() == [.changed(.grew(to: 2, .connectionsFull)), .open(1)])
    }

    @Test func unauthenticatedConnectionDoesNotGrowThePool() {
        var machine = machine()
        openAll(&machine, at: 0)
        var first = view(0, 1, limit: 1)
        first.isAuthenticated = false
        for time in stride(from: UInt64(1000), to: 9000, by: 100) {
            machine.tickAnswering(
                now: time * ms, demand: .init(isWaiting: true, age: time * ms), views: [first])
        }
        #expect(machine.take() == [])
    }

    @Test func growthStopsAtTheMaximum() {
        var machine = machine { $0.growthInterval = 0 }
        openAll(&machine, at: 0)
        for round in 0..<20 { growOnce(&machine, at: UInt64(1000 * round) * ms) }
        #expect(machine.count(.active) == 4)
        #expect(machine.live == 4)
    }

    // MARK: Shrinking

    @Test func idleConnectionIsReservedAndThenClosed() {
        var machine = machine()
        openAll(&machine, at: 0)
        growOnce(&machine, at: 1000 * ms)
        #expect(machine.count(.active) == 2)
        let calm = Machine.Demand(peakInFlight: 40)
        var now: UInt64 = 2000
        // Reserving waits for a whole window of low load.
        while now < 10_000 {
            machine.tickAnswering(now: now * ms, demand: calm, views: [view(0, 30), view(1, 10)])
            now += 1000
        }
        #expect(machine.take() == [])
        while machine.count(.reserve) == 0, now < 30_000 {
            machine.tickAnswering(now: now * ms, demand: calm, views: [view(0, 30), view(1, 10)])
            now += 1000
        }
        #expect(machine.take() == [.report(1), .changed(.reserved(connection: 1))])
        // A reserve in use stays. A reserve that is idle for half of the timeout closes.
        machine.tickAnswering(now: now * ms, demand: calm, views: [view(0, 30), view(1, 1)])
        machine.tickAnswering(now: (now + 1000) * ms, demand: calm, views: [view(0, 30), view(1, 0)])
        machine.tickAnswering(now: (now + 5999) * ms, demand: calm, views: [view(0, 30), view(1, 0)])
        #expect(machine.take() == [])
        machine.tickAnswering(now: (now + 6000) * ms, demand: calm, views: [view(0, 30), view(1, 0)])
        #expect(machine.take() == [.drain(1), .changed(.shrank(to: 1))])
        machine.ended(1, .ours, now: (now + 6100) * ms)
        machine.tickAnswering(now: (now + 60_000) * ms, demand: calm, views: [view(0, 0)])
        #expect(machine.take() == [])
        #expect(machine.count(.active) == 1)
    }

    @Test func loadRecallsAReserveInsteadOfOpening() {
        var machine = machine()
        openAll(&machine, at: 0)
        growOnce(&machine, at: 1000 * ms)
        var now: UInt64 = 2000
        while machine.count(.reserve) == 0, now < 30_000 {
            machine.tickAnswering(
                now: now * ms, demand: .init(peakInFlight: 1), views: [view(0, 1), view(1, 0)])
            now += 1000
        }
        _ = machine.take()
        machine.tickAnswering(
            now: now * ms, demand: .init(isWaiting: true), views: [view(0, 100), view(1, 100)])
        machine.tickAnswering(
            now: (now + 100) * ms, demand: .init(isWaiting: true), views: [view(0, 100), view(1, 100)])
        #expect(machine.take() == [.report(1), .changed(.recalled(connection: 1))])
    }

    @Test func repeatedPeaksKeepConnectionsFromReserve() {
        var machine = machine()
        openAll(&machine, at: 0)
        growOnce(&machine, at: 1000 * ms)
        for second in UInt64(2)..<60 {
            // A burst of 60 in each window exceeds half of a connection's streams.
            machine.tickAnswering(
                now: second * 1000 * ms, demand: .init(peakInFlight: second % 4 == 0 ? 60 : 1),
                views: [view(0, 0), view(1, 0)])
        }
        #expect(machine.take() == [])
    }

    // MARK: Replacing

    @Test func ageRotationOpensTheSuccessorFirst() {
        var machine = machine { $0.maximumAge = 100_000 * ms }
        openAll(&machine, at: 0)
        machine.tickAnswering(now: 89_000 * ms, demand: .init(), views: [view(0, 5)])
        #expect(machine.take() == [])
        machine.tickAnswering(now: 111_000 * ms, demand: .init(), views: [view(0, 5)])
        #expect(machine.take() == [.changed(.rotates(connection: 0, .age)), .open(1)])
        machine.opened(1, now: 111_100 * ms)
        #expect(machine.take() == [.report(1), .drain(0)])
        machine.ended(0, .ours, now: 112_000 * ms)
        #expect(machine.take() == [])
    }

    @Test func failedSuccessorIsRetriedWhileTheOldConnectionServes() {
        var machine = machine { $0.maximumAge = 100_000 * ms }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.tickAnswering(now: 120_000 * ms, demand: .init(), views: [view(0, 5)])
        #expect(machine.takeOpening() == 1)
        machine.ended(1, .failed, now: 121_000 * ms)
        #expect(machine.count(.retiring) == 1)
        machine.tickAnswering(now: 130_000 * ms, demand: .init(), views: [view(0, 5)])
        #expect(machine.takeOpening() == 1)
    }

    @Test func nearlyExhaustedStreamIDsRotateTheConnection() {
        var machine = machine()
        openAll(&machine, at: 0)
        var old = view(0, 5)
        old.isNearlyExhausted = true
        machine.tickAnswering(now: 1000 * ms, demand: .init(), views: [old])
        #expect(machine.take() == [.changed(.rotates(connection: 0, .streamIDs)), .open(1)])
    }

    @Test func youngConnectionIsNotReplacedForDoubt() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.replaceWhenSuccessorIsOpen(0, now: 29_999 * ms)
        #expect(machine.take() == [])
        machine.replaceWhenSuccessorIsOpen(0, now: 30_000 * ms)
        #expect(machine.take() == [.changed(.rotates(connection: 0, .doubt)), .open(1)])
    }

    @Test func replaceNowDrainsAndOpensASuccessorAtOnce() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.replaceNow(0, now: 1000 * ms)
        #expect(machine.take() == [.drain(0), .open(1)])
        machine.replaceNow(0, now: 1000 * ms)
        #expect(machine.take() == [])
    }

    @Test func goAwayOpensASuccessorAtOnce() {
        var machine = machine()
        openAll(&machine, at: 0)
        growOnce(&machine, at: 1000 * ms)
        machine.ending(1, now: 5000 * ms)
        #expect(machine.take() == [.open(2)])
        machine.ended(1, .ours, now: 6000 * ms)
        #expect(machine.take() == [])
    }
}

extension PoolStateMachine {
    mutating func take() -> [Action] {
        var taken: [Action] = []
        while let action = nextAction() { taken.append(action) }
        return taken
    }

    /// Removes and returns the first connection to open; the other actions stay.
    mutating func takeOpening() -> UInt32? {
        for (index, action) in actions.enumerated() {
            if case .open(let number) = action {
                actions.remove(at: index)
                return number
            }
        }
        return nil
    }

    /// End of the circuit's open time, in nanoseconds; nil when the circuit isn't open.
    var isOpenUntil: UInt64? {
        if case .open(let until, _) = circuit { until } else { nil }
    }

    func numbers(_ phase: Phase) -> [UInt32] {
        members.indices.filter { members[$0].phase == phase }.map { UInt32($0) }
    }
}
