import Configuration

extension WorkerACL {
    /// Returns commands of Kafka's `kafka-acls` that add the rights.
    ///
    /// - Parameters:
    ///   - principal: principal by Kafka's form, such as `User:sluice`.
    ///   - bootstrapServers: brokers, comma-separated; a protocol before `://` is left out.
    ///   - commandConfig: file with the administrator's properties; nil for none.
    public static func commands(
        _ list: [WorkerACL], principal: String, bootstrapServers: String, commandConfig: String?
    ) -> String {
        let servers = bootstrapServers.split(separator: ",").map { server -> String in
            String(server.firstRange(of: "://").map { server[$0.upperBound...] } ?? server)
        }
        var common = "kafka-acls --bootstrap-server \(quoted(servers.joined(separator: ",")))"
        if let commandConfig { common += " --command-config \(quoted(commandConfig))" }
        common += " --add --allow-principal \(quoted(principal))"
        return list.map { acl in
            let operations = acl.operations.map { "--operation \($0.rawValue)" }.joined(separator: " ")
            return "# The worker \(acl.reason).\n\(common) \\\n  \(operations) \(acl.resource.option)\n"
        }.joined()
    }

    /// Returns a `KafkaUser` of Strimzi, as YAML.
    ///
    /// - Parameters:
    ///   - name: name of the user, which is its principal without `User:`.
    ///   - cluster: name of the `Kafka` resource.
    ///   - authentication: Strimzi's type of authentication; nil leaves it out.
    public static func kafkaUser(
        _ list: [WorkerACL], name: String, cluster: String, authentication: String?
    ) -> String {
        var text = """
            apiVersion: kafka.strimzi.io/v1beta2
            kind: KafkaUser
            metadata:
              name: \(yaml(name))
              labels:
                strimzi.io/cluster: \(yaml(cluster))
            spec:

            """
        if let authentication { text += "  authentication:\n    type: \(authentication)\n" }
        text += "  authorization:\n    type: simple\n    acls:\n"
        for acl in list {
            let operations = acl.operations.map(\.rawValue).joined(separator: ", ")
            text += """
                      # The worker \(acl.reason).
                      - resource: \(acl.resource.strimzi)
                        operations: [\(operations)]

                """
        }
        return text
    }

    /// Returns Strimzi's type of authentication for the properties of Kafka's clients; nil when they have none that
    /// Strimzi manages.
    public static func authentication(of kafka: Configuration.Kafka) -> String? {
        let properties = Dictionary(
            kafka.properties.map { ($0.name, $0.value) }, uniquingKeysWith: { $1 })
        let mechanism = properties["sasl.mechanism"] ?? properties["sasl.mechanisms"]
        if mechanism?.uppercased() == "SCRAM-SHA-512" { return "scram-sha-512" }
        let hasCertificate = ["ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"]
            .contains { properties[$0] != nil }
        return mechanism == nil && hasCertificate ? "tls" : nil
    }

    /// Returns a text of YAML, whatever a plain scalar would mean: `123`, `true` and `null` are names too.
    private static func yaml(_ text: String) -> String {
        "'" + text.replacing("'", with: "''") + "'"
    }

    /// Returns a word of a shell command that stands for the text.
    private static func quoted(_ text: String) -> String {
        "'" + text.replacing("'", with: "'\\''") + "'"
    }
}

extension WorkerACL.Resource {
    /// Options of `kafka-acls`. Names of topics and groups have been checked, or are quoted.
    fileprivate var option: String {
        func quoted(_ text: String) -> String { "'" + text.replacing("'", with: "'\\''") + "'" }
        return switch self {
        case .topic(let name): "--topic \(quoted(name))"
        case .group(let name): "--group \(quoted(name))"
        case .transactionalIDs(let prefix):
            "--transactional-id \(quoted(prefix)) --resource-pattern-type prefixed"
        case .cluster: "--cluster"
        }
    }

    /// Strimzi's resource in YAML's flow form.
    fileprivate var strimzi: String {
        func quoted(_ text: String) -> String { "'" + text.replacing("'", with: "''") + "'" }
        return switch self {
        case .topic(let name): "{type: topic, name: \(quoted(name)), patternType: literal}"
        case .group(let name): "{type: group, name: \(quoted(name)), patternType: literal}"
        case .transactionalIDs(let prefix):
            "{type: transactionalId, name: \(quoted(prefix)), patternType: prefix}"
        case .cluster: "{type: cluster}"
        }
    }
}
