import APNSSimulator
import Configuration
import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Checks against real parts: an embedded cluster, a simulator, and directories; each broken in turn.
@Suite("Connection check: real parts")
struct ConnectCheckTests {
    private func results(_ configuration: Configuration) -> [CheckResult] {
        ConnectCheck(configuration, timeout: .seconds(3)).run()
    }

    private func bad(_ configuration: Configuration) -> [CheckResult] {
        results(configuration).filter { $0.verdict == .bad }
    }

    @Test func workingPartsAreUsable() throws {
        try withBed { bed in
            let configuration = bed.configuration {
                $0.store = .init(directory: bed.directory.file("new/store"))
            }
            var reported: [CheckResult] = []
            let results = ConnectCheck(configuration, timeout: .seconds(3)).run { reported.append($0) }
            #expect(results == reported)
            #expect(CheckResult.isUsable(results), "\(results)")
            // Each of the real brokers has a replica of each partition.
            let brokers = TestKafka.realBrokers?.split(separator: ",").count ?? 1
            let plural = brokers == 1 ? "" : "s"
            for (part, finding) in [
                ("kafka", "\(brokers) broker\(plural): "),
                ("topic \(bed.kafka.topic("jobs"))", "3 partitions, \(brokers) replica\(plural)"),
                ("topic \(bed.kafka.topic("jobs"))", "can be read"),
                ("topic \(bed.kafka.topic("changelog"))", "can be read"),
                ("group \(bed.kafka.group)", "its coordinator answers"), ("apns team", "DNS: "),
                ("apns team", "TCP: connected to "), ("apns team", "TLS: TLSv1.3"), ("apns team", "ALPN: h2"),
                ("apns team", "com.example.news: 200"), ("store", "can be written"),
            ] {
                let found = results.filter { $0.part == part && $0.finding.contains(finding) }
                #expect(found.count == 1, "\(part): \(finding): \(results)")
            }
            // Nothing is left behind.
            #expect(!FileManager.default.fileExists(atPath: bed.directory.file("new")))
            let left = try FileManager.default.contentsOfDirectory(atPath: bed.directory.path)
            #expect(!left.contains { $0.hasPrefix(".sluice-check") })
            #expect(bed.simulator.summary.requests == 1)
        }
    }

    @Test func eachBrokenPartOfAPNsIsNamed() throws {
        let closed = Int(try freePort())
        try withBed { bed in
            let other = try TemporaryDirectory("other")
            try other.write(CertificateAuthority().certificatePEM, to: "ca.pem")
            try other.write(CertificateAuthority(commonName: "key").privateKeyPEM, to: "key.p8")
            func findings(_ change: (inout Configuration) -> Void) -> [CheckResult] {
                bad(bed.configuration(change)).filter { $0.part.hasPrefix("apns") }
            }
            let refused = findings { $0.apns.port = closed }
            #expect(refused.count == 1)
            #expect(refused.first?.finding.contains("refused") == true, "\(refused)")
            let left = results(
                bed.configuration {
                    $0.apns.port = closed
                    $0.apps[0].topics += ["com.example.a", "com.example.b"]
                    $0.credentials[0].kind = .token(
                        keys: [
                            .init(file: bed.directory.file("key.p8"), id: "ABC123DEFG"),
                            .init(file: other.file("key.p8"), id: "ZZZ123DEFG"),
                        ], teamID: "DEF123GHIJ")
                }
            ).filter { $0.part.hasPrefix("apns") && $0.verdict == .unchecked }
            #expect(left.count == 2, "\(left)")
            #expect(left.first?.finding == "2 further topics of the credential")
            #expect(left.last?.part.hasSuffix("key ZZZ123DEFG") == true)
            let unknown = findings { $0.apns.host = "nowhere.invalid" }
            #expect(unknown.first?.remedy?.contains("apns.host") == true, "\(unknown)")
            let untrusted = findings { $0.apns.caFile = other.file("ca.pem") }
            #expect(untrusted.first?.remedy?.contains("apns.ca-file") == true, "\(untrusted)")
            // The port of Kafka speaks no TLS.
            let port = bed.kafka.bootstrapServers.split(separator: ":").last.flatMap { Int($0) }
            let plain = findings {
                $0.apns.host = "127.0.0.1"
                $0.apns.port = port ?? 0
            }
            #expect(plain.count == 1, "\(plain)")
            let wrongKey = findings {
                $0.credentials[0].kind = .token(
                    keyFile: other.file("key.p8"), keyID: "ABC123DEFG", teamID: "DEF123GHIJ")
            }
            #expect(wrongKey.first?.finding.contains("403 InvalidProviderToken") == true, "\(wrongKey)")
        }
    }

    @Test func eachKeyOfACredentialIsChecked() throws {
        try withBed { bed in
            let file = bed.directory.file("key.p8")
            let configuration = bed.configuration {
                $0.credentials[0].kind = .token(
                    keys: [.init(file: file, id: "ZZZ123DEFG"), .init(file: file, id: "ABC123DEFG")],
                    teamID: "DEF123GHIJ")
            }
            let found = results(configuration).filter { $0.part.hasPrefix("apns team, key") }
            let unknown = found.filter { $0.part.hasSuffix("ZZZ123DEFG") }
            #expect(unknown.last?.verdict == .bad, "\(found)")
            #expect(unknown.last?.finding.contains("InvalidProviderToken") == true)
            let known = found.filter { $0.part.hasSuffix("ABC123DEFG") }
            #expect(known.map(\.verdict) == [.good], "\(found)")
        }
    }

    @Test func serverIsKnownByItsAuthority() throws {
        try withBed(simulator: { $0.serverNames = ["push.example"] }) { bed in
            let named = bad(bed.configuration { $0.apns.authority = "push.example:443" })
            #expect(named == [])
            let unnamed = bad(bed.configuration())
            #expect(unnamed.count == 1, "\(unnamed)")
            #expect(unnamed.first?.remedy?.contains("as its certificate does") == true)
        }
    }

    @Test func clientCertificateIsCheckedWithItsServer() throws {
        try withBed { bed in
            let own = try CertificateAuthority(
                certificatePEM: bed.directory.read("ca.pem") ?? "",
                privateKeyPEM: bed.directory.read("ca-key.pem") ?? "")
            func results(_ authority: CertificateAuthority, days: Int) throws -> [CheckResult] {
                let issued = try authority.issueClient(
                    commonName: "news", userID: "com.example.news", validity: .days(days))
                try bed.directory.write(issued.chainPEM, to: "client.pem")
                try bed.directory.write(issued.privateKeyPEM, to: "client.key")
                return self.results(
                    bed.configuration {
                        $0.credentials[0].kind = .certificate(
                            certificateFile: bed.directory.file("client.pem"),
                            keyFile: bed.directory.file("client.key"))
                    }
                ).filter { $0.part == "apns team" }
            }
            let good = try results(own, days: 365)
            #expect(good.allSatisfy { $0.verdict == .good }, "\(good)")
            #expect(good.contains { $0.finding.hasPrefix("the certificate is valid until ") })
            let short = try results(own, days: 6)
            #expect(short.filter { $0.verdict != .good }.map(\.verdict) == [.warning], "\(short)")
            let foreign = try results(CertificateAuthority(), days: 365)
            #expect(foreign.last?.verdict == .bad, "\(foreign)")
            #expect(foreign.last?.remedy?.isEmpty == false)
        }
    }

    @Test func topicOfAnotherTeamIsNamed() throws {
        try withBed(simulator: { $0.topics = ["com.example.news"] }) { bed in
            let found = bad(bed.configuration { $0.apps[0].topics.append("com.example.other") })
            #expect(found.count == 1, "\(found)")
            #expect(found.first?.finding == "com.example.other: 400 TopicDisallowed")
        }
    }

    @Test func impossibleTokenProvesTheCredentialWhereDevicesAreChecked() throws {
        let rule = SimulatorOptions.DeviceRule(prefix: "00", reason: .badDeviceToken)
        try withBed(simulator: { $0.deviceRules = [rule] }) { bed in
            let found = results(bed.configuration())
            #expect(CheckResult.isUsable(found))
            #expect(found.contains { $0.finding.contains("400 BadDeviceToken: the credential is accepted") })
        }
    }

    @Test func eachBrokenPartOfKafkaIsNamed() throws {
        try withBed(embedsKafka: true) { bed in
            let cluster = try #require(bed.kafka.embedded)
            let jobs = bed.kafka.topic("jobs")
            func findings(_ change: (inout Configuration) -> Void = { _ in }) -> [CheckResult] {
                bad(bed.configuration(change)).filter { !$0.part.hasPrefix("apns") }
            }
            let tls = findings { $0.kafka.properties = [.init(name: "security.protocol", value: "SSL")] }
            #expect(tls.map(\.part) == ["kafka"])
            #expect(tls.first?.finding.contains(ConnectionFault.brokerWithoutTLS.advice) == true, "\(tls)")
            let producer = findings {
                $0.kafka.producerProperties = [.init(name: "security.protocol", value: "SSL")]
            }
            #expect(producer.map(\.part) == ["producer"], "\(producer)")
            cluster.setLeader(nil, topic: jobs, partition: 1)
            let leaderless = findings()
            #expect(leaderless.map(\.part) == ["topic \(jobs)"], "\(leaderless)")
            #expect(leaderless.first?.finding == "3 partitions, 1 without a leader")
            cluster.setLeader(1, topic: jobs, partition: 1)
            // Kafka's code 30: no right to the group.
            cluster.fail(.findCoordinator, with: Array(repeating: 30, count: 1_000))
            let group = findings()
            #expect(group.map(\.part) == ["group \(bed.kafka.group)"], "\(group)")
            #expect(group.first?.finding.contains("Group authorization failed") == true, "\(group)")
            // Kafka's code 29: no right to the topic. The bed's readers take some of the answers.
            cluster.fail(.fetch, with: Array(repeating: 29, count: 1_000))
            let topic = findings().filter { !$0.part.hasPrefix("group") }
            #expect(topic.map(\.part) == ["topic \(jobs)"], "\(topic)")
            #expect(topic.first?.finding.contains("can't be read: ") == true, "\(topic)")
            #expect(topic.first?.remedy?.contains("sluice config acls") == true)
        }
    }

    @Test func unreachableKafkaIsNamed() throws {
        let closed = try freePort()
        try withBed { bed in
            let found = bad(bed.configuration { $0.kafka.bootstrapServers = "127.0.0.1:\(closed)" })
            #expect(found.map(\.part) == ["kafka"])
            #expect(found.first?.finding.contains(ConnectionFault.refused.advice) == true, "\(found)")
        }
    }

    @Test func directoryThatCantBeWrittenIsNamed() throws {
        try withBed { bed in
            // Not even root can write there.
            for path in ["/proc/store", "/proc/sys"] {
                let found = bad(bed.configuration { $0.store = .init(directory: path, changelog: .off) })
                #expect(found.map(\.part) == ["store"], "\(found)")
            }
        }
    }
}
