import SluiceModel
import Testing

@testable import DeliveryCore

/// Broadcasts of one channel, which are sent in their order.
struct OrderedPushTests {
    private func harness(_ names: String...) -> DeliveryHarness {
        var harness = DeliveryHarness()
        for name in names { harness.push(name) { $0.isOrdered = true } }
        return harness
    }

    @Test func nextBroadcastOfAChannelIsSentWhenTheOneBeforeHasEnded() {
        var harness = harness("a", "b", "c")
        #expect(harness.waiting == ["a"])
        #expect(harness.state("b") == .deviceLimited)
        let first = harness.begin()!
        #expect(harness.waiting == [])
        harness.accept(first)
        #expect(harness.waiting == ["b"])
        harness.accept(harness.begin()!)
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted", "b accepted", "c accepted"])
    }

    @Test func broadcastsWaitWhileTheOneBeforeIsRetried() {
        var harness = harness("a", "b")
        harness.answer(harness.begin()!, .serviceUnavailable)
        #expect(harness.state("a") == .retrying)
        #expect(harness.state("b") == .deviceLimited)
        harness.pass(milliseconds: 5_000)
        #expect(harness.waiting == ["a"])
        harness.accept(harness.begin()!)
        #expect(harness.waiting == ["b"])
    }

    /// The refusal of a key may be mistaken. Broadcasts can't wait with their topic.
    @Test func broadcastOutlivesThreeRefusalsOfAKey() {
        var harness = harness("a", "b")
        for _ in 0..<3 {
            harness.answer(harness.begin()!, .invalidProviderToken)
            #expect(harness.state("a") == .retrying)
            harness.pass(milliseconds: 60_000)
        }
        harness.answer(harness.begin()!, .invalidProviderToken)
        #expect(harness.ended == ["a rejected"])
        #expect(harness.waiting == ["b"])
    }

    @Test func rejectedBroadcastLetsTheNextLeave() {
        var harness = harness("a", "b")
        harness.answer(harness.begin()!, .channelNotRegistered)
        #expect(harness.ended == ["a rejected"])
        #expect(harness.waiting == ["b"])
    }

    @Test func expiredBroadcastLetsTheNextLeaveWithinASecond() {
        var harness = DeliveryHarness()
        let now = harness.now.wallMilliseconds
        harness.push("a") {
            $0.isOrdered = true
            $0.expirationMilliseconds = now + 3_000
        }
        harness.push("b") { $0.isOrdered = true }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 2_500)
        harness.pass(milliseconds: 3_000)
        harness.pass(milliseconds: 1_100)
        if harness.ended.isEmpty { Issue.record("the broadcast has not expired") }
        #expect(harness.waiting == ["b"])
    }

    @Test func broadcastForLaterHoldsUpNone() {
        var harness = DeliveryHarness()
        let now = harness.now.wallMilliseconds
        harness.push("later") {
            $0.isOrdered = true
            $0.deliverAtMilliseconds = now + 60_000
        }
        harness.push("now") { $0.isOrdered = true }
        #expect(harness.state("later") == .scheduled)
        #expect(harness.waiting == ["now"])
    }

    @Test func broadcastWhoseTimeComesWaitsForTheLaterOneInFlight() {
        var harness = DeliveryHarness()
        let now = harness.now.wallMilliseconds
        harness.push("later") {
            $0.isOrdered = true
            $0.deliverAtMilliseconds = now + 2_000
        }
        harness.push("now") { $0.isOrdered = true }
        let flying = harness.begin()!
        harness.pass(milliseconds: 3_000)
        #expect(harness.state("later") == .deviceLimited)
        harness.accept(flying)
        #expect(harness.waiting == ["later"])
    }

    @Test func otherChannelsDontWait() {
        var harness = harness("a")
        harness.push("b", device: "e") { $0.isOrdered = true }
        #expect(harness.waiting == ["a", "b"])
    }

    @Test func storeNeverGetsABroadcast() {
        var harness = harness("a")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        harness.pass(milliseconds: 1_000)
        #expect(harness.stored.isEmpty)
    }

    @Test func broadcastThatNeedsAPersonIsRejectedAndLetsTheNextLeave() {
        var harness = harness("a", "b")
        harness.answer(harness.begin()!, .featureNotEnabled)
        #expect(harness.ended == ["a rejected"])
        #expect(harness.waiting == ["b"])
        #expect(harness.machine.openCircuits == 0)
    }

    @Test func broadcastThatHoldsTheWatermarkIsNotPutIntoTheStore() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a") { $0.isOrdered = true }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        harness.push("b", device: "e") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 1_000 }
        harness.machine.relieve(partition: 0, below: 2, at: harness.now)
        harness.drain()
        #expect(harness.stored.keys.sorted() == ["b"])
    }

    // MARK: States

    @Test func updateNeverSupersedesTheEndOfAState() {
        var harness = DeliveryHarness()
        harness.push("flying", device: "other")
        harness.push("first") { $0.collapseKey = 7 }
        harness.push("end") {
            $0.collapseKey = 7
            $0.isFinal = true
        }
        harness.push("late") { $0.collapseKey = 7 }
        #expect(harness.ended == ["first superseded by end", "late superseded by end"])
        #expect(harness.waiting == ["flying", "end"])
    }

    @Test func updateThatComesWhileTheEndIsInFlightIsSuperseded() {
        var harness = DeliveryHarness()
        harness.push("end") {
            $0.collapseKey = 7
            $0.isFinal = true
        }
        let slot = harness.begin()!
        harness.push("late") { $0.collapseKey = 7 }
        #expect(harness.ended == ["late superseded by end"])
        harness.accept(slot)
        #expect(harness.ended.last == "end accepted")
    }

    @Test func endThatMovesToADeviceSupersedesTheNewerUpdateThere() {
        var harness = DeliveryHarness()
        harness.push("end") {
            $0.collapseKey = 7
            $0.isFinal = true
            $0.createdMilliseconds -= 1_000
        }
        harness.push("update", device: "e") { $0.collapseKey = 7 }
        _ = harness.machine.tokenChanged(
            DeliveryHarness.device("d"), to: DeliveryHarness.device("e"), isElsewhere: false, at: harness.now)
        harness.drain()
        #expect(harness.ended == ["update superseded by end"])
        #expect(harness.waiting == ["end"])
    }

    @Test func updateThatMovesToADeviceIsSupersededByTheOlderEndThere() {
        var harness = DeliveryHarness()
        harness.push("end", device: "e") {
            $0.collapseKey = 7
            $0.isFinal = true
            $0.createdMilliseconds -= 1_000
        }
        harness.push("update") { $0.collapseKey = 7 }
        _ = harness.machine.tokenChanged(
            DeliveryHarness.device("d"), to: DeliveryHarness.device("e"), isElsewhere: false, at: harness.now)
        harness.drain()
        #expect(harness.ended == ["update superseded by end"])
        #expect(harness.waiting == ["end"])
    }

    @Test func importedEndSupersedesTheNewerUpdate() {
        var harness = DeliveryHarness()
        harness.push("update") { $0.collapseKey = 7 }
        let end = harness.facts("end") {
            $0.collapseKey = 7
            $0.isFinal = true
            $0.partition = 1
            $0.createdMilliseconds -= 1_000
        }
        harness.note(harness.machine.importItem(end, ItemProgress(), at: harness.now), "end")
        #expect(harness.ended == ["update superseded by end"])
        #expect(harness.waiting == ["end"])
    }

    @Test func importedUpdateIsSupersededByTheEndBehindTheNewerUpdateInFlight() {
        var harness = DeliveryHarness()
        harness.push("flying") { $0.collapseKey = 7 }
        _ = harness.begin()
        harness.push("end") {
            $0.collapseKey = 7
            $0.isFinal = true
        }
        let old = harness.facts("old") {
            $0.collapseKey = 7
            $0.partition = 1
            $0.createdMilliseconds -= 1_000
        }
        harness.note(harness.machine.importItem(old, ItemProgress(), at: harness.now), "old")
        #expect(harness.ended == ["old superseded by end"])
        #expect(harness.state("end") == .blocked)
    }

    @Test func laterEndSupersedesAWaitingEnd() {
        var harness = DeliveryHarness()
        for name in ["end", "again"] {
            harness.push(name) {
                $0.collapseKey = 7
                $0.isFinal = true
            }
        }
        #expect(harness.ended == ["end superseded by again"])
    }
}
