import SluiceModel
import Testing

@testable import DeliveryCore

/// Pushes of a partition whose uncommitted records are still being read.
@Suite struct DeliveryCatchUpTests {
    /// A harness whose partition 0 catches up.
    private func harness() -> DeliveryHarness {
        var harness = DeliveryHarness()
        harness.machine.beginCatchUp(partition: 0)
        return harness
    }

    private func endCatchUp(_ harness: inout DeliveryHarness) {
        harness.machine.endCatchUp(partition: 0, at: harness.now)
        harness.drain()
    }

    @Test func pushesAreSentInTheirOrderAfterTheCatchUp() {
        var harness = harness()
        for name in ["a", "b", "c"] { harness.push(name, device: name) }
        #expect(harness.queue.isEmpty)
        #expect(harness.machine.pending(0, at: harness.now)?.cause == .catchingUp)
        endCatchUp(&harness)
        #expect(harness.queue.map { harness.names[$0] } == ["a", "b", "c"])
        harness.push("d", device: "d")
        #expect(harness.queue.count == 4)
        endCatchUp(&harness)
        #expect(harness.queue.count == 4, "the end comes once")
    }

    /// A push that takes the place of another partition's waiting push waits for its own partition.
    @Test func successorOfAWaitingPushWaitsForItsPartition() {
        var harness = harness()
        harness.push("a", collapse: "x") { $0.partition = 1 }
        #expect(harness.queue.count == 1)
        harness.push("b", collapse: "x")
        #expect(harness.ended == ["a superseded by b"])
        #expect(harness.queue.isEmpty)
        endCatchUp(&harness)
        #expect(harness.queue.count == 1)
    }

    /// Ends of a newer push before the catch-up's end.
    enum End: String, CaseIterable {
        case expired
        case cancelled
        case erased = "cancelled deviceErased"
    }

    /// The device has the newer push already, if it was sent before the crash.
    @Test(arguments: End.allCases) func newerPushThatHasEndedEndsTheOlder(end: End) {
        var harness = harness()
        harness.push("a", collapse: "x")
        harness.push("b", collapse: "x") {
            if end == .expired { $0.expirationMilliseconds = $0.createdMilliseconds - 1 }
        }
        if end == .cancelled { harness.cancel("b") }
        if end == .erased { _ = harness.machine.erase(DeliveryHarness.device("d"), at: harness.now) }
        harness.drain()
        endCatchUp(&harness)
        #expect(harness.ended == ["a superseded by b", "b \(end.rawValue)"])
        #expect(harness.queue.isEmpty)
    }

    /// A newer push that was complete before gets no second outcome.
    @Test func completePushEndsTheOlderOnly() {
        var harness = harness()
        harness.push("a", collapse: "x")
        harness.push("other", collapse: "y")
        let newer = harness.facts("b", collapse: "x")
        harness.push("c", collapse: "z")
        let older = harness.facts("e", collapse: "z") { $0.offset = 0 }
        let elsewhere = harness.facts("f", collapse: "y") { ($0.partition, $0.offset) = (1, 9) }
        let update = harness.facts("g", collapse: "w") { $0.offset = 9 }
        harness.push("end", collapse: "w") { $0.isFinal = true }
        for facts in [newer, older, elsewhere, update] {
            harness.machine.outdate(by: facts, at: harness.now)
            harness.drain()
        }
        #expect(harness.ended == ["a superseded"])
        endCatchUp(&harness)
        #expect(harness.queue.map { harness.names[$0] } == ["other", "c", "end"])
    }

    @Test func otherPartitionsAreNotDelayed() {
        var harness = harness()
        harness.push("a") { $0.partition = 1 }
        #expect(harness.queue.count == 1)
    }

    /// The owner ends each catch-up. No clock of the machine does.
    @Test func timeAloneEndsNoCatchUp() {
        var harness = harness()
        harness.push("a")
        harness.pass(milliseconds: 20_000)
        #expect(harness.queue.isEmpty && harness.state("a") == .coalescing)
        endCatchUp(&harness)
        #expect(harness.queue.count == 1)
    }

    /// A stop, a revocation and a lost partition end the waits at once.
    @Test(arguments: [UInt16(0), nil]) func abandonmentGivesWaitingPushesBack(partition: UInt16?) {
        var harness = harness()
        harness.push("a")
        harness.machine.abandon(partition: partition, at: harness.now)
        harness.drain()
        #expect(harness.ended == ["a dropped"])
        harness.machine.end(partition: 0)
        harness.machine.begin(partition: 0)
        guard partition != nil else { return }
        harness.push("b")
        #expect(harness.queue.count == 1, "the next partition in the slot begins without a catch-up")
    }

    @Test func coalesceWindowGoesOnAfterTheCatchUp() {
        var harness = harness()
        harness.push("a", collapse: "x") { $0.coalesceWindowMilliseconds = 2_000 }
        endCatchUp(&harness)
        #expect(harness.queue.isEmpty)
        harness.pass(milliseconds: 2_100)
        #expect(harness.queue.count == 1)
    }
}
