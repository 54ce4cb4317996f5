import CRdkafka
import TestSupport
import Testing

@testable import Kafka

/// Requests for offsets that the log lacks.
@Suite struct OffsetResetTests {
    private func read(_ reader: Member, _ count: Int) throws {
        try eventually("\(count) records") {
            reader.poll()
            return reader.records.count >= count
        }
    }

    /// Simulates a shortened log: the reader's next offset is beyond the log's end.
    private func seekBeyondTheLogEnd(_ reader: Member, _ partition: TopicPartition) throws {
        let list = PartitionList([TopicPartitionOffset(partition, .offset(1000))])
        let error = rd_kafka_seek_partitions(reader.consumer.client, list.pointer, 10_000)
        #expect(error == nil)
        #expect(list.firstError("seek") == nil)
    }

    @Test func logThatGoesBackRepeatedlyIsReadAnewEachTime() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: ["a", "b", "c"])
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        for round in 1...3 {
            try read(reader, 3 * round)
            if round < 3 { try seekBeyondTheLogEnd(reader, bed.partition(0)) }
        }
        try bed.fill(with: ["d"])
        try read(reader, 10)
        #expect(reader.records.map(\.text) == ["a", "b", "c", "a", "b", "c", "a", "b", "c", "d"])
        #expect(reader.consumer.droppedRecords == 0)
        reader.consumer.close()
    }

    @Test func groupWithoutOffsetsStartsAtTheResetPolicy() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: ["old"])
        let latest = try Member(
            bed.consumerProperties([("auto.offset.reset", "latest")]), topics: [bed.topic])
        try eventually("the assignment") {
            latest.poll()
            return latest.consumer.assignment == [bed.partition(0)]
        }
        // The end is known only when a record arrives after it.
        try eventually("a record") {
            try bed.fill(with: ["new"])
            latest.poll()
            return !latest.records.isEmpty
        }
        #expect(latest.records.allSatisfy { $0.text == "new" })
        #expect(latest.partitionErrors.isEmpty)
        latest.consumer.close()
    }

    /// Records may be lost then, but none is repeated.
    @Test func resetToLatestNeverRepeatsRecords() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: ["a", "b"])
        let reader = try Member(bed.consumerProperties([("auto.offset.reset", "latest")]), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        try read(reader, 2)
        try seekBeyondTheLogEnd(reader, bed.partition(0))
        try eventually("a record behind the end") {
            try bed.fill(with: ["new"])
            reader.poll()
            return reader.records.count > 2
        }
        #expect(Set(reader.records.dropFirst(2).map(\.text)) == ["new"])
        #expect(Set(reader.records.map(\.offset)).count == reader.records.count)
        reader.consumer.close()
    }

    @Test func startOverAffectsOnlyTheNamedPartition() throws {
        let producer = try KafkaProducer(properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"))
        let topic = try producer.topic("jobs")
        var table = PartitionTable()
        for partition in Int32(0)..<2 {
            table.assign(TopicPartition("jobs", partition))
            let first = table.admit(topic.handle, partition, 7)
            #expect(first)
        }
        table.startOver(TopicPartition("jobs", 0))
        table.startOver(TopicPartition("jobs", 5))
        let after = [
            table.admit(topic.handle, 0, 0), table.admit(topic.handle, 0, 0), table.admit(topic.handle, 1, 0),
            table.admit(topic.handle, 5, 0),
        ]
        #expect(after == [true, false, false, false])
    }
}
