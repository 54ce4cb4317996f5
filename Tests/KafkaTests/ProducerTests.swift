import Kafka
import TestSupport
import Testing

@Suite struct ProducerTests {
    @Test func reportsCarryOpaqueAndPosition() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        for opaque in 1...20 {
            produce(
                producer, topic, key: "k\(opaque)", value: "v\(opaque)", opaque: UInt(opaque),
                partition: Int32(opaque % 2))
        }
        var reports: [UInt: (partition: Int32, offset: Int64, key: String, value: String)] = [:]
        try producer.flush(timeoutMilliseconds: 20_000) { report in
            let (error, topic) = (report.error, report.topic)
            #expect(error == nil)
            #expect(topic == bed.topic)
            reports[report.opaque] = (
                report.partition, report.offset, text(report.key), text(report.value)
            )
        }
        #expect(reports.count == 20)
        #expect(producer.queued == 0)
        for (opaque, report) in reports {
            #expect(report.partition == Int32(opaque % 2))
            #expect(report.offset == Int64((opaque - 1) / 2))
            #expect(report.key == "k\(opaque)")
            #expect(report.value == "v\(opaque)")
        }
        producer.close()
    }

    @Test func fullQueueIsReportedAsResult() throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties["queue.buffering.max.messages"] = "10"
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic("nowhere")
        for _ in 0..<10 {
            guard case .queued = produce(producer, topic, value: "v", partition: 0) else {
                throw TestFailure("full too early")
            }
        }
        guard case .queueFull = produce(producer, topic, value: "v", partition: 0) else {
            throw TestFailure("not full")
        }
        #expect(throws: KafkaError.self) { try producer.flush(timeoutMilliseconds: 20) }
        #expect(producer.queued == 10)
        var purged = 0
        producer.purge { report in
            let (error, unwritten) = (report.error, report.isKnownUnwritten)
            #expect(error?.name == "_PURGE_QUEUE")
            #expect(unwritten)
            purged += 1
        }
        #expect(purged == 10)
        guard case .queued = produce(producer, topic, value: "v", partition: 0) else {
            throw TestFailure("still full")
        }
        producer.purge { _ in }
    }

    @Test func undeliverableRecordIsReportedWithItsContent() throws {
        var properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        properties["message.timeout.ms"] = "50"
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic("nowhere")
        let result = Array("payload".utf8).withUnsafeBytes {
            producer.produce(topic, key: nil, value: $0, headers: [("a", [1]), ("b", nil)], opaque: 7)
        }
        guard case .queued = result else { throw TestFailure("\(result)") }
        var reports = 0
        try producer.flush(timeoutMilliseconds: 20_000) { report in
            reports += 1
            let (opaque, error, unwritten) = (report.opaque, report.error, report.isKnownUnwritten)
            #expect(opaque == 7)
            #expect(error?.name == "_MSG_TIMED_OUT")
            #expect(unwritten)
            let (topic, key, value, headers) = (
                report.topic, text(report.key), text(report.value), report.headers
            )
            #expect(topic == "nowhere")
            #expect(key == "nil")
            #expect(value == "payload")
            #expect(headers.map(\.name) == ["a", "b"])
            #expect(headers.map(\.value) == [[1], nil])
        }
        #expect(reports == 1)
    }

    @Test func tooLargeRecordIsRefused() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer([("message.max.bytes", "2000")])
        let topic = try producer.topic(bed.topic)
        guard case .failed(let error) = produce(producer, topic, value: String(repeating: "x", count: 4000))
        else {
            throw TestFailure("accepted")
        }
        #expect(error.name == "MSG_SIZE_TOO_LARGE")
        #expect(error.message.contains(bed.topic))
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil))
    func retriableErrorIsRetriedAndFinalErrorReported() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let producer = try bed.producer([("retry.backoff.ms", "5")])
        let topic = try producer.topic(bed.topic)
        cluster.fail(.produce, with: [7, 7])  // REQUEST_TIMED_OUT
        produce(producer, topic, value: "retried", opaque: 1, partition: 0)
        var outcomes: [UInt: String] = [:]
        try producer.flush(timeoutMilliseconds: 20_000) {
            outcomes[$0.opaque] = $0.error?.name ?? "delivered"
        }
        cluster.fail(.produce, with: [29])  // TOPIC_AUTHORIZATION_FAILED
        produce(producer, topic, value: "refused", opaque: 2, partition: 0)
        try producer.flush(timeoutMilliseconds: 20_000) {
            outcomes[$0.opaque] = $0.error?.name ?? "delivered"
        }
        #expect(outcomes == [1: "delivered", 2: "TOPIC_AUTHORIZATION_FAILED"])
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        try eventually("the record") {
            reader.poll()
            return !reader.records.isEmpty
        }
        #expect(reader.records.map(\.text) == ["retried"])
        reader.consumer.close()
    }

    @Test func threadsMayShareAProducer() async throws {
        let bed = try KafkaTestBed(partitions: 2)
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<4 {
                group.addTask {
                    for index in 0..<500 {
                        produce(producer, topic, value: "v", opaque: UInt(worker * 500 + index + 1))
                    }
                }
            }
        }
        var seen: Set<UInt> = []
        try producer.flush(timeoutMilliseconds: 20_000) { if $0.isDelivered { seen.insert($0.opaque) } }
        #expect(seen == Set(1...2000))
    }

    private func text(_ bytes: UnsafeRawBufferPointer?) -> String {
        bytes.map { String(decoding: $0, as: UTF8.self) } ?? "nil"
    }
}
