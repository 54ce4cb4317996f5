import Testing

@testable import Gateway

/// Facts about a cluster, and what they are judged as.
@Suite("Connection check: Kafka's facts")
struct KafkaVerdictTests {
    private func facts(_ change: (inout KafkaFacts) -> Void = { _ in }) -> KafkaFacts {
        func topic(_ role: KafkaFacts.Role, _ policy: String) -> KafkaFacts.Topic {
            .init(
                role: role, name: role.rawValue, partitions: 12, replicas: 3, inSyncReplicas: 3,
                configuration: [
                    "cleanup.policy": policy, "min.insync.replicas": "2", "max.message.bytes": "900000",
                    "delete.retention.ms": "86400000",
                ])
        }
        var facts = KafkaFacts(
            bootstrapServers: "a:1", brokers: ["a:1"],
            topics: [
                topic(.jobs, "delete"), topic(.outcomes, "delete"), topic(.deadLetters, "delete"),
                topic(.changelog, "compact"), topic(.switches, "compact"),
            ], groupID: "g", group: .worked, createsTopics: false, producerBatchBytes: 900_000,
            consumerResponseBytes: 100_000_000)
        facts.topics[0].reading = .worked
        facts.topics[3].reading = .worked
        facts.topics[4].reading = .worked
        change(&facts)
        return facts
    }

    /// Results other than good, without the rights to write, which are never tried.
    private func complaints(_ change: (inout KafkaFacts) -> Void) -> [CheckResult] {
        KafkaVerdict.results(facts(change)).filter {
            $0.verdict != .good && $0.part != "rights"
        }
    }

    @Test func goodClusterHasOnlyGoodResults() {
        #expect(complaints { _ in } == [])
        let results = KafkaVerdict.results(facts())
        #expect(CheckResult.isUsable(results))
        #expect(results.count { $0.verdict == .unchecked } == 1)
    }

    @Test func unreachedClusterHasOneResult() {
        let results = KafkaVerdict.results(facts { $0.error = "Connection refused" })
        #expect(results.count == 1)
        #expect(results[0].verdict == .bad && results[0].finding == "a:1: Connection refused")
        #expect(!CheckResult.isUsable(results))
    }

    @Test(
        "a fact is judged, and has a remedy",
        arguments: [
            Case(.bad, "topic jobs", "doesn't exist") { $0.topics[0].partitions = nil },
            Case(.bad, "topic jobs", "no rights") { $0.topics[0].error = "no rights" },
            Case(.bad, "topic jobs", "2 without a leader") { $0.topics[0].leaderless = 2 },
            Case(.bad, "topic jobs", "can't be read: refused") { $0.topics[0].reading = .refused("refused") },
            Case(.bad, "topic changelog", "can't be read: no answer") {
                $0.topics[3].reading = .failed("no answer", remedy: nil)
            },
            Case(.warning, "topic switches", "doesn't exist: pauses and resumes reach a single worker") {
                $0.topics[4].partitions = nil
            },
            Case(.warning, "topic switches", "no rights: pauses") { $0.topics[4].error = "no rights" },
            Case(.bad, "topic switches", "can't be read: refused") {
                $0.topics[4].reading = .refused("refused")
            },
            Case(.bad, "topic switches", "cleanup.policy is delete") {
                $0.topics[4].configuration?["cleanup.policy"] = "delete"
            },
            Case(.bad, "topic switches", "cleanup.policy is compact,delete") {
                $0.topics[4].configuration?["cleanup.policy"] = "compact,delete"
            },
            Case(.bad, "group g", "no answer") { $0.group = .failed("no answer", remedy: "wait") },
            Case(.bad, "group g", "refused") { $0.group = .refused("refused") },
            Case(.bad, "topic jobs", "cleanup.policy is compact,delete") {
                $0.topics[0].configuration?["cleanup.policy"] = "compact,delete"
            },
            Case(.bad, "topic outcomes", "cleanup.policy is compact") {
                $0.topics[1].configuration?["cleanup.policy"] = "compact"
            },
            Case(.bad, "topic changelog", "must be \"compact\"") {
                $0.topics[3].configuration?["cleanup.policy"] = "delete"
            },
            Case(.bad, "topic changelog", "delete.retention.ms") {
                $0.topics[3].configuration?["delete.retention.ms"] = "1000"
            },
            Case(.warning, "topic changelog", "can't be read: refused") {
                $0.topics[3].configuration = nil
                $0.topics[3].configurationError = "refused"
            },
            Case(.warning, "topic dead-letters", "12 partitions, 1 replica") {
                $0.topics[2].replicas = 1
                $0.topics[2].inSyncReplicas = 1
                $0.topics[2].configuration?["min.insync.replicas"] = "1"
            },
            Case(.bad, "topic outcomes", "min.insync.replicas is 4 of 3, and only 3 in sync") {
                $0.topics[1].configuration?["min.insync.replicas"] = "4"
            },
            Case(.bad, "topic outcomes", "min.insync.replicas is 2 of 3, and only 1 in sync") {
                $0.topics[1].inSyncReplicas = 1
            },
            Case(.warning, "topic outcomes", "min.insync.replicas is 3 of 3") {
                $0.topics[1].configuration?["min.insync.replicas"] = "3"
            },
            Case(.warning, "topic outcomes", "min.insync.replicas is 1 of 3") {
                $0.topics[1].configuration?["min.insync.replicas"] = "1"
            },
            Case(.bad, "message sizes", "a response of Kafka has at most 800000") {
                $0.consumerResponseBytes = 800_000
            },
            Case(.bad, "message sizes", "max.message.bytes of dead-letters is 5000") {
                $0.topics[2].configuration?["max.message.bytes"] = "5000"
            },
            Case(.warning, "partitions", "same number of partitions") { $0.topics[3].partitions = 6 },
            Case(.bad, "partitions", "same number of partitions") { $0.topics[3].partitions = 13 },
        ])
    func factIsJudged(_ example: Case) {
        let found = complaints(example.change)
        #expect(found.count == 1, "\(found)")
        #expect(found.first?.verdict == example.verdict)
        #expect(found.first?.part == example.part)
        #expect(found.first?.finding.contains(example.finding) == true, "\(found)")
        #expect(found.first?.remedy != nil)
    }

    struct Case: Sendable, CustomTestStringConvertible {
        var verdict: CheckResult.Verdict
        var part: String
        var finding: String
        var change: @Sendable (inout KafkaFacts) -> Void

        init(
            _ verdict: CheckResult.Verdict, _ part: String, _ finding: String,
            change: @escaping @Sendable (inout KafkaFacts) -> Void
        ) {
            self.verdict = verdict
            self.part = part
            self.finding = finding
            self.change = change
        }

        var testDescription: String { "\(part): \(finding)" }
    }

    @Test func topicsThatTheWorkerCreatesMayBeMissing() {
        #expect(
            complaints {
                $0.createsTopics = true
                for index in $0.topics.indices { $0.topics[index].partitions = nil }
            } == [])
        #expect(
            complaints {
                $0.createsTopics = true
                $0.topics[3].partitions = 6
            } == [])
    }

    @Test func clusterWithoutAdministrationHasOneUncheckedResult() {
        let found = complaints {
            $0.administrationError = "no controller"
            for index in $0.topics.indices { $0.topics[index].configuration = nil }
        }
        #expect(found.map(\.part) == ["topics"])
        #expect(found.map(\.verdict) == [.unchecked])
    }
}
