import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import TestSupport
import Testing

/// Mistakes of a first day, and the answers that name them.
@Suite("Command line: a first day")
struct FirstDayTests {
    @Test func missingFileOfJobsIsReportedBeforeConnecting() throws {
        let directory = try TemporaryDirectory("jobs")
        // No connection would answer here within the time of the test.
        for (path, reason) in [
            (directory.file("none.jsonl"), "No such file"), (directory.path, "Is a directory"),
        ] {
            let result = try sluice("produce", "-b", "192.0.2.1:9", "--file", path)
            #expect(result.exit == .status(65))
            #expect(result.standardError.contains("can't read \(path): \(reason)"), "\(result.standardError)")
        }
    }

    @Test func topicThatKafkaCantNameIsRefused() throws {
        for topic in ["a b:3", "a/b:3", "..:1", String(repeating: "a", count: 250) + ":1"] {
            let result = try sluice("kafka", "--port", "0", "--topic", topic)
            #expect(result.exit == .status(64))
            #expect(result.standardError.contains("can't name a Kafka topic"), "\(result.standardError)")
        }
    }

    @Test func oneJobIsSingular() throws {
        let kafka = try TestKafka([("jobs", 1)])
        let job = """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":{}}
            """
        let result = try sluice(
            "produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--file", "-",
            input: job)
        #expect(
            result.standardOutput.hasPrefix("1 job to \(kafka.topic("jobs")) (1 partition) in "),
            "\(result.standardOutput)")
    }

    @Test func outcomesWaitsForAFirstRecord() throws {
        let kafka = try TestKafka([("outcomes", 2)])
        let reader = try ChildProcess(
            Executables.sluice,
            [
                "outcomes", "-b", kafka.bootstrapServers, "--from", kafka.topic("outcomes"), "--until-end",
                "--json", "--wait", "600",
            ])
        try reader.waitForOutput("has no record yet; waiting up to 600 seconds")
        try kafka.produce(to: "outcomes", [NewRecord(value: "{}", partition: 1)])
        #expect(try reader.wait() == .status(0))
        #expect(reader.standardOutput == "{}\n")
    }

    @Test func outcomesEndsWithoutARecordAfterItsWait() throws {
        let kafka = try TestKafka([("outcomes", 1)])
        let arguments = [
            "outcomes", "-b", kafka.bootstrapServers, "--from", kafka.topic("outcomes"), "--until-end",
        ]
        let patient = try ChildProcess.run(Executables.sluice, arguments + ["--wait", "1"])
        #expect(patient.exit == .status(0))
        #expect(patient.standardOutput == "")
        #expect(patient.standardError.contains("waiting up to 1 second\n"))
        #expect(patient.standardError.contains("has no record; check that a worker runs"))
        let hasty = try ChildProcess.run(Executables.sluice, arguments + ["--wait", "0"])
        #expect(hasty.exit == .status(0))
        #expect(hasty.standardError == "")
    }

    @Test func wrongSecurityProtocolIsNamed() throws {
        let kafka = try TestKafka([("jobs", 1)], isOwn: true)
        let tls = try sluice(
            "outcomes", "-b", kafka.bootstrapServers, "--from", kafka.topic("jobs"), "-X",
            "security.protocol=SSL")
        #expect(tls.exit == .status(69))
        #expect(tls.standardError.contains(ConnectionFault.brokerWithoutTLS.advice), "\(tls.standardError)")

        let directory = try TemporaryDirectory("tls")
        let server = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--directory", directory.path, "--stop-with-input",
                "--ready-file",
                directory.file("ready"),
            ])
        try server.waits(for: "a server with TLS") { directory.read("ready") != nil }
        let address = try #require(directory.read("ready")).trimmingCharacters(in: .whitespacesAndNewlines)
        let plain = try sluice("outcomes", "-b", address)
        #expect(plain.exit == .status(69))
        #expect(plain.standardError.contains(ConnectionFault.brokerWithTLS.advice), "\(plain.standardError)")
    }

    @Test func workerNamesAWrongSecurityProtocol() throws {
        let kafka = try TestKafka([("jobs", 1)], isOwn: true)
        let directory = try TemporaryDirectory("worker")
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "key.p8")
        let path = try directory.write(
            """
            kafka:
              bootstrap-servers: \(kafka.bootstrapServers)
              properties: {security.protocol: SSL}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: key.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "sluice.yaml")
        let result = try ChildProcess.run(
            Executables.sluice, ["run", "--config", path], environment: ["SLUICE_ADMIN__LISTEN": "off"])
        #expect(result.exit == .status(69))
        #expect(
            result.standardError.contains(ConnectionFault.brokerWithoutTLS.advice), "\(result.standardError)")
    }

    @Test func propertyOfAToolIsReadFromAFile() throws {
        let directory = try TemporaryDirectory("property")
        let wrong = try sluice("outcomes", "-X", "sasl.password-file=\(directory.file("none"))")
        #expect(wrong.exit == .status(64))
        #expect(wrong.standardError.contains("sasl.password-file: \(directory.file("none")) does not exist"))
        // The value shows in librdkafka's complaint only because the property is none of the secret ones.
        let file = try directory.write("s3cret\n", to: "value")
        let level = try sluice("outcomes", "-X", "security.protocol-file=\(file)")
        #expect(level.exit == .status(78))
        #expect(level.standardError.contains("s3cret"), "\(level.standardError)")
    }

    @Test func installedExecutableIsWhereReadmeNamesIt() throws {
        let directory = try TemporaryDirectory("install")
        let make = try ChildProcess.run(
            "make",
            [
                "-C", Repository.root, "--no-print-directory", "install", "BINARY=\(Executables.sluice)",
                "DESTDIR=\(directory.path)",
            ])
        #expect(make.exit == .status(0), "\(make.standardError)")
        #expect(try Repository.read("README.md").contains("`/usr/local/bin`"))
        let installed = try ChildProcess.run(directory.file("usr/local/bin/sluice"), ["--version"])
        #expect(installed.exit == .status(0))
    }

    @Test func configurationThatIsABombIsAnswered() throws {
        let directory = try TemporaryDirectory("bomb")
        var bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        for level in 1...30 {
            bomb +=
                "a\(level): &a\(level) [\(Array(repeating: "*a\(level - 1)", count: 10).joined(separator: ", "))]\n"
        }
        let list = "apps:\n" + String(repeating: "- a\n", count: 2_500_000)
        for (text, says) in [(bomb, "aliases that repeat other aliases"), (list, "larger than 1 MB")] {
            let result = try sluice("config", "check", directory.write(text, to: "sluice.yaml"))
            #expect(result.exit == .status(78))
            #expect(result.standardError.contains(says), "\(result.standardError)")
        }
    }
}
