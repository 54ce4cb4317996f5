import SluiceModel
import Testing

@testable import DeliveryCore

/// The pool of a single credential is down while the others work.
struct PoolAvailabilityTests {
    private func harness() -> DeliveryHarness { DeliveryHarness { $0.storeIsDurable = true } }

    @Test func itemsOfUnavailablePoolAreStored() {
        var harness = harness()
        harness.push("a") { $0.pool = 1 }
        harness.push("b", device: "e") { $0.topic = 1 }
        #expect(harness.waiting == ["a", "b"])
        harness.machine.suspend(pool: 1, at: harness.now)
        harness.drain()
        #expect(harness.waiting == ["b"])
        #expect(harness.state("a") == .poolUnavailable)
        harness.push("c", device: "f") { $0.pool = 1 }
        #expect(harness.state("c") == .poolUnavailable)
        #expect(harness.stores.count == 2)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(Set(harness.ended) == ["a evicted", "c evicted"])
        let kept = harness.stored["a"]!
        #expect(kept.wait == .suspended && kept.dueMilliseconds == kept.expiryMilliseconds)
        #expect(harness.others.contains(.suspended(topic: 0)))
        harness.machine.resume(pool: 1, at: harness.now)
        harness.drain()
        #expect(harness.others.contains(.resumed(topic: 0)))
        harness.accept(harness.begin()!)
        #expect(harness.ended.contains("b accepted"))
    }

    /// A push with two reasons to wait resumes only after both have ended.
    @Test func topicCircuitStaysOpenWhenItsPoolRecovers() {
        var harness = harness()
        harness.push("a") { $0.pool = 1 }
        harness.push("b", device: "e") { $0.pool = 1 }
        harness.answer(harness.begin()!, .topicDisallowed)
        harness.machine.suspend(pool: 1, at: harness.now)
        harness.machine.resume(pool: 1, at: harness.now)
        harness.drain()
        #expect(!harness.others.contains(.resumed(topic: 0)))
        harness.pass(milliseconds: 900_000)
        harness.accept(harness.begin()!)
        #expect(harness.others.contains(.resumed(topic: 0)))
    }

    @Test func waitingPushesResumeWhenTheirPoolRecovers() {
        var harness = harness()
        harness.machine.suspend(pool: 1, at: harness.now)
        for name in ["a", "b", "c"] { harness.push(name, collapse: name) { $0.pool = 1 } }
        harness.push("b2", collapse: "b") { $0.pool = 1 }
        #expect(harness.ended == ["b superseded by b2"])
        #expect(harness.state("b2") == .poolUnavailable)
        harness.machine.resume(pool: 1, at: harness.now)
        harness.drain()
        #expect(Set(harness.waiting) == ["a", "b2", "c"])
        let isStalled = harness.machine.isUnavailable(1)
        #expect(!isStalled)
        harness.machine.resume(pool: 1, at: harness.now)
        harness.machine.resume(pool: 7, at: harness.now)
        harness.drain()
        #expect(harness.waiting.count == 3)
    }

    @Test func failedAttemptOnUnavailablePoolWaits() {
        var harness = harness()
        harness.push("a") { $0.pool = 1 }
        let slot = harness.begin()!
        harness.machine.suspend(pool: 1, at: harness.now)
        harness.fail(slot, processed: false)
        #expect(harness.state("a") == .poolUnavailable)
        #expect(harness.cancel("a") == CancelResult(cancelled: 1))
        #expect(harness.ended == ["a cancelled"])
        let stalled = harness.machine.milestones[.poolUnavailable]
        #expect(stalled == 0)
    }
}
