import Foundation
import SluiceModel
import Testing

@testable import LoadTest

@Suite("Load test: ledger and thresholds")
struct JobLedgerTests {
    private static let text = """
        name: test
        loads:
          - {name: a, arrivals: {rate: 10/s}}
          - {name: b, arrivals: {rate: 10/s}}
        phases:
          - {name: warm, kind: warm-up, duration: 1s}
          - {name: main, duration: 2s}
          - {name: drain, kind: drain, duration: 5s}
        thresholds:
          lost: 0
          duplicated: ≤ 1
          latency-p99: ≤ 50ms
          a.latency-max: ≤ 40ms
          rate: ≥ 1/s
          rejected-share: ≤ 0.5
          main.rejected-share: ≤ 0.1
          unknown: 0

        """

    private func scenario() throws -> LoadScenario { try LoadScenario.read(Self.text, name: "t") }

    private func outcome(
        _ number: Int, run: UInt64 = 7, kind: String = "accepted", reason: String? = nil
    )
        -> OutcomeSummary?
    {
        let reason = reason.map { #""status":410,"reason":"\#($0)","# } ?? ""
        let json = """
            {"outcome":"\(kind)","device-token":"0a0a","apns-id":"\(APNSID(high: run, low: UInt64(number)))",\
            \(reason)"attempts":2,"source":{"topic":"j","partition":0,"offset":1},"created-at":1,"polled-at":1,\
            "finished-at":2}
            """
        return OutcomeSummary(json: Array(json.utf8))
    }

    private func entry(
        _ number: Int, _ load: UInt8, at seconds: Double, due: Double? = nil, late: Double = 0
    )
        -> JobLedger.Entry
    {
        JobLedger.Entry(
            number: number, load: load, intended: Int64(seconds * 1e6), due: Int64((due ?? seconds) * 1e6),
            produced: Int64((seconds + late) * 1e6))
    }

    @Test func latencyCountsFromTheTimeAtWhichAJobWasDue() throws {
        var ledger = JobLedger(try scenario(), run: 7)
        // A late producer doesn't shorten the latency.
        ledger.add(entry(0, 0, at: 1.5, late: 0.2))
        ledger.add(outcome(0), at: 1_730_000)
        // A job with a later time of delivery counts from that time.
        ledger.add(entry(1, 1, at: 1.6, due: 2.6))
        ledger.add(outcome(1), at: 2_610_000)
        let main = ledger.phaseResults[1]
        #expect(main.intended == 2 && main.outcomes == 2)
        #expect(main.latency.milliseconds(atPercentile: 100) == 230)
        #expect(main.latency.milliseconds(atPercentile: 1).map { (10..<10.01).contains($0) } == true)
        #expect(ledger.loadResults[0].latency.count == 1)
        let generator = ledger.generator(producers: 1, fullSeconds: 0)
        #expect(generator.wasLimit)
        #expect(generator.delay.milliseconds(atPercentile: 100) == 200)
        #expect(generator.reason.contains("50.0 %"))
    }

    @Test func warmUpIsLeftOutOfTheMainFigures() throws {
        var ledger = JobLedger(try scenario(), run: 7)
        ledger.add(entry(0, 0, at: 0.5, late: 0.5))
        ledger.add(outcome(0), at: 1_100_000)
        #expect(ledger.phaseResults[0].latency.count == 1)
        #expect(ledger.phaseResults[1].latency.count == 0)
        #expect(ledger.loadResults[0].latency.count == 0)
        #expect(!ledger.generator(producers: 1, fullSeconds: 0).wasLimit)
        #expect(ledger.generator(producers: 1, fullSeconds: 0.5).wasLimit, "a full queue limits too")
    }

    @Test func everyEndOfAJobIsCounted() throws {
        let scenario = try scenario()
        var ledger = JobLedger(scenario, run: 7)
        for number in 0..<8 { ledger.add(entry(number, UInt8(number % 2), at: 1.1 + Double(number) / 10)) }
        ledger.add(outcome(0), at: 1_110_000)
        ledger.add(outcome(1), at: 1_210_000)
        ledger.add(outcome(1), at: 1_220_000)
        ledger.add(outcome(1), at: 1_230_000)
        ledger.add(outcome(2, kind: "rejected", reason: "Unregistered"), at: 1_310_000)
        ledger.addDeadLetter(APNSID(high: 7, low: 3), rule: "json", at: 1_410_000)
        ledger.refuse(4)
        // Kafka has taken a job that the producer took for refused.
        ledger.refuse(5)
        ledger.add(outcome(5), at: 1_610_000)
        ledger.add(outcome(99), at: 1_700_000)
        ledger.add(outcome(0, run: 8), at: 1_700_000)
        ledger.addDeadLetter(nil, rule: "json", at: 1_700_000)
        ledger.add(nil, at: 1_700_000)
        #expect(ledger.open == 2)
        ledger.end(at: 4)
        let audit = ledger.audit(simulatorRequests: 3)
        #expect(audit.produced == 8 && audit.refused == 1 && audit.missing == 2)
        #expect(audit.once == 4 && audit.doubled == 1 && audit.unknown == 3 && audit.unreadable == 1)
        #expect(audit.byKind == ["accepted": 3, "rejected": 1, "dead-letter": 1])
        #expect(audit.byReason == ["Unregistered": 1, "json": 1])
        #expect(audit.attempts == 12)
        #expect(audit.once + audit.doubled + audit.missing == audit.produced - audit.refused)
        let seconds = ledger.secondResults
        #expect(seconds.count == 4)
        #expect(
            seconds[1].intended == 8 && seconds[1].deadLetters == 1 && seconds[1].outcomes["accepted"] == 3)
        #expect(seconds[3].open == 3)
        #expect(ledger.phaseResults[2].to == 4)
        #expect(ledger.phaseResults[1].byKind == ["accepted": 3, "rejected": 1, "dead-letter": 1])

        var result = RunResult(
            scenario: .init(name: "", description: "", text: "", seed: 1, target: "", overrides: []),
            environment: .init(
                startedMilliseconds: 0, version: "", commit: "", system: "", processor: "", cores: 1,
                memoryBytes: 1, loadBefore: 0,
                noise: .init(quietNanoseconds: 1, medianSlowdown: 1, worstSlowdown: 1, stolenShare: 0)),
            phases: ledger.phaseResults, loads: ledger.loadResults, seconds: seconds, processes: [],
            annotations: [], audit: audit, generator: ledger.generator(producers: 1, fullSeconds: 0),
            thresholds: [])
        result.thresholds = scenario.thresholds.map { $0.judged(result) }
        let met = Dictionary(uniqueKeysWithValues: result.thresholds.map { ($0.name, $0.isMet) })
        #expect(
            met == [
                "lost": false, "duplicated": true, "latency-p99": true, "a.latency-max": true, "rate": true,
                "rejected-share": true, "main.rejected-share": false, "unknown": false,
            ])
        #expect(!result.isPassed)
        #expect(result.thresholds[0].value == 2)
        #expect(result.thresholds.map(\.bound)[1...4] == ["≤ 1", "≤ 50 ms", "≤ 40 ms", "≥ 1/s"])
    }

    @Test func deviceEventsAreAuditedByTokenWithoutLatency() throws {
        func event(_ token: String) -> OutcomeSummary? {
            let json = """
                {"outcome":"applied","job":"device","device-token":"\(token)","apns-id":"\(APNSID(high: 9, low: 9))",\
                "attempts":0,"source":{"topic":"j","partition":0,"offset":1},"created-at":1,"polled-at":1,\
                "finished-at":2}
                """
            return OutcomeSummary(json: Array(json.utf8))
        }
        var ledger = JobLedger(try scenario(), run: 7)
        for number in 0..<3 {
            ledger.add(
                .init(
                    number: number, load: JobLedger.presence, intended: 0, due: 0, produced: 0,
                    token: number == 2 ? "0b" : "0a"))
        }
        #expect(ledger.openPresence == 3 && ledger.open == 3)
        ledger.add(event("0a"), at: 0)
        #expect(ledger.openPresence == 2)
        ledger.add(event("0a"), at: 0)
        ledger.add(event("0a"), at: 0)
        #expect(ledger.openPresence == 1 && ledger.open == 1)
        ledger.add(event("0c"), at: 0)
        #expect(ledger.secondResults.allSatisfy { $0.intended == 0 && $0.outcomes.isEmpty })
        let audit = ledger.audit(simulatorRequests: nil)
        #expect(
            audit.byKind == ["applied": 2] && audit.doubled == 1 && audit.missing == 1 && audit.unknown == 1)
    }

    @Test func sharesAreOfTheJobsByTheirIntendedPhase() throws {
        var ledger = JobLedger(try scenario(), run: 7)
        // Device events and the warm-up are left out.
        ledger.add(
            .init(number: 9, load: JobLedger.presence, intended: 0, due: 0, produced: 0, token: "0a"))
        ledger.add(entry(8, 0, at: 0.5))
        ledger.add(outcome(8, kind: "rejected", reason: "Unregistered"), at: 600_000)
        for number in 0..<5 { ledger.add(entry(number, UInt8(number % 2), at: 1.5)) }
        ledger.add(outcome(0), at: 1_600_000)
        ledger.add(outcome(0), at: 1_700_000)
        // A dead letter of the drain counts for the main phase, and a lost job is a job, but no refused one.
        ledger.addDeadLetter(APNSID(high: 7, low: 2), rule: "json", at: 4_000_000)
        ledger.addDeadLetter(APNSID(high: 7, low: 1), rule: "json", at: 4_000_000)
        ledger.refuse(4)
        let main = ledger.phaseResults[1]
        #expect(main.jobs == 4 && main.attempts == 4 && main.byKind == ["accepted": 1, "dead-letter": 2])
        #expect(ledger.loadResults.map(\.jobs) == [2, 2])
        let result = result(ledger)
        func value(_ name: String) throws -> Double? {
            try ThresholdRule.parse(name, "1", scopes: ["a", "b", "main"]).get().judged(result).value
        }
        #expect(try value("accepted-share") == 0.25 && value("main.accepted-share") == 0.25)
        #expect(try value("a.accepted-share") == 0.5 && value("main.dead-letter-share") == 0.5)
        #expect(try value("rejected-share") == 0)
        #expect(try value("attempts-per-job").map { abs($0 - 4.0 / 3) < 1e-9 } == true)
        #expect(try value("duplicated-share").map { abs($0 - 1.0 / 6) < 1e-9 } == true)
    }

    @Test func acceptedPushBeforeItsTimeMissesABoundThatNeedsNoName() throws {
        let scenario = try scenario()
        var ledger = JobLedger(scenario, run: 7)
        for number in 0..<3 { ledger.add(entry(number, 0, at: 1.5, due: 3)) }
        ledger.add(outcome(0), at: 2_001_000)
        ledger.add(outcome(1, kind: "rejected", reason: "Unregistered"), at: 1_600_000)
        #expect(
            !scenario.judged(result(ledger)).contains { $0.name == "early" }, "clocks may differ a little")
        ledger.add(outcome(2), at: 1_999_000)
        let judged = scenario.judged(result(ledger))
        #expect(judged.last == .init(name: "early", bound: "≤ 0", value: 1, isMet: false))
        let bounded = try LoadScenario.read(Self.text, name: "t", overrides: ["thresholds.early=1"])
        #expect(bounded.judged(result(ledger)).filter { $0.name == "early" }.map(\.isMet) == [true])
    }

    @Test func jobsThatWereNeverProducedFailTheRun() throws {
        let scenario = try scenario()
        var ledger = JobLedger(scenario, run: 7)
        ledger.add(entry(0, 0, at: 1.5))
        ledger.add(outcome(0), at: 1_600_000)
        ledger.addNotProduced(load: 1, intended: 2_500_000)
        #expect(ledger.phaseResults[1].intended == 2 && ledger.phaseResults[1].jobs == 1)
        #expect(ledger.loadResults[1].intended == 1 && ledger.secondResults[2].intended == 1)
        let generator = ledger.generator(producers: 1, fullSeconds: 0)
        #expect(generator.wasLimit && generator.reason.hasSuffix("when the run ended: 1"))
        let judged = scenario.judged(result(ledger))
        #expect(judged.last == .init(name: "not-produced", bound: "≤ 0", value: 1, isMet: false))
        #expect(judged.first == .init(name: "lost", bound: "≤ 0", value: 0, isMet: true))
    }

    @Test func refusedJobIsNoLongerInFlight() throws {
        var ledger = JobLedger(try scenario(), run: 7)
        ledger.add(entry(0, 1, at: 1.5))
        ledger.refuse(0)
        #expect(ledger.finishedByLoad == [0, 1] && ledger.phaseResults[1].jobs == 0)
        // Kafka has taken the job nevertheless.
        ledger.add(outcome(0), at: 1_600_000)
        #expect(ledger.finishedByLoad == [0, 1] && ledger.phaseResults[1].jobs == 1)
    }

    @Test func producedRateOfALoadCountsTheJobsThatWereProducedInTime() throws {
        var ledger = JobLedger(try scenario(), run: 7)
        for number in 0..<4 { ledger.add(entry(number, 0, at: 2, late: Double(number))) }
        let rule = try ThresholdRule.parse("a.produced-rate", "2/s", scopes: ["a"]).get()
        let threshold = rule.judged(result(ledger))
        #expect(threshold.value == 0.5 && !threshold.isMet)
    }

    @Test func readerIsTheLimitWhenMoreThanAHundredthOfTheOutcomesWereReadLate() throws {
        func reader(late: Int, warmUp: Int = 0, delay: Int64 = 10_001) throws -> RunResult.Reader {
            var ledger = JobLedger(try scenario(), run: 7)
            for number in 0..<200 {
                ledger.add(entry(number, 0, at: number < warmUp ? 0.5 : 1.5))
                ledger.add(outcome(number), at: 1_600_000, delay: number < late ? delay : 10_000)
                // A repeated outcome is not judged.
                ledger.add(outcome(number), at: 1_700_000, delay: 1_000_000)
            }
            return ledger.readerResult
        }
        #expect(try !reader(late: 2).wasLimit && reader(late: 2).reason.isEmpty)
        let slow = try reader(late: 3)
        #expect(slow.wasLimit && slow.delay.count == 200 && slow.delay.greatest == 10_001)
        #expect(slow.reason == "1.5 % of the outcomes of the main phases' jobs were read over 10 ms late")
        // Outcomes of jobs of a warm-up are not judged.
        #expect(try !reader(late: 50, warmUp: 50).wasLimit)
        #expect(try !reader(late: 200, delay: 10_000).wasLimit)
        var ledger = JobLedger(try scenario(), run: 7)
        ledger.add(entry(0, 0, at: 1.5))
        ledger.addDeadLetter(APNSID(high: 7, low: 0), rule: "r", at: 1_600_000, delay: 30_000)
        #expect(ledger.readerResult.wasLimit && ledger.secondResults[1].readerDelayMilliseconds == 30)
        #expect(ledger.secondResults[0].readerDelayMilliseconds == nil)
        #expect(try !JobLedger(scenario(), run: 7).readerResult.wasLimit)
    }

    @Test func gatewayKeepsUpWhileFewJobsOfOpenLoopsAreLate() throws {
        func result(late: Int, lost: Int) throws -> RunResult {
            var ledger = JobLedger(try scenario(), run: 7)
            for number in 0..<100 {
                ledger.add(entry(number, 0, at: 1.5))
                let latency: Int64 = number < late ? 1_100_000 : 1_000_000
                if number < 100 - lost { ledger.add(outcome(number), at: 1_500_000 + latency) }
            }
            // A closed loop is not judged.
            ledger.add(entry(100, 1, at: 1.5))
            return self.result(ledger)
        }
        #expect(try result(late: 2, lost: 0).hasKeptUp(loads: ["a"]))
        #expect(try !result(late: 3, lost: 0).hasKeptUp(loads: ["a"]))
        #expect(try result(late: 0, lost: 2).hasKeptUp(loads: ["a"]))
        #expect(try !result(late: 2, lost: 1).hasKeptUp(loads: ["a"]))
        #expect(try !result(late: 0, lost: 0).hasKeptUp(loads: []))
    }

    @Test func boundWithoutASignIsTheSensibleOne() throws {
        for (name, bound, text) in [
            ("accepted-share", "0.99", "≥ 0.99"), ("accepted-share", "≤ 0", "≤ 0"), ("rate", "5", "≥ 5/s"),
            ("rejected-share", "0.1", "≤ 0.1"), ("early", "0", "≤ 0"), ("not-produced", "0", "≤ 0"),
        ] {
            #expect(try ThresholdRule.parse(name, bound, scopes: []).get().boundText == text)
        }
    }

    @Test func auditWithoutTheNewerCountsIsRead() throws {
        let audit = JobLedger(try scenario(), run: 7).audit(simulatorRequests: 3)
        let text = String(decoding: try JSONEncoder().encode(audit), as: UTF8.self)
        let older = text.replacing(#/"(early|notProduced)":0,?/#, with: "").replacing(",}", with: "}")
        #expect(older.count < text.count - 20)
        #expect(try JSONDecoder().decode(RunResult.Audit.self, from: Data(older.utf8)) == audit)
    }

    private func result(_ ledger: JobLedger) -> RunResult {
        RunResult(
            scenario: .init(name: "", description: "", text: "", seed: 1, target: "", overrides: []),
            environment: .init(
                startedMilliseconds: 0, version: "", commit: "", system: "", processor: "", cores: 1,
                memoryBytes: 1, loadBefore: 0,
                noise: .init(quietNanoseconds: 1, medianSlowdown: 1, worstSlowdown: 1, stolenShare: 0)),
            phases: ledger.phaseResults, loads: ledger.loadResults, seconds: ledger.secondResults,
            processes: [], annotations: [], audit: ledger.audit(simulatorRequests: nil),
            generator: ledger.generator(producers: 1, fullSeconds: 0), thresholds: [])
    }

    @Test(arguments: ["latency-p99", "generator-delay-p99"])
    func figureThatCannotBeMeasuredMissesItsBound(_ name: String) throws {
        let ledger = JobLedger(try scenario(), run: 7)
        let rule = try ThresholdRule.parse(name, "≤ 1h", scopes: []).get()
        let result = RunResult(
            scenario: .init(name: "", description: "", text: "", seed: 1, target: "", overrides: []),
            environment: .init(
                startedMilliseconds: 0, version: "", commit: "", system: "", processor: "", cores: 1,
                memoryBytes: 1, loadBefore: 0,
                noise: .init(quietNanoseconds: 1, medianSlowdown: 1, worstSlowdown: 1, stolenShare: 0)),
            phases: ledger.phaseResults, seconds: [], processes: [], annotations: [],
            audit: ledger.audit(simulatorRequests: nil),
            generator: ledger.generator(producers: 1, fullSeconds: 0), thresholds: [])
        let threshold = rule.judged(result)
        #expect(threshold.value == nil && !threshold.isMet)
    }
}
