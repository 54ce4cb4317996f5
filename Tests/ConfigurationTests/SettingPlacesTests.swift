import Foundation
import TestSupport
import Testing

@testable import Configuration

@Suite("Configuration: places of settings")
struct SettingPlacesTests {
    private func load(
        _ text: String, _ directory: TemporaryDirectory, environment: [String: String] = [:]
    ) throws -> (configuration: Configuration, places: SettingPlaces) {
        try Configuration.loadWithPlaces(
            path: directory.write(text, to: "sluice.yaml"), environment: environment)
    }

    @Test("a file's setting is found by the file, a missing setting by its section")
    func settingIsFoundByItsFile() throws {
        let directory = try TemporaryDirectory("places")
        try directory.write("key", to: "team.p8")
        let (_, places) = try load(validConfiguration, directory)
        let path = directory.file("sluice.yaml")
        #expect(
            places.place(ofFile: directory.file("team.p8"), ending: "key-file")
                == .init(
                    key: "credentials.team.key-file", location: .file(name: path, line: 8, column: 15)))
        #expect(places.place(ofFile: directory.file("team.p8"), ending: "certificate-file") == nil)
        #expect(
            places.place(of: "kafka.properties.debug").location == .file(name: path, line: 2, column: 3))
        #expect(places.place(of: "store").location == .file(name: path, line: 0, column: 0))
    }

    @Test("a variable is blamed for a conflict that it causes with the file")
    func variableIsBlamedForItsConflict() throws {
        let text = """
            kafka: {bootstrap-servers: "a:1", topics: {jobs: j}, properties: {security.protocol: SSL}}
            credentials:
              team: {type: token, key-file: a, key-id: ABC123DEFG, team-id: DEF123GHIJ, max-connections: 4}
            apps:
              - {name: a, topics: [a.b], credential: team, max-in-flight: 3}
              - {name: b, topics: [b.c], credential: team}
            apns: {environment: development, host: api.sandbox.push.apple.com, max-connections: 4}
            """
        for (variable, value, key) in [
            ("SLUICE_KAFKA__TOPICS__OUTCOMES", "j", "kafka.topics"),
            ("SLUICE_KAFKA__BOOTSTRAP_SERVERS", "PLAINTEXT://a:1", "kafka.bootstrap-servers"),
            ("SLUICE_APNS__CONNECTIONS", "5", "apns.max-connections"),
            ("SLUICE_CREDENTIALS__TEAM__CONNECTIONS", "5", "credentials.team.max-connections"),
            ("SLUICE_APPS__B__TOPICS", "b.c,a.b", "apps"),
            ("SLUICE_DELIVERY__SHARDS", "4", "apps"),
            ("SLUICE_DELIVERY__RETRY__MAXIMUM", "1s", "delivery.retry.initial"),
        ] {
            let error = try #require(throws: ConfigurationError.self, "\(variable)") {
                try Configuration.parse(text, name: "f", environment: [variable: value])
            }
            let problem = error.problems.first { $0.key == key }
            #expect(problem?.location == .environment(variable: variable), "\(error)")
        }
    }

    @Test("a file as the store's directory is reported, a directory that is missing is not")
    func fileAsStoreDirectoryIsReported() throws {
        let directory = try TemporaryDirectory("places")
        try directory.write("key", to: "team.p8")
        for (name, isWrong) in [
            ("team.p8", true), ("team.p8/store", true), ("new/store", false), (".", false),
        ] {
            let text = validConfiguration + "\nstore: {directory: \(name)}\n"
            guard isWrong else {
                _ = try load(text, directory)
                continue
            }
            let error = try #require(throws: ConfigurationError.self) { try load(text, directory) }
            #expect(error.problems.map(\.key) == ["store.directory"])
            #expect(error.description.contains(":15:20: store.directory: "), "\(error)")
            #expect(error.description.hasSuffix("team.p8 is a file, not a directory"))
        }
    }
}

@Suite("Configuration: secrets in files")
struct SecretFileTests {
    private func properties(
        _ lines: String, _ directory: TemporaryDirectory, environment: [String: String] = [:]
    ) throws -> [Configuration.Kafka.Property] {
        try directory.write("key", to: "team.p8")
        let text = validConfiguration.replacing(
            "localhost:9092", with: "localhost:9092\n  properties:\n    \(lines)")
        return try Configuration.load(
            path: directory.write(text, to: "sluice.yaml"), environment: environment
        ).kafka.properties
    }

    @Test("the value of NAME-file is read from the file, without a line break at its end")
    func valueIsReadFromItsFile() throws {
        let directory = try TemporaryDirectory("secrets")
        for (content, value) in [
            ("hush", "hush"), ("hush\n", "hush"), ("hush\r\n", "hush"), ("a\nb\n\n", "a\nb\n"),
        ] {
            let path = try directory.write(content, to: "password")
            #expect(
                try properties("sasl.password-file: password", directory)
                    == [.init(name: "sasl.password", value: value, file: path)])
        }
        #expect(
            try properties(
                "sasl.username: me", directory,
                environment: ["SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD_FILE": directory.file("password")]
            ).map(\.name) == ["sasl.username", "sasl.password"])
        #expect(
            EnvironmentOverrides.variable(forPath: "kafka.consumer-properties.ssl.key.password-file")
                == "SLUICE_KAFKA__CONSUMER_PROPERTIES__SSL_KEY_PASSWORD_FILE")
    }

    @Test("a variable overrides the other form of its property in the file")
    func variableOverridesTheOtherForm() throws {
        let directory = try TemporaryDirectory("secrets")
        let path = try directory.write("hush", to: "password")
        let value = ["SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD": "other"]
        #expect(
            try properties("sasl.password-file: password", directory, environment: value)
                == [.init(name: "sasl.password", value: "other")])
        let file = ["SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD_FILE": path]
        #expect(
            try properties("sasl.password: other", directory, environment: file)
                == [.init(name: "sasl.password", value: "hush", file: path)])
        let error = try #require(throws: ConfigurationError.self) {
            try properties(
                "sasl.username: me", directory, environment: value.merging(file) { first, _ in first })
        }
        #expect(error.description.contains("exclude each other"), "\(error)")
    }

    @Test("$CREDENTIALS_DIRECTORY/ begins the name of a file in systemd's directory")
    func systemdsDirectoryIsResolved() throws {
        let directory = try TemporaryDirectory("secrets")
        try directory.write("hush", to: "kafka")
        for prefix in ["$CREDENTIALS_DIRECTORY", "${CREDENTIALS_DIRECTORY}"] {
            let line = "sasl.password-file: \(prefix)/kafka"
            let found = try properties(
                line, directory, environment: ["CREDENTIALS_DIRECTORY": directory.path])
            #expect(found.map(\.value) == ["hush"])
            let error = try #require(throws: ConfigurationError.self) { try properties(line, directory) }
            #expect(error.description.contains("LoadCredential="), "\(error)")
        }
        // Keys and certificates are such files too.
        let text = validConfiguration.replacing("team.p8", with: "$CREDENTIALS_DIRECTORY/kafka")
        let configuration = try Configuration.load(
            path: directory.write(text, to: "sluice.yaml"),
            environment: ["CREDENTIALS_DIRECTORY": directory.path])
        #expect("\(configuration.credentials[0].kind)".contains("\"\(directory.file("kafka"))\""))
    }

    @Test("a file that holds no secret is reported by line, and no error contains a secret")
    func wrongFileIsReported() throws {
        let directory = try TemporaryDirectory("secrets")
        try directory.write("", to: "empty")
        try directory.write(String(repeating: "s3cret", count: 20_000), to: "large")
        try Data([0xff, 0xfe]).write(to: URL(filePath: directory.file("binary")))
        try directory.write("s3cret", to: "good")
        for (lines, says) in [
            ("sasl.password-file: missing", "missing does not exist"),
            ("sasl.password-file: .", "is a directory, not a file"),
            ("sasl.password-file: empty", "is empty; write the secret into it"),
            ("sasl.password-file: large", "is larger than 64 KB"),
            ("sasl.password-file: binary", "is not UTF-8 text"),
            ("sasl.password-file: good\n    sasl.password: s3cret", "exclude each other"),
            ("group.id-file: good", "is set by kafka.group-id"),
        ] {
            let error = try #require(throws: ConfigurationError.self) { try properties(lines, directory) }
            #expect(error.problems.count == 1)
            #expect(error.description.contains(says), "\(error)")
            #expect(!error.description.contains("s3cret"), "\(error)")
            let line = lines.contains("\n") ? 5 : 4
            #expect(error.description.contains("sluice.yaml:\(line):5: kafka.properties."), "\(error)")
        }
    }

    @Test("others' rights to a file with a secret are reported")
    func exposedSecretIsReported() throws {
        let directory = try TemporaryDirectory("secrets")
        let path = try directory.write("hush", to: "password")
        chmod(path, 0o644)
        var configuration = Configuration(
            kafka: .init(bootstrapServers: "a:1"), credentials: [], apps: [])
        configuration.kafka.consumerProperties = [.init(name: "sasl.password", value: "hush", file: path)]
        #expect(configuration.exposedFiles().count == 1)
        #expect(
            configuration.exposedFiles()[0].hasPrefix("kafka.consumer-properties.sasl.password-file: "))
    }
}
