import Testing

@testable import HTTP2

/// Tests the pool's rules for back-off, circuit and stop, by one script each. Times are in milliseconds.
@Suite struct PoolStateMachineFailureTests: PoolStateMachineScript {
    private let ms: UInt64 = 1_000_000

    // MARK: Back-off

    /// A connection serves all the time, while another can't be opened.
    @Test func servingConnectionDoesNotShortenTheBackOff() {
        var machine = machine { $0.minimum = 2 }
        openAll(&machine, at: 0)
        machine.answered(0)
        var now: UInt64 = 0
        var openings = 0
        while now < 300_000 * ms {
            now += 50 * ms
            machine.answered(0)
            machine.maintain(now: now)
            guard let number = machine.takeOpening() else { continue }
            openings += 1
            machine.ended(number, .failed, now: now)
        }
        // Eight attempts double the window up to 30 s, then 3 to 30 s pass between attempts. Without back-off
        // there would be 1500.
        #expect(openings > 10 && openings < 60)
        #expect(machine.failures == openings)
        #expect(machine.circuit == .closed)
    }

    @Test func answerOnANewerConnectionEndsTheBackOff() {
        var machine = machine { $0.minimum = 2 }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.maintain(now: 200 * ms)
        #expect(machine.takeOpening() == 1)
        machine.ended(1, .failed, now: 200 * ms)
        machine.maintain(now: 2000 * ms)
        #expect(machine.takeOpening() == 1)
        machine.opened(1, now: 2100 * ms)
        #expect(machine.failures == 1)
        machine.answered(1)
        #expect(machine.failures == 0)
        #expect(machine.notBefore == 0)
    }

    @Test func olderConnectionsFirstAnswerEndsBackOffOnce() {
        var machine = machine { $0.minimum = 2 }
        openAll(&machine, at: 0)
        machine.maintain(now: 200 * ms)
        machine.ended(1, .failed, now: 201 * ms)
        #expect(machine.failures == 1)
        machine.answered(0)
        #expect(machine.failures == 0)
        machine.maintain(now: 500 * ms)
        machine.ended(1, .failed, now: 501 * ms)
        machine.answered(0)
        #expect(machine.failures == 1)
        #expect(machine.notBefore > 501 * ms)
    }

    /// A person repairs a certificate, and only a newer connection shows the repair.
    @Test func olderConnectionNeverEndsSettingsBackOff() {
        var machine = machine { $0.minimum = 2 }
        openAll(&machine, at: 0)
        machine.maintain(now: 200 * ms)
        _ = machine.take()
        machine.ended(1, .settings, now: 201 * ms)
        machine.answered(0)
        machine.maintain(now: 15_200 * ms)
        #expect(machine.take() == [])
        let next = machine.notBefore
        machine.maintain(now: next)
        #expect(machine.take() == [.open(1)])
        machine.opened(1, now: next)
        machine.answered(1)
        #expect(machine.notBefore == 0)
    }

    /// The server refuses the provider token of each new connection's first request.
    @Test func connectionsReplacedBeforeAcceptanceBackOff() {
        var machine = machine()
        machine.maintain(now: 0)
        var now: UInt64 = 0
        var openings = 0
        while now < 300_000 * ms {
            if let number = machine.takeOpening() {
                openings += 1
                machine.opened(number, now: now)
                machine.answered(number, isAccepted: false)
                machine.answers(good: 1, serverErrors: 0, now: now)
                machine.replaceNow(number, now: now)
                let failures = machine.failures
                machine.ended(number, openings % 2 == 0 ? .ours : .failed, now: now + 10 * ms)
                #expect(machine.failures == failures, "the end counts as no second failure")
            }
            now += 50 * ms
            machine.maintain(now: now)
        }
        #expect(openings > 10 && openings < 60)
        #expect(machine.failures == openings)
        #expect(machine.circuit == .closed, "the server answers")
        // The server accepts the token again.
        var number = machine.takeOpening()
        while number == nil {
            now += 50 * ms
            machine.maintain(now: now)
            number = machine.takeOpening()
        }
        machine.opened(number!, now: now)
        machine.answered(number!)
        #expect(machine.failures == 0)
        machine.replaceNow(number!, now: now + 1000 * ms)
        #expect(machine.failures == 0, "the connection was accepted")
        #expect(machine.takeOpening() != nil)
    }

    /// The network fails for a moment.
    @Test func connectionsThatEndTogetherCountAsOneShortLife() {
        var machine = machine {
            $0.minimum = 8
            $0.maximum = 8
            $0.openInterval = 0
        }
        openAll(&machine, at: 0)
        for number in 0..<UInt32(8) { machine.answered(number) }
        for number in 0..<UInt32(8) { machine.ended(number, .failed, now: 5_000 * ms) }
        #expect(machine.shortLives == 1)
        #expect(machine.take().count { if case .open = $0 { true } else { false } } == 8)
    }

    /// A request in flight may delay the end of the connection for long.
    @Test func connectionThatTheServerEndsSoonIsShortLivedAtOnce() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.ending(0, now: 1_000 * ms)
        #expect(machine.shortLives == 1)
        machine.ended(0, .ours, now: 2_000 * ms)
        #expect(machine.shortLives == 1)
    }

    @Test func connectionThatServedManyRequestsIsNotShortLived() {
        var machine = machine()
        var now: UInt64 = 0
        for _ in 0..<20 {
            openAll(&machine, at: now)
            machine.answered(0)
            machine.served(0, 1_000)
            now += 1_000 * ms
            machine.ending(0, now: now)
            machine.ended(0, .ours, now: now)
            #expect(machine.shortLives == 0)
        }
    }

    @Test func refusedCredentialDoesNotEndTheBackOff() {
        var machine = machine()
        machine.maintain(now: 0)
        machine.ended(0, .failed, now: 0)
        machine.maintain(now: 1000 * ms)
        machine.opened(0, now: 1000 * ms)
        machine.answered(0, isAccepted: false)
        #expect(machine.failures == 1)
        machine.answered(0)
        #expect(machine.failures == 0)
    }

    /// The server refuses the credential and closes the connection.
    @Test func connectionThatOnlyRefusesCountsAsFailure() {
        var machine = machine()
        var now: UInt64 = 0
        machine.maintain(now: now)
        for _ in 0..<10 {
            now = max(now + 200 * ms, machine.notBefore)
            machine.maintain(now: now)
            machine.opened(0, now: now)
            machine.answered(0, isAccepted: false)
            machine.ended(0, .failed, now: now)
        }
        #expect(machine.failures == 10)
        #expect(machine.circuit == .closed, "the server answers")
    }

    // MARK: Half open

    /// An opening that began before the circuit opened fails while the circuit is half open.
    @Test func staleOpeningFailureDoesNotDecideTheProbe() {
        var machine = machine {
            $0.minimum = 2
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.maintain(now: 200 * ms)
        machine.answers(good: 0, serverErrors: 1, now: 300 * ms)
        let until = machine.isOpenUntil ?? 0
        machine.tick(now: until, demand: .init(), views: [view(0, 0)])
        _ = machine.take()
        machine.ended(1, .failed, now: until)
        #expect(machine.circuit == .halfOpen(.serverErrors))
        // The probe's answer is an error.
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 1, now: until + ms)
        #expect(machine.circuit == .open(until: machine.isOpenUntil ?? 0, .serverErrors))
        #expect(machine.take().count { $0 == .changed(.circuit(.closed)) } == 0)
    }

    @Test func failedOpeningKeepsTheServerErrorFault() {
        var machine = machine {
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 1, now: 300 * ms)
        let until = machine.isOpenUntil ?? 0
        machine.tick(now: until, demand: .init(), views: [view(0, 0)])
        machine.ended(0, .failed, now: until + 200 * ms)
        #expect(machine.takeOpening() == 0)
        machine.ended(0, .failed, now: until + 300 * ms)
        #expect(machine.circuit == .open(until: machine.notBefore, .serverErrors))
        #expect(machine.notBefore > until + 300 * ms)
    }

    // MARK: Stop

    @Test func endOfAStopIsReportedOnce() {
        var machine = machine()
        openAll(&machine, at: 0)
        #expect(machine.stop(now: 0) == 5_000 * ms)
        // The pool's other connections meet the same refusal.
        #expect(machine.stop(now: 1_000 * ms) == nil)
        #expect(machine.take() == [.reportAll])
        machine.maintain(now: 4_999 * ms)
        #expect(machine.take() == [])
        machine.maintain(now: 5_000 * ms)
        #expect(machine.take() == [.reportAll])
    }

    /// The server refuses the certificate on each connection, by a GOAWAY or a TLS alert.
    @Test(arguments: [true, false])
    func stopsOfARefusedCredentialGrowFromSecondsToMinutes(opens: Bool) {
        var machine = machine()
        var now: UInt64 = 0
        var openings: [UInt64] = []
        var lengths: [UInt64] = []
        while lengths.count < 9 {
            machine.tick(now: now, demand: .init(isWaiting: true), views: [])
            for action in machine.take() {
                guard case .open(let number) = action else { continue }
                openings.append(now)
                if opens { machine.opened(number, now: now) }
                machine.ended(number, .failed, now: now)
                if let end = machine.stop(now: now) { lengths.append((end - now) / (1_000 * ms)) }
            }
            now += 50 * ms
        }
        #expect(lengths == [5, 10, 20, 40, 80, 160, 300, 300, 300])
        // The back-off of failed openings adds ten seconds at most.
        for (number, length) in lengths.dropLast().enumerated() {
            let passed = (openings[number + 1] - openings[number]) / (1_000 * ms)
            #expect((length...length + 11).contains(passed), "stop \(number): \(passed) s")
        }
    }

    @Test func firstStopEndsWithinSeconds() {
        var machine = machine()
        machine.maintain(now: 0)
        #expect(machine.takeOpening() == 0)
        machine.ended(0, .failed, now: 100 * ms)
        #expect(machine.stop(now: 100 * ms) == 5_100 * ms)
        machine.tick(now: 5_099 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.takeOpening() == nil)
        machine.tick(now: 5_100 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.takeOpening() == 0)
    }

    @Test func onlyAcceptanceOnANewerConnectionMakesStopsShortAgain() {
        var machine = machine()
        openAll(&machine, at: 0)
        #expect(machine.stop(now: 0) == 5_000 * ms)
        machine.answered(0)
        machine.maintain(now: 5_000 * ms)
        #expect(machine.stop(now: 5_000 * ms) == 15_000 * ms)
        machine.maintain(now: 15_000 * ms)
        machine.ended(0, .failed, now: 15_000 * ms)
        openAll(&machine, at: 20_000 * ms)
        machine.answered(0, isAccepted: false)
        #expect(machine.stops == 2)
        machine.answered(0)
        #expect(machine.stop(now: 21_000 * ms) == 26_000 * ms)
    }

    @Test func stopsAreShortAgainAfterALongTimeAndAfterARenewal() {
        var machine = machine()
        #expect(machine.stop(now: 0) == 5_000 * ms)
        var other = machine
        #expect(machine.stop(now: 304_999 * ms) == 314_999 * ms)
        #expect(other.stop(now: 305_000 * ms) == 310_000 * ms)
        other.endStop(now: 305_001 * ms)
        #expect(other.stoppedUntil == nil)
        #expect(other.stop(now: 305_002 * ms) == 310_002 * ms)
    }
}
