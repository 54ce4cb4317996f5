import SluiceModel
import Testing

@testable import DeliveryCore

@Suite("Expiry schedule: presences that have expired are found")
struct ExpiryScheduleTests {
    private static let day: UInt64 = 86_400_000_000_000
    private static let wall: Int64 = 1_700_000_000_000

    private func time(_ nanoseconds: UInt64) -> DeliveryTime {
        DeliveryTime(
            wallMilliseconds: Self.wall + Int64(nanoseconds / 1_000_000), monotonicNanoseconds: nanoseconds)
    }

    private func device(_ number: UInt64) -> DeviceKey { DeviceKey(high: number, low: number << 32) }

    @Test func eachPartitionIsScannedInPartsOnceADay() throws {
        var schedule = ExpirySchedule(shards: 2, interval: Self.day)
        var now: UInt64 = 5
        schedule.addPartition(3, at: now)
        let early = schedule.next(at: time(now))
        #expect(early == nil, "the first scan waits after the start")
        now += Self.day / 144
        let first = schedule.next(at: time(now))
        let look = try #require(first)
        #expect(look.slot == 3 && look.after == nil && look.through == time(now).wallMilliseconds)
        let second = schedule.next(at: time(now))
        #expect(second == nil, "one scan at a time")

        let parts = schedule.found(
            look, [device(1), device(2), device(3)], last: device(4), isEnd: false, at: now)
        #expect(parts.map(\.shard) == [0, 1])
        #expect(parts.map(\.devices) == [[device(2)], [device(1), device(3)]])
        now += Self.day / 1000
        let untaken = schedule.next(at: time(now))
        #expect(untaken == nil, "the shards still have the found devices")
        schedule.consumed(3)
        schedule.consumed(3)
        let third = schedule.next(at: time(now))
        let rest = try #require(third)
        #expect(rest.after == device(4))
        let none = schedule.found(rest, [], last: device(9), isEnd: true, at: now)
        #expect(none.isEmpty && schedule.isIdle)
        let soon = schedule.next(at: time(now + Self.day - 1))
        #expect(soon == nil)
        let next = schedule.next(at: time(now + Self.day))
        #expect(next?.after == nil && next != nil)
    }

    @Test func failedScanIsRepeatedWithinAMinute() throws {
        var schedule = ExpirySchedule(shards: 1, interval: Self.day)
        schedule.addPartition(0, at: 0)
        let now = Self.day
        let first = schedule.next(at: time(now))
        let look = try #require(first)
        let failed = schedule.found(look, nil, last: nil, isEnd: true, at: now)
        #expect(failed.isEmpty)
        let atOnce = schedule.next(at: time(now))
        #expect(atOnce == nil)
        let again = schedule.next(at: time(now + 60_000_000_000))
        #expect(again?.after == nil && again != nil)
    }

    @Test func devicesOfAnEndedPartitionCountForNoOther() throws {
        var schedule = ExpirySchedule(shards: 1, interval: Self.day)
        schedule.addPartition(0, at: 0)
        schedule.addPartition(1, at: 0)
        let first = schedule.next(at: time(Self.day))
        let look = try #require(first)
        _ = schedule.found(look, [device(1)], last: nil, isEnd: true, at: Self.day)
        schedule.removePartition(0)
        let second = schedule.next(at: time(2 * Self.day))
        let other = try #require(second)
        #expect(other.slot == 1)
        _ = schedule.found(other, [device(2)], last: nil, isEnd: true, at: 2 * Self.day)
        schedule.consumed(0)
        #expect(!schedule.isIdle, "the shard still has the devices of partition 1")
        schedule.consumed(1)
        #expect(schedule.isIdle)
    }

    @Test func endedPartitionsAreNoLongerScanned() throws {
        var schedule = ExpirySchedule(shards: 1, interval: Self.day)
        schedule.addPartition(0, at: 0)
        schedule.addPartition(1, at: 0)
        let first = schedule.next(at: time(Self.day))
        let look = try #require(first)
        #expect(look.slot == 0)
        schedule.removePartition(0)
        let late = schedule.found(look, [device(1)], last: nil, isEnd: true, at: Self.day)
        #expect(late.isEmpty)
        let second = schedule.next(at: time(2 * Self.day))
        let other = try #require(second)
        #expect(other.slot == 1)
        schedule.revoke(1)
        let ending = schedule.found(other, [device(1)], last: nil, isEnd: true, at: 2 * Self.day)
        #expect(ending.isEmpty)
        let none = schedule.next(at: time(9 * Self.day))
        #expect(none == nil)
    }
}
