import Kafka
import TestSupport
import Testing

@Suite struct TopicRequirementTests {
    private let requirements = [
        TopicRequirement("cleanup.policy", .list(["compact"]), reason: "held items would be deleted"),
        TopicRequirement("min.compaction.lag.ms", .atLeast(60_000), reason: "a"),
        TopicRequirement("segment.ms", .atMost(3_600_000), reason: "b"),
        TopicRequirement("min.cleanable.dirty.ratio", .fractionAtMost(0.3), reason: "c"),
        TopicRequirement("delete.retention.ms", .atLeast(86_400_000), reason: "d"),
        TopicRequirement("message.timestamp.type", .equal("CreateTime"), reason: "e"),
    ]
    private let good = [
        "cleanup.policy": "compact", "min.compaction.lag.ms": "60000", "segment.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.3", "delete.retention.ms": "86400000",
        "message.timestamp.type": "CreateTime", "unclean.leader.election.enable": "false",
    ]

    private func names(_ changes: [String: String?]) -> [String] {
        var values = good
        for (name, value) in changes { values[name] = value }
        return TopicConfiguration(topic: "t", values: values).differences(from: requirements).map(
            \.requirement.name)
    }

    @Test func conformingConfigurationHasNoDifferences() {
        #expect(names([:]) == [])
        #expect(names(["delete.retention.ms": "-1", "segment.ms": "1"]) == [])
    }

    @Test(arguments: [
        ("cleanup.policy", "delete"), ("cleanup.policy", "compact,delete"), ("cleanup.policy", ""),
        ("min.compaction.lag.ms", "59999"), ("segment.ms", "3600001"), ("segment.ms", "-1"),
        ("segment.ms", "an hour"), ("min.cleanable.dirty.ratio", "0.5"), ("delete.retention.ms", "0"),
        ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", nil),
    ])
    func nonconformingSettingIsNamed(name: String, value: String?) {
        #expect(names([name: value]) == [name])
    }

    @Test func listSettingsAreComparedByElements() {
        let both = [TopicRequirement("cleanup.policy", .list(["compact", "delete"]), reason: "r")]
        for (value, isGood) in [("delete, compact", true), ("compact,delete", true), ("compact", false)] {
            let configuration = TopicConfiguration(topic: "t", values: ["cleanup.policy": value])
            #expect(configuration.differences(from: both).isEmpty == isGood)
        }
    }

    @Test func differenceDescribesTopicSettingValueAndReason() {
        let configuration = TopicConfiguration(topic: "changes", values: ["cleanup.policy": "delete"])
        let texts = configuration.differences(from: requirements).map(\.description)
        #expect(
            texts.first
                == "topic \"changes\": cleanup.policy is \"delete\" and must be \"compact\": held items would be deleted"
        )
        #expect(
            texts.dropFirst().first
                == "topic \"changes\": min.compaction.lag.ms is not set and must be at least 60000: a")
        #expect(texts.count == requirements.count)
    }

    @Test func topicsMustHaveAsManyPartitionsAsTheFirst() throws {
        #expect(CoPartitioning([("jobs", 12), ("changes", 12)]).problem == nil)
        #expect(CoPartitioning([]).problem == nil)
        let problem = try #require(CoPartitioning([("jobs", 12), ("a", 12), ("changes", 8)]).problem)
        #expect(problem.contains("\"jobs\" has 12, \"changes\" has 8."))
        #expect(!problem.contains("\"a\""))
        let missing = try #require(CoPartitioning([("jobs", 12), ("changes", nil)]).problem)
        #expect(missing == "there is no topic \"changes\": create it")
    }

    @Test func partitionsAreCountedInTheCluster() throws {
        let bed = try KafkaTestBed(partitions: 3)
        let admin = try KafkaAdmin(properties: bed.properties())
        let answer = try admin.coPartitioning(of: [bed.topic, bed.topic])
        #expect(answer == CoPartitioning([(bed.topic, 3), (bed.topic, 3)]))
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil))
    func embeddedClusterReportsUnsupportedConfigurations() throws {
        let bed = try KafkaTestBed()
        let admin = try KafkaAdmin(properties: bed.properties())
        do {
            _ = try admin.configurations(of: [bed.topic], timeoutMilliseconds: 5_000)
            Issue.record("the configurations were described")
        } catch {
            #expect(error.name == "_UNSUPPORTED_FEATURE")
            #expect(error.message.contains("no topic administration"))
        }
    }

    @Test(
        .enabled(
            if: KafkaTestBed.realBrokers != nil,
            "the embedded cluster has no topic administration: SLUICE_TEST_BOOTSTRAP_SERVERS names a cluster that has"
        ))
    func createdTopicMeetsItsRequirements() throws {
        let bed = try KafkaTestBed()
        let admin = try KafkaAdmin(properties: bed.properties())
        let topic = "\(bed.topic)-changes"
        let settings = good.filter { $0.key != "unclean.leader.election.enable" }
        try admin.createTopics([
            NewTopic(topic, partitions: 1, configuration: settings.map { ($0.key, $0.value) })
        ])
        let described = try admin.configurations(of: [topic, "\(topic)-missing"])
        #expect(described.count == 2)
        #expect(described[1] == nil)
        let configuration = try #require(described[0])
        #expect(configuration.topic == topic)
        #expect(configuration.differences(from: requirements) == [])
        let other = [TopicRequirement("cleanup.policy", .list(["delete"]), reason: "r")]
        #expect(configuration.differences(from: other).map(\.actual) == ["compact"])
        try admin.deleteTopics([topic])
    }
}
