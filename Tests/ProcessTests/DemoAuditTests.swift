import SluiceModel
import Testing

@testable import sluice

/// The demo's audit must report bad results, too.
@Suite("Demo: audit")
struct DemoAuditTests {
    private func outcome(partition: Int, offset: Int, attempts: Int = 1) -> OutcomeSummary? {
        let json = """
            {"outcome":"accepted","device-token":"0a0a","apns-id":"123e4567-e89b-12d3-a456-426614174000",\
            "attempts":\(attempts),"source":{"topic":"sluice.jobs","partition":\(partition),"offset":\(offset)},\
            "created-at":1000,"polled-at":1001,"finished-at":1042}
            """
        return OutcomeSummary(json: Array(json.utf8))
    }

    @Test func correctResultsPassTheAudit() {
        var audit = DemoAudit(partitions: 2)
        // An outcome may be read before the producer knows its job's offset.
        audit.add(outcome(partition: 1, offset: 2, attempts: 3))
        audit.produced(partition: 1, offset: 2, .outcome)
        audit.produced(partition: 0, offset: 0, .deadLetter)
        audit.addDeadLetter(partition: 0, offset: 0, rule: "key: hex")
        let verdict = audit.verdict()
        #expect(verdict.right == 2)
        #expect(verdict.missing + verdict.doubled + verdict.wrongKind + verdict.unknown == 0)
        #expect(audit.finished == 2 && audit.retried == 1 && audit.accepted == 1)
        #expect(audit.latencies.percentile(50) == 42_000_000)
    }

    @Test func missingDoubledAndForeignResultsFailTheAudit() {
        var audit = DemoAudit(partitions: 1)
        for offset in 0..<5 {
            audit.produced(partition: 0, offset: Int64(offset), offset == 4 ? .deadLetter : .outcome)
        }
        audit.add(outcome(partition: 0, offset: 0))
        audit.add(outcome(partition: 0, offset: 1))
        audit.add(outcome(partition: 0, offset: 1))
        audit.addDeadLetter(partition: 0, offset: 2, rule: "key: hex")
        audit.add(outcome(partition: 0, offset: 4))
        audit.add(outcome(partition: 0, offset: 17))
        audit.add(outcome(partition: 3, offset: 0))
        audit.add(nil)
        audit.addDeadLetter(partition: nil, offset: nil, rule: "?")
        let verdict = audit.verdict()
        #expect(verdict.right == 1)
        #expect(verdict.missing == 1)
        #expect(verdict.doubled == 1)
        #expect(verdict.wrongKind == 2)
        #expect(verdict.unknown == 1)
        #expect(audit.unreadable == 3)

        var report = DemoReport(jobs: 5, duration: .seconds(1))
        report.audit = audit
        #expect(!report.isRight)
        #expect(
            report.lines.contains {
                $0.contains("✗ every job has exactly one outcome") && $0.contains("1 have no outcome")
            })
    }

    @Test func numbersAreFormattedForReaders() {
        #expect(Numbers.grouped(1_234_567) == "1,234,567")
        #expect(Numbers.grouped(-999) == "-999")
        #expect(Numbers.milliseconds(0.4) == "0.4 ms")
        #expect(Numbers.milliseconds(12) == "12 ms")
        #expect(Numbers.milliseconds(1_250) == "1.25 s")
        #expect(Numbers.rate(500, over: .milliseconds(250)) == "2,000/s")
    }

    @Test func sameSeedGivesTheSameLoad() {
        var first = DemoLoad(seed: 3, devices: 100)
        var second = DemoLoad(seed: 3, devices: 100)
        let check = JobCheck()
        var deadLetters = 0
        for number in 0..<2_000 {
            let job = first.next(number: number)
            #expect(job.key == second.next(number: number).key)
            let headers = job.headers.map { (name: $0.name, value: $0.value ?? []) }
            let error = check.error(in: EncodedJob(key: job.key, value: job.value, headers: headers))
            #expect((error != nil) == (job.expectation == .deadLetter), "\(error?.description ?? "valid")")
            if job.expectation == .deadLetter { deadLetters += 1 }
        }
        #expect(deadLetters > 0)
    }
}
