import Kafka

/// Facts about a cluster and the topics of a configuration, as they were gathered.
struct KafkaFacts: Sendable, Equatable {
    /// Purpose of a topic.
    enum Role: String, Sendable, CaseIterable {
        case jobs, outcomes
        case deadLetters = "dead-letters"
        case changelog, switches

        /// Whether the worker reads the topic.
        var isRead: Bool { self == .jobs || self == .changelog || self == .switches }
    }

    /// Facts about one topic.
    struct Topic: Sendable, Equatable {
        var role: Role
        var name: String
        /// Partitions; nil when the topic doesn't exist.
        var partitions: Int?
        /// Partitions without a leader.
        var leaderless = 0
        /// Fewest replicas of a partition.
        var replicas = 0
        /// Fewest replicas of a partition that are in sync.
        var inSyncReplicas = 0
        /// Error of the brokers about the topic; nil without an error.
        var error: String?
        /// Values by Kafka's names; nil when they can't be read.
        var configuration: [String: String]?
        /// Reason for which the configuration can't be read; nil when it can.
        var configurationError: String?
        /// Result of reading at the topic's end.
        var reading = Trial.notTried
    }

    /// Result of something that was tried.
    enum Trial: Sendable, Equatable {
        case notTried
        case worked
        /// The brokers refused the right; with their text.
        case refused(String)
        /// Another error; with its text, and the remedy where it is known.
        case failed(String, remedy: String?)
    }

    /// Addresses that the configuration names.
    var bootstrapServers: String
    /// Brokers of the cluster; empty when it was not reached.
    var brokers: [String] = []
    /// Reason for which the cluster was not reached; nil when it was.
    var error: String?
    var topics: [Topic] = []
    /// Reason for which the cluster describes no topic's configuration at all; nil when it does.
    var administrationError: String?
    var groupID: String
    /// Result of asking for the group's offsets.
    var group = Trial.notTried
    /// Result of asking with the producer's own properties; not tried without any.
    var producer = Trial.notTried
    /// Whether the worker may create missing topics.
    var createsTopics: Bool
    /// Largest batch of the producer in bytes: the smaller of `message.max.bytes` and `batch.size`.
    var producerBatchBytes: Int
    /// Largest response of the consumer in bytes (`receive.message.max.bytes`).
    var consumerResponseBytes: Int
}
