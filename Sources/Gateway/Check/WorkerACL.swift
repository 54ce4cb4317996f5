import Configuration

/// Rights in Kafka that a worker needs on one resource.
public struct WorkerACL: Sendable, Equatable {
    /// Kind of a resource.
    public enum Resource: Sendable, Equatable {
        /// The topic with this name.
        case topic(String)
        /// The consumer group with this name.
        case group(String)
        /// All transactional identifiers that begin with this text.
        case transactionalIDs(prefix: String)
        case cluster
    }

    /// Operations by Kafka's names.
    public enum Operation: String, Sendable {
        case read = "Read"
        case write = "Write"
        case describe = "Describe"
        case create = "Create"
        case alter = "Alter"
        case describeConfigs = "DescribeConfigs"
        case idempotentWrite = "IdempotentWrite"
    }

    public var resource: Resource
    public var operations: [Operation]
    /// Cause for which the worker needs the rights, as a clause.
    public var reason: String

    /// Returns the rights that a worker needs for its configuration, and no more.
    public static func needed(by configuration: Configuration) -> [WorkerACL] {
        let kafka = configuration.kafka
        let topics = kafka.topics
        let create: [Operation] = kafka.createTopics == nil ? [] : [.create]
        var list = [
            WorkerACL(
                resource: .topic(topics.jobs), operations: [.read, .describe] + create,
                reason: "reads the jobs"),
            WorkerACL(
                resource: .topic(topics.outcomes),
                operations: [.write, .describe, .describeConfigs] + create,
                reason: "writes the outcomes, and asks how large they may be"),
            WorkerACL(
                resource: .topic(topics.deadLetters),
                operations: [.write, .describe, .describeConfigs] + create,
                reason: "writes the dead letters, and asks how large they may be"),
        ]
        let hasChangelog = configuration.store?.hasChangelog == true
        let hasTransactions = configuration.store?.hasTransactions == true
        if hasChangelog {
            list.append(
                WorkerACL(
                    resource: .topic(topics.changelog),
                    operations: [.read, .write, .describe, .describeConfigs]
                        + (create.isEmpty ? [] : [.create, .alter]),
                    reason: "writes and restores the changelog, and checks its configuration"))
            list.append(
                WorkerACL(
                    resource: .topic(topics.switches), operations: [.read, .write, .describe] + create,
                    reason: "shares operators' pauses with the other workers"))
        }
        list.append(
            WorkerACL(
                resource: .group(kafka.groupID), operations: [.read, .describe],
                reason: "shares the jobs topic with the group's other workers, and commits offsets"))
        if hasTransactions {
            list.append(
                WorkerACL(
                    resource: .transactionalIDs(prefix: "\(kafka.groupID)-"),
                    operations: [.write, .describe],
                    reason: "commits in transactions; the identifier is the group and the store's identity"))
        }
        // With transactions, operators' pauses are written outside of them.
        if !hasTransactions || hasChangelog {
            list.append(
                WorkerACL(
                    resource: .cluster, operations: [.idempotentWrite],
                    reason: "repeats no record; brokers from 2.8 on derive it from Write on a topic"))
        }
        return list
    }
}
