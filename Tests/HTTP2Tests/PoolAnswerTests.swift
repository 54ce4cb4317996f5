import Testing

@testable import HTTP2

/// Connections that acknowledge PINGs and answer no request.
@Suite struct PoolAnswerTests: PoolStateMachineScript {
    private let ms: UInt64 = 1_000_000
    private let waiting = Machine.Demand(isWaiting: true, age: 60_000_000_000)

    /// A connection on which a request has begun at 1 s.
    private func begun(_ change: (inout PoolLimits) -> Void = { _ in }) -> Machine {
        var machine = machine(change)
        openAll(&machine, at: 0)
        tick(&machine, at: 1000)
        return machine
    }

    /// Ticks with as many requests in flight on each connection.
    private func tick(_ machine: inout Machine, at time: UInt64, inFlight: Int = 1) {
        let views = machine.members.indices.filter {
            [.active, .reserve, .retiring].contains(machine.members[$0].phase)
        }
        machine.tick(
            now: time * ms, demand: waiting, views: views.map { view(UInt32($0), inFlight, limit: 1) })
    }

    @Test func anotherConnectionIsOpenedBesideASuspect() {
        var machine = begun()
        tick(&machine, at: 3999)
        #expect(machine.take() == [])
        tick(&machine, at: 4000)
        #expect(machine.take() == [.report(0), .changed(.suspects(connection: 0))])
        tick(&machine, at: 4300)
        #expect(machine.take() == [.open(1)])
        machine.opened(1, now: 4400 * ms)
        machine.answered(1)
        #expect(machine.members[0].isSuspect, "it goes on waiting for its answer")
        // The suspect's answer makes the other superfluous.
        machine.answered(0)
        _ = machine.take()
        machine.tick(now: 4500 * ms, demand: .init(), views: [view(0, 0), view(1, 0)])
        #expect(machine.take() == [.drain(1), .changed(.shrank(to: 1))])
        #expect(machine.live == 1)
    }

    @Test func aSuspectThatEndsLeavesTheOtherInItsPlace() {
        var machine = begun()
        tick(&machine, at: 4000)
        tick(&machine, at: 4300)
        machine.opened(1, now: 4400 * ms)
        machine.answered(1)
        machine.ended(0, .failed, now: 21_000 * ms)
        _ = machine.take()
        for time in stride(from: UInt64(21_000), to: 30_000, by: 500) {
            machine.answered(1)
            machine.tick(now: time * ms, demand: .init(), views: [view(1, 1)])
        }
        #expect(machine.take() == [])
        #expect(machine.live == 1)
    }

    @Test func suspectsDoubleThePoolAtMost() {
        var machine = begun { $0.minimum = 2 }
        for time in stride(from: UInt64(1000), to: 15_900, by: 100) {
            tick(&machine, at: time)
            while let number = machine.takeOpening() { machine.opened(number, now: time * ms) }
        }
        #expect(machine.live == 4)
    }

    @Test func unansweredConnectionsDontGrowThePool() {
        var machine = machine { $0.growthInterval = 0 }
        openAll(&machine, at: 0)
        machine.answered(0)
        var openings = 0
        for time in stride(from: UInt64(1000), to: 3900, by: 100) {
            tick(&machine, at: time, inFlight: 100)
            while let number = machine.takeOpening() {
                openings += 1
                machine.opened(number, now: time * ms)
            }
        }
        #expect(openings == 1, "the second has to answer before a third is opened")
    }

    @Test func silenceOfAllConnectionsOpensTheCircuit() {
        var machine = begun { $0.minimum = 2 }
        for time in stride(from: UInt64(1000), through: 15_900, by: 100) {
            tick(&machine, at: time)
            while let number = machine.takeOpening() { machine.opened(number, now: time * ms) }
        }
        #expect(machine.circuit == .closed)
        tick(&machine, at: 16_000)
        guard case .open(_, .noAnswer) = machine.circuit else {
            Issue.record("\(machine.circuit)")
            return
        }
        // Each goes on waiting for its answers, and has no further request.
        #expect(machine.live == 4 && machine.members.allSatisfy { $0.phase == .free || $0.isSuspect })
        _ = machine.take()
        // An answer that was late ends the fault.
        machine.answered(0)
        #expect(machine.circuit == .closed)
        #expect(machine.members.count { $0.isSuspect } == 3)
    }

    /// Connections that have answered before hang, and a new one works.
    @Test func connectionsWithOverdueRequestsStaySuspect() {
        var machine = begun { ($0.minimum, $0.openInterval) = (2, 0) }
        for number in UInt32(0)..<2 { machine.answered(number) }
        for time in stride(from: UInt64(1000), through: 16_000, by: 100) { tick(&machine, at: time) }
        let until = machine.isOpenUntil!
        machine.tick(now: until, demand: waiting, views: [view(0, 1), view(1, 1)])
        let number = machine.takeOpening()!
        machine.opened(number, now: until + ms)
        machine.answered(number)
        machine.answers(good: 1, serverErrors: 0, now: until + 2 * ms)
        #expect(machine.circuit == .closed)
        machine.tick(now: until + 3 * ms, demand: .init(), views: [view(0, 1), view(1, 1), view(number, 0)])
        #expect(machine.members[0].isSuspect && machine.members[1].isSuspect)
        #expect(machine.members[Int(number)].phase == .active)
        // The requests expire.
        machine.tick(now: until + 4 * ms, demand: .init(), views: [view(0, 0), view(1, 1), view(number, 0)])
        #expect(!machine.members[0].isSuspect && machine.members[1].isSuspect)
    }

    /// A new connection probes, or a suspect one where a request must not wait for that.
    @Test func halfOpenCircuitProbesOnANewConnection() {
        var machine = begun()
        for time in stride(from: UInt64(1000), through: 16_000, by: 100) {
            tick(&machine, at: time)
            while let number = machine.takeOpening() { machine.opened(number, now: time * ms) }
        }
        let until = machine.isOpenUntil!
        var copy = machine
        copy.tick(
            now: 16_100 * ms, demand: .init(isWaiting: true, hasWitness: true),
            views: [view(0, 1), view(1, 1)])
        #expect(copy.circuit == .halfOpen(.noAnswer) && copy.probe == 0)
        _ = machine.take()
        machine.tick(now: until, demand: waiting, views: [view(0, 1), view(1, 1)])
        #expect(machine.circuit == .halfOpen(.noAnswer) && machine.probe == nil)
        let number = machine.takeOpening()
        #expect(number != nil)
        machine.opened(number!, now: until + ms)
        #expect(machine.probe == number)
        machine.answers(good: 1, serverErrors: 0, now: until + 2 * ms)
        #expect(machine.circuit == .closed)
    }

    /// The requests expire before the circuit opens, and each connection with its first.
    @Test func silenceOfConnectionsThatEndOpensTheCircuit() {
        var machine = machine()
        var sentAt: [UInt32: UInt64] = [:]
        var openings = 0
        for time in stride(from: UInt64(0), through: 40_000, by: 100) where machine.circuit == .closed {
            machine.maintain(now: time * ms)
            while let number = machine.takeOpening() {
                openings += 1
                machine.opened(number, now: time * ms)
                sentAt[number] = time
            }
            for (number, sent) in sentAt where time >= sent + 5000 {
                machine.ended(number, .failed, now: time * ms)
                sentAt[number] = nil
            }
            tick(&machine, at: time)
        }
        #expect(machine.circuit != .closed)
        #expect(openings <= 6)
    }

    @Test func requestBesideAConnectionWithoutAnyOpensNothing() {
        var machine = machine {
            $0.minimum = 2
            $0.openInterval = 0
        }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answered(1)
        for time in stride(from: UInt64(1000), through: 60_000, by: 500) {
            machine.tick(now: time * ms, demand: .init(), views: [view(0, 1), view(1, 0)])
        }
        #expect(machine.take() == [])
        #expect(machine.circuit == .closed)
    }

    @Test func answersWithinTheirTimeKeepTheCircuitClosed() {
        var machine = begun()
        machine.answered(0)
        for time in stride(from: UInt64(1000), through: 120_000, by: 500) {
            if time % 14_000 == 0 { machine.heard(0) }
            machine.tick(now: time * ms, demand: .init(), views: [view(0, 100)])
        }
        #expect(machine.circuit == .closed)
    }
}
