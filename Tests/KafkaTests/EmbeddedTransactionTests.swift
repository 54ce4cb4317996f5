import Kafka
import TestSupport
import Testing

/// Transaction features that the embedded cluster lacks, so that no test relies on them.
@Suite(.enabled(if: KafkaTestBed.realBrokers == nil))
struct EmbeddedTransactionTests {
    @Test func openAndAbortedRecordsAreReadWithoutMarkers() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        func write(_ value: String) throws {
            try transactions.complete { try $0.beginTransaction() }
            produce(transactions.producer, topic, value: value, partition: 0)
            try eventually("the report") { transactions.producer.pollDeliveryReports { _ in } > 0 }
        }
        try write("open")
        #expect(try bed.read().map(\.text) == ["open"])
        try transactions.complete { try $0.abort() }
        try write("committed")
        try transactions.complete { try $0.commit() }
        transactions.close()
        let records = try bed.read()
        #expect(records.map(\.text) == ["open", "committed"])
        #expect(records.map(\.offset) == [0, 1])
    }

    @Test func transactionalOffsetsAreDiscarded() throws {
        let bed = try KafkaTestBed()
        let consumer = try Member(bed.consumerProperties(), topics: [bed.topic])
        try eventually("the assignment") {
            consumer.poll()
            return consumer.consumer.assignment.count == bed.partitions
        }
        let transactions = try bed.transactions()
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        let group = try consumer.consumer.groupMetadata()
        #expect(group.group == bed.group)
        let offset = OffsetCommit(topic: bed.topic, partition: 0, offset: 7, metadata: "m")
        try transactions.complete { try $0.sendOffsets([offset], group: group) }
        try transactions.complete { try $0.commit() }
        #expect(try consumer.consumer.committed([bed.partition(0)]).map(\.offset) == [nil])
        transactions.close()
        consumer.consumer.close()
        #expect(throws: KafkaError.self) { try consumer.consumer.groupMetadata() }
    }

    /// Kafka accepts offsets without a member's identity, and checks no generation.
    @Test func nonMemberHasNoGroupMetadata() throws {
        let bed = try KafkaTestBed()
        let consumer = try Member(bed.consumerProperties(), topics: [])
        do {
            _ = try consumer.consumer.groupMetadata()
            Issue.record("a non-member has metadata")
        } catch {
            #expect(error.isGroupMembershipLost)
        }
        consumer.consumer.close()
    }

    @Test func secondProducerOfAnIdentifierDoesNotFenceTheFirst() throws {
        let bed = try KafkaTestBed()
        let first = try bed.transactions("shared")
        let second = try bed.transactions("shared")
        for transactions in [first, second] {
            try transactions.complete { try $0.beginTransaction() }
            produce(
                transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
            try transactions.complete { try $0.commit() }
            transactions.close()
        }
        #expect(try bed.read().count == 2)
    }
}
