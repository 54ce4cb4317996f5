import ArgumentParser
import Configuration
import Kafka

struct KafkaCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kafka",
        abstract: "Run an embedded Kafka cluster for development and tests.",
        discussion: """
            Runs librdkafka's mock cluster in a process of its own, for clients on this machine. It listens on \
            127.0.0.1 only and keeps all data in memory, so the data is lost when it stops.

            CLIENTS
              - Clients of librdkafka: sluice, kcat, confluent-kafka for Python and
                others.
              - kafka-python 2 and 3.
              - Clients that need newer versions of the protocol don't work. Not tried:
                Java's client.

            LIMITS
              - A partition keeps about 5 MB. The oldest records are dropped beyond
                that, read or not. For larger loads give topics more partitions and
                pace the producer (sluice produce --rate).
              - There is no topic administration: name the topics here. A topic that
                isn't named is created with 4 partitions when a client asks for it.
                So `sluice config check --connect` can't find a missing topic here.
              - A fetch that finds no record waits for fetch.wait.max.ms (default
                500 ms) even if a record arrives meanwhile. Set fetch.wait.max.ms low
                (10) in consumers where latency matters.
              - The first member of a group waits 3 seconds for others.
              - Transactions exist in form only, and offsets sent in them are lost. A
                worker with a store and a changelog reads all jobs again after its
                restart, and pushes them again. For tests of restarts set
                store.transactions: off.
              - No replication, TLS, SASL, access control, compaction or retention by
                time. Not for production.
            """)

    @Option(
        help: ArgumentHelp(
            "A topic and its number of partitions. Repeat for more topics. Default: Sluice's own topics, sluice.jobs:4, "
                + "sluice.outcomes:4, sluice.dead-letters:1.",
            valueName: "name:partitions"))
    var topic: [EmbeddedTopic] = []

    @Option(help: "Number of brokers, 1 to 16.")
    var brokers = 1

    @Option(help: "Port to listen on at 127.0.0.1. 0: any free port.")
    var port: UInt16 = 9092

    @Option(
        help: ArgumentHelp(
            "Write the bootstrap servers to this file once the cluster is ready. The file is removed at the end.",
            valueName: "path"))
    var readyFile: String?

    @OptionGroup var lifetime: LifetimeOptions

    func validate() throws {
        guard (1...16).contains(brokers) else { throw ValidationError("--brokers: 1 to 16, not \(brokers)") }
        let names = topic.map(\.name)
        if let fault = names.lazy.compactMap(Configuration.checkTopicName).first {
            throw ValidationError("--topic: \(fault)")
        }
        if let twice = names.first(where: { name in names.filter { $0 == name }.count > 1 }) {
            throw ValidationError("--topic: \(twice) is given twice; name each topic once")
        }
    }

    func run() throws {
        let stop = StopSignals(watchesInput: lifetime.stopWithInput)
        let ready = try readyFile.map { path throws(CommandFailure) in try ReadyFile(path: path) }
        let topics = topic.isEmpty ? EmbeddedTopic.defaults : topic
        let cluster: EmbeddedCluster
        do {
            cluster = try EmbeddedCluster(
                brokers: brokers, topics: topics.map { ($0.name, $0.partitions) }, port: port)
        } catch {
            throw CommandFailure(.unavailable, error.message)
        }
        var table = TextTable()
        for topic in topics {
            table.add(topic.name, Numbers.counted(topic.partitions, "partition"))
        }
        Terminal.output("embedded Kafka is ready, in memory: bootstrap servers \(cluster.bootstrapServers)")
        for line in table.lines(indent: 2) { Terminal.output(line) }
        try ready?.write(cluster.bootstrapServers)
        stop.wait()
        ready?.remove()
        withExtendedLifetime(cluster) {}
    }
}

/// `name:partitions` of the command line.
struct EmbeddedTopic: ExpressibleByArgument {
    var name: String
    var partitions: Int

    static let defaults = [
        EmbeddedTopic(name: "sluice.jobs", partitions: 4),
        EmbeddedTopic(name: "sluice.outcomes", partitions: 4),
        EmbeddedTopic(name: "sluice.dead-letters", partitions: 1),
    ]

    init(name: String, partitions: Int) {
        self.name = name
        self.partitions = partitions
    }

    init?(argument: String) {
        guard let colon = argument.lastIndex(of: ":"), colon != argument.startIndex,
            let partitions = Int(argument[argument.index(after: colon)...]), (1...10_000).contains(partitions)
        else { return nil }
        self.init(name: String(argument[..<colon]), partitions: partitions)
    }
}
