import Configuration
import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import sluice

private func place(_ text: String) throws -> RecordAddress { try #require(RecordAddress(text: text)) }

private func apply(_ ledger: inout RedriveLedger, _ key: String, _ value: String?) {
    apply(&ledger, key, value.map { Array($0.utf8) }, 0)
}

private func apply(_ ledger: inout RedriveLedger, _ key: String, _ value: [UInt8]?, _ partition: Int32) {
    Array(key.utf8).withUnsafeBytes { key in
        guard let value else { return ledger.apply(key: key, value: nil, partition: partition) }
        value.withUnsafeBytes { ledger.apply(key: key, value: $0, partition: partition) }
    }
}

private let apps = RedriveApps([
    Configuration.App(name: "news", topics: ["com.example.news"], credentials: ["a"]),
    Configuration.App(name: "shop", topics: ["com.example.shop"], credentials: ["a"]),
])

@Suite("Redrive: ledger")
struct RedriveLedgerTests {
    private static func entry(_ state: RedriveState, _ source: String) throws -> String {
        let entry = RedriveEntry(
            state: state, source: try place(source), destination: "jobs", atMilliseconds: 1, run: "r\"1")
        return String(decoding: entry.json, as: UTF8.self)
    }

    @Test func aFreshPlaceIsSentOnceARun() throws {
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/7")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/7")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/8")) == .send)
    }

    @Test func entriesOfEarlierRunsDecide() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        apply(&ledger, "dl/0/3", try Self.entry(.intent, "jobs/0/3"))
        apply(&ledger, "dl/0/3", try Self.entry(.done, "jobs/0/3"))
        apply(&ledger, "dl/0/4", try Self.entry(.intent, "jobs/0/4"))
        apply(&ledger, "dl/0/4", try Self.entry(.failed, "jobs/0/4"))
        apply(&ledger, "dl/0/5", try Self.entry(.done, "jobs/0/5"))
        apply(&ledger, "dl/0/5", nil)
        #expect(ledger.count == 4)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .redriven)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/3")) == .redriven)
        #expect(ledger.decide(place: try place("dl/0/4"), source: try place("jobs/0/4")) == .send)
        #expect(ledger.decide(place: try place("dl/0/5"), source: try place("jobs/0/5")) == .send)
        // Other dead letters of the same records.
        #expect(ledger.decide(place: try place("dl/1/1"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/1/2"), source: try place("jobs/0/2")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/1/4"), source: try place("jobs/0/4")) == .sameJob)
    }

    @Test func exceptionsSendOnPurposeButOnceARun() throws {
        var ledger = RedriveLedger([.again, .inDoubt])
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .send)
        #expect(ledger.decide(place: try place("dl/1/1"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/1/2"), source: try place("jobs/0/2")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .sameJob)
        var again = RedriveLedger(.again)
        apply(&again, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(again.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .inDoubt)
    }

    @Test func unreadableEntriesKeepTheJobFromBeingSentTwice() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", "not JSON")
        apply(&ledger, "dl/0/2", #"{"state":"of a later version","source":"jobs/0/2"}"#)
        apply(&ledger, "no place", "{}")
        ledger.apply(key: nil, value: nil)
        #expect(ledger.unreadable == 2)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/0/9"), source: try place("jobs/0/2")) == .inDoubt)
    }

    /// A topic of dead letters that was created anew has other dead letters at the same places.
    @Test func anotherDeadLetterAtThePlaceIsSent() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(ledger.state(of: try place("dl/0/1"), source: try place("jobs/0/7")) == nil)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/7")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/8")) == .send)
        // The former jobs are known by their sources.
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/0/4"), source: try place("jobs/0/2")) == .inDoubt)
        // The jobs topic may be new, too.
        let entry = RedriveEntry(
            state: .done, source: try place("jobs/0/5"), identity: Self.old, destination: "jobs",
            atMilliseconds: 1, run: "r")
        apply(&ledger, "dl/0/5", String(decoding: entry.json, as: UTF8.self))
        var new = Self.old
        new.createdMilliseconds = 2_000
        let place = try place("dl/0/5")
        #expect(ledger.decide(place: place, source: entry.source, identity: Self.old) == .redriven)
        #expect(ledger.decide(place: place, source: entry.source, identity: new) == .send)
    }

    /// A ledger that got more partitions has entries of a place in several. Their times are of several clocks, and decide
    /// nothing.
    @Test func theStrongestEntryOfAllPartitionsCounts() throws {
        func entry(_ state: RedriveState, _ at: Int64, _ source: String = "jobs/0/1") throws -> [UInt8] {
            RedriveEntry(
                state: state, source: try place(source), destination: "jobs", atMilliseconds: at, run: "r"
            ).json
        }
        func read(_ entries: [([UInt8]?, Int32)]) throws -> RedriveLedger.Verdict {
            var ledger = RedriveLedger()
            for (value, partition) in entries { apply(&ledger, "dl/0/1", value, partition) }
            return ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1"))
        }
        let (failed, done) = (try entry(.failed, 10), try entry(.done, 20))
        #expect(try read([(done, 1), (failed, 0)]) == .redriven)
        #expect(try read([(failed, 0), (done, 1)]) == .redriven)
        #expect(try read([(done, 1), (nil, 0)]) == .redriven)
        // The clock of the run that failed was ahead.
        let (late, doubt) = (try entry(.failed, 30), try entry(.intent, 5))
        #expect(try read([(done, 1), (late, 0)]) == .redriven)
        #expect(try read([(late, 0), (done, 1)]) == .redriven)
        #expect(try read([(doubt, 1), (late, 0)]) == .inDoubt)
        #expect(try read([(late, 0), (doubt, 1), (done, 2)]) == .redriven)
        // Within a partition the order of the log counts, whatever the clocks were.
        #expect(try read([(done, 1), (failed, 1)]) == .send)
        #expect(try read([(done, 1), (nil, 1)]) == .send)
        // A weaker entry that was read before counts again when the stronger one is replaced.
        #expect(try read([(done, 1), (doubt, 0), (late, 1)]) == .inDoubt)
        #expect(try read([(done, 1), (done, 0), (nil, 1)]) == .redriven)
        // The entry of a former job at the place doesn't hide that of this job.
        let former = try entry(.done, 40, "jobs/0/9")
        #expect(try read([(former, 0), (doubt, 1)]) == .inDoubt)
        #expect(try read([(doubt, 1), (former, 0)]) == .inDoubt)
    }

    /// Random entries of several partitions against a naive model.
    @Test func partitionsOfTheLedgerHaveNoOrder() throws {
        var random = SeededGenerator(seed: 11)
        let other = try place("dl/0/2")
        let source = try place("jobs/0/1")
        for _ in 0..<500 {
            var ledger = RedriveLedger()
            var latest: [Int32: RedriveState] = [:]
            for _ in 0..<Int.random(in: 1...12, using: &random) {
                let partition = Int32.random(in: 0..<3, using: &random)
                let state = [RedriveState.done, .intent, .failed, nil].randomElement(using: &random) ?? nil
                let json = try state.map { Array(try Self.entry($0, "jobs/0/1").utf8) }
                apply(&ledger, "dl/0/1", json, partition)
                latest[partition] = state
            }
            let states = Set(latest.values)
            let expected: RedriveState? =
                states.contains(.done)
                ? .done : states.contains(.intent) ? .intent : states.contains(.failed) ? .failed : nil
            #expect(ledger.state(of: try place("dl/0/1"), source: source) == expected, "\(latest)")
            #expect(ledger.count == (latest.isEmpty ? 0 : 1))
            // Another dead letter of the same job.
            let verdict: RedriveLedger.Verdict =
                expected == .done ? .sameJob : expected == .intent ? .inDoubt : .send
            #expect(ledger.decide(place: other, source: source) == verdict, "\(latest)")
        }
    }

    private static let old = RedriveIdentity(
        apnsID: APNSID(text: "123e4567-e89b-12d3-a456-426614174000"), createdMilliseconds: 1_000)

    /// A topic that was created anew has other jobs at the same places.
    @Test func anotherJobAtThePlaceIsSent() throws {
        var new = Self.old
        new.apnsID = APNSID(text: "123e4567-e89b-12d3-a456-426614174001")
        // Identifiers that follow from the place are the same for both.
        var derived = Self.old
        derived.createdMilliseconds = 2_000
        let source = try place("jobs/0/5")
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("o/0/1"), source: source, identity: Self.old) == .send)
        #expect(ledger.decide(place: try place("o/0/2"), source: source, identity: new) == .send)
        #expect(ledger.decide(place: try place("o/0/3"), source: source, identity: derived) == .send)
        #expect(ledger.decide(place: try place("o/0/4"), source: source, identity: Self.old) == .sameJob)
        #expect(ledger.decide(place: try place("o/0/5"), source: source) == .sameJob)
        var adjusted = Self.old
        adjusted.createdMilliseconds = nil
        #expect(ledger.decide(place: try place("o/0/6"), source: source, identity: adjusted) == .sameJob)

        let entry = RedriveEntry(
            state: .done, source: source, identity: Self.old, destination: "jobs", atMilliseconds: 1,
            run: "r")
        var later = RedriveLedger()
        apply(&later, "o/0/1", String(decoding: entry.json, as: UTF8.self))
        #expect(later.decide(place: try place("o/0/4"), source: source, identity: Self.old) == .sameJob)
        #expect(later.decide(place: try place("o/0/5"), source: source) == .sameJob)
        #expect(later.decide(place: try place("o/0/2"), source: source, identity: new) == .send)
        #expect(later.decide(place: try place("o/0/3"), source: source, identity: derived) == .send)
        // Entries of earlier versions name no identity.
        var before = RedriveLedger()
        apply(&before, "o/0/1", try Self.entry(.done, "jobs/0/5"))
        #expect(before.decide(place: try place("o/0/2"), source: source, identity: new) == .sameJob)
    }

    @Test func aJobThatIsNotSentLeavesItsPlace() throws {
        let source = try place("jobs/0/5")
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("dl/0/1"), source: source) == .send)
        ledger.release(source: source)
        #expect(ledger.decide(place: try place("dl/0/2"), source: source) == .send)
        ledger.release(source: try place("jobs/0/6"))
        #expect(ledger.decide(place: try place("dl/0/3"), source: source) == .sameJob)
    }

    @Test func aFailureKeepsTheStateBefore() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        func after(_ text: String) throws -> RedriveState {
            .afterFailure(
                before: ledger.state(
                    of: try place(text),
                    source: try place(text.replacingOccurrences(of: "dl", with: "jobs"))))
        }
        #expect(try after("dl/0/1") == .done && after("dl/0/2") == .intent && after("dl/0/3") == .failed)
    }

    /// Random entries against a naive model: nothing with an entry `done` is sent, and no job twice in a run.
    @Test func noJobIsSentTwice() throws {
        var random = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var ledger = RedriveLedger()
            var states: [String: RedriveState] = [:]
            let sources = (0..<20).map { _ in "jobs/0/\(Int.random(in: 0..<12, using: &random))" }
            for _ in 0..<30 {
                let index = Int.random(in: 0..<20, using: &random)
                let state = [RedriveState.done, .intent, .failed].randomElement(using: &random) ?? .done
                apply(&ledger, "dl/0/\(index)", try Self.entry(state, sources[index]))
                states["dl/0/\(index)"] = state
            }
            var sent: Set<String> = []
            for index in (0..<20).shuffled(using: &random) {
                let key = "dl/0/\(index)"
                let verdict = ledger.decide(place: try place(key), source: try place(sources[index]))
                guard verdict == .send else { continue }
                #expect(states[key] != .done && states[key] != .intent)
                #expect(sent.insert(sources[index]).inserted, "\(sources[index]) is sent twice")
                let others = (0..<20).filter { sources[$0] == sources[index] }.map { states["dl/0/\($0)"] }
                #expect(!others.contains(.done) && !others.contains(.intent), "\(key)")
            }
        }
    }
}

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
            apps: apps)
    }

    private func outcome(_ more: String = "") throws -> RedriveFacts {
        let json = """
            {"outcome":"undeliverable","device-token":"0a0a","topic":"com.example.shop",\
            "apns-id":"123e4567-e89b-12d3-a456-426614174000","cause":"no-credential","attempts":0,\
            "source":{"topic":"jobs","partition":3,"offset":9},"created-at":1000,"polled-at":1001\(more),\
            "finished-at":1042}
            """
        let summary = try #require(OutcomeSummary(json: Array(json.utf8)))
        return RedriveFacts(summary, place: try place("outcomes/0/1"), timestampMilliseconds: 5, apps: apps)
    }

    @Test func differentFieldsAreAndedAndOneFieldsValuesOred() throws {
        func matches(_ terms: String...) throws -> Bool {
            try RedriveFilter(terms, origin: .deadLetters, apps: apps).matches(try #require(try letter()))
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
            try RedriveFilter(terms, origin: .outcomes, apps: apps).matches(facts)
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
            mistake("colour=red", apps).contains(
                "topic, push-type, apns-id, partition, source-topic, rule, field"))
        #expect(mistake("cause=x", apps).contains("no field `cause` of dead letters"))
        #expect(mistake("rule=x", apps, .outcomes).contains("no field `rule` of outcomes"))
        #expect(mistake("rule", apps).contains("expected FIELD=VALUE"))
        #expect(mistake("app=sport", apps).contains("it has news, shop"))
        #expect(mistake("app=news", RedriveApps([])).contains("add --config"))
    }

    @Test func deadLettersWithoutAPlaceAreNone() throws {
        #expect(try letter(more: [("sluice-source-partition", "x")]) == nil)
        #expect(try letter(more: [("sluice-source-offset", nil)]) == nil)
        #expect(try letter(more: [("sluice-source-offset", "-1")]) == nil)
        #expect(try letter()?.needsSource == false)
        #expect(try letter(more: [("sluice-error-value-omitted", "MSG_SIZE_TOO_LARGE")])?.needsSource == true)
    }

    @Test func topicsOfAllPushTypesHaveTheirApp() {
        for type in PushType.allCases {
            #expect(apps.app(of: "com.example.shop\(type.topicSuffix)") == "shop")
        }
        #expect(apps.app(of: "com.example") == nil)
        #expect(apps.app(of: ".voip") == nil)
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
            try RedriveItem(record, of: facts, destination: nil, before: .done) { _ in 4 })
        #expect(item.before == .done && item.identity == facts.identity)
        #expect(item.record.headers.map(\.name) == ["apns-topic", "x-null", "sluice-redriven"])
        #expect(item.record.headers.last?.value == Array("dl/0/1;count=3".utf8))
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
        return RedriveFacts(summary, place: try place("outcomes/0/1"), timestampMilliseconds: 5, apps: apps)
    }

    private func verdict(
        _ record: RecordCopy, _ facts: RedriveFacts, now: Int64 = Self.created + 1_000,
        skipsExpired: Bool = true
    ) -> JobCheck.Verdict {
        JobCheck().verdict(of: record, facts, nowMilliseconds: now, skipsExpired: skipsExpired)
    }

    @Test func anotherIdentifierOrCreationIsAnotherJob() throws {
        #expect(verdict(record(), try facts()) == .same)
        #expect(verdict(record(id: "123e4567-e89b-12d3-a456-426614174001"), try facts()) == .differs)
        #expect(verdict(record(timestamp: Self.created + 1), try facts()) == .differs)
        // Times that the worker adjusted, and records without a timestamp, can't be compared.
        #expect(verdict(record(timestamp: Self.created + 1), try facts(created: nil)) == .same)
        #expect(verdict(record(timestamp: -1), try facts()) == .same)
        var broken = record()
        broken.value = Array("not JSON".utf8)
        #expect(verdict(broken, try facts()) == .differs)
    }

    @Test func derivedIdentifiersFollowFromThePlace() throws {
        let derived = Array("jobs".utf8).withUnsafeBytes {
            APNSID.derived(topic: $0, partition: 3, offset: 9)
        }
        #expect(verdict(record(id: nil), try facts(id: derived)) == .same)
        #expect(verdict(record(id: nil), try facts(id: derived, offset: 10)) == .differs)
    }

    @Test func expiredPushesAreSkippedUnlessAskedFor() throws {
        let now = Self.created + 3_600_000
        let fixed = record { $0.expiration = Self.created / 1_000 + 60 }
        #expect(verdict(fixed, try facts(), now: now) == .expired)
        #expect(verdict(fixed, try facts(), now: now, skipsExpired: false) == .same)
        #expect(verdict(fixed, try facts(), now: Self.created + 1_000) == .same)
        // The time to live of a redriven record counts from its new timestamp.
        let lasting = record { $0.ttl = 60 }
        #expect(verdict(lasting, try facts(), now: now) == .same)
        let dated = record {
            $0.ttl = 60
            $0.createdAtMilliseconds = Self.created
        }
        #expect(verdict(dated, try facts(), now: now) == .expired)
    }

    @Test func deadLettersAreComparedByTheirTimestamp() throws {
        var letter = try facts()
        letter.apnsID = nil
        letter.sourceTimestampMilliseconds = Self.created
        #expect(verdict(record(), letter) == .same)
        #expect(verdict(record(timestamp: Self.created + 1), letter) == .differs)
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

    @Test func attemptsOfABatchAreBounded() {
        var attempts = TransactionAttempts()
        var verdicts = (0..<5).map { _ in
            attempts.aborted(isSilent: false, isStopping: false, isSmaller: false)
        }
        #expect(verdicts == [.again, .again, .again, .again, .refused])
        verdicts = (0..<9).map { _ in
            attempts.aborted(isSilent: false, isStopping: false, isSmaller: true)
        }
        #expect(verdicts.allSatisfy { $0 == .again }, "a smaller batch ends without a bound")
        #expect(attempts.aborted(isSilent: false, isStopping: true, isSmaller: true) == .stopped)
        var first = TransactionAttempts()
        #expect(first.aborted(isSilent: true, isStopping: false, isSmaller: true) == .silent)
    }

    @Test func runsWithOneLedgerShareAnIdentifier() {
        #expect(RedriveRun.transactionalID(ledger: "l") == "sluice-redrive-l")
    }
}

@Suite("Redrive: writing")
struct RedriveWriterTests {
    private func item(_ number: Int, topic: String, before: RedriveState?) throws -> RedriveItem {
        let glimpse = JobGlimpse(
            JobRecord(
                key: nil, value: nil, headers: UnsafeBufferPointer(start: nil, count: 0),
                topic: UnsafeRawBufferPointer(start: nil, count: 0), partition: 0, offset: 0,
                timestampMilliseconds: -1))
        let headers: [(name: String, value: [UInt8]?)] = [
            ("sluice-source-topic", Array(topic.utf8)), ("sluice-source-partition", Array("0".utf8)),
            ("sluice-source-offset", Array("\(number)".utf8)),
        ]
        let facts = try #require(
            RedriveFacts(
                deadLetter: headers, glimpse: glimpse, place: try place("dl/0/\(number)"),
                timestampMilliseconds: 5, apps: apps))
        let record = RecordCopy(key: [1], value: Array("\(number)".utf8), headers: headers)
        return try #require(
            try RedriveItem(record, of: facts, destination: nil, before: before) { _ in 1 })
    }

    private func records(_ kafka: TestKafka, _ topic: String) throws -> [ReadRecord] {
        let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers))
        let total = Int(try admin.watermarks(of: TopicPartition(kafka.topic(topic), 0)).high)
        let reader = try TopicReader(kafka, topic, partitions: 1)
        try eventually("\(total) records are read") {
            reader.poll()
            return reader.records.count >= total
        }
        return reader.records
    }

    /// Runs a writer whose produce requests get these errors. Returns the ends by the jobs' numbers.
    private func ends(
        _ kafka: TestKafka, _ errors: [Int32], transactions: Bool, jobs: Int = 8, before: RedriveState? = nil
    ) throws -> [Int64: RedriveEnd] {
        var ends: [Int64: RedriveEnd] = [:]
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: transactions ? "redrive" : nil, run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try #require(kafka.embedded).fail(.produce, with: errors)
        for number in 0..<jobs {
            try writer.add(try item(number, topic: kafka.topic("jobs"), before: before))
        }
        try writer.flush()
        return ends
    }

    /// Kafka's MSG_SIZE_TOO_LARGE for a batch whose jobs are all small enough.
    @Test(arguments: [(true, [10]), (false, [10]), (false, [0, 10])] as [(Bool, [Int32])])
    func aRefusedBatchIsWrittenInParts(transactions: Bool, errors: [Int32]) throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        let ends = try ends(kafka, errors, transactions: transactions)
        #expect(ends.count == 8 && ends.values.allSatisfy { $0 == .redriven })
        let values = try records(kafka, "jobs").compactMap(\.valueText)
        #expect(Set(values) == Set((0..<8).map { "\($0)" }))
    }

    /// Kafka stands still between two batches. A stop ends the wait, however long the patience is.
    @Test(arguments: [(true, false), (false, false), (true, true), (false, true)])
    func aBatchWithoutAnswersEndsInTime(transactions: Bool, isStopped: Bool) throws {
        let kafka = try TestKafka([("jobs", 1), ("ledger", 1)], isOwn: true)
        var ends: [Int64: RedriveEnd] = [:]
        var isStopping = false
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: transactions ? "redrive" : nil, run: "r"),
            isStopping: { isStopping }, ended: { ends[$0.place.offset] = $1 })
        for number in 0..<4 { try writer.add(try item(number, topic: kafka.topic("jobs"), before: nil)) }
        try writer.flush()
        kafka.suspend()
        defer { kafka.resume() }
        isStopping = isStopped
        writer.wait(atMost: .seconds(isStopped ? 3_600 : 1))
        for number in 4..<8 { try writer.add(try item(number, topic: kafka.topic("jobs"), before: nil)) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(failure?.status == .unavailable)
        let message = failure?.message ?? ""
        #expect(message.contains("at \(kafka.bootstrapServers)") && message.contains("check the brokers"))
        #expect(message.contains(isStopped ? "before the stop" : "within 1 s"), "\(message)")
        #expect((0..<4).allSatisfy { ends[$0] == .redriven })
        // A commit without an answer may have been carried out. A job without its intent wasn't produced.
        #expect((4..<8).allSatisfy { ends[$0] == (transactions ? .unanswered : .failed) })
        writer.close()
    }

    /// An answer is lost, and the repeated commit finds another run. The first commit may have taken effect.
    @Test(arguments: [47, 90] as [Int32])
    func aFencedCommitIsUnanswered(code: Int32) throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        var ends: [Int64: RedriveEnd] = [:]
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try #require(kafka.embedded).fail(.endTransaction, with: [code])
        for number in 0..<4 { try writer.add(try item(number, topic: kafka.topic("jobs"), before: nil)) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(failure?.message.contains("has fenced this one") == true, "\(failure?.message ?? "")")
        #expect(ends.count == 4 && ends.values.allSatisfy { $0 == .unanswered })
    }

    /// The queue is full while a partition has no leader. The coordinator answers, so that the abort succeeds.
    @Test func aFullQueueEndsTheBatch() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        var ends: [Int64: RedriveEnd] = [:]
        var properties = KafkaProperties(bootstrapServers: kafka.bootstrapServers)
        properties["queue.buffering.max.messages"] = "4"
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: properties, ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try writer.add(try item(0, topic: kafka.topic("jobs"), before: nil))
        try writer.flush()
        try #require(kafka.embedded).setLeader(nil, topic: kafka.topic("jobs"), partition: 0)
        try #require(kafka.embedded).setLeader(nil, topic: kafka.topic("ledger"), partition: 0)
        writer.wait(atMost: .seconds(5))
        for number in 1..<9 { try writer.add(try item(number, topic: kafka.topic("jobs"), before: nil)) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(
            failure?.message.contains("didn't take a batch within 5 s") == true, "\(failure?.message ?? "")")
        #expect(ends[0] == .redriven && (1..<9).allSatisfy { ends[$0] == .failed })
    }

    /// Evidence of the fence: nothing else of a run without transactions asks for the coordinator, and so is refused. A
    /// user who is refused can't have had transactions.
    @Test func aRunWithoutTransactionsFencesOnesWithThem() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        func writer(transactionalID: String?, fencedID: String?) throws -> RedriveWriter {
            try RedriveWriter(
                RedriveWriter.Settings(
                    properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                    ledger: kafka.topic("ledger"), transactionalID: transactionalID, fencedID: fencedID,
                    run: "r")
            ) { _, _ in }
        }
        let embedded = try #require(kafka.embedded)
        embedded.fail(.findCoordinator, with: [53])
        try writer(transactionalID: nil, fencedID: "redrive").close()
        // The refusal is used up.
        try writer(transactionalID: "redrive", fencedID: nil).close()
        embedded.fail(.findCoordinator, with: [53])
        #expect(throws: CommandFailure.self) { try writer(transactionalID: "redrive", fencedID: nil) }
    }

    @Test func aJobThatIsRefusedAloneFailsAndKeepsItsState() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        let ends = try ends(kafka, [0, 10], transactions: false, jobs: 1, before: .done)
        #expect(ends == [0: .failed])
        let entries = try records(kafka, "ledger").compactMap(\.valueText)
        #expect(entries.count == 2 && entries[0].contains(#""state":"intent""#))
        #expect(entries.last?.contains(#""state":"done""#) == true)
    }
}
