import APNS
import Testing

/// Tests the policy by scripts of times, events and decisions.
@Suite struct ProviderTokenPolicyTests {
    private static let epoch: Int64 = 1_700_000_000

    /// A reading `minutes` after the start, with the wall clock `stepped` minutes off.
    private func at(_ minutes: Int64, stepped: Int64 = 0) -> ClockReading {
        ClockReading(
            wallSeconds: Self.epoch + 60 * (minutes + stepped), monotonicSeconds: 5000 + 60 * minutes)
    }

    /// A policy whose steps begin at minute 0, 30, 60 …
    private func policy() -> ProviderTokenPolicy {
        var settings = ProviderTokenPolicy.Settings()
        settings.minimumInterval = 20 * 60
        return ProviderTokenPolicy(settings, key: UInt64(Self.epoch) % 1800)
    }

    private func minted(_ minute: Int64 = 0) -> ProviderTokenPolicy {
        var policy = policy()
        policy.minted(at: at(minute))
        return policy
    }

    @Test func tokenIsRenewedWithEachStepOfThirtyMinutes() {
        var policy = policy()
        #expect(policy.decide(at: at(0)) == .mint)
        policy.minted(at: at(0))
        for minute in Int64(0)..<30 { #expect(policy.decide(at: at(minute)) == .keep, "minute \(minute)") }
        #expect(policy.decide(at: at(30)) == .mint)
        policy.minted(at: at(30))
        #expect(policy.decide(at: at(59)) == .keep)
        #expect(policy.decide(at: at(60)) == .mint)
    }

    @Test func tokensOfAllReplicasHaveTheDateOfTheStep() {
        let policy = policy()
        for minute in Int64(30)..<60 { #expect(policy.issueTime(at: at(minute)) == Self.epoch + 1800) }
        #expect(policy.issueTime(at: at(60)) == Self.epoch + 3600)
        #expect(policy.issueTime(at: at(-1)) == Self.epoch - 1800)
    }

    @Test func stepsOfDifferentKeysBeginAtDifferentMoments() {
        let starts = Set((0..<50).map { ProviderTokenPolicy(key: $0 * 7919).issueTime(at: at(0)) })
        #expect(starts.count == 50)
        #expect(starts.allSatisfy { (Self.epoch - 1799...Self.epoch).contains($0) })
    }

    @Test func tokenOfAReplicaThatStartsLateInAStepIsKeptForTwentyMinutes() {
        let late = minted(29)
        #expect(late.issueTime(at: at(29)) == Self.epoch)
        #expect(late.decide(at: at(48)) == .keep)
        #expect(late.decide(at: at(49)) == .mint)
        let early = minted(9)
        #expect(early.decide(at: at(29)) == .keep)
        #expect(early.decide(at: at(30)) == .mint)
    }

    @Test func refusedTokenIsRenewedAfterTwentyMinutes() {
        var policy = minted()
        let refusal = policy.refusedAsExpired(at: at(25))
        #expect(refusal == .renew)
        #expect(policy.decide(at: at(25)) == .mint)
        policy.minted(at: at(25))
        #expect(policy.decide(at: at(26)) == .keep)
    }

    @Test func refusedYoungTokenIsKeptUntilTwentyMinutes() {
        var policy = minted()
        let refusal = policy.refusedAsExpired(at: at(5))
        #expect(refusal == .tooYoung(seconds: 900))
        for minute in Int64(5)..<20 { #expect(policy.decide(at: at(minute)) == .keep, "minute \(minute)") }
        #expect(policy.decide(at: at(20)) == .mint)
    }

    @Test func tooManyUpdatesDelaysRenewalButNotPastExpiry() {
        var early = minted()
        _ = early.tooManyUpdates(at: at(10))
        #expect(early.decide(at: at(29)) == .keep)
        #expect(early.decide(at: at(30)) == .mint)

        var late = minted(29)
        _ = late.tooManyUpdates(at: at(45))
        #expect(late.decide(at: at(54)) == .keep)
        #expect(late.decide(at: at(55)) == .mint)
        _ = late.tooManyUpdates(at: at(56))
        #expect(late.decide(at: at(56)) == .mint)

        var refused = minted()
        _ = refused.refusedAsExpired(at: at(15))
        _ = refused.tooManyUpdates(at: at(15))
        #expect(refused.decide(at: at(34)) == .keep)
        #expect(refused.decide(at: at(35)) == .mint)
    }

    @Test func tooManyUpdatesInARowGiveLongerRestsUntilTheyStop() {
        var policy = minted()
        let start: Int64 = 5000
        #expect(policy.tooManyUpdates(at: at(0)) == .init(until: start + 60, isNew: true))
        // Answers to requests that were under way change nothing.
        #expect(
            policy.tooManyUpdates(
                at: ClockReading(wallSeconds: Self.epoch + 59, monotonicSeconds: start + 59))
                == .init(until: start + 60, isNew: false))
        #expect(policy.tooManyUpdates(at: at(1)) == .init(until: start + 60 + 120, isNew: true))
        #expect(policy.tooManyUpdates(at: at(3)) == .init(until: start + 180 + 240, isNew: true))
        var minute: Int64 = 7
        for _ in 0..<10 {
            let rest = policy.tooManyUpdates(at: at(minute))
            #expect(rest.isNew && rest.until <= start + 60 * (minute + 20))
            minute = (rest.until - start + 59) / 60
        }
        #expect(policy.tooManyUpdates(at: at(minute + 20)).until == start + 60 * (minute + 21))
    }

    @Test func clockStepForwardRenewsAfterTwentyMonotonicMinutes() {
        let policy = minted()
        // Two hours forward after five minutes: the token looks expired, but its renewal is recent.
        #expect(policy.decide(at: at(5, stepped: 120)) == .keep)
        #expect(policy.decide(at: at(19, stepped: 120)) == .keep)
        #expect(policy.decide(at: at(20, stepped: 120)) == .mint)
        // Five minutes forward: thirty minutes by the wall clock are twenty-five by the monotonic clock.
        #expect(policy.decide(at: at(24, stepped: 5)) == .keep)
        #expect(policy.decide(at: at(25, stepped: 5)) == .mint)
    }

    @Test func clockStepBackRenewsWhenTheTokenIsDatedInTheFuture() {
        let policy = minted()
        #expect(policy.decide(at: at(10, stepped: -600)) == .keep)
        #expect(policy.decide(at: at(20, stepped: -600)) == .mint)
        // A small step back changes nothing.
        #expect(policy.decide(at: at(21, stepped: -25)) == .keep)
        #expect(policy.decide(at: at(29, stepped: -25)) == .keep)
        #expect(policy.decide(at: at(30, stepped: -25)) == .mint)
    }

    @Test func wildClocksRenewAtMostEveryTwentyMinutes() {
        // A fixed sequence of wall-clock steps, with frequent refusals by APNs.
        var policy = ProviderTokenPolicy()
        var lastMint: Int64?
        var mints = 0
        var state: UInt64 = 88_172_645_463_325_252
        for second in stride(from: Int64(0), to: 24 * 3600, by: 7) {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            let wall = Self.epoch + second + Int64(bitPattern: state) % 20_000
            let now = ClockReading(wallSeconds: wall, monotonicSeconds: second)
            if state % 5 == 0 { _ = policy.refusedAsExpired(at: now) }
            if state % 11 == 0 { _ = policy.tooManyUpdates(at: now) }
            if policy.decide(at: now) == .mint {
                if let lastMint { #expect(second - lastMint >= 20 * 60) }
                #expect((0..<1800).contains(wall - policy.issueTime(at: now)))
                lastMint = second
                mints += 1
                policy.minted(at: now)
            }
        }
        #expect(mints > 20)
    }

    @Test func failedSigningIsRetriedWithinAMinute() {
        var policy = ProviderTokenPolicy()
        policy.mintFailed(at: at(0))
        #expect(policy.decide(at: at(0)) == .keep)
        #expect(policy.decide(at: at(1)) == .mint)
        var holding = minted()
        holding.mintFailed(at: at(30))
        #expect(holding.decide(at: at(30)) == .keep)
        #expect(holding.validity.covers(at(30)))
        #expect(holding.decide(at: at(31)) == .mint)
    }

    @Test func validityNeverCoversADecisionToMint() {
        var policy = minted()
        _ = policy.refusedAsExpired(at: at(3))
        for (minute, step) in [(3, 0), (19, 90), (20, 0), (40, 0), (60, -200)] as [(Int64, Int64)] {
            let now = at(minute, stepped: step)
            #expect(policy.validity.covers(now) == (policy.decide(at: now) == .keep), "minute \(minute)")
        }
    }
}
