import APNS
import Testing

/// Choice among a credential's keys, as scripts of refusals and acceptances. Times are in seconds.
@Suite struct KeyPreferenceTests {
    private let s: UInt64 = 1_000_000_000

    /// Keys that APNs refuses one after the other, at the second `time`.
    private func exhausted(_ count: Int, at time: UInt64 = 0) -> KeyPreference {
        var keys = KeyPreference(count: count)
        for key in 0..<count { _ = keys.refused(key, at: time * s) }
        return keys
    }

    @Test func nextKeyIsUsedWhenTheOneInUseIsRefused() {
        var keys = KeyPreference(count: 3)
        #expect(keys.refused(0, at: 10 * s) == .replaced(by: 1))
        #expect(keys.current == 1)
        // Answers to requests that were signed with the first key.
        #expect(keys.refused(0, at: 11 * s) == .known)
        #expect(keys.refused(1, at: 12 * s) == .replaced(by: 2))
        #expect(!keys.isExhausted)
        #expect(keys.refused(2, at: 13 * s) == .exhausted)
        #expect(keys.isExhausted)
        #expect(keys.refused(0, at: 13 * s) == .exhausted)
    }

    @Test func refusedKeyIsTriedAgainAfterAnHour() {
        var keys = KeyPreference(count: 2)
        #expect(keys.nextReview == .max)
        #expect(keys.refused(0, at: 100 * s) == .replaced(by: 1))
        #expect(keys.isRefused(0) && !keys.isRefused(1))
        #expect(keys.nextReview == 3700 * s)
        #expect(keys.use(at: 3699 * s) == .serve(1))
        #expect(keys.use(at: 3700 * s) == .serve(0))
        #expect(!keys.isRefused(0))
        #expect(keys.nextReview == .max)
        #expect(keys.refused(0, at: 3701 * s) == .replaced(by: 1))
    }

    /// The second key is revoked, and a server refuses the first by mistake.
    @Test func spuriousRefusalBeforeARevokedKeyEndsWithinSeconds() {
        var keys = KeyPreference(count: 2)
        #expect(keys.refused(0, at: 100 * s) == .replaced(by: 1))
        #expect(keys.refused(1, at: 100 * s) == .exhausted)
        #expect(keys.nextReview == 102 * s)
        #expect(keys.use(at: 101 * s) == .serve(1))
        #expect(keys.use(at: 102 * s) == .probe(0, until: 106 * s, isFirst: true))
        #expect(keys.accepted(0) == 1)
        #expect(!keys.isExhausted)
        #expect(keys.use(at: 103 * s) == .serve(0))
        #expect(keys.nextReview == .max)
        // The first key is refused again: the second has been refused within the last hour.
        #expect(keys.refused(0, at: 200 * s) == .exhausted)
        #expect(keys.use(at: 202 * s) == .probe(1, until: 206 * s, isFirst: true))
    }

    @Test func answersUnderWayShowThatARefusalWasAMistake() {
        var keys = exhausted(2)
        #expect(keys.accepted(0) == 0)
        #expect(keys.use(at: 0) == .serve(0))
        #expect(!keys.isRefused(0) && keys.isRefused(1))
        #expect(keys.accepted(0) == nil, "nothing ends")
    }

    @Test func probesAlternateOverAllKeysAtDoublingIntervals() {
        for count in 1...3 {
            var keys = exhausted(count)
            var probes: [(key: Int, time: UInt64)] = []
            for time in UInt64(0)...600 {
                switch keys.use(at: time * s) {
                case .probe(let key, _, _):
                    probes.append((key, time))
                    #expect(keys.refused(key, at: time * s) == .exhausted)
                case .serve(let key): #expect(time < 2 && key == count - 1)
                case .wait(let until): #expect(until > time * s)
                }
            }
            #expect(probes.map(\.time) == [2, 6, 14, 30, 62, 122, 182, 242, 302, 362, 422, 482, 542])
            for (number, probe) in probes.enumerated() { #expect(probe.key == number % count) }
            for key in 0..<count {
                let times = probes.filter { $0.key == key && $0.time >= 62 }.map(\.time)
                #expect(zip(times.dropFirst(), times).allSatisfy { $0 >= $1 + 60 }, "key \(key) of \(count)")
            }
        }
    }

    /// Shards share the keys: one of them sends the probe.
    @Test func oneCallerHasTheProbe() {
        var keys = exhausted(2)
        #expect(keys.use(at: 2 * s) == .probe(0, until: 6 * s, isFirst: true))
        #expect(keys.use(at: 2 * s) == .wait(until: 6 * s))
        #expect(keys.nextReview == 0, "each use asks")
        // The probe has no answer.
        #expect(keys.use(at: 9 * s) == .probe(1, until: 17 * s, isFirst: false))
        #expect(keys.use(at: 16 * s) == .wait(until: 17 * s))
    }

    @Test func acceptedKeyServesAndTheNextPausesAreShortAgain() {
        var keys = exhausted(2)
        for time in UInt64(0)..<300 { _ = keys.use(at: time * s) }
        #expect(keys.accepted(1) == 8)
        #expect(keys.use(at: 300 * s) == .serve(1))
        #expect(keys.refused(1, at: 310 * s) == .exhausted)
        #expect(keys.use(at: 311 * s) == .serve(1))
        #expect(keys.use(at: 312 * s) == .probe(0, until: 316 * s, isFirst: true))
    }

    @Test func singleKeyIsProbed() {
        var keys = KeyPreference(count: 1)
        #expect(keys.use(at: 10_000 * s) == .serve(0))
        #expect(keys.refused(0, at: 0) == .exhausted)
        #expect(keys.current == 0)
        #expect(keys.use(at: 2 * s) == .probe(0, until: 6 * s, isFirst: true))
        #expect(keys.accepted(0) == 1)
        #expect(keys.use(at: 3 * s) == .serve(0))
    }

    @Test func longTroubleBreaksNoArithmetic() {
        var keys = exhausted(2)
        var now: UInt64 = 0
        for _ in 0..<100 {
            now += 60 * s
            guard case .probe(_, let until, _) = keys.use(at: now) else {
                Issue.record("no probe at \(now)")
                return
            }
            #expect(until <= now + KeyPreference.longestPause)
        }
    }
}
