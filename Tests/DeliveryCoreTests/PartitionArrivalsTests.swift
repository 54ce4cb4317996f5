import Testing

@testable import DeliveryCore

@Suite("Partition arrivals: each partition by itself")
struct PartitionArrivalsTests {
    private static let second: UInt64 = 1_000_000_000

    private static func offsets(_ question: PartitionArrivals.Question) -> [FetchedOffset] {
        question.partitions.map { FetchedOffset(partition: $0, offset: 9, logEnd: 20) }
    }

    /// Kafka answers none of a request's partitions while it can't answer one of them.
    @Test(arguments: [1, 2, 7, 64])
    func unansweredPartitionDoesNotDelayOthers(count: Int) throws {
        var arrivals = PartitionArrivals(mode: .none)
        var now = Self.second
        arrivals.add((0..<Int32(count)).map { $0 }, at: now)
        let stuck = Int32(count / 2)
        var read: Set<Int32> = []
        var questions = 0
        while read.count < count - 1 {
            let nextQuestion = arrivals.nextQuestion(at: now)
            let question = try #require(nextQuestion, "\(read.count) of \(count) are read")
            questions += 1
            let found1 = arrivals.nextQuestion(at: now)
            #expect(found1 == nil, "one request at a time")
            if question.partitions.contains(stuck) {
                let answer = arrivals.answered(question.ticket, nil, at: now)
                #expect(answer == .failed(question.partitions))
            } else if case .offsets(let found) = arrivals.answered(
                question.ticket, Self.offsets(question), at: now)
            {
                read.formUnion(found.map(\.partition))
            }
            now += Self.second / 10
        }
        #expect(questions <= 30)
        #expect(!read.contains(stuck))
        #expect(arrivals.partitions == [stuck])
        // Fetched alone, the partition is requested less and less often.
        var asked = 0
        for _ in 0..<600 {
            if let question = arrivals.nextQuestion(at: now) {
                asked += 1
                _ = arrivals.answered(question.ticket, nil, at: now)
            }
            now += Self.second / 10
        }
        #expect((11...14).contains(asked), "\(asked) times in a minute")
        now += 6 * Self.second
        let nextQuestion = arrivals.nextQuestion(at: now)
        let question = try #require(nextQuestion)
        let found2 = arrivals.answered(question.ticket, Self.offsets(question), at: now)
        #expect(
            found2
                == .offsets([.init(partition: stuck, offset: 9, logEnd: 20)]))
        #expect(arrivals.isEmpty)
    }

    @Test func answerForAnEarlierAssignmentIsIgnored() throws {
        var arrivals = PartitionArrivals(mode: .none)
        arrivals.add([0, 1, 2], at: 0)
        let nextQuestion = arrivals.nextQuestion(at: 0)
        let question = try #require(nextQuestion)
        arrivals.remove([1])
        arrivals.add([2], at: 0)
        let found3 = arrivals.answered(question.ticket, Self.offsets(question), at: 0)
        #expect(
            found3
                == .offsets([FetchedOffset(partition: 0, offset: 9, logEnd: 20)]))
        #expect(arrivals.partitions == [2])
        let found4 = arrivals.answered(question.ticket, Self.offsets(question), at: 0)
        #expect(found4 == .stale)
        // A discarded answer is requested again.
        let nextSecond = arrivals.nextQuestion(at: 0)
        let second = try #require(nextSecond)
        arrivals.forget(question.ticket)
        let found5 = arrivals.nextQuestion(at: 0)
        #expect(found5 == nil)
        arrivals.forget(second.ticket)
        let found6 = arrivals.nextQuestion(at: 0)
        #expect(found6?.partitions == [2])
    }

    @Test func partitionIsRestoredBetweenTheTwoOffsetFetches() throws {
        var arrivals = PartitionArrivals(mode: .changelog)
        arrivals.add([0, 1], at: 0)
        let found7 = arrivals.restores(at: 0) { _ in false }
        #expect(found7 == ([], []))
        let nextFormer = arrivals.nextQuestion(at: 0)
        let former = try #require(nextFormer)
        let found8 = arrivals.answered(former.ticket, Self.offsets(former), at: 0)
        #expect(found8 == .settled)
        let found9 = arrivals.nextQuestion(at: 0)
        #expect(found9 == nil, "the offsets aren't fetched before the restore")
        let found10 = arrivals.restores(at: 0) { _ in false }
        #expect(found10 == ([0, 1], []))
        arrivals.restored(0, at: 0)
        let nextQuestion = arrivals.nextQuestion(at: 0)
        let question = try #require(nextQuestion)
        #expect(question.partitions == [0])
        // A failed restore is repeated after one, two, four, and then every five seconds.
        var begun: [Int] = []
        for tenth in 0..<300
        where arrivals.restores(at: UInt64(tenth) * Self.second / 10) { _ in false }.again == [1] {
            begun.append(tenth)
        }
        #expect(begun == [10, 30, 70, 120, 170, 220, 270])
        let found11 = arrivals.restores(at: 100 * Self.second) { _ in true }
        #expect(found11 == ([], []), "a restore is under way")
    }

    /// Items and offsets beyond a log's end belong to an earlier or a longer log, and only the end distinguishes them.
    @Test func partitionWaitsForItsLogEnd() throws {
        var arrivals = PartitionArrivals(mode: .local)
        var now = Self.second
        arrivals.add([0, 1, 2], at: now)
        for partition: Int32 in 0...2 { arrivals.restored(partition, at: now) }
        let first = arrivals.nextQuestion(at: now)
        let question = try #require(first)
        #expect(question.wantsLogEnds)
        let ends = Self.offsets(question).map { offset in
            var offset = offset
            if offset.partition == 1 { offset.logEnd = nil }
            return offset
        }
        let read = arrivals.answered(question.ticket, ends, at: now)
        #expect(read == .offsets(ends.filter { $0.partition != 1 }))
        #expect(arrivals.partitions == [1])
        let none = arrivals.nextQuestion(at: now)
        #expect(none == nil, "the request is repeated later")
        now += 5 * Self.second
        let next = arrivals.nextQuestion(at: now)
        let again = try #require(next)
        #expect(again.partitions == [1])
        // Without any log end, a missing leader has delayed all others.
        let failed = arrivals.answered(again.ticket, [FetchedOffset(partition: 1, offset: 9)], at: now)
        #expect(failed == .failed([1]))
        var plain = PartitionArrivals(mode: .none)
        plain.add([1], at: now)
        let plainQuestion = plain.nextQuestion(at: now)
        #expect(try #require(plainQuestion).wantsLogEnds)
    }

    /// A log that grows beyond the group's offset explains nothing. Another offset or an answer does.
    @Test(arguments: [
        FetchedOffset(partition: 0, offset: 4, logEnd: 60),
        FetchedOffset(partition: 0, offset: nil, logEnd: 60),
        FetchedOffset(
            partition: 0, offset: 50, logEnd: 30, answers: LogEvidence.Answers(first: 0, newer: nil)),
    ])
    func unexplainedPartitionWaitsForAnotherOffset(next: FetchedOffset) throws {
        var arrivals = PartitionArrivals(mode: .none)
        var now = Self.second
        arrivals.add([0, 1], at: now)
        func answer(_ offsets: [FetchedOffset]) throws -> PartitionArrivals.Answer {
            let asked = arrivals.nextQuestion(at: now)
            let question = try #require(asked)
            #expect(question.partitions == offsets.map(\.partition))
            return arrivals.answered(question.ticket, offsets, at: now)
        }
        let lost = FetchedOffset(partition: 0, offset: 50, logEnd: 30)
        let good = FetchedOffset(partition: 1, offset: 9, logEnd: 20)
        #expect(try answer([lost, good]) == .offsets([good]), "the other partition is read")
        #expect(arrivals.takeUnexplained() == [lost])
        #expect(arrivals.unexplainedPartitions == [0])
        #expect(arrivals.nextQuestion(at: now) == nil)
        now += PartitionArrivals.unexplainedDelay
        let grown = FetchedOffset(partition: 0, offset: 50, logEnd: 60)
        #expect(try answer([grown]) == .offsets([]))
        // The group's next assignment changes nothing.
        arrivals.remove([0])
        #expect(arrivals.unexplainedPartitions == [])
        arrivals.add([0], at: now)
        #expect(try answer([grown]) == .offsets([]))
        #expect(arrivals.unexplainedPartitions == [0])
        now += PartitionArrivals.unexplainedDelay
        #expect(try answer([next]) == .offsets([next]))
        #expect(arrivals.isEmpty && arrivals.unexplainedPartitions == [])
    }

    @Test func lateAnswerDoesNotCloseTheOpenQuestion() throws {
        var arrivals = PartitionArrivals(mode: .none)
        arrivals.add([0], at: 0)
        let nextFirst = arrivals.nextQuestion(at: 0)
        let first = try #require(nextFirst)
        arrivals.forget(first.ticket)
        let nextSecond = arrivals.nextQuestion(at: 0)
        let second = try #require(nextSecond)
        let late = arrivals.answered(first.ticket, Self.offsets(first), at: 0)
        #expect(late == .stale)
        let none = arrivals.nextQuestion(at: 0)
        #expect(none == nil, "the second request is open")
        let answer = arrivals.answered(second.ticket, Self.offsets(second), at: 0)
        #expect(answer == .offsets(Self.offsets(second)))
    }

    @Test func pausesBetweenFailedFetchesGrowToFiveSeconds() throws {
        var arrivals = PartitionArrivals(mode: .none)
        arrivals.add([3], at: 0)
        var asked: [Int] = []
        for tenth in 0..<200 {
            let now = UInt64(tenth) * Self.second / 10
            guard let question = arrivals.nextQuestion(at: now) else { continue }
            asked.append(tenth)
            _ = arrivals.answered(question.ticket, nil, at: now)
        }
        #expect(asked == [0, 10, 30, 70, 120, 170])
    }

    @Test func staleRestoreDoesNotSkipTheFormerOwner() throws {
        var arrivals = PartitionArrivals(mode: .changelog)
        arrivals.add([0], at: 0)
        arrivals.restored(0, at: 0)
        let next = arrivals.nextQuestion(at: 0)
        let question = try #require(next)
        #expect(!question.wantsLogEnds)
        let answer = arrivals.answered(question.ticket, Self.offsets(question), at: 0)
        #expect(answer == .settled)
        let restores = arrivals.restores(at: 0) { _ in false }
        #expect(restores == ([0], []))
    }
}
