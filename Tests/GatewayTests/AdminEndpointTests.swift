import Configuration
import DeliveryCore
import EventLoop
import Foundation
import Metrics
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import Gateway
@testable import RetryStore

/// Answers of the endpoints over HTTP, for a worker in each state. The test gives the answers of the worker's loops.
struct AdminEndpointTests {
    /// A worker of two shards whose loops answer as the test sets them.
    private final class Stand: Sendable {
        let intake: Mutex<IntakeSnapshot?>
        let shards = Mutex<[Int: ShardCounters]>([0: ShardCounters(), 1: ShardCounters()])
        let ended = Mutex<[String]>([])
        let stop = Mutex<WorkerStop?>(nil)
        let endpoints: AdminEndpoints
        let server: AdminTestServer

        init(
            patience: Duration = .seconds(60), freshness: Duration = .zero, store: RetryStore? = nil
        ) throws {
            var snapshot = IntakeSnapshot()
            snapshot.isAssigned = true
            intake = Mutex(snapshot)
            endpoints = AdminEndpoints(patience: patience, freshness: freshness)
            server = try AdminTestServer(endpoints.routes)
            endpoints.attach(
                AdminSource(
                    loops: ["kafka", "shard-0", "shard-1"], store: store,
                    stop: { [unowned self] in stop.withLock { $0 } }
                ) { [unowned self] _, answer in
                    if let intake = intake.withLock({ $0 }) { answer(.intake(intake)) }
                    for (index, counters) in shards.withLock({ $0 }) { answer(.shard(index, counters)) }
                    for loop in ended.withLock({ $0 }) { answer(.ended(loop)) }
                })
        }

        func get(_ target: String) throws -> AdminClient.Answer { try server.get(target) }

        func client() throws -> AdminClient { try server.client() }

        func change(_ body: (inout IntakeSnapshot) -> Void) {
            intake.withLock { body(&$0!) }
        }
    }

    private func notReady(_ change: (inout IntakeSnapshot) -> Void) throws -> AdminClient.Answer {
        let stand = try Stand()
        stand.change(change)
        let answer = try stand.get("/readyz")
        #expect(answer.status == 503)
        #expect(answer.json["ready"] as? Bool == false)
        #expect(try stand.get("/livez").status == 200)
        #expect(try stand.get("/metrics").body.contains("\nsluice_ready 0\n"))
        return answer
    }

    @Test func assignedWorkerWithoutPartitionsIsReady() throws {
        let stand = try Stand()
        let answer = try stand.get("/readyz")
        #expect(answer.status == 200)
        #expect(answer.json["ready"] as? Bool == true)
        #expect(answer.reasons == [])
        #expect(try stand.get("/metrics").body.contains("\nsluice_ready 1\n"))
    }

    @Test func endpointWithoutWorkerIsAliveButNotReady() throws {
        let stand = try Stand()
        stand.endpoints.detach()
        #expect(try stand.get("/readyz").status == 503)
        #expect(try stand.get("/livez").status == 200)
        for path in [
            "/metrics", "/store", "/store/summary", "/store/device?token=\(token)", "/trace?token=\(token)",
        ] {
            #expect(try stand.get(path).status == 503)
        }
    }

    @Test func workerBeforeFirstAssignmentIsNotReady() throws {
        #expect(
            try notReady { $0.isAssigned = false }.reasons == [
                "the group has not assigned partitions yet"
            ])
    }

    @Test func restoringWorkerIsNotReadyAndReportsProgress() throws {
        let answer = try notReady {
            $0.arriving = 5
            $0.opening = [1]
            $0.restoring = [2, 4]
            $0.restoredRecords = 700
            $0.remainingRecords = 42
        }
        #expect(
            answer.reasons == [
                "2 of 5 assigned partitions are being restored: 700 records restored, 42 remaining"
            ])
        let restore = try #require(answer.json["restore"] as? [String: Any])
        #expect(restore["restoring"] as? [Int] == [2, 4])
        #expect(restore["opening"] as? [Int] == [1])
        #expect(restore["records-restored"] as? Int == 700)
        #expect(restore["records-remaining"] as? Int == 42)
    }

    @Test func workerOpeningStoresIsNotReady() throws {
        let answer = try notReady {
            $0.arriving = 3
            $0.opening = [0, 1]
        }
        #expect(answer.reasons == ["the store of 2 of 3 assigned partitions is being opened"])
    }

    @Test func workerWithFailingStoreIsNotReady() throws {
        let reasons = try notReady { $0.isStoreFailing = true }.reasons
        #expect(reasons.count == 1 && reasons[0].hasPrefix("the store can't be written or read"))
    }

    @Test func stoppingWorkerIsNotReadyAndReportsWhy() throws {
        #expect(
            try notReady { $0.phase = .draining }.reasons == ["the worker is stopping; it takes no new jobs"])
        let failed = try notReady {
            $0.phase = .draining
            $0.failure = "the producer is fenced"
        }
        #expect(failed.reasons.last == "the worker failed: the producer is fenced")
        #expect(try notReady { $0.phase = .ended }.reasons == ["the worker has stopped"])
    }

    @Test func workerInDoubtOfMembershipIsNotReady() throws {
        #expect(try notReady { $0.isMembershipInDoubt = true }.reasons.count == 1)
    }

    @Test func workerThatCannotCommitIsNotReady() throws {
        let reasons = try notReady { $0.arePushesHeld = true }.reasons
        #expect(reasons.count == 1 && reasons[0].hasPrefix("Kafka takes no commits"))
    }

    @Test func workerWithHungLoopIsNotAlive() throws {
        let stand = try Stand(patience: .milliseconds(50))
        #expect(try stand.get("/livez").status == 200)
        _ = stand.shards.withLock { $0.removeValue(forKey: 1) }
        let shard = try stand.get("/livez")
        #expect(shard.status == 503)
        #expect(shard.reasons == ["the thread `shard-1` does not answer"])
        stand.intake.withLock { $0 = nil }
        #expect(try stand.get("/livez").reasons.first == "the thread `kafka` does not answer")
        #expect(try stand.get("/readyz").reasons.count == 2)
        // Sums without this shard would be too small.
        #expect(try stand.get("/metrics").status == 503)
        #expect(try stand.get("/store").status == 503)
    }

    // MARK: A stop

    /// Loops block while they close their stores and connections, and end one after another.
    @Test func stoppingWorkerIsAliveUntilItsTimeLimit() throws {
        let stand = try Stand(patience: .milliseconds(50))
        stand.stop.withLock { $0 = WorkerStop(elapsed: .seconds(39), limit: .seconds(40)) }
        let stopping = ["the worker is stopping; it takes no new jobs"]
        #expect(try stand.get("/livez").status == 200)
        #expect(try stand.get("/livez").json["stopping"] as? Bool == true)
        #expect(try stand.get("/readyz").reasons == stopping)
        stand.intake.withLock { $0 = nil }
        _ = stand.shards.withLock { $0.removeValue(forKey: 1) }
        #expect(try stand.get("/livez").status == 200)
        let ready = try stand.get("/readyz")
        #expect(ready.status == 503)
        #expect(ready.reasons == stopping)
        stand.ended.withLock { $0 = ["kafka", "shard-1"] }
        #expect(try stand.get("/livez").status == 200)
        #expect(try stand.get("/readyz").reasons == stopping)
        // Sums without these loops would be too small.
        for path in ["/metrics", "/store"] {
            let answer = try stand.get(path)
            #expect(answer.status == 503)
            #expect("\(answer.json["error"] ?? "")".contains("the thread `kafka` has ended"))
        }
    }

    @Test func workerStoppingTooLongIsNotAlive() throws {
        let stand = try Stand(patience: .milliseconds(50))
        stand.stop.withLock { $0 = WorkerStop(elapsed: .seconds(41), limit: .seconds(40)) }
        let reason = "the worker's stop takes longer than 40 s"
        #expect(try stand.get("/livez").status == 503)
        #expect(try stand.get("/livez").reasons == [reason])
        stand.intake.withLock { $0 = nil }
        #expect(try stand.get("/livez").reasons == ["the thread `kafka` does not answer", reason])
        #expect(try stand.get("/readyz").status == 503)
    }

    // MARK: Metrics

    @Test func metricsOfAllLoopsAppearInPrometheusFormat() throws {
        let stand = try Stand()
        stand.change {
            $0.counters.records = 11
            $0.changelog = .init()
            $0.transactions = .init(state: "open", begun: 7, aborted: 2)
        }
        stand.shards.withLock {
            $0[0]!.sent = 5
            $0[1]!.sent = 6
            var apps = [AppFigures(), AppFigures()]
            apps[0].outcomes[Int(OutcomeKind.accepted.rawValue)] = 1
            apps[1].outcomes[Int(OutcomeKind.accepted.rawValue)] = 2
            apps[1].reasons[Int(Reason.unregistered.rawValue)] = 3
            $0[0]!.apps = ["news": apps[0]]
            $0[1]!.apps = ["news": apps[1], "": AppFigures()]
            var figures = CredentialFigures(
                report: CredentialReport(name: "app news", environment: .development))
            figures.pools.stopped = 1
            figures.pools.connections[1] = 4
            $0[0]!.credentials = ["app news": figures]
            figures.pools.reasons[Int(Reason.badDeviceToken.rawValue)] = 4
            $0[1]!.credentials = ["app news": figures]
            $0[0]!.goAways[Int(Reason.shutdown.rawValue)] = 2
            $0[0]!.lastGoAways[Int(Reason.shutdown.rawValue)] = 5000
            $0[1]!.goAways[Int(Reason.shutdown.rawValue)] = 1
            $0[1]!.lastGoAways[Int(Reason.shutdown.rawValue)] = 7999
            $0[1]!.goAways[Int(Reason.unknown.rawValue)] = 1
            $0[1]!.goAways[Int(Reason.absent.rawValue)] = 6
            $0[0]!.unknownReasons = ["OddOne": 2]
            $0[1]!.unknownReasons = ["OddOne": 1, "other": 4]
            $0[1]!.tokenStops = 1
            $0[0]!.brokenInvariants = 2
        }
        let answer = try stand.get("/metrics")
        #expect(answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
        for line in [
            "sluice_jobs_total 11", "sluice_pushes_total 11", "sluice_transactions_aborted_total 2",
            #"sluice_outcomes_total{app="news",kind="accepted"} 3"#,
            #"sluice_rejections_total{app="news",reason="Unregistered",class="token"} 3"#,
            #"sluice_apns_errors_total{credential="app news",environment="development",reason="BadDeviceToken"} 4"#,
            #"sluice_apns_pools_stopped{credential="app news",environment="development"} 2"#,
            #"sluice_apns_connections{credential="app news",environment="development",state="active"} 8"#,
            #"sluice_apns_goaways_total{reason="Shutdown"} 3"#,
            #"sluice_apns_goaways_total{reason="other"} 1"#,
            #"sluice_apns_goaways_total{reason="none"} 6"#,
            #"sluice_apns_last_goaway_timestamp_seconds{reason="Shutdown"} 7"#,
            #"sluice_apns_unknown_reasons_total{reason="OddOne"} 3"#,
            #"sluice_apns_unknown_reasons_total{reason="other"} 4"#,
            "sluice_broken_invariants_total 2", "sluice_topic_stops_for_tokens_total 1",
        ] {
            #expect(answer.body.contains("\n\(line)\n"))
        }
        try check(answer.body)
    }

    @Test func scrapeReceivesTheFormatThatItPrefers() throws {
        let stand = try Stand()
        for format in MetricsFormat.allCases {
            let client = try stand.client()
            client.send(
                "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: \(format.contentType)\r\nConnection: close\r\n\r\n"
            )
            let answer = client.receiveAll()
            #expect(answer.contains("\r\nContent-Type: \(format.contentType)\r\n"))
            #expect(answer.contains("sluice_ready"))
            #expect(answer.hasSuffix("\n# EOF\n") == (format == .openMetrics))
        }
    }

    /// A misspelt parameter must not become a command with another effect.
    @Test func commandsRefuseUnknownParameters() async throws {
        let calls = Mutex(0)
        let counter = CallCounter(calls: calls)
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore(.init(directory: directory.file("store"), sourceTopic: "jobs"))
        defer { store.close() }
        let status = SwitchStatus(
            pauses: [], areKnown: true, home: "memory", changes: 0, unkept: 0, unreadable: 0,
            isTopicAway: true)
        let endpoints = AdminEndpoints(
            process: ProcessControl(
                drain: { counter.add() }, logLevels: ["info"], logLevel: { "info" },
                setLogLevel: { _ in
                    counter.add()
                    return true
                }))
        endpoints.attach(
            AdminSource(
                loops: [], store: store,
                switches: SwitchControl(
                    status: { status }, problem: { _ in nil }, change: { _, _, _, _, _ in counter.add() })
            ) { _, _ in })
        #expect(endpoints.commands.count == 5)
        for (path, handler) in endpoints.commands {
            let answer = await handler(
                AdminRequest(path: path, query: ["x": "1", "level": "info", "all": "1"]))
            #expect(answer.status == 400, "\(path)")
            let text = String(decoding: answer.body, as: UTF8.self)
            #expect(text.contains("there is no parameter"), "\(path): \(text)")
        }
        #expect(counter.count == 0)
        // The topic's absence is a warning, and no reason to be unready.
        let ready = await endpoints.routes["/readyz"]!(AdminRequest(path: "/readyz"))
        #expect(
            String(decoding: ready.body, as: UTF8.self).contains(
                "the switches' topic can't be read: no pause is known"))
    }

    private final class CallCounter: Sendable {
        private let calls: Mutex<Int>
        init(calls: consuming Mutex<Int>) { self.calls = calls }
        var count: Int { calls.withLock { $0 } }
        func add() { calls.withLock { $0 += 1 } }
    }

    /// Deploy/metrics.md is the list of all families, for people who write rules and dashboards.
    @Test func documentHasEachFamilyWithItsTypeAndLabels() throws {
        var snapshot = WorkerSnapshot()
        var intake = IntakeSnapshot()
        intake.changelog = .init()
        intake.transactions = .init(state: "open", begun: 1, aborted: 1)
        snapshot.intake = intake
        var facts = WorkerMetrics.Facts()
        facts.store = StoreStatistics()
        facts.storeKeys = StoreKeyReport(names: ["a", "b"])
        facts.freeBytes = 1
        facts.process = ProcessFigures.read()
        facts.switches = SwitchStatus(
            pauses: [], areKnown: true, home: "memory", changes: 0, unkept: 0, unreadable: 0)
        let families = WorkerMetrics.families(snapshot, facts)
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let text = try String(contentsOf: root.appending(path: "Deploy/metrics.md"), encoding: .utf8)
        var documented: [String: String] = [:]
        for row in text.split(separator: "\n") {
            guard let match = row.wholeMatch(of: /\| `([a-z_]+)` \| (counter|gauge|histogram) \|.*/) else {
                continue
            }
            #expect(
                documented.updateValue(String(match.2), forKey: String(match.1)) == nil, "\(match.1) twice")
        }
        func name(_ kind: MetricFamily.Kind) -> String {
            switch kind {
            case .counter: "counter"
            case .gauge: "gauge"
            case .histogram: "histogram"
            }
        }
        let exported = Dictionary(uniqueKeysWithValues: families.map { ($0.sampleName, name($0.kind)) })
        #expect(Set(documented.keys).symmetricDifference(exported.keys).sorted() == [])
        #expect(documented == exported)
    }

    /// Each metric family must appear once: help, type, then samples.
    private func check(_ text: String) throws {
        #expect(text.hasSuffix("\n"))
        var (types, samples): ([String: String], Set<String>) = ([:], [])
        var current = ""
        for line in text.split(separator: "\n") {
            if let help = line.wholeMatch(of: /# HELP ((?:sluice|process)_[a-z_]+) \S.*/) {
                current = String(help.1)
                #expect(types[current] == nil, "\(current) appears twice")
            } else if let type = line.wholeMatch(
                of: /# TYPE ((?:sluice|process)_[a-z_]+) (counter|gauge|histogram)/)
            {
                #expect(type.1 == current)
                #expect((type.2 == "counter") == current.hasSuffix("_total"))
                types[current] = String(type.2)
            } else {
                let sample = try #require(
                    line.wholeMatch(of: /((?:sluice|process)_[a-z_]+)(\{[^}]*\})? -?[0-9.e+-]+/), "\(line)")
                let isHistogram = types[current] == "histogram"
                #expect(isHistogram ? sample.1.hasPrefix(current + "_") : sample.1 == current)
                #expect(samples.insert("\(sample.1)\(sample.2 ?? "")").inserted)
            }
        }
        #expect(types.count > 30)
    }

    // MARK: Store

    /// Device token that no store has.
    private let token = String(repeating: "ab", count: 16)

    private func store(_ directory: TemporaryDirectory) throws -> RetryStore {
        try RetryStore(.init(directory: directory.file("store"), sourceTopic: "jobs"))
    }

    /// A partition that was lost before the end of its purge would otherwise seem to be the worker's, and purged.
    @Test func partitionsOfAnAnswerAreNotOlderThanItsPurges() throws {
        let directory = try TemporaryDirectory("admin")
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.isChangelogBacked = true
        let store = try RetryStore(settings)
        defer { store.close() }
        let isOpen = BlockingFlag()
        store.open(partition: 0) { _ in isOpen.set() }
        isOpen.wait()
        let stand = try Stand(freshness: .seconds(3_600), store: store)
        let report = PartitionReport(
            topic: "jobs", partition: 0, watermark: 0, end: 0, outstanding: 0, outstandingBytes: 0,
            headOfLineAge: .zero, pauseReasons: [], isEnding: false)
        stand.change { $0.partitions = [report] }
        func partitions() throws -> Int? { (try stand.get("/store").json["partitions"] as? [Any])?.count }
        #expect(try partitions() == 1)
        // A snapshot serves later requests, unless a purge has ended since.
        stand.change { $0.partitions = [] }
        #expect(try partitions() == 1)
        store.purge(.all)
        try eventually("the partition is purged") { store.purges.completed == 1 }
        #expect(try partitions() == 0)
        stand.change { $0.partitions = [report] }
        #expect(try partitions() == 0)
    }

    @Test func storeRequestsWithoutStoreAnswer404() throws {
        let stand = try Stand()
        for path in ["/store", "/store/summary", "/store/device?token=\(token)"] {
            let answer = try stand.get(path)
            #expect(answer.status == 404)
            #expect("\(answer.json["error"] ?? "")".contains("no store"))
        }
    }

    @Test func storeRequestsWithWrongParametersAnswer400() throws {
        let directory = try TemporaryDirectory("admin")
        let store = try store(directory)
        defer { store.close() }
        let stand = try Stand(store: store)
        for target in [
            "/store/summary?partition=x", "/store/summary?partition=-1", "/store/summary?other=1",
            "/store/device", "/store/device?token=", "/store/device?token=xyz",
            "/store/device?token=\(token)&partition=1",
            // A truncated token has no push, so its answer would reassure whoever has erased a person.
            "/store/device?token=\(token.dropLast())", "/store/device?token=ab",
        ] {
            #expect(try stand.get(target).status == 400, "\(target)")
        }
        let partition = try stand.get("/store/summary?partition=3")
        #expect(partition.status == 404)
        #expect(partition.json["partitions"] as? [Int] == [])
        let token = try stand.get("/store/device?token=abcdefg")
        #expect(token.status == 400 && !token.body.contains("abcdefg"))
        let summary = try stand.get("/store/summary")
        #expect(summary.status == 200 && summary.json["items"] as? Int == 0)
    }

    @Test func secondSummaryIsRefusedUntilTheFirstEnds() throws {
        let directory = try TemporaryDirectory("admin")
        let store = try store(directory)
        let stand = try Stand(store: store)
        // The scan thread is busy.
        let release = BlockingFlag()
        store.read { _ in
            release.wait()
        } completion: { _ in
        }
        let first = try stand.server.client()
        first.send(AdminClient.request("GET", "/store/summary"))
        try eventually("the summary is in progress") {
            stand.endpoints.isSummarizing.load(ordering: .relaxed)
        }
        let second = try stand.get("/store/summary")
        #expect(second.status == 429)
        #expect(second.fields["retry-after"] != nil)
        // The client has left, so another may ask, although nothing was scanned.
        first.leave()
        try eventually("the summary is cancelled") {
            !stand.endpoints.isSummarizing.load(ordering: .relaxed)
        }
        let third = try stand.server.client()
        third.send(AdminClient.request("GET", "/store/summary"))
        release.set()
        #expect(third.answer()?.status == 200)
        store.close()
        #expect(try stand.get("/store/summary").status == 503)
        #expect(try stand.get("/store/device?token=\(token)").status == 503)
    }

    /// A damaged disk may return any number.
    @Test func timesBeyondTheCalendarAppearAsMilliseconds() {
        #expect(StoreSummary.time(1_700_000_000_000) == "2023-11-14T22:13:20Z")
        #expect(StoreSummary.time(253_402_300_799_999).hasPrefix("9999-12-31T23:59:59"))
        for time: Int64 in [.min, -1, 253_402_300_800_000, .max] {
            #expect(StoreSummary.time(time) == "\(time) ms")
        }
    }
}
