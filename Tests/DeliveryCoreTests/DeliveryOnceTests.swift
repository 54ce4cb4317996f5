import SluiceModel
import Testing

@testable import DeliveryCore

/// Pushes with expiration 0: one attempt, at any time.
@Suite struct DeliveryOnceTests {
    private func sent(
        _ harness: inout DeliveryHarness, _ adjust: (inout PushFacts) -> Void = { _ in }
    ) -> UInt32 {
        harness.push("a") {
            $0.isOnce = true
            adjust(&$0)
        }
        return harness.begin()!
    }

    @Test func timeLimitStartsWithTheFirstSend() {
        var harness = DeliveryHarness { $0.retry.onceMilliseconds = 30_000 }
        harness.push("a") { $0.isOnce = true }
        harness.pass(milliseconds: 24 * 3_600_000)
        #expect(harness.waiting == ["a"])
        let slot = harness.begin()!
        harness.pass(milliseconds: 29_999)
        harness.fail(slot, processed: false)
        #expect(harness.waiting == ["a"], "APNs didn't process it, so there was no attempt")
        harness.pass(milliseconds: 1)
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a expired"])
    }

    @Test func unprocessedPushIsSentAgain() {
        var harness = DeliveryHarness()
        var slot = sent(&harness)
        for _ in 0..<3 {
            harness.fail(slot, processed: false)
            #expect(harness.waiting == ["a"])
            slot = harness.begin()!
        }
        harness.accept(slot)
        #expect(harness.ended == ["a accepted"])
    }

    /// Answers that other pushes are retried after.
    @Test(arguments: [
        Reason.tooManyRequests, .internalServerError, .serviceUnavailable, .shutdown, .idleTimeout,
        .expiredProviderToken, .tooManyProviderTokenUpdates,
    ])
    func retriableAnswerEndsTheOnlyAttempt(_ reason: Reason) {
        var harness = DeliveryHarness()
        let slot = sent(&harness)
        harness.answer(slot, reason)
        #expect(harness.ended == ["a undeliverable attemptsExhausted"])
        #expect(harness.waiting.isEmpty)
        harness.pass(milliseconds: 3_600_000)
        #expect(harness.ended.count == 1)
    }

    @Test func finalAnswerRejectsThePush() {
        var harness = DeliveryHarness()
        let slot = sent(&harness)
        harness.answer(slot, .badDeviceToken)
        #expect(harness.ended == ["a rejected"])
    }

    @Test(arguments: [DuplicatePolicy.allow, .avoid], [0, 30_000])
    func lostAnswerEndsThePush(_ duplicates: DuplicatePolicy, _ milliseconds: Int64) {
        var harness = DeliveryHarness { $0.retry.onceMilliseconds = 30_000 }
        let slot = sent(&harness) { $0.duplicates = duplicates }
        harness.pass(milliseconds: milliseconds)
        harness.fail(slot, processed: true)
        #expect(harness.ended == ["a undeliverable answerLost"])
    }

    @Test func topicFaultEndsThePushAndOpensTheCircuit() {
        var harness = DeliveryHarness()
        let slot = sent(&harness)
        harness.push("b") { $0.isOnce = true }
        harness.answer(slot, .invalidProviderToken)
        #expect(harness.ended == ["a undeliverable attemptsExhausted"])
        #expect(harness.begin() == nil)
        #expect(harness.state("b") == .topicCircuitOpen)
        // The next probe ends as well. The probe after that is accepted.
        harness.push("c")
        harness.pass(milliseconds: 60_000)
        harness.answer(harness.begin()!, .invalidProviderToken)
        #expect(harness.ended.last == "b undeliverable attemptsExhausted")
        harness.pass(milliseconds: 3_600_000)
        harness.accept(harness.begin()!)
        #expect(harness.ended.last == "c accepted")
    }

    @Test func unregisteredTokenRejectsThePushDespiteNewToken() {
        var harness = DeliveryHarness()
        let slot = sent(&harness)
        harness.change("d", to: "e")
        harness.answer(slot, .unregistered)
        #expect(harness.ended == ["a rejected"])
    }

    @Test func lostAnswerAfterAbandonedPartitionEndsThePush() {
        var harness = DeliveryHarness()
        let slot = sent(&harness)
        harness.machine.abandon(partition: 0, at: harness.now)
        harness.drain()
        harness.fail(slot, processed: true)
        #expect(harness.ended == ["a undeliverable answerLost"])
    }

    // MARK: Receipts

    private func confirming(_ harness: inout DeliveryHarness) {
        let slot = sent(&harness) {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 60
        }
        harness.accept(slot)
        #expect(harness.state("a") == .confirming)
    }

    @Test func receiptIsAwaitedForTheJobsTimeout() {
        var harness = DeliveryHarness { $0.retry.onceMilliseconds = 30_000 }
        confirming(&harness)
        harness.pass(milliseconds: 59_000)
        #expect(harness.state("a") == .confirming)
        harness.receipt("a")
        #expect(harness.ended == ["a confirmed"])
    }

    @Test func pushWithoutReceiptExpires() {
        var harness = DeliveryHarness()
        confirming(&harness)
        harness.pass(milliseconds: 60_001)
        #expect(harness.ended == ["a expired"])
        harness.push("b") { $0.delivery = .confirm }
        #expect(harness.state("b") == .held, "its device counts as offline")
    }

    @Test func presenceReportsDoNotResendThePush() {
        var harness = DeliveryHarness()
        confirming(&harness)
        harness.offline()
        #expect(harness.state("a") == .confirming)
        harness.online()
        #expect(harness.waiting.isEmpty)
        harness.receipt("a")
        #expect(harness.ended == ["a confirmed"])
    }

    @Test func tokenChangeExpiresPushAwaitingReceipt() {
        var harness = DeliveryHarness()
        confirming(&harness)
        harness.change("d", to: "e")
        #expect(harness.ended == ["a expired"])
    }

    @Test func pushAcceptedForReplacedTokenExpires() {
        var harness = DeliveryHarness()
        let slot = sent(&harness) { $0.delivery = .confirm }
        harness.change("d", to: "e")
        harness.accept(slot)
        #expect(harness.ended == ["a expired"])
    }

    // MARK: The store

    /// An earlier version kept such pushes for another attempt.
    @Test(arguments: [ItemProgress.Wait.none, .retrying, .held])
    func restoredPushExpiresAfterItsAttempt(_ wait: ItemProgress.Wait) {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        var progress = ItemProgress()
        progress.attempts = 1
        progress.failures = 1
        // The clock was set back meanwhile.
        progress.firstSentMilliseconds = harness.now.wallMilliseconds + 60_000
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 86_400_000
        progress.wait = wait
        (progress.isStored, progress.isOffsetDone) = (true, true)
        let facts = harness.facts("a") { $0.isOnce = true }
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "a")
        #expect(harness.ended == ["a expired"])
    }
}

extension DeliveryHarness {
    fileprivate mutating func change(_ device: String, to new: String) {
        _ = machine.tokenChanged(Self.device(device), to: Self.device(new), isElsewhere: false, at: now)
        drain()
    }

    fileprivate mutating func receipt(_ name: String, device: String = "d") {
        _ = machine.receipt(
            Self.device(device), notificationKey: Self.key(name), occurred: .at(now.wallMilliseconds),
            partition: 0, at: now)
        drain()
    }
}
