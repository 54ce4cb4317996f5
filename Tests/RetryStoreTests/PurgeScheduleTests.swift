import RetryStore
import Testing

/// When partitions are purged: scripts of calls.
@Suite("Purge schedule") struct PurgeScheduleTests {
    private static let day: Int64 = 86_400_000
    private static let begin: Int64 = 1_700_000_000_000

    private func expect(
        _ schedule: inout PurgeSchedule, _ expected: PurgeSchedule.Step, at now: Int64,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let step = schedule.next(at: now)
        #expect(step == expected, sourceLocation: sourceLocation)
    }

    @Test func removalsShareAPurgeADayAfterTheFirst() {
        var schedule = PurgeSchedule(delay: Self.day)
        let begin = Self.begin
        expect(&schedule, .idle, at: begin)
        #expect(schedule.since(3, at: begin) == begin)
        schedule.removed(from: 3, at: begin)
        schedule.removed(from: 3, at: begin + 50_000)
        #expect(schedule.since(3, at: begin + 60_000) == begin, "the record keeps the first removal's time")
        schedule.removed(from: 7, at: begin + 60_000)
        expect(&schedule, .wait(until: begin + Self.day), at: begin + 70_000)
        expect(&schedule, .wait(until: begin + Self.day), at: begin + Self.day - 1)
        expect(&schedule, .purge(3), at: begin + Self.day)
        expect(&schedule, .idle, at: begin + Self.day + 90_000)
        #expect(schedule.pending.keys.sorted() == [3, 7] && schedule.current == 3)
        let isCovered = schedule.ended(3, isDone: true, at: begin + Self.day + 100_000)
        #expect(isCovered)
        #expect(schedule.pending.keys.sorted() == [7] && schedule.current == nil)
    }

    @Test func aRestFollowsAsLongAsThePurgeTook() {
        var schedule = PurgeSchedule(delay: 1_000)
        let begin = Self.begin
        for partition in Int32(0)..<3 { schedule.removed(from: partition, at: begin) }
        expect(&schedule, .purge(0), at: begin + 1_000)
        _ = schedule.ended(0, isDone: true, at: begin + 8_000)
        expect(&schedule, .wait(until: begin + 15_000), at: begin + 8_000)
        expect(&schedule, .purge(1), at: begin + 15_000)
        _ = schedule.ended(1, isDone: true, at: begin + 15_000 + 3_600_000)
        expect(
            &schedule, .wait(until: begin + 15_000 + 3_600_000 + 60_000), at: begin + 15_000 + 3_600_000)
        // A request needs no rest.
        let ends = schedule.request(at: begin + 15_000 + 3_600_000)
        #expect(ends == [2: 1])
        expect(&schedule, .purge(2), at: begin + 15_000 + 3_600_000)
    }

    @Test func aRemovalDuringThePurgeNeedsAnother() {
        var schedule = PurgeSchedule(delay: 1_000)
        let begin = Self.begin
        schedule.removed(from: 0, at: begin)
        expect(&schedule, .purge(0), at: begin + 1_000)
        // Recorded with the time of the first removal, because the purge under way may be interrupted.
        #expect(schedule.since(0, at: begin + 1_500) == Self.begin)
        schedule.removed(from: 0, at: begin + 1_500)
        #expect(schedule.pending[0]?.since == begin, "the purge under way may fail")
        // Both the purge under way and the next one have to end for a request.
        let ends = schedule.request(at: begin + 1_600)
        #expect(ends == [0: 2])
        #expect(schedule.pending[0]?.isRequested == true)
        let isCovered = schedule.ended(0, isDone: true, at: begin + 1_700)
        #expect(!isCovered)
        #expect(schedule.pending[0]?.since == begin + 1_500)
        expect(&schedule, .purge(0), at: begin + 1_700)
        let isCoveredNow = schedule.ended(0, isDone: true, at: begin + 1_800)
        #expect(isCoveredNow)
        expect(&schedule, .idle, at: begin + 1_800)
    }

    @Test func aRequestOfAllIncludesPartitionsWithoutNeed() {
        var schedule = PurgeSchedule(delay: Self.day)
        schedule.removed(from: 5, at: Self.begin)
        let none = PurgeSchedule(delay: Self.day)
        var idle = none
        #expect(idle.request(at: Self.begin) == [:])
        let ends = schedule.request(all: [1, 5], at: Self.begin + 10)
        #expect(ends == [1: 1, 5: 1])
        expect(&schedule, .purge(5), at: Self.begin + 10)
        // The purge under way counts for a further request of what is needed, and not for one of all.
        let again = schedule.request(at: Self.begin + 20)
        #expect(again == [1: 1, 5: 1])
        let all = schedule.request(all: [5], at: Self.begin + 20)
        #expect(all == [1: 1, 5: 2])
        #expect(schedule.needsPurge(5) && !schedule.needsPurge(7))
        // A removal meanwhile is recorded with the time of the first one, because the purge may be interrupted.
        #expect(schedule.since(5, at: Self.begin + 25) <= Self.begin + 10)
        _ = schedule.ended(5, isDone: true, at: Self.begin + 30)
        expect(&schedule, .purge(1), at: Self.begin + 30)
    }

    @Test func failuresAreRepeatedAfterGrowingPauses() {
        var schedule = PurgeSchedule(delay: 1_000)
        var now = Self.begin
        schedule.removed(from: 0, at: now)
        now += 1_000
        var pauses: [Int64] = []
        for _ in 0..<12 {
            expect(&schedule, .purge(0), at: now)
            let isCovered = schedule.ended(0, isDone: false, at: now)
            #expect(!isCovered && schedule.pending[0]?.since == Self.begin)
            guard case .wait(let until) = schedule.next(at: now) else {
                Issue.record("a failed purge is repeated")
                return
            }
            pauses.append((until - now) / 1_000)
            now = until
        }
        #expect(pauses == [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600])
        // A request repeats it at once.
        expect(&schedule, .purge(0), at: now)
        _ = schedule.ended(0, isDone: false, at: now)
        _ = schedule.request(at: now + 1)
        expect(&schedule, .purge(0), at: now + 1)
        let isCovered = schedule.ended(0, isDone: true, at: now + 2)
        #expect(isCovered)
        schedule.removed(from: 0, at: now + 3)
        expect(&schedule, .wait(until: now + 1_003), at: now + 3)
    }

    /// Purges the partition, which must be the next one, and returns the time of the end.
    private func purge(
        _ partition: Int32, isDone: Bool, from now: Int64, for duration: Int64 = 0,
        _ schedule: inout PurgeSchedule, sourceLocation: SourceLocation = #_sourceLocation
    ) -> Int64 {
        expect(&schedule, .purge(partition), at: now, sourceLocation: sourceLocation)
        _ = schedule.ended(partition, isDone: isDone, at: now + duration)
        return now + duration
    }

    @Test func failuresInSuccessionCountFromTheFirst() {
        var schedule = PurgeSchedule(delay: 0)
        let begin = Self.begin
        #expect(schedule.failingSince == nil)
        schedule.removed(from: 0, at: begin)
        #expect(schedule.pending[0]?.failures == 0 && schedule.pending[0]?.failingSince == nil)
        // An attempt can take long before it fails.
        let first = purge(0, isDone: false, from: begin, for: 2_400_000, &schedule)
        #expect(schedule.pending[0]?.failures == 1 && schedule.pending[0]?.failingSince == first)
        #expect(schedule.failingSince == nil, "the repetition may succeed")
        var now = first + 3_600_000
        for failures in 2..<40 {
            now = purge(0, isDone: false, from: now, for: 2_400_000, &schedule) + 3_600_000
            #expect(schedule.pending[0]?.failures == min(failures, 30))
            #expect(schedule.failingSince == first)
        }
        // A request and a removal change nothing, and neither does the repetition before its end.
        _ = schedule.request(at: now)
        schedule.removed(from: 0, at: now)
        expect(&schedule, .purge(0), at: now)
        schedule.removed(from: 0, at: now)
        #expect(schedule.failingSince == first)
        _ = schedule.ended(0, isDone: true, at: now + 10)
        #expect(schedule.failingSince == nil)
        #expect(schedule.pending[0]?.failures == 0 && schedule.pending[0]?.failingSince == nil)
    }

    @Test func failuresThatWereMadeGoodAreForgotten() {
        var schedule = PurgeSchedule(delay: 0)
        var now = Self.begin
        for partition in Int32(0)..<8 {
            schedule.removed(from: partition, at: now)
            now = purge(partition, isDone: false, from: now, &schedule)
            // Failures of different partitions aren't in succession.
            #expect(schedule.failingSince == nil)
            now = purge(partition, isDone: true, from: now + 10_000, &schedule) + 60_000
        }
        for partition in Int32(0)..<2 { schedule.removed(from: partition, at: now) }
        let first = purge(0, isDone: false, from: now, &schedule)
        let second = purge(1, isDone: false, from: now + 1, &schedule)
        _ = purge(0, isDone: false, from: now + 10_000, &schedule)
        _ = purge(1, isDone: false, from: now + 10_001, &schedule)
        #expect(schedule.failingSince == first, "that of the partition that fails longest")
        _ = purge(0, isDone: true, from: now + 40_000, &schedule)
        #expect(schedule.failingSince == second)
    }

    @Test func aClockThatIsSetBackPutsNoFailureInTheFuture() {
        var schedule = PurgeSchedule(delay: 0)
        let (begin, back) = (Self.begin, Self.begin - 30 * Self.day)
        schedule.removed(from: 0, at: back)
        _ = purge(0, isDone: false, from: begin, &schedule)
        _ = purge(0, isDone: false, from: begin + 10_000, &schedule)
        #expect(schedule.failingSince == begin)
        _ = schedule.next(at: back)
        #expect(schedule.failingSince == back)
    }

    @Test func aClockThatIsSetBackPutsNothingOffForLong() {
        var schedule = PurgeSchedule(delay: 1_000)
        let (begin, back) = (Self.begin, Self.begin - 30 * Self.day)
        schedule.removed(from: 0, at: begin)
        expect(&schedule, .wait(until: back + 1_000), at: back)
        expect(&schedule, .wait(until: back + 1_000), at: back + 400)
        expect(&schedule, .purge(0), at: back + 1_000)
        _ = schedule.ended(0, isDone: false, at: begin + 20_000)
        expect(&schedule, .wait(until: back + 3_600_000), at: back)
        expect(&schedule, .purge(0), at: back + 3_600_000)
        // Times from outside don't overflow.
        var extreme = PurgeSchedule(delay: .max)
        extreme.removed(from: 1, at: 5)
        expect(&extreme, .wait(until: .max), at: begin)
        extreme.removed(from: 2, at: .max)
        _ = extreme.request(at: begin)
        expect(&extreme, .purge(1), at: begin)
    }

    @Test func anEndThatNobodyAwaitsChangesNothing() {
        var schedule = PurgeSchedule(delay: 1_000)
        schedule.removed(from: 0, at: Self.begin)
        let unknown = schedule.ended(4, isDone: true, at: Self.begin)
        let known = schedule.ended(0, isDone: true, at: Self.begin)
        #expect(unknown && !known && schedule.pending.count == 1)
    }
}
