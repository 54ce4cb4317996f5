import SluiceModel
import Testing

@testable import DeliveryCore

/// Descriptions of pending pushes, for people who look for a push.
struct PendingPushTests {
    private func pending(_ harness: borrowing DeliveryHarness, _ name: String) -> PendingPush? {
        let slot = harness.names.first { $0.value == name }!.key
        return harness.machine.pending(slot, at: harness.now)
    }

    @Test func pushWaitsThenFliesAndBlocksItsSuccessor() {
        var harness = DeliveryHarness()
        harness.push("a", collapse: "x")
        #expect(pending(harness, "a")?.cause == .stream)
        let slot = harness.begin()!
        harness.push("b", collapse: "x")
        let flying = pending(harness, "a")
        #expect(flying?.cause == .inFlight)
        #expect(flying?.progress.attempts == 1)
        #expect(flying?.progress.firstSentMilliseconds == harness.now.wallMilliseconds)
        #expect(pending(harness, "b")?.cause == .blocked(behind: slot))
        #expect(pending(harness, "b")?.untilMilliseconds == nil)
        let slots = harness.machine.pendingSlots(of: DeliveryHarness.device("d"))
        #expect(slots.map { harness.names[$0] } == ["b", "a"])
        harness.accept(slot)
        #expect(harness.machine.pendingSlots(of: DeliveryHarness.device("d")).count == 1)
        #expect(harness.machine.pendingSlots(of: DeliveryHarness.device("unknown")).isEmpty)
    }

    @Test func freeSlotsHaveNoPendingPush() {
        var harness = DeliveryHarness()
        #expect(harness.machine.pending(0, at: harness.now) == nil)
        #expect(harness.machine.pending(DeliveryMachine.noSlot, at: harness.now) == nil)
        harness.push("a")
        let slot = harness.begin()!
        harness.accept(slot)
        #expect(harness.machine.pending(slot, at: harness.now) == nil)
    }

    @Test func waitsForTimeHaveTheirEnds() {
        var harness = DeliveryHarness()
        let now = harness.now.wallMilliseconds
        harness.push("scheduled", device: "s") { $0.deliverAtMilliseconds = now + 60_000 }
        harness.push("window", device: "w", collapse: "x") { $0.coalesceWindowMilliseconds = 5_000 }
        #expect(pending(harness, "scheduled")?.cause == .scheduled)
        #expect(pending(harness, "scheduled")?.untilMilliseconds == now + 60_000)
        #expect(pending(harness, "window")?.cause == .coalescing)
        let end = pending(harness, "window")?.untilMilliseconds ?? 0
        #expect((now + 5_000...now + 5_001).contains(end))
        harness.push("refused", device: "r")
        harness.answer(harness.begin()!, .tooManyRequests, retryAfter: 3_000)
        let refused = pending(harness, "refused")
        #expect(refused?.cause == .retrying)
        #expect((refused?.untilMilliseconds ?? 0) >= now + 3_000)
        #expect(refused?.progress.attempts == 1 && refused?.progress.failures == 1)
    }

    @Test func waitsForTheDevice() {
        var harness = DeliveryHarness { $0.inFlightPerDevice = 1 }
        harness.offline("h")
        harness.push("held", device: "h") { $0.delivery = .holdWhileOffline }
        #expect(pending(harness, "held")?.cause == .held(.offline))
        harness.push("first", device: "l")
        harness.push("second", device: "l")
        _ = harness.begin()
        #expect(harness.begin() == nil)
        #expect(pending(harness, "second")?.cause == .deviceLimited)
        harness.push("receipt", device: "c") { $0.delivery = .confirm }
        harness.accept(harness.begin()!)
        let confirming = pending(harness, "receipt")
        #expect(confirming?.cause == .confirming)
        #expect(confirming?.progress.isAccepted == true)
        #expect((confirming?.untilMilliseconds ?? 0) > harness.now.wallMilliseconds)
    }

    @Test func stoppedTopicNamesCauseAndProbe() {
        var harness = DeliveryHarness()
        harness.push("a", device: "a")
        harness.push("b", device: "b")
        #expect(harness.machine.stop(ofTopic: 0, at: harness.now) == nil)
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(harness.begin() == nil)
        for name in ["a", "b"] {
            let waiting = pending(harness, name)
            #expect(waiting?.cause == .topicStopped(.refusal))
            #expect((waiting?.untilMilliseconds ?? 0) > harness.now.wallMilliseconds)
        }
        #expect(harness.machine.stop(ofTopic: 0, at: harness.now)?.cause == .topicStopped(.refusal))
        #expect(harness.machine.stop(ofTopic: 7, at: harness.now) == nil)
        harness.pass(milliseconds: 900_000)
        #expect(harness.machine.stop(ofTopic: 0, at: harness.now)?.probe == nil, "a probe is under way")
    }

    @Test func pausedTopicIsNotAStoppedOne() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.machine.pause(topics: [0], at: harness.now)
        harness.drain()
        #expect(pending(harness, "a")?.cause == .topicPaused)
        #expect(pending(harness, "a")?.untilMilliseconds == nil)
        #expect(harness.machine.stop(ofTopic: 0, at: harness.now)?.cause == .topicPaused)
        harness.machine.resume(topics: [0], at: harness.now)
        harness.drain()
        #expect(pending(harness, "a")?.cause == .stream)
        #expect(harness.machine.stop(ofTopic: 0, at: harness.now) == nil)
    }

    @Test func storedPushHasTheTimeOfItsReturn() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let now = harness.now.wallMilliseconds
        harness.push("later") { $0.deliverAtMilliseconds = now + 7_200_000 }
        let asked = pending(harness, "later")
        #expect(asked?.isStoreAsked == true)
        #expect(asked?.storedDueMilliseconds == (now + 7_200_000) / 1000 * 1000)
        harness.allStored()
        #expect(pending(harness, "later")?.isStoreAsked == false)
        harness.machine.suspend(pool: 1, at: harness.now)
        harness.push("pool", device: "p") { $0.pool = 1 }
        #expect(pending(harness, "pool")?.cause == .credentialUnavailable)
        #expect(pending(harness, "pool")?.untilMilliseconds == nil)
    }
}
