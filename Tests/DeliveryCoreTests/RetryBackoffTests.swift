import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct RetryBackoffTests {
    let policy = RetryBackoff()

    func decide(
        _ failure: AttemptFailure, attempt: UInt32 = 1, refusals: UInt32 = 0, isOnce: Bool = false,
        retryAfter: Int64? = nil, expiration: Int64? = nil, seed: UInt64 = 1
    ) -> RetryDecision {
        var generator = SeededGenerator(seed: seed)
        return policy.decide(
            failure, attempt: attempt, refusals: refusals, isOnce: isOnce, retryAfterMilliseconds: retryAfter,
            expirationMilliseconds: expiration, nowMilliseconds: 1_000_000, using: &generator)
    }

    @Test func finalAnswersAreNotRetried() {
        #expect(decide(.answered(.token)) == .giveUp(.rejected))
        #expect(decide(.answered(.job)) == .giveUp(.rejected))
        #expect(decide(.answered(.token), expiration: 5) == .giveUp(.rejected))
    }

    @Test func refusedStreamsAreRetriedAtOnceUncounted() {
        #expect(decide(.notProcessed, attempt: 500, refusals: 1) == .now)
        #expect(decide(.notProcessed, refusals: 4) == .now)
        guard case .after(let wait) = decide(.notProcessed, refusals: 5) else {
            Issue.record("repeated refusals must back off")
            return
        }
        #expect((1...2000).contains(wait))
    }

    @Test func lostAnswersFollowTheDuplicatePolicy() {
        #expect(decide(.unknownOutcome(.avoid)) == .giveUp(.unknownOutcome))
        #expect(decide(.unknownOutcome(.allow)) == .now)
        #expect(GiveUp.unknownOutcome.outcome == .undeliverable)
        #expect(GiveUp.unknownOutcome.cause == .answerLost)
    }

    @Test func expirationZeroAllowsOneAttempt() {
        for reasonClass in [ReasonClass.authentication, .connection, .later, .configuration] {
            let decision = decide(.answered(reasonClass), isOnce: true, retryAfter: 1000, expiration: 5)
            #expect(decision == .giveUp(.attemptsExhausted))
        }
        #expect(decide(.answered(.token), isOnce: true) == .giveUp(.rejected))
        #expect(decide(.answered(.job), isOnce: true) == .giveUp(.rejected))
        for duplicates in [DuplicatePolicy.allow, .avoid] {
            #expect(
                decide(.unknownOutcome(duplicates), isOnce: true, expiration: 5) == .giveUp(.unknownOutcome))
        }
        #expect(decide(.notProcessed, refusals: 1, isOnce: true) == .now)
    }

    @Test func authenticationAndConnectionFailuresRetryAtOnceFirst() {
        #expect(decide(.answered(.authentication)) == .now)
        #expect(decide(.answered(.connection), attempt: 2) == .now)
        guard case .after(let wait) = decide(.answered(.authentication), attempt: 3)
        else {
            Issue.record("repeated refusals of a token must back off")
            return
        }
        #expect((1...2000).contains(wait))
    }

    @Test func retryLaterAnswersWaitWithinTheWindow() {
        for attempt in UInt32(1)...11 {
            var longest: Int64 = 0
            for seed in UInt64(0)..<200 {
                guard
                    case .after(let wait) = decide(
                        .answered(.later), attempt: attempt, seed: seed)
                else {
                    Issue.record("attempt \(attempt) does not wait")
                    return
                }
                longest = max(longest, wait)
                #expect(wait >= 1 && wait <= policy.later.window(attempt: attempt), "seed \(seed)")
            }
            // Full jitter uses the whole window.
            #expect(longest > policy.later.window(attempt: attempt) * 9 / 10)
        }
    }

    @Test func configurationFailuresWaitForTheProbePause() {
        var waits: [Int64] = []
        for seed in UInt64(0)..<100 {
            if case .after(let wait) = decide(.answered(.configuration), seed: seed) {
                waits.append(wait)
            }
        }
        #expect(waits.count == 100)
        #expect((waits.max() ?? 0) > 900)
        #expect((waits.max() ?? 0) <= 1_000)
        #expect(policy.configuration.window(attempt: 10) == 15_000)
    }

    @Test func expirationsBecomeDeadlines() {
        #expect(policy.deadlineMilliseconds(.unspecified, firstAttemptMilliseconds: 7) == nil)
        #expect(policy.deadlineMilliseconds(.at(.max), firstAttemptMilliseconds: 7) == 4_294_967_295_000)
        #expect(policy.deadlineMilliseconds(.once, firstAttemptMilliseconds: 7) == 30_007)
    }

    @Test func attemptsAreBounded() {
        var generator = SeededGenerator(seed: 3)
        var bounded = policy
        bounded.maximumAttempts = 12
        for failure in [AttemptFailure.answered(.later), .unknownOutcome(.allow)] {
            let decision = bounded.decide(
                failure, attempt: 12, expirationMilliseconds: nil, nowMilliseconds: 0, using: &generator)
            #expect(decision == .giveUp(.attemptsExhausted))
        }
        let decision = policy.decide(
            .answered(.later), attempt: .max, expirationMilliseconds: nil, nowMilliseconds: 0,
            using: &generator)
        guard case .after = decision else {
            Issue.record("attempts are limited without a maximum")
            return
        }
    }

    @Test func nothingIsRetriedPastItsExpiration() {
        #expect(decide(.notProcessed, expiration: 1_000_000) == .giveUp(.expired))
        #expect(decide(.answered(.later), expiration: 999_999) == .giveUp(.expired))
        #expect(decide(.notProcessed, expiration: 1_000_001) == .now)
        #expect(decide(.answered(.later), expiration: 1_000_001) == .giveUp(.expired))
        for seed in UInt64(0)..<500 {
            guard
                case .after(let wait) = decide(
                    .answered(.later), attempt: 10, expiration: 1_000_100, seed: seed)
            else {
                Issue.record("seed \(seed): there is time left")
                return
            }
            #expect(wait >= 1 && wait < 100, "seed \(seed)")
        }
    }

    @Test func retryAfterIsALowerBound() {
        for seed in UInt64(0)..<200 {
            guard case .after(let wait) = decide(.answered(.later), retryAfter: 30_000, seed: seed)
            else {
                Issue.record("seed \(seed): does not wait")
                return
            }
            #expect(wait > 30_000 && wait <= 32_000, "seed \(seed)")
        }
        #expect(decide(.answered(.later), retryAfter: 30_000, expiration: 1_020_000) == .giveUp(.expired))
        guard case .after(let wait) = decide(.answered(.connection), retryAfter: 5000)
        else {
            Issue.record("Retry-After must precede the immediate retry")
            return
        }
        #expect(wait > 5000)
        guard case .after(let capped) = decide(.answered(.later), retryAfter: .max) else {
            Issue.record("an excessive Retry-After must be shortened")
            return
        }
        #expect(capped <= 3_602_000)
    }

    @Test func extremeClocksDoNotTrap() {
        var generator = SeededGenerator(seed: 1)
        for (expiration, now) in [(Int64.max, Int64.min), (.min, .max), (.max, 0), (0, .max), (.min, .min)] {
            _ = policy.decide(
                .answered(.later), attempt: 3, retryAfterMilliseconds: .max,
                expirationMilliseconds: expiration,
                nowMilliseconds: now, using: &generator)
        }
    }

    @Test func windowsDoubleUpToTheCap() {
        let windows = (UInt32(0)...12).map { ExponentialBackoff.later.window(attempt: $0) / 1000 }
        #expect(windows == [2, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900])
        #expect(ExponentialBackoff.later.window(attempt: .max) == 900_000)
    }

    @Test func invalidBackoffSettingsAreRefused() throws {
        let constant = try ExponentialBackoff(baseMilliseconds: 5, capMilliseconds: 5, multiplier: 1)
        #expect(constant.window(attempt: 1000) == 5)
        for (base, cap, multiplier, field) in [
            (0, 10, 2.0, "base"), (10, 9, 2.0, "cap"), (1, Int64.max, 2.0, "cap"), (1, 2, 0.5, "multiplier"),
            (1, 2, .nan, "multiplier"),
        ] {
            let error = #expect(throws: RetryPolicyError.self) {
                try ExponentialBackoff(
                    baseMilliseconds: Int64(base), capMilliseconds: cap, multiplier: multiplier)
            }
            #expect(error?.field == field)
        }
    }

    @Test func equalSeedsGiveEqualSequences() {
        var first = SeededGenerator(seed: 42)
        var second = SeededGenerator(seed: 42)
        var third = SeededGenerator(seed: 43)
        let one = (0..<100).map { _ in first.next() }
        let two = (0..<100).map { _ in second.next() }
        let three = (0..<100).map { _ in third.next() }
        #expect(one == two)
        #expect(Set(one + three).count == 200)
    }
}
