import CRdkafka

extension KafkaCluster {
    /// A topic, and its place in the model.
    struct Topic {
        let name: String
        let space: KafkaModel.Topic
        /// The model's number of the first partition.
        let first: Int
        var partitions: Int
        var configuration: [(name: String, value: String)]

        func value(_ name: String) -> String? { configuration.last { $0.name == name }?.value }
    }

    /// Partitions of the model for each of the topics that share a topic of the model.
    private static let sharedPartitions = 16

    /// Creates a topic; jobs, outcomes and changelog have at most 64 partitions, others 16. Four others may exist.
    /// - Returns: false for a topic that exists.
    @discardableResult
    public func createTopic(
        _ name: String, partitions: Int, configuration: [(name: String, value: String)] = []
    ) -> Bool {
        guard topic(name) == nil else { return false }
        let space: KafkaModel.Topic =
            switch name {
            case settings.jobs: .jobs
            case settings.outcomes: .outcomes
            case settings.changelog: .changelog
            default: .deadLetters
            }
        let others = topics.count { $0.space == .deadLetters }
        let first = space == .deadLetters ? others * Self.sharedPartitions : 0
        precondition(
            partitions <= (space == .deadLetters ? Self.sharedPartitions : KafkaModel.stride) && others < 4,
            "the model has no room for topic \(name)")
        let defaults = [
            (name: "cleanup.policy", value: "delete"), (name: "max.message.bytes", value: "1048588"),
            (name: "delete.retention.ms", value: "86400000"), (name: "min.insync.replicas", value: "1"),
        ]
        topics.append(
            Topic(
                name: name, space: space, first: first, partitions: partitions,
                configuration: defaults.filter { each in !configuration.contains { $0.name == each.name } }
                    + configuration))
        if space == .jobs || space == .changelog { call { model.grow(space, to: partitions) } }
        limitBatches(topics.count - 1)
        call {}
        return true
    }

    /// Adds partitions to a topic.
    /// - Returns: false for a topic that doesn't exist, or has as many.
    @discardableResult
    public func addPartitions(to name: String, total: Int) -> Bool {
        guard let index = topics.firstIndex(where: { $0.name == name }), topics[index].partitions < total
        else { return false }
        let space = topics[index].space
        precondition(total <= (space == .deadLetters ? Self.sharedPartitions : KafkaModel.stride))
        topics[index].partitions = total
        limitBatches(index)
        call { if space == .jobs || space == .changelog { model.grow(space, to: total) } }
        return true
    }

    /// Sets a topic's configuration, for example `max.message.bytes`.
    public func configure(_ name: String, _ key: String, _ value: String) {
        guard let index = topics.firstIndex(where: { $0.name == name }) else { return }
        topics[index].configuration.removeAll { $0.name == key }
        topics[index].configuration.append((key, value))
        limitBatches(index)
    }

    private func limitBatches(_ index: Int) {
        let topic = topics[index]
        for partition in 0..<topic.partitions {
            model.largestBatches[model.place(topic.space, topic.first + partition)] =
                topic.value("max.message.bytes").flatMap { Int($0) }
        }
    }

    func topic(_ name: String) -> Topic? { topics.first { $0.name == name } }

    /// Returns the model's log of a partition; nil when there is none.
    func log(_ partition: TopicPartition) -> KafkaLog? {
        guard let topic = topic(partition.topic), 0..<topic.partitions ~= Int(partition.partition) else {
            return nil
        }
        return model.log(topic.space, topic.first + Int(partition.partition))
    }

    /// Returns the partition that a log of the model stands for.
    func partition(_ space: KafkaModel.Topic, _ number: Int) -> TopicPartition {
        let topic = topics.last { $0.space == space && $0.first <= number }!
        return TopicPartition(topic.name, Int32(number - topic.first))
    }
}
