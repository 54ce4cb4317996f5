import SimulatedEventLoop
import SimulatedKafka
import Testing

/// The simulated Kafka: the group, its events and its offsets.
@Suite struct KafkaGroupTests {
    private static func partitionsHaveOneOwner(_ members: [KafkaMember], _ count: Int32 = 4) -> Bool {
        members.flatMap(\.owned).sorted() == Array(0..<count)
    }

    @Test func aMemberReadsAllRecordsInOrder() throws {
        try KafkaBed.run { bed in
            bed.produceJobs(0..<2_000)
            let member = try KafkaMember(bed, "a")
            #expect(bed.run { member.values.count == 2_000 })
            bed.produceJobs(2_000..<2_010)
            #expect(bed.run { member.values.count == 2_010 })
            for partition in 0..<4 {
                let values = member.values.compactMap { Int($0) }.filter { $0 % 4 == partition }
                #expect(values == Array(stride(from: partition, to: 2_010, by: 4)))
            }
            #expect(member.events == ["assigned 0,1,2,3"])
            #expect(member.close())
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (0, 0))
        }
    }

    @Test func aPartitionMovesInTwoRounds() throws {
        try KafkaBed.run { bed in
            let first = try KafkaMember(bed, "first")
            #expect(bed.run { first.owned.count == 4 })
            let second = try KafkaMember(bed, "second")
            #expect(bed.run { second.owned.count == 2 })
            #expect(Self.partitionsHaveOneOwner([first, second]))
            // The first round takes partitions away, and gives the newcomer none.
            #expect(first.events.count == 4, "\(first.events)")
            #expect(first.events[1].hasPrefix("revoked ") && first.events[1].count == 11, "\(first.events)")
            #expect(first.events[2] == "assigned ")
            #expect(second.events.first == "assigned ")
            #expect(second.events.last?.count == "assigned 0,1".count)
        }
    }

    @Test func aMemberThatLeavesIsNoticedAtOnce() throws {
        try KafkaBed.run { bed in
            let (first, second) = (try KafkaMember(bed, "first"), try KafkaMember(bed, "second"))
            #expect(bed.run { first.owned.count == 2 && second.owned.count == 2 })
            #expect(second.close())
            #expect(bed.kafka.memberCount == 1 || bed.run(seconds: 1) { bed.kafka.memberCount == 1 })
            #expect(bed.run(seconds: 5) { first.owned.count == 4 })
        }
    }

    @Test func aKilledMemberIsNoticedAfterItsSession() throws {
        try KafkaBed.run { bed in
            let (first, second) = (try KafkaMember(bed, "first"), try KafkaMember(bed, "second"))
            #expect(bed.run { first.owned.count == 2 && second.owned.count == 2 })
            second.process.kill()
            bed.run(seconds: 9)
            #expect(first.owned.count == 2)
            #expect(bed.run(seconds: 10) { first.owned.count == 4 })
        }
    }

    @Test func aSuspendedMemberLosesItsPartitions() throws {
        try KafkaBed.run { bed in
            let (first, second) = (try KafkaMember(bed, "first"), try KafkaMember(bed, "second"))
            #expect(bed.run { first.owned.count == 2 && second.owned.count == 2 })
            bed.kafka.suspend(second.process, until: bed.scheduler.now + 30 * KafkaBed.second)
            #expect(bed.run(seconds: 29) { first.owned.count == 4 })
            #expect(bed.run { second.events.contains { $0.hasPrefix("lost ") } })
            #expect(bed.run { second.owned.count == 2 && Self.partitionsHaveOneOwner([first, second]) })
        }
    }

    @Test func aStaticMemberKeepsItsPartitionsAcrossARestart() throws {
        try KafkaBed.run { bed in
            let first = try KafkaMember(bed, "first", instance: "one")
            let other = try KafkaMember(bed, "other", instance: "two")
            #expect(bed.run { first.owned.count == 2 && other.owned.count == 2 })
            let events = other.events
            first.process.kill()
            let again = try KafkaMember(bed, "again", instance: "one")
            #expect(bed.run(seconds: 5) { again.owned.count == 2 })
            bed.run(seconds: 20)
            #expect(other.events == events)
            #expect(Self.partitionsHaveOneOwner([again, other]))
            // The name belongs to the newest process.
            let thief = try KafkaMember(bed, "thief", instance: "one")
            #expect(bed.run(seconds: 20) { again.fatal?.isInstanceTaken == true })
            #expect(bed.run { thief.owned.count == 2 })
        }
    }

    // MARK: Offsets

    @Test func readingGoesOnAtTheCommittedOffset() throws {
        try KafkaBed.run { bed in
            bed.produceJobs(0..<40)
            let first = try KafkaMember(bed, "first")
            #expect(bed.run { first.values.count == 40 })
            let reference = try first.commit()
            #expect(bed.run { first.results[reference] != nil })
            #expect(first.results[reference] == .some(nil))
            #expect(bed.kafka.committedOffset(3)?.offset == 10)
            first.process.kill()
            bed.produceJobs(40..<48)
            let second = try KafkaMember(bed, "second")
            #expect(bed.run { second.values.count == 8 })
            #expect(second.values.compactMap { Int($0) }.sorted() == Array(40..<48))
            let (offsets, partitions) = (second.consumer.offsets, [TopicPartition(KafkaBed.jobs, 1)])
            let committed = try offsets.committed(partitions, timeoutMilliseconds: 1_000)
            #expect(committed.map(\.offset) == [10] && committed.map(\.metadata) == ["m"])
            #expect(
                offsets.logEnds(of: partitions, timeoutMilliseconds: 1_000)
                    == [partitions[0]: Watermarks(low: 0, high: 12)])
        }
    }

    @Test func committedOffsetsWaitForTheCoordinator() throws {
        try KafkaBed.run { bed in
            let member = try KafkaMember(bed, "a")
            #expect(bed.run { member.owned.count == 4 })
            bed.kafka.setGroupCoordinator(isAway: true)
            let partition = TopicPartition(KafkaBed.jobs, 0)
            #expect(throws: KafkaError.self) {
                try member.consumer.offsets.committed([partition], timeoutMilliseconds: 2_000)
            }
            bed.scheduler.schedule(after: KafkaBed.second) { bed.kafka.setGroupCoordinator(isAway: false) }
            let found = try member.consumer.offsets.committed([partition], timeoutMilliseconds: 3_000)
            #expect(found.map(\.offset) == [nil])
        }
    }

    @Test func aCommitOfTheSecondRoundIsRefused() throws {
        try KafkaBed.run { bed in
            bed.produceJobs(0..<8)
            let first = try KafkaMember(bed, "first")
            #expect(bed.run { first.values.count == 8 })
            #expect(bed.run { !first.consumer.holdsCommits })
            first.answersRevocations = false
            let second = try KafkaMember(bed, "second")
            #expect(bed.run { !first.revoked.isEmpty })
            // The revoked partitions are still the member's, until the answer.
            let during = try first.commit()
            #expect(bed.run { first.results[during] != nil })
            #expect(first.results[during] == .some(nil))
            #expect(!first.consumer.holdsCommits)
            first.process.run { first.answerRevocation() }
            // The first round ends with an empty assignment. The member joins again at once.
            #expect(bed.run { first.events.last == "assigned " })
            #expect(first.consumer.holdsCommits)
            let after = try first.commit()
            #expect(bed.run { first.results[after] != nil })
            let error = try #require(first.results[after]!)
            #expect(error.isOfRebalance, "\(error)")
            #expect(bed.run { second.owned.count == 2 && first.owned.count == 2 })
        }
    }

    @Test func theNumberOfPartitionsGrows() throws {
        try KafkaBed.run { bed in
            let member = try KafkaMember(bed, "a")
            #expect(bed.run { member.owned.count == 4 })
            bed.kafka.addPartitions(to: KafkaBed.jobs, total: 6)
            #expect(bed.run(seconds: 30) { member.owned.count == 6 })
        }
    }

    /// A run with everything that moves partitions.
    private static func trace(_ seed: UInt64) throws -> [String] {
        var trace: [String] = []
        try KafkaBed.run(seed: seed) { bed in
            bed.produceJobs(0..<100)
            let first = try KafkaMember(bed, "first")
            bed.run(seconds: 5)
            let second = try KafkaMember(bed, "second")
            bed.kafka.isSlow = true
            bed.produceJobs(100..<200)
            bed.run(seconds: 10)
            bed.kafka.isSlow = false
            _ = try first.commit()
            bed.run(seconds: 5)
            second.process.kill()
            bed.run(seconds: 30)
            trace = bed.trace
        }
        return trace
    }

    @Test func aSeedDecidesEverything() throws {
        let first = try Self.trace(7)
        #expect(first.count > 200)
        #expect(try Self.trace(7) == first)
        #expect(try Self.trace(8) != first)
    }
}
