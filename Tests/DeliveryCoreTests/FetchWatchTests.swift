import Testing

@testable import DeliveryCore

@Suite struct FetchWatchTests {
    /// Holds the watch, because expectations can't change a value.
    private final class Holder {
        private var watch = FetchWatch(.init(records: 100_000, bytes: 1_000_000))

        func polled(_ records: Int, bytes: Int, queued: Int) -> Bool {
            watch.polled(records, bytes: bytes, queued: queued)
        }

        func asked(queued: Int) -> Bool { watch.asked(queued: queued) }
    }

    private let watch = Holder()

    @Test func queueNearItsLimitIsAskedForWhenHalfOfItIsGone() {
        // 10,000 records of 100 bytes are at the limit.
        #expect(!watch.polled(100, bytes: 10_000, queued: 9_900))
        #expect(!watch.polled(100, bytes: 10_000, queued: 5_001))
        #expect(watch.polled(100, bytes: 10_000, queued: 5_000))
    }

    @Test func onlyOneRequestIsUnderWay() {
        _ = watch.polled(100, bytes: 10_000, queued: 20_000)
        #expect(watch.polled(100, bytes: 10_000, queued: 10_000))
        #expect(!watch.polled(100, bytes: 10_000, queued: 6_000))
        #expect(!watch.asked(queued: 6_000))
        #expect(watch.polled(100, bytes: 10_000, queued: 5_000))
    }

    /// The queue may be empty by the answer, and is polled no more.
    @Test func requestIsRepeatedWhenTheQueueHasShrunkMeanwhile() {
        _ = watch.polled(100, bytes: 10_000, queued: 20_000)
        #expect(watch.polled(100, bytes: 10_000, queued: 10_000))
        #expect(!watch.polled(100, bytes: 10_000, queued: 0))
        #expect(watch.asked(queued: 0))
        #expect(!watch.asked(queued: 0))
    }

    /// A queue that is still above the limit when half of it is gone is asked for again.
    @Test func requestIsRepeatedWithEachHalf() {
        _ = watch.polled(100, bytes: 10_000, queued: 80_000)
        var requests: [Int] = []
        for queued in stride(from: 80_000, through: 0, by: -100)
        where watch.polled(100, bytes: 10_000, queued: queued) {
            #expect(!watch.asked(queued: queued))
            requests.append(queued)
        }
        #expect(requests.count == 5)
        #expect(requests.last == 2_500)
    }

    @Test func shortQueueIsLeftAlone() {
        for queued in [4_000, 2_000, 0, 4_000, 0] {
            #expect(!watch.polled(100, bytes: 10_000, queued: queued))
        }
    }

    @Test func numberOfRecordsIsALimitToo() {
        #expect(!watch.polled(100, bytes: 100, queued: 60_000))
        #expect(watch.polled(100, bytes: 100, queued: 20_000))
    }

    @Test func sizeOfRecordsFollowsTheLoad() {
        for _ in 0..<100 { #expect(!watch.polled(100, bytes: 10_000, queued: 1_000)) }
        // 1,100 records are near the limit once they have 1,000 bytes.
        for _ in 0..<30 { #expect(!watch.polled(100, bytes: 100_000, queued: 1_000)) }
        #expect(watch.polled(100, bytes: 100_000, queued: 100))
    }

    @Test func emptyPollsNeedNothing() {
        for _ in 0..<10 { #expect(!watch.polled(0, bytes: 0, queued: 0)) }
    }

    /// librdkafka takes limits from 1 on.
    @Test func smallestLimitsNeedNoRequestWhileTheQueueIsEmpty() {
        var watch = FetchWatch(.init(records: 1, bytes: 1))
        let first = watch.polled(1, bytes: 100, queued: 0)
        let second = watch.asked(queued: 0)
        let third = watch.polled(0, bytes: 0, queued: 0)
        #expect(first && !second && !third)
    }
}
