import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryIdentityTests {
    @Test func acceptedPushEndsAndFreesItsSlot() {
        var harness = DeliveryHarness()
        harness.push("a")
        #expect(harness.waiting == ["a"])
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted"])
        #expect(harness.machine.count == 0)
        #expect(harness.machine.milestones.isBalanced)
    }

    @Test func newerPushReplacesTheWaitingPush() {
        var harness = DeliveryHarness()
        harness.push("old", collapse: "score")
        harness.push("other")
        harness.push("new", collapse: "score")
        #expect(harness.waiting == ["new", "other"])
        #expect(harness.ended == ["old superseded by new"])
        #expect(harness.others.contains { if case .requeue = $0 { true } else { false } })
    }

    @Test func pushesOfDifferentIdentitiesAreNotSuperseded() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.push("b")
        harness.push("c", collapse: "x")
        harness.push("d", collapse: "y")
        harness.push("e", collapse: "x") { $0.topic = 1 }
        #expect(harness.waiting == ["a", "b", "c", "d", "e"])
    }

    @Test func newerPushWaitsForOlderPushInFlight() {
        var harness = DeliveryHarness()
        harness.push("1", collapse: "score")
        let slot = harness.begin()!
        for name in ["2", "3", "4"] { harness.push(name, collapse: "score") }
        #expect(harness.queue.isEmpty)
        #expect(harness.ended == ["2 superseded by 3", "3 superseded by 4"])
        harness.accept(slot)
        #expect(harness.waiting == ["4"])
    }

    @Test func failedPushIsSupersededAndItsSuccessorWaits() {
        for reason in [Reason.internalServerError, .invalidProviderToken] {
            var harness = DeliveryHarness()
            harness.push("1", collapse: "score")
            let slot = harness.begin()!
            harness.push("2", collapse: "score")
            harness.answer(slot, reason)
            #expect(harness.ended == ["1 superseded by 2"])
            #expect(harness.queue.isEmpty, "\(reason): the server's pause holds for the successor")
            harness.pass(milliseconds: 120_000)
            #expect(harness.waiting == ["2"])
        }
    }

    @Test func successorDoesNotExtendTheCoalesceWindow() {
        var harness = DeliveryHarness()
        harness.push("1", collapse: "score") { $0.coalesceWindowMilliseconds = 1000 }
        #expect(harness.state("1") == .coalescing)
        harness.pass(milliseconds: 900)
        harness.push("2", collapse: "score") { $0.coalesceWindowMilliseconds = 1000 }
        #expect(harness.state("2") == .coalescing)
        harness.pass(milliseconds: 101)
        #expect(harness.waiting == ["2"])
    }

    @Test func repeatedRecordIsRecognisedAndOlderRecordIsObsolete() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("first") { $0.offset = 9 }
        let old = harness.facts("old", collapse: "score") { $0.offset = 5 }
        var progress = ItemProgress()
        progress.isStored = true
        progress.isOffsetDone = true
        progress.storeVersion = 7
        let facts = harness.facts("new", collapse: "score") { $0.offset = 8 }
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "new")
        harness.note(harness.machine.admit(old, at: harness.now), "old")
        #expect(harness.ended == ["old superseded by new"])
        guard case .repeated(_, isDurable: true) = harness.machine.admit(facts, at: harness.now) else {
            Issue.record("the record isn't recognised")
            return
        }
        #expect(harness.machine.milestones.isBalanced)
    }

    @Test func deviceLimitsBoundPendingAndInFlightPushes() {
        var harness = DeliveryHarness {
            $0.pendingPerDevice = 5
            $0.inFlightPerDevice = 2
        }
        for index in 0..<6 { harness.push("\(index)") }
        #expect(harness.ended == ["5 undeliverable deviceLimit"])
        let first = harness.begin()!
        let second = harness.begin()!
        #expect(harness.begin() == nil)
        #expect(harness.state("2") == .deviceLimited)
        harness.accept(first)
        #expect(harness.waiting == ["3", "4", "2"])
        harness.accept(second)
        harness.push("another", device: "e")
        #expect(harness.waiting.last == "another")
    }

    @Test func pushThatMovesToAFullDeviceIsRefused() {
        var harness = DeliveryHarness {
            $0.capacity = 8_192
            $0.pendingPerDevice = 8_192
        }
        for index in 0..<4_096 {
            let facts = harness.facts("\(index)", device: "new", collapse: "\(index)")
            guard case .placed(let slot) = harness.machine.admit(facts, at: harness.now) else { continue }
            harness.names[slot] = "\(index)"
        }
        harness.push("moves") { $0.offset = 5_000 }
        harness.push("supersedes", collapse: "7") { $0.offset = 5_001 }
        _ = harness.machine.tokenChanged(
            DeliveryHarness.device("d"), to: DeliveryHarness.device("new"), isElsewhere: false,
            at: harness.now)
        harness.drain()
        #expect(harness.ended == ["7 superseded by supersedes", "moves undeliverable deviceLimit"])
    }

    @Test func manyPushesOfOneIdentitySendOnlyTwo() {
        var harness = DeliveryHarness()
        harness.push("0", collapse: "score")
        let slot = harness.begin()!
        let (pushes, sent) = (2000, 2)
        for index in 1..<pushes { harness.push("\(index)", collapse: "score") }
        #expect(harness.machine.count == 2)
        harness.accept(slot)
        harness.accept(harness.begin()!)
        #expect(harness.machine.milestones.sent == sent)
        #expect(harness.machine.milestones[.superseded] == pushes - sent)
    }
}
