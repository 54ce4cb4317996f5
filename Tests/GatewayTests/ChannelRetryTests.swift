import SluiceModel
import Testing

@testable import sluice

@Suite struct ChannelRetryTests {
    private func decisions(
        _ reason: Reason, isRepeatable: Bool = true, retryAfter: Int? = nil, count: Int = 6
    ) -> [ChannelRetry.Decision] {
        var retry = ChannelRetry(isRepeatable: isRepeatable)
        var decisions: [ChannelRetry.Decision] = []
        for _ in 0..<count {
            decisions.append(retry.decide(Int(reason.status), reason, retryAfterSeconds: retryAfter))
            if case .giveUp = decisions.last { break }
        }
        return decisions
    }

    @Test func throttledRequestIsRepeatedWithGrowingWaitsAndAnEnd() {
        #expect(
            decisions(.tooManyRequests) == [
                .wait(.seconds(1)), .wait(.seconds(2)), .wait(.seconds(4)), .wait(.seconds(8)),
                .giveUp(cause: "5 attempts have failed"),
            ])
    }

    @Test func longerWaitOfTheServerIsHonouredUpToALimit() {
        #expect(
            decisions(.tooManyRequests, retryAfter: 3, count: 3) == [3, 3, 4].map { .wait(.seconds($0)) })
        #expect(decisions(.serviceUnavailable, retryAfter: 60, count: 1) == [.wait(.seconds(60))])
        #expect(
            decisions(.tooManyRequests, retryAfter: 61) == [.giveUp(cause: "APNs asks for a pause of 61 s")])
        #expect(decisions(.tooManyRequests, retryAfter: -5, count: 1) == [.wait(.seconds(1))])
    }

    @Test func requestThatMayHaveBeenProcessedIsRepeatedOnlyIfThatIsHarmless() {
        #expect(decisions(.internalServerError, count: 1) == [.wait(.seconds(1))])
        #expect(decisions(.internalServerError, isRepeatable: false) == [.giveUp(cause: nil)])
        #expect(decisions(.tooManyRequests, isRepeatable: false, count: 1) == [.wait(.seconds(1))])
    }

    @Test(arguments: [
        Reason.featureNotEnabled, .channelNotRegistered, .cannotCreateChannelConfig, .topicMismatch,
        .invalidProviderToken, .tooManyProviderTokenUpdates,
    ])
    func refusalsThatAPersonMustMendAreNotRepeated(reason: Reason) {
        #expect(decisions(reason) == [.giveUp(cause: nil)])
    }

    @Test func answersWithoutAKnownReasonFollowTheirStatus() {
        for (status, waits) in [(429, true), (503, true), (500, true), (400, false), (302, false)] {
            var retry = ChannelRetry(isRepeatable: true)
            let decision = retry.decide(status, .unknown, retryAfterSeconds: nil)
            #expect((decision == .wait(.seconds(1))) == waits, "\(status)")
        }
    }

    /// Each reason of channel management has words of its own, and none is empty.
    @Test func refusalsAreExplained() {
        for reason in Reason.allCases { #expect(!ChannelFault.remedy(reason).isEmpty) }
        #expect(
            ChannelFault.describe(.featureNotEnabled, status: 400, requestID: APNSID(high: 1, low: 2))
                .hasPrefix(
                    "APNs answered FeatureNotEnabled (apns-request-id 00000000-0000-0001-0000-000000000002): the app has no broadcast"
                ))
        #expect(
            ChannelFault.describe(.unknown, status: 418, requestID: nil)
                .hasPrefix("APNs answered status 418: "))
    }
}
