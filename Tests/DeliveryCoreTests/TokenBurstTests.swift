import SluiceModel
import Testing

@testable import DeliveryCore

/// Answers that reject device tokens: the fault of a token, or of a setting.
struct TokenBurstTests {
    /// Bad tokens that are rejected before the next opens the circuit, when each push awaits the one before.
    private static let rejectedBeforeOpening = 19
    /// The same, when at least a hundred pushes begin before the first answer.
    private static let rejectedOfBurst = 69

    /// Begins and answers `count` pushes, each to a device of its own.
    private func answer(
        _ harness: inout DeliveryHarness, _ count: Int, _ reason: Reason?, named name: String
    ) {
        for number in 0..<count {
            harness.push("\(name)\(number)", device: "\(name)\(number)")
            guard !harness.queue.isEmpty, let slot = harness.begin() else { continue }
            if let reason { harness.answer(slot, reason) } else { harness.accept(slot) }
        }
    }

    private func harness() -> DeliveryHarness { DeliveryHarness { $0.capacity = 4096 } }

    private func rejected(_ harness: borrowing DeliveryHarness) -> Int {
        harness.ended.count { $0.hasSuffix("rejected") }
    }

    private func faults(_ harness: borrowing DeliveryHarness) -> [TopicFault] {
        harness.others.compactMap { if case .alert(_, _, let fault) = $0 { fault } else { nil } }
    }

    @Test func wrongSettingOpensTheCircuitWithTheFirstAnswers() {
        var harness = harness()
        let pushes = 500
        for number in 0..<pushes { harness.push("a\(number)", device: "a\(number)") }
        // All are in flight before the first is answered.
        let slots = (0..<pushes).map { _ in harness.begin()! }
        for slot in slots { harness.answer(slot, .badDeviceToken) }
        #expect(rejected(harness) == Self.rejectedOfBurst)
        #expect(harness.machine.milestones[.topicCircuitOpen] == pushes - Self.rejectedOfBurst)
        #expect(faults(harness) == [.tokens])
    }

    /// APNs refuses faster than it accepts. At most half of the tokens are wrong, and answered first.
    @Test(arguments: [2, 3, 10])
    func wrongTokensWhoseAnswersComeFirstAreRejectedAlone(_ every: Int) {
        var harness = harness()
        let pushes = 300
        for number in 0..<pushes { harness.push("a\(number)", device: "a\(number)") }
        let slots = (0..<pushes).map { _ in harness.begin()! }
        for slot in slots.enumerated() where slot.offset % every == 0 {
            harness.answer(slot.element, .badDeviceToken)
        }
        #expect(rejected(harness) == pushes / every)
        for slot in slots.enumerated() where slot.offset % every != 0 { harness.accept(slot.element) }
        #expect(harness.ended.count == pushes)
        #expect(faults(harness).isEmpty)
    }

    /// Answers may be lost more often for good tokens. Pushes without one therefore count like good pushes.
    @Test(arguments: [(lost: 20, stops: true), (lost: 60, stops: false), (lost: 80, stops: false)])
    func wrongTokensAmongLostAnswers(_ lost: Int, _ stops: Bool) {
        var harness = harness()
        for number in 0..<100 {
            harness.push("a\(number)", device: "a\(number)") { $0.duplicates = .avoid }
        }
        let slots = (0..<100).map { _ in harness.begin()! }
        for slot in slots.suffix(lost) { harness.fail(slot, processed: true) }
        for slot in slots.dropLast(lost) { harness.answer(slot, .badDeviceToken) }
        #expect(faults(harness) == (stops ? [.tokens] : []))
    }

    /// Servers that fail answer good tokens with 500.
    @Test func wrongTokensBesideServerErrorsAreRejectedAlone() {
        var harness = harness()
        for number in 0..<400 { harness.push("a\(number)", device: "a\(number)") }
        for number in 0..<400 {
            let slot = harness.begin()!
            harness.answer(slot, number % 10 == 0 ? .badDeviceToken : .internalServerError)
        }
        #expect(rejected(harness) == 40)
        #expect(faults(harness).isEmpty)
    }

    @Test func settingTurningWrongOpensTheCircuitSoon() {
        var harness = harness()
        answer(&harness, 1_050, nil, named: "good")
        harness.queue.removeAll()
        for number in 0..<500 { harness.push("a\(number)", device: "a\(number)") }
        let slots = (0..<500).map { _ in harness.begin()! }
        for (number, slot) in slots.enumerated() {
            harness.answer(slot, number % 2 == 0 ? .badDeviceToken : .deviceTokenNotForTopic)
        }
        #expect(rejected(harness) > 50)
        #expect(rejected(harness) <= 200)
        #expect(faults(harness) == [.tokens])
    }

    @Test func wrongTokensAmongGoodOnesAreRejectedAlone() {
        var harness = harness()
        let (rounds, badTokens) = (100, 4)
        for round in 0..<rounds {
            answer(&harness, 6, nil, named: "good\(round)-")
            answer(&harness, badTokens, .badDeviceToken, named: "bad\(round)-")
        }
        #expect(rejected(harness) == rounds * badTokens)
        #expect(faults(harness).isEmpty)
    }

    @Test func unregisteredTokensDoNotOpenTheCircuit() {
        var harness = harness()
        answer(&harness, 300, .unregistered, named: "a")
        #expect(rejected(harness) == 300)
        #expect(faults(harness).isEmpty)
    }

    @Test func acceptedProbeClosesTheCircuitAndResetsTheCounts() {
        var harness = harness()
        let pushes = 40
        answer(&harness, pushes, .badDeviceToken, named: "a")
        #expect(harness.machine.milestones[.topicCircuitOpen] == pushes - Self.rejectedBeforeOpening)
        for _ in 0..<5 {
            while harness.queue.isEmpty { harness.pass(milliseconds: 100) }
            #expect(harness.waiting.count == 1)
            harness.answer(harness.begin()!, .badDeviceToken)
        }
        #expect(rejected(harness) == Self.rejectedBeforeOpening, "refused probes wait like the other pushes")
        // An answer about the push or the server alone proves nothing about the token.
        for reason in [Reason.payloadTooLarge, .tooManyRequests, .internalServerError] {
            while harness.queue.isEmpty { harness.pass(milliseconds: 100) }
            harness.answer(harness.begin()!, reason)
            #expect(harness.others.allSatisfy { if case .recovered = $0 { false } else { true } })
        }
        while harness.queue.isEmpty { harness.pass(milliseconds: 100) }
        harness.accept(harness.begin()!)
        #expect(harness.machine.milestones[.topicCircuitOpen] == 0)
        #expect(faults(harness) == [.tokens])
        // The counts start over.
        let waiting = harness.queue.count
        #expect(waiting > 10 && waiting <= Self.rejectedBeforeOpening)
        while !harness.queue.isEmpty {
            if let slot = harness.begin() { harness.answer(slot, .badDeviceToken) }
        }
        #expect(faults(harness) == [.tokens])
        answer(&harness, Self.rejectedBeforeOpening - waiting, .badDeviceToken, named: "b")
        #expect(faults(harness) == [.tokens])
        answer(&harness, 1, .badDeviceToken, named: "c")
        #expect(faults(harness) == [.tokens, .tokens])
    }

    /// Good tokens wait behind many wrong ones.
    @Test func goodPushIsProbedBeforeAllWrongOnes() {
        var harness = harness()
        answer(&harness, 500, .badDeviceToken, named: "a")
        harness.push("good", device: "good")
        var probes = 0
        while harness.machine.milestones[.topicCircuitOpen] > 0, probes < 10 {
            while harness.queue.isEmpty { harness.pass(milliseconds: 100) }
            let slot = harness.begin()!
            probes += 1
            if harness.names[slot] == "good" {
                harness.accept(slot)
            } else {
                harness.answer(slot, .badDeviceToken)
            }
        }
        #expect(harness.ended.contains("good accepted"))
        #expect(probes <= 2)
    }

    /// Good pushes sent before the circuit opened prove nothing about the setting.
    @Test func onlyTheProbeClosesTheCircuit() {
        var harness = harness()
        for name in ["x", "y"] { harness.push(name, device: name) }
        let flying = (0..<2).map { _ in harness.begin()! }
        let badTokens = 60
        answer(&harness, badTokens, .badDeviceToken, named: "a")
        // Two pushes in flight might be good.
        let rejectedBeforeOpening = 41
        harness.accept(flying[0])
        harness.answer(flying[1], .unregistered)
        #expect(rejected(harness) == rejectedBeforeOpening + 1)
        #expect(harness.machine.milestones[.topicCircuitOpen] == badTokens - rejectedBeforeOpening)
        #expect(harness.others.allSatisfy { if case .recovered = $0 { false } else { true } })
    }

    @Test func singleAttemptPushesEndWhenTheCircuitOpens() {
        var harness = harness()
        answer(&harness, 30, .badDeviceToken, named: "a")
        while harness.queue.isEmpty { harness.pass(milliseconds: 100) }
        harness.accept(harness.begin()!)
        for number in 0..<60 { harness.push("b\(number)", device: "b\(number)") { $0.isOnce = true } }
        var slots: [UInt32] = []
        while !harness.queue.isEmpty { if let slot = harness.begin() { slots.append(slot) } }
        for slot in slots { harness.answer(slot, .badDeviceToken) }
        #expect(harness.ended.contains { $0.hasSuffix("undeliverable attemptsExhausted") })
        #expect(harness.machine.milestones[.inFlight] == 0)
    }

    @Test func forbiddenPushIsRejectedAndOpensTheCircuit() {
        var harness = harness()
        for name in ["a", "b"] { harness.push(name, device: name) }
        harness.answer(harness.begin()!, .forbidden)
        #expect(harness.ended == ["a rejected"])
        #expect(harness.begin() == nil)
        #expect(harness.state("b") == .topicCircuitOpen)
        #expect(faults(harness) == [.refusal])
    }
}
