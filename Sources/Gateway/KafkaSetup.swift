import Kafka
import Logging

/// The properties of the worker's Kafka clients, and the topics they need.
struct KafkaSetup {
    private let configuration: Configuration.Kafka
    let consumer: KafkaProperties
    let producer: KafkaProperties
    private let admin: KafkaProperties

    init(_ configuration: Configuration.Kafka) {
        self.configuration = configuration
        let common = KafkaProperties([
            (name: "bootstrap.servers", value: configuration.bootstrapServers),
            (name: "client.id", value: "sluice"),
        ]).overridden(by: KafkaProperties(configuration.properties.map { ($0.name, $0.value) }))
        consumer = KafkaProperties([
            (name: "group.id", value: configuration.groupID),
            // What librdkafka fetches ahead; its own default is 64 MiB.
            (name: "queued.max.messages.kbytes", value: "16384"),
        ]).overridden(by: common)
            .overridden(by: KafkaProperties(configuration.consumerProperties.map { ($0.name, $0.value) }))
        producer = KafkaProperties([(name: "linger.ms", value: "5")])
            .overridden(by: common)
            .overridden(by: KafkaProperties(configuration.producerProperties.map { ($0.name, $0.value) }))
        admin = common
    }

    /// Checks that Kafka answers and that the topics exist; makes those that are missing if it may. Blocks.
    func prepareTopics(logger: Logger) throws(WorkerError) {
        let names = [
            configuration.topics.jobs, configuration.topics.outcomes, configuration.topics.deadLetters,
        ]
        var missing: [String] = []
        do throws(KafkaError) {
            let client = try KafkaAdmin(properties: admin)
            for name in names where try client.partitionCount(of: name) == nil { missing.append(name) }
            if !missing.isEmpty, let create = configuration.createTopics {
                logger.notice("creating topics", metadata: ["topics": "\(missing.joined(separator: " "))"])
                try client.createTopics(
                    missing.map {
                        NewTopic(
                            $0, partitions: create.partitions, replicationFactor: create.replicationFactor)
                    })
                return
            }
        } catch {
            throw .kafka("Kafka at \(configuration.bootstrapServers): \(error)")
        }
        guard missing.isEmpty else {
            throw .kafka(
                "Kafka at \(configuration.bootstrapServers) has no topic \(missing.joined(separator: ", ")): "
                    + "create it, or let the worker do so with kafka.create-topics")
        }
    }
}
