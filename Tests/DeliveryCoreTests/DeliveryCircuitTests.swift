import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

struct DeliveryCircuitTests {
    /// Three pushes of topic 0 and one of topic 1, after a configuration answer for the first.
    private func stopped(_ adjust: (inout DeliveryLimits) -> Void = { _ in }) -> DeliveryHarness {
        var harness = DeliveryHarness(adjust)
        for name in ["a", "b", "c"] { harness.push(name, device: name) }
        harness.push("other", device: "o") { $0.topic = 1 }
        harness.answer(harness.begin()!, .topicDisallowed)
        return harness
    }

    private func alerts(_ harness: borrowing DeliveryHarness) -> Int {
        harness.others.count { if case .alert = $0 { true } else { false } }
    }

    private func recoveries(_ harness: borrowing DeliveryHarness) -> Int {
        harness.others.count { if case .recovered = $0 { true } else { false } }
    }

    /// Begins every push that may be sent, and answers none.
    private func beginAll(_ harness: inout DeliveryHarness) -> [UInt32] {
        var slots: [UInt32] = []
        while !harness.queue.isEmpty { if let slot = harness.begin() { slots.append(slot) } }
        return slots
    }

    @Test func topicRefusalOpensCircuitWithoutCountingFailures() {
        var harness = stopped()
        let other = beginAll(&harness)
        #expect(other.map { harness.names[$0] } == ["other"])
        for name in ["a", "b", "c"] { #expect(harness.state(name) == .topicCircuitOpen) }
        harness.push("d", device: "d")
        #expect(harness.state("d") == .topicCircuitOpen)
        #expect(alerts(harness) == 1)
        #expect(harness.machine.milestones.stops == 1)
        let slot = harness.names.first { $0.value == "a" }!.key
        #expect(harness.others.contains(.alert(topic: 0, slot: slot, .refusal)))
        #expect(harness.machine.info(slot).progress.failures == 0)
        #expect(harness.ended.isEmpty)
        #expect(harness.machine.milestones.stored == 4, "the wait has no known end")
    }

    /// The connection's GOAWAY blames the topic of its unprocessed pushes.
    @Test func connectionClosedForTopicOpensOnlyThatTopicsCircuit() {
        var harness = DeliveryHarness()
        for name in ["a", "b", "c"] { harness.push(name, device: name) }
        harness.push("once", device: "e") { $0.isOnce = true }
        harness.push("other", device: "o") { $0.topic = 1 }
        let slots = beginAll(&harness)
        for slot in slots.reversed() where harness.names[slot] != "other" {
            harness.machine.topicRefused(slot, at: harness.now)
            harness.drain()
        }
        for name in ["a", "b", "c", "once"] { #expect(harness.state(name) == .topicCircuitOpen) }
        #expect(harness.state("other") == .inFlight)
        #expect(alerts(harness) == 1)
        #expect(harness.machine.milestones.stops == 1)
        for slot in slots where harness.names[slot] != "other" {
            #expect(harness.machine.info(slot).progress.attempts == 0)
            #expect(harness.machine.info(slot).progress.failures == 0)
        }
        #expect(harness.ended.isEmpty)
    }

    @Test func manyRefusalsInFlightRaiseOneAlert() {
        var harness = DeliveryHarness()
        for index in 0..<8 { harness.push("\(index)", device: "\(index)") }
        let slots = beginAll(&harness)
        for slot in slots { harness.answer(slot, .invalidProviderToken) }
        #expect(alerts(harness) == 1)
        #expect(harness.machine.milestones[.topicCircuitOpen] == 8)
    }

    /// APNs has refused all keys of the pool, and single pushes try the keys.
    @Test func refusedKeysStopTheTopicWithoutARequest() {
        var harness = DeliveryHarness()
        for name in ["a", "b"] { harness.push(name, device: name) }
        harness.push("broadcast", device: "channel") {
            $0.topic = 1
            $0.isOrdered = true
        }
        var probeAt = harness.now.monotonicNanoseconds + 300_000_000
        var sent: [String] = []
        while let slot = harness.queue.first {
            harness.machine.keysRefused(slot, probeAt: probeAt, at: harness.now)
            if let slot = harness.begin() { sent.append(harness.names[slot]!) }
        }
        #expect(sent == ["broadcast"], "its own answer ends a broadcast")
        for name in ["a", "b"] { #expect(harness.state(name) == .topicCircuitOpen) }
        #expect(alerts(harness) == 1)
        #expect(harness.machine.milestones.sent == 1)
        let wake = harness.machine.nextWake(after: harness.now)!
        #expect(wake <= probeAt)
        harness.pass(milliseconds: 300)
        #expect(harness.waiting == ["a"])
        // The keys' probe was a push of another topic.
        probeAt += 4_000_000_000
        harness.machine.keysRefused(harness.queue[0], probeAt: probeAt, at: harness.now)
        #expect(harness.begin() == nil)
        #expect(alerts(harness) == 1)
        harness.pass(milliseconds: 4_000)
        #expect(harness.waiting == ["b"])
        harness.accept(harness.begin()!)
        #expect(recoveries(harness) == 1)
        #expect(harness.waiting == ["a"])
    }

    /// A push that had its place with the scheduler before the topic stopped is the only one left.
    @Test func refusedKeysHoldAPushThatWouldBecomeTheProbe() {
        var harness = DeliveryHarness()
        harness.push("a", device: "a")
        harness.push("b", device: "b")
        harness.answer(harness.begin()!, .topicDisallowed)
        harness.cancel("a", device: "a")
        harness.pass(milliseconds: 60_000)
        #expect(harness.waiting == ["b"])
        let now = harness.now
        harness.machine.keysRefused(harness.queue[0], probeAt: now.monotonicNanoseconds, at: now)
        #expect(harness.begin() == nil)
        #expect(harness.state("b") == .topicCircuitOpen)
        harness.pass(milliseconds: 0)
        #expect(harness.waiting == ["b"], "the keys' next probe is due")
    }

    @Test func acceptedProbeClosesTheTopicCircuit() {
        var harness = stopped()
        let flying = beginAll(&harness)
        harness.accept(flying[0])
        #expect(harness.machine.milestones[.topicCircuitOpen] == 3, "another topic's answer proves nothing")
        harness.pass(milliseconds: 60_000)
        #expect(harness.waiting.count == 1)
        #expect(harness.machine.milestones[.topicCircuitOpen] == 2)
        harness.push("d", device: "d")
        #expect(harness.state("d") == .topicCircuitOpen)
        harness.accept(harness.begin()!)
        #expect(recoveries(harness) == 1)
        #expect(harness.waiting.count == 3)
        harness.push("e", device: "e")
        #expect(harness.state("e") == .waiting)
    }

    @Test func refusedProbesLengthenThePauseUpToTheCap() {
        var harness = stopped { limits in
            limits.retry.configuration = try! ExponentialBackoff(
                baseMilliseconds: 1000, capMilliseconds: 60_000, multiplier: 2)
        }
        _ = beginAll(&harness)
        var pauses: [Int] = []
        for _ in 0..<200 {
            var pause = 0
            while harness.queue.isEmpty {
                harness.pass(milliseconds: 100)
                pause += 1
            }
            pauses.append(pause)
            #expect(harness.waiting.count == 1)
            harness.answer(harness.begin()!, .topicDisallowed)
        }
        #expect(alerts(harness) == 1)
        #expect(recoveries(harness) == 0)
        #expect(pauses[0] <= 11)
        #expect(pauses.max()! > 300, "the pauses grow")
        #expect(pauses.max()! <= 602, "up to their cap")
        harness.pass(milliseconds: 60_000)
        harness.accept(harness.begin()!)
        // After a recovery the pauses and alerts start over.
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(alerts(harness) == 2)
        harness.pass(milliseconds: 1000)
        #expect(!harness.queue.isEmpty)
    }

    /// Ends of a probe that reveal nothing about its topic.
    enum InconclusiveEnd: CaseIterable, Sendable {
        case cancelled, expired, held, serverTrouble, lost, replacedByAnotherTopic, departed
    }

    @Test(arguments: InconclusiveEnd.allCases)
    func inconclusiveProbeIsFollowedByAnother(_ kind: InconclusiveEnd) {
        var harness = DeliveryHarness()
        let end = harness.now.wallMilliseconds + 100_000
        harness.push("a", device: "a")
        harness.push("probe", device: "p") {
            $0.expirationMilliseconds = end
            $0.delivery = .holdWhileOffline
        }
        harness.push("next", device: "n")
        let first = harness.begin()!
        harness.answer(first, .topicDisallowed)
        _ = beginAll(&harness)
        _ = harness.machine.cancel(
            DeliveryHarness.device("a"), .notificationKey(DeliveryHarness.key("a")), at: harness.now)
        harness.pass(milliseconds: 60_000)
        #expect(harness.waiting == ["probe"])
        let device = DeliveryHarness.device("p")
        switch kind {
        case .cancelled:
            _ = harness.machine.cancel(
                device, .notificationKey(DeliveryHarness.key("probe")), at: harness.now)
        case .expired:
            harness.now.wallMilliseconds = end
            harness.begin()
        case .held:
            _ = harness.machine.offline(device, occurred: .at(1), partition: 0, at: harness.now)
        case .serverTrouble: harness.answer(harness.begin()!, .internalServerError)
        case .lost:
            let slot = harness.begin()!
            harness.fail(slot, processed: true)
            #expect(harness.waiting == ["probe"], "it is sent again as the probe")
            harness.fail(harness.begin()!, processed: true)
            harness.fail(harness.begin()!, processed: true)
        case .replacedByAnotherTopic:
            // Without a collapse identifier the `apns-id` is the identity.
            harness.push("probe", device: "p") { $0.topic = 1 }
            #expect(harness.waiting == ["probe"])
        case .departed:
            _ = harness.machine.tokenChanged(
                device, to: DeliveryHarness.device("q"), isElsewhere: true, at: harness.now)
        }
        harness.pass(milliseconds: 0)
        #expect(harness.waiting.contains("next"))
        #expect(harness.machine.nextWake(after: harness.now)! > harness.now.monotonicNanoseconds)
    }

    @Test func onlyAnswersAboutThePushCloseTheCircuit() {
        for (reason, isWell) in [
            (Reason.unregistered, true), (.payloadTooLarge, true), (.tooManyRequests, true),
            (.internalServerError, false), (.serviceUnavailable, false), (.shutdown, false),
            (.expiredProviderToken, false),
        ] {
            var harness = stopped()
            _ = beginAll(&harness)
            harness.pass(milliseconds: 60_000)
            harness.answer(harness.begin()!, reason)
            #expect(recoveries(harness) == (isWell ? 1 : 0), "\(reason)")
        }
    }

    @Test func pushesBehindOpenCircuitCanBeCancelledAndReplaced() {
        var harness = DeliveryHarness()
        harness.push("a", collapse: "x")
        harness.push("b", device: "e")
        harness.answer(harness.begin()!, .topicDisallowed)
        _ = beginAll(&harness)
        harness.push("newer", collapse: "x")
        #expect(harness.ended == ["a superseded by newer"])
        #expect(harness.state("newer") == .topicCircuitOpen)
        #expect(
            harness.machine.cancel(
                DeliveryHarness.device("e"), .notificationKey(DeliveryHarness.key("b")), at: harness.now)
                == CancelResult(cancelled: 1))
        harness.drain()
        #expect(harness.machine.milestones[.topicCircuitOpen] == 1)
    }
}
