import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryStoreTests {
    private func offsetsDone(_ harness: borrowing DeliveryHarness) -> [Int64] {
        harness.others.compactMap { if case .offsetDone(_, let offset) = $0 { offset } else { nil } }
    }

    /// A harness with one push, "a", that is scheduled in an hour and was handed to the store.
    private func stored(_ name: String = "a", durable: Bool = true) -> DeliveryHarness {
        var harness = DeliveryHarness { $0.storeIsDurable = durable }
        harness.push(name, collapse: "x") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 3_600_000 }
        return harness
    }

    @Test func onlyLongWaitsAreStored() {
        var harness = DeliveryHarness {
            $0.storeAfterMilliseconds = 30_000
            $0.inFlightPerDevice = 2
        }
        let device = DeliveryHarness.device("off")
        _ = harness.machine.offline(device, occurred: .at(1), partition: 0, at: harness.now)
        harness.push("waits")
        #expect(harness.stores.isEmpty)
        harness.push("soon") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 30_000 }
        #expect(harness.stores.isEmpty, "30 seconds")
        harness.push("coalesces", collapse: "x") { $0.coalesceWindowMilliseconds = 10_000 }
        #expect(harness.stores.isEmpty, "a window")
        harness.answer(harness.begin()!, .internalServerError)
        #expect(harness.stores.isEmpty, "a short back-off")
        harness.push("later") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 30_001 }
        #expect(harness.stores.count == 1, "more than 30 seconds")
        harness.push("held", device: "off") { $0.delivery = .holdWhileOffline }
        #expect(harness.stores.count == 2, "the device's return is unknown")
        harness.push("asked for patience", device: "e")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 31_000)
        #expect(harness.stores.count == 3)
        harness.push("receipt", device: "e") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 31
        }
        harness.accept(harness.begin()!)
        #expect(harness.stores.count == 4)
        harness.push("suspended", device: "f")
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(harness.stores.count == 5)
        #expect(harness.machine.milestones.stored == 5)
        let versions = harness.stores.map(\.version)
        #expect(versions == versions.sorted() && Set(versions).count == 5, "versions grow")
    }

    @Test func reliefStoresPushesThatHoldTheWatermark() {
        var harness = DeliveryHarness {
            $0.storeAfterMilliseconds = 30_000
            $0.storeIsDurable = true
        }
        let soon = { (facts: inout PushFacts) in
            facts.deliverAtMilliseconds = facts.createdMilliseconds + 10_000
        }
        harness.push("flies")
        let flying = harness.begin()!
        harness.push("fails")
        harness.answer(harness.begin()!, .internalServerError)
        harness.push("waits")
        harness.push("soon", soon)
        harness.push("elsewhere") {
            soon(&$0)
            $0.partition = 1
        }
        harness.push("above", soon)
        harness.machine.relieve(partition: 0, below: 5, at: harness.now)
        harness.drain()
        #expect(Set(harness.stored.keys) == ["fails", "soon"])
        harness.allStored()
        #expect(offsetsDone(harness).sorted() == [1, 3])
        harness.machine.relieve(partition: 0, below: 5, at: harness.now)
        harness.drain()
        #expect(harness.stores.count == 2, "the store has them")
        harness.accept(flying)
        harness.pass(milliseconds: 10_000)
        #expect(harness.waiting.contains("soon"), "it is sent at its time, as without the relief")
    }

    @Test func reliefWithoutDurableStoreStoresNothing() {
        var harness = DeliveryHarness { $0.storeAfterMilliseconds = 30_000 }
        harness.push("soon") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 10_000 }
        harness.machine.relieve(partition: 0, below: 100, at: harness.now)
        harness.drain()
        #expect(harness.stores.isEmpty)
    }

    @Test func durablePushCompletesItsOffsetOnce() {
        var harness = stored()
        let (slot, version) = harness.stores[0]
        #expect(harness.machine.info(slot).progress.isStored)
        #expect(!harness.machine.info(slot).progress.isOffsetDone)
        #expect(offsetsDone(harness).isEmpty)
        for _ in 0..<2 {
            harness.machine.stored(slot, version: version, at: harness.now)
            harness.drain()
        }
        #expect(offsetsDone(harness) == [harness.machine.info(slot).offset])
        #expect(harness.machine.info(slot).progress.isOffsetDone)
        harness.cancel("a")
        #expect(harness.ended == ["a cancelled"])
        #expect(offsetsDone(harness).count == 1)
    }

    @Test func nonDurableStoreCompletesNoOffset() {
        var harness = stored(durable: false)
        let (slot, version) = harness.stores[0]
        harness.machine.stored(slot, version: version, at: harness.now)
        harness.drain()
        #expect(offsetsDone(harness).isEmpty)
        #expect(!harness.machine.info(slot).progress.isOffsetDone)
    }

    @Test func failedStoreRequestIsRepeatedWithinASecond() {
        var harness = stored()
        let (slot, version) = harness.stores[0]
        harness.machine.storeFailed(slot, version: version)
        harness.drain()
        #expect(harness.stores.count == 1)
        harness.pass(milliseconds: 1000)
        #expect(harness.stores.count == 2)
        let again = harness.stores[1]
        #expect(again.slot == slot && again.version > version)
        // The first request succeeds after all, but only the second confirms the stored version.
        harness.machine.stored(slot, version: version, at: harness.now)
        harness.drain()
        #expect(offsetsDone(harness).isEmpty)
        harness.machine.stored(slot, version: again.version, at: harness.now)
        harness.drain()
        #expect(offsetsDone(harness).count == 1)
        harness.machine.storeFailed(slot, version: version)
        harness.pass(milliseconds: 2000)
        #expect(harness.stores.count == 2, "a late failure of an old version changes nothing")
    }

    @Test func replacedPushReportsThatItIsStored() {
        var harness = stored()
        let (slot, version) = harness.stores[0]
        let facts = harness.facts("b", collapse: "x") {
            $0.offset = 50
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 3_600_000
        }
        let admission = harness.machine.admit(facts, at: harness.now)
        guard case .replaced(slot, let old) = admission else {
            Issue.record("the older push isn't replaced: \(admission)")
            return
        }
        harness.note(admission, "b")
        #expect(old.progress.isStored && old.progress.storeVersion == version && !old.progress.isOffsetDone)
        #expect(harness.stores.count == 2, "the newer push has to be stored as well")
        harness.machine.stored(slot, version: version, at: harness.now)
        harness.drain()
        #expect(offsetsDone(harness).isEmpty, "the older version was stored")
        harness.machine.stored(slot, version: harness.stores[1].version, at: harness.now)
        harness.drain()
        #expect(offsetsDone(harness) == [50])
    }

    @Test func lateStoreAnswersForEndedPushAreIgnored() {
        var harness = stored()
        let (slot, version) = harness.stores[0]
        let result = harness.machine.cancel(
            DeliveryHarness.device("d"), .notificationKey(DeliveryHarness.key("a")), at: harness.now)
        #expect(result == CancelResult(cancelled: 1))
        // Ended but not released: its progress shows the owner that the store has it.
        #expect(harness.machine.info(slot).progress.isStored)
        harness.machine.stored(slot, version: version, at: harness.now)
        harness.machine.storeFailed(slot, version: version)
        harness.drain()
        harness.push("another")
        #expect(harness.state("another") == .waiting)
        harness.machine.stored(slot, version: version, at: harness.now)
        harness.machine.storeFailed(slot, version: version)
        harness.machine.stored(63, version: version, at: harness.now)
        harness.pass(milliseconds: 2000)
        #expect(offsetsDone(harness).isEmpty)
        #expect(harness.stores.count == 1)
    }

    @Test func storeVersionsContinueAfterRestart() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        var progress = ItemProgress()
        progress.isStored = true
        progress.storeVersion = 1000
        let facts = harness.facts("a") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 3_600_000 }
        progress.dueMilliseconds = facts.deliverAtMilliseconds
        let admission = harness.machine.restore(facts, progress, at: harness.now)
        harness.note(admission, "a")
        guard case .placed(let slot) = admission else {
            Issue.record("\(admission)")
            return
        }
        #expect(harness.stores.isEmpty, "the stored version is current")
        // If the store loses the item, the next write must have a newer version.
        harness.machine.storeFailed(slot, version: 1000)
        harness.pass(milliseconds: 1000)
        #expect(harness.stores.map(\.version) == [1001])
    }
}
