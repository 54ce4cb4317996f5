import APNS
import APNSSimulator
import Configuration
import Foundation
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Keys and certificates that change while a worker runs.
@Suite struct CredentialRenewalTests {
    /// Runs a test with a simulator that knows the team's first key, and a second key in `other.p8`.
    private func withTwoKeys(
        knowsFirst: Bool = true, _ body: (WorkerBed) throws -> Void
    ) throws {
        let second = try CertificateAuthority(commonName: "second key").privateKeyPEM
        try withBed(simulator: { options in
            let other = SimulatorKey(keyID: "XYZ123DEFG", teamID: "DEF123GHIJ", key: .text(second))
            guard case .keys(let keys) = options.providerTokens else { return }
            options.providerTokens = .keys((knowsFirst ? keys : []) + [other])
        }) { bed in
            try bed.directory.write(second, to: "other.p8")
            try body(bed)
        }
    }

    private func otherKey(_ bed: WorkerBed) -> Configuration.Credential.Key {
        .init(file: bed.directory.file("other.p8"), id: "XYZ123DEFG")
    }

    @Test func keysAreExchangedUnderLoadWithoutAFailedPush() throws {
        try withTwoKeys { bed in
            let worker = try bed.worker { $0.delivery.shards = 2 }
            for round in UInt64(0)..<6 {
                try bed.produce(200, seed: 1920 + round)
                try bed.waitForOutcomes(200 * Int(round) + 50)
                let isOther = round.isMultiple(of: 2)
                worker.renewCredentials(
                    bed.configuration {
                        if isOther {
                            $0.credentials[0].kind = .token(keys: [otherKey(bed)], teamID: "DEF123GHIJ")
                        }
                    })
            }
            let outcomes = try bed.waitForOutcomes(1200)
            #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.attempts == 1 })
            #expect(worker.credentialReports[0].renewals == 6)
            #expect(worker.credentialReports[0].refusals == 0)
            try eventually("only connections of the last key are open") {
                worker.poolReports().allSatisfy { $0.pool.connections.count == 2 }
            }
            bed.stop(worker)
            #expect(bed.simulator.summary.accepted == 1200)
            #expect(bed.simulator.summary.rejected.isEmpty)
        }
    }

    @Test func renewedCertificateIsTakenOverFromItsFileAndAFaultyOneIsNot() throws {
        let log = LogRecorder()
        try withBed { bed in
            let authority = try CertificateAuthority(
                certificatePEM: try #require(bed.directory.read("ca.pem")),
                privateKeyPEM: try #require(bed.directory.read("ca-key.pem")))
            func issue(_ days: Int) throws {
                let issued = try authority.issueClient(
                    commonName: "news", userID: newsTopic, topics: [newsTopic], validity: .days(days))
                // Replaced by renaming, as tools do.
                for (text, name) in [(issued.privateKeyPEM, "client.key"), (issued.chainPEM, "client.pem")] {
                    try bed.directory.write(text, to: "\(name).new")
                    #expect(rename(bed.directory.file("\(name).new"), bed.directory.file(name)) == 0)
                }
            }
            try issue(10)
            let worker = try bed.worker(log: log) {
                $0.credentials[0].kind = .certificate(
                    certificateFile: bed.directory.file("client.pem"),
                    keyFile: bed.directory.file("client.key"))
            }
            #expect(log.messages.count(containing: "the certificate expires soon") == 1)
            try bed.produce(20, seed: 1930)
            try bed.waitForOutcomes(20)
            let first = try #require(worker.credentialReports[0].expires)

            try issue(100)
            try eventually("the new certificate is in use") { worker.credentialReports[0].renewals == 1 }
            #expect(try #require(worker.credentialReports[0].expires) > first)
            try bed.produce(20, seed: 1931)
            try bed.waitForOutcomes(40)

            try bed.directory.write("not a certificate", to: "client.pem")
            try eventually("the fault is reported") { worker.credentialReports[0].fault != nil }
            #expect(log.messages.count(containing: "the credential can't be renewed") == 1)
            try bed.produce(20, seed: 1932)
            try bed.waitForOutcomes(60)

            try issue(200)
            try eventually("the next good certificate is in use") { worker.credentialReports[0].fault == nil }
            try bed.produce(20, seed: 1933)
            let outcomes = try bed.waitForOutcomes(80)
            #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.attempts == 1 })
            #expect(worker.credentialReports[0].renewals == 2)
            #expect(worker.credentialReports[0].renewalFailures == 1)
            bed.stop(worker)
            #expect(bed.simulator.summary.rejected.isEmpty)
        }
    }

    /// Authorities that APNs doesn't know refuse the connection with a TLS alert.
    @Test func refusedRenewedCertificateLeavesTheOneBeforeInUse() throws {
        let log = LogRecorder()
        try withBed { bed in
            let known = try CertificateAuthority(
                certificatePEM: try #require(bed.directory.read("ca.pem")),
                privateKeyPEM: try #require(bed.directory.read("ca-key.pem")))
            func issue(by authority: CertificateAuthority) throws {
                let issued = try authority.issueClient(
                    commonName: "news", userID: newsTopic, topics: [newsTopic])
                try bed.directory.write(issued.privateKeyPEM, to: "client.key")
                try bed.directory.write(issued.chainPEM, to: "client.pem")
            }
            try issue(by: known)
            let worker = try bed.worker(log: log) {
                $0.credentials[0].kind = .certificate(
                    certificateFile: bed.directory.file("client.pem"),
                    keyFile: bed.directory.file("client.key"))
            }
            try bed.produce(20, seed: 1934)
            try bed.waitForOutcomes(20)
            try issue(by: try CertificateAuthority(commonName: "stranger"))
            worker.renewCredentials()
            try eventually("the certificate is refused") { worker.credentialReports[0].refusals == 1 }
            try bed.produce(20, seed: 1935)
            let outcomes = try bed.waitForOutcomes(40)
            #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.attempts == 1 })
            #expect(log.messages.count(containing: "APNs refuses the renewed certificate") == 1)
            #expect(log.messages.count(containing: "APNs refuses this credential") == 0)
            bed.stop(worker)
        }
    }

    /// The refusal ends before the certificate is mended, as that by a wrong server does.
    @Test func stopOfARefusedCertificateEndsWithinSeconds() throws {
        let log = LogRecorder()
        try withBed { bed in
            let authority = try CertificateAuthority(
                certificatePEM: try #require(bed.directory.read("ca.pem")),
                privateKeyPEM: try #require(bed.directory.read("ca-key.pem")))
            let issued = try authority.issueClient(
                commonName: "news", userID: newsTopic, topics: [newsTopic])
            try bed.directory.write(issued.privateKeyPEM, to: "client.key")
            try bed.directory.write(issued.chainPEM, to: "client.pem")
            let worker = try bed.worker(log: log) {
                $0.credentials[0].kind = .certificate(
                    certificateFile: bed.directory.file("client.pem"),
                    keyFile: bed.directory.file("client.key"))
            }
            try bed.produce(20, seed: 1936)
            try bed.waitForOutcomes(20)
            try bed.simulator.replaceFaults(
                with: FaultTimeline(entries: [.init(lasts: .seconds(2), .certificate(.client))]))
            try eventually("the pool stops") {
                log.messages.count(containing: "APNs refuses this credential") > 0
            }
            try bed.produce(20, seed: 1937)
            let outcomes = try bed.waitForOutcomes(40)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            bed.stop(worker)
        }
    }

    /// A server or a balancer refuses a certificate, though the credential has keys.
    @Test func refusedCertificateOfACredentialWithKeysStopsNoPool() throws {
        let log = LogRecorder()
        try withBed { bed in
            let worker = try bed.worker(log: log)
            try bed.produce(20, seed: 1938)
            try bed.waitForOutcomes(20)
            var goAway = FaultTimeline.GoAway()
            goAway.reason = "BadCertificate"
            goAway.connections = .all
            try bed.simulator.replaceFaults(
                with: FaultTimeline(entries: [.init(lasts: .seconds(2), .goAway(goAway))]))
            try eventually("a certificate is refused") {
                log.messages.count(containing: "which this credential does not have") > 0
            }
            try bed.produce(20, seed: 1939)
            let outcomes = try bed.waitForOutcomes(40)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(log.messages.count(containing: "APNs refuses this credential") == 0)
            #expect(worker.credentialReports[0].refusals == 0)
            bed.stop(worker)
        }
    }

    @Test func nextKeyTakesOverWhenAPNsRefusesTheFirst() throws {
        let log = LogRecorder()
        try withTwoKeys(knowsFirst: false) { bed in
            let worker = try bed.worker(log: log) {
                $0.delivery.shards = 2
                guard case .token(let keys, let teamID) = $0.credentials[0].kind else { return }
                $0.credentials[0].kind = .token(keys: keys + [otherKey(bed)], teamID: teamID)
            }
            try bed.produce(100, seed: 1940)
            let outcomes = try bed.waitForOutcomes(100)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(worker.credentialReports[0].refusals == 1)
            #expect(log.messages.count(containing: "the next key takes over") == 1)
            #expect(worker.snapshot().totals.stops == 0)
            bed.stop(worker)
            #expect(bed.simulator.summary.accepted == 100)
        }
    }

    /// A server refuses the good key by mistake. The other key is revoked: the second of the list, or that before a
    /// renewal, which the worker keeps as the last.
    @Test(arguments: [false, true])
    func mistakenRefusalOfTheOnlyGoodKeyEndsSoon(isRenewed: Bool) throws {
        let log = LogRecorder()
        let revoked = try CertificateAuthority(commonName: "revoked").privateKeyPEM
        try withBed { bed in
            try bed.directory.write(revoked, to: "other.p8")
            let worker = try bed.worker(log: log, logLevel: .notice) {
                guard case .token(let keys, let teamID) = $0.credentials[0].kind else { return }
                let other = [otherKey(bed)]
                $0.credentials[0].kind = .token(keys: isRenewed ? other : keys + other, teamID: teamID)
            }
            if isRenewed { worker.renewCredentials(bed.configuration()) }
            try bed.produce(20, seed: 1950)
            try bed.waitForOutcomes(20)
            try bed.simulator.replaceFaults(
                with: FaultTimeline(
                    entries: [.init(.answers([.init(reason: .invalidProviderToken, share: 1)]))]))
            try bed.produce(1, seed: 1951)
            try eventually("APNs refuses the good key") { worker.credentialReports[0].refusals == 1 }
            try bed.simulator.replaceFaults(with: FaultTimeline())
            try bed.produce(50, seed: 1952)
            let outcomes = try bed.waitForOutcomes(71)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(log.messages.count(containing: "single pushes try the keys in turn") == 1)
            #expect(log.messages.count(containing: "APNs accepts a key of the credential again") == 1)
            #expect(worker.credentialReports[0].refusals == 1)
            bed.stop(worker)
            #expect(bed.simulator.summary.accepted == 71)
            #expect(bed.simulator.summary.rejected[.tooManyProviderTokenUpdates] == nil)
        }
    }

    /// The new key's file is good, but APNs doesn't know the key.
    @Test func renewedKeyThatAPNsRefusesGivesWayToTheKeyBefore() throws {
        let stranger = try CertificateAuthority(commonName: "stranger").privateKeyPEM
        try withBed { bed in
            try bed.directory.write(stranger, to: "stranger.p8")
            let worker = try bed.worker()
            try bed.produce(20, seed: 1941)
            try bed.waitForOutcomes(20)
            worker.renewCredentials(
                bed.configuration {
                    $0.credentials[0].kind = .token(
                        keyFile: bed.directory.file("stranger.p8"), keyID: "STRANGER01", teamID: "DEF123GHIJ")
                })
            // Connections of the key before serve until those of the renewed key are open.
            var expected = 20
            try eventually("APNs refuses the renewed key") {
                try bed.produce(20, seed: 1942 + UInt64(expected))
                expected += 20
                try bed.waitForOutcomes(expected)
                return worker.credentialReports[0].refusals > 0
            }
            try bed.produce(20, seed: 1942)
            let outcomes = try bed.waitForOutcomes(expected + 20)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(worker.credentialReports[0].renewals == 1)
            #expect(worker.credentialReports[0].refusals == 1)
            bed.stop(worker)
        }
    }

    @Test func allPoolsOfAKeyRestTogetherAfterTooManyTokenUpdates() throws {
        let log = LogRecorder()
        try withBed(simulator: {
            $0.faults = [.init(reason: .tooManyProviderTokenUpdates, share: 1)]
        }) { bed in
            let worker = try bed.worker(log: log) {
                $0.delivery.shards = 2
                $0.delivery.drainDeadline = .milliseconds(100)
                var other = $0.credentials[0]
                other.name = "other"
                $0.credentials.append(other)
                $0.apps.append(.init(name: "sport", topics: ["com.example.sport"], credentials: ["other"]))
            }
            try bed.produce(100, seed: 1943) { push, number in
                if number.isMultiple(of: 2) { push.topic = "com.example.sport" }
            }
            try eventually("the key rests") { worker.credentialReports.contains { $0.rests == 1 } }
            try eventually("all jobs were polled") { worker.snapshot().outstanding == 100 }
            try eventually("no push is in flight") { worker.snapshot().totals.inFlight == 0 }
            // Each of the four pools had one request on each of its connections at most.
            let sent = bed.simulator.summary.requests
            #expect((1...8).contains(sent))
            #expect(worker.credentialReports.reduce(0) { $0 + $1.rests } == 1)
            #expect(log.messages.count(containing: "APNs counts too many provider tokens") == 1)
            #expect(worker.snapshot().outstanding == 100)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == sent)
        }
    }

    /// Ten workers with one key, over several renewals of its token. The steps are seconds instead of half hours. A
    /// step is much longer than the limit's interval, so that a first request that comes late in a step is no fault.
    @Test(arguments: [SimulatorOptions.TokenUpdateCounting.connection, .key, .issueTime])
    func tenWorkersStayWithinTheLimitOfTokenUpdates(counting: SimulatorOptions.TokenUpdateCounting) throws {
        try withBed(simulator: {
            $0.tokenUpdateInterval = .seconds(1)
            $0.tokenUpdateCounting = counting
        }) { bed in
            var tokens = ProviderTokenPolicy.Settings()
            tokens.step = 6
            tokens.minimumInterval = 2
            let credential = try TokenCredential(
                keyID: KeyID("ABC123DEFG"), teamID: TeamID("DEF123GHIJ"),
                key: SigningKey(path: bed.directory.file("key.p8")))
            let probe = ProviderTokenSource(credential, settings: tokens)
            // Each worker has an app of its own and all partitions of its own group, so that each sends.
            let workers = try (0..<10).map { number in
                try bed.worker(tokens: tokens) { $0.kafka.groupID += "-\(number)" }
            }
            // The first requests come early in a step, as in a fleet that has run for a while.
            try eventually("a step begins") {
                let now = ClockReading.now()
                return now.wallSeconds == (try probe.current(at: now)).issuedAtSeconds
            }
            var dates: Set<Int64> = []
            var rounds = 0
            while dates.count < 3 {
                let now = ClockReading.now()
                dates.insert(try probe.current(at: now).issuedAtSeconds)
                try bed.produce(3, seed: UInt64(2000 + rounds))
                rounds += 1
                try bed.waitForOutcomes(30 * rounds)
            }
            #expect(bed.readOutcomes().allSatisfy { $0.kind == .accepted })
            #expect(workers.allSatisfy { $0.credentialReports.allSatisfy { $0.rests == 0 } })
            for worker in workers { worker.requestStop() }
            for worker in workers { bed.waitUntilStopped(worker) }
            #expect(bed.simulator.summary.rejected.isEmpty)
        }
    }
}
