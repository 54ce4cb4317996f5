import Configuration
import DeliveryCore
import Kafka
import Logging

/// The properties of the worker's Kafka clients, and the topics they need.
struct KafkaSetup {
    private let configuration: Configuration.Kafka
    let consumer: KafkaProperties
    let producer: KafkaProperties
    /// Properties of all clients.
    var common: KafkaProperties { admin }
    private let admin: KafkaProperties

    /// Milliseconds between two statistics of a client, for the metrics of brokers and queues.
    private static let statisticsInterval = "10000"

    init(_ configuration: Configuration.Kafka) {
        self.configuration = configuration
        let common = KafkaProperties([
            (name: "bootstrap.servers", value: configuration.bootstrapServers),
            (name: "client.id", value: "sluice"),
        ]).overridden(by: KafkaProperties(configuration.properties.map { ($0.name, $0.value) }))
        var own = [
            (name: "group.id", value: configuration.groupID),
            // Most kilobytes that librdkafka fetches ahead; its own default is 64 MiB.
            (name: "queued.max.messages.kbytes", value: "16384"),
            // Most records fetched ahead. The kilobytes are those of values alone, so that records with little value are
            // limited by their number; librdkafka's own default is 100,000.
            (name: "queued.min.messages", value: "50000"),
            // Longest time that a dead worker's partitions stand still; librdkafka's own default is 45 s.
            (name: "session.timeout.ms", value: "10000"),
            // Longest time until the others know that a worker has left; librdkafka's own default is 3 s.
            (name: "heartbeat.interval.ms", value: "500"),
            // Longest time until new partitions of the jobs topic are read; librdkafka's own default is 5 min.
            (name: "topic.metadata.refresh.interval.ms", value: "10000"),
            (name: "statistics.interval.ms", value: Self.statisticsInterval),
            // The end of a log is known beyond its last record too: transactions leave marks that are no records.
            (name: "enable.partition.eof", value: "true"),
        ]
        if let name = configuration.instanceID { own.append((name: "group.instance.id", value: name)) }
        consumer = KafkaProperties(own).overridden(by: common)
            .overridden(by: KafkaProperties(configuration.consumerProperties.map { ($0.name, $0.value) }))
        producer = KafkaProperties([
            (name: "linger.ms", value: "5"),
            // Partition of an outcome, as Java's clients choose a key's; it costs less than librdkafka's own CRC-32.
            (name: "partitioner", value: "murmur2_random"),
            // Longest time until a producer knows of new changelog partitions; librdkafka's own default is 5 min.
            (name: "topic.metadata.refresh.interval.ms", value: "10000"),
            (name: "statistics.interval.ms", value: Self.statisticsInterval),
        ]).overridden(by: common)
            .overridden(by: KafkaProperties(configuration.producerProperties.map { ($0.name, $0.value) }))
        admin = common
    }

    /// Checks that Kafka answers and that the topics exist. Creates missing topics if allowed. Blocks.
    func prepareTopics(changelog: Bool = false, logger: Logger) throws(WorkerError) {
        let topics = configuration.topics
        let names = [topics.jobs, topics.outcomes, topics.deadLetters]
        var missing: [String] = []
        var problem: String?
        do throws(KafkaError) {
            let client = try KafkaAdmin(properties: admin)
            for name in names where try client.partitionCount(of: name) == nil { missing.append(name) }
            var lacksChangelog = false
            if changelog { lacksChangelog = try client.partitionCount(of: topics.changelog) == nil }
            if let create = configuration.createTopics, !missing.isEmpty || lacksChangelog {
                logger.notice(
                    "creating missing topics",
                    metadata: [
                        "topics":
                            "\((missing + (lacksChangelog ? [topics.changelog] : [])).joined(separator: " "))"
                    ])
                if !missing.isEmpty {
                    try client.createTopics(
                        missing.map {
                            NewTopic(
                                $0, partitions: create.partitions, replicationFactor: create.replicationFactor
                            )
                        })
                }
                if lacksChangelog { try makeChangelog(client, create) }
                missing = []
            } else if lacksChangelog {
                missing.append(topics.changelog)
            }
            if changelog, missing.isEmpty {
                problem = try changelogProblem(client, logger) ?? switchesProblem(client, logger)
            }
        } catch {
            throw .kafka("Kafka at \(configuration.bootstrapServers): \(error)")
        }
        if let problem { throw .kafka(problem) }
        guard missing.isEmpty else {
            throw .kafka(
                "Kafka at \(configuration.bootstrapServers) has no topic \(missing.joined(separator: ", ")): "
                    + "create it, or let the worker create it with kafka.create-topics")
        }
    }

    /// Returns the bytes of the largest batch that each of these topics takes; topics of which the brokers don't say it
    /// are missing. Blocks.
    func largestBatches(of topics: [String]) -> [String: Int] {
        (try? KafkaAdmin(properties: admin))?.largestBatches(of: topics) ?? [:]
    }

    /// Properties of a producer to topics with these largest batches: a batch that is too large is refused as a whole,
    /// however small its records are.
    func producer(largestBatches: [String: Int]) -> KafkaProperties {
        var properties = producer
        // librdkafka's own default.
        let size = properties["batch.size"].flatMap(Int.init) ?? 1_000_000
        if let least = largestBatches.values.min(), least < size {
            properties["batch.size"] = "\(max(1, least))"
        }
        return properties
    }

    // MARK: Switches

    /// Returns the place that keeps the switches: the control topic where there is a changelog; otherwise a file in the
    /// store's directory; without a store, the memory. Blocks.
    ///
    /// A topic that doesn't exist, and can't be created or read, is away. The worker then goes on with the last known
    /// pauses. If none are known, it goes on without any, or waits for the topic where `switches.required` is on.
    func switchesHome(
        _ store: Configuration.Store?, required: Bool, logger: Logger
    ) throws(KafkaError) -> SwitchBoard.Home {
        guard let store else { return .memory }
        let file = SwitchFile(path: "\(store.directory)/switches")
        guard store.hasChangelog else { return .file(file) }
        let known = SwitchFile(path: "\(store.directory)/switches.known")
        let isUsable = try hasSwitchesTopic(logger)
        var reader = changelogReader
        reader["enable.partition.eof"] = "true"
        // A topic that is away is looked for this often.
        reader["topic.metadata.refresh.interval.ms"] = "10000"
        // The first record may be gone.
        reader["auto.offset.reset"] = "earliest"
        // Little memory is enough, because the topic has a record for each switch.
        reader["queued.max.messages.kbytes"] = "1024"
        reader["queued.min.messages"] = "1000"
        var writer = producer
        writer["linger.ms"] = "0"
        writer["statistics.interval.ms"] = nil
        return .topic(
            SwitchBoard.Topic(
                name: configuration.topics.switches, reader: reader, producer: writer, own: file,
                known: known,
                isAway: !isUsable && (known.exists || !required)))
    }

    private func hasSwitchesTopic(_ logger: Logger) throws(KafkaError) -> Bool {
        let topic = configuration.topics.switches
        let client = try KafkaAdmin(properties: admin)
        var remedy = "create it with one partition and cleanup.policy=compact, or set kafka.create-topics"
        var mayCreate = true
        do throws(KafkaError) {
            if try client.partitionCount(of: topic) != nil { return true }
        } catch  where error.isRefusal {
            // A worker with the rights of an earlier version goes on, and people learn of it.
            remedy = "grant the rights that `sluice config acls` lists: \(error)"
            mayCreate = false
        }
        if mayCreate, let create = configuration.createTopics {
            do throws(KafkaError) {
                try client.createTopics([
                    NewTopic(
                        topic, partitions: 1, replicationFactor: create.replicationFactor,
                        configuration: [(name: "cleanup.policy", value: "compact")])
                ])
                return true
            } catch {
                remedy = "\(error)"
            }
        }
        logger.warning(
            "pauses and resumes of other workers don't reach this worker, because the switches' topic can't be used",
            metadata: ["topic": "\(topic)", "remedy": "\(remedy)"])
        return false
    }

    // MARK: The changelog

    /// Required settings of the changelog topic, with their reasons.
    static let requirements = [
        TopicRequirement(
            "cleanup.policy", .list(["compact"]),
            reason: "deletion would lose held pushes, and without compaction the topic grows without bound"),
        TopicRequirement(
            "delete.retention.ms", .atLeast(3_600_000),
            reason: "a worker that was away for longer would restore pushes that have ended"),
    ]

    /// Required setting of the switches' topic.
    static let switchesRequirements = [
        TopicRequirement(
            "cleanup.policy", .list(["compact"]),
            reason: "deletion would forget pauses, and what an operator has paused would be sent")
    ]

    /// Returns the fault of the switches' topic; nil also for a topic that can't be read, which is away.
    private func switchesProblem(_ client: KafkaAdmin, _ logger: Logger) -> String? {
        let topic = configuration.topics.switches
        do throws(KafkaError) {
            guard try client.partitionCount(of: topic) != nil else { return nil }
            let found = try client.configurations(of: [topic])[0]
            let differences = found?.differences(from: Self.switchesRequirements) ?? []
            return differences.isEmpty ? nil : differences.map(\.description).joined(separator: "; ")
        } catch {
            logger.warning(
                "the configuration of the switches' topic can't be checked; make sure that cleanup.policy is compact",
                metadata: ["topic": "\(topic)", "error": "\(error)"])
            return nil
        }
    }

    private func makeChangelog(
        _ client: KafkaAdmin, _ create: Configuration.Kafka.CreateTopics
    ) throws(KafkaError) {
        let partitions = try client.partitionCount(of: configuration.topics.jobs) ?? create.partitions
        try client.createTopics([
            NewTopic(
                configuration.topics.changelog, partitions: partitions,
                replicationFactor: create.replicationFactor,
                configuration: [
                    (name: "cleanup.policy", value: "compact"),
                    // Small segments are cleaned early, because much of the changelog is soon obsolete.
                    (name: "segment.bytes", value: "\(64 << 20)"),
                    (name: "min.cleanable.dirty.ratio", value: "0.3"),
                ])
        ])
    }

    /// Extends the changelog to the jobs topic's number of partitions after the jobs topic has grown. Where the worker
    /// isn't allowed to, only the new partitions wait until somebody extends the changelog. Blocks.
    func extendChangelog(logger: Logger) {
        do throws(KafkaError) {
            try extendChangelog(try KafkaAdmin(properties: admin), logger)
        } catch {
            logger.error("partitions can't be added to the changelog", metadata: ["error": "\(error)"])
        }
    }

    private func extendChangelog(_ client: KafkaAdmin, _ logger: Logger) throws(KafkaError) {
        let topics = configuration.topics
        guard let jobs = try client.partitionCount(of: topics.jobs),
            let changelog = try client.partitionCount(of: topics.changelog), changelog < jobs
        else { return }
        let places: Logger.Metadata = [
            "jobs": "\(topics.jobs)", "jobs-partitions": "\(jobs)", "changelog": "\(topics.changelog)",
            "changelog-partitions": "\(changelog)",
        ]
        guard configuration.createTopics != nil else {
            return logger.error(
                "the changelog has fewer partitions than the jobs topic, so jobs of the other partitions wait; add partitions to the changelog, or let the worker add them with kafka.create-topics",
                metadata: places)
        }
        try client.createPartitions(of: topics.changelog, total: jobs)
        logger.notice("partitions were added to the changelog", metadata: places)
    }

    private func changelogProblem(_ client: KafkaAdmin, _ logger: Logger) throws(KafkaError) -> String? {
        let topics = configuration.topics
        do throws(KafkaError) {
            try extendChangelog(client, logger)
        } catch {
            logger.error("partitions can't be added to the changelog", metadata: ["error": "\(error)"])
        }
        let counts = try client.coPartitioning(of: [topics.jobs, topics.changelog])
        // Growth of the jobs topic affects the new partitions only.
        if let problem = counts.problem, !counts.hasGrown { return problem }
        let found: TopicConfiguration?
        do throws(KafkaError) {
            found = try client.configurations(of: [topics.changelog])[0]
        } catch {
            logger.warning(
                "the changelog's configuration can't be checked; make sure that cleanup.policy is compact",
                metadata: ["topic": "\(topics.changelog)", "error": "\(error)"])
            return nil
        }
        let differences = found?.differences(from: Self.requirements) ?? []
        return differences.isEmpty ? nil : differences.map(\.description).joined(separator: "; ")
    }

    /// Time without a heartbeat after which the group reassigns a worker's partitions.
    var sessionTimeout: Duration {
        .milliseconds(consumer["session.timeout.ms"].flatMap(Int.init) ?? 10_000)
    }

    /// Longest time of a revocation, which is cut short then. A member that doesn't rejoin within
    /// `max.poll.interval.ms` loses all of its partitions. The member learns of the loss only by its next heartbeat.
    var longestRevocation: Duration {
        .milliseconds((consumer["max.poll.interval.ms"].flatMap(Int.init) ?? 300_000) / 2)
    }

    /// Whether a partition without a committed offset is read from its beginning.
    var readsFromBeginning: Bool {
        switch consumer["auto.offset.reset"] {
        case nil, "earliest", "smallest", "beginning": true
        default: false
        }
    }

    /// Limits at which the consumer stops fetching ahead.
    var fetchLimits: FetchWatch.Limits {
        func number(_ name: String, default value: Int) -> Int { consumer[name].flatMap(Int.init) ?? value }
        return FetchWatch.Limits(
            records: number("queued.min.messages", default: 100_000),
            bytes: number("queued.max.messages.kbytes", default: 65_536) * 1_024)
    }

    /// Properties of a reader that belongs to no group.
    var changelogReader: KafkaProperties {
        var properties = consumer
        // The reader sets its own values, or these properties mean nothing to it.
        for name in [
            "auto.offset.reset", "queued.max.messages.kbytes", "group.instance.id", "statistics.interval.ms",
            "enable.partition.eof",
        ] {
            properties[name] = nil
        }
        return properties
    }
}
