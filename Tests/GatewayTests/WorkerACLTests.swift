import Testing

@testable import Configuration
@testable import Gateway

/// The rights that a worker needs follow from its configuration.
@Suite("Rights in Kafka")
struct WorkerACLTests {
    private func configuration(
        store: Configuration.Store? = nil, creates: Bool = false, group: String = "push"
    ) -> Configuration {
        Configuration(
            kafka: .init(
                bootstrapServers: "SSL://a:1,b:2", groupID: group,
                topics: .init(jobs: "j", outcomes: "o", deadLetters: "d", changelog: "c"),
                createTopics: creates ? .init() : nil),
            credentials: [], apps: [], store: store)
    }

    @Test func workerWithoutStoreNeedsNoChangelogAndNoTransactions() {
        let list = WorkerACL.needed(by: configuration())
        #expect(
            list.map(\.resource) == [.topic("j"), .topic("o"), .topic("d"), .group("push"), .cluster])
        #expect(list[0].operations == [.read, .describe])
        #expect(list[1].operations == [.write, .describe, .describeConfigs])
        #expect(list[4].operations == [.idempotentWrite])
    }

    @Test func storeDecidesChangelogAndTransactions() {
        for (changelog, transactions, hasChangelog, hasTransactions) in [
            (Configuration.Store.Switch.on, Configuration.Store.Switch.on, true, true),
            (.on, .off, true, false), (.off, .on, false, false),
        ] {
            let store = Configuration.Store(
                directory: "/s", changelog: changelog, transactions: transactions)
            let resources = WorkerACL.needed(by: configuration(store: store)).map(\.resource)
            #expect(resources.contains(.topic("c")) == hasChangelog)
            #expect(resources.contains(.transactionalIDs(prefix: "push-")) == hasTransactions)
            // With transactions the pauses of operators are written outside of them.
            #expect(resources.contains(.cluster))
        }
    }

    @Test func creatingTopicsNeedsCreateForEachAndAlterForTheChangelog() {
        let list = WorkerACL.needed(by: configuration(store: .init(directory: "/s"), creates: true))
        for acl in list {
            guard case .topic(let name) = acl.resource else { continue }
            #expect(acl.operations.contains(.create))
            #expect(acl.operations.contains(.alter) == (name == "c"))
        }
        #expect(
            !WorkerACL.needed(by: configuration(store: .init(directory: "/s"))).contains {
                $0.operations.contains(.create) || $0.operations.contains(.alter)
            })
    }

    @Test func commandsNameEachResourceAndQuoteNames() {
        let configuration = configuration(store: .init(directory: "/s"), group: "it's")
        let list = WorkerACL.needed(by: configuration)
        let text = WorkerACL.commands(
            list, principal: "User:CN=a b", bootstrapServers: configuration.kafka.bootstrapServers,
            commandConfig: "admin.properties")
        let start =
            "kafka-acls --bootstrap-server 'a:1,b:2' --command-config 'admin.properties' --add --allow-principal 'User:CN=a b' \\\n"
        let commands = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(commands.count == 2 * list.count)
        #expect(text.hasSuffix("\n"))
        for (acl, index) in zip(list, stride(from: 0, to: commands.count, by: 2)) {
            #expect(commands[index] + "\n" == start)
            for operation in acl.operations {
                #expect(commands[index + 1].contains("--operation \(operation.rawValue)"))
            }
        }
        #expect(text.contains("--operation Read --operation Describe --topic 'j'\n"))
        #expect(text.contains(#"--group 'it'\''s'"#))
        #expect(text.contains(#"--transactional-id 'it'\''s-' --resource-pattern-type prefixed"#))
    }

    @Test func kafkaUserIsYAMLWithTheSameRights() throws {
        let list = WorkerACL.needed(by: configuration(store: .init(directory: "/s"), group: "it's"))
        let text = WorkerACL.kafkaUser(
            list, name: "sluice", cluster: "main", authentication: "scram-sha-512")
        #expect(text.hasSuffix("\n"))
        let user = try ConfigurationValue.parse(text, name: "user.yaml")
        #expect(user["kind"]?.text == "KafkaUser")
        #expect(user["metadata"]?["name"]?.text == "sluice")
        #expect(user["metadata"]?["labels"]?["strimzi.io/cluster"]?.text == "main")
        #expect(user["spec"]?["authentication"]?["type"]?.text == "scram-sha-512")
        #expect(user["spec"]?["authorization"]?["type"]?.text == "simple")
        let acls = try #require(user["spec"]?["authorization"]?["acls"]?.elements)
        try #require(acls.count == list.count)
        for (acl, found) in zip(list, acls) {
            #expect(found["operations"]?.elements.compactMap(\.text) == acl.operations.map(\.rawValue))
            let resource = found["resource"]
            let (type, name, pattern): (String, String?, String?) =
                switch acl.resource {
                case .topic(let name): ("topic", name, "literal")
                case .group(let name): ("group", name, "literal")
                case .transactionalIDs(let prefix): ("transactionalId", prefix, "prefix")
                case .cluster: ("cluster", nil, nil)
                }
            #expect(resource?["type"]?.text == type)
            #expect(resource?["name"]?.text == name)
            #expect(resource?["patternType"]?.text == pattern)
        }
        for name in ["123", "true", "null", "1e3"] {
            let text = WorkerACL.kafkaUser(list, name: name, cluster: name, authentication: nil)
            #expect(text.contains("\n  name: '\(name)'\n"))
            #expect(text.contains("strimzi.io/cluster: '\(name)'\n"))
        }
        #expect(
            !WorkerACL.kafkaUser(list, name: "a", cluster: "b", authentication: nil).contains(
                "authentication:"))
    }

    @Test func authenticationFollowsFromTheProperties() {
        func authentication(_ pairs: (String, String)...) -> String? {
            var kafka = Configuration.Kafka(bootstrapServers: "a:1")
            kafka.properties = pairs.map { .init(name: $0, value: $1) }
            return WorkerACL.authentication(of: kafka)
        }
        #expect(authentication() == nil)
        #expect(authentication(("sasl.mechanism", "scram-sha-512")) == "scram-sha-512")
        #expect(authentication(("sasl.mechanisms", "SCRAM-SHA-512")) == "scram-sha-512")
        #expect(authentication(("ssl.certificate.location", "/c")) == "tls")
        #expect(authentication(("ssl.certificate.location", "/c"), ("sasl.mechanism", "PLAIN")) == nil)
    }
}

extension ConfigurationValue {
    subscript(_ key: String) -> ConfigurationValue? {
        guard case .map(let entries) = content else { return nil }
        return entries.first { $0.key == key }?.value
    }

    var text: String? {
        if case .scalar(let text, _) = content { text } else { nil }
    }

    var elements: [ConfigurationValue] {
        if case .list(let elements) = content { elements } else { [] }
    }
}
