import SluiceModel
import Testing

@testable import DeliveryCore

/// The newest push wins, even when it has expired.
struct DeliveryExpiredTests {
    /// Has expired on arrival.
    private static func late(_ facts: inout PushFacts) {
        facts.expirationMilliseconds = facts.createdMilliseconds
    }

    /// Expires at its delivery time.
    private static func never(_ facts: inout PushFacts) {
        facts.deliverAtMilliseconds = facts.createdMilliseconds + 60_000
        facts.expirationMilliseconds = facts.deliverAtMilliseconds
    }

    /// Conditions that an older push can wait for.
    enum Wait: CaseIterable {
        case turn, successor, schedule, retry, device, receipt, others, topic, connection
    }

    /// A harness in which "old" waits for the condition.
    private func waiting(_ wait: Wait) -> DeliveryHarness {
        var harness = DeliveryHarness { $0.inFlightPerDevice = 1 }
        switch wait {
        case .turn: harness.push("old", collapse: "x")
        case .successor: harness.push("old", collapse: "x") { $0.coalesceWindowMilliseconds = 10_000 }
        case .schedule:
            harness.push("old", collapse: "x") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 60_000 }
        case .retry:
            harness.push("old", collapse: "x")
            harness.answer(harness.begin()!, .internalServerError, retryAfter: 10_000)
        case .device:
            harness.offline()
            harness.push("old", collapse: "x") { $0.delivery = .holdWhileOffline }
        case .receipt:
            harness.push("old", collapse: "x") { $0.delivery = .confirm }
            harness.accept(harness.begin()!)
        case .others:
            harness.push("other")
            harness.begin()
            harness.push("old", collapse: "x")
        case .topic:
            harness.push("old", collapse: "x")
            harness.answer(harness.begin()!, .topicDisallowed)
        case .connection:
            harness.machine.suspend(pool: 0, at: harness.now)
            harness.push("old", collapse: "x")
        }
        return harness
    }

    @Test(arguments: Wait.allCases)
    func expiredPushSupersedesOlderWaitingPush(_ wait: Wait) {
        for adjust in [Self.late, Self.never] {
            var harness = waiting(wait)
            let state = harness.state("old")
            harness.push("new", collapse: "x", adjust)
            #expect(harness.ended == ["old superseded by new", "new expired"], "it was \(state!)")
            #expect(harness.queue.isEmpty)
            #expect(harness.state("old") == nil && harness.state("new") == nil)
            harness.pass(milliseconds: 600_000)
            #expect(harness.ended.count == 2)
            #expect(harness.machine.milestones.isBalanced)
        }
    }

    @Test func expiredPushWithoutOlderPushEndsAlone() {
        var harness = DeliveryHarness()
        harness.push("other", collapse: "y")
        let flying = harness.begin()!
        harness.push("another", collapse: "z")
        harness.push("late", collapse: "x", Self.late)
        harness.push("never", collapse: "x", Self.never)
        #expect(harness.ended == ["late expired", "never expired"])
        harness.fail(flying, processed: false)
        #expect(harness.waiting == ["other", "another"])
    }

    @Test func olderExpiredPushEndsAsSuperseded() {
        var harness = DeliveryHarness()
        harness.push("new", collapse: "x") { $0.offset = 9 }
        harness.push("old", collapse: "x") {
            $0.offset = 5
            Self.late(&$0)
        }
        #expect(harness.ended == ["old superseded by new"])
        #expect(harness.waiting == ["new"])
    }

    // MARK: In flight

    private func ends(
        _ expected: [String], confirms: Bool = false, _ report: (inout DeliveryHarness, UInt32) -> Void
    ) {
        for adjust in [Self.late, Self.never] {
            var harness = DeliveryHarness()
            harness.push("old", collapse: "x") { $0.delivery = confirms ? .confirm : .accept }
            let slot = harness.begin()!
            harness.push("new", collapse: "x", adjust)
            #expect(harness.state("old") == .inFlight && harness.state("new") == .blocked)
            harness.pass(milliseconds: 5000)
            #expect(harness.ended == [])
            report(&harness, slot)
            #expect(harness.ended == expected + ["new expired"])
            harness.pass(milliseconds: 600_000)
            #expect(harness.queue.isEmpty && harness.machine.count == 0)
        }
    }

    @Test func expiredPushPreventsRetriesOfOlderPushInFlight() {
        ends(["old accepted"]) { $0.accept($1) }
        ends(["old superseded by new"]) { $0.fail($1, processed: false) }
        ends(["old superseded by new"]) { $0.fail($1, processed: true) }
        ends(["old superseded by new"]) { $0.answer($1, .internalServerError) }
        ends(["old superseded by new"]) { $0.answer($1, .invalidProviderToken) }
        ends(["old superseded by new"]) { $0.answer($1, .tooManyRequests, retryAfter: 5000) }
        ends(["old rejected"]) { $0.answer($1, .payloadTooLarge) }
        ends(["old superseded by new"], confirms: true) { $0.accept($1) }
        ends(["old superseded by new"]) { harness, slot in
            harness.machine.notSent(slot, at: harness.now)
            harness.drain()
        }
    }

    @Test func pushExpiringWhileBlockedPreventsRetriesOfOlder() {
        var harness = DeliveryHarness()
        harness.push("old", collapse: "x")
        let slot = harness.begin()!
        harness.push("new", collapse: "x") { $0.expirationMilliseconds = $0.createdMilliseconds + 500 }
        harness.pass(milliseconds: 5000)
        #expect(harness.state("new") == .blocked)
        #expect(harness.machine.nextWake(after: harness.now)! > harness.now.monotonicNanoseconds)
        harness.fail(slot, processed: false)
        #expect(harness.ended == ["old superseded by new", "new expired"])
        #expect(harness.queue.isEmpty)
    }

    @Test func expiredBlockedPushIsSupersededByNewer() {
        var harness = DeliveryHarness()
        harness.push("1", collapse: "x")
        let slot = harness.begin()!
        harness.push("2", collapse: "x", Self.late)
        harness.push("3", collapse: "x")
        harness.push("4", collapse: "x", Self.late)
        harness.push("5", collapse: "x")
        #expect(harness.ended == ["2 superseded by 3", "3 superseded by 4", "4 superseded by 5"])
        harness.accept(slot)
        #expect(harness.waiting == ["5"])
    }

    @Test func expiredPushPreventsRetriesEvenAtDeviceLimit() {
        var harness = DeliveryHarness { $0.pendingPerDevice = 1 }
        harness.push("old", collapse: "x")
        let slot = harness.begin()!
        harness.push("late", collapse: "y", Self.late)
        harness.push("new", collapse: "x", Self.late)
        #expect(harness.ended == ["late expired"])
        harness.fail(slot, processed: false)
        #expect(harness.ended == ["late expired", "old superseded by new", "new expired"])
    }

    // MARK: After a restart

    private func kept(_ wait: ItemProgress.Wait, expiry: Int64 = .max) -> ItemProgress {
        var progress = ItemProgress()
        progress.isStored = true
        progress.isOffsetDone = true
        progress.isAccepted = wait == .confirming
        progress.wait = wait
        progress.expiryMilliseconds = expiry
        progress.storeVersion = 1
        return progress
    }

    /// The newer push was accepted, and the worker was killed before Kafka and the store knew.
    @Test(arguments: ItemProgress.Wait.allCases)
    func expiredNewerRecordSupersedesRestoredPush(_ wait: ItemProgress.Wait) {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let old = harness.facts("old", collapse: "x") { $0.offset = 5 }
        var progress = kept(wait)
        progress.wakeMilliseconds = harness.now.wallMilliseconds + 3_600_000
        harness.note(harness.machine.restore(old, progress, at: harness.now), "old")
        harness.push("new", collapse: "x") {
            $0.offset = 8
            Self.late(&$0)
        }
        #expect(harness.ended == ["old superseded by new", "new expired"])
        #expect(harness.machine.count == 0)
    }

    @Test(arguments: ItemProgress.Wait.allCases)
    func expiredRestoredPushSupersedesOlderPush(_ wait: ItemProgress.Wait) {
        for isBlocked in [false, true] {
            var harness = DeliveryHarness { $0.storeIsDurable = true }
            harness.offline()
            harness.push("old", collapse: "x") { $0.offset = 5 }
            let slot = isBlocked ? harness.begin() : nil
            let new = harness.facts("new", collapse: "x") {
                $0.offset = 8
                $0.delivery = wait == .confirming ? .confirm : .holdWhileOffline
            }
            let progress = kept(wait, expiry: harness.now.wallMilliseconds)
            harness.note(harness.machine.restore(new, progress, at: harness.now), "new")
            if let slot { harness.fail(slot, processed: false) }
            #expect(harness.ended == ["old superseded by new", "new expired"])
            #expect(harness.machine.count == 0)
        }
    }

    @Test func expiredImportedPushSupersedesOlderPush() {
        var harness = DeliveryHarness()
        harness.push("old", collapse: "x")
        let new = harness.facts("new", collapse: "x") { $0.offset = 8 }
        let progress = kept(.confirming, expiry: harness.now.wallMilliseconds)
        harness.note(harness.machine.importItem(new, progress, at: harness.now), "new")
        #expect(harness.ended == ["old superseded by new", "new expired"])
        #expect(harness.machine.count == 0)
    }

    @Test func restoredSingleAttemptPushExpiresAfterItsAttempt() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let facts = harness.facts("a") {
            $0.isOnce = true
            $0.delivery = .confirm
        }
        var progress = kept(.held, expiry: harness.now.wallMilliseconds + 3_600_000)
        progress.attempts = 1
        progress.firstSentMilliseconds = harness.now.wallMilliseconds - 1
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "a")
        #expect(harness.waiting.isEmpty)
        #expect(harness.ended == ["a expired"])
    }
}
