import SluiceModel
import Testing

@testable import DeliveryCore

/// Holds of a pool after a 503 with `Retry-After`.
struct RetryAfterPauseTests {
    private func gate(_ harness: borrowing DeliveryHarness, _ pool: UInt16 = 0) -> PoolGate {
        harness.machine.poolGate(pool, at: harness.now)
    }

    @Test func retryAfterDelaysThePushAndLimitsPoolToUrgent() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.pool = 2 }
        harness.push("b", device: "e") { $0.pool = 2 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 20_000)
        #expect(gate(harness, 2) == .urgentOnly)
        #expect(gate(harness, 1) == .open)
        #expect(gate(harness, 9) == .open)
        #expect(
            harness.waiting == ["b"], "waiting pushes stay queued, and the owner asks for the pool's gate")
        harness.pass(milliseconds: 19_999)
        #expect(harness.state("a") == .retrying)
        harness.pass(milliseconds: 2_001)
        #expect(gate(harness, 2) == .open)
        #expect(harness.waiting.contains("a"))
    }

    /// APNs accepts the pushes of another topic of the pool, so the pause concerns one topic.
    @Test func pauseConcernsTheTopicWhileAnotherIsServed() {
        var harness = DeliveryHarness()
        for name in ["a", "a2"] { harness.push(name, device: name) }
        for name in ["b", "b2", "b3"] { harness.push(name, device: name) { $0.topic = 1 } }
        harness.accept(harness.begin()!)
        let urgent = harness.queue.remove(at: 1)
        let begins = harness.machine.beginAttempt(urgent, at: harness.now)
        #expect(begins)
        harness.answer(urgent, .serviceUnavailable, retryAfter: 60_000)
        #expect(gate(harness) == .open)
        #expect(harness.machine.overloadedTopics == 1 && harness.machine.stoppedTopics == 0)
        #expect(harness.machine.milestones.stops == 0)
        harness.accept(harness.begin()!)
        for _ in 0..<2 { harness.begin() }
        #expect(harness.state("b2") == .topicCircuitOpen && harness.state("b3") == .topicCircuitOpen)
        // A probe leaves after a second, and is answered as before.
        harness.pass(milliseconds: 1000)
        #expect(harness.waiting == ["b2"])
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        harness.pass(milliseconds: 1000)
        #expect(harness.waiting.isEmpty)
        harness.pass(milliseconds: 1000)
        #expect(harness.waiting == ["b3"])
        harness.accept(harness.begin()!)
        #expect(harness.machine.overloadedTopics == 0)
        #expect(harness.others.contains(.recovered(topic: 1)))
    }

    /// A probe that is answered 500 shows no recovery, so that the next one waits as long.
    @Test func probesOfAnOverloadedTopicFollowAtGrowingIntervals() {
        var harness = DeliveryHarness()
        harness.push("a", device: "a")
        for name in ["b", "b2", "b3", "b4"] { harness.push(name, device: name) { $0.topic = 1 } }
        harness.accept(harness.begin()!)
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        for _ in 0..<3 { harness.begin() }
        harness.pass(milliseconds: 1000)
        harness.answer(harness.begin()!, .internalServerError)
        harness.pass(milliseconds: 1999)
        #expect(harness.waiting.isEmpty)
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["b3"])
        harness.fail(harness.begin()!, processed: true)
        harness.pass(milliseconds: 3999)
        #expect(harness.waiting.isEmpty)
        // A refusal is graver: a person has to know.
        harness.pass(milliseconds: 1)
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(harness.machine.stoppedTopics == 1 && harness.machine.milestones.stops == 1)
    }

    /// The other topic's last accepted push was too long ago to show anything. The pause concerns the pool once APNs has asked
    /// for one of both topics.
    @Test func pauseConcernsThePoolWhenNoOtherTopicIsServed() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.accept(harness.begin()!)
        harness.pass(milliseconds: 10_001)
        harness.push("b") { $0.topic = 1 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        #expect(gate(harness) == .open && harness.machine.overloadedTopics == 1)
        harness.push("a2", device: "a2")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        #expect(gate(harness) == .urgentOnly && harness.machine.overloadedTopics == 1)
        #expect(harness.machine.overloadedPools == [0])
        #expect(harness.others.contains(.poolOverloaded(0)))
    }

    @Test func onlyARefusedUrgentPushClosesThePool() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.priority = .powerAware }
        harness.push("b") { $0.priority = .powerAware }
        harness.push("c")
        harness.push("d")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 20_000)
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 10_000)
        #expect(gate(harness) == .urgentOnly)
        let slots = (0..<2).map { _ in harness.begin()! }
        harness.answer(slots[0], .serviceUnavailable, retryAfter: 5_000)
        #expect(gate(harness) == .urgentOnly, "it was sent before the hold began")
        harness.pass(milliseconds: 500)
        harness.answer(slots[1], .serviceUnavailable, retryAfter: 5_000)
        #expect(gate(harness) == .closed)
        // A later answer doesn't shorten the hold.
        harness.pass(milliseconds: 19_498)
        harness.machine.probed(0, at: harness.now)
        #expect(gate(harness) == .closed)
        harness.pass(milliseconds: 2)
        #expect(gate(harness) == .open)
    }

    /// Another key serves, which doesn't rest.
    @Test func restEndsWithItsKey() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.pool = 2 }
        harness.machine.rest(2, until: harness.now.monotonic(inMilliseconds: 60_000), at: harness.now)
        #expect(gate(harness, 2) == .closed)
        harness.machine.endRest(2)
        harness.machine.endRest(2)
        #expect(gate(harness, 2) == .open && harness.machine.pausedPools == 0)
    }

    @Test func restingPoolSendsNothingUntilItsRestEnds() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.pool = 2 }
        let sent = harness.begin()!
        harness.push("b", device: "e") { $0.pool = 2 }
        harness.machine.rest(2, until: harness.now.monotonic(inMilliseconds: 60_000), at: harness.now)
        #expect(gate(harness, 2) == .closed)
        #expect(gate(harness, 1) == .open)
        // A push that was sent before is accepted, and a shorter rest follows: neither ends the rest.
        harness.pass(milliseconds: 10_000)
        harness.accept(sent)
        harness.machine.rest(2, until: harness.now.monotonic(inMilliseconds: 5_000), at: harness.now)
        harness.pass(milliseconds: 49_999)
        #expect(gate(harness, 2) == .closed)
        #expect(harness.machine.nextWake(after: harness.now) == harness.now.monotonic(inMilliseconds: 1))
        harness.pass(milliseconds: 1)
        #expect(gate(harness, 2) == .open)
        #expect(harness.machine.pausedPools == 0)
    }

    @Test func restAndRetryAfterOfOnePoolEndEachAtItsOwnTime() {
        var harness = DeliveryHarness()
        harness.push("a")
        let sent = harness.begin()!
        harness.machine.rest(0, until: harness.now.monotonic(inMilliseconds: 10_000), at: harness.now)
        harness.answer(sent, .serviceUnavailable, retryAfter: 20_000)
        #expect(harness.machine.pausedPools == 1)
        #expect(gate(harness) == .closed)
        harness.pass(milliseconds: 10_000)
        #expect(gate(harness) == .probe)
        harness.machine.probed(0, at: harness.now)
        #expect(gate(harness) == .urgentOnly)
        harness.pass(milliseconds: 10_000)
        #expect(gate(harness) == .open)
        #expect(harness.machine.pausedPools == 0)
    }

    @Test func probesAreSingleAndIncreasinglyRare() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.push("b")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        let other = harness.begin()!
        harness.pass(milliseconds: 500)
        harness.answer(other, .serviceUnavailable, retryAfter: 60_000)
        harness.pass(milliseconds: 500)
        var seconds: [Int] = []
        for second in 1..<60 {
            if gate(harness) == .probe {
                seconds.append(second)
                harness.machine.probed(0, at: harness.now)
                #expect(gate(harness) == .closed)
            }
            let wake = harness.machine.nextWake(after: harness.now)!
            #expect(wake <= harness.now.monotonicNanoseconds + 60_000_000_000)
            harness.pass(milliseconds: 1_000)
        }
        #expect(seconds == [1, 3, 7, 15, 30, 45])
        harness.pass(milliseconds: 1_000)
        #expect(gate(harness) == .open)
    }

    /// A hold may end early.
    @Test func pushExpiringBeforeTheHoldEndsGetsAnAttempt() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.expirationMilliseconds = $0.createdMilliseconds + 30_000 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        #expect(harness.state("a") == .retrying)
        harness.pass(milliseconds: 29_000)
        #expect(harness.waiting == ["a"])
    }

    @Test func acceptedPushEndsThePoolPause() {
        var harness = DeliveryHarness { $0.retry.retryAfterLimitMilliseconds = 3_600_000 }
        harness.push("a")
        harness.push("b") { $0.pool = 1 }
        harness.push("c")
        let slots = (0..<3).map { _ in harness.begin()! }
        harness.answer(slots[0], .serviceUnavailable, retryAfter: 3_600_000)
        #expect(gate(harness) == .urgentOnly)
        harness.accept(slots[1])
        #expect(gate(harness) == .urgentOnly, "another pool's push")
        harness.accept(slots[2])
        #expect(gate(harness) == .open)
    }

    @Test func wakeIsScheduledWhenThePoolOpens() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.push("b")
        let slot = harness.begin()!
        let other = harness.begin()!
        harness.answer(slot, .serviceUnavailable, retryAfter: 100)
        let open = harness.now.monotonicNanoseconds + 100_000_000
        #expect(harness.machine.nextWake(after: harness.now)! <= open)
        harness.accept(other)
    }

    @Test func only503HoldsThePoolUpToTheLimit() {
        var harness = DeliveryHarness()
        for name in ["a", "b", "c"] { harness.push(name) }
        harness.answer(harness.begin()!, .internalServerError, retryAfter: 4000)
        #expect(gate(harness) == .open)
        harness.answer(harness.begin()!, .serviceUnavailable)
        #expect(gate(harness) == .open)
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 3_600_000)
        #expect(gate(harness) == .urgentOnly)
        harness.pass(milliseconds: 60_000)
        #expect(gate(harness) == .open)
    }

    @Test func wakeIsScheduledForTheHeldPoolsProbe() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.pool = 2 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 20_000)
        let held = harness.now.monotonicNanoseconds
        #expect(harness.machine.nextPauseEnd(after: harness.now) == held + 1_000_000_000)
        harness.pass(milliseconds: 1_000)
        #expect(gate(harness, 2) == .probe)
        #expect(harness.machine.nextPauseEnd(after: harness.now) == held + 20_000_000_000)
    }
}
