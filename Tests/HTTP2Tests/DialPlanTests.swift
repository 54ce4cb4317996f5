import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

@Suite struct DialPlanTests {
    private let delay = DialPlan.defaultDelay

    @Test func attemptsAreStaggeredByTheDelay() {
        var plan = DialPlan(attempts: 3)
        #expect(plan.handle(.tick, now: 100) == .start(0))
        #expect(plan.nextStart == 100 + delay)
        #expect(plan.handle(.tick, now: 99 + delay) == .wait)
        #expect(plan.handle(.tick, now: 100 + delay) == .start(1))
        #expect(plan.handle(.tick, now: 100 + 2 * delay) == .start(2))
        #expect(plan.nextStart == nil)
        #expect(plan.handle(.tick, now: .max) == .wait)
        #expect(plan.handle(.connected(1), now: 1) == .connected(1))
        #expect(plan.handle(.connected(0), now: 1) == .wait)
        #expect(plan.handle(.failed(2), now: 1) == .wait)
    }

    @Test func failureOfTheNewestAttemptStartsTheNext() {
        var plan = DialPlan(attempts: 3)
        #expect(plan.handle(.tick, now: 0) == .start(0))
        #expect(plan.handle(.failed(0), now: 5) == .start(1))
        // The delay counts from the latest start.
        #expect(plan.nextStart == 5 + delay)
        #expect(plan.handle(.tick, now: 5 + delay) == .start(2))
        // The older attempt's failure changes nothing; the last attempt's failure ends the plan.
        #expect(plan.handle(.failed(1), now: 6 + delay) == .wait)
        #expect(plan.handle(.failed(2), now: 7 + delay) == .failed)
    }

    @Test func olderFailureDoesNotStartTheNextAttemptEarly() {
        var plan = DialPlan(attempts: 3)
        #expect(plan.handle(.tick, now: 0) == .start(0))
        #expect(plan.handle(.tick, now: delay) == .start(1))
        #expect(plan.handle(.failed(0), now: delay + 1) == .wait)
        #expect(plan.nextStart == 2 * delay)
        #expect(plan.handle(.failed(1), now: delay + 2) == .start(2))
        #expect(plan.handle(.failed(1), now: delay + 2) == .wait)
        #expect(plan.handle(.connected(2), now: delay + 3) == .connected(2))
    }

    @Test func lastFailureWaitsForAttemptsUnderWay() {
        var plan = DialPlan(attempts: 2)
        #expect(plan.handle(.tick, now: 0) == .start(0))
        #expect(plan.handle(.tick, now: delay) == .start(1))
        #expect(plan.handle(.failed(1), now: delay + 1) == .wait)
        #expect(plan.handle(.connected(0), now: delay + 2) == .connected(0))
    }

    /// Attempts start in order and once each, after the delay or the previous failure. The plan ends once: with
    /// the first success, or after the last failure.
    @Test func randomEventsStartAttemptsInOrderAndEndOnce() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        for _ in 0..<500 {
            let count = Int.random(in: 1...6, using: &random)
            var plan = DialPlan(attempts: count)
            var started: [UInt64] = []
            var failed: Set<Int> = []
            var now: UInt64 = 0
            var end: DialPlan.Step?
            var event = DialPlan.Event.tick
            for _ in 0..<1000 where end == nil {
                let step = plan.handle(event, now: now)
                if case .failed(let attempt) = event { failed.insert(attempt) }
                switch step {
                case .start(let attempt):
                    #expect(attempt == started.count, "seed \(seed)")
                    if attempt > 0, !failed.contains(attempt - 1) {
                        #expect(now - started[attempt - 1] >= delay, "seed \(seed)")
                    }
                    started.append(now)
                case .connected, .failed: end = step
                case .wait: break
                }
                now += UInt64.random(in: 0...delay, using: &random)
                let open = plan.attempts.indices.filter { plan.attempts[$0] == .trying }
                switch Int.random(in: 0..<6, using: &random) {
                case 0: event = open.randomElement(using: &random).map { .connected($0) } ?? .tick
                case 1, 2: event = open.randomElement(using: &random).map { .failed($0) } ?? .tick
                default: event = .tick
                }
                // Without an end an attempt is under way or will start.
                if end == nil { #expect(!open.isEmpty || plan.nextStart != nil, "seed \(seed)") }
            }
            switch end {
            case .failed: #expect(failed.count == count, "seed \(seed)")
            case .connected(let attempt): #expect(!failed.contains(attempt), "seed \(seed)")
            default: Issue.record("no end with seed \(seed)")
            }
            #expect(plan.handle(.tick, now: .max) == .wait && plan.nextStart == nil, "seed \(seed)")
        }
    }
}
