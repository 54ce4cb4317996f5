import Testing

@testable import LoadTest

@Suite("Load test: delay of the reader")
struct ReadingDelayTests {
    @Test func waitIsTheAgeAboveTheLeastAgeWhileRecordsAreLeft() {
        var delay = ReadingDelay()
        delay.noteEmpty(at: 0)
        // The clock of the writer is an hour ahead; the way through Kafka takes a millisecond.
        let ahead: Int64 = 3_600_000_000
        #expect(delay.delay(stamped: ahead + 9_000, readAt: 10_000) == 0)
        // Records that were written at once are read one after the other.
        #expect(delay.delay(stamped: ahead + 19_000, readAt: 30_000) == 10_000)
        #expect(delay.delay(stamped: ahead + 19_000, readAt: 50_000) == 30_000)
    }

    @Test func oldRecordIsNotLateWhenTheReaderHadNoneLeft() {
        var delay = ReadingDelay()
        _ = delay.delay(stamped: 9_000, readAt: 10_000)
        // A record became readable a second after its timestamp, as by a transaction.
        delay.noteEmpty(at: 1_998_000)
        #expect(delay.delay(stamped: 1_000_000, readAt: 2_000_000) == 2_000)
        // A stalled reader does not know the record's wait within the stall.
        #expect(delay.delay(stamped: 1_000_000, readAt: 2_500_000) == 502_000)
    }

    @Test func recordWithoutATimestampWaitsSinceTheReaderHadNoneLeft() {
        var delay = ReadingDelay()
        #expect(delay.delay(stamped: nil, readAt: 5_000) == 0)
        delay.noteEmpty(at: 6_000)
        #expect(delay.delay(stamped: nil, readAt: 7_500) == 1_500)
        // Neither a stepped clock nor a late note makes a negative delay.
        #expect(delay.delay(stamped: 5_000, readAt: 5_500) == 0)
    }
}
