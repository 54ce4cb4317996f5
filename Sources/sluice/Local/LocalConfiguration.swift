import Configuration

/// Configuration of a worker that runs on this machine.
struct LocalConfiguration {
    /// A server of the provider API.
    struct Server {
        var host: String
        var port: String
        /// Nil: the system's authorities.
        var caFile: String?
    }

    struct Credential {
        var name: String
        var keyFile = LocalFiles.keyFile
        var keyID = LocalFiles.keyID
        var teamID = LocalFiles.teamID
        /// Server of the sandbox environment; nil: the credential belongs to the configuration's server.
        var sandbox: Server?
    }

    struct App {
        var name: String
        var bundle: String
        /// Names of credentials.
        var credentials: [String]
        var ratePerSecond: Double?
        /// Further settings.
        var settings: ConfigurationValue?
    }

    var bootstrapServers: String
    var group: String
    /// Name of the worker in its group; nil for none.
    var instanceID: String?
    var topics: StagePlan.Topics?
    /// librdkafka's properties.
    var properties: [String: String] = [:]
    var consumerProperties: [String: String] = [:]
    var environment = "production"
    var server: Server
    var credentials: [Credential]
    var apps: [App]
    var shards = 1
    /// Section `delivery.retry`.
    var retry: String?
    /// Section `store`.
    var store: String?
    /// Value of `admin.listen`.
    var admin = "off"
    /// Value of `admin.socket`; nil: there is no socket.
    var socket: String?

    /// Returns the configuration in YAML.
    /// - Parameter settings: further settings, which replace those of the same path.
    func text(with settings: ConfigurationValue? = nil) throws(CommandFailure) -> String {
        let own = plainText
        guard settings != nil || apps.contains(where: { $0.settings != nil }) else { return own }
        do throws(ConfigurationError) {
            var document = try ConfigurationValue.parse(own, name: "worker")
            for (index, app) in apps.enumerated() {
                if let settings = app.settings { document.merge(settings, intoApp: index) }
            }
            if let settings { document = document.merged(with: settings) }
            return document.yaml
        } catch {
            throw CommandFailure(.internalError, "the worker's configuration: \(error)")
        }
    }

    private var plainText: String {
        var lines = ["# Written at each start.", "kafka:"]
        lines.append("  bootstrap-servers: \(Self.quoted(bootstrapServers))")
        lines.append("  group-id: \(Self.quoted(group))")
        if let instanceID { lines.append("  instance-id: \(Self.quoted(instanceID))") }
        if let topics {
            lines.append("  topics:")
            lines.append("    jobs: \(Self.quoted(topics.jobs))")
            lines.append("    outcomes: \(Self.quoted(topics.outcomes))")
            lines.append("    dead-letters: \(Self.quoted(topics.deadLetters))")
            lines.append("    changelog: \(Self.quoted(topics.changelog))")
        }
        lines += Self.map("properties", properties) + Self.map("consumer-properties", consumerProperties)
        lines += ["apns:", "  environment: \(environment)"] + Self.lines(server)
        lines.append("credentials:")
        for credential in credentials {
            lines.append("  \(Self.quoted(credential.name)):")
            lines.append("    type: token")
            lines.append("    key-file: \(Self.quoted(credential.keyFile))")
            lines.append("    key-id: \(Self.quoted(credential.keyID))")
            lines.append("    team-id: \(Self.quoted(credential.teamID))")
            if let sandbox = credential.sandbox {
                lines += ["    environment: development"] + Self.lines(sandbox).map { "  " + $0 }
            }
        }
        lines.append("apps:")
        for app in apps {
            lines.append("  - name: \(Self.quoted(app.name))")
            lines.append("    topics: [\(Self.quoted(app.bundle))]")
            lines.append("    credential: [\(app.credentials.map(Self.quoted).joined(separator: ", "))]")
            if let rate = app.ratePerSecond { lines.append("    rate-per-second: \(rate)") }
        }
        lines += ["delivery:", "  shards: \(shards)", "  drain-deadline: 5s"]
        if let retry { lines.append("  retry: \(retry)") }
        if let store { lines.append("store: \(store)") }
        lines += ["metrics: {stats-interval: 1s}", "admin:", "  listen: \(Self.quoted(admin))"]
        if let socket { lines.append("  socket: \(Self.quoted(socket))") }
        return lines.joined(separator: "\n") + "\n"
    }

    private static func lines(_ server: Server) -> [String] {
        ["  host: \(quoted(server.host))", "  port: \(server.port)"]
            + (server.caFile.map { ["  ca-file: \(quoted($0))"] } ?? [])
    }

    private static func map(_ name: String, _ values: [String: String]) -> [String] {
        guard !values.isEmpty else { return [] }
        return ["  \(name):"]
            + values.sorted { $0.key < $1.key }.map { "    \(quoted($0.key)): \(quoted($0.value))" }
    }

    private static func quoted(_ text: String) -> String { ConfigurationValue.quoted(text) }
}

extension ConfigurationValue {
    /// Replaces settings of an app of a configuration.
    fileprivate mutating func merge(_ settings: ConfigurationValue, intoApp index: Int) {
        guard case .map(var entries) = content,
            let place = entries.firstIndex(where: { $0.key == "apps" }),
            case .list(var apps) = entries[place].value.content, apps.indices.contains(index)
        else { return }
        apps[index] = apps[index].merged(with: settings)
        entries[place].value.content = .list(apps)
        content = .map(entries)
    }
}
