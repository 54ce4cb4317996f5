import SluiceModel
import Testing

@testable import DeliveryCore

struct SuspendedScheduleTests {
    private typealias Entry = SuspendedSchedule.Entry

    /// An item of one of two shards.
    private func item(_ number: Int64, shard: UInt64 = 0) -> DueItem {
        DueItem(due: number, device: DeviceKey(high: UInt64(number), low: shard << 32), offset: number)
    }

    private func entry(_ number: Int64, shard: UInt64 = 0, topic: UInt32 = 7) -> Entry {
        Entry(item: item(number, shard: shard), topic: topic)
    }

    /// A schedule of one partition, whose first scan has found nothing.
    private func begun() -> SuspendedSchedule {
        var schedule = SuspendedSchedule(shards: 2)
        schedule.addPartition(3)
        let look = schedule.next(at: 0)!
        #expect(look.slot == 3 && look.topic == nil && look.after == nil)
        found(&schedule, look, [], isEnd: true)
        #expect(schedule.isIdle)
        return schedule
    }

    @discardableResult
    private func found(
        _ schedule: inout SuspendedSchedule, _ look: SuspendedSchedule.Look, _ entries: [Entry]?,
        cursor: DueItem? = nil, isEnd: Bool, at now: UInt64 = 0, end: Int64 = .max
    ) -> [Int: [Int64]] {
        let parts = schedule.found(
            look, entries, cursor: cursor ?? entries?.last?.item, isEnd: isEnd, at: now
        ) { $0 < end }
        return Dictionary(uniqueKeysWithValues: parts.map { ($0.shard, $0.items.map(\.offset)) })
    }

    @Test func newPartitionIsScannedForItemsOfAnEarlierWorker() {
        var schedule = SuspendedSchedule(shards: 2)
        schedule.addPartition(3)
        let look = schedule.next(at: 0)!
        #expect(schedule.next(at: 0) == nil, "one at a time")
        let parts = found(
            &schedule, look, [entry(1), entry(2, shard: 1), entry(30)], isEnd: false, end: 10)
        #expect(parts == [0: [1], 1: [2]], "the third item's record is still to be read")
        #expect(schedule.next(at: 0) == nil, "the shards still have the found items")
        schedule.consumed(3)
        #expect(schedule.next(at: 0) == nil)
        schedule.consumed(3)
        let next = schedule.next(at: 0)
        #expect(next?.after == item(30))
    }

    /// A record that is complete doesn't bring its item along.
    @Test func itemsAheadAreLookedForAgainOnceTheirRecordsAreRead() {
        var schedule = SuspendedSchedule(shards: 2)
        schedule.addPartition(3)
        let look = schedule.next(at: 0)!
        let entries = [entry(1), entry(20, shard: 1), entry(30)]
        #expect(found(&schedule, look, entries, isEnd: true, end: 10) == [0: [1]])
        schedule.consumed(3)
        #expect(schedule.isIdle)
        #expect(schedule.ahead.map(\.slot) == [3] && schedule.ahead.map(\.offset) == [30])
        schedule.readAhead(3)
        #expect(schedule.ahead.isEmpty)
        let again = schedule.next(at: 0)!
        #expect(again.topic == nil && again.after == nil)
        #expect(found(&schedule, again, entries, isEnd: true, end: 31) == [0: [1, 30], 1: [20]])
        #expect(schedule.ahead.isEmpty)
    }

    @Test func scanSkipsItemsWhoseTopicCircuitIsOpen() {
        var schedule = SuspendedSchedule(shards: 2)
        schedule.addPartition(3)
        schedule.suspended(7, shard: 0)
        let look = schedule.next(at: 0)!
        let entries = [entry(1), entry(2, shard: 1), entry(3, topic: 8)]
        #expect(found(&schedule, look, entries, isEnd: true) == [0: [3], 1: [2]])
        schedule.consumed(3)
        schedule.consumed(3)
        #expect(schedule.next(at: 1 << 60) == nil)
        #expect(schedule.isIdle)
    }

    @Test func scanExcludesTopicsWhoseCircuitsAreOpenEverywhere() {
        var schedule = SuspendedSchedule(shards: 2)
        schedule.addPartition(3)
        schedule.suspended(7, shard: 0)
        let look = schedule.next(at: 0)!
        #expect(look.stopped.isEmpty, "the other shard's circuit is closed")
        found(&schedule, look, [entry(1, shard: 1)], isEnd: false)
        schedule.suspended(7, shard: 1)
        schedule.suspended(8, shard: 1)
        schedule.consumed(3)
        let second = schedule.next(at: 0)!
        #expect(second.topic == nil && second.after == item(1, shard: 1) && second.stopped == [7])
        // A topic that resumes meanwhile gets a scan of its own.
        schedule.resumed(7, shard: 0)
        found(&schedule, second, [], isEnd: true)
        let third = schedule.next(at: 0)!
        #expect(third.topic == 7 && third.after == nil && third.stopped.isEmpty)
        #expect(found(&schedule, third, [entry(1), entry(2, shard: 1)], isEnd: true) == [0: [1]])
    }

    @Test func closedCircuitLoadsItemsOfItsShardAlone() {
        var schedule = begun()
        schedule.suspended(7, shard: 0)
        schedule.suspended(7, shard: 1)
        schedule.resumed(7, shard: 1)
        let look = schedule.next(at: 0)!
        #expect(look.topic == 7 && look.after == nil)
        // The other shard resumes during the scan, and gets a scan of its own from the beginning.
        schedule.resumed(7, shard: 0)
        #expect(found(&schedule, look, [entry(1), entry(2, shard: 1)], isEnd: true) == [1: [2]])
        schedule.consumed(3)
        let second = schedule.next(at: 0)!
        #expect(second.topic == 7 && second.after == nil)
        #expect(found(&schedule, second, [entry(1)], isEnd: true) == [0: [1]])
    }

    @Test func circuitReopenedDuringAScanLoadsNothing() {
        var schedule = begun()
        schedule.suspended(7, shard: 0)
        schedule.resumed(7, shard: 0)
        let look = schedule.next(at: 0)!
        schedule.suspended(7, shard: 0)
        #expect(found(&schedule, look, [entry(1)], isEnd: false).isEmpty)
        #expect(schedule.isIdle)
        schedule.resumed(7, shard: 0)
        #expect(schedule.next(at: 0)?.after == nil)
    }

    @Test func probeScansTakeFewItemsAndAdvance() {
        var schedule = begun()
        schedule.suspended(7, shard: 0)
        schedule.pushesWanted(7, count: 4, shard: 0)
        schedule.pushesWanted(7, count: 4, shard: 0)
        let look = schedule.next(at: 0)!
        let entries = (1...9).map { entry($0) }
        #expect(found(&schedule, look, entries, isEnd: false) == [0: [1, 2, 3, 4]])
        schedule.consumed(3)
        #expect(schedule.isIdle)
        schedule.pushesWanted(7, count: 4, shard: 0)
        let second = schedule.next(at: 0)!
        #expect(second.after == item(4))
        #expect(found(&schedule, second, [], isEnd: true).isEmpty)
        schedule.pushesWanted(7, count: 4, shard: 0)
        #expect(schedule.next(at: 0)?.after == nil, "from the beginning again")
    }

    /// Most of the entries that a look finds can be those of another shard.
    @Test func wantOfManyGoesOnInItsPartition() {
        var schedule = begun()
        schedule.addPartition(4)
        found(&schedule, schedule.next(at: 0)!, [], isEnd: true)
        schedule.suspended(7, shard: 0)
        schedule.pushesWanted(7, count: 200, shard: 0)
        let look = schedule.next(at: 0)!
        let entries = (1...200).map { entry($0, shard: UInt64($0 % 2)) }
        #expect(found(&schedule, look, entries, isEnd: false)[0]?.count == 100)
        schedule.pushesWanted(7, count: 200, shard: 0)
        #expect(schedule.next(at: 0) == nil, "the shard hasn't taken what was found")
        schedule.consumed(look.slot)
        let second = schedule.next(at: 0)!
        #expect(second.slot == look.slot && second.after == item(200) && second.limit == 100)
        // The rest is too small for another look.
        let rest = (201...240).map { entry($0) }
        #expect(found(&schedule, second, rest, isEnd: false)[0]?.count == 40)
        schedule.consumed(look.slot)
        #expect(schedule.isIdle, "the other partition isn't scanned")
        schedule.pushesWanted(7, count: 200, shard: 0)
        let third = schedule.next(at: 0)!
        #expect(found(&schedule, third, [entry(1)], isEnd: true)[0] == [1])
        schedule.consumed(third.slot)
        #expect(schedule.isIdle, "the partition has no more")
    }

    @Test func probeScanStopsAtTheFirstMatchingPartition() {
        var schedule = begun()
        for slot in [UInt16(4), 5] {
            schedule.addPartition(slot)
            found(&schedule, schedule.next(at: 0)!, [], isEnd: true)
        }
        schedule.suspended(7, shard: 0)
        schedule.suspended(7, shard: 1)
        schedule.pushesWanted(7, count: 4, shard: 0)
        schedule.pushesWanted(7, count: 4, shard: 1)
        let look = schedule.next(at: 0)!
        #expect(found(&schedule, look, [entry(1, shard: 1)], isEnd: false).isEmpty, "no item of this shard")
        let other = schedule.next(at: 0)!
        #expect(other.slot != look.slot)
        #expect(found(&schedule, other, [entry(2)], isEnd: false) == [0: [2]])
        schedule.consumed(other.slot)
        let last = schedule.next(at: 0)!
        #expect(found(&schedule, last, [entry(3), entry(4, shard: 1)], isEnd: false) == [1: [4]])
        schedule.consumed(last.slot)
        #expect(schedule.isIdle, "the other partitions aren't scanned")

        let slots = (0..<3).map { _ in
            schedule.pushesWanted(7, count: 4, shard: 0)
            let look = schedule.next(at: 0)!
            found(&schedule, look, [entry(2)], isEnd: false)
            schedule.consumed(look.slot)
            return look.slot
        }
        #expect(slots.sorted() == [3, 4, 5], "each probe scans another partition")
    }

    @Test func probeScanDoesNotWaitBehindAResumedTopic() {
        var schedule = begun()
        schedule.resumed(8, shard: 0)
        let look = schedule.next(at: 0)!
        schedule.suspended(7, shard: 1)
        schedule.pushesWanted(7, count: 4, shard: 1)
        found(&schedule, look, [entry(1, topic: 8)], isEnd: false)
        schedule.consumed(3)
        #expect(schedule.next(at: 0)?.topic == 7)
    }

    @Test func failedScanIsRepeatedLater() {
        var schedule = begun()
        schedule.resumed(7, shard: 0)
        let look = schedule.next(at: 5)!
        found(&schedule, look, nil, isEnd: true, at: 5)
        #expect(schedule.next(at: 5) == nil)
        #expect(schedule.next(at: 2_000_000_000)?.topic == 7)
    }

    @Test func endedPartitionDoesNotDelayOthers() {
        var schedule = begun()
        schedule.addPartition(4)
        schedule.resumed(7, shard: 0)
        let look = schedule.next(at: 0)!
        schedule.removePartition(look.slot)
        let other = schedule.next(at: 0)
        #expect(other != nil && other?.slot != look.slot)
        #expect(
            found(&schedule, look, [entry(1)], isEnd: true).isEmpty,
            "the answer of an ended partition is ignored")
        found(&schedule, other!, [entry(2)], isEnd: true)
        schedule.revoke(other!.slot)
        schedule.consumed(other!.slot)
        #expect(schedule.next(at: 0) == nil)
    }

    @Test func resumedTopicWaitsBehindAProbeOfAnotherShard() {
        var schedule = begun()
        schedule.resumed(8, shard: 0)
        schedule.suspended(7, shard: 1)
        schedule.pushesWanted(7, count: 4, shard: 1)
        let probe = schedule.next(at: 0)!
        #expect(probe.topic == 7)
        #expect(found(&schedule, probe, [entry(1, shard: 1)], isEnd: true) == [1: [1]])
        schedule.consumed(3)
        let look = schedule.next(at: 0)!
        #expect(look.topic == 8 && look.after == nil)
        #expect(found(&schedule, look, [entry(2, topic: 8)], isEnd: true) == [0: [2]])
    }
}
