import Kafka
import TestSupport
import Testing

/// Memory that a record counts for, and its move out of librdkafka's buffers.
@Suite struct RecordMemoryTests {
    /// Polls all records of partition 0.
    /// - Returns: the largest number of records of one poll.
    @discardableResult
    private func withRecords(
        _ bed: KafkaTestBed, count: Int, bytes: Int = .max, _ body: ([ConsumedRecord]) throws -> Void
    ) throws -> Int {
        let consumer = try KafkaConsumer(properties: bed.consumerProperties(), topics: []) { _ in }
        try consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        var records: [ConsumedRecord] = []
        var most = 0
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 16)
        defer { buffer.deallocate() }
        try eventually("\(count) records") {
            let polled = consumer.poll(into: buffer, bytes: bytes, timeoutMilliseconds: 20)
            most = max(most, polled)
            records += buffer[..<polled]
            return records.count >= count
        }
        try body(records)
        consumer.close()
        return most
    }

    private func produce(
        _ bed: KafkaTestBed,
        _ records: [(key: String?, value: String?, headers: [(name: String, value: [UInt8]?)])]
    ) throws {
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        for record in records {
            let result = withOptionalBytes(record.key) { key in
                withOptionalBytes(record.value) { value in
                    producer.produce(
                        topic, key: key, value: value, headers: record.headers, opaque: 0, partition: 0)
                }
            }
            guard case .queued = result else { throw TestFailure("\(result)") }
        }
        try producer.flush(timeoutMilliseconds: 20_000)
    }

    @Test func recordInItsOwnMemoryIsTheSame() throws {
        let bed = try KafkaTestBed()
        try produce(
            bed,
            [
                ("key", "value", [("name", [1, 2, 3]), ("none", nil), ("empty", []), ("name", [4])]),
                (nil, "value", []), ("", "", [("n", [9])]), ("key", nil, []), (nil, nil, []),
            ])
        try withRecords(bed, count: 5) { records in
            for record in records {
                let (before, timestamp) = (Received(record), record.timestampMilliseconds)
                #expect(record.keepsResponse)
                let own = record.inOwnMemory()
                defer { own.destroy() }
                #expect(!own.keepsResponse)
                let after = Received(own)
                #expect(own.timestampMilliseconds == timestamp)
                #expect((after.partition, after.offset) == (before.partition, before.offset))
                #expect(after.key == before.key)
                #expect(after.value == before.value)
                #expect(after.headers == before.headers)
                #expect(own.headerCount == before.headers.count)
                #expect(own.inOwnMemory().rawPointer == own.rawPointer)
            }
        }
    }

    /// The bytes of a record are known with its successor.
    @Test func pollEndsWithTheRecordAfterItsBytes() throws {
        let bed = try KafkaTestBed()
        let value = String(repeating: "v", count: 1_000)
        try produce(bed, Array(repeating: ("key", value, []), count: 8))
        for (bytes, most) in [(3_000, 3), (1, 2), (0, 1)] {
            let polled = try withRecords(bed, count: 8, bytes: bytes) { records in
                #expect(records.map(\.offset) == Array(0..<8))
                for record in records { record.destroy() }
            }
            #expect(polled <= most, "\(bytes) bytes")
        }
    }

    @Test func headersCount() throws {
        let bed = try KafkaTestBed()
        let long = [UInt8](repeating: 7, count: 100_000)
        let many = (0..<10_000).map { (name: "\($0 % 10)", value: [UInt8]?.none) }
        try produce(
            bed,
            [
                ("key", "value", []), ("key", "value", [("long", long)]), ("key", "value", many),
                ("key", nil, [("long", long)]), ("key", "value", [("long", long)]),
            ])
        try withRecords(bed, count: 5) { records in
            let counted = records.indices.map {
                records[$0].countedBytes(before: $0 + 1 < records.count ? records[$0 + 1] : nil)
            }
            #expect(counted[0] < 1_000)
            // Headers are in the response, and in librdkafka's list.
            for index in [1, 3, 4] {
                #expect(counted[index] > 2 * long.count && counted[index] < 2 * long.count + 1_000)
            }
            #expect(counted[2] > many.count * 64)
            for record in records {
                let own = record.inOwnMemory()
                #expect(own.ownBytes >= (own.value?.count ?? 0) + 512)
                own.destroy()
            }
        }
    }
}
