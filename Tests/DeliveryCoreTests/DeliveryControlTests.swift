import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryControlTests {
    @Test func cancelWithdrawsPendingPushes() {
        var harness = DeliveryHarness()
        harness.push("waiting", collapse: "x")
        harness.push("scheduled", collapse: "x") {
            $0.topic = 1
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 60_000
        }
        harness.push("other", collapse: "y")
        let device = DeliveryHarness.device("d")
        let result = harness.machine.cancel(
            device, .collapseKey(DeliveryHarness.key("x"), topic: nil), at: harness.now)
        harness.drain()
        #expect(result == CancelResult(cancelled: 2))
        #expect(harness.waiting == ["other"])
        #expect(
            harness.machine.cancel(device, .notificationKey(DeliveryHarness.key("nothing")), at: harness.now)
                == CancelResult())
        #expect(
            harness.machine.cancel(device, .notificationKey(DeliveryHarness.key("other")), at: harness.now)
                == CancelResult(cancelled: 1))
        harness.drain()
        #expect(harness.machine.count == 0)
    }

    @Test func cancelInFlightIsTooLateButPreventsRetries() {
        var harness = DeliveryHarness()
        harness.push("a", collapse: "x")
        let slot = harness.begin()!
        let target = CancelTarget.collapseKey(DeliveryHarness.key("x"), topic: 0)
        #expect(
            harness.machine.cancel(DeliveryHarness.device("d"), target, at: harness.now)
                == CancelResult(tooLate: 1))
        harness.fail(slot, processed: false)
        #expect(harness.ended == ["a cancelled"])
    }

    @Test func heldPushesReturnUrgentFirstAtLimitedRate() {
        var harness = DeliveryHarness {
            $0.returnsPerSecond = 10
            $0.returnBurst = 2
        }
        let device = DeliveryHarness.device("d")
        #expect(harness.machine.offline(device, occurred: .at(1), partition: 0, at: harness.now) == 0)
        for (name, priority) in [("low", Priority.powerAware), ("a", .immediate), ("b", .immediate)] {
            harness.push(name) {
                $0.delivery = .holdWhileOffline
                $0.priority = priority
            }
        }
        harness.push("not held")
        #expect(harness.waiting == ["not held"])
        #expect(harness.machine.online(device, occurred: .at(2), partition: 0, at: harness.now) == 3)
        harness.pass(milliseconds: 0)
        #expect(harness.waiting == ["not held", "a", "b"])
        harness.pass(milliseconds: 99)
        #expect(harness.waiting.count == 3)
        harness.pass(milliseconds: 2)
        #expect(harness.waiting.last == "low")
        // An older report changes nothing.
        #expect(harness.machine.offline(device, occurred: .at(1), partition: 0, at: harness.now) == 0)
        #expect(harness.waiting.count == 4)
    }

    /// A known offline presence is worth more than an online presence.
    @Test func onlinePresencesAreEvictedBeforeOfflineOnes() {
        var harness = DeliveryHarness { $0.knownDevices = 2 }
        let names = ["a", "b", "c", "d"]
        for (index, name) in names.enumerated() {
            let device = DeliveryHarness.device(name)
            let occurred = Int64(index)
            if name == "b" {
                _ = harness.machine.online(
                    device, occurred: .at(occurred), partition: 0, at: harness.now)
            } else {
                _ = harness.machine.offline(
                    device, occurred: .at(occurred), partition: 0, at: harness.now)
            }
            harness.drain()
        }
        for name in names { harness.push(name, device: name) { $0.delivery = .holdWhileOffline } }
        #expect(names.filter { harness.state($0) == .held } == ["c", "d"])
        #expect(harness.waiting == ["a", "b"])
    }

    @Test func offlineReportHoldsWaitingPushes() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.delivery = .holdWhileOffline }
        harness.push("b")
        #expect(
            harness.machine.offline(
                DeliveryHarness.device("d"), occurred: .at(1), partition: 0, at: harness.now) == 1)
        harness.drain()
        #expect(harness.waiting == ["b"])
        #expect(harness.state("a") == .held)
    }

    @Test func receiptConfirmsPushEvenWhileInFlight() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.delivery = .confirm }
        harness.push("b") { $0.delivery = .confirm }
        let device = DeliveryHarness.device("d")
        harness.accept(harness.begin()!)
        #expect(harness.state("a") == .confirming)
        let b = harness.begin()!
        for name in ["a", "b"] {
            #expect(
                harness.machine.receipt(
                    device, notificationKey: DeliveryHarness.key(name), occurred: .at(1), partition: 0,
                    at: harness.now) == 1)
        }
        harness.drain()
        #expect(harness.ended == ["a confirmed"])
        harness.fail(b, processed: true)
        #expect(harness.ended == ["a confirmed", "b confirmed"])
    }

    /// "new" was accepted and restored from the store. Its receipt arrives while "old" is in flight again.
    private func confirmedBehind() -> DeliveryHarness {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("old", collapse: "x")
        #expect(harness.begin() == 0)
        let facts = harness.facts("new", collapse: "x") {
            $0.offset = 7
            $0.delivery = .confirm
        }
        var progress = ItemProgress()
        progress.attempts = 1
        progress.firstSentMilliseconds = harness.now.wallMilliseconds - 1000
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 3_600_000
        progress.wait = .confirming
        (progress.isAccepted, progress.isStored, progress.isOffsetDone) = (true, true, true)
        let admission = harness.machine.restore(facts, progress, at: harness.now)
        harness.note(admission, "new")
        let count = harness.machine.receipt(
            DeliveryHarness.device("d"), notificationKey: DeliveryHarness.key("new"), occurred: .at(1),
            partition: 0, at: harness.now)
        harness.drain()
        #expect(count == 1)
        #expect(harness.state("new") == .blocked)
        #expect(harness.ended == [])
        return harness
    }

    @Test func confirmedPushEndsAfterTheOlderPushInFlight() {
        var harness = confirmedBehind()
        harness.fail(0, processed: false)
        #expect(harness.ended == ["old superseded by new", "new confirmed"])
        var other = confirmedBehind()
        other.accept(0)
        #expect(other.ended == ["old accepted", "new confirmed"])
        let left = [harness.machine.count, other.machine.count]
        #expect(left == [0, 0])
    }

    @Test func confirmedPushStaysConfirmedWhenPartitionIsAbandoned() {
        var harness = confirmedBehind()
        harness.machine.abandon(partition: 0, at: harness.now)
        harness.drain()
        #expect(harness.ended == ["new confirmed"])
        harness.fail(0, processed: false)
        #expect(harness.ended == ["new confirmed", "old dropped"])
    }

    @Test func pushWithoutReceiptIsHeldAndSentAgain() {
        var harness = DeliveryHarness()
        harness.push("a") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 30
        }
        harness.accept(harness.begin()!)
        harness.pass(milliseconds: 30_001)
        #expect(harness.state("a") == .held)
        harness.push("b") { $0.delivery = .holdWhileOffline }
        #expect(harness.state("b") == .held)
        // Without a report of the device, the push is sent again after a minute.
        harness.pass(milliseconds: 61_000)
        harness.pass(milliseconds: 61_000)
        #expect(harness.waiting.contains("a"))
    }

    /// A receipt may time out shortly before the events that explain it are read.
    @Test(arguments: [true, false])
    func earlierReportOverridesPresumedOffline(isOffline: Bool) {
        var harness = DeliveryHarness()
        let device = DeliveryHarness.device("d")
        harness.push("a") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 30
        }
        let before = harness.now.wallMilliseconds - 1
        harness.accept(harness.begin()!)
        harness.pass(milliseconds: 30_001)
        #expect(harness.state("a") == .held)
        if isOffline {
            _ = harness.machine.offline(
                device, occurred: .at(before), partition: 0, at: harness.now)
            harness.drain()
            // The device is known to be offline, so no further attempt follows.
            for _ in 0..<5 { harness.pass(milliseconds: 61_000) }
            #expect(harness.state("a") == .held)
            harness.push("b") { $0.delivery = .holdWhileOffline }
            for _ in 0..<5 { harness.pass(milliseconds: 61_000) }
            #expect(harness.state("b") == .held)
        } else {
            let returning = harness.machine.online(
                device, occurred: .at(before), partition: 0, at: harness.now)
            #expect(returning == 1)
        }
        #expect(harness.machine.presence(0, at: harness.now).learned == .at(before))
    }

    @Test func pendingPushesMoveToTheNewToken() {
        var harness = DeliveryHarness()
        let new = DeliveryHarness.device("e")
        harness.push("in flight", collapse: "x")
        let slot = harness.begin()!
        harness.push("blocked", collapse: "x")
        harness.push("moves", collapse: "y")
        harness.now.wallMilliseconds += 1
        harness.push("there", device: "e", collapse: "y")
        #expect(
            harness.machine.tokenChanged(
                DeliveryHarness.device("d"), to: new, isElsewhere: false, at: harness.now) == 3)
        harness.drain()
        #expect(harness.ended == ["moves superseded by there"])
        harness.fail(slot, processed: false)
        #expect(harness.ended.last == "in flight superseded by blocked")
        #expect(
            harness.machine.cancel(new, .notificationKey(DeliveryHarness.key("blocked")), at: harness.now)
                .cancelled == 1)
    }

    /// APNs accepts the push for the old token after the change. The device may soon change its token again.
    @Test func unconfirmedPushFollowsTokenChangedWhileInFlight() {
        var harness = DeliveryHarness()
        let (second, third) = (DeliveryHarness.device("e"), DeliveryHarness.device("f"))
        harness.push("a") { $0.delivery = .confirm }
        let slot = harness.begin()!
        #expect(
            harness.machine.tokenChanged(
                DeliveryHarness.device("d"), to: second, isElsewhere: false, at: harness.now) == 1)
        harness.drain()
        harness.accept(slot)
        #expect(harness.waiting == ["a"])
        #expect(harness.others == [.noteMove(slot), .readdress(slot, second)])
        #expect(
            harness.machine.tokenChanged(second, to: third, isElsewhere: false, at: harness.now) == 1)
        harness.drain()
        #expect(harness.others == [.noteMove(slot), .readdress(slot, second), .readdress(slot, third)])
        #expect(
            harness.machine.cancel(third, .notificationKey(DeliveryHarness.key("a")), at: harness.now)
                .cancelled == 1)
        harness.drain()
        #expect(harness.ended == ["a cancelled"])
    }

    @Test func unregisteredPushInFlightMovesToTheNewToken() {
        var harness = DeliveryHarness()
        harness.push("a")
        let slot = harness.begin()!
        let new = DeliveryHarness.device("e")
        #expect(
            harness.machine.tokenChanged(
                DeliveryHarness.device("d"), to: new, isElsewhere: false, at: harness.now) == 1)
        harness.drain()
        harness.answer(slot, .unregistered)
        #expect(harness.ended.isEmpty)
        #expect(harness.others.contains { if case .readdress = $0 { true } else { false } })
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted"])
    }

    @Test func unregisteredTokenRejectsPendingPushesExceptNewlyRegistered() {
        var harness = DeliveryHarness()
        harness.push("answered", collapse: "x")
        harness.push("pending")
        harness.push("fresh") { $0.registeredAtMilliseconds = 2000 }
        let slot = harness.begin()!
        harness.push("behind", collapse: "x")
        harness.answer(slot, .unregistered, invalidSince: 1000)
        #expect(
            Set(harness.ended) == [
                "answered rejected", "pending rejected deviceUnregistered",
                "behind rejected deviceUnregistered",
            ])
        #expect(harness.waiting == ["fresh"])
    }
}
