import SluiceModel
import Testing

@testable import DeliveryCore

/// Items that wait for their device, for a moving item, or for two times.
struct HeldItemTests {
    /// Another worker receives the device's events from here on.
    @Test func itemHeldByTheEventsOfARevokedPartitionIsSent() {
        var harness = DeliveryHarness()
        harness.offline()
        harness.push("a") {
            $0.partition = 1
            $0.delivery = .holdWhileOffline
        }
        #expect(harness.state("a") == .held)
        harness.machine.abandon(partition: 0, at: harness.now)
        harness.drain()
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["a"])
    }

    @Test func storedItemStaysInMemoryForAnItemThatMovesToItsDevice() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.offline("new")
        harness.push("a", device: "new", collapse: "x") { $0.delivery = .holdWhileOffline }
        harness.push("b", device: "old", collapse: "x")
        let flying = harness.begin()!
        let moving = harness.machine.tokenChanged(
            DeliveryHarness.device("old"), to: DeliveryHarness.device("new"), isElsewhere: false,
            at: harness.now)
        harness.drain()
        #expect(moving == 1)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == [])
        harness.fail(flying, processed: false)
        #expect(harness.ended == ["a superseded by b"])
    }

    /// The store keeps the scheduled time alone.
    @Test func scheduledItemWithALongerCoalesceWindowStaysInMemory() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a", collapse: "x") {
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 60_000
            $0.coalesceWindowMilliseconds = 120_000
        }
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == [])
        #expect(harness.state("a") == .scheduled)
        harness.pass(milliseconds: 60_000)
        #expect(harness.state("a") == .coalescing)
    }
}
