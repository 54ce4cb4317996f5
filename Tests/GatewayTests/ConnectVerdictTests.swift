import HTTP2
import Testing

@testable import APNS
@testable import Gateway
@testable import SluiceModel

@Suite("Connection check: APNs' answers")
struct APNSVerdictTests {
    private typealias Outcome = Result<RequestClient.Result, RequestClient.Failure>

    private func progress() -> RequestClient.Progress {
        var progress = RequestClient.Progress()
        let address = SocketAddress("127.0.0.1", port: 443)
        progress.addresses = [address].compactMap(\.self)
        progress.address = address
        progress.tls = "TLSv1.3"
        progress.applicationProtocol = "h2"
        return progress
    }

    @Test func eachReasonOfACredentialIsExplained() {
        for reason in Reason.allCases where reason != .absent && reason != .unknown {
            let status = Int(reason.entry.status)
            for usesToken in [true, false] {
                let result = APNSVerdict.judge(
                    status, reason, part: "apns a", topic: "a.b", usesToken: usesToken)
                #expect(result.finding.hasPrefix("a.b: \(status) \(reason.name)"))
                switch reason.class {
                case .token: #expect(result.verdict == .good, "\(reason.name)")
                case .configuration: #expect(result.verdict == .bad && result.remedy != nil, "\(reason.name)")
                default: #expect(result.remedy != nil, "\(reason.name)")
                }
            }
        }
        #expect(
            APNSVerdict.judge(200, .absent, part: "p", topic: "a.b", usesToken: true).verdict == .good)
        #expect(
            APNSVerdict.judge(503, .absent, part: "p", topic: "a.b", usesToken: true).verdict == .unchecked)
        let other = APNSVerdict.judge(404, .absent, part: "p", topic: "a.b", usesToken: true)
        #expect(other.verdict == .bad && other.remedy?.contains("not APNs") == true)
    }

    @Test func failureHasTheStagesBeforeIt() {
        for (stage, before) in [
            (RequestClient.Stage.preparation, 0), (.resolve, 0), (.connect, 1), (.proxy, 2), (.tls, 2),
            (.http2, 3),
        ] {
            var failure = RequestClient.Failure(stage: stage, message: "cause")
            failure.progress = progress()
            let results = APNSVerdict.connection(Outcome.failure(failure), part: "apns a")
            #expect(results.count == before + 1, "\(stage): \(results)")
            #expect(results.dropLast().allSatisfy { $0.verdict == .good })
            #expect(results.last?.verdict == .bad && results.last?.finding == "cause")
            #expect(results.last?.remedy?.isEmpty == false)
            #expect(
                APNSVerdict.credential(
                    Outcome.failure(failure), part: "apns a", topic: "a.b", usesToken: true) == nil)
        }
    }

    @Test func laterConnectionThatFailsIsBadAndNamesItsTopic() {
        let failure = RequestClient.Failure(stage: .connect, message: "refused")
        let result = APNSVerdict.laterConnection(failure, part: "apns a", topic: "a.b")
        #expect(result.verdict == .bad && result.finding == "a.b: refused")
        #expect(result.remedy?.isEmpty == false)
    }

    @Test func goAwayOfTheCredentialIsJudgedLikeAnAnswer() {
        var failure = RequestClient.Failure(stage: .answer, message: "closed")
        failure.goAway = GoAwayReason(Array(#"{"reason":"BadCertificate"}"#.utf8))
        let result = APNSVerdict.credential(
            Outcome.failure(failure), part: "apns a", topic: "a.b", usesToken: false)
        #expect(result?.verdict == .bad)
        #expect(result?.remedy?.contains("push certificate") == true)
        failure.goAway = nil
        let silent = APNSVerdict.credential(
            Outcome.failure(failure), part: "apns a", topic: "a.b", usesToken: false)
        #expect(silent?.verdict == .bad && silent?.finding == "a.b: closed")
    }

    @Test func certificateIsJudgedByTheDaysThatAreLeft() throws {
        let issued = try CertificateAuthority().issueClient(commonName: "a", validity: .days(365))
        let file = try CertificateFile(reading: .text(issued.chainPEM))
        let day: Int64 = 86_400
        for (now, verdict) in [
            (file.notBefore - 1, CheckResult.Verdict.bad), (file.notBefore, .good),
            (file.notAfter - 30 * day, .good), (file.notAfter - 30 * day + 1, .warning),
            (file.notAfter, .warning), (file.notAfter + 1, .bad),
        ] {
            let result = APNSVerdict.certificate(file, part: "apns a", now: now)
            #expect(result.verdict == verdict, "\(result)")
            #expect((result.remedy == nil) == (verdict == .good))
        }
    }

    @Test func datesOfHTTPAreRead() {
        #expect(HTTPDate.seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 784_111_777)
        for text in [
            "", "Sun, 06 Nov 1994 08:49:37", "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT", "Sun, 06 Nov -994 08:49:37 GMT",
        ] {
            #expect(HTTPDate.seconds(text) == nil, "\(text)")
        }
    }
}

@Suite("Connection check: the machine's facts")
struct MachineVerdictTests {
    private func verdicts(_ facts: MachineFacts, _ part: String) -> [CheckResult.Verdict] {
        MachineVerdict.results(facts).filter { $0.part == part }.map(\.verdict)
    }

    private func facts(_ directory: MachineFacts.Directory?) -> MachineFacts {
        MachineFacts(directory: directory, openFiles: 20_000, connections: 16)
    }

    @Test func directoryIsJudged() {
        var directory = MachineFacts.Directory(
            path: "/s", tried: "/s", freeBytes: 50 << 30, sync: .milliseconds(3))
        #expect(verdicts(facts(nil), "store") == [])
        #expect(verdicts(facts(directory), "store") == [.good, .good, .good])
        directory.freeBytes = 1 << 29
        directory.sync = .milliseconds(101)
        #expect(verdicts(facts(directory), "store") == [.good, .warning, .warning])
        directory.freeBytes = 1 << 20
        directory.sync = nil
        #expect(verdicts(facts(directory), "store") == [.good, .bad])
        directory.freeBytes = nil
        #expect(verdicts(facts(directory), "store") == [.good, .unchecked])
        directory.error = "Permission denied"
        #expect(verdicts(facts(directory), "store") == [.bad])
    }

    @Test func limitOfFilesMustSufficeForConnections() {
        let directory = MachineFacts.Directory(path: "/s", tried: "/s")
        for (files, hasStore, verdict) in [
            (1_024, false, CheckResult.Verdict.good), (755, false, .bad), (756, false, .good),
            (1_024, true, .bad), (1_134, true, .good),
        ] {
            let facts = MachineFacts(
                directory: hasStore ? directory : nil, openFiles: files, connections: 500)
            #expect(verdicts(facts, "file limit") == [verdict], "\(files)")
        }
    }

    @Test func clocksAreComparedWhereTheyAreKnown() {
        var facts = facts(nil)
        #expect(verdicts(facts, "clock") == [.unchecked, .unchecked])
        for (ahead, verdict, says) in [
            (Int64(0), CheckResult.Verdict.good, "as APNs's"), (-5, .good, "5 s ahead of APNs's"),
            (6, .warning, "6 s behind APNs's"), (-1_800, .bad, "1800 s ahead of APNs's"),
        ] {
            facts.clocks = ["APNs": ahead]
            #expect(verdicts(facts, "clock") == [.unchecked, verdict])
            #expect(MachineVerdict.results(facts).contains { $0.finding == says })
        }
    }
}
