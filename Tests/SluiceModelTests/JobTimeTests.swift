import Testing

@testable import SluiceModel

/// Times beyond the worker's clock, as a producer with a wrong clock or unit writes them.
@Suite struct JobTimeTests {
    /// The year 2106, the last that the fields allow.
    static let year2106 = JobLimits.instant.upperBound
    let decoder = TestDecoder()

    @Test func creationInTheFutureDoesNotProlongATTL() throws {
        let push = try #require(decoder.push(.push([("created-at", "\(Self.year2106)"), ("ttl", "60")])))
        #expect(push.created == 1_700_000_000_123, "the record's timestamp")
        #expect(push.expiration == .at(1_700_000_060))
        var record = TestRecord.push([("ttl", "60")])
        record.timestamp = Self.year2106
        let late = try #require(decoder.push(record))
        #expect(late.created == decoder.now)
        #expect(late.expiration == .at(1_700_000_160))
    }

    @Test func adjustedTimesAreNamed() throws {
        let year = "\(Self.year2106)"
        #expect(try #require(decoder.push(.push())).adjustments == [])
        #expect(decoder.push(.push([("created-at", year)]))?.adjustments == .createdAt)
        let registered = try #require(decoder.push(.push([("registered-at", year)])))
        #expect(registered.adjustments == .registeredAt)
        #expect(registered.registeredAt == registered.created)
        var record = TestRecord.push([("created-at", year)])
        record.timestamp = Self.year2106
        #expect(decoder.push(record)?.adjustments == [.createdAt, .timestamp])
        // A timestamp that isn't used isn't named.
        record = .push([("created-at", "1700000000000")])
        record.timestamp = Self.year2106
        #expect(decoder.push(record)?.adjustments == [])
        #expect(decoder.counts.adjustedJobs == 3)
    }

    @Test func toleranceIsInclusive() throws {
        for (ahead, isAdjusted) in [(Int64(300_000), false), (300_001, true)] {
            let push = try #require(decoder.push(.push([("created-at", "\(decoder.now + ahead)")])))
            #expect(!push.adjustments.isEmpty == isAdjusted)
        }
        let strict = TestDecoder(.init(clockToleranceMilliseconds: 0))
        #expect(strict.push(.push([("created-at", "\(strict.now + 1)")]))?.created == 1_700_000_000_123)
        #expect(strict.push(.push([("created-at", "\(strict.now)")]))?.created == strict.now)
        var times = JobTimes(timestamp: -1, now: .max, tolerance: 1)
        #expect(times.created(.max) == .max)
    }

    @Test func eventInTheFutureCountsAsOfItsRecord() throws {
        let record = JobRuleTests.control([
            ("kind", "device"), ("event", "offline"), ("occurred-at", "\(Self.year2106)"),
        ])
        var decoder = JobDecoder()
        let occurred = try record.withRecord { record -> Int64? in
            guard case .control(let job) = try decoder.decode(record, nowMilliseconds: 1_700_000_100_000)
            else { return nil }
            defer { job.release() }
            return job.occurredMilliseconds
        }
        #expect(occurred == 1_700_000_000_123)
    }
}
