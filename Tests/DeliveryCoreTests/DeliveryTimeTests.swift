import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryTimeTests {
    /// States in which a push waits.
    static let waits: [ItemState] = [
        .waiting, .blocked, .deviceLimited, .coalescing, .retrying, .scheduled, .held, .returning,
        .confirming,
        .topicCircuitOpen,
    ]

    /// A harness with one push, "it", in a state. The push expires 60 seconds after the harness began.
    private func harness(with state: ItemState) -> DeliveryHarness {
        var harness = DeliveryHarness {
            $0.inFlightPerDevice = 1
            $0.returnsPerSecond = 1
            $0.returnBurst = 1
        }
        let device = DeliveryHarness.device("d")
        let expiry = harness.now.wallMilliseconds + 60_000
        if state == .blocked || state == .deviceLimited {
            harness.push("first", collapse: state == .blocked ? "x" : nil)
            harness.begin()
        }
        if state == .held || state == .returning {
            _ = harness.machine.offline(device, occurred: .at(1), partition: 0, at: harness.now)
            // Earlier pushes use up the returns of the next minute.
            for index in 0..<(state == .returning ? 62 : 0) {
                harness.push("\(index)") { $0.delivery = .holdWhileOffline }
            }
        }
        harness.push("it", collapse: "x") {
            $0.expirationMilliseconds = expiry
            $0.receiptTimeoutSeconds = 50
            switch state {
            case .coalescing: $0.coalesceWindowMilliseconds = 50_000
            case .scheduled: $0.deliverAtMilliseconds = expiry - 1000
            case .held, .returning: $0.delivery = .holdWhileOffline
            case .confirming: $0.delivery = .confirm
            default: break
            }
        }
        switch state {
        case .returning:
            _ = harness.machine.online(device, occurred: .at(2), partition: 0, at: harness.now)
        case .confirming: harness.accept(harness.begin()!)
        case .retrying: harness.answer(harness.begin()!, .internalServerError, retryAfter: 50_000)
        case .topicCircuitOpen: harness.answer(harness.begin()!, .topicDisallowed)
        default: break
        }
        return harness
    }

    /// A blocked push ends with the push in flight before it.
    @Test(arguments: waits.filter { $0 != .blocked })
    func waitingPushExpiresInEveryState(_ state: ItemState) {
        var harness = harness(with: state)
        #expect(harness.state("it") == state)
        // The wall clock is set forward, which no timer notices.
        harness.now.wallMilliseconds += 58_998
        harness.pass(milliseconds: 1001)
        #expect(!harness.ended.contains("it expired"), "a millisecond is left")
        harness.now.wallMilliseconds += 1
        harness.pass(milliseconds: 1000)
        #expect(harness.ended.contains("it expired"))
        #expect(harness.state("it") == nil)
    }

    @Test func sweepVisitsEachItemOnceASecond() {
        var harness = DeliveryHarness()
        harness.pass(milliseconds: 5000)
        for index in 0..<60 {
            harness.push("\(index)", device: "\(index % 7)") {
                $0.expirationMilliseconds = $0.createdMilliseconds + 1000
            }
        }
        harness.now.wallMilliseconds += 1000
        for _ in 0..<50 { harness.pass(milliseconds: 10) }
        #expect(
            (25...35).contains(harness.ended.count), "half a second visits about half: \(harness.ended.count)"
        )
        for _ in 0..<52 { harness.pass(milliseconds: 10) }
        #expect(harness.ended.count == 60)
        #expect(harness.queue.isEmpty)
    }

    @Test func pushDoesNotBeginAtItsExpiration() {
        for late in [Int64(-1), 0] {
            var harness = DeliveryHarness()
            harness.push("a") { $0.expirationMilliseconds = $0.createdMilliseconds + 500 }
            harness.now.wallMilliseconds += 500 + late
            #expect((harness.begin() == nil) == (late == 0))
            #expect(harness.ended == (late == 0 ? ["a expired"] : []))
        }
    }

    // MARK: deliver-at

    @Test func scheduledPushWaitsForItsDeliveryTime() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 10_000 }
        #expect(harness.state("a") == .scheduled)
        harness.pass(milliseconds: 9_999)
        #expect(harness.state("a") == .scheduled)
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["a"])
    }

    @Test func scheduleFollowsTheWallClock() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 3_600_000 }
        harness.push("b") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 7_200_000 }
        harness.now.wallMilliseconds += 3_600_000
        harness.pass(milliseconds: 1000)
        #expect(harness.waiting == ["a"], "the clock was set forward")
        harness.now.wallMilliseconds -= 1_800_000
        harness.pass(milliseconds: 3_600_000)
        #expect(harness.waiting == ["a"], "the clock was set back")
        harness.pass(milliseconds: 1_798_999)
        #expect(harness.waiting == ["a"])
        harness.pass(milliseconds: 1001)
        #expect(harness.waiting == ["a", "b"], "found by the sweep")
    }

    // MARK: The longest life

    @Test func expirationIsCappedAtTheMaximum() {
        var harness = DeliveryHarness { $0.maximumExpirationMilliseconds = 100_000 }
        let end = harness.now.wallMilliseconds + 100_000
        harness.push("without")
        harness.push("far") { $0.expirationMilliseconds = end + 1 }
        harness.push("near") { $0.expirationMilliseconds = end - 1 }
        harness.push("never") { $0.deliverAtMilliseconds = end }
        #expect(harness.ended == ["never expired"])
        let expiries = harness.queue.map { harness.machine.info($0).progress.expiryMilliseconds - end }
        #expect(expiries == [0, 0, -1])
        harness.pass(milliseconds: 99_999)
        #expect(harness.waiting == ["without", "far"])
        harness.pass(milliseconds: 1)
        harness.pass(milliseconds: 1000)
        #expect(harness.queue.isEmpty)
    }

    @Test func pushWithoutExpirationGetsTheDefaultLifetime() {
        var harness = DeliveryHarness {
            $0.maximumExpirationMilliseconds = 500_000
            $0.defaultLifeMilliseconds = 100_000
        }
        let now = harness.now.wallMilliseconds
        harness.push("plain")
        harness.push("later") { $0.deliverAtMilliseconds = now + 60_000 }
        harness.push("latest") { $0.deliverAtMilliseconds = now + 450_000 }
        harness.push("with") { $0.expirationMilliseconds = now + 300_000 }
        harness.push("held") { $0.delivery = .holdWhileOffline }
        harness.push("confirmed") { $0.delivery = .confirm }
        harness.push("once") { $0.isOnce = true }
        let expiries = harness.names.reduce(into: [:]) {
            $0[$1.value] = harness.machine.info($1.key).progress.expiryMilliseconds - now
        }
        #expect(
            expiries == [
                "plain": 100_000, "later": 160_000, "latest": 500_000, "with": 300_000, "held": 500_000,
                "confirmed": 500_000, "once": 500_000,
            ])
    }

    /// The push has as many attempts as time permits.
    @Test func serverErrorsNeverEndAPushBeforeExpiration() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.expirationMilliseconds = $0.createdMilliseconds + 7 * 86_400_000 }
        var attempts = 0
        while harness.ended.isEmpty {
            while harness.queue.isEmpty, harness.ended.isEmpty { harness.pass(milliseconds: 10_000) }
            guard !harness.queue.isEmpty else { break }
            attempts += 1
            let slot = harness.begin()!
            if attempts % 3 == 0 {
                harness.fail(slot, processed: attempts % 2 == 0)
            } else {
                harness.answer(slot, .internalServerError)
            }
        }
        #expect(harness.ended == ["a expired"])
        #expect(attempts > 7 * 24 * 4, "at most a quarter of an hour between attempts")
        #expect(attempts < 7 * 24 * 16)
    }

    // MARK: Waking

    @Test func noWakeIsScheduledWhenNothingWaits() {
        var harness = DeliveryHarness()
        #expect(harness.machine.nextWake(after: harness.now) == nil)
        harness.push("a")
        #expect(harness.machine.nextWake(after: harness.now) != nil)
        let slot = harness.begin()!
        #expect(harness.machine.nextWake(after: harness.now) == nil, "a push in flight needs no wake")
        harness.accept(slot)
        #expect(harness.machine.nextWake(after: harness.now) == nil)
    }

    @Test(arguments: waits.filter { $0 != .blocked })
    func eachWakeIsLaterThanTheLast(_ state: ItemState) {
        var harness = harness(with: state)
        var wakes = 0
        while let wake = harness.machine.nextWake(after: harness.now) {
            #expect(wakes == 0 || wake > harness.now.monotonicNanoseconds, "after wake \(wakes)")
            let passed = max(wake, harness.now.monotonicNanoseconds) - harness.now.monotonicNanoseconds
            // Milliseconds are rounded down, as a clock does.
            harness.now.monotonicNanoseconds += passed
            harness.now.wallMilliseconds += Int64(passed / 1_000_000)
            harness.machine.advance(to: harness.now)
            harness.drain()
            if harness.state("it") == nil || (harness.state("it") == .waiting && state != .waiting) { break }
            wakes += 1
            guard wakes < 2000 else {
                Issue.record("the push is neither sent nor ended")
                return
            }
        }
        #expect(harness.waiting.contains("it") || harness.ended.contains("it expired"))
    }
}
