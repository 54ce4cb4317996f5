import Configuration
import Kafka

/// Gathers facts about the cluster of a configuration. Writes nothing and joins no group. Blocks.
struct KafkaConnectCheck {
    let configuration: Configuration
    /// Longest wait for each answer, in milliseconds.
    let timeout: Int32

    func facts() -> KafkaFacts {
        let kafka = configuration.kafka
        let setup = KafkaSetup(kafka)
        var facts = KafkaFacts(
            bootstrapServers: kafka.bootstrapServers, groupID: kafka.groupID,
            createsTopics: kafka.createTopics != nil,
            // 1,000,000 bytes are librdkafka's own default of both.
            producerBatchBytes: min(
                setup.producer["message.max.bytes"].flatMap(Int.init) ?? 1_000_000,
                setup.producer["batch.size"].flatMap(Int.init) ?? 1_000_000),
            consumerResponseBytes: setup.consumer["receive.message.max.bytes"].flatMap(Int.init)
                ?? 100_000_000)
        do throws(KafkaError) {
            var properties = setup.common
            properties["log_level"] = "0"
            let admin = try KafkaAdmin(properties: properties)
            // Metadata of a single topic first, because the right to list all topics isn't needed.
            let first = try admin.metadata(topic: kafka.topics.jobs, timeoutMilliseconds: timeout)
            facts.brokers = first.brokers.map { "\($0.host):\($0.port)" }
            for (role, name) in topics { facts.topics.append(try topic(role, name, admin)) }
            addConfigurations(to: &facts, admin)
        } catch {
            facts.error = error.message
            return facts
        }
        try? probe(&facts, setup)
        if !kafka.producerProperties.isEmpty {
            facts.producer = trial { () throws(KafkaError) in try askWithProducerProperties(setup) }
        }
        return facts
    }

    /// Reads metadata of the outcomes topic with the properties of the producer. Nothing is written.
    private func askWithProducerProperties(_ setup: KafkaSetup) throws(KafkaError) {
        var properties = setup.producer
        properties["log_level"] = "0"
        let client = try KafkaAdmin(properties: properties)
        _ = try client.metadata(topic: configuration.kafka.topics.outcomes, timeoutMilliseconds: timeout)
    }

    private var topics: [(KafkaFacts.Role, String)] {
        let names = configuration.kafka.topics
        var list = [
            (KafkaFacts.Role.jobs, names.jobs), (.outcomes, names.outcomes),
            (.deadLetters, names.deadLetters),
        ]
        if configuration.store?.hasChangelog == true {
            list += [(.changelog, names.changelog), (.switches, names.switches)]
        }
        return list
    }

    private func topic(
        _ role: KafkaFacts.Role, _ name: String, _ admin: KafkaAdmin
    ) throws(KafkaError) -> KafkaFacts.Topic {
        var topic = KafkaFacts.Topic(role: role, name: name)
        let metadata = try admin.metadata(topic: name, timeoutMilliseconds: timeout)
        guard let found = metadata.topics.first(where: { $0.name == name }) else { return topic }
        if let error = found.error {
            if !error.isUnknownTopic { topic.error = error.message }
            return topic
        }
        topic.partitions = found.partitionCount
        topic.leaderless = found.leaderless.count
        topic.replicas = found.replicas
        topic.inSyncReplicas = found.inSyncReplicas
        return topic
    }

    private func addConfigurations(to facts: inout KafkaFacts, _ admin: KafkaAdmin) {
        for index in facts.topics.indices where facts.topics[index].partitions != nil {
            do throws(KafkaError) {
                let found = try admin.configurations(
                    of: [facts.topics[index].name], timeoutMilliseconds: timeout)
                facts.topics[index].configuration = found.first??.values
            } catch {
                facts.topics[index].configurationError = error.message
                guard error.isUnsupported else { continue }
                facts.administrationError = error.message
                return
            }
        }
    }

    /// Reads at the end of the topics that the worker reads, and asks for the group's offsets.
    private func probe(_ facts: inout KafkaFacts, _ setup: KafkaSetup) throws(KafkaError) {
        for index in facts.topics.indices {
            let topic = facts.topics[index]
            guard topic.role.isRead, (topic.partitions ?? 0) > 0,
                topic.leaderless == 0
            else { continue }
            let probe = try ConsumerProbe(properties: setup.consumer)
            defer { probe.close() }
            let partition = TopicPartition(topic.name, 0)
            facts.topics[index].reading = trial { () throws(KafkaError) in
                try probe.read(endOf: partition, timeoutMilliseconds: timeout)
            }
            if topic.role == .jobs {
                facts.group = trial { () throws(KafkaError) in
                    try probe.askForOffsets(of: partition, timeoutMilliseconds: timeout)
                }
            }
        }
    }

    private func trial(_ body: () throws(KafkaError) -> Void) -> KafkaFacts.Trial {
        do throws(KafkaError) {
            try body()
            return .worked
        } catch {
            if error.isRefusal { return .refused(error.message) }
            return .failed(error.message, remedy: ConnectionFault(reason: error.message)?.advice)
        }
    }
}
