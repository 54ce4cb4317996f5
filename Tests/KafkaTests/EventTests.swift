import Glibc
import Kafka
import TestSupport
import Testing

/// A descriptor for wake-ups: an eventfd, as the event loop uses it.
final class WakeUp {
    let descriptor: Int32

    init() throws {
        // <sys/eventfd.h> is not part of the Glibc module.
        typealias Create = @convention(c) (UInt32, Int32) -> Int32
        guard let symbol = dlsym(nil, "eventfd") else { throw TestFailure("no eventfd") }
        descriptor = unsafeBitCast(symbol, to: Create.self)(0, O_NONBLOCK)
        guard descriptor >= 0 else { throw TestFailure("eventfd failed") }
    }

    deinit { close(descriptor) }

    /// The counter; nil: nothing was written since the last read.
    func read() -> UInt64? {
        var value: UInt64 = 0
        return Glibc.read(descriptor, &value, 8) == 8 ? value : nil
    }
}

@Suite struct EventTests {
    @Test func consumerSignalsItsDescriptorWhenRecordsArrive() throws {
        let bed = try KafkaTestBed()
        let reader = try Member(bed.consumerProperties(), topics: [])
        let wakeUp = try WakeUp()
        reader.consumer.notify(fileDescriptor: wakeUp.descriptor)
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        for round in 1...3 {
            try bed.fill(with: ["\(round)"])
            // Polls only after a wake-up.
            try eventually("record \(round)") {
                if wakeUp.read() != nil { while reader.poll() > 0 {} }
                return reader.records.count == round
            }
        }
        reader.consumer.close()
        _ = wakeUp.read()
        try bed.fill(with: ["late"])
        #expect(wakeUp.read() == nil)
    }

    @Test func producerSignalsItsDescriptorWhenReportsArrive() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        let wakeUp = try WakeUp()
        producer.notify(fileDescriptor: wakeUp.descriptor)
        var reports: [UInt] = []
        for round in 1...UInt(3) {
            produce(producer, topic, value: "v", opaque: round, partition: 0)
            try eventually("report \(round)") {
                if wakeUp.read() != nil { producer.pollDeliveryReports { reports.append($0.opaque) } }
                return reports.count == Int(round)
            }
        }
        #expect(reports == [1, 2, 3])
        producer.close()
    }

    @Test func statisticsArriveWhilePolling() throws {
        let bed = try KafkaTestBed()
        let reader = try Member(bed.consumerProperties([("statistics.interval.ms", "20")]), topics: [])
        let collected = Collected()
        let producer = try bed.producer([("statistics.interval.ms", "20")]) { event in
            if case .statistics(let json) = event { collected.append(json) }
        }
        try eventually("statistics") {
            reader.poll()
            producer.pollDeliveryReports { _ in }
            return !reader.statistics.isEmpty && !collected.all.isEmpty
        }
        for json in [reader.statistics[0], collected.all[0]] {
            #expect(json.hasPrefix("{"))
            #expect(json.contains("\"client_id\": \"sluice\""))
        }
        reader.consumer.close()
    }

    @Test func unreachableBrokersAreReportedAsErrors() throws {
        let properties = KafkaProperties([
            ("bootstrap.servers", "127.0.0.1:1"), ("group.id", "g"), ("linger.ms", "7"),
            ("fetch.wait.max.ms", "7"),
        ])
        let reader = try Member(properties, topics: ["t"])
        let collected = Collected()
        let producer = try KafkaProducer(properties: properties.without("group.id")) { event in
            if case .error(let error) = event { collected.append(error.name) }
            if case .log(let line) = event { collected.append("log \(line.level) \(line.facility)") }
        }
        try eventually("errors and log lines") {
            reader.poll()
            producer.pollDeliveryReports { _ in }
            return reader.errors.contains { $0.name == "_ALL_BROKERS_DOWN" } && !reader.log.isEmpty
                && collected.all.contains("_ALL_BROKERS_DOWN")
                && collected.all.contains { $0.hasPrefix("log 3") }
        }
        #expect(reader.errors.allSatisfy { !$0.isFatal })
        // No warnings about properties that only the other kind of client uses.
        #expect(!reader.log.contains { $0.facility == "CONFWARN" })
        #expect(reader.errors.contains { $0.isRetriable })
        reader.consumer.close()
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers != nil, "the embedded cluster creates requested topics"))
    func missingTopicIsReportedAsPartitionError() throws {
        let bed = try KafkaTestBed()
        // Time that librdkafka waits for a topic to appear; by default 30 s.
        let reader = try Member(
            bed.consumerProperties([("topic.metadata.propagation.max.ms", "100")]),
            topics: ["\(bed.topic)-missing"])
        try eventually("the error") {
            reader.poll()
            return !reader.partitionErrors.isEmpty
        }
        #expect(reader.partitionErrors[0].0.topic == "\(bed.topic)-missing")
        #expect(reader.partitionErrors[0].1.name == "UNKNOWN_TOPIC_OR_PART")
        reader.consumer.close()
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil))
    func readingAndProducingResumeAfterBrokerOutage() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        try bed.fill(with: ["before"])
        let quick: [(name: String, value: String)] = [
            ("reconnect.backoff.ms", "10"), ("reconnect.backoff.max.ms", "50"),
        ]
        let reader = try Member(bed.consumerProperties(quick), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .beginning)])
        try eventually("the first record") {
            reader.poll()
            return reader.records.count == 1
        }
        cluster.setDown(true)
        let producer = try bed.producer(quick)
        produce(producer, try producer.topic(bed.topic), value: "after", partition: 0)
        try eventually("the loss to be noticed") {
            reader.poll()
            producer.pollDeliveryReports { _ in }
            return !reader.errors.isEmpty
        }
        cluster.setDown(false)
        try eventually("the second record") {
            reader.poll()
            producer.pollDeliveryReports { _ in }
            return reader.records.count == 2
        }
        #expect(reader.records.map(\.text) == ["before", "after"])
        reader.consumer.close()
    }
}

/// Strings from a `@Sendable` closure. The test's own thread alone uses them.
// @unchecked: the producer calls its closure inside pollDeliveryReports, which only the test calls.
private final class Collected: @unchecked Sendable {
    private(set) var all: [String] = []
    func append(_ text: String) { all.append(text) }
}

extension KafkaProperties {
    fileprivate func without(_ name: String) -> KafkaProperties {
        var copy = self
        copy[name] = nil
        return copy
    }
}
