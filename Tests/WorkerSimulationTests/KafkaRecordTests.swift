import SimulatedEventLoop
import SimulatedKafka
import Testing

/// The simulated Kafka: content and memory of records, readers without a group, and administration.
@Suite struct KafkaRecordTests {
    private static func text(_ bytes: UnsafeRawBufferPointer?) -> String? {
        bytes.map { String(decoding: $0, as: UTF8.self) }
    }

    /// Polls until this many records have come.
    private static func read(
        _ consumer: KafkaConsumer, _ wanted: Int, seconds: Int = 10
    ) -> [ConsumedRecord] {
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 100)
        defer { buffer.deallocate() }
        var records: [ConsumedRecord] = []
        for _ in 0..<(seconds * 10) where records.count < wanted {
            let count = consumer.poll(into: buffer, timeoutMilliseconds: 100)
            records += buffer[..<count]
        }
        return records
    }

    @Test func aRecordHasItsContent() throws {
        try KafkaBed.run { bed in
            bed.kafka.produce(
                to: KafkaBed.outcomes, 2, key: nil, value: [],
                headers: [("a", [1, 2]), ("b", nil), ("", [])],
                timestamp: 1_234)
            bed.kafka.produce(to: KafkaBed.outcomes, 2, key: Array("k".utf8), value: nil)
            let consumer = try KafkaConsumer(properties: KafkaBed.properties, topics: []) { _ in }
            try consumer.assign([
                TopicPartitionOffset(topic: KafkaBed.outcomes, partition: 2, start: .beginning)
            ])
            let records = Self.read(consumer, 2)
            try #require(records.count == 2)
            #expect(records[0].key == nil && Self.text(records[0].value) == "")
            #expect(records[0].timestampMilliseconds == 1_234)
            #expect(Self.text(records[0].topicName) == KafkaBed.outcomes)
            var headers: [String] = []
            records[0].forEachHeader {
                headers.append("\(Self.text($0)!)=\($1.map { Array($0) }?.description ?? "nil")")
            }
            #expect(headers == ["a=[1, 2]", "b=nil", "=[]"])
            #expect(Self.text(records[1].key) == "k" && records[1].value == nil)
            #expect(records[1].offset == 1 && records[1].partition == 2 && records[1].headerCount == 0)
            for record in records { record.destroy() }
            consumer.close()
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (0, 0))
        }
    }

    @Test func aRecordKeepsItsResponseUntilItMoves() throws {
        try KafkaBed.run { bed in
            for number in 0..<10 {
                bed.kafka.produce(
                    to: KafkaBed.outcomes, 0, key: [1], value: Array("value \(number)".utf8),
                    headers: [("name", Array(repeating: 7, count: number * 10))])
            }
            let consumer = try KafkaConsumer(properties: KafkaBed.properties, topics: []) { _ in }
            try consumer.assign([
                TopicPartitionOffset(topic: KafkaBed.outcomes, partition: 0, start: .beginning)
            ])
            var records = Self.read(consumer, 10)
            try #require(records.count == 10)
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (10, 1))
            // The distance to the next record covers the headers.
            for index in 0..<9 {
                #expect(records[index].countedBytes(before: records[index + 1]) >= 512 + 8 + 4 + index * 10)
            }
            for record in records[1...] { record.destroy() }
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (1, 1))
            let counted = records[0].ownBytes
            records[0] = records[0].inOwnMemory()
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (0, 0))
            #expect(Self.text(records[0].value) == "value 0" && records[0].headerCount == 1)
            #expect(records[0].ownBytes < counted && bed.kafka.liveCopies == 1)
            records[0].destroy()
            #expect(bed.kafka.liveCopies == 0)
            consumer.close()
        }
    }

    @Test func pausedRecordsComeAgain() throws {
        try KafkaBed.run { bed in
            for number in 0..<300 {
                bed.kafka.produce(to: KafkaBed.outcomes, 0, key: nil, value: [UInt8(number % 250)])
            }
            let consumer = try KafkaConsumer(properties: KafkaBed.properties, topics: []) { _ in }
            let partition = TopicPartition(KafkaBed.outcomes, 0)
            try consumer.assign([TopicPartitionOffset(partition, .beginning)])
            var offsets = Self.read(consumer, 100).map { record in
                defer { record.destroy() }
                return record.offset
            }
            try consumer.pause([partition])
            #expect(Self.read(consumer, 1, seconds: 1).isEmpty)
            #expect(bed.kafka.liveRecords == 0)
            try consumer.resume([partition])
            for record in Self.read(consumer, 300 - offsets.count) {
                offsets.append(record.offset)
                record.destroy()
            }
            #expect(offsets == Array(0..<300))
            consumer.close()
        }
    }

    @Test func aReaderStartsOverBeforeItsLog() throws {
        try KafkaBed.run { bed in
            for number in 0..<20 {
                bed.kafka.produce(to: KafkaBed.outcomes, 0, key: nil, value: [UInt8(number)])
            }
            var resets = 0
            var properties = KafkaBed.properties
            properties["auto.offset.reset"] = "earliest"
            let consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                if case .log(let line) = event, line.message.contains("offset reset") { resets += 1 }
            }
            try consumer.assign([
                TopicPartitionOffset(topic: KafkaBed.outcomes, partition: 0, start: .beginning)
            ])
            for record in Self.read(consumer, 20) { record.destroy() }
            // The log goes back, and its offsets are used again.
            bed.kafka.loseTail(KafkaBed.outcomes, 0, from: 5)
            bed.run(seconds: 1)
            bed.kafka.produce(to: KafkaBed.outcomes, 0, key: nil, value: [99])
            let records = Self.read(consumer, 6)
            #expect(records.map(\.offset) == Array(0..<6))
            #expect(resets == 1)
            for record in records { record.destroy() }
            consumer.close()
        }
    }

    @Test func theEndIsReportedOncePerPosition() throws {
        try KafkaBed.run { bed in
            var ends: [Int64] = []
            var properties = KafkaBed.properties
            properties["enable.partition.eof"] = "true"
            let consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                switch event {
                case .endOfPartition(_, let offset): ends.append(offset)
                case .partitionError(_, let error): ends.append(error.isUnknownTopic ? -1 : -2)
                default: break
                }
            }
            // The topic doesn't exist yet.
            try consumer.assign([TopicPartitionOffset(TopicPartition("sluice.switches", 0), .offset(0))])
            #expect(Self.read(consumer, 1, seconds: 2).isEmpty)
            #expect(ends == [-1])
            bed.kafka.createTopic("sluice.switches", partitions: 1)
            #expect(Self.read(consumer, 1, seconds: 2).isEmpty)
            bed.kafka.produce(to: "sluice.switches", 0, key: nil, value: [])
            let records = Self.read(consumer, 2, seconds: 2)
            #expect(records.count == 1 && ends == [-1, 0, 1])
            for record in records { record.destroy() }
            consumer.close()
        }
    }

    @Test func anEndIsReportedAfterItsLeaderWasAway() throws {
        try KafkaBed.run { bed in
            var ends: [Int64] = []
            var properties = KafkaBed.properties
            properties["enable.partition.eof"] = "true"
            let consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                if case .endOfPartition(_, let offset) = event { ends.append(offset) }
            }
            try consumer.assign([
                TopicPartitionOffset(topic: KafkaBed.outcomes, partition: 0, start: .offset(0))
            ])
            bed.kafka.setLeader(KafkaBed.outcomes, 0, isAway: true)
            #expect(Self.read(consumer, 1, seconds: 2).isEmpty && ends == [])
            bed.kafka.setLeader(KafkaBed.outcomes, 0, isAway: false)
            #expect(Self.read(consumer, 1, seconds: 2).isEmpty && ends == [0])
            consumer.close()
        }
    }

    @Test func topicsAreCreatedAndDescribed() throws {
        try KafkaBed.run { bed in
            let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: "kafka:9092"))
            #expect(try admin.partitionCount(of: "sluice.dead-letters") == nil)
            let topic = NewTopic(
                "sluice.dead-letters", partitions: 2, configuration: [("max.message.bytes", "5000")])
            #expect(try admin.createTopics([topic]) == [.created])
            #expect(try admin.createTopics([topic]) == [.alreadyExists])
            #expect(try admin.partitionCount(of: "sluice.dead-letters") == 2)
            #expect(
                admin.largestBatches(of: ["sluice.dead-letters", "unknown"]) == ["sluice.dead-letters": 5_000]
            )
            let found = try admin.configurations(of: [KafkaBed.changelog, "unknown"])
            #expect(found[0]?.values["cleanup.policy"] == "delete" && found[1] == nil)
            try admin.createPartitions(of: KafkaBed.changelog, total: 5)
            #expect(try admin.coPartitioning(of: [KafkaBed.jobs, KafkaBed.changelog]).problem != nil)
            bed.kafka.setLeader(KafkaBed.jobs, 1, isAway: true)
            #expect(try admin.metadata(topic: KafkaBed.jobs).topics.first?.leaderless == [1])
            bed.kafka.isUnreachable = true
            #expect(throws: KafkaError.self) { try admin.metadata(timeoutMilliseconds: 1_000) }
        }
    }

    @Test func aKilledProcessReturnsFromItsCalls() {
        KafkaBed.run { bed in
            let process = SimulatedProcess("worker")
            bed.kafka.isUnreachable = true
            bed.scheduler.schedule(after: KafkaBed.second) { process.kill() }
            let before = bed.scheduler.now
            process.run {
                _ = #expect(throws: KafkaError.self) {
                    try KafkaAdmin(properties: KafkaProperties(bootstrapServers: "kafka:9092"))
                        .metadata(timeoutMilliseconds: 60_000)
                }
            }
            #expect(bed.scheduler.now == before + KafkaBed.second)
        }
    }

    // MARK: The changelog

    @Test func aChangelogIsReadToItsEnd() throws {
        try KafkaBed.run { bed in
            for number in 0..<1_500 {
                bed.kafka.produce(
                    to: KafkaBed.changelog, Int32(number % 2), key: [UInt8(number % 200)], value: [1])
            }
            var completed: [Int32] = []
            let reader = try ChangelogReader(properties: KafkaBed.properties) { event in
                if case .complete(let progress) = event {
                    completed.append(progress.topicPartition.partition)
                }
            }
            try reader.read([
                TopicPartitionOffset(topic: KafkaBed.changelog, partition: 0, start: .beginning),
                TopicPartitionOffset(topic: KafkaBed.changelog, partition: 1, start: .offset(700)),
                TopicPartitionOffset(topic: KafkaBed.changelog, partition: 2, start: .beginning),
            ])
            let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 100)
            defer { buffer.deallocate() }
            var count = 0
            for _ in 0..<1_000 where !reader.isComplete {
                let taken = reader.poll(into: buffer, timeoutMilliseconds: 100)
                for record in buffer[..<taken] { record.destroy() }
                count += taken
            }
            #expect(reader.isComplete && count == 800)
            #expect(completed.sorted() == [0, 1, 2])
            reader.close()
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (0, 0))
        }
    }
}
