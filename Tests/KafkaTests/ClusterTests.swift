import Glibc
import Kafka
import Testing

@Suite struct AdminTests {
    @Test func metadataNamesBrokersAndTopics() throws {
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
        // Asking creates a topic in the embedded cluster, and nowhere else.
        let unknown = KafkaTestBed.realBrokers == nil ? 4 : nil
        #expect(try admin.partitionCount(of: "\(bed.topic)-missing") == unknown)
        #expect(try admin.partitionCount(of: "\(bed.topic)-missing") == unknown)
        #expect(try admin.watermarks(of: bed.partition(0)) == Watermarks(low: 0, high: 0))
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil))
    func theEmbeddedClusterSaysThatItHasNoAdministration() throws {
        let bed = try KafkaTestBed()
        let admin = try KafkaAdmin(properties: bed.properties())
        do {
            try admin.createTopics([NewTopic("other", partitions: 1)], timeoutMilliseconds: 5_000)
            Issue.record("created")
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

    @Test func anAdminWithoutBrokersGivesUpInTime() throws {
        let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: "127.0.0.1:1"))
        #expect(throws: KafkaError.self) { try admin.metadata(timeoutMilliseconds: 50) }
    }
}

@Suite(.enabled(if: KafkaTestBed.realBrokers == nil))
struct EmbeddedClusterTests {
    @Test func aFixedPortLeadsToTheBrokers() async throws {
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

    @Test func aTakenPortIsAClearError() throws {
        let port = try freePort()
        let first = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
        do {
            _ = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
            Issue.record("listened twice")
        } catch {
            #expect(error.message.contains("127.0.0.1:\(port)"))
            #expect(error.message.contains("taken"))
        }
        // Gone with its cluster.
        _ = consume first
        _ = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
    }

    @Test func badTopicsAreRefused() {
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(topics: [("jobs", 0)]) }
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(topics: [("jobs", 1), ("jobs", 2)]) }
        #expect(throws: KafkaError.self) { _ = try EmbeddedCluster(brokers: 0) }
    }

    @Test func aTopicThatIsNotGivenComesIntoBeingWithFourPartitions() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        produce(producer, try producer.topic("unplanned"), value: "v")
        try producer.flush(timeoutMilliseconds: 20_000)
        #expect(try KafkaAdmin(properties: bed.properties()).partitionCount(of: "unplanned") == 4)
    }

    @Test func thePartitionDropsItsOldestBatchesBeyondFiveMegabytes() async throws {
        let bed = try KafkaTestBed()
        let megabyte = String(repeating: "x", count: 200_000)
        for _ in 0..<6 { try bed.fill(with: (0..<5).map { _ in megabyte }) }
        let admin = try KafkaAdmin(properties: bed.properties())
        let marks = try admin.watermarks(of: bed.partition(0))
        #expect(marks.high == 30)
        #expect(marks.low > 0)
        #expect(marks.high - marks.low <= 5 * 1024 * 1024 / 200_000)
        // A reader that is behind starts over at the oldest record that is left.
        let reader = try Member(bed.consumerProperties(), topics: [])
        try reader.consumer.assign([TopicPartitionOffset(bed.partition(0), .offset(0))])
        try await wait("the records that are left") {
            reader.poll()
            return reader.records.last?.offset == 29
        }
        #expect(reader.records.first?.offset == marks.low)
        reader.consumer.close()
    }

    @Test(.enabled(if: access("/usr/bin/kcat", X_OK) == 0))
    func kcatReachesTheClusterThroughTheFixedPort() async throws {
        let port = try freePort()
        let cluster = try EmbeddedCluster(topics: [("jobs", 1)], port: port)
        let listing = try run("/usr/bin/kcat", ["-L", "-b", "127.0.0.1:\(port)", "-m", "10"])
        #expect(listing.contains("topic \"jobs\" with 1 partitions"))
        let producer = try KafkaProducer(
            properties: KafkaProperties(bootstrapServers: cluster.bootstrapServers))
        produce(producer, try producer.topic("jobs"), key: "k", value: "hello", partition: 0)
        try producer.flush(timeoutMilliseconds: 20_000)
        let read = try run(
            "/usr/bin/kcat",
            ["-C", "-b", "127.0.0.1:\(port)", "-t", "jobs", "-o", "0", "-e", "-q", "-f", "%k=%s\n"])
        #expect(read == "k=hello\n")
    }

    /// A port that was free a moment ago.
    private func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) == 0 ? getsockname(descriptor, address, &length) : -1
            }
        }
        guard result == 0 else { throw TestFailure("no free port") }
        return UInt16(bigEndian: address.sin_port)
    }

    /// The program's standard output.
    private func run(_ path: String, _ arguments: [String]) throws -> String {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw TestFailure("no pipe") }
        defer { close(ends[0]) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1)
        posix_spawn_file_actions_addclose(&actions, ends[0])
        let words = ([path] + arguments).map { strdup($0) }
        defer { words.forEach { free($0) } }
        var child = pid_t()
        let code = posix_spawn(&child, path, &actions, nil, words + [nil], environ)
        close(ends[1])
        guard code == 0 else { throw TestFailure("cannot start \(path)") }
        var output: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while case let count = read(ends[0], &buffer, buffer.count), count > 0 { output += buffer[..<count] }
        var status: Int32 = 0
        waitpid(child, &status, 0)
        guard status == 0 else { throw TestFailure("\(path) ended with \(status)") }
        return String(decoding: output, as: UTF8.self)
    }
}
