import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

@Suite struct DeviceBackoffTests {
    private static let second: UInt64 = 1_000_000_000

    @Test func refusalHoldsOnlyItsDevice() {
        var backoff = DeviceBackoff(.init(capacity: 8))
        var random = SeededGenerator(seed: 1)
        let before = backoff.heldUntil(device: 5, now: 0)
        let until = backoff.refused(device: 5, now: 100, using: &random)
        #expect(before == nil)
        #expect(until > 100 && until <= 100 + Self.second)
        let held = (backoff.heldUntil(device: 5, now: until - 1), backoff.heldUntil(device: 6, now: 100))
        #expect(held == (until, nil))
        let after = backoff.heldUntil(device: 5, now: until)
        #expect(after == nil)
    }

    /// The longest of many waits shows that windows double from the base to the cap.
    @Test func windowsGrowToTheCap() {
        var random = SeededGenerator(seed: 2)
        var longest = [UInt64](repeating: 0, count: 6)
        for device in UInt64(0)..<400 {
            var backoff = DeviceBackoff(.init(capacity: 1, cap: 10 * Self.second))
            var now: UInt64 = 0
            for refusal in longest.indices {
                let until = backoff.refused(device: device, now: now, using: &random)
                longest[refusal] = max(longest[refusal], until - now)
                now = until
            }
        }
        for (refusal, seconds) in [1, 2, 4, 8, 10, 10].enumerated() {
            let window = UInt64(seconds) * Self.second
            #expect(longest[refusal] <= window && longest[refusal] > window / 10 * 9, "refusal \(refusal)")
        }
    }

    @Test func retryAfterIsTheLowerBoundUpToItsLimit() {
        var backoff = DeviceBackoff(.init(capacity: 8, retryAfterLimit: 60 * Self.second))
        var random = SeededGenerator(seed: 3)
        let asked = backoff.refused(device: 1, now: 0, retryAfter: 30 * Self.second, using: &random)
        #expect(asked > 30 * Self.second && asked <= 31 * Self.second)
        let limited = backoff.refused(device: 2, now: 0, retryAfter: .max, using: &random)
        #expect(limited > 60 * Self.second && limited <= 61 * Self.second)
        let late = backoff.refused(device: 3, now: .max - 5, retryAfter: .max, using: &random)
        #expect(late == .max)
    }

    @Test func refusalsDuringAHoldDoNotGrowTheWindow() {
        var backoff = DeviceBackoff(.init(capacity: 8, cap: 1 << 60))
        var random = SeededGenerator(seed: 4)
        var until: UInt64 = 0
        for _ in 0..<50 {
            let next = backoff.refused(device: 1, now: 7, using: &random)
            #expect(next >= until && next <= 7 + Self.second)
            until = next
        }
        let count = backoff.count
        #expect(count == 1)
    }

    @Test func acceptedNotificationResetsTheBackoff() {
        var backoff = DeviceBackoff(.init(capacity: 8))
        var random = SeededGenerator(seed: 5)
        var now: UInt64 = 0
        for _ in 0..<20 { now = backoff.refused(device: 1, now: now, using: &random) }
        backoff.accepted(device: 2)
        backoff.accepted(device: 1)
        backoff.accepted(device: 1)
        let count = backoff.count
        let until = backoff.refused(device: 1, now: now, using: &random)
        #expect(count == 0)
        #expect(until <= now + Self.second)
    }

    @Test func endedBackoffsAreForgotten() {
        var backoff = DeviceBackoff(.init(capacity: 8, cap: 2 * Self.second, retryAfterLimit: 0))
        var random = SeededGenerator(seed: 6)
        for device in UInt64(0)..<8 { _ = backoff.refused(device: device, now: 0, using: &random) }
        let full = backoff.count
        // A look-up of an unknown device alone removes ended entries.
        let other = backoff.heldUntil(device: 99, now: 3 * Self.second)
        let (empty, evicted) = (backoff.count, backoff.evictions)
        #expect(full == 8 && other == nil && empty == 0 && evicted == 0)
        let problem = backoff.problem()
        #expect(problem == nil)
    }

    @Test func fullTableEvictsTheBackoffEndingSoonest() {
        var backoff = DeviceBackoff(.init(capacity: 3))
        var random = SeededGenerator(seed: 7)
        for (device, seconds) in [(1, 300), (2, 100), (3, 200)] as [(UInt64, UInt64)] {
            _ = backoff.refused(device: device, now: 0, retryAfter: seconds * Self.second, using: &random)
        }
        _ = backoff.refused(device: 4, now: 0, retryAfter: 400 * Self.second, using: &random)
        let held = (UInt64(1)...4).map { backoff.heldUntil(device: $0, now: 0) != nil }
        let (count, evictions) = (backoff.count, backoff.evictions)
        #expect(held == [true, false, true, true])
        #expect(count == 3 && evictions == 1)
    }

    /// A back-off ending a whole turn of the wheel later lies just before the hand, and is still evicted last.
    @Test func backoffAWholeWheelTurnAwayIsEvictedLast() {
        var backoff = DeviceBackoff(.init(capacity: 2, cap: Self.second))
        var random = SeededGenerator(seed: 8)
        let now = 10 * Self.second
        for (device, seconds) in [(1, 3600), (2, 20), (3, 100)] as [(UInt64, UInt64)] {
            _ = backoff.refused(device: device, now: now, retryAfter: seconds * Self.second, using: &random)
        }
        let held = (UInt64(1)...3).map { backoff.heldUntil(device: $0, now: now) != nil }
        #expect(held == [true, false, true])
        _ = backoff.heldUntil(device: 1, now: now + 200 * Self.second)
        let count = backoff.count
        #expect(count == 1)
    }

    /// Compares with a dictionary. Hashes collide in the index, and clocks stand still, jump and go back.
    @Test(arguments: UInt64(1)...16)
    func randomOperationsMatchADictionary(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let capacity = Int.random(in: 1...64, using: &random)
        let configuration = DeviceBackoff.Configuration(
            capacity: capacity, cap: UInt64.random(in: 1...600, using: &random) * Self.second,
            retryAfterLimit: UInt64.random(in: 0...600, using: &random) * Self.second)
        var backoff = DeviceBackoff(configuration)
        var model: [UInt64: UInt64] = [:]
        let devices = (0..<2 * capacity).map { index in
            index % 3 == 0 ? UInt64(index) << 60 : UInt64.random(in: 0...(.max), using: &random)
        }
        var now = 1000 * Self.second
        for step in 0..<3000 {
            switch Int.random(in: 0..<60, using: &random) {
            case 0: now += UInt64.random(in: 0...3000, using: &random) * Self.second
            case 1: now -= UInt64.random(in: 0...min(now, Self.second), using: &random)
            default: now += UInt64.random(in: 0...Self.second, using: &random)
            }
            let device = devices.randomElement(using: &random) ?? 0
            let evictions = backoff.evictions
            switch Int.random(in: 0..<4, using: &random) {
            case 0, 1:
                let retryAfter = UInt64.random(in: 0...700, using: &random) * Self.second
                let earlier = model[device] ?? 0
                let until = backoff.refused(
                    device: device, now: now, retryAfter: retryAfter, using: &random)
                let least = now + min(retryAfter, configuration.retryAfterLimit)
                if until <= least || until > max(earlier, least + configuration.cap) || until < earlier {
                    Issue.record("seed \(seed) step \(step): held until \(until) at \(now)")
                    return
                }
                model[device] = until
            case 2:
                backoff.accepted(device: device)
                model[device] = nil
            default: break
            }
            // Evicted devices aren't held any more. No other device may be missing.
            let held = model.filter { $0.value > now }
            var missing = 0
            for (device, until) in held where backoff.heldUntil(device: device, now: now) != until {
                missing += 1
                model[device] = nil
            }
            if missing > Int(backoff.evictions - evictions) || backoff.count > capacity {
                Issue.record("seed \(seed) step \(step): \(missing) missing, \(backoff.count) of \(capacity)")
                return
            }
            if step % 64 == 0, let problem = backoff.problem() {
                Issue.record("seed \(seed) step \(step): \(problem)")
                return
            }
        }
    }
}
