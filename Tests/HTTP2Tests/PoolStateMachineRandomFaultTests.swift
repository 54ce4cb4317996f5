import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Compares the pool's machine under random faults with naive models, which search all past events at each
/// step.
@Suite struct PoolStateMachineRandomFaultTests {
    private static let millisecond: UInt64 = 1_000_000
    private static let second: UInt64 = 1_000_000_000

    private func limits(_ random: inout SeededGenerator) -> PoolLimits {
        var limits = PoolLimits()
        limits.minimum = Int.random(in: 1...4, using: &random)
        limits.maximum = limits.minimum + Int.random(in: 0...8, using: &random)
        return limits
    }

    // MARK: Churn

    /// Each connection answers, and soon ends by a GOAWAY, a cut or a replacement.
    @Test(arguments: UInt64(1)...40)
    func openingRateStaysBoundedWhenConnectionsEndSoon(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let limits = limits(&random)
        var machine = PoolStateMachine(limits, seed: seed)
        var now: UInt64 = 1
        var openings: [UInt64] = []
        let step = 10 * Self.millisecond
        let badUntil = 300 * Self.second
        var wholeAt: UInt64?
        while now < badUntil + 120 * Self.second, wholeAt == nil {
            now += step
            machine.tick(now: now, demand: .init(), views: [])
            for action in machine.take() {
                guard case .open(let number) = action else { continue }
                openings.append(now)
                machine.opened(number, now: now)
                machine.answered(number)
            }
            guard now < badUntil else {
                if machine.count(.active) >= limits.minimum { wholeAt = now }
                continue
            }
            for number in machine.numbers(.active) + machine.numbers(.retiring)
            where Int.random(in: 0..<20, using: &random) == 0 {
                switch Int.random(in: 0..<4, using: &random) {
                case 0: machine.ending(number, now: now)
                case 1: machine.replaceNow(number, now: now)
                case 2: machine.replaceIfAllowed(number, now: now)
                default: machine.ended(number, .failed, now: now)
                }
            }
            for number in machine.numbers(.draining) { machine.ended(number, .ours, now: now) }
        }
        // Most openings within any minute. The first openings, `minimum` of them, aren't delayed.
        let most =
            openings.indices.map { first in
                openings[first...].prefix { $0 < openings[first] + 60 * Self.second }.count
            }.max() ?? 0
        #expect(most <= 12 + limits.minimum, "seed \(seed): \(most) openings in a minute")
        let steady = openings.count { $0 > 60 * Self.second && $0 <= badUntil }
        #expect(steady <= 4 * 12, "seed \(seed): \(steady) in four minutes")
        let recovery = (wholeAt ?? .max) - badUntil
        #expect(recovery <= UInt64(limits.minimum) * 16 * Self.second, "seed \(seed)")
    }

    // MARK: No progress

    /// Compares the pool's replacements with the time since which each connection has made no progress.
    @Test(arguments: UInt64(1)...40)
    func connectionWithoutProgressIsReplacedWithinItsTimeout(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let limits = limits(&random)
        var machine = PoolStateMachine(limits, seed: seed)
        var now: UInt64 = 1
        var uselessSince: [UInt32: UInt64] = [:]
        var isUseless: [UInt32: Bool] = [:]
        var openings: [UInt64] = []
        for _ in 0..<6_000 {
            now += UInt64.random(in: 10...200, using: &random) * Self.millisecond
            let isWaiting = Int.random(in: 0..<50, using: &random) > 0
            if Int.random(in: 0..<100, using: &random) == 0,
                let one = isUseless.keys.randomElement(using: &random)
            {
                isUseless[one]?.toggle()
            }
            let serving = machine.numbers(.active) + machine.numbers(.reserve) + machine.numbers(.retiring)
            for number in serving {
                if isWaiting, isUseless[number] == true {
                    uselessSince[number] = uselessSince[number] ?? now
                } else {
                    uselessSince[number] = nil
                }
            }
            let views = serving.map { number in
                let isStuck = isUseless[number] == true
                return PoolStateMachine.View(
                    number: number, inFlight: isStuck ? 0 : 3, limit: isStuck ? 0 : 100,
                    isWindowFull: isStuck && number % 2 == 0, isBlocked: isStuck && number % 2 == 1)
            }
            for view in views where view.inFlight > 0 { machine.heard(view.number) }
            machine.tick(now: now, demand: .init(isWaiting: isWaiting, peakInFlight: 3), views: views)
            for action in machine.take() {
                switch action {
                case .open(let number):
                    openings.append(now)
                    isUseless[number] = Bool.random(using: &random)
                    machine.opened(number, now: now)
                    if !isUseless[number]! { machine.answered(number) }
                case .changed(.rotates(let number, .noProgress)):
                    let since = uselessSince[number] ?? now
                    let isLast = machine.count(.active) + machine.count(.reserve) == 0
                    if now < since + limits.progressTimeout, !isLast {
                        Issue.record("seed \(seed): \(number) is replaced after \(now - since) ns")
                    }
                default: break
                }
            }
            for number in machine.numbers(.draining) {
                machine.ended(number, .ours, now: now)
                isUseless[number] = nil
                uselessSince[number] = nil
            }
            // A connection without progress is replaced within a second after its timeout.
            for number in machine.numbers(.active) {
                guard let since = uselessSince[number], machine.isOpenUntil == nil else { continue }
                #expect(now < since + limits.progressTimeout + Self.second, "seed \(seed): \(number)")
            }
        }
        let minutes = Double(now) / 6e10
        #expect(Double(openings.count) / minutes < 30, "seed \(seed): \(openings.count) in \(minutes) min")
    }

    // MARK: Rates

    @Test(arguments: UInt64(1)...60)
    func circuitFollowsTheErrorRatesOfANaiveModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let limits = limits(&random)
        var machine = PoolStateMachine(limits, seed: seed)
        machine.maintain(now: 0)
        for case .open(let number) in machine.take() { machine.opened(number, now: 0) }
        machine.answered(0)
        _ = machine.take()
        /// Time of each answer, and whether the answer was an error.
        var answers: [(time: UInt64, isError: Bool)] = []
        var share = 0.0
        var now: UInt64 = 0
        var badSince: UInt64?
        for step in 0..<3_000 {
            if step % 300 == 0 { share = [0, 0.01, 0.2, 0.4, 0.6, 0.9, 1].randomElement(using: &random)! }
            now += UInt64.random(in: 1...50, using: &random) * Self.millisecond
            var (good, errors, last) = (0, 0, 0)
            for _ in 0..<Int.random(in: 0...8, using: &random) {
                let isError = Double.random(in: 0..<1, using: &random) < share
                answers.append((now, isError))
                if isError {
                    errors += 1
                    last += 1
                } else {
                    good += 1
                    last = 0
                }
            }
            machine.answers(good: good, serverErrors: errors, last: last, now: now)
            if step % 50 == 0 { answers.removeAll { $0.time + 11 * Self.second < now } }
            // The window is between nine and ten seconds long.
            let long = answers.filter { $0.time + 10 * Self.second >= now }
            let short = answers.filter { $0.time + 9 * Self.second > now }
            let isBad = [long, short].allSatisfy { window in
                window.count >= 100 && window.count(where: \.isError) * 2 >= window.count
            }
            badSince = isBad ? badSince ?? now : nil
            let inRow = answers.reversed().prefix(while: \.isError).count
            guard let until = machine.isOpenUntil else {
                if let badSince, machine.ramp == nil {
                    #expect(
                        now < badSince + 2 * limits.circuitErrorTime,
                        "seed \(seed) step \(step): the circuit stays closed")
                }
                continue
            }
            let wasBad = [long, short].contains { window in
                window.count >= 100 && window.count(where: \.isError) * 2 >= window.count
            }
            #expect(wasBad || inRow >= 100, "seed \(seed) step \(step): the circuit opens")
            #expect(until <= now + limits.probeMaximum)
            // The server works again, and the model's history restarts.
            now = until
            machine.tick(now: now, demand: .init(), views: [])
            machine.answers(good: 1, serverErrors: 0, now: now)
            while let share = machine.streamShare { machine.answers(good: share, serverErrors: 0, now: now) }
            _ = machine.take()
            answers = []
            badSince = nil
            share = 0
        }
    }
}
