import SluiceModel
import Testing

@testable import DeliveryCore

/// Erasure of a device's data.
struct ErasureTests {
    @Test func allPendingItemsEndAndThePresenceIsForgotten() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("d")
        _ = harness.machine.offline(
            device, occurred: ReportTime(milliseconds: harness.now.wallMilliseconds, offset: 0), partition: 0,
            at: harness.now)
        harness.push("held") { $0.delivery = .holdWhileOffline }
        harness.push("waits")
        let later = harness.now.wallMilliseconds + 60_000
        harness.push("scheduled") { $0.deliverAtMilliseconds = later }
        // An app that registers the token again keeps nothing, unlike with `unregistered`.
        harness.push("registered") { $0.registeredAtMilliseconds = later }
        harness.push("other", device: "e")
        let knew = harness.machine.knowsPresence(of: device)
        #expect(knew)
        let origin = RecordOrigin(partition: 0, offset: 100)
        let count = harness.machine.erase(device, origin: origin, at: harness.now)
        #expect(count == 4)
        harness.drain()
        #expect(
            Set(harness.ended)
                == Set(["held", "waits", "scheduled", "registered"].map { "\($0) cancelled deviceErased" }))
        let knows = harness.machine.knowsPresence(of: device)
        #expect(!knows && harness.waiting == ["other"])
        #expect(harness.machine.checkInvariants() == nil)
    }

    @Test func pushInFlightEndsWithItsAttempt() {
        var harness = DeliveryHarness()
        harness.push("a")
        let slot = harness.begin()!
        let count = harness.machine.erase(DeliveryHarness.device("d"), at: harness.now)
        #expect(count == 0)
        harness.answer(slot, .serviceUnavailable)
        #expect(harness.ended == ["a cancelled"])
        harness.push("b")
        let next = harness.begin()!
        _ = harness.machine.erase(DeliveryHarness.device("d"), at: harness.now)
        harness.accept(next)
        #expect(harness.ended == ["a cancelled", "b accepted"])
    }

    @Test func pushInFlightOfARevokedPartitionIsLeftToItsNextWorker() {
        var harness = DeliveryHarness()
        harness.push("a")
        let slot = harness.begin()!
        harness.machine.abandon(partition: 0, at: harness.now)
        harness.drain()
        _ = harness.machine.erase(DeliveryHarness.device("d"), at: harness.now)
        harness.drain()
        #expect(!harness.others.contains { if case .noteErasure = $0 { true } else { false } })
        harness.answer(slot, .serviceUnavailable)
        #expect(harness.ended == ["a dropped"])
    }

    /// Later records of the event's partition are not concerned, as with a cancel.
    @Test func laterRecordsStay() {
        var harness = DeliveryHarness()
        harness.push("before") { $0.offset = 4 }
        harness.push("after") { $0.offset = 6 }
        let origin = RecordOrigin(partition: 0, offset: 5)
        let count = harness.machine.erase(DeliveryHarness.device("d"), origin: origin, at: harness.now)
        #expect(count == 1)
        harness.drain()
        #expect(harness.waiting == ["after"])
    }

    @Test func unknownDeviceHasNothing() {
        var harness = DeliveryHarness()
        let count = harness.machine.erase(DeliveryHarness.device("x"), at: harness.now)
        #expect(count == 0)
        #expect(harness.machine.checkInvariants() == nil)
    }

    @Test func changesFromAndToTheDeviceAreForgotten() {
        var residency = DeviceResidency(
            limits: ResidencyLimits(
                hasStore: true, capacity: 64, restored: 16, room: 32, itemsPerLoad: 16))
        let devices = (0..<4).map { DeviceKey(high: 1, low: UInt64($0) + 1) }
        let origin = RecordOrigin(partition: 0, offset: 0)
        func remember(_ old: Int, _ new: Int) -> Int? {
            residency.remember(devices[old], to: devices[new], occurredMilliseconds: 5, origin: origin)
        }
        let numbers = [remember(0, 1), remember(1, 2), remember(3, 0)]
        let forgotten = residency.forgetChanges(of: devices[1])
        #expect(Set(forgotten) == Set([numbers[0], numbers[1]].compactMap { $0 }))
        #expect(residency.change(of: devices[0], after: 0) == nil)
        #expect(residency.change(of: devices[1], after: 0) == nil)
        #expect(residency.change(of: devices[3], after: 0) != nil)
        let again = residency.forgetChanges(of: devices[1])
        #expect(again == [])
        let number = remember(0, 1)
        #expect(number != nil)
        #expect(residency.change(of: devices[0], after: 0)?.to == devices[1])
    }
}
