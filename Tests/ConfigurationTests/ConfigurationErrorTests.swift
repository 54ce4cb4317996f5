import Testing

@testable import Configuration

/// A valid document. Tests replace parts of it.
let validConfiguration = """
    kafka:
      bootstrap-servers: localhost:9092
    apns:
      environment: development
    credentials:
      team:
        type: token
        key-file: team.p8
        key-id: ABC123DEFG
        team-id: DEF123GHIJ
    apps:
      - name: news
        topics: [com.example.news]
        credential: team
    """

private struct Mistake: Sendable, CustomTestStringConvertible {
    var replace: String
    var with: String
    var key: String
    var line: Int
    var says: [String]

    init(_ replace: String, _ with: String, key: String, line: Int, says: String...) {
        self.replace = replace
        self.with = with
        self.key = key
        self.line = line
        self.says = says
    }

    var testDescription: String { "\(key.isEmpty ? "document" : key): \(with)" }
}

private let mistakes: [Mistake] = [
    // Unknown and misplaced keys.
    Mistake("kafka:", "kafak:", key: "kafak", line: 1, says: "no such setting", "did you mean `kafka`?"),
    Mistake(
        "bootstrap-servers:", "bootstrap_servers:", key: "kafka.bootstrap_servers", line: 2,
        says: "in `kafka`", "did you mean `bootstrap-servers`?"),
    Mistake(
        "environment: development", "colour: red", key: "apns.colour", line: 4,
        says: "known settings are: environment"
    ),
    Mistake(
        "key-id:", "certificate-file:", key: "credentials.team.certificate-file", line: 9, says: "no such"),
    // Missing values.
    Mistake(
        "bootstrap-servers: localhost:9092", "group-id: a", key: "kafka.bootstrap-servers", line: 2,
        says: "is required"),
    Mistake("localhost:9092", "", key: "kafka.bootstrap-servers", line: 2, says: "has no value"),
    Mistake("team.p8", "\"\"", key: "credentials.team.key-file", line: 8, says: "must not be empty"),
    Mistake(
        "    type: token\n", "    connections: 2\n", key: "credentials.team.type", line: 7,
        says: "is required"),
    Mistake(
        "topics: [com.example.news]", "topics: []", key: "apps[0].topics", line: 13, says: "must not be empty"
    ),
    Mistake(
        "environment: development", "environment: custom", key: "apns.host", line: 4, says: "is required"),
    // Wrong kinds.
    Mistake(
        "environment: development", "- a", key: "apns", line: 4,
        says: "must be a map of settings, but is a list"),
    Mistake("development", "[a]", key: "apns.environment", line: 4, says: "single value", "is a list"),
    Mistake(
        "[com.example.news]", "com.example.news", key: "apps[0].topics", line: 13,
        says: "write [com.example.news]"),
    Mistake("[com.example.news]", "[a, {b: c}]", key: "apps[0].topics[1]", line: 13, says: "but is a map"),
    Mistake(
        "localhost:9092", "localhost:9092\n  properties: [a]", key: "kafka.properties", line: 3,
        says: "a list"),
    Mistake(
        "localhost:9092", "localhost:9092\n  properties:\n    a.b: [1]", key: "kafka.properties.a.b", line: 4,
        says: "single value"),
    // Wrong values.
    Mistake("development", "prodution", key: "apns.environment", line: 4, says: "did you mean `production`?"),
    Mistake("type: token", "type: tokn", key: "credentials.team.type", line: 7, says: "token, certificate"),
    Mistake("development", "development\n  port: 65536", key: "apns.port", line: 5, says: "integer 1…65535"),
    Mistake(
        "development", "development\n  port: many", key: "apns.port", line: 5, says: "`many` is not allowed"),
    Mistake(
        "development", "development\n  request-timeout: 30", key: "apns.request-timeout", line: 5,
        says: "`30` is not a duration such as `250ms`"),
    Mistake(
        "development", "development\n  request-timeout: 1ms", key: "apns.request-timeout", line: 5,
        says: "out of range", "10ms…10m"),
    Mistake(
        "development", "development\n  host: api.push.apple.com", key: "apns.host", line: 5,
        says: "is Apple's server of environment `production`"),
    Mistake(
        "development", "development\n  host: https://api.sandbox.push.apple.com:443/3/device",
        key: "apns.host",
        line: 5, says: "write `api.sandbox.push.apple.com`, and set `port` to 443"),
    Mistake(
        "development", "development\n  host: \"[::1]:2197\"", key: "apns.host", line: 5,
        says: "write `::1`, and set `port` to 2197"),
    Mistake(
        "development", "development\n  host: \" api.sandbox.push.apple.com\"", key: "apns.host", line: 5,
        says: "\" api.sandbox.push.apple.com\" is not the name or address of a host"),
    Mistake(
        "development", "development\n  host: \"a\\e[31m.example\"", key: "apns.host", line: 5,
        says: "\"a\\u001b[31m.example\" is not the name or address"),
    Mistake(
        "development", "development\n  host: localhost:2197000", key: "apns.host", line: 5,
        says: "is not the name"),
    Mistake(
        "development", "development\n  proxy: {host: \"http://proxy:3128\"}", key: "apns.proxy.host", line: 5,
        says: "write `proxy`, and set `port` to 3128"),
    Mistake(
        "team-id: DEF123GHIJ", "team-id: DEF123GHIJ\n    host: relay.example/", key: "credentials.team.host",
        line: 11, says: "is not the name or address of a host"),
    Mistake(
        "localhost:9092", "localhost:9092\n  <<: [1]", key: "kafka", line: 3,
        says: "the merge `<<` takes a map"),
    Mistake(
        "development", "development\n  tls-minimum: 1.1", key: "apns.tls-minimum", line: 5, says: "1.2, 1.3"),
    Mistake(
        "localhost:9092", "\"a:1,,b\"", key: "kafka.bootstrap-servers[1]", line: 2, says: "must not be empty"),
    Mistake(
        "localhost:9092", "http://a:9092/x", key: "kafka.bootstrap-servers", line: 2,
        says: "is a URL", "write `a:9092`"),
    Mistake(
        "localhost:9092", "kafka://a", key: "kafka.bootstrap-servers", line: 2,
        says: "is a URL", "host:port, such as"),
    Mistake(
        "localhost:9092", "a/b:1", key: "kafka.bootstrap-servers", line: 2, says: "`a/b:1` is not host:port"),
    Mistake(
        "localhost:9092", "\"b:1,SSL://a:1\"", key: "kafka.bootstrap-servers", line: 2,
        says: "another protocol than kafka.properties.security.protocol, PLAINTEXT", "set it to SSL"),
    Mistake(
        "localhost:9092", "\"[::1:1\"", key: "kafka.bootstrap-servers", line: 2, says: "is not host:port"),
    Mistake("localhost:9092", "a:0", key: "kafka.bootstrap-servers", line: 2, says: "`a:0` is not host:port"),
    Mistake(
        "ABC123DEFG", "abc123defg", key: "credentials.team.key-id", line: 9,
        says: "10 capital letters and digits"),
    Mistake("DEF123GHIJ", "DEF123", key: "credentials.team.team-id", line: 10, says: "10 capital"),
    Mistake(
        "[com.example.news]", "[com/example]", key: "apps[0].topics", line: 13,
        says: "not a bundle identifier"),
    Mistake("name: news", "name: the news", key: "apps[0].name", line: 12, says: "`the news` has characters"),
    Mistake(
        "localhost:9092", "localhost:9092\n  topics: {jobs: a b}", key: "kafka.topics.jobs", line: 3,
        says: "can't name a Kafka topic"),
    Mistake(
        "localhost:9092", "localhost:9092\n  topics: {jobs: sluice.outcomes}", key: "kafka.topics", line: 3,
        says: "five different topics"),
    Mistake(
        "localhost:9092", "localhost:9092\n  properties:\n    group.id: a", key: "kafka.properties.group.id",
        line: 4, says: "is set by kafka.group-id"),
    Mistake(
        "localhost:9092", "localhost:9092\n  consumer-properties:\n    enable.auto.commit: true",
        key: "kafka.consumer-properties.enable.auto.commit", line: 4, says: "behind terminal outcomes"),
    // Conflicts between settings.
    Mistake(
        "credential: team", "credential: taem", key: "apps[0].credential", line: 14,
        says: "did you mean `team`?"),
    Mistake(
        "apps:", "delivery:\n  retry:\n    initial: 20m\napps:", key: "delivery.retry.initial", line: 13,
        says: "not be longer than delivery.retry.maximum"),
    Mistake(
        "apps:", "delivery:\n  read-ahead: on\napps:", key: "delivery.read-ahead", line: 12,
        says: "needs section `store`"),
    Mistake(
        "apps:", "apps:\n  - {name: news, topics: [b], credential: team}", key: "apps", line: 12,
        says: "two apps are named `news`"),
    Mistake(
        "apps:", "apps:\n  - {name: b, topics: [com.example.news], credential: team}", key: "apps", line: 12,
        says: "`com.example.news` is listed twice: in `b` and in `news`"),
    Mistake(
        "team-id: DEF123GHIJ", "team-id: DEF123GHIJ\n    max-connections: 1",
        key: "credentials.team.max-connections", line: 11, says: "must not be less than apns.connections, 2"),
    Mistake(
        "team-id: DEF123GHIJ", "team-id: DEF123GHIJ\n    connections: 4\n    max-connections: 3",
        key: "credentials.team.max-connections", line: 12, says: "must not be less than `connections`, 4"),
    Mistake(
        "credential: team", "credential: team\n    max-in-flight: 3\ndelivery: {shards: 4}", key: "apps",
        line: 12, says: "max-in-flight of `news`, 3", "less than delivery.shards, 4"),
    // Not a document.
    Mistake("environment: development", "\tenvironment: a", key: "", line: 4, says: "is not valid YAML"),
    Mistake("kafka:", "kafka: {", key: "", line: 3, says: "is not valid YAML"),
    Mistake("key-id:", "key-file:", key: "", line: 8, says: "more than once", "`key-file`"),
]

@Suite("Configuration: mistakes")
struct ConfigurationErrorTests {
    @Test("each mistake names its key and line", arguments: mistakes)
    private func mistakeNamesItsKeyAndLine(_ mistake: Mistake) throws {
        let text = validConfiguration.replacing(mistake.replace, with: mistake.with, maxReplacements: 1)
        try #require(text != validConfiguration)
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.parse(text, name: "test.yaml")
        }
        let problem = try #require(
            error.problems.first { $0.key == mistake.key }, "reported: \(error.description)")
        guard case .file("test.yaml", let line, _) = problem.location else {
            Issue.record("not located in the file: \(problem)")
            return
        }
        #expect(line == mistake.line, "\(problem)")
        for words in mistake.says {
            #expect(problem.message.contains(words), "\(problem)")
        }
    }

    @Test("all mistakes are reported at once, in the order of the document")
    func allMistakesAreReportedInDocumentOrder() throws {
        let text = """
            kafka:
              bootstrap-servers: localhost:9092
              group: a
            apns:
              port: 0
              environment: nowhere
            apps:
              - name: news
                credential: {type: token, key-file: a, key-id: b}
            """
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.parse(text, name: "f")
        }
        #expect(
            error.problems.map(\.key) == [
                "kafka.group", "apns.port", "apns.environment", "apps[0].topics",
                "apps[0].credential.team-id", "apps[0].credential.key-id",
            ])
        #expect(error.description.hasPrefix("f:3:3: kafka.group: there is no such setting in `kafka`"))
    }

    @Test("an empty document lacks the required settings")
    func emptyDocumentLacksRequiredSettings() throws {
        for text in ["", "# nothing\n", "{}", "~"] {
            let error = try #require(throws: ConfigurationError.self) {
                try Configuration.parse(text, name: "f")
            }
            #expect(error.problems.map(\.key) == ["kafka.bootstrap-servers", "apps"])
        }
    }

    @Test("a configuration file that does not exist is reported")
    func missingConfigurationFileIsReported() throws {
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.load(path: "/nonexistent/sluice.yaml", environment: [:])
        }
        #expect(error.description == "/nonexistent/sluice.yaml: does not exist")
    }

    @Test("two apps can't share a certificate")
    func appsCannotShareACertificate() throws {
        let text = """
            kafka: {bootstrap-servers: "a:1"}
            credentials:
              c: {type: certificate, certificate-file: a.pem, key-file: a.key}
            apps:
              - {name: a, topics: [a.b], credential: c}
              - {name: b, topics: [b.c], credential: c}
            """
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.parse(text, name: "f")
        }
        #expect(error.problems.count == 1)
        #expect(error.description.contains("`a` and `b` share the certificate `c`"))
    }

    @Test("nested aliases are refused before they are expanded")
    func nestedAliasesAreRefused() throws {
        var text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        for level in 1...20 {
            let alias = "*a\(level - 1)"
            text += "a\(level): &a\(level) [\(Array(repeating: alias, count: 10).joined(separator: ", "))]\n"
        }
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.parse(text, name: "f", directory: "/")
        }
        #expect(error.problems.map(\.message).contains { $0.contains("aliases") })
    }
}
