import SluiceModel
import Testing

@testable import DeliveryCore

/// Rounds of pushes by which a topic's device tokens are judged.
struct TokenRoundsTests {
    private struct Script {
        var rounds = TokenRounds()

        /// Begins pushes and returns their rounds.
        mutating func begin(_ count: Int) -> [UInt8] { (0..<count).map { _ in rounds.begin() } }

        mutating func end(_ pushes: some Sequence<UInt8>, _ verdict: TokenVerdict) {
            for push in pushes { rounds.end(push, verdict) }
        }

        /// Begins pushes one after the other, each with a wrong token. Returns the number at which most are
        /// wrong; nil when they aren't.
        mutating func wrongOnes(_ most: Int) -> Int? {
            for number in 1...most {
                end(begin(1), .wrong)
                if rounds.areMostlyWrong { return number }
            }
            return nil
        }
    }

    @Test func twentyWrongTokensWithoutAnotherPushAreMost() {
        var script = Script()
        #expect(script.wrongOnes(200) == 20)
    }

    @Test(arguments: [TokenVerdict.wrong, .unknown])
    func pushInFlightCountsAsGoodUntilItEnds(_ verdict: TokenVerdict) {
        var script = Script()
        let open = script.begin(1)
        #expect(script.wrongOnes(20) == nil)
        script.end(open, verdict)
        #expect(script.rounds.areMostlyWrong)
    }

    @Test func amongOtherPushesTheWrongOnesNeedALead() {
        var script = Script()
        script.end(script.begin(3), .right)
        #expect(script.wrongOnes(90) == 43)
    }

    @Test func roundHasAHundredPushes() {
        var script = Script()
        let pushes = script.begin(250)
        #expect(pushes == (0..<250).map { pushes[$0 / 100 * 100] })
        #expect(Set(pushes).count == 3 && !pushes.contains(0))
        script.end(pushes[0..<69], .wrong)
        #expect(!script.rounds.areMostlyWrong)
        script.end(pushes[69..<70], .wrong)
        #expect(script.rounds.areMostlyWrong)
    }

    /// Sixty of a hundred are no lead of 40, though the first 300 answers are all for wrong tokens.
    @Test func wrongTokensOfSeveralRoundsDoNotAddUp() {
        var script = Script()
        let pushes = script.begin(500)
        for (number, push) in pushes.enumerated() where number % 5 < 3 { script.rounds.end(push, .wrong) }
        #expect(!script.rounds.areMostlyWrong)
        for (number, push) in pushes.enumerated() where number % 5 >= 3 { script.rounds.end(push, .right) }
        #expect(!script.rounds.areMostlyWrong)
    }

    @Test func pushWithoutAnAnswerLeavesItsRound() {
        var script = Script()
        let pushes = script.begin(100)
        script.end(pushes[0..<60], .wrong)
        script.end(pushes[60..<79], .unknown)
        #expect(!script.rounds.areMostlyWrong)
        script.end(pushes[79..<80], .unknown)
        #expect(script.rounds.areMostlyWrong)
        #expect(script.rounds.inFlight == 20)
        #expect(script.begin(20) == Array(pushes[0..<20]), "the round has room again")
        #expect(script.begin(1) != Array(pushes[0..<1]))
    }

    @Test func fullRoundsCountNothingUntilTheirPushesEnd() {
        var script = Script()
        let pushes = script.begin(1_500)
        #expect(Set(pushes).count == 15 && !pushes.contains(0))
        #expect(script.rounds.inFlight == 1_500)
        #expect(script.begin(1) == [0])
        script.end(pushes[0..<89], .right)
        #expect(script.begin(1) == [0])
        script.end(pushes[89..<90], .right)
        #expect(script.begin(1) == [pushes[0]])
        script.end(pushes[90...] + pushes[0..<1], .right)
        #expect(script.rounds.inFlight == 0)
    }

    /// Pushes of a number's earlier round, which end late, are no evidence against its later round.
    @Test func lateAnswersDoNotSpeakAgainstLaterPushes() {
        var script = Script()
        let pushes = script.begin(1_500)
        script.end(pushes[10...], .right)
        #expect(script.wrongOnes(1) == nil)
        script.end(pushes[0..<10], .wrong)
        #expect(script.wrongOnes(38) == nil)
        #expect(script.wrongOnes(1) == 1)
    }

    @Test func answersToPushesBeforeANewStartDoNotCount() {
        var script = Script()
        script.end(script.begin(19), .wrong)
        let pushes = script.begin(250)
        script.rounds.startOver()
        script.end(pushes, .wrong)
        #expect(!script.rounds.areMostlyWrong)
        #expect(script.rounds.inFlight == 0)
        #expect(script.wrongOnes(200) == 20, "later pushes count as ever")
    }

    @Test func itemHasItsRoundBesideItsOrder() {
        let facts = PushFacts(
            device: DeviceKey(high: 0, low: 0), notificationKey: 1, topic: 0, partition: 0, offset: 0,
            createdMilliseconds: 0)
        let order: UInt64 = 1 << 44 - 1
        var item = DeliveryItem(facts, device: 0, order: order, expiry: 0)
        #expect(item.round == 0 && item.order == order)
        for round in [UInt8(15), 1, 0] {
            item.round = round
            #expect(item.round == round && item.order == order)
        }
        #expect(MemoryLayout<DeliveryItem>.size == 128)
    }
}
