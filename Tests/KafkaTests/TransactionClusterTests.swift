import Kafka
import TestSupport
import Testing

/// Only a cluster with real transactions shows this. The embedded cluster only acknowledges them, see
/// `EmbeddedCluster`.
@Suite(
    .enabled(
        if: KafkaTestBed.realBrokers != nil,
        "the embedded cluster has no transactions: SLUICE_TEST_BOOTSTRAP_SERVERS names a cluster that has"))
struct TransactionClusterTests {
    /// A member of the bed's group with all partitions.
    private func member(_ bed: KafkaTestBed) throws -> Member {
        let member = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the assignment") {
            member.poll()
            return member.consumer.assignment.count == bed.partitions
        }
        return member
    }

    private func commits(_ bed: KafkaTestBed, _ offset: Int64, _ metadata: String) -> [OffsetCommit] {
        [OffsetCommit(topic: bed.topic, partition: 0, offset: offset, metadata: metadata)]
    }

    @Test func offsetsAndMetadataCommitAtomicallyWithRecords() throws {
        let bed = try KafkaTestBed()
        let member = try member(bed)
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        func send(_ offset: Int64, _ metadata: String) throws {
            try transactions.complete { try $0.beginTransaction() }
            produce(transactions.producer, topic, value: metadata, partition: 0)
            let group = try member.consumer.groupMetadata()
            try transactions.complete { try $0.sendOffsets(commits(bed, offset, metadata), group: group) }
        }
        try send(3, "AAEC")
        try transactions.complete { try $0.commit() }
        var committed = try member.consumer.committed([bed.partition(0)])
        #expect(committed.map(\.offset) == [3])
        #expect(committed.map(\.metadata) == ["AAEC"])
        try send(7, "none")
        try transactions.complete { try $0.abort() }
        committed = try member.consumer.committed([bed.partition(0)])
        #expect(committed.map(\.offset) == [3])
        #expect(committed.map(\.metadata) == ["AAEC"])
        transactions.close()
        member.consumer.close()
    }

    @Test func markersTakeOffsetsAndAbortedRecordsAreSkipped() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        for (value, isCommitted) in [("a", true), ("b", false), ("c", true)] {
            try transactions.complete { try $0.beginTransaction() }
            produce(transactions.producer, topic, value: value, partition: 0)
            try eventually("the report") {
                transactions.producer.pollDeliveryReports { _ in } > 0
            }
            try transactions.complete { try isCommitted ? $0.commit() : $0.abort() }
        }
        transactions.close()
        #expect(try bed.read().map(\.text) == ["a", "c"])
        #expect(try bed.read().map(\.offset) == [0, 4])
        #expect(try bed.read(isolation: "read_uncommitted").map(\.text) == ["a", "b", "c"])
    }

    @Test func laterProducerOfAnIdentifierFencesTheEarlier() throws {
        let bed = try KafkaTestBed()
        let earlier = try bed.transactions("shared")
        let topic = try earlier.producer.topic(bed.topic)
        try earlier.complete { try $0.beginTransaction() }
        produce(earlier.producer, topic, value: "earlier", partition: 0)
        try eventually("the report") { earlier.producer.pollDeliveryReports { _ in } > 0 }
        let later = try bed.transactions("shared")
        let failure = try earlier.failure { try $0.commit() }
        guard case .fatal(let error) = failure else { throw TestFailure("\(failure)") }
        #expect(error.isFenced)
        try later.complete { try $0.beginTransaction() }
        produce(later.producer, try later.producer.topic(bed.topic), value: "later", partition: 0)
        try later.complete { try $0.commit() }
        #expect(try bed.read().map(\.text) == ["later"])
        earlier.close()
        later.close()
    }

    @Test func staleGenerationCannotCommitOffsets() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let first = try member(bed)
        let stale = try first.consumer.groupMetadata()
        let transactions = try bed.transactions()
        let second = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("both members have a partition") {
            first.poll()
            second.poll()
            return first.consumer.assignment.count == 1 && second.consumer.assignment.count == 1
        }
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        let failure = try transactions.failure { try $0.sendOffsets(commits(bed, 1, ""), group: stale) }
        guard case .abortable(let error) = failure else { throw TestFailure("\(failure)") }
        #expect(error.isGroupMembershipLost)
        try transactions.complete { try $0.abort() }
        // The current generation can commit.
        try transactions.complete { try $0.beginTransaction() }
        let current = try first.consumer.groupMetadata()
        try transactions.complete { try $0.sendOffsets(commits(bed, 1, "now"), group: current) }
        try transactions.complete { try $0.commit() }
        #expect(try first.consumer.committed([bed.partition(0)]).map(\.metadata) == ["now"])
        transactions.close()
        first.consumer.close()
        second.consumer.close()
    }

    @Test func restartedProducerDoesNotWaitForOpenTransaction() throws {
        let bed = try KafkaTestBed()
        let crashed = try bed.transactions("restarted", [("transaction.timeout.ms", "600000")])
        try crashed.complete { try $0.beginTransaction() }
        produce(crashed.producer, try crashed.producer.topic(bed.topic), value: "lost", partition: 0)
        try eventually("the report") { crashed.producer.pollDeliveryReports { _ in } > 0 }
        crashed.close()
        let restarted = try bed.transactions("restarted", [("transaction.timeout.ms", "600000")])
        try restarted.complete { try $0.beginTransaction() }
        produce(restarted.producer, try restarted.producer.topic(bed.topic), value: "kept", partition: 0)
        try restarted.complete { try $0.commit() }
        restarted.close()
        #expect(try bed.read().map(\.text) == ["kept"])
    }
}
