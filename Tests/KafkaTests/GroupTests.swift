import Kafka
import TestSupport
import Testing

@Suite struct GroupTests {
    @Test func nextMemberReadsCommittedOffsetsAndMetadata() throws {
        let bed = try KafkaTestBed(partitions: 2)
        try bed.fill(0, with: (0..<10).map { "\($0)" })
        let metadata = "1:3,5-7;ä"
        do {
            let member = try Member(bed.consumerProperties(), topics: [bed.topic])
            try eventually("ten records") {
                member.poll()
                return member.records.count == 10
            }
            try member.consumer.commit(
                [OffsetCommit(topic: bed.topic, partition: 0, offset: 4, metadata: metadata)],
                synchronous: true)
            let reference = try member.consumer.commit([
                OffsetCommit(topic: bed.topic, partition: 1, offset: 0, metadata: "")
            ])
            try eventually("the commit's event") {
                member.poll()
                return !member.commits.isEmpty
            }
            #expect(member.commits.map(\.reference) == [reference])
            #expect(member.commits[0].error == nil)
            #expect(member.commits[0].partitions.map(\.topicPartition) == [bed.partition(1)])
            #expect(member.consumer.close())
        }
        let next = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the records behind the commit") {
            next.poll()
            return next.records.count >= 6
        }
        #expect(next.records.map(\.offset) == [4, 5, 6, 7, 8, 9])
        let committed = try next.consumer.committed([bed.partition(0), bed.partition(1)])
        #expect(committed.map(\.offset) == [4, 0])
        #expect(committed.map(\.metadata) == [metadata, ""])
        #expect(next.consumer.close())
    }

    @Test(arguments: ["cooperative-sticky", "range"])
    func revocationWaitsForItsAnswer(strategy: String) throws {
        let bed = try KafkaTestBed(partitions: 4)
        let properties = bed.consumerProperties([("partition.assignment.strategy", strategy)])
        for partition in 0..<Int32(4) { try bed.fill(partition, with: ["a", "b"]) }
        let first = try Member(properties, topics: [bed.topic], answers: .byTest)
        try eventually("the first assignment") {
            first.poll()
            return !first.assigned.isEmpty
        }
        #expect(first.assigned[0].sorted() == (0..<4).map { bed.partition($0) })
        #expect(first.consumer.assignment.isEmpty)
        try first.consumer.assign(first.assigned[0].map { TopicPartitionOffset($0) })
        try eventually("all records") {
            first.poll()
            return first.records.count == 8
        }

        // A cooperative group settles, and its other member waits with nothing. An eager member is still joining.
        // The embedded cluster also makes a member rejoin whose SyncGroup arrives after the leader's, as the
        // member's log shows.
        let second = try Member(
            properties.overridden(by: KafkaProperties([("debug", "cgrp")])), topics: [bed.topic])
        var hasSettled = false
        try eventually("the revocation") {
            first.poll()
            second.poll()
            hasSettled = !second.assigned.isEmpty
            let joinsAgain = second.log.contains { $0.facility == "GRPSYNC" }
            return !first.revoked.isEmpty && (strategy == "range" || hasSettled || joinsAgain)
        }
        let taken = first.revoked[0]
        #expect(taken.count == (strategy == "range" ? 4 : 2))
        // The work on revoked partitions ends and is committed while the group waits.
        for _ in 0..<200 {
            first.poll()
            second.poll()
        }
        #expect(second.records.isEmpty)
        #expect(second.consumer.assignment.isEmpty)
        #expect(!first.consumer.isAssignmentLost)
        let commits = taken.map {
            OffsetCommit(topic: $0.topic, partition: $0.partition, offset: 2, metadata: "drained")
        }
        // The embedded cluster refuses commits while a group is joining; Kafka takes them.
        if hasSettled || KafkaTestBed.realBrokers != nil {
            try first.consumer.commit(commits, synchronous: true)
        } else if strategy == "range" {
            #expect(throws: KafkaError.self) { try first.consumer.commit(commits, synchronous: true) }
        } else {
            // Whether the other member is rejoining isn't known. The committed offset is checked below.
            _ = try? first.consumer.commit(commits, synchronous: true)
        }
        #expect(throws: KafkaError.self) { try first.consumer.unassign([]) }
        first.answers = .atOnce
        try first.consumer.unassign(taken)

        try eventually("two members with two partitions each") {
            first.poll()
            second.poll()
            return first.consumer.assignment.count == 2 && second.consumer.assignment.count == 2
        }
        let all = first.consumer.assignment + second.consumer.assignment
        #expect(all.sorted() == (0..<4).map { bed.partition($0) })
        #expect(first.lost.isEmpty)
        // The new owner resumes after the commit, if there was one.
        let moved = second.consumer.assignment[0]
        let committed = try second.consumer.committed([moved])[0]
        try bed.fill(moved.partition, with: ["c"])
        try eventually("the record for the new owner") {
            first.poll()
            second.poll()
            return second.records.contains { $0.partition == moved.partition && $0.offset == 2 }
        }
        let expected: [Int64] = committed.metadata == "drained" ? [2] : [0, 1, 2]
        #expect(second.records.filter { $0.partition == moved.partition }.map(\.offset) == expected)
        #expect(first.consumer.close())
        #expect(second.consumer.close())
    }

    /// An assignment is answered before its partitions can be read, so that the group doesn't wait.
    @Test func assignedPartitionsMayBeReadOneByOne() throws {
        let bed = try KafkaTestBed(partitions: 4)
        for partition in 0..<Int32(4) { try bed.fill(partition, with: ["a", "b"]) }
        let first = try Member(bed.consumerProperties(), topics: [bed.topic], answers: .byTest)
        try eventually("the assignment") {
            first.poll()
            return !first.assigned.isEmpty
        }
        try first.consumer.assign([])
        #expect(first.consumer.assignment.isEmpty)
        #expect(throws: KafkaError.self) {
            try first.consumer.assign([
                TopicPartitionOffset(topic: "another", partition: 0, start: .offset(0))
            ])
        }
        // Added later, from a given offset.
        try first.consumer.assign([TopicPartitionOffset(bed.partition(2), .offset(1))])
        try eventually("a record") {
            first.poll()
            return !first.records.isEmpty
        }
        #expect(throws: KafkaError.self, "the partition is read already") {
            try first.consumer.assign([TopicPartitionOffset(bed.partition(2), .offset(0))])
        }
        try first.consumer.assign([TopicPartitionOffset(bed.partition(1), .offset(0))])
        try eventually("three records") {
            first.poll()
            return first.records.count == 3
        }
        #expect(first.records.filter { $0.partition == 2 }.map(\.offset) == [1])
        #expect(first.consumer.assignment.sorted() == [bed.partition(1), bed.partition(2)])
        #expect(first.revoked.isEmpty && first.lost.isEmpty)

        // Two partitions move to another member, whether they were read or not.
        first.answers = .atOnce
        let second = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the other member reads two") {
            first.poll()
            second.poll()
            return second.consumer.assignment.count == 2
        }
        let taken = try #require(first.revoked.first)
        #expect(taken.sorted() == second.consumer.assignment.sorted())
        let kept = (0..<4).map { bed.partition($0) }.filter { !taken.contains($0) }
        let unread = kept.filter { !first.consumer.assignment.contains($0) }
        try first.consumer.assign(unread.map { TopicPartitionOffset($0, .offset(0)) })
        #expect(first.consumer.assignment.sorted() == kept)
        for partition in taken {
            #expect(throws: KafkaError.self, "the partition belongs to another member") {
                try first.consumer.assign([TopicPartitionOffset(partition, .offset(0))])
            }
        }
        #expect(first.consumer.close())
        #expect(second.consumer.close())
    }

    @Test func closingAnswersAPendingAssignment() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let member = try Member(bed.consumerProperties(), topics: [bed.topic], answers: .byTest)
        try eventually("the assignment") {
            member.poll()
            return !member.assigned.isEmpty
        }
        #expect(member.consumer.close())
        #expect(member.consumer.assignment.isEmpty)
        #expect(throws: KafkaError.self) { try member.consumer.assign([]) }
    }

    @Test func closingAnswersAPendingRevocation() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let first = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the first assignment") {
            first.poll()
            return first.consumer.assignment.count == 2
        }
        first.answers = .byTest
        let second = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the revocation") {
            first.poll()
            second.poll()
            return !first.revoked.isEmpty
        }
        #expect(first.consumer.close())
        try eventually("the other member has all partitions") {
            second.poll()
            return second.consumer.assignment.count == 2
        }
        #expect(second.consumer.close())
    }

    @Test func closeSucceedsWhileJoining() throws {
        let bed = try KafkaTestBed()
        let member = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("a member identifier") {
            member.poll()
            return member.consumer.memberID != nil || !member.assigned.isEmpty
        }
        #expect(member.consumer.close())
    }

    @Test func closeSucceedsWithoutBrokers() throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties["group.id"] = "alone"
        let member = try Member(properties, topics: ["nowhere"])
        member.poll()
        #expect(member.consumer.close())
        #expect(member.consumer.close())
        #expect(member.poll() == 0)
    }

    @Test func pausedPartitionResumesWhereItStopped() throws {
        let bed = try KafkaTestBed(partitions: 2)
        try bed.fill(0, with: (0..<50).map { "a\($0)" })
        try bed.fill(1, with: (0..<5).map { "b\($0)" })
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([
            TopicPartitionOffset(bed.partition(0), .beginning),
            TopicPartitionOffset(bed.partition(1), .beginning),
        ])
        try eventually("some records of partition 0") {
            reader.poll(limit: 1)
            return reader.records.contains { $0.partition == 0 }
        }
        try reader.consumer.pause([bed.partition(0)])
        let before = reader.records.filter { $0.partition == 0 }.count
        try eventually("partition 1") {
            reader.poll(limit: 1)
            return reader.records.filter { $0.partition == 1 }.count == 5
        }
        try bed.fill(1, with: ["b5"])
        try eventually("partition 1 continues") {
            reader.poll()
            return reader.records.filter { $0.partition == 1 }.count == 6
        }
        #expect(reader.records.filter { $0.partition == 0 }.count == before)
        #expect(reader.consumer.pausedPartitions == [bed.partition(0)])
        // Resuming a partition that isn't paused does nothing. librdkafka alone would restart partition 1.
        try reader.consumer.resume([bed.partition(0), bed.partition(1)])
        try eventually("the rest of partition 0") {
            reader.poll()
            return reader.records.filter { $0.partition == 0 }.count >= 50
        }
        #expect(reader.records.filter { $0.partition == 0 }.map(\.offset) == Array(0..<50))
        #expect(reader.records.filter { $0.partition == 1 }.count == 6)
        #expect(reader.consumer.droppedRecords == 0)
        reader.consumer.close()
    }

    @Test func partitionUnassignedWhilePausedReturnsUnpaused() throws {
        let bed = try KafkaTestBed(partitions: 1)
        try bed.fill(with: ["a"])
        let reader = try Member(bed.consumerProperties(), topics: [])
        for round in 1...2 {
            try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
            try eventually("the record, round \(round)") {
                reader.poll()
                return reader.records.count == round
            }
            try reader.consumer.pause([bed.partition(0)])
            try reader.consumer.unassign([bed.partition(0)])
        }
        #expect(reader.consumer.pausedPartitions.isEmpty)
        reader.consumer.close()
    }
}
