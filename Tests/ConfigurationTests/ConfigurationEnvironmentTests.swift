import TestSupport
import Testing

@testable import Configuration

@Suite("Configuration: environment")
struct ConfigurationEnvironmentTests {
    @Test("environment variables override the file at every level")
    func variablesOverrideTheFileAtEveryLevel() throws {
        let configuration = try Configuration.parse(
            validConfiguration + "\nlog: {level: debug}", name: "f",
            environment: [
                "SLUICE_LOG__LEVEL": "error",
                "SLUICE_KAFKA__BOOTSTRAP_SERVERS": "x:1, y:2",
                "SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD": "secret, with comma",
                "SLUICE_KAFKA__CREATE_TOPICS__PARTITIONS": "6",
                "SLUICE_CREDENTIALS__TEAM__KEY_FILE": "/run/secrets/key.p8",
                "SLUICE_APPS__NEWS__TOPICS": "com.example.a,com.example.b",
                "SLUICE_APPS__MAIL__TOPICS": "com.example.mail",
                "SLUICE_APPS__MAIL__CREDENTIAL": "team",
                "PATH": "/usr/bin", "SLUICE_TEST_BOOTSTRAP_SERVERS": "ignored",
            ])
        #expect(configuration.log.level == .error)
        #expect(configuration.kafka.bootstrapServers == "x:1,y:2")
        #expect(configuration.kafka.properties == [.init(name: "sasl.password", value: "secret, with comma")])
        #expect(configuration.kafka.createTopics == .init(partitions: 6, replicationFactor: 3))
        #expect(
            configuration.credentials.first?.kind
                == .token(keyFile: "/run/secrets/key.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
        #expect(
            configuration.apps == [
                .init(name: "news", topics: ["com.example.a", "com.example.b"], credentials: ["team"]),
                .init(name: "mail", topics: ["com.example.mail"], credentials: ["team"]),
            ])
    }

    @Test("a configuration can come from the environment alone")
    func configurationMayComeFromTheEnvironmentAlone() throws {
        let configuration = try Configuration.parse(
            "", name: "environment",
            environment: [
                "SLUICE_KAFKA__BOOTSTRAP_SERVERS": "x:1",
                "SLUICE_APPS__NEWS__TOPICS": "com.example.news",
                "SLUICE_APPS__NEWS__CREDENTIAL__TYPE": "token",
                "SLUICE_APPS__NEWS__CREDENTIAL__KEY_FILE": "/k.p8",
                "SLUICE_APPS__NEWS__CREDENTIAL__KEY_ID": "ABC123DEFG",
                "SLUICE_APPS__NEWS__CREDENTIAL__TEAM_ID": "DEF123GHIJ",
            ])
        #expect(configuration.apps.map(\.name) == ["news"])
        #expect(
            configuration.credentials(of: configuration.apps[0]).first?.kind
                == .token(keyFile: "/k.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
    }

    @Test(
        "an invalid variable is reported by its name",
        arguments: [
            ("SLUICE_KAFKA__BOOTSTRAPSERVERS", "", "did you mean `SLUICE_KAFKA__BOOTSTRAP_SERVERS`?"),
            ("SLUICE_LOG_LEVEL", "", "did you mean `SLUICE_LOG__LEVEL`?"),
            ("SLUICE_", "", "names no setting"),
            ("SLUICE_LOG____LEVEL", "", "names no setting"),
            ("SLUICE_LOG__LEVEL", "loud", "`loud` is not one of trace"),
            ("SLUICE_LOG__LEVEL", "", "must not be empty"),
            ("SLUICE_APNS__PORT", "https", "`https` is not allowed; expected integer 1…65535"),
            ("SLUICE_LOG__LEVEL__DEEP", "a", "must be a single value"),
            ("SLUICE_APNS_PORT", "443", "did you mean `SLUICE_APNS__PORT`?"),
        ])
    func invalidVariableIsReportedByName(variable: String, value: String, says: String) throws {
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.parse(validConfiguration, name: "f", environment: [variable: value])
        }
        #expect(error.problems.count == 1, "\(error)")
        #expect(error.problems.first?.location == .environment(variable: variable))
        #expect(error.description.contains(says), "\(error)")
    }

    @Test("variables that Kubernetes sets for a Service named sluice are ignored")
    func kubernetesServiceVariablesAreIgnored() throws {
        _ = try Configuration.parse(
            validConfiguration, name: "f",
            environment: [
                "SLUICE_SERVICE_HOST": "10.0.0.1", "SLUICE_SERVICE_PORT": "9090",
                "SLUICE_SERVICE_PORT_METRICS": "9090", "SLUICE_PORT": "tcp://10.0.0.1:9090",
                "SLUICE_PORT_9090_TCP": "tcp://10.0.0.1:9090", "SLUICE_PORT_9090_TCP_PROTO": "tcp",
                "SLUICE_PORT_9090_TCP_PORT": "9090", "SLUICE_PORT_9090_TCP_ADDR": "10.0.0.1",
                "SLUICE_ADMIN_SERVICE_HOST": "10.0.0.2", "SLUICE_ADMIN_PORT_80_TCP_ADDR": "10.0.0.2",
            ])
    }

    @Test("files that the configuration names must exist")
    func configuredFilesMustExist() throws {
        let directory = try TemporaryDirectory("configuration")
        let path = try directory.write(validConfiguration, to: "sluice.yaml")
        let error = try #require(throws: ConfigurationError.self) {
            try Configuration.load(path: path, environment: [:])
        }
        #expect(error.problems.map(\.key) == ["credentials.team.key-file"])
        #expect(
            error.description
                == "\(path):8:15: credentials.team.key-file: \(directory.file("team.p8")) does not exist")
        try directory.write("key", to: "team.p8")
        let configuration = try Configuration.load(path: path, environment: [:])
        #expect(
            configuration.credentials.first?.kind
                == .token(keyFile: directory.file("team.p8"), keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
    }
}
