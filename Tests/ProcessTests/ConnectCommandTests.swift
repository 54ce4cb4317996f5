import Foundation
import HTTP2
import KafkaTestSupport
import TestSupport
import Testing

/// `sluice config check --connect` and `sluice config acls`.
@Suite("Command line: checks that connect")
struct ConnectCommandTests {
    /// Calls `body` with a configuration whose Kafka and APNs run.
    private func withParts(_ body: (TestKafka, TemporaryDirectory, String) throws -> Void) throws {
        let kafka = try TestKafka([("jobs", 2), ("outcomes", 1), ("dead", 1)])
        let directory = try TemporaryDirectory("connect")
        let simulator = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--directory", directory.path, "--stop-with-input",
                "--ready-file", directory.file("ready"),
            ])
        try simulator.waits(for: "the simulator is ready") { directory.read("ready") != nil }
        let port = try #require(directory.read("ready")?.split(separator: ":").last)
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "key.p8")
        let path = try directory.write(
            """
            kafka:
              bootstrap-servers: \(kafka.bootstrapServers)
              group-id: \(kafka.group)
              topics: {jobs: \(kafka.topic("jobs")), outcomes: \(kafka.topic("outcomes")),
                dead-letters: \(kafka.topic("dead"))}
            apns: {environment: custom, host: localhost, port: \(port), ca-file: ca.pem}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: key.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "sluice.yaml")
        try body(kafka, directory, path)
    }

    @Test func workingPartsAreATableAndJSON() throws {
        try withParts { kafka, _, path in
            let table = try sluice("config", "check", path, "--connect", "--timeout", "5")
            #expect(table.exit == .status(0), "\(table.standardError)")
            #expect(table.standardOutput.hasPrefix("\(path): ok\n"))
            for part in ["✓ kafka ", "✓ group \(kafka.group)", "✓ apns app news ", "✓ file limit "] {
                #expect(table.standardOutput.contains("\n\(part)"), "\(part): \(table.standardOutput)")
            }
            #expect(!table.standardOutput.contains("✗"))
            let json = try sluice("config", "check", path, "--connect", "--json")
            #expect(json.exit == .status(0))
            let lines = json.standardOutput.split(separator: "\n")
            #expect(lines.count > 8)
            for line in lines {
                let document = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                #expect(document?.keys.sorted() == ["finding", "part", "remedy", "verdict"])
            }
        }
    }

    @Test func brokenPartIsNamedWithItsRemedy() throws {
        try withParts { _, _, path in
            let result = try ChildProcess.run(
                Executables.sluice, ["config", "check", path, "--connect", "--timeout", "2"],
                environment: ["SLUICE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:\(try freePort())"])
            #expect(result.exit == .status(69))
            #expect(result.standardOutput.contains("\n✗ kafka "), "\(result.standardOutput)")
            #expect(result.standardOutput.contains("→ correct kafka.bootstrap-servers"))
            #expect(result.standardOutput.contains("\n✓ apns app news "))
            #expect(result.standardError.contains("1 check failed"))
        }
        #expect(try sluice("config", "check", "--json").exit == .status(64))
        #expect(try sluice("config", "check", "--connect", "--timeout", "0").exit == .status(64))
    }

    /// A certificate that has expired is a mistake for the check. A worker that starts serves its other apps.
    @Test func expiredCertificateStopsItsOwnAppOnly() throws {
        try withParts { kafka, directory, path in
            let issued = try CertificateAuthority(
                certificatePEM: directory.read("ca.pem") ?? "",
                privateKeyPEM: directory.read("ca-key.pem") ?? ""
            ).issueClient(commonName: "old", userID: "com.example.old", validity: .expired)
            try directory.write(issued.chainPEM, to: "old.pem")
            try directory.write(issued.privateKeyPEM, to: "old.key")
            let text = try #require(directory.read("sluice.yaml"))
            try directory.write(
                text + """

                      - name: old
                        topics: [com.example.old]
                        credential: {type: certificate, certificate-file: old.pem, key-file: old.key}
                    """, to: "sluice.yaml")
            let check = try sluice("config", "check", path)
            #expect(check.exit == .status(78))
            #expect(check.standardError.contains("the certificate expired on "), "\(check.standardError)")
            #expect(try sluice("config", "acls", path).exit == .status(0))

            let worker = try ChildProcess(
                Executables.sluice,
                ["run", "--config", path, "--stop-with-input", "--ready-file", directory.file("worker")],
                environment: ["SLUICE_ADMIN__LISTEN": "off"])
            try worker.waits(for: "the worker has partitions") { directory.read("worker") != nil }
            let job = """
                {"kind":"push","device-token":"\(deviceToken)","topic":"com.example.news","push-type":"alert","payload":{}}
                """
            let produced = try sluice(
                "produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--file", "-",
                input: job)
            #expect(produced.exit == .status(0), "\(produced.standardError)")
            let outcomes = try sluice(
                "outcomes", "-b", kafka.bootstrapServers, "--from", kafka.topic("outcomes"), "--until-end",
                "--json", "--wait", "60")
            #expect(outcomes.standardOutput.contains("\"accepted\""), "\(outcomes.standardOutput)")
            #expect(worker.standardError.contains("a certificate can't serve its apps"))
            #expect(worker.standardError.contains("old.pem: the certificate expired on "))
            worker.signal(SIGTERM)
            #expect(try worker.wait() == .status(0), "\(worker.standardError)")
        }
    }

    @Test func aclsArePrintedInBothFormats() throws {
        let directory = try TemporaryDirectory("acls")
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "key.p8")
        let path = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1", group-id: push}
            store: {directory: store}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: key.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "sluice.yaml")
        let commands = try sluice("config", "acls", path, "--principal", "User:push")
        #expect(commands.exit == .status(0))
        for option in [
            "--topic 'sluice.jobs'", "--topic 'sluice.changelog'", "--group 'push'",
            "--transactional-id 'push-' --resource-pattern-type prefixed", "--allow-principal 'User:push'",
        ] {
            #expect(commands.standardOutput.contains(option), "\(option)")
        }
        let user = try sluice("config", "acls", path, "--format", "strimzi", "--cluster", "main")
        #expect(user.exit == .status(0))
        #expect(user.standardOutput.contains("kind: KafkaUser\nmetadata:\n  name: 'sluice'\n"))
        for arguments in [
            ["--principal", "sluice"], ["--format", "strimzi", "--principal", "User:CN=a"],
            ["--format", "strimzi", "--cluster", "a b"], ["--format", "other"],
        ] {
            let wrong = try ChildProcess.run(Executables.sluice, ["config", "acls", path] + arguments)
            #expect(wrong.exit == .status(64), "\(arguments)")
        }
    }
}
