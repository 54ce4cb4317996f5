import SluiceModel
import Testing

@testable import DeliveryCore

/// Topics that an operator has paused.
struct PausedTopicTests {
    private func harness() -> DeliveryHarness { DeliveryHarness { $0.storeIsDurable = true } }

    @Test func waitingPushesLeaveTheQueueAndReturnInOrder() {
        var harness = harness()
        harness.push("a")
        harness.push("b", device: "e") { $0.topic = 1 }
        harness.push("c", device: "f")
        harness.machine.pause(topics: [0], at: harness.now)
        harness.drain()
        #expect(harness.waiting == ["b"])
        #expect(harness.state("a") == .topicCircuitOpen && harness.machine.isPaused(topic: 0))
        #expect(harness.machine.checkInvariants() == nil)
        #expect(harness.others.contains(.suspended(topic: 0)))
        harness.push("d", device: "g")
        #expect(harness.state("d") == .topicCircuitOpen)
        // Without a clock's help: nothing probes.
        harness.pass(milliseconds: 3_600_000)
        #expect(harness.waiting == ["b"])
        harness.machine.resume(topics: [0], at: harness.now)
        harness.drain()
        #expect(harness.others.contains(.resumed(topic: 0)) && !harness.machine.isPaused(topic: 0))
        #expect(harness.machine.checkInvariants() == nil)
    }

    @Test func pausedPushesAreStoredAndExpire() {
        var harness = harness()
        harness.machine.pause(topics: [0], at: harness.now)
        harness.push("a")
        let soon = harness.now.wallMilliseconds + 2_000
        harness.push("b", device: "e") { $0.expirationMilliseconds = soon }
        harness.allStored()
        harness.pass(milliseconds: 1_000)
        #expect(harness.ended.contains("a evicted"))
        #expect(harness.stored["a"]!.wait == .suspended)
        harness.pass(milliseconds: 2_500)
        #expect(harness.ended.contains("b expired"))
    }

    /// A push in flight ends, and a refused one waits until the topic resumes.
    @Test func pushInFlightIsNotRetriedWhilePaused() {
        var harness = harness()
        harness.push("a")
        let slot = harness.begin()!
        harness.machine.pause(topics: [0], at: harness.now)
        harness.answer(slot, .serviceUnavailable)
        harness.pass(milliseconds: 600_000)
        #expect(harness.waiting == [] && harness.state("a") == .topicCircuitOpen)
        harness.machine.resume(topics: [0], at: harness.now)
        harness.drain()
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted"])
    }

    /// APNs stops the topic and recovers, before or after the operator resumes it.
    @Test(arguments: [true, false]) func pauseAndStopEndIndependently(resumesFirst: Bool) {
        var harness = harness()
        harness.push("a")
        harness.push("b", device: "e")
        let (first, second) = (harness.begin()!, harness.begin()!)
        harness.machine.pause(topics: [0], at: harness.now)
        harness.answer(first, .topicDisallowed)
        #expect(harness.machine.stoppedTopics == 1 && harness.machine.pausedTopics.count == 1)
        #expect(harness.machine.checkInvariants() == nil)
        if resumesFirst {
            harness.machine.resume(topics: [0], at: harness.now)
            harness.drain()
            #expect(!harness.others.contains(.resumed(topic: 0)) && harness.waiting == [])
            harness.accept(second)
        } else {
            harness.accept(second)
            #expect(harness.machine.stoppedTopics == 0)
            #expect(!harness.others.contains(.resumed(topic: 0)) && harness.waiting == [])
            harness.machine.resume(topics: [0], at: harness.now)
            harness.drain()
        }
        #expect(harness.others.contains(.resumed(topic: 0)))
        #expect(harness.machine.checkInvariants() == nil)
        harness.pass(milliseconds: 1)
        harness.accept(harness.begin()!)
        #expect(Set(harness.ended) == ["a accepted", "b accepted"])
    }

    /// The probe of a stopped topic waits in the queue when the topic is paused.
    @Test func probeLeavesTheQueue() {
        var harness = harness()
        harness.push("a")
        harness.answer(harness.begin()!, .topicDisallowed)
        harness.pass(milliseconds: 900_000)
        #expect(harness.waiting == ["a"] && harness.machine.circuit(0) == .probing)
        harness.machine.pause(topics: [0], at: harness.now)
        harness.drain()
        harness.pass(milliseconds: 900_000)
        #expect(harness.waiting == [])
        #expect(harness.machine.checkInvariants() == nil)
        harness.machine.resume(topics: [0], at: harness.now)
        harness.pass(milliseconds: 900_000)
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted"])
    }

    @Test func topicMayBePausedBeforeItsFirstPush() {
        var harness = harness()
        harness.machine.pause(topics: [3, 3], at: harness.now)
        harness.machine.pause(topics: [3], at: harness.now)
        harness.push("a") { $0.topic = 3 }
        #expect(harness.state("a") == .topicCircuitOpen)
        harness.machine.resume(topics: [3, 3, 9], at: harness.now)
        harness.drain()
        #expect(harness.waiting == ["a"])
        #expect(harness.machine.checkInvariants() == nil)
    }
}
