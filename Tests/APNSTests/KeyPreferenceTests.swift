import APNS
import Testing

@Suite struct KeyPreferenceTests {
    @Test func nextKeyIsUsedWhenTheOneInUseIsRefused() {
        var keys = KeyPreference(count: 3)
        #expect(keys.refused(0, at: 10) == .replaced(by: 1))
        #expect(keys.current == 1)
        // Answers to requests that were signed with the first key.
        #expect(keys.refused(0, at: 11) == .known)
        #expect(keys.refused(1, at: 12) == .replaced(by: 2))
        #expect(keys.refused(2, at: 13) == .exhausted)
        #expect(keys.current == 2)
    }

    @Test func refusedKeyIsTriedAgainAfterAnHour() {
        var keys = KeyPreference(count: 2)
        #expect(keys.nextReview == .max)
        #expect(keys.refused(0, at: 100) == .replaced(by: 1))
        #expect(keys.nextReview == 3700)
        #expect(keys.review(at: 3699) == nil)
        #expect(keys.review(at: 3700) == 0)
        #expect(keys.current == 0)
        #expect(keys.nextReview == .max)
        #expect(keys.refused(0, at: 3701) == .replaced(by: 1))
    }

    @Test func singleKeyStaysInUse() {
        var keys = KeyPreference(count: 1)
        #expect(keys.refused(0, at: 0) == .exhausted)
        #expect(keys.current == 0)
        #expect(keys.review(at: 10_000) == nil)
    }
}
