import DeliveryCore
import Kafka
import Testing

@testable import Gateway

/// Distance of the reading from the end of a partition's log.
struct ReadPositionsTests {
    private let now: Int64 = 1_800_000_000_000

    private func report(watermark: Int64, end: Int64, outstanding: Int) -> PartitionReport {
        PartitionReport(
            topic: "jobs", partition: 3, watermark: watermark, end: end, outstanding: outstanding,
            outstandingBytes: 0, headOfLineAge: .zero, pauseReasons: [], isEnding: false)
    }

    @Test func lagIsUnknownBeforeTheFirstFetch() {
        let lag = ReadPositions().lag(of: report(watermark: 5, end: 5, outstanding: 0), nil, now: now)
        #expect(lag == PartitionLag(partition: 3, records: nil, uncommitted: nil, seconds: 0))
    }

    @Test func recordsBehindTheReadingHaveTheAgeOfTheLastOne() {
        var positions = ReadPositions()
        positions.polled(3, timestamp: now - 2_500, now: now)
        let report = report(watermark: 10, end: 40, outstanding: 30)
        let lag = positions.lag(of: report, Watermarks(low: 0, high: 100), now: now)
        #expect(lag == PartitionLag(partition: 3, records: 60, uncommitted: 90, seconds: 2.5))
        // Records that have left the log count no more.
        let late = positions.lag(of: report, Watermarks(low: 70, high: 100), now: now)
        #expect(late.records == 30 && late.uncommitted == 30)
        let next = positions.lag(
            of: self.report(watermark: 40, end: 40, outstanding: 0), Watermarks(low: 0, high: 40), now: now)
        #expect(next == PartitionLag(partition: 3, records: 0, uncommitted: 0, seconds: 0))
    }

    /// Offsets of transaction markers lie between the last record and the log's end.
    @Test func markersAreNoRecords() {
        var positions = ReadPositions()
        let watermarks = Watermarks(low: 0, high: 43)
        let done = report(watermark: 40, end: 40, outstanding: 0)
        #expect(positions.lag(of: done, watermarks, now: now).records == 3)
        positions.reachedEnd(3, 43, now: now)
        let lag = positions.lag(of: done, watermarks, now: now)
        #expect(lag.records == 0 && lag.uncommitted == 0)
        let open = positions.lag(of: report(watermark: 38, end: 40, outstanding: 2), watermarks, now: now)
        #expect(open.records == 0 && open.uncommitted == 5)
        positions.assigned(3)
        #expect(positions.lag(of: done, watermarks, now: now).records == 3)
    }

    @Test(arguments: [Int64.min, -1, .max])
    func timestampOutOfRangeCountsAsNow(timestamp: Int64) {
        var positions = ReadPositions()
        positions.polled(3, timestamp: timestamp, now: now - 1_000)
        let lag = positions.lag(
            of: report(watermark: 0, end: 1, outstanding: 1), Watermarks(low: 0, high: 2), now: now)
        #expect(lag.records == 1 && lag.seconds == 1)
    }

    /// A transaction's marker ends the log. The records that come after an idle minute are young.
    @Test func idleTimeIsNoLag() {
        var positions = ReadPositions()
        let read = report(watermark: 40, end: 40, outstanding: 0)
        positions.polled(3, timestamp: now, now: now)
        positions.reachedEnd(3, 41, now: now + 10)
        let later = now + 60_000
        #expect(positions.lag(of: read, Watermarks(low: 0, high: 41), now: later).seconds == 0)
        positions.look(read, Watermarks(low: 0, high: 41), now: later)
        let lag = positions.lag(of: read, Watermarks(low: 0, high: 44), now: later + 500)
        #expect(lag.records == 3 && lag.seconds == 0.5)
        // Records that stay unread grow old.
        positions.look(read, Watermarks(low: 0, high: 44), now: later + 1_000)
        #expect(positions.lag(of: read, Watermarks(low: 0, high: 44), now: later + 9_000).seconds == 9)
    }
}
