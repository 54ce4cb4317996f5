import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryRetryTests {
    /// Result of one answer: the end or state of the push, and whether the attempt counts towards the maximum.
    struct Case: Sendable, CustomTestStringConvertible {
        var reason: Reason
        var end: String?
        var state: ItemState?
        var failures: UInt16 = 0

        var testDescription: String { "\(reason)" }
    }

    @Test(arguments: [
        Case(reason: .badDeviceToken, end: "a rejected"),
        Case(reason: .unregistered, end: "a rejected"),
        Case(reason: .payloadTooLarge, end: "a rejected"),
        Case(reason: .expiredProviderToken, state: .waiting, failures: 1),
        Case(reason: .shutdown, state: .waiting, failures: 1),
        Case(reason: .internalServerError, state: .retrying, failures: 1),
        Case(reason: .serviceUnavailable, state: .retrying, failures: 1),
        Case(reason: .tooManyRequests, state: .retrying, failures: 1),
        Case(reason: .tooManyProviderTokenUpdates, state: .retrying, failures: 1),
        Case(reason: .topicDisallowed, state: .topicCircuitOpen),
        Case(reason: .invalidProviderToken, state: .topicCircuitOpen),
    ])
    func answerDecidesTheEndOrTheNextState(_ expected: Case) {
        var harness = DeliveryHarness()
        harness.push("a")
        let slot = harness.begin()!
        harness.answer(slot, expected.reason)
        #expect(harness.ended == (expected.end.map { [$0] } ?? []))
        #expect(harness.state("a") == expected.state)
        guard expected.end == nil else { return }
        #expect(harness.machine.info(slot).progress.failures == expected.failures)
        #expect(harness.machine.info(slot).progress.attempts == 1)
    }

    @Test func everyReasonEndsOrKeepsThePush() {
        for reason in Reason.allCases where reason.class != .accepted {
            var harness = DeliveryHarness()
            harness.push("a")
            harness.answer(harness.begin()!, reason)
            #expect(
                (harness.ended == ["a rejected"])
                    == reason.isFinal, "\(reason)")
            #expect(harness.ended.count + harness.machine.count == 1, "\(reason)")
        }
    }

    @Test func pushEndsWhenAttemptsAreExhausted() {
        var harness = DeliveryHarness { $0.retry.maximumAttempts = 3 }
        harness.push("a")
        for attempt in 1...3 {
            #expect(harness.waiting == ["a"], "before attempt \(attempt)")
            harness.answer(harness.begin()!, .internalServerError)
            harness.pass(milliseconds: 20_000)
        }
        #expect(harness.ended == ["a undeliverable attemptsExhausted"])
        #expect(harness.machine.milestones.sent == 3)
        #expect(harness.machine.milestones.retried == 2)
    }

    @Test func uncountedFailuresDoNotExhaustAttempts() {
        var harness = DeliveryHarness {
            $0.retry.maximumAttempts = 2
            $0.retry.refusalsAtOnce = 3
        }
        harness.push("a")
        for _ in 0..<10 {
            harness.fail(harness.begin()!, processed: false)
            harness.pass(milliseconds: 900_000)
            harness.answer(harness.begin()!, .topicDisallowed)
            harness.pass(milliseconds: 900_000)
            #expect(harness.waiting == ["a"])
        }
        harness.fail(harness.begin()!, processed: true)
        #expect(harness.waiting == ["a"])
        harness.fail(harness.begin()!, processed: true)
        #expect(harness.ended == ["a undeliverable attemptsExhausted"])
    }

    @Test func immediateRetryPrecedesWaitingPushes() {
        var harness = DeliveryHarness()
        for name in ["a", "b", "c"] { harness.push(name) }
        harness.fail(harness.begin()!, processed: false)
        #expect(harness.waiting == ["a", "b", "c"])
    }

    @Test func pushWhoseRetryWouldBeTooLateExpires() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.expirationMilliseconds = $0.createdMilliseconds + 10_000 }
        harness.answer(harness.begin()!, .internalServerError, retryAfter: 10_000)
        #expect(harness.ended == ["a expired"])
    }

    // MARK: Connection and token

    @Test func retriesBeyondTheImmediateAttemptsWait() {
        var harness = DeliveryHarness { $0.retry.attemptsAtOnce = 2 }
        harness.push("a")
        harness.answer(harness.begin()!, .expiredProviderToken)
        harness.answer(harness.begin()!, .expiredProviderToken)
        #expect(harness.waiting == ["a"])
        harness.answer(harness.begin()!, .expiredProviderToken)
        #expect(harness.state("a") == .retrying)
    }

    @Test func firstRetryWaitsWithoutAnotherConnection() {
        var harness = DeliveryHarness()
        harness.push("a")
        let slot = harness.begin()!
        harness.machine.answered(
            slot,
            AttemptAnswer(class: .authentication, reason: .expiredProviderToken, mustWait: true),
            at: harness.now)
        harness.drain()
        #expect(harness.state("a") == .retrying)
        #expect(harness.machine.info(slot).progress.failures == 1)
    }

    // MARK: 429

    @Test func tooManyRequestsHoldsTheWholeDevice() {
        var harness = DeliveryHarness()
        for name in ["a", "b"] { harness.push(name) }
        harness.push("other", device: "e")
        harness.answer(harness.begin()!, .tooManyRequests, retryAfter: 10_000)
        #expect(harness.begin() == nil)
        #expect(harness.state("b") == .retrying)
        harness.push("c")
        #expect(harness.state("c") == .retrying)
        #expect(harness.waiting == ["other"])
        harness.pass(milliseconds: 9_999)
        #expect(harness.waiting == ["other"])
        harness.pass(milliseconds: 1001)
        #expect(Set(harness.waiting) == ["other", "b", "c"])
        harness.pass(milliseconds: 5000)
        #expect(Set(harness.waiting) == ["other", "a", "b", "c"])
        #expect(harness.machine.milestones.stored == 0)
    }

    @Test func acceptedPushEndsTheDevicePause() {
        var harness = DeliveryHarness()
        harness.push("a")
        harness.push("b")
        let slots = [harness.begin()!, harness.begin()!]
        harness.answer(slots[0], .tooManyRequests, retryAfter: 60_000)
        harness.accept(slots[1])
        harness.push("c")
        #expect(harness.waiting == ["c"])
    }

    // MARK: No answer

    @Test func lostAnswerIsRetriedUnlessDuplicatesAreAvoided() {
        var harness = DeliveryHarness()
        harness.push("allowed")
        harness.push("avoided") { $0.duplicates = .avoid }
        let slots = [harness.begin()!, harness.begin()!]
        for slot in slots { harness.fail(slot, processed: true) }
        #expect(harness.waiting == ["allowed"])
        #expect(harness.ended == ["avoided undeliverable answerLost"])
        #expect(harness.machine.info(slots[0]).progress.failures == 1)
    }

    @Test func unprocessedPushCountsNoAttempt() {
        var harness = DeliveryHarness { $0.retry.refusalsAtOnce = 3 }
        harness.push("a") { $0.duplicates = .avoid }
        for _ in 0..<3 {
            let slot = harness.begin()!
            harness.fail(slot, processed: false)
            #expect(harness.waiting == ["a"])
            #expect(harness.machine.info(slot).progress.attempts == 0)
        }
        harness.fail(harness.begin()!, processed: false)
        #expect(harness.state("a") == .retrying, "repeated refusals back off")
        harness.pass(milliseconds: 2000)
        harness.accept(harness.begin()!)
        #expect(harness.ended == ["a accepted"])
    }

    // MARK: Not sent

    @Test func unsentPushCountsNoAttempt() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.isOnce = true }
        harness.push("b")
        let slot = harness.begin()!
        harness.machine.notSent(slot, at: harness.now)
        harness.drain()
        #expect(harness.waiting == ["a", "b"])
        let progress = harness.machine.info(slot).progress
        #expect(progress.attempts == 0)
        #expect(progress.firstSentMilliseconds == 0)
        #expect(harness.machine.milestones.sent == 0)
        #expect(harness.machine.milestones.retried == 0)
        harness.pass(milliseconds: 60_000)
        #expect(harness.waiting == ["a", "b"], "the time limit of the single attempt hasn't begun")
    }

    @Test func unsentPushToPresumedOfflineDeviceIsSentAgain() {
        var harness = DeliveryHarness()
        harness.push("a") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 1
        }
        harness.accept(harness.begin()!)
        while harness.state("a") != .waiting { harness.pass(milliseconds: 10_000) }
        let slot = harness.begin()!
        harness.machine.notSent(slot, at: harness.now)
        harness.drain()
        #expect(harness.waiting == ["a"])
        harness.accept(harness.begin()!)
        #expect(harness.state("a") == .confirming)
        #expect(harness.machine.milestones.sent == 2)
    }
}
