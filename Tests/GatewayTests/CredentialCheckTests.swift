import Configuration
import HTTP2
import TestSupport
import Testing

@testable import Gateway

/// Faults of keys, certificates and authorities that are found without a connection, each with the setting's place.
@Suite("Configuration: files of credentials")
struct CredentialCheckTests {
    private let directory: TemporaryDirectory
    private let authority: CertificateAuthority

    init() throws {
        directory = try TemporaryDirectory("credentials")
        authority = try CertificateAuthority()
    }

    private func write(_ issued: IssuedCertificate, key: String? = nil) throws {
        try directory.write(issued.chainPEM, to: "client.pem")
        try directory.write(key ?? issued.privateKeyPEM, to: "client.key")
    }

    /// Line 3 names the certificate, line 4 its key.
    private func problems(
        _ extra: String = "", environment: [String: String] = [:], now: Int64? = nil
    ) throws -> [ConfigurationProblem] {
        let (configuration, places) = try load(extra, environment: environment)
        return if let now { configuration.checkUsable(places: places, now: now) } else {
            configuration.checkUsable(places: places)
        }
    }

    private func load(
        _ extra: String = "", environment: [String: String] = [:]
    ) throws -> (configuration: Configuration, places: SettingPlaces) {
        let text = """
            kafka: {bootstrap-servers: "a:1"}
            credentials: {app: {type: certificate,
                certificate-file: client.pem,
                key-file: client.key}}
            apps: [{name: news, topics: [com.example.news], credential: app}]

            """
        return try Configuration.loadWithPlaces(
            path: directory.write(text + extra, to: "sluice.yaml"), environment: environment)
    }

    private func line(_ problem: ConfigurationProblem?) -> Int? {
        guard case .file(_, let line, _)? = problem?.location else { return nil }
        return line
    }

    @Test func faultOfTheStoreKeyFileHasItsPlace() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        let store = """
            store:
              directory: store
              encryption: {key-file: store.keys}

            """
        try directory.write("a no-key\n", to: "store.keys")
        let found = try problems(store)
        #expect(found.map(\.key) == ["store.encryption.key-file"])
        #expect(found.first.map { line($0) == 8 } == true)
        #expect(found.first?.message.contains("store.keys, line 1 needs the Base64 text") == true)
        try directory.write("a AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n", to: "store.keys")
        #expect(try problems(store) == [])
        #expect(throws: ConfigurationError.self) { try load("store: {directory: a, encryption: {}}\n") }
    }

    @Test func goodCertificateHasNoProblem() throws {
        try write(
            authority.issueClient(
                commonName: "a", userID: "com.example.news",
                topics: ["com.example.news", "com.example.news.voip"]))
        #expect(try problems() == [])
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        #expect(try problems() == [])
        // A server other than APNs may ask for a certificate of its own kind.
        try write(authority.issueClient(commonName: "relay"))
        #expect(try problems() == [])
    }

    @Test func certificateOfATopicWithSuffixServesItsApp() throws {
        for topic in ["com.example.news.voip", "com.example.news.complication"] {
            try write(authority.issueClient(commonName: "a", userID: topic))
            #expect(try problems() == [])
            let file = try CertificateFile(reading: .file(directory.file("client.pem")))
            let found = CertificateVerdict.topic(for: "com.example.news", of: file)
            #expect(found?.name == topic)
            #expect(found?.type == (topic.hasSuffix("voip") ? .voip : .complication))
            #expect(CertificateVerdict.topic(for: "com.example", of: file) == nil)
        }
        try write(authority.issueClient(commonName: "a", userID: "com.example.news.other"))
        #expect(try problems().count == 1)
    }

    @Test func datesAndTopicsKeepNoWorkerFromStarting() throws {
        for (topic, validity) in [
            ("com.example.news", CertificateValidity.expired), ("com.example.news", .future),
            ("com.example.other", .days(365)),
        ] {
            try write(authority.issueClient(commonName: "a", userID: topic, validity: validity))
            let (configuration, places) = try load()
            #expect(configuration.checkStartable(places: places) == [])
            #expect(configuration.certificateFaults(places: places).count == 1)
            #expect(
                configuration.certificateFaults(places: places) == configuration.checkUsable(places: places))
        }
    }

    @Test func contentOfAFileAtAWrongPropertyIsNotPrinted() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        try directory.write("s3cret", to: "password")
        for property in ["SECURITY_PROTOCOL", "DEBUG", "NO_SUCH"] {
            let found = try problems(
                environment: ["SLUICE_KAFKA__PROPERTIES__\(property)_FILE": directory.file("password")])
            #expect(!found.isEmpty, "\(property)")
            #expect(!"\(found)".contains("s3cret"), "\(found)")
        }
    }

    @Test func fieldAmongPassedHeadersIsReported() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        for name in ["environment", "Event", "kind", "ttl", "apns-topic"] {
            let found = try problems("jobs: {pass-headers: [\(name), x-own]}\n")
            #expect(found.map(\.key) == ["jobs.pass-headers"], "\(found)")
            #expect(line(found.first) == 6)
        }
        #expect(try problems("jobs: {pass-headers: [events, x-own]}\n") == [])
    }

    @Test func certificateOutOfDateIsReportedAtItsLine() throws {
        for (validity, says) in [
            (CertificateValidity.expired, "the certificate expired on "),
            (.future, "is valid from "),
        ] {
            try write(
                authority.issueClient(commonName: "a", userID: "com.example.news", validity: validity))
            let problem = try problems().first
            #expect(problem?.key == "credentials.app.certificate-file")
            #expect(line(problem) == 3)
            #expect(problem?.message.contains(says) == true, "\(problem as Any)")
        }
    }

    @Test func datesDecideAtTheirSecond() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        let file = try CertificateFile(reading: .file(directory.file("client.pem")))
        #expect(file.notAfter - file.notBefore == 365 * 86_400 + 3_600)
        #expect(try problems(now: file.notBefore) == [])
        #expect(try problems(now: file.notAfter) == [])
        #expect(try problems(now: file.notBefore - 1).count == 1)
        #expect(try problems(now: file.notAfter + 1).count == 1)
        #expect(CertificateVerdict.date(1_700_000_000) == "2023-11-14 22:13 UTC")
    }

    @Test func certificateOfAnotherAppIsReported() throws {
        for issued in [
            try authority.issueClient(commonName: "a", userID: "com.example.other"),
            try authority.issueClient(
                commonName: "a", userID: "com.example.news", topics: ["com.example.other"]),
        ] {
            try write(issued)
            let problem = try problems().first
            #expect(line(problem) == 3)
            #expect(
                problem?.message.contains("is not for com.example.news, but for com.example.other") == true,
                "\(problem as Any)")
        }
    }

    @Test func keyOfAnotherCertificateIsReportedAtItsLine() throws {
        let other = try authority.issueClient(commonName: "b")
        try write(
            authority.issueClient(commonName: "a", userID: "com.example.news"), key: other.privateKeyPEM)
        let found = try problems()
        #expect(found.map(\.key) == ["credentials.app.key-file"])
        #expect(line(found.first) == 4)
        #expect(found.first?.message.contains("doesn't belong to the certificate") == true)
    }

    @Test func unreadableFilesAreReportedTogetherAtTheirLines() throws {
        try directory.write("nonsense", to: "client.pem")
        try directory.write("nonsense", to: "client.key")
        try directory.write("nonsense", to: "ca.pem")
        let found = try problems("apns: {ca-file: ca.pem}\n")
        #expect(
            found.map(\.key) == [
                "apns.ca-file", "credentials.app.certificate-file", "credentials.app.key-file",
            ])
        #expect(found.map(line) == [6, 3, 4])
    }

    @Test func signingKeyInsideOfAnAppIsReportedAtItsLine() throws {
        try directory.write("nonsense", to: "key.p8")
        let text = """
            kafka: {bootstrap-servers: "a:1"}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-id: ABC123DEFG, team-id: DEF123GHIJ,
                  key-file: key.p8}
            """
        let (configuration, places) = try Configuration.loadWithPlaces(
            path: directory.write(text, to: "sluice.yaml"), environment: [:])
        let found = configuration.checkUsable(places: places)
        #expect(found.map(\.key) == ["apps[0].credential.key-file"])
        #expect(line(found.first) == 6)
    }

    @Test func variableWithTheWrongFileIsBlamed() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        let wrong = try directory.write("nonsense", to: "wrong.key")
        let variable = "SLUICE_CREDENTIALS__APP__KEY_FILE"
        let found = try problems(environment: [variable: wrong])
        #expect(found.map(\.location) == [.environment(variable: variable)])
        let property = "SLUICE_KAFKA__PROPERTIES__SSL_CA_LOCATION"
        let kafka = try problems(
            environment: [property: wrong, "SLUICE_KAFKA__PROPERTIES__SECURITY_PROTOCOL": "SSL"])
        #expect(Set(kafka.map(\.location.description)) == ["environment variable \(property)"], "\(kafka)")
    }

    @Test func propertiesOfKafkaAreReportedAtTheirLines() throws {
        try write(authority.issueClient(commonName: "a", userID: "com.example.news"))
        try directory.write("s3cret", to: "password")
        let found = try problems(
            """
            # A second section of Kafka would be a mistake, so the variables below complete the first.

            """,
            environment: [
                "SLUICE_KAFKA__PROPERTIES__NO_SUCH": "1",
                "SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD_FILE": directory.file("password"),
            ])
        #expect(found.map(\.key) == ["kafka.properties.no.such"])
        #expect(found.first?.location == .environment(variable: "SLUICE_KAFKA__PROPERTIES__NO_SUCH"))
        #expect(!"\(found)".contains("s3cret"))
    }
}
