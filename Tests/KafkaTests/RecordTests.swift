import Kafka
import TestSupport
import Testing

@Suite struct RecordTests {
    @Test func recordIsReadAsItWasProduced() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        let key = Array("device".utf8)
        let value: [UInt8] = [0, 1, 2, 255]
        let headers: [(name: String, value: [UInt8]?)] = [
            ("apns-topic", Array("com.example".utf8)), ("empty", []), ("none", nil), ("apns-topic", [0, 9]),
        ]
        let result = key.withUnsafeBytes { key in
            value.withUnsafeBytes { value in
                producer.produce(topic, key: key, value: value, headers: headers, opaque: 1, partition: 0)
            }
        }
        guard case .queued = result else { throw TestFailure("\(result)") }
        try producer.flush(timeoutMilliseconds: 20_000)

        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        try eventually("the record") {
            reader.poll()
            return !reader.records.isEmpty
        }
        let record = reader.records[0]
        #expect(record.topic == bed.topic)
        #expect(record.partition == 0)
        #expect(record.offset == 0)
        #expect(record.key == key)
        #expect(record.value == value)
        #expect(
            record.headers == [
                .init(name: "apns-topic", value: Array("com.example".utf8)), .init(name: "empty", value: []),
                .init(name: "none", value: nil), .init(name: "apns-topic", value: [0, 9]),
            ])
        reader.consumer.close()
    }

    @Test func nullAndEmptyValuesStayDistinct() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        let cases: [(key: String?, value: String?)] = [
            (nil, "v"), ("", "v"), ("k", nil), ("k", ""), (nil, nil), ("", ""),
        ]
        for (key, value) in cases { produce(producer, topic, key: key, value: value, partition: 0) }
        // An empty slice without an address is empty, not null, on the path with headers as well.
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        _ = producer.produce(topic, key: empty, value: empty, opaque: 0, partition: 0)
        _ = producer.produce(topic, key: empty, value: empty, headers: [], opaque: 0, partition: 0)
        _ = producer.produce(topic, key: nil, value: nil, headers: [("h", nil)], opaque: 0, partition: 0)
        try producer.flush(timeoutMilliseconds: 20_000)

        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        try eventually("all records") {
            reader.poll()
            return reader.records.count == cases.count + 3
        }
        let expected = cases + [("", ""), ("", ""), (nil, nil)]
        for (record, (key, value)) in zip(reader.records, expected) {
            #expect(record.key == key.map { Array($0.utf8) })
            #expect(record.value == value.map { Array($0.utf8) })
        }
        reader.consumer.close()
    }

    @Test func pollFillsTheBufferInOrderAndKeepsTheRest() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: (0..<250).map { "\($0)" })
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        var counts: [Int] = []
        try eventually("250 records") {
            let count = reader.poll(limit: 32)
            if count > 0 { counts.append(count) }
            return reader.records.count >= 250
        }
        #expect(reader.records.map(\.offset) == Array(0..<250))
        #expect(reader.records.map(\.text) == (0..<250).map { "\($0)" })
        #expect(counts.allSatisfy { $0 <= 32 })
        #expect(counts.contains(32))
        #expect(reader.consumer.watermarks(of: bed.partition(0))?.high == 250)
        #expect(try reader.consumer.queryWatermarks(of: bed.partition(0)) == Watermarks(low: 0, high: 250))
        reader.consumer.close()
    }

    @Test func recordOutlivesPauseAndCloseOnAnotherThread() async throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: ["payload"])
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        var held: ConsumedRecord?
        try eventually("the record") {
            withUnsafeTemporaryAllocation(of: ConsumedRecord.self, capacity: 1) { buffer in
                if reader.consumer.poll(into: buffer) == 1 { held = buffer[0] }
            }
            return held != nil
        }
        let record = try #require(held)
        try reader.consumer.pause([bed.partition(0)])
        reader.consumer.close()
        let pointer = UInt(bitPattern: record.rawPointer)
        let value = await Task.detached {
            guard let raw = UnsafeMutableRawPointer(bitPattern: pointer) else { return "" }
            let moved = ConsumedRecord(rawPointer: raw)
            defer { moved.destroy() }
            return String(
                decoding: moved.value ?? UnsafeRawBufferPointer(start: nil, count: 0), as: UTF8.self)
        }.value
        #expect(value == "payload")
    }

    @Test func readingStartsAtTheAssignedOffset() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: (0..<10).map { "\($0)" })
        let reader = try Member(bed.consumerProperties([("enable.partition.eof", "true")]), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .offset(7))])
        try eventually("the end") {
            reader.poll()
            return !reader.ends.isEmpty
        }
        #expect(reader.records.map(\.offset) == [7, 8, 9])
        // Without topics and a group, commits can still be read.
        #expect(try reader.consumer.committed([bed.partition(0)]).map(\.offset) == [nil])
        reader.consumer.close()
    }
}
