import SluiceModel
import StreamScheduling
import Testing

@testable import HTTP2

/// Tests the pool's circuit, and stopped and closing pools, by one script each. Times are in milliseconds.
@Suite struct PoolStateMachineCircuitTests: PoolStateMachineScript {
    private let ms: UInt64 = 1_000_000
    private let later: UInt64 = 100_000_000_000

    /// A machine with `open` connections, each of which has answered.
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

    @Test func fiveOpeningFailuresBackOffAndOpenTheCircuit() {
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
        // A failed probe opens the circuit again. The next probe's first answer closes the circuit.
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
        // A refused provider token shows neither a working server nor one in trouble.
        machine.answers(good: 0, serverErrors: 0, now: now)
        #expect(machine.circuit == .halfOpen(.unreachable))
        machine.answers(good: 1, serverErrors: 0, now: now)
        #expect(machine.circuit == .closed)
        #expect(machine.failures == 0)
    }

    @Test func halfOpenCircuitOpensOneConnectionUntilItAnswers() {
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

    @Test func settingsFailureDelaysTheNextOpeningByFifteenSeconds() {
        var machine = machine()
        machine.maintain(now: 0)
        machine.ended(0, .settings, now: 0)
        #expect(machine.notBefore >= 15_000 * ms)
    }

    @Test func consecutiveServerErrorsOpenTheCircuitAfterOneSecond() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 99, now: 0)
        machine.answers(good: 500, serverErrors: 50, now: 500 * ms)
        machine.answers(good: 0, serverErrors: 50, now: 1400 * ms)
        #expect(machine.circuit == .closed, "100 errors in a row within less than a second")
        machine.answers(good: 0, serverErrors: 1, now: 1500 * ms)
        let first = machine.isOpenUntil ?? 0
        #expect(machine.circuit == .open(until: first, .serverErrors))
        // Answers to requests sent earlier don't close the circuit.
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

    /// The server fails some requests and answers the others.
    @Test(arguments: [(8, 10, true), (5, 10, true), (4, 10, false), (1, 100, false)])
    func errorShareOfHalfOrMoreOpensTheCircuit(_ errors: Int, _ all: Int, _ opens: Bool) {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        for read in 0..<1_000 where machine.circuit == .closed {
            // The last answer of each read is good, so that no long run of errors occurs.
            machine.answers(good: all - errors, serverErrors: errors, last: 0, now: UInt64(read) * 10 * ms)
        }
        #expect((machine.circuit != .closed) == opens)
        if opens { #expect(machine.isOpenUntil! < 2_000 * ms) }
    }

    @Test func errorShareCoversOnlyTheLastSeconds() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 10, serverErrors: 80, last: 0, now: 0)
        machine.answers(good: 5, serverErrors: 5, last: 0, now: 12_000 * ms)
        #expect(machine.answerWindow.all == 10)
        machine.answers(good: 5, serverErrors: 5, last: 0, now: 14_000 * ms)
        #expect(machine.circuit == .closed)
        #expect(machine.answerWindow.errors == 10)
        machine.answers(good: 100, serverErrors: 10, last: 0, now: 21_500 * ms)
        #expect(machine.answerWindow.all == 130)
        machine.answers(good: 0, serverErrors: 0, last: 0, now: 22_500 * ms)
        machine.answers(good: 1, serverErrors: 0, last: 0, now: 22_500 * ms)
        #expect(machine.answerWindow.all == 121)
    }

    /// A probe can succeed by luck, so that few requests may be in flight after it.
    @Test func serverFailingMostRequestsReceivesFewRequests() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        var random = SeededGenerator(seed: 7)
        var now: UInt64 = 0
        var requests = 0
        while now < 120_000 * ms {
            switch machine.circuit {
            case .closed:
                // Answers take 40 ms.
                let flying = min(1_000, machine.streamShare ?? 1_000)
                let errors = (0..<flying).count { _ in Int.random(in: 1...5, using: &random) > 1 }
                requests += flying
                now += 40 * ms
                machine.answers(good: flying - errors, serverErrors: errors, last: 0, now: now)
            case .open(let until, _):
                now = until
                machine.tick(now: now, demand: .init(isWaiting: true), views: [view(0, 0)])
            case .halfOpen:
                requests += 1
                now += 40 * ms
                let isGood = Int.random(in: 1...5, using: &random) == 1
                machine.answers(good: isGood ? 1 : 0, serverErrors: isGood ? 0 : 1, now: now)
            }
        }
        // The second before the circuit opens accounts for 26,000 requests.
        #expect(requests < 28_000, "\(requests) in two minutes")
    }

    /// With few requests, a ramp that counts answers would take hours.
    @Test func streamRampEndsWithinAMinuteAtLowLoad() {
        var machine = machine {
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 1, now: 0)
        var now = machine.isOpenUntil!
        machine.tick(now: now, demand: .init(), views: [view(0, 0)])
        machine.answers(good: 1, serverErrors: 0, now: now)
        #expect(machine.streamShare == 8)
        // A failure every 15 seconds doesn't open the circuit.
        for _ in 0..<3 {
            now += 15_000 * ms
            machine.answers(good: 0, serverErrors: 1, now: now)
            machine.tick(now: now, demand: .init(), views: [view(0, 0)])
        }
        #expect(machine.circuit == .closed)
        #expect(machine.streamShare == 8)
        now += 15_000 * ms
        machine.tick(now: now, demand: .init(), views: [view(0, 0)])
        #expect(machine.streamShare == nil)
        #expect(machine.serverFailures == 0)
    }

    @Test func blockedProbeIsReplacedByTheNextConnection() {
        var machine = machine {
            $0.minimum = 2
            $0.openInterval = 0
            $0.circuitServerErrors = 1
            $0.circuitErrorTime = 0
        }
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 1, now: 0)
        let now = machine.isOpenUntil!
        let views = [
            Machine.View(number: 0, limit: 0, isBlocked: true), view(1, 0),
        ]
        machine.tick(now: now, demand: .init(isWaiting: true), views: views)
        _ = machine.take()
        machine.tick(now: now + 15_000 * ms, demand: .init(isWaiting: true), views: views)
        #expect(machine.probe == 1)
        #expect(machine.take().contains(.reportAll))
    }

    @Test func recoveredServerGetsAllStreamsBackWithinSeconds() {
        var machine = machine()
        openAll(&machine, at: 0)
        machine.answered(0)
        machine.answers(good: 0, serverErrors: 100, now: 0)
        machine.answers(good: 0, serverErrors: 100, now: 1_000 * ms)
        var now: UInt64 = 1_000 * ms
        // Probes fail for a minute.
        while now < 60_000 * ms {
            now = machine.isOpenUntil!
            machine.tick(now: now, demand: .init(isWaiting: true), views: [view(0, 0)])
            machine.answers(good: 0, serverErrors: 1, now: now)
        }
        let begin = now
        now = machine.isOpenUntil!
        #expect(now <= begin + 5_000 * ms)
        machine.tick(now: now, demand: .init(isWaiting: true), views: [view(0, 0)])
        machine.answers(good: 1, serverErrors: 0, now: now)
        #expect(machine.streamShare == 8)
        var rounds = 0
        while let share = machine.streamShare {
            rounds += 1
            now += 40 * ms
            machine.answers(good: share, serverErrors: 0, now: now)
        }
        #expect(rounds == 8)
        #expect(machine.serverFailures == 0)
    }

    @Test func stoppedPoolOpensNothingBeforeItsRetryTime() {
        var machine = machine()
        openAll(&machine, at: 0)
        #expect(machine.stop(now: 0) == 5_000 * ms)
        #expect(machine.take() == [.reportAll])
        machine.ending(0, now: 1000 * ms)
        machine.ended(0, .failed, now: 1000 * ms)
        machine.tick(now: 4_999 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.take() == [])
        machine.tick(now: 5_000 * ms, demand: .init(isWaiting: true), views: [])
        #expect(machine.take() == [.reportAll, .open(0)])
    }

    @Test func closingPoolReplacesNoConnection() {
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

    @Test func lostProbeIsReplacedByAnotherConnection() {
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
        // Without any connection left, the pool opens a new one.
        machine.ended(1, .failed, now: now)
        #expect(machine.take() == [.reportAll, .open(0)])
    }

    @Test func unansweredProbeOpensTheCircuitAgain() {
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

    @Test func halfOpenCircuitSchedulesOneTickASecond() {
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

/// Errors of one app of a pool.
struct AppAnswersTests {
    private static let second: UInt64 = 1_000_000_000

    @Test func errorsOfAnAppConcernItAloneWhileAnotherIsServed() {
        var answers = AppAnswers()
        for _ in 0..<20 { answers.note(1, isError: true, now: Self.second) }
        #expect(answers.isWatching)
        #expect(!answers.concernsAppAlone(1), "nothing is known of the others")
        for _ in 0..<5 { answers.note(2, isError: false, now: Self.second) }
        answers.advance(to: 2 * Self.second)
        #expect(answers.concernsAppAlone(1) && !answers.concernsAppAlone(2))
        for _ in 0..<5 { answers.note(2, isError: true, now: 2 * Self.second) }
        #expect(!answers.concernsAppAlone(1) && !answers.concernsAppAlone(2), "the server fails for all")
    }

    @Test func fewAnswersOfTheOthersShowThatTheyAreServed() {
        var answers = AppAnswers()
        for _ in 0..<20 { answers.note(1, isError: true, now: Self.second) }
        answers.note(2, isError: false, now: Self.second)
        #expect(answers.concernsAppAlone(1))
        answers.note(3, isError: true, now: Self.second)
        #expect(!answers.concernsAppAlone(1), "the others are not served either")
        #expect(answers.isInTrouble(1) && !answers.isInTrouble(2) && answers.isInTrouble(3))
    }

    @Test func anAppWithoutAnswersIsInTroubleUntilItHasOne() {
        var answers = AppAnswers()
        answers.noteExpired(1, now: Self.second)
        answers.advance(to: 60 * Self.second)
        #expect(answers.isWatching && answers.isInTrouble(1) && !answers.isInTrouble(2))
        answers.note(1, isError: false, now: 60 * Self.second)
        #expect(!answers.isInTrouble(1) && !answers.isWatching)
        // It may have nothing to send any more.
        answers.noteExpired(1, now: 60 * Self.second)
        answers.advance(to: 120 * Self.second)
        #expect(!answers.isWatching)
    }

    @Test func windowsAreForgottenTenSecondsAfterTheLastError() {
        var answers = AppAnswers()
        for _ in 0..<20 { answers.note(1, isError: true, now: Self.second) }
        answers.note(2, isError: false, now: 9 * Self.second)
        #expect(answers.isWatching)
        answers.advance(to: 10 * Self.second)
        #expect(answers.isWatching)
        answers.advance(to: 12 * Self.second)
        #expect(!answers.isWatching)
    }
}
