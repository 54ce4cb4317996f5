import APNS
import Configuration
import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// Rules of `sluice trace`: which records count, and what is told of a job. No process runs.
@Suite("Trace: records and milestones")
struct TraceRuleTests {
    private let first = APNSID(text: "00000000-0000-4000-8000-000000000001")!
    private let second = APNSID(text: "00000000-0000-4000-8000-000000000002")!
    private let place = RecordAddress(topic: "jobs", partition: 1, offset: 7)

    private func mayBe(
        _ subject: TraceSubject, key: String? = nil, value: String? = nil, headers: [String] = []
    ) -> Bool {
        func bytes<Answer>(_ text: String?, _ body: (UnsafeRawBufferPointer?) -> Answer) -> Answer {
            guard let text else { return body(nil) }
            return Array(text.utf8).withUnsafeBytes { body($0) }
        }
        return bytes(key) { key in
            bytes(value) { value in
                subject.mayBe(key: key, value: value, source: place) { visit in
                    for header in headers { bytes(header) { visit($0!) } }
                }
            }
        }
    }

    @Test func identifierIsFoundInValueAndHeaders() {
        let subject = TraceSubject(first, deviceToken: nil)
        #expect(mayBe(subject, value: "\(first)"))
        #expect(mayBe(subject, value: "00000000-0000-400{\"apns-id\":\"\(first)\"}"))
        #expect(mayBe(subject, value: "{}", headers: ["x", "\(first)"]))
        let letters = APNSID(text: "abcdef00-0000-4000-8000-000000000001")!
        #expect(mayBe(TraceSubject(letters, deviceToken: nil), headers: ["\(letters)".uppercased()]))
        #expect(!mayBe(subject, value: "\(second)", headers: ["\(second)"]))
        #expect(!mayBe(subject, value: "\("\(first)".dropLast())"))
        #expect(!mayBe(subject, value: ""))
        #expect(!mayBe(subject))
    }

    @Test func derivedIdentifierIsThatOfTheRecord() {
        let derived = Array("jobs".utf8).withUnsafeBytes {
            APNSID.derived(topic: $0, partition: 1, offset: 7)
        }
        #expect(mayBe(TraceSubject(derived, deviceToken: nil), value: "{}"))
        let other = Array("jobs".utf8).withUnsafeBytes {
            APNSID.derived(topic: $0, partition: 1, offset: 8)
        }
        #expect(!mayBe(TraceSubject(other, deviceToken: nil), value: "{}"))
    }

    @Test func deviceTokenIsFoundInEitherCaseInKeyAndDocument() {
        let subject = TraceSubject(nil, deviceToken: "ABcd01")
        #expect(mayBe(subject, key: "abcd01"))
        #expect(mayBe(subject, key: "ABCD01"))
        #expect(mayBe(subject, key: "other", value: #"{"device-token":"abcd01"}"#))
        #expect(mayBe(subject, value: #"{"device-token":"ABCD01"}"#))
        #expect(!mayBe(subject, key: "abcd02", value: "{}"))
        let both = TraceSubject(first, deviceToken: "abcd01")
        #expect(mayBe(both, key: "abcd01", value: "\(first)"))
        #expect(!mayBe(both, key: "abcd01", value: "\(second)"))
        #expect(!mayBe(both, key: "abcd02", value: "\(first)"))
    }

    @Test func hashStandsForTheDeviceToken() {
        let subject = TraceSubject(nil, deviceToken: "abcd01", tokenHash: "k1:00ff")
        #expect(subject.wants(token: "ABCD01") && subject.wants(token: "k1:00ff"))
        #expect(!subject.wants(token: "k1:00fe"))
        #expect(mayBe(subject, key: "k1:00ff") && mayBe(subject, key: "abcd01"))
        #expect(mayBe(subject, value: #"{"device-token-hash":"k1:00ff"}"#))
        #expect(!mayBe(subject, key: "other", value: "{}"))
    }

    @Test func hashFollowsFromTheConfiguration() {
        let clear = Configuration.Outcomes(deviceToken: .clear, hashKeyFile: nil, hashKey: [])
        #expect(TraceCommand.tokenHash(of: "0a0b", clear) == nil)
        #expect(TraceCommand.tokenHash(of: "0a0b", nil) == nil)
        let key = [UInt8](repeating: 7, count: 32)
        let hashed = Configuration.Outcomes(deviceToken: .hash, hashKeyFile: "key", hashKey: key)
        #expect(
            TraceCommand.tokenHash(of: "0A0b", hashed) == DeviceTokenHash(key: key).text(of: "0a0b"))
    }

    @Test func redrivenRecordNamesItsOrigin() {
        var job = TracedJob(place)
        job.record = TracedJob.Record(timestampMilliseconds: 10, hasKey: true)
        job.record?.redriven = RedrivenMark(
            place: RecordAddress(topic: "dead", partition: 0, offset: 4), count: 1)
        #expect(job.milestones(now: 20).first?.text.hasSuffix("redriven from dead/0/4") == true)
    }

    @Test func chainOfSuccessorsIsBounded() {
        var subject = TraceSubject(first, deviceToken: nil)
        #expect(subject.follow(second) && subject.follow(second))
        #expect(subject.wants(first) && subject.wants(second))
        var followed = 2
        while subject.follow(APNSID(high: 0x4000, low: UInt64(followed) << 8)) {
            followed += 1
            guard followed < 1_000 else { break }
        }
        #expect(followed == TraceSubject.longestChain + 1)
        var device = TraceSubject(nil, deviceToken: "ab")
        #expect(device.follow(first) && device.identifiers.isEmpty, "a device's jobs all count")
    }

    private func outcome(_ id: APNSID, _ kind: String, offset: Int, _ more: String = "") -> OutcomeSummary {
        OutcomeSummary(
            json: Array(
                """
                {"outcome":"\(kind)","device-token":"ab","apns-id":"\(id)","attempts":2,\(more)
                "source":{"topic":"jobs","partition":1,"offset":\(offset)},
                "created-at":1000,"polled-at":1030,"first-sent-at":1050,"finished-at":2050}
                """.utf8))!
    }

    @Test func outcomesOfSuccessorsAreTaken() {
        var book = TraceBook(TraceSubject(first, deviceToken: nil))
        let at = RecordAddress(topic: "outcomes", partition: 0, offset: 3)
        book.take(outcome(second, "accepted", offset: 8), at: at)
        #expect(book.isEmpty, "the second push is not known as a successor yet")
        book.take(outcome(first, "superseded", offset: 7, #""superseded-by":"\#(second)","#), at: at)
        #expect(book.missing == [second])
        book.take(outcome(second, "accepted", offset: 8, #""status":200,"#), at: at)
        #expect(book.sorted.map(\.identifier) == [first, second])
        #expect(book.sorted.map(\.state) == ["superseded", "accepted"])
        #expect(book.missing.isEmpty && !book.isTruncated)
    }

    @Test func milestonesAreInTheOrderOfTime() {
        var job = TracedJob(place)
        job.outcome = TracedJob.Ended(
            outcome(first, "rejected", offset: 7, #""status":410,"reason":"Unregistered","#),
            place: RecordAddress(topic: "outcomes", partition: 0, offset: 3))
        job.record = TracedJob.Record(timestampMilliseconds: 1010, hasKey: true)
        let milestones = job.milestones(now: 5000)
        #expect(milestones.map(\.event) == ["created", "produced", "polled", "first-sent", "outcome"])
        #expect(milestones.map(\.atMilliseconds) == [1000, 1010, 1030, 1050, 2050])
        #expect(milestones.last?.text == "rejected: 410 Unregistered, 2 attempts; outcome outcomes/0/3")
    }

    private func reply(_ change: (inout [String: Any]) -> Void = { _ in }) throws -> WorkerReply {
        var push: [String: Any] = [
            "apns-id": "\(first)", "state": "retrying", "text": "waits for its next attempt",
            "source": ["topic": "jobs", "partition": 1, "offset": 7] as [String: Any], "created-at": 1000,
            "polled-at": 1030, "first-sent-at": 1050, "last-sent-at": 1800, "until": 9000,
            "expires-at": 20000, "attempts": 2, "last-status": 503, "last-reason": "Shutdown", "stored": true,
        ]
        change(&push)
        let document: [String: Any] = [
            "pushes": [push], "complete": true, "searched": [String: Any](),
            "record": ["state": "outstanding", "text": "the job was taken"],
        ]
        return WorkerReply(
            worker: "w:1",
            AdminCall.Answer(
                status: 200, body: Array(try JSONSerialization.data(withJSONObject: document))),
            record: place)
    }

    @Test func pendingPushHasPastPresentAndFuture() throws {
        var book = TraceBook(TraceSubject(first, deviceToken: nil))
        let reply = try reply()
        book.take(reply)
        book.take(reply)
        let job = try #require(book.sorted.first)
        #expect(job.pushes.count == 1 && job.state == "retrying")
        let milestones = job.milestones(now: 5000)
        #expect(
            milestones.map(\.event) == [
                "created", "polled", "first-sent", "last-sent", "retrying", "until", "expires",
            ])
        #expect(milestones[4].atMilliseconds == nil)
        #expect(
            milestones[4].text
                == "waits for its next attempt (w:1); 2 attempts; last answer 503 Shutdown; stored")
    }

    @Test func endedJobsNeedNoWorkers() throws {
        var ended = TracedJob(place)
        ended.outcome = TracedJob.Ended(outcome(first, "accepted", offset: 7), place: place)
        var report = TraceReport(
            jobs: [ended], searches: [], replies: [WorkerReply(worker: "w:1", failure: "no connection")],
            isLimited: false, isTruncated: false, limit: 12, now: 2_000_000)
        #expect(report.advice.isEmpty)
        report.jobs.append(TracedJob(place))
        #expect(report.advice.count == 1)
    }

    @Test func committedOffsetTellsOfARecord() {
        var job = TracedJob(place)
        job.stages = [.committed(place, 7, group: "g")]
        #expect(job.state == "uncommitted")
        job.stages = [.committed(place, 8, group: "g")]
        #expect(job.state == "committed")
        #expect(job.milestones(now: 0).last?.text.hasSuffix("(group g)") == true)
    }

    @Test func damagedAnswersAreNoPushes() throws {
        for name in ["apns-id", "state", "source"] {
            #expect(try reply { $0[name] = nil }.pushes.isEmpty)
            #expect(try reply { $0[name] = 5 }.pushes.isEmpty)
        }
        #expect(
            try reply { $0["source"] = ["topic": "jobs", "partition": 1 << 40, "offset": 7] }.pushes.isEmpty)
        for source in [
            ["topic": "jobs", "partition": -1, "offset": 7], ["topic": "jobs", "partition": 0, "offset": -2],
            ["topic": "no topic", "partition": 0, "offset": 7],
        ] as [[String: Any]] {
            #expect(try reply { $0["source"] = source }.pushes.isEmpty)
        }
        let escape = try reply { $0["text"] = "\u{1B}[2J" + String(repeating: "x", count: 9_000) }
        #expect(escape.pushes.first?.text.hasPrefix(#"\u001b[2J"#) == true)
        #expect(escape.pushes.first?.text.count == 506)
        let old = WorkerReply(
            worker: "w:1", AdminCall.Answer(status: 404, body: Array("{}".utf8)), record: nil)
        #expect(old.failure?.contains("update") == true)
        let busy = WorkerReply(
            worker: "w:1",
            AdminCall.Answer(
                status: 503, body: Array(#"{"error":"another search is in progress; retry"}"#.utf8)),
            record: nil)
        #expect(busy.isBusy)
    }

    /// Pushes of a later version may have another form. Without them the answer isn't complete.
    @Test func unreadablePushesMakeAnAnswerIncomplete() throws {
        let damaged = try reply { $0["source"] = 5 }
        #expect(damaged.unreadable == 1 && !damaged.isComplete && damaged.failure == nil)
        #expect(damaged.fault == "1 push of the answer can't be read; update sluice")
        func read(_ body: String) -> WorkerReply {
            WorkerReply(
                worker: "w:1", AdminCall.Answer(status: 200, body: Array(body.utf8)), record: nil)
        }
        let two = read(#"{"searched":{},"complete":true,"pushes":[5,{}]}"#)
        #expect(two.unreadable == 2 && !two.isComplete)
        for body in [
            #"{"searched":{},"complete":true}"#, #"{"searched":{},"complete":true,"pushes":{}}"#,
        ] {
            #expect(read(body).failure == "the answer has no list of pushes; update sluice")
            #expect(!read(body).isComplete)
        }
        let whole = read(#"{"searched":{},"complete":true,"pushes":[]}"#)
        #expect(whole.isComplete && whole.fault == nil)
        var later = whole
        later.add(later: two)
        #expect(!later.isComplete && later.unreadable == 2)

        let report = TraceReport(
            jobs: [], searches: [], replies: [two], isLimited: false, isTruncated: false, limit: 1, now: 0)
        #expect(!report.isComplete)
        #expect(
            report.workerFailure == "worker w:1: 2 pushes of the answer can't be read; update sluice")
        #expect(report.lines.contains { $0.contains("0 pushes, 2 pushes of the answer can't be read") })
    }

    /// Jobs beyond the bounds of the questions are shown, but not as if all was known of them.
    @Test func jobsThatWereNotLookedUpMakeATraceIncomplete() {
        var book = TraceBook(TraceSubject(nil, deviceToken: "ab"))
        func note(_ count: Int) {
            for offset in 0..<count {
                book.note(RecordAddress(topic: "jobs", partition: 0, offset: Int64(offset))) { _ in }
            }
        }
        note(TraceBook.mostQuestions)
        #expect(book.questions().count == TraceBook.mostQuestions && !book.isAbridged)
        note(TraceBook.mostLookups)
        book.note(RecordAddress(topic: "other", partition: 0, offset: 0)) { _ in }
        #expect(book.lookups(in: "jobs").count == TraceBook.mostLookups && !book.isAbridged)
        var asked = book
        #expect(asked.questions().count == TraceBook.mostQuestions && asked.isAbridged)
        note(TraceBook.mostLookups + 1)
        #expect(book.lookups(in: "jobs").map(\.offset) == Array(0..<Int64(TraceBook.mostLookups)))
        #expect(book.isAbridged && !book.isTruncated)
        let report = TraceReport(
            jobs: book.sorted, searches: [], replies: [], isLimited: false, isTruncated: false,
            isAbridged: true, limit: 1, now: 0)
        #expect(!report.isComplete && report.advice.contains { $0.contains("name one with its apns-id") })
    }

    /// A search by device token finds no hashed outcome without the configuration, and doesn't notice.
    @Test func openJobOfATokenHasTheHintOfHashes() {
        var ended = TracedJob(place)
        ended.outcome = TracedJob.Ended(outcome(first, "accepted", offset: 7), place: place)
        func isHinted(_ jobs: [TracedJob], mayLackHash: Bool) -> Bool {
            let report = TraceReport(
                jobs: jobs, searches: [TopicSearch(topic: "jobs", period: RecordPeriod(), isComplete: true)],
                replies: [], isLimited: false, isTruncated: false, mayLackHash: mayLackHash, limit: 1,
                deviceToken: "ab", now: 0)
            let text = report.lines.joined(separator: "\n")
            let advice = report.document["advice"] as? [String] ?? []
            #expect(text.contains("try: --config") == advice.contains { $0.hasPrefix("--config") })
            return text.contains("try: --config")
        }
        #expect(isHinted([TracedJob(place)], mayLackHash: true) && isHinted([], mayLackHash: true))
        #expect(!isHinted([ended], mayLackHash: true) && !isHinted([TracedJob(place)], mayLackHash: false))
    }

    @Test func aStoppedTraceIsNotComplete() {
        let search = TopicSearch(topic: "jobs", period: RecordPeriod(), isComplete: true)
        var report = TraceReport(
            jobs: [TracedJob(place)], searches: [search], replies: [], isLimited: false, isTruncated: false,
            limit: 1, now: 0)
        #expect(report.isComplete && report.document["stopped"] as? Bool == false)
        report.isStopped = true
        #expect(!report.isComplete)
        #expect(
            report.document["stopped"] as? Bool == true && report.document["complete"] as? Bool == false)
        let text = report.lines.joined(separator: "\n")
        #expect(text.contains("stopped before the end"))
        #expect(text.contains("no outcome was found before the stop"))
        #expect(!text.contains("no worker that answered has the job"))
    }

    /// A worker may vanish between two questions. Its first answer stays, and its fault is reported.
    @Test func laterFaultsOfAWorkerAreReported() throws {
        var first = try reply { _ in }
        first.isComplete = true
        var partial = first
        partial.isComplete = false
        var kept = first
        kept.add(later: first)
        #expect(kept.isComplete && kept.failure == nil)
        kept.add(later: partial)
        #expect(!kept.isComplete && kept.failure == nil)
        first.add(later: WorkerReply(worker: first.worker, failure: "no answer in time"))
        first.add(later: WorkerReply(worker: first.worker, failure: "no connection"))
        #expect(first.failure == "answered, but not to a later question: no answer in time")
        #expect(!first.isComplete && first.pushes.count == 1)
    }

    @Test func aMissingEndIsNoFactBeforeAllIsRead() {
        let job = TracedJob(place)
        #expect(job.milestones(now: 0).last?.text.contains("no worker that answered has the job") == true)
        #expect(
            job.milestones(now: 0, .partOfTopics).last?.text
                == "no outcome was found yet, because topics were not read to their ends")
        var report = TraceReport(
            jobs: [], searches: [], replies: [], isLimited: false, isTruncated: false, limit: 1, now: 0)
        #expect(report.lines.first == "nothing was found")
        report.replies = [WorkerReply(worker: "w:1", failure: "no connection")]
        #expect(report.lines.first == "nothing was found, but not everything was searched")
        #expect(report.workerFailure == "worker w:1: no connection")
    }

    @Test func reportNamesWhatIsMissing() {
        var search = TopicSearch(topic: "jobs", period: RecordPeriod(since: 1_000_000, until: nil))
        search.records = 12
        var report = TraceReport(
            jobs: [], searches: [search], replies: [WorkerReply(worker: "w:1", failure: "no connection")],
            isLimited: true, isTruncated: false, limit: 12, deviceToken: "0123456789abcdef", now: 2_000_000)
        let text = report.lines.joined(separator: "\n")
        for part in [
            "device 01234567…", "nothing was found", "worker w:1: no connection", "12 records",
            "not to its end",
            "a larger --limit", "--since 1h", "the workers that did not answer",
        ] {
            #expect(text.contains(part), "\(part) is missing: \(text)")
        }
        #expect(!text.contains("0123456789abcdef"))
        #expect(!report.isComplete && report.kafkaFailure == nil)
        report.searches[0].failure = "away"
        #expect(report.kafkaFailure == "away")
        #expect(report.document["found"] as? Int == 0)
        // A single topic without an answer counts, because the job may be there.
        report.searches.insert(TopicSearch(topic: "outcomes", period: search.period), at: 0)
        #expect(report.kafkaFailure == "away")
        report.searches = [search]
        report.readFailure = "no answer about jobs/0/1"
        #expect(report.kafkaFailure == "no answer about jobs/0/1")
    }

    @Test func periodsBecomeOffsets() {
        let period = RecordPeriod(since: 10, until: 20)
        #expect(period.offsets(low: 5, high: 50, since: 20, until: 30) == 20..<30)
        #expect(period.offsets(low: 25, high: 50, since: 20, until: nil) == 25..<50)
        #expect(
            period.offsets(low: 0, high: 50, since: nil, until: nil) == 0..<50, "short logs are read whole")
        #expect(period.offsets(low: 0, high: 1 << 30, since: nil, until: nil).isEmpty)
        #expect(period.offsets(low: 9, high: 3, since: 1, until: 2).isEmpty)
        #expect(
            period.contains(10, unstamped: true) && !period.contains(20, unstamped: true)
                && !period.contains(9, unstamped: true) && period.contains(-1, unstamped: true))
        #expect(RecordPeriod.instant("2h", now: 10_000_000) == 2_800_000)
        #expect(RecordPeriod.instant("1970-01-01T00:00:01Z", now: 0) == 1_000)
        #expect(RecordPeriod.instant("1970-01-01T00:00:01.250Z", now: 0) == 1_250)
        #expect(RecordPeriod.instant("soon", now: 0) == nil)
    }

    @Test(arguments: [(0, "0.0 ms"), (90_000, "1.5 min"), (7_200_000, "2.0 h"), (259_200_000, "3.0 d")])
    func spansHaveFittingUnits(_ milliseconds: Int64, _ text: String) {
        #expect(TraceReport.span(milliseconds) == text)
    }
}

/// The limit of records, without a process and with an embedded cluster in this one.
@Suite("Trace: limit of records")
struct TraceLimitTests {
    @Test func aRecordThatIsLeftOutExceedsTheLimit() {
        var budget = RecordBudget(2)
        let taken = [budget.take(), budget.take()]
        #expect(taken == [true, true] && budget.left == 0 && !budget.isExceeded)
        var whole = budget
        #expect(!whole.continues(isAtEnd: true) && !whole.isExceeded)
        var unread = budget
        #expect(!unread.continues(isAtEnd: false) && unread.isExceeded)
        #expect(!budget.take() && budget.isExceeded && !budget.continues(isAtEnd: true))
    }

    /// All records arrive with one poll, together with the end of the topic.
    @Test func aTopicWithRecordsBehindTheLimitIsNotRead() throws {
        let kafka = try TestKafka(embedding: [("outcomes", 1), ("dead", 1), ("empty", 1)])
        try kafka.produce(to: "outcomes", (0..<450).map { NewRecord(value: "\($0)") })
        try kafka.produce(to: "dead", [NewRecord(value: "x")])
        let cluster = KafkaCluster(bootstrapServers: kafka.bootstrapServers)
        func search(_ searcher: TopicSearcher, _ topic: String) -> (search: TopicSearch, found: Int) {
            var found = 0
            let search = searcher.search(kafka.topic(topic), RecordPeriod()) { _ in found += 1 }
            return (search, found)
        }
        let short = TopicSearcher(cluster, limit: 400) { false }
        let cut = search(short, "outcomes")
        #expect(cut.search.failure == nil && cut.search.records == 400 && cut.found == 400)
        #expect(!cut.search.isComplete && short.isLimited)

        let exact = TopicSearcher(cluster, limit: 450) { false }
        let whole = search(exact, "outcomes")
        #expect(whole.search.isComplete && whole.found == 450 && !exact.isLimited)
        #expect(search(exact, "empty").search.isComplete && !exact.isLimited)
        let behind = search(exact, "dead")
        #expect(!behind.search.isComplete && behind.found == 0 && exact.isLimited)
    }
}
