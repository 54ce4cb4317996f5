import Kafka

/// Judges the facts about a cluster.
enum KafkaVerdict {
    static func results(_ facts: KafkaFacts) -> [CheckResult] {
        if let error = facts.error {
            return [
                CheckResult(
                    .bad, "kafka", "\(facts.bootstrapServers): \(error)",
                    remedy: "correct kafka.bootstrap-servers or the properties that the text names")
            ]
        }
        let count = facts.brokers.count
        var results = [
            CheckResult(
                .good, "kafka",
                "\(count) \(count == 1 ? "broker" : "brokers"): \(facts.brokers.prefix(5).joined(separator: ", "))"
                    + (count > 5 ? ", …" : ""))
        ]
        for topic in facts.topics { results += self.results(topic, facts) }
        if let error = facts.administrationError {
            results.append(CheckResult(.unchecked, "topics", "their configuration can't be read: \(error)"))
        }
        results += sizes(facts)
        results += partitions(facts)
        if let writing = writing(facts) { results.append(writing) }
        if let producer = producer(facts) { results.append(producer) }
        results.append(group(facts))
        return results
    }

    // MARK: One topic

    private static func results(_ topic: KafkaFacts.Topic, _ facts: KafkaFacts) -> [CheckResult] {
        let part = "topic \(topic.name)"
        if let error = topic.error {
            return [
                CheckResult(
                    topic.role == .switches ? .warning : .bad, part, error + consequence(topic),
                    remedy: "grant the worker its rights; `sluice config acls` prints them")
            ]
        }
        guard let partitions = topic.partitions else {
            guard !facts.createsTopics else {
                return [
                    CheckResult(.good, part, "doesn't exist; the worker creates it (kafka.create-topics)")
                ]
            }
            return [
                CheckResult(
                    topic.role == .switches ? .warning : .bad, part, "doesn't exist" + consequence(topic),
                    remedy: (topic.role == .switches
                        ? "create it with one partition and cleanup.policy=compact" : "create it")
                        + ", or let the worker create it with kafka.create-topics")
            ]
        }
        var results = [existence(topic, partitions, part)]
        if let reading = reading(topic, part) { results.append(reading) }
        if facts.administrationError == nil { results += configuration(topic, part) }
        return results
    }

    /// Consequence of a topic that can't be used; empty where the worker doesn't start without the topic.
    private static func consequence(_ topic: KafkaFacts.Topic) -> String {
        topic.role == .switches ? ": pauses and resumes reach a single worker" : ""
    }

    private static func existence(
        _ topic: KafkaFacts.Topic, _ partitions: Int, _ part: String
    ) -> CheckResult {
        let count = "\(partitions) \(partitions == 1 ? "partition" : "partitions")"
        if topic.leaderless > 0 {
            return CheckResult(
                .bad, part, "\(count), \(topic.leaderless) without a leader",
                remedy: "start the brokers that have the partitions")
        }
        let replicas = "\(topic.replicas) \(topic.replicas == 1 ? "replica" : "replicas")"
        if topic.replicas == 1 {
            return CheckResult(
                .warning, part, "\(count), \(replicas)",
                remedy: "a lost disk loses records: give the topic three replicas in production")
        }
        return CheckResult(.good, part, "\(count), \(replicas), at least \(topic.inSyncReplicas) in sync")
    }

    /// Returns the result of reading at the topic's end; nil for a topic that the worker only writes.
    private static func reading(_ topic: KafkaFacts.Topic, _ part: String) -> CheckResult? {
        switch topic.reading {
        case .worked: return CheckResult(.good, part, "can be read")
        case .refused(let reason):
            return CheckResult(
                .bad, part, "can't be read: \(reason)",
                remedy: "grant Read and Describe; `sluice config acls` prints all rights")
        case .failed(let reason, let remedy):
            return CheckResult(.bad, part, "can't be read: \(reason)", remedy: remedy ?? unreachable)
        case .notTried: return nil
        }
    }

    private static let unreachable =
        "check that this machine reaches the brokers by the names that they advertise (advertised.listeners)"

    /// Names the topics that the worker writes. No right to write can be tried without a record that stays.
    private static func writing(_ facts: KafkaFacts) -> CheckResult? {
        let names = facts.topics.filter { $0.role != .jobs && $0.partitions != nil && $0.error == nil }.map(
            \.name)
        guard !names.isEmpty else { return nil }
        return CheckResult(
            .unchecked, "rights",
            "writing to \(names.joined(separator: ", ")) isn't tried, because a record would stay",
            remedy: "compare the rights with `sluice config acls`")
    }

    private static func configuration(_ topic: KafkaFacts.Topic, _ part: String) -> [CheckResult] {
        guard let values = topic.configuration else {
            return [
                CheckResult(
                    topic.role == .changelog ? .warning : .unchecked, part,
                    "its configuration can't be read: \(topic.configurationError ?? "no answer")",
                    remedy: topic.role == .changelog
                        ? "make sure that cleanup.policy is compact, and grant DescribeConfigs" : nil)
            ]
        }
        return [cleanup(topic, values, part), durability(topic, values, part)].compactMap(\.self)
    }

    private static func cleanup(
        _ topic: KafkaFacts.Topic, _ values: [String: String], _ part: String
    ) -> CheckResult {
        let policy = values["cleanup.policy"] ?? "delete"
        if topic.role == .changelog {
            let found = TopicConfiguration(topic: topic.name, values: values)
            let differences = found.differences(from: KafkaSetup.requirements)
            guard let first = differences.first else {
                return CheckResult(.good, part, "cleanup.policy is \(policy)")
            }
            return CheckResult(
                .bad, part, differences.map(\.description).joined(separator: "; "),
                remedy: "change the topic's \(first.requirement.name)")
        }
        if topic.role == .switches {
            guard policy != "compact" else { return CheckResult(.good, part, "cleanup.policy is compact") }
            return CheckResult(
                .bad, part, "cleanup.policy is \(policy)",
                remedy:
                    "a pause would be forgotten after the topic's retention: set cleanup.policy to compact")
        }
        guard policy.contains("compact") else {
            return CheckResult(.good, part, "cleanup.policy is \(policy)")
        }
        let lost =
            topic.role == .jobs
            ? "compaction drops jobs, because jobs of one device have one key"
            : "compaction drops records of one key"
        return CheckResult(
            .bad, part, "cleanup.policy is \(policy)", remedy: "\(lost): set cleanup.policy to delete")
    }

    /// Judges `min.insync.replicas` of a topic that the worker writes; nil for the jobs.
    private static func durability(
        _ topic: KafkaFacts.Topic, _ values: [String: String], _ part: String
    ) -> CheckResult? {
        guard topic.role != .jobs, topic.replicas > 0,
            let least = values["min.insync.replicas"].flatMap(Int.init)
        else { return nil }
        let finding = "min.insync.replicas is \(least) of \(topic.replicas)"
        if least > topic.inSyncReplicas {
            return CheckResult(
                .bad, part, "\(finding), and only \(topic.inSyncReplicas) in sync",
                remedy: least > topic.replicas
                    ? "no record can be written: lower min.insync.replicas, or add replicas"
                    : "no record can be written: start the missing brokers")
        }
        if least == topic.replicas, least > 1 {
            return CheckResult(
                .warning, part, finding,
                remedy: "writing stops while a single broker is away: set it to \(topic.replicas - 1)")
        }
        if least == 1, topic.replicas > 1 {
            return CheckResult(
                .warning, part, finding,
                remedy: "a broker's loss can lose acknowledged records: set it to 2")
        }
        return CheckResult(.good, part, finding)
    }

    // MARK: Several topics

    /// Compares the largest records of the topics with the limits of the clients.
    private static func sizes(_ facts: KafkaFacts) -> [CheckResult] {
        func limit(_ role: KafkaFacts.Role) -> Int? {
            facts.topics.first { $0.role == role }?.configuration?["max.message.bytes"].flatMap(Int.init)
        }
        guard let jobs = limit(.jobs) else { return [] }
        let part = "message sizes"
        if jobs > facts.consumerResponseBytes {
            return [
                CheckResult(
                    .bad, part,
                    "jobs of up to \(jobs) bytes are allowed, and a response of Kafka has at most \(facts.consumerResponseBytes)",
                    remedy: "raise receive.message.max.bytes, or lower the jobs topic's max.message.bytes")
            ]
        }
        let batch = facts.producerBatchBytes
        let small = facts.topics.filter { topic in
            // Records of switches are small.
            topic.role != .jobs && topic.role != .switches && limit(topic.role).map { $0 < batch } == true
        }
        guard small.isEmpty else {
            return small.map { topic in
                CheckResult(
                    .bad, part,
                    "max.message.bytes of \(topic.name) is \(limit(topic.role) ?? 0), and the producer sends batches of up to \(batch) bytes",
                    remedy:
                        "Kafka refuses larger batches as a whole: raise it, or lower batch.size in kafka.producer-properties"
                )
            }
        }
        return [
            CheckResult(
                .good, part,
                "jobs of up to \(jobs) bytes can be read, and batches of up to \(batch) bytes can be written")
        ]
    }

    /// Compares the partitions of jobs and changelog.
    private static func partitions(_ facts: KafkaFacts) -> [CheckResult] {
        guard let jobs = facts.topics.first(where: { $0.role == .jobs }),
            let changelog = facts.topics.first(where: { $0.role == .changelog }),
            jobs.partitions != nil, changelog.partitions != nil
        else { return [] }
        let counts = CoPartitioning([(jobs.name, jobs.partitions), (changelog.name, changelog.partitions)])
        guard let problem = counts.problem else {
            return [CheckResult(.good, "partitions", "the changelog has as many as the jobs topic")]
        }
        if counts.hasGrown, facts.createsTopics {
            return [CheckResult(.good, "partitions", "the worker adds those that the changelog lacks")]
        }
        return [
            CheckResult(
                counts.hasGrown ? .warning : .bad, "partitions", problem,
                remedy: "give the changelog as many partitions as the jobs topic")
        ]
    }

    /// Returns the result of the producer's own properties; nil without any.
    private static func producer(_ facts: KafkaFacts) -> CheckResult? {
        let part = "producer"
        return switch facts.producer {
        case .worked: CheckResult(.good, part, "reaches the brokers with kafka.producer-properties")
        case .refused(let reason), .failed(let reason, nil):
            CheckResult(.bad, part, reason, remedy: "correct kafka.producer-properties")
        case .failed(let reason, let remedy?): CheckResult(.bad, part, reason, remedy: remedy)
        case .notTried: nil
        }
    }

    private static func group(_ facts: KafkaFacts) -> CheckResult {
        let part = "group \(facts.groupID)"
        return switch facts.group {
        case .worked:
            CheckResult(
                .good, part, "its coordinator answers; the right to join isn't checked without joining")
        case .refused(let reason):
            CheckResult(
                .bad, part, reason, remedy: "grant Read on the group; `sluice config acls` prints all rights")
        case .failed(let reason, let remedy): CheckResult(.bad, part, reason, remedy: remedy ?? unreachable)
        case .notTried: CheckResult(.unchecked, part, "not checked, because the jobs topic can't be read")
        }
    }
}
