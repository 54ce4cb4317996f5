import Configuration
import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// Returns the place of a text such as `jobs/0/5`.
func place(_ text: String) throws -> RecordAddress { try #require(RecordAddress(text: text)) }

/// Apps of the rule tests of `sluice redrive`.
let redriveApps = RedriveApps([
    Configuration.App(name: "news", topics: ["com.example.news"], credentials: ["a"]),
    Configuration.App(name: "shop", topics: ["com.example.shop"], credentials: ["a"]),
])

@Suite("Redrive: conditions, period, places")
struct RedriveRuleTests {
    private func letter(
        rule: String = "json", topic: String? = "com.example.news.voip", more: [(String, String?)] = []
    ) throws -> RedriveFacts? {
        var headers: [(name: String, value: [UInt8]?)] = [
            ("sluice-source-topic", Array("jobs".utf8)), ("sluice-source-partition", Array("3".utf8)),
            ("sluice-source-offset", Array("42".utf8)), ("sluice-error-rule", Array(rule.utf8)),
        ]
        headers += more.map { ($0.0, $0.1.map { Array($0.utf8) }) }
        let record = JobRecord(
            key: nil, value: nil, headers: UnsafeBufferPointer(start: nil, count: 0),
            topic: UnsafeRawBufferPointer(start: nil, count: 0), partition: 0, offset: 0,
            timestampMilliseconds: -1)
        var glimpse = JobGlimpse(record)
        glimpse.topic = topic
        return RedriveFacts(
            deadLetter: headers, glimpse: glimpse, place: try place("dl/0/1"), timestampMilliseconds: 5,
            apps: redriveApps)
    }

    private func outcome(_ more: String = "") throws -> RedriveFacts {
        let json = """
            {"outcome":"undeliverable","device-token":"0a0a","topic":"com.example.shop",\
            "apns-id":"123e4567-e89b-12d3-a456-426614174000","cause":"no-credential","attempts":0,\
            "source":{"topic":"jobs","partition":3,"offset":9},"created-at":1000,"polled-at":1001\(more),\
            "finished-at":1042}
            """
        let summary = try #require(OutcomeSummary(json: Array(json.utf8)))
        return RedriveFacts(
            summary, place: try place("outcomes/0/1"), timestampMilliseconds: 5, apps: redriveApps)
    }

    @Test func differentFieldsAreAndedAndOneFieldsValuesOred() throws {
        func matches(_ terms: String...) throws -> Bool {
            try RedriveFilter(terms, origin: .deadLetters, apps: redriveApps).matches(
                try #require(try letter()))
        }
        #expect(try matches())
        #expect(try matches("app=news"))
        #expect(try matches("rule=json", "app=news", "partition=3"))
        #expect(try matches("rule=hex", "rule=json"))
        #expect(try !matches("rule=hex", "app=news"))
        #expect(try !matches("rule=json", "app=shop"))
        #expect(try matches("topic=com.example.news.voip", "source-topic=jobs"))
        // An empty value selects what lacks the field.
        #expect(try matches("apns-id="))
        #expect(try !matches("rule="))
    }

    @Test func outcomesHaveTheirOwnFields() throws {
        let facts = try outcome()
        func matches(_ terms: String...) throws -> Bool {
            try RedriveFilter(terms, origin: .outcomes, apps: redriveApps).matches(facts)
        }
        #expect(try matches("cause=no-credential", "app=shop", "outcome=undeliverable", "reason="))
        #expect(try matches("apns-id=123E4567-E89B-12D3-A456-426614174000"))
        #expect(try !matches("reason=BadTopic"))
        #expect(facts.source == (try place("jobs/3/9")) && facts.needsSource)
        #expect(facts.createdMilliseconds == 1_000)
        #expect(try outcome(#","adjusted":["created-at"]"#).createdMilliseconds == nil)
    }

    @Test func mistakesNameTheFieldsAndApps() throws {
        func mistake(
            _ term: String, _ apps: RedriveApps, _ origin: RedriveOrigin = .deadLetters
        ) -> String {
            do throws(RedriveFilter.Mistake) {
                _ = try RedriveFilter([term], origin: origin, apps: apps)
                return ""
            } catch {
                return error.text
            }
        }
        #expect(
            mistake("colour=red", redriveApps).contains(
                "topic, push-type, apns-id, partition, source-topic, rule, field"))
        #expect(mistake("cause=x", redriveApps).contains("no field `cause` of dead letters"))
        #expect(mistake("rule=x", redriveApps, .outcomes).contains("no field `rule` of outcomes"))
        #expect(mistake("rule", redriveApps).contains("expected FIELD=VALUE"))
        #expect(mistake("app=sport", redriveApps).contains("it has news, shop"))
        #expect(mistake("app=news", RedriveApps([])).contains("add --config"))
    }

    @Test func deadLettersWithoutAPlaceAreNone() throws {
        #expect(try letter(more: [("sluice-source-partition", "x")]) == nil)
        #expect(try letter(more: [("sluice-source-offset", nil)]) == nil)
        #expect(try letter(more: [("sluice-source-offset", "-1")]) == nil)
        #expect(try letter()?.needsSource == false)
        #expect(try letter(more: [("sluice-error-value-omitted", "MSG_SIZE_TOO_LARGE")])?.needsSource == true)
        #expect(try letter(more: [("sluice-omitted-headers", "9 00")])?.needsSource == true)
        #expect(try letter(more: [("sluice-omitted-key", "9 00")])?.needsSource == true)
    }

    @Test func topicsOfAllPushTypesHaveTheirApp() {
        for type in PushType.allCases {
            #expect(redriveApps.app(of: "com.example.shop\(type.topicSuffix)") == "shop")
        }
        #expect(redriveApps.app(of: "com.example") == nil)
        #expect(redriveApps.app(of: ".voip") == nil)
    }

    @Test func periodsChooseOffsets() {
        let all = RecordPeriod()
        #expect(all.offsets(low: 5, high: 9, since: nil, until: nil) == 5..<9)
        #expect(all.contains(-1, unstamped: false))
        let since = RecordPeriod(since: 100)
        #expect(since.offsets(low: 5, high: 9, since: 7, until: nil) == 7..<9)
        #expect(since.offsets(low: 5, high: 9, since: 3, until: nil) == 5..<9)
        // Without an answer a long log has nothing new, and a short one is read.
        #expect(since.offsets(low: 5, high: 9, since: nil, until: nil) == 5..<9)
        #expect(since.offsets(low: 0, high: 1_000_000, since: nil, until: nil) == 1_000_000..<1_000_000)
        let until = RecordPeriod(until: 200)
        #expect(until.offsets(low: 5, high: 9, since: nil, until: 7) == 5..<7)
        #expect(until.offsets(low: 5, high: 9, since: nil, until: nil) == 5..<9)
        #expect(until.offsets(low: 5, high: 9, since: nil, until: 2) == 5..<5)
        #expect(until.offsets(low: 9, high: 5, since: nil, until: nil) == 9..<9)
        let both = RecordPeriod(since: 100, until: 200)
        #expect(
            both.contains(100, unstamped: false) && both.contains(199, unstamped: false)
                && !both.contains(200, unstamped: false) && !both.contains(99, unstamped: false))
        #expect(!both.contains(-1, unstamped: false))
    }

    @Test func instantsAreAgesOrTimes() {
        #expect(RecordPeriod.instant("2h", now: 10_000_000) == 2_800_000)
        #expect(RecordPeriod.instant("2026-03-01T12:00:00Z", now: 0) == 1_772_366_400_000)
        #expect(RecordPeriod.instant("2026-03-01T13:00:00+01:00", now: 0) == 1_772_366_400_000)
        #expect(RecordPeriod.instant("2026-03-01T12:00:00.250Z", now: 0) == 1_772_366_400_250)
        for text in ["", "yesterday", "2026-03-01", "9999999999999h"] {
            #expect(RecordPeriod.instant(text, now: 0) == nil, "\(text)")
        }
    }

    @Test func itemsKeepTheRecordWithoutTheHeadersOfSluice() throws {
        let facts = try #require(try letter())
        func header(_ name: String, _ value: String) -> (name: String, value: [UInt8]?) {
            (name, Array(value.utf8))
        }
        var record = RecordCopy(
            key: [1], value: [2],
            headers: [
                header("apns-topic", "x"), header("sluice-error-rule", "json"), ("x-null", nil),
                header("sluice-source-topic", "jobs"), header("sluice-redriven", "dl/0/0;count=2"),
            ])
        let item = try #require(
            try RedriveItem(record, of: facts, destination: nil) { _ in 4 })
        #expect(item.identity == facts.identity)
        #expect(item.record.headers.map(\.name) == ["apns-topic", "x-null", "sluice-redriven"])
        #expect(item.record.headers.last?.value == Array("dl/0/1;count=3".utf8))
        record.headers[4].value = Array("dl/0/0;count=2;first=7".utf8)
        let kept = try RedriveItem(record, of: facts, destination: nil) { _ in 4 }
        #expect(kept?.record.headers.last?.value == Array("dl/0/1;count=3;first=7".utf8))
        let renewed = try RedriveItem(record, of: facts, destination: nil, renewsLife: true) { _ in 4 }
        #expect(renewed?.record.headers.last?.value == Array("dl/0/1;count=3".utf8))
        #expect(item.count == 3 && item.destination == "jobs" && item.partition == 3)
        #expect(item.record.key == [1] && item.record.value == [2])
        // The partition is kept only where it exists, in the topic it belongs to.
        #expect(try RedriveItem(record, of: facts, destination: nil) { _ in 3 }?.partition == -1)
        #expect(try RedriveItem(record, of: facts, destination: "other") { _ in 9 }?.partition == -1)
        record.headers = [
            RecordCopy.Header(name: "sluice-redriven", value: Array("nonsense".utf8)),
            RecordCopy.Header(nameBytes: [0xff, 0x61], value: nil),
        ]
        let other = try #require(try RedriveItem(record, of: facts, destination: nil) { _ in 4 })
        #expect(other.count == 1)
        // Kafka's names may be any bytes.
        #expect(other.record.headers.first?.nameBytes == [0xff, 0x61])
    }

    @Test func jobsOfAMissingTopicAreNoItems() throws {
        let facts = try #require(try letter())
        let record = RecordCopy(key: [1], value: [2], headers: [])
        #expect(try RedriveItem(record, of: facts, destination: nil) { _ in nil } == nil)
        #expect(try RedriveItem(record, of: facts, destination: "other") { _ in nil } != nil)
        #expect(throws: CommandFailure.self) {
            try RedriveItem(record, of: facts, destination: nil) { (_) throws(CommandFailure) in
                throw CommandFailure(.unavailable, "no answer")
            }
        }
    }

    @Test func reportsHideTextThatLooksLikeAToken() throws {
        var tally = RedriveTally(isDryRun: true)
        let token = String(repeating: "0a", count: 32)
        let facts = try #require(try letter(topic: token, more: [("apns-id", token)]))
        tally.addSelected(facts)
        tally.add(.redriven, RedriveTally.Group(facts))
        tally.addExample(facts)
        let text = tally.lines(of: .deadLetters).joined() + "\(tally.document(of: .deadLetters))"
        #expect(!text.contains(token) && text.contains("(hidden)"))
    }

    @Test func selectedJobsWithoutAnEndAreNotReached() throws {
        var tally = RedriveTally(isDryRun: false)
        let facts = try #require(try letter())
        for _ in 0..<5 { tally.addSelected(facts) }
        let group = RedriveTally.Group(facts)
        tally.add(.redriven, group)
        tally.add(.unanswered, group)
        #expect(tally.notReached == 3 && tally.document(of: .deadLetters)["not-reached"] as? Int == 3)
        #expect(tally.lines(of: .deadLetters).contains { $0.hasPrefix("3 not reached") })
        for _ in 0..<3 { tally.add(.failed, group) }
        #expect(tally.notReached == 0)
        #expect(!tally.lines(of: .deadLetters).contains { $0.contains("not reached") })
    }

    @Test func groupsAreBounded() throws {
        var tally = RedriveTally(isDryRun: false)
        for number in 0..<1_500 {
            tally.addSelected(try #require(try letter(topic: "com.example.\(number)")))
        }
        let groups = try #require(tally.document(of: .deadLetters)["groups"] as? [[String: Any]])
        #expect(groups.count <= RedriveTally.mostGroups + 1)
        #expect(groups.reduce(0) { $0 + ($1["selected"] as? Int ?? 0) } == 1_500)
    }
}

@Suite("Redrive: the job at the source")
struct RedriveVerdictTests {
    private static let created: Int64 = 1_700_000_000_000
    private static let id = "123e4567-e89b-12d3-a456-426614174000"

    private func record(
        id: String? = Self.id, timestamp: Int64 = Self.created,
        _ change: (inout PushDescription) -> Void = { _ in }
    ) -> RecordCopy {
        var push = PushDescription(
            deviceToken: String(repeating: "0a", count: 32), topic: "com.example.news",
            payload: Array(#"{"aps":{}}"#.utf8))
        push.apnsID = id
        change(&push)
        let job = JobEncoder.binary(push)
        return RecordCopy(
            key: job.key, value: job.value, headers: job.headers.map { ($0.name, $0.value) }, partition: 3,
            offset: 9, timestampMilliseconds: timestamp)
    }

    private func facts(
        id: APNSID? = nil, created: Int64? = Self.created, offset: Int = 9
    ) throws -> RedriveFacts {
        let json = """
            {"outcome":"undeliverable","device-token":"0a0a","apns-id":"\(id?.description ?? Self.id)","attempts":0,\
            "source":{"topic":"jobs","partition":3,"offset":\(offset)},"created-at":\(created ?? 0),"polled-at":1,\
            "finished-at":2\(created == nil ? #","adjusted":["created-at"]"# : "")}
            """
        let summary = try #require(OutcomeSummary(json: Array(json.utf8)))
        return RedriveFacts(
            summary, place: try place("outcomes/0/1"), timestampMilliseconds: 5, apps: redriveApps)
    }

    private func verdict(
        _ record: RecordCopy, _ facts: RedriveFacts, now: Int64 = Self.created + 1_000,
        skipsExpired: Bool = true, skipsInvalid: Bool = true
    ) -> RedriveEnd? {
        JobCheck().verdict(
            of: record, facts, nowMilliseconds: now, skipsExpired: skipsExpired, skipsInvalid: skipsInvalid)
    }

    @Test func anotherIdentifierOrCreationIsAnotherJob() throws {
        #expect(verdict(record(), try facts()) == nil)
        #expect(verdict(record(id: "123e4567-e89b-12d3-a456-426614174001"), try facts()) == .differs)
        #expect(verdict(record(timestamp: Self.created + 1), try facts()) == .differs)
        // Times that the worker adjusted, and records without a timestamp, can't be compared.
        #expect(verdict(record(timestamp: Self.created + 1), try facts(created: nil)) == nil)
        #expect(verdict(record(timestamp: -1), try facts()) == nil)
        var broken = record()
        broken.value = Array("not JSON".utf8)
        #expect(verdict(broken, try facts()) == .differs)
    }

    @Test func derivedIdentifiersFollowFromThePlace() throws {
        let derived = Array("jobs".utf8).withUnsafeBytes {
            APNSID.derived(topic: $0, partition: 3, offset: 9)
        }
        #expect(verdict(record(id: nil), try facts(id: derived)) == nil)
        #expect(verdict(record(id: nil), try facts(id: derived, offset: 10)) == .differs)
    }

    @Test func expiredPushesAreSkippedUnlessAskedFor() throws {
        let now = Self.created + 3_600_000
        let fixed = record { $0.expiration = Self.created / 1_000 + 60 }
        #expect(verdict(fixed, try facts(), now: now) == .expired)
        #expect(verdict(fixed, try facts(), now: now, skipsExpired: false) == nil)
        #expect(verdict(fixed, try facts(), now: Self.created + 1_000) == nil)
        // A life counts from the first production, which a redriven record's header names.
        let lasting = record { $0.ttl = 60 }
        #expect(verdict(lasting, try facts(), now: now) == .expired)
        var redriven = record(timestamp: now) { $0.ttl = 60 }
        #expect(verdict(redriven, try facts(created: now), now: now) == nil)
        redriven.headers.append(
            RecordCopy.Header(
                name: "sluice-redriven", value: Array("o/0/1;count=1;first=\(Self.created)".utf8)))
        #expect(verdict(redriven, try facts(), now: now) == .expired)
        let dated = record {
            $0.ttl = 60
            $0.createdAtMilliseconds = Self.created
        }
        #expect(verdict(dated, try facts(), now: now) == .expired)
    }

    @Test func deadLettersAreJudgedByTheirOwnTimestamp() throws {
        var letter = try facts()
        letter.apnsID = nil
        letter.sourceTimestampMilliseconds = Self.created
        #expect(verdict(record(), letter) == nil)
        #expect(verdict(record(timestamp: Self.created + 1), letter) == .differs)
        // A dead letter with its value has a timestamp of its own.
        letter.needsSource = false
        let now = Self.created + 3_600_000
        let lasting = record(timestamp: now) { $0.ttl = 60 }
        #expect(verdict(lasting, letter, now: now) == .expired)
        letter.sourceTimestampMilliseconds = now
        #expect(verdict(lasting, letter, now: now) == nil)
    }

    @Test func invalidDeadLettersAreSkippedUnlessAskedFor() throws {
        var letter = try facts()
        letter.apnsID = nil
        letter.needsSource = false
        var broken = record()
        broken.value = Array("not JSON".utf8)
        #expect(verdict(broken, letter) == .invalid)
        #expect(verdict(broken, letter, skipsInvalid: false) == nil)
    }
}

@Suite("Redrive: reading the sources")
struct SourcePlanTests {
    private let partition = TopicPartition("jobs", 0)

    private func plan(_ offsets: [Int64], low: Int64 = 0, high: Int64 = 100_000) -> SourcePlan {
        SourcePlan(
            offsets.map { RecordAddress(topic: "jobs", partition: 0, offset: $0) },
            watermarks: [partition: Watermarks(low: low, high: high)])
    }

    @Test func recordsOutsideOfTheLogAreGone() {
        let plan = plan([5, 20, 100, 7], low: 6, high: 100)
        #expect(plan.gone == [0, 2])
        #expect(plan.starts == [TopicPartitionOffset(partition, .offset(7))])
        let other = SourcePlan(
            [RecordAddress(topic: "gone", partition: 0, offset: 1)], watermarks: [:])
        #expect(other.gone == [0] && other.isFinished)
    }

    @Test func readsInOrderAndJumpsOverGaps() {
        var plan = plan([50_000, 10, 12])
        #expect(plan.read(partition, offset: 10) == .init(candidates: [1]))
        #expect(plan.read(partition, offset: 11) == .init())
        #expect(plan.read(partition, offset: 12) == .init(candidates: [2], step: .jump(50_000)))
        // The log begins behind the wanted offset, or a record is missing.
        #expect(plan.read(partition, offset: 50_001) == .init(gone: [0], step: .finished))
        #expect(plan.isFinished)
        #expect(plan.read(partition, offset: 50_002) == .init(step: .finished))
    }

    @Test func jobsOfOnePlaceAreAllFound() {
        var plan = plan([10, 12, 10])
        #expect(plan.read(partition, offset: 10).candidates == [0, 2])
        #expect(plan.read(partition, offset: 12) == .init(candidates: [1], step: .finished))
    }

    @Test func theRestOfAnEndedPartitionIsGone() {
        var plan = plan([10, 12, 13])
        #expect(plan.read(partition, offset: 10).candidates == [0])
        #expect(plan.ended(partition) == [1, 2])
        #expect(plan.ended(partition) == [])
        #expect(plan.isFinished)
    }

    /// Random logs with holes: each candidate is found or gone, exactly once.
    @Test func everyCandidateHasOneEnd() {
        var random = SeededGenerator(seed: 3)
        for _ in 0..<300 {
            let log = (0..<Int64(200)).filter { _ in Int.random(in: 0..<4, using: &random) > 0 }
            let wanted = Array(Set((0..<30).map { _ in Int64.random(in: 0..<220, using: &random) }))
            let low = log.first ?? 0
            var plan = plan(wanted, low: low, high: 200)
            var ends = plan.gone.map { ($0, false) }
            for offset in log where !plan.isFinished {
                let answer = plan.read(partition, offset: offset)
                ends += answer.gone.map { ($0, false) }
                ends += answer.candidates.map { ($0, true) }
            }
            ends += plan.ended(partition).map { ($0, false) }
            #expect(ends.map(\.0).sorted() == Array(wanted.indices))
            for (candidate, isFound) in ends { #expect(isFound == log.contains(wanted[candidate])) }
        }
    }
}

@Suite("Redrive: rate and patience")
struct PaceTests {
    private let begin = ContinuousClock.now

    @Test func aDelayIsMadeUpForInPart() {
        var pace = Pace(perSecond: 10, catchUp: .milliseconds(200), now: begin)
        let turns = (0..<3).map { _ in pace.turn(now: begin) }
        #expect(turns == [begin, begin + .milliseconds(100), begin + .milliseconds(200)])
        // Reading has taken a minute.
        let later = begin + .seconds(60)
        let due = (0..<10).filter { _ in pace.turn(now: later).map { $0 <= later } ?? true }
        #expect(due.count == 3)
        var whole = Pace(perSecond: 10, now: begin)
        #expect((0..<10).allSatisfy { _ in whole.turn(now: later).map { $0 <= later } ?? false })
        var unlimited = Pace(perSecond: nil, catchUp: .milliseconds(200), now: begin)
        #expect(unlimited.turn(now: later) == nil)
    }

    @Test(arguments: [1e19, 1e-10, 0, -1, .infinity, .nan, 1_000_001])
    func ratesAreBounded(_ rate: Double) throws {
        #expect(throws: (any Error).self) { try Pace.validate(rate) }
        var pace = Pace(perSecond: rate, now: begin)
        for _ in 0..<1_000 { _ = pace.turn(now: begin) }
        try Pace.validate(nil)
        try Pace.validate(0.001)
        try Pace.validate(1_000_000)
    }

    @Test func onlyWaitsForTheBrokersCount() {
        var patience = Patience()
        patience.add(.seconds(59), isAnswered: false)
        #expect(!patience.isOver)
        patience.add(.seconds(2), isAnswered: false)
        #expect(patience.isOver)
        patience.add(.seconds(100), isAnswered: true)
        #expect(!patience.isOver)
    }

    @Test func aStopShortensTheWaitOnce() {
        let begin = ContinuousClock.now
        /// Returns whether a wait is over at these times.
        func over(_ longest: Duration, isStopping: Bool, _ times: Duration...) -> [Bool] {
            var wait = AnswerWait(longest, now: begin)
            return times.map { wait.isOver(isStopping: isStopping, now: begin + $0) }
        }
        #expect(over(.seconds(60), isStopping: false, .seconds(59), .seconds(60)) == [false, true])
        let end = .seconds(20) + AnswerWait.afterStop
        #expect(
            over(.seconds(60), isStopping: true, .seconds(20), end - .milliseconds(1), end)
                == [false, false, true])
        // A stop never makes a wait longer.
        #expect(over(.seconds(1), isStopping: true, .milliseconds(999), .seconds(1)) == [false, true])
    }

    @Test func runsWithOneLedgerShareAnIdentifier() {
        #expect(RedriveRun.transactionalID(ledger: "l") == "sluice-redrive-l")
    }
}
