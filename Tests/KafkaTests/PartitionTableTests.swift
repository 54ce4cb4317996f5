import Testing

@testable import Kafka

/// Records that librdkafka delivers twice or too late are not handed out.
@Suite struct PartitionTableTests {
    private let first: KafkaTopic
    private let second: KafkaTopic

    init() throws {
        let producer = try KafkaProducer(properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"))
        first = try producer.topic("first")
        second = try producer.topic("second")
    }

    @Test func offsetsAreAdmittedOnceInOrder() {
        var table = PartitionTable()
        table.assign(TopicPartition("first", 2))
        let offsets: [Int64] = [5, 6, 6, 5, 9, 7, 10]
        #expect(
            offsets.map { table.admit(first.handle, 2, $0) } == [true, true, false, false, true, false, true])
        #expect(table.dropped == 3)
    }

    @Test func unassignedPartitionsAreNotAdmitted() {
        var table = PartitionTable()
        table.assign(TopicPartition("first", 1))
        let before = [
            table.admit(first.handle, 0, 0), table.admit(first.handle, 7, 0),
            table.admit(second.handle, 1, 0),
            table.admit(first.handle, 1, 0), table.admit(first.handle, 0, 0),
        ]
        #expect(before == [false, false, false, true, false])
        table.unassign(TopicPartition("first", 1))
        table.unassign(TopicPartition("second", 1))
        let after = table.admit(first.handle, 1, 1)
        #expect(!after)
        #expect(table.assigned.isEmpty)
    }

    @Test func reassignedPartitionAdmitsEarlierOffsets() {
        var table = PartitionTable()
        let partition = TopicPartition("first", 0)
        table.assign(partition)
        let once = table.admit(first.handle, 0, 41)
        table.unassign(partition)
        table.assign(partition)
        #expect(table.contains(partition))
        let again = table.admit(first.handle, 0, 40)
        #expect(once && again)
    }

    @Test func topicsAreTrackedSeparately() {
        var table = PartitionTable()
        table.assign(TopicPartition("first", 0))
        table.assign(TopicPartition("second", 0))
        for offset in Int64(0)..<3 {
            let results = [table.admit(first.handle, 0, offset), table.admit(second.handle, 0, offset + 100)]
            #expect(results == [true, true])
        }
        let old = table.admit(second.handle, 0, 50)
        #expect(!old)
        #expect(table.assigned.sorted() == [TopicPartition("first", 0), TopicPartition("second", 0)])
        table.unassign(TopicPartition("first", 0))
        #expect(table.assigned == [TopicPartition("second", 0)])
        let next = table.admit(second.handle, 0, 103)
        #expect(next)
    }

    /// A group's leader and brokers are other programs, so their numbers are checked.
    @Test func invalidPartitionNumbersAreIgnored() {
        var table = PartitionTable()
        for number: Int32 in [-1, .min, 65_535, .max] {
            table.assign(TopicPartition("first", number))
            table.unassign(TopicPartition("first", number))
            #expect(!table.contains(TopicPartition("first", number)))
            let isAdmitted = table.admit(first.handle, number, 0)
            #expect(!isAdmitted)
        }
        table.assign(TopicPartition("first", 65_534))
        let results = [
            table.admit(first.handle, -1, 0), table.admit(first.handle, 65_534, .max - 1),
            table.admit(first.handle, -1, 1), table.admit(first.handle, 65_534, .max),
            table.admit(first.handle, .max, 1),
        ]
        #expect(results == [false, true, false, false, false])
    }
}
