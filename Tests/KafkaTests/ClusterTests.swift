import Glibc
import Kafka
import TestSupport
import Testing

@Suite struct AdminTests {
    @Test func metadataListsBrokersAndTopics() throws {
        let bed = try KafkaTestBed(partitions: 3, brokers: KafkaTestBed.realBrokers == nil ? 2 : 1)
        let admin = try KafkaAdmin(properties: bed.properties())
        let metadata = try admin.metadata(topic: bed.topic)
        #expect(metadata.topics.map(\.name) == [bed.topic])
        #expect(metadata.topics[0].partitionCount == 3)
        #expect(metadata.topics[0].leaderless.isEmpty)
        #expect(metadata.topics[0].error == nil)
        if KafkaTestBed.realBrokers == nil {
            #expect(metadata.brokers.map(\.identifier).sorted() == [1, 2])
            #expect(metadata.brokers.allSatisfy { $0.host == "127.0.0.1" && $0.port > 0 })
        }
        #expect(try admin.metadata().topics.map(\.name).contains(bed.topic))
        #expect(try admin.partitionCount(of: bed.topic) == 3)
        // A request creates a missing topic in the embedded cluster only.
        let unknown = KafkaTestBed.realBrokers == nil ? 4 : nil
        #expect(try admin.partitionCount(of: "\(bed.topic)-missing") == unknown)
        #expect(try admin.partitionCount(of: "\(bed.topic)-missing") == unknown)
        #expect(try admin.watermarks(of: bed.partition(0)) == Watermarks(low: 0, high: 0))
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil))
    func embeddedClusterRefusesTopicAdministration() throws {
        let bed = try KafkaTestBed()
        let admin = try KafkaAdmin(properties: bed.properties())
        do {
            try admin.createTopics([NewTopic("other", partitions: 1)], timeoutMilliseconds: 5_000)
            Issue.record("the topic was created")
        } catch {
            #expect(error.message.contains("no topic administration"))
            #expect(error.message.contains("sluice kafka"))
        }
        try bed.cluster?.createTopic("other", partitions: 7)
        #expect(try admin.partitionCount(of: "other") == 7)
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers != nil))
    func topicsAreCreatedOnce() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let admin = try KafkaAdmin(properties: bed.properties())
        let other = "\(bed.topic)-other"
        let topics = [
            NewTopic(bed.topic, partitions: 9),
            NewTopic(other, partitions: 3, configuration: [("cleanup.policy", "compact")]),
        ]
        #expect(try admin.createTopics(topics) == [.alreadyExists, .created])
        #expect(try admin.createTopics(topics) == [.alreadyExists, .alreadyExists])
        #expect(throws: KafkaError.self) {
            try admin.createTopics([NewTopic("\(other)2", partitions: 1, configuration: [("no.such", "x")])])
        }
        try admin.deleteTopics([other])
    }

    @Test func adminWithoutBrokersTimesOut() throws {
        let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"))
        #expect(throws: KafkaError.self) { try admin.metadata(timeoutMilliseconds: 50) }
    }
}

@Suite(.enabled(if: KafkaTestBed.realBrokers == nil))
struct EmbeddedClusterTests {
    @Test func fixedPortReachesAllBrokers() throws {
        let port = try freePort()
        let cluster = try EmbeddedCluster(brokers: 2, topics: [("jobs", 2)], port: port)
        #expect(cluster.bootstrapServers == "127.0.0.1:\(port)")
        #expect(cluster.brokerAddresses.split(separator: ",").count == 2)
        let properties = KafkaProperties(bootstrapServers: cluster.bootstrapServers)
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic("jobs")
        for index in 0..<20 { produce(producer, topic, value: "\(index)", partition: Int32(index % 2)) }
        try producer.flush(timeoutMilliseconds: 20_000)
        let admin = try KafkaAdmin(properties: properties)
        #expect(try admin.watermarks(of: TopicPartition("jobs", 0)).high == 10)
        #expect(try admin.watermarks(of: TopicPartition("jobs", 1)).high == 10)
    }

    @Test func portInUseIsReported() throws {
        let port = try freePort()
        let first = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
        do {
            _ = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
            Issue.record("two clusters listen on the port")
        } catch {
            #expect(error.message.contains("127.0.0.1:\(port)"))
            #expect(error.message.contains("the port is in use"))
        }
        // The port is free again with its cluster.
        _ = consume first
        _ = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
    }

    @Test func invalidTopicsAreRefused() {
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(topics: [("jobs", 0)]) }
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(topics: [("jobs", 1), ("jobs", 2)]) }
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(brokers: 0) }
    }

    @Test func unlistedTopicIsCreatedWithFourPartitions() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        produce(producer, try producer.topic("unplanned"), value: "v")
        try producer.flush(timeoutMilliseconds: 20_000)
        #expect(try KafkaAdmin(properties: bed.properties()).partitionCount(of: "unplanned") == 4)
    }

    @Test func partitionDropsOldestBatchesBeyondFiveMegabytes() throws {
        let bed = try KafkaTestBed()
        let recordBytes: Int64 = 200_000
        let (batches, batchRecords) = (6, 5)
        let records = Int64(batches * batchRecords)
        let large = String(repeating: "x", count: Int(recordBytes))
        for _ in 0..<batches { try bed.fill(with: Array(repeating: large, count: batchRecords)) }
        let admin = try KafkaAdmin(properties: bed.properties())
        let marks = try admin.watermarks(of: bed.partition(0))
        #expect(marks.high == records)
        #expect(marks.low > 0)
        #expect(marks.high - marks.low <= 5 * 1024 * 1024 / recordBytes)
        // A reader that is behind restarts at the oldest remaining record.
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .offset(0))])
        try eventually("the records that are left") {
            reader.poll()
            return reader.records.last?.offset == records - 1
        }
        #expect(reader.records.first?.offset == marks.low)
        reader.consumer.close()
    }

    @Test(.enabled(if: access("/usr/bin/kcat", X_OK) == 0))
    func kcatReachesTheClusterThroughTheFixedPort() throws {
        let port = try freePort()
        let cluster = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
        func kcat(_ arguments: [String]) throws -> String {
            let result = try ChildProcess.run("/usr/bin/kcat", arguments)
            #expect(result.exit == .status(0), "\(result.standardError)")
            return result.standardOutput
        }
        let listing = try kcat(["-L", "-b", "127.0.0.1:\(port)", "-m", "60"])
        #expect(listing.contains("topic \"jobs\" with 1 partitions"))
        let producer = try KafkaProducer(
            properties: KafkaProperties(bootstrapServers: cluster.bootstrapServers))
        produce(producer, try producer.topic("jobs"), key: "k", value: "hello", partition: 0)
        try producer.flush(timeoutMilliseconds: 20_000)
        let read = try kcat(
            ["-C", "-b", "127.0.0.1:\(port)", "-t", "jobs", "-o", "0", "-e", "-q", "-f", "%k=%s\n"])
        #expect(read == "k=hello\n")
    }
}
