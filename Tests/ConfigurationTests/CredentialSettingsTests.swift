import Configuration
import Testing

/// Credentials with environments, servers and keys of their own.
@Suite("Configuration: credentials") struct CredentialSettingsTests {
    private func parse(
        _ credentials: String, apns: String = "{}", credential: String = "team",
        environment: [String: String] = [:]
    ) throws -> Configuration {
        try Configuration.parse(
            """
            kafka: {bootstrap-servers: "a:1"}
            apns: \(apns)
            credentials:
            \(credentials.split(separator: "\n").map { "  \($0)" }.joined(separator: "\n"))
            apps:
              - {name: news, topics: [com.example.news], credential: \(credential)}
            """, name: "f", directory: "/etc", environment: environment)
    }

    private func problems(
        _ credentials: String, apns: String = "{}", credential: String = "team"
    ) throws -> [String] {
        let error = try #require(throws: ConfigurationError.self) {
            try parse(credentials, apns: apns, credential: credential)
        }
        return error.problems.map { "\($0.key): \($0.message)" }
    }

    private let team = "team: {type: token, key-file: AuthKey_ABC123DEFG.p8, team-id: DEF123GHIJ"

    @Test("an app has a credential for each environment, the first for jobs that name none")
    func appHasCredentialsOfSeveralEnvironments() throws {
        let configuration = try parse(
            """
            \(team)}
            sandbox: {type: token, key-file: k.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ, environment: development}
            """, credential: "[team, sandbox]")
        let credentials = configuration.credentials(of: configuration.apps[0])
        #expect(credentials.map(\.name) == ["team", "sandbox"])
        #expect(
            credentials.map { configuration.endpoint(of: $0).environment } == [.production, .development])
        #expect(
            credentials.map { configuration.endpoint(of: $0).host } == [
                "api.push.apple.com", "api.sandbox.push.apple.com",
            ])
        #expect(credentials.map { configuration.endpoint(of: $0).port } == [443, 443])
    }

    @Test("a credential of another environment inherits neither host nor authorities of section apns")
    func ownEnvironmentInheritsNoServer() throws {
        let apns = "{environment: custom, host: simulator, port: 8443, ca-file: ca.pem, authority: relay}"
        let configuration = try parse(
            """
            \(team)}
            other: {type: token, key-file: k.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ, environment: production}
            same: {type: token, key-file: k.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ, port: 2197}
            """, apns: apns)
        let other = configuration.endpoint(of: configuration.credentials[1])
        #expect(other == .init(environment: .production, host: "api.push.apple.com", port: 443))
        let same = configuration.endpoint(of: configuration.credentials[2])
        #expect(
            same
                == .init(
                    environment: .custom, host: "simulator", port: 2197, authority: "relay",
                    caFile: "/etc/ca.pem"))
        #expect(configuration.endpoint(of: configuration.credentials[0]) == configuration.apns.endpoint)
    }

    @Test("a port of section apns for firewalls applies to both of Apple's environments")
    func firewallPortAppliesToBothEnvironments() throws {
        let configuration = try parse("\(team), environment: development}", apns: "{port: 2197}")
        #expect(configuration.endpoint(of: configuration.credentials[0]).port == 2197)
    }

    @Test("keys are listed in order of preference, and a file with Apple's name has its key-id")
    func keysAreListedInOrderOfPreference() throws {
        let configuration = try parse(
            """
            team:
              type: token
              team-id: DEF123GHIJ
              keys:
                - {key-file: keys/AuthKey_ABC123DEFG.p8}
                - {key-file: other.p8, key-id: XYZ123DEFG}
            """)
        #expect(
            configuration.credentials[0].kind
                == .token(
                    keys: [
                        .init(file: "/etc/keys/AuthKey_ABC123DEFG.p8", id: "ABC123DEFG"),
                        .init(file: "/etc/other.p8", id: "XYZ123DEFG"),
                    ], teamID: "DEF123GHIJ"))
        #expect(
            configuration.credentials[0].kind.files.map(\.setting) == [
                "keys[0].key-file", "keys[1].key-file",
            ])
    }

    @Test("mistakes of credentials are reported with their setting")
    func mistakesOfCredentialsAreReported() throws {
        #expect(
            try problems("team: {type: token, key-file: my.p8, team-id: DEF123GHIJ}")
                .contains { $0.hasPrefix("credentials.team.key-id: is required") })
        #expect(
            try problems("\(team), keys: [{key-file: a.p8, key-id: ABC123DEFG}]}")
                .contains { $0.contains("move that key into the list") })
        #expect(
            try problems(
                "team: {type: token, team-id: DEF123GHIJ, keys: [{key-file: a.p8, key-id: ABC123DEFG}, {key-file: b.p8, key-id: ABC123DEFG}]}"
            ).contains { $0.contains("lists key `ABC123DEFG` twice") })
        #expect(
            try problems("\(team), environment: custom}")
                .contains { $0.hasPrefix("credentials.team.host: is required") })
        #expect(
            try problems("\(team), environment: development, host: api.push.apple.com}")
                .contains { $0.contains("is Apple's server of environment `production`") })
        #expect(
            try problems("\(team), authority: \"https://a\"}")
                .contains { $0.hasPrefix("credentials.team.authority: ") })
        #expect(
            try problems(
                """
                \(team)}
                twin: {type: token, key-file: k.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
                """, credential: "[team, twin]"
            ).contains { $0.contains("has two credentials of environment `production`") })
        #expect(
            try problems("\(team)}", credential: "[team, taem]")
                .contains { $0.contains("there is no `taem`") && $0.contains("did you mean `team`?") })
        #expect(
            try problems("\(team)}", credential: "team, supersede: [alert]")
                .contains { $0.contains("`alert` is not a push type with a whole state") })
    }

    @Test("a variable gives an app several credentials")
    func variableGivesSeveralCredentials() throws {
        let configuration = try parse(
            """
            \(team)}
            sandbox: {type: token, key-file: k.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ, environment: development}
            """, environment: ["SLUICE_APPS__NEWS__CREDENTIAL": "team,sandbox"])
        #expect(configuration.apps[0].credentials == ["team", "sandbox"])
    }
}
