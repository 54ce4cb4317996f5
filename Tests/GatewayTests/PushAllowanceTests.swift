import Foundation
import Synchronization
import TestSupport
import Testing

@testable import Gateway

@Suite struct PushAllowanceTests {
    @Test func claimsNoMoreThanIsAllowed() {
        let pushes = PushAllowance()
        #expect(pushes.claim(atMost: 5) == 0 && pushes.wants)
        pushes.allow(7)
        #expect(pushes.claim(atMost: 5) == 5)
        #expect(pushes.claim(atMost: 5) == 2)
        #expect(pushes.claim(atMost: 0) == 0)
        pushes.giveBack(1)
        #expect(pushes.claim(atMost: 5) == 1)
        pushes.allow(3)
        #expect(pushes.claim(atMost: 5) == 0)
    }

    @Test func wakesOnlyShardsThatWantSomethingThatIsThere() {
        let pushes = PushAllowance()
        pushes.allow(1)
        #expect(!pushes.takeWanted(), "nobody has asked in vain")
        #expect(pushes.claim(atMost: 1) == 1)
        #expect(pushes.claim(atMost: 1) == 0)
        #expect(!pushes.takeWanted(), "there is still nothing")
        pushes.allow(2)
        #expect(pushes.takeWanted())
        #expect(!pushes.takeWanted(), "the shards are woken once")
    }

    @Test func countsOfShardsAddUp() {
        let pushes = PushAllowance()
        pushes.count(ended: 3, records: 2)
        pushes.count(ended: 4, records: -1)
        #expect(pushes.ended == 7 && pushes.records == 1)
    }

    /// Shards claim and give back, and the worker lets as many be begun as have ended.
    @Test func threadsNeverHaveMoreThanTheWindow() throws {
        let pushes = PushAllowance()
        let window = 10
        let inFlight = Atomic<Int>(0)
        let most = Atomic<Int>(0)
        let left = Atomic<Int>(4)
        for number in 0..<4 {
            Thread.detachNewThread {
                for turn in 0..<20_000 {
                    let claimed = pushes.claim(atMost: 1 + (turn + number) % 5)
                    let begun = turn % 3 == 0 ? claimed / 2 : claimed
                    let (_, now) = inFlight.add(begun, ordering: .sequentiallyConsistent)
                    most.max(now, ordering: .relaxed)
                    pushes.giveBack(claimed - begun)
                    inFlight.subtract(begun, ordering: .sequentiallyConsistent)
                    pushes.count(ended: begun, records: 0)
                }
                left.subtract(1, ordering: .sequentiallyConsistent)
            }
        }
        try eventually("all threads have ended", timeout: .seconds(60)) {
            for _ in 0..<1000 { pushes.allow(pushes.ended + window) }
            return left.load(ordering: .sequentiallyConsistent) == 0
        }
        #expect((1...window).contains(most.load(ordering: .relaxed)))
        #expect(pushes.ended > window)
    }
}
