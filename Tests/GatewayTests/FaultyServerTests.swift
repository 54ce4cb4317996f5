import Configuration
import Gateway
import Logging
import SluiceModel
import TestSupport
import Testing

/// Workers against a server that fails in one way for some seconds, and then works.
///
/// Every job has one outcome, and no job ends before its expiration. Pushes are repeated only where an answer was lost.
@Suite struct FaultyServerTests {
    /// Results of a worker's run against a server that failed and recovered.
    private struct Run {
        var outcomes: [OutcomeSummary]
        var books: FaultyServer.Books
        var counters: ShardCounters
        /// From the end of the fault until the last outcome, in seconds.
        var recovery: Double

        func count(_ kind: OutcomeKind) -> Int { outcomes.count { $0.kind == kind } }

        /// Accepted pushes that the server accepted more than once.
        var doubles: Int { books.accepted.values.count { $0 > 1 } }
    }

    /// - Parameters:
    ///   - seconds: duration of the fault, from the first request on.
    ///   - jobs: number of jobs, all of which are produced during the fault.
    ///   - producing: seconds over which the jobs are produced; nil: the fault's time.
    ///   - shortTimeouts: requests time out after two seconds. Otherwise after ten: a busy machine answers late.
    private func run(
        _ fault: String, seconds: Double = 3, jobs: Int = 400, producing: Double? = nil, payload: Int = 100,
        shortTimeouts: Bool = false, log: any LogHandler = SwiftLogNoOpLogHandler(),
        _ change: (inout Configuration) -> Void = { _ in },
        _ push: (inout PushDescription, Int) -> Void = { _, _ in }
    ) throws -> Run {
        try withBed { bed in
            let server = try FaultyServer(fault: fault, seconds: seconds)
            let worker = try bed.worker(log: log, logLevel: .notice) {
                $0.apns.port = server.port
                $0.apns.caFile = server.caFile
                $0.apns.requestTimeout = .seconds(shortTimeouts ? 2 : 10)
                $0.apns.progressTimeout = .seconds(shortTimeouts ? 1 : 20)
                $0.delivery.retry = .init(initial: .milliseconds(50), maximum: .seconds(1))
                change(&$0)
            }
            var produced = 0
            let begin = ContinuousClock.now
            try eventually("all jobs are produced") {
                let due = min(1, (ContinuousClock.now - begin) / .seconds(producing ?? seconds))
                let next = max(1, Int(Double(jobs) * due))
                if next > produced {
                    let first = produced
                    try bed.produce(next - first, seed: UInt64(7_000 + first)) {
                        $0.ttl = 3 * 86_400
                        $0.payload = Array(
                            #"{"aps":{"alert":"\#(String(repeating: "x", count: payload))"}}"#.utf8)
                        push(&$0, $1)
                    }
                    produced = next
                }
                return produced == jobs
            }
            let outcomes = try bed.waitForOutcomes(jobs)
            let recovery = (ContinuousClock.now - begin) / .seconds(1) - seconds
            let counters = worker.snapshot().totals
            bed.stop(worker)
            let books = server.books
            bed.outcomes.poll()
            #expect(bed.readOutcomes().count == jobs, "each job has one outcome")
            #expect(WorkerBed.places(outcomes).count == jobs)
            return Run(outcomes: outcomes, books: books, counters: counters, recovery: recovery)
        }
    }

    /// All pushes end as accepted, and none is accepted twice by the server.
    private func expectAll(_ run: Run, doubles: Int = 0, _ comment: Comment) {
        #expect(run.count(.accepted) == run.outcomes.count, comment)
        #expect(run.doubles <= doubles, comment)
        #expect(run.recovery < 30, comment)
    }

    // MARK: No answers

    /// All answers arrive after their requests have timed out.
    @Test func lateAnswersCountAsAttemptsAndLoseNothing() throws {
        let run = try run("late:2.5", jobs: 100, shortTimeouts: true)
        expectAll(run, "late")
        for outcome in run.outcomes {
            #expect(outcome.attempts == run.books.requests[outcome.deviceToken])
        }
    }

    /// 5 % of the requests are never answered.
    @Test func onlyUnansweredPushesAreRepeated() throws {
        // A slow machine may need another connection, which this test couldn't tell from the successor of a closed one.
        let run = try run("silent:0.05", jobs: 1_000) { $0.apns.maxConnections = 2 }
        expectAll(run, "dropped")
        #expect(run.books.connections == 2, "no connection is closed")
        let dropped = run.books.allRequests - run.books.accepted.count
        #expect(run.books.allRequests == run.outcomes.count + dropped)
        #expect(dropped < 100)
    }

    // MARK: Resets

    @Test func refusedStreamsAreRetriedOnTheSameConnections() throws {
        let run = try run("reset:7:0.1")
        expectAll(run, "REFUSED_STREAM 10 %")
        #expect(run.books.connections == 2)
        #expect(run.counters.pools.circuitOpened == 0)
    }

    @Test(arguments: ["reset:7", "reset:2", "reset:8", "without-status"])
    func manyBrokenStreamsOpenTheCircuit(_ fault: String) throws {
        let run = try run(fault, seconds: 4)
        expectAll(run, "\(fault)")
        #expect(run.counters.pools.circuitOpened > 0)
        #expect(run.counters.pools.streamErrors > 0)
        #expect(run.books.allRequests < 4 * run.outcomes.count, "\(run.books.allRequests) requests")
    }

    // MARK: Answers that are cut

    /// A status that has arrived is the answer: no push is sent twice, and none is lost.
    @Test(arguments: ["reset", "nothing"]) func statusOfACutAnswerIsTheAnswer(end: String) throws {
        let run = try run("cut:200:\(end)", jobs: 100, shortTimeouts: true) {
            $0.apns.progressTimeout = .seconds(20)
        } _: { push, index in
            push.duplicates = index % 2 == 0 ? "avoid" : nil
        }
        expectAll(run, "\(end)")
        #expect(run.books.allRequests == run.outcomes.count)
    }

    @Test func tokenThatACutAnswerCallsUnregisteredIsRejected() throws {
        let run = try run("cut:410:reset", seconds: 30, jobs: 50, producing: 1) { _ in
        } _: { push, _ in
            push.duplicates = "avoid"
        }
        #expect(run.count(.rejected) == run.outcomes.count)
        #expect(run.books.allRequests == run.outcomes.count)
    }

    /// The reason that is missing would have decided about the push, so the push is sent again.
    @Test(arguments: [400, 403]) func refusalWithoutItsReasonIsRetried(status: Int) throws {
        let run = try run("cut:\(status):reset", jobs: 100)
        expectAll(run, "\(status)")
        #expect(run.books.allRequests > run.outcomes.count)
    }

    // MARK: Ends of connections

    /// Each connection ends after one answer.
    @Test(arguments: ["goaway:0:Shutdown", "goaway:11:TooManyRequests", "goaway:0:IdleTimeout"])
    func connectionsEndingAtOnceAreReplacedSparingly(_ fault: String) throws {
        let run = try run(fault, seconds: 8)
        expectAll(run, "\(fault)")
        #expect(run.books.connections <= 12, "\(run.books.connections) connections")
    }

    @Test func occasionalShutdownAnswersReplaceFewConnections() throws {
        let run = try run("status:503:Shutdown:0.1", seconds: 6, jobs: 2_000)
        expectAll(run, "503 Shutdown 10 %")
        #expect(run.books.connections <= 10, "\(run.books.connections) connections")
    }

    // MARK: Provider tokens

    /// A server takes provider tokens for expired at random, however new they are.
    @Test func fewTokensRefusedAsExpiredReplaceNoConnection() throws {
        let run = try run("status:403:ExpiredProviderToken:0.05", jobs: 1_000) { $0.apns.maxConnections = 2 }
        expectAll(run, "ExpiredProviderToken 5 %")
        #expect(run.books.connections == 2, "no connection is replaced")
        let refused = run.books.allRequests - run.outcomes.count
        #expect(refused > 0 && refused < 120, "\(refused) refusals")
        for outcome in run.outcomes {
            #expect(outcome.attempts == run.books.requests[outcome.deviceToken])
        }
    }

    @Test func tokensThatAreAlwaysRefusedCauseFewRequests() throws {
        let run = try run("status:403:ExpiredProviderToken:1.0", seconds: 6) { $0.apns.maxConnections = 2 }
        expectAll(run, "ExpiredProviderToken")
        #expect(run.books.connections <= 25, "\(run.books.connections) connections")
        let during = run.books.times.count { $0 < 6 }
        #expect(during <= 200, "\(during) requests")
    }

    // MARK: Limits

    @Test func pushesResumeWhenTheStreamLimitRecovers() throws {
        let run = try run("streams", seconds: 6, shortTimeouts: true)
        expectAll(run, "streams 1000, 1, 0, 1000")
        #expect(run.counters.pools.stuck > 0)
    }

    @Test func connectionWithoutWindowUpdatesIsReplaced() throws {
        let run = try run("window", seconds: 5, payload: 1_500, shortTimeouts: true)
        expectAll(run, "no window")
        #expect(run.counters.pools.stuck > 0)
        #expect(run.books.connections <= 12, "\(run.books.connections) connections")
    }

    // MARK: Answers

    @Test(arguments: [
        "status:503:ServiceUnavailable:1.0:3600", "status:503:ServiceUnavailable:0.9", "status:302::1.0",
    ])
    func failingEndpointGetsFewRequestsAndLosesNoPush(_ fault: String) throws {
        let run = try run(fault, seconds: 4) {
            $0.delivery.retry.retryAfterLimit = .seconds(5)
        } _: { push, number in
            push.priority = number % 2 == 0 ? 10 : 5
        }
        expectAll(run, "\(fault)")
        // The circuit evaluates the answers of one second before it opens, which a busy machine stretches. Without the
        // circuit each of the 250 jobs of this time has an attempt at least.
        let late = run.books.times.count { $0 > 1.5 && $0 < 4 }
        #expect(late < 100, "\(late) requests after a second and a half")
    }

    /// A fifth of the devices gets status 500 for more than eight attempts.
    @Test func pushesSurviveALongPartialOutage() throws {
        let run = try run("devices:500:InternalServerError:0.2", seconds: 6)
        expectAll(run, "500 for 20 % of the devices")
        #expect(run.outcomes.contains { $0.attempts > 8 })
    }

    @Test(arguments: [201, 204])
    func anySuccessStatusAcceptsThePush(_ status: Int) throws {
        let run = try run("success:\(status)", seconds: 1, jobs: 50)
        expectAll(run, "\(status)")
        #expect(run.books.allRequests == 50)
    }

    @Test func forbiddenPushesStopTheTopicWithoutRetries() throws {
        let run = try run("status:403:Forbidden")
        let rejected = run.outcomes.filter { $0.kind == .rejected }
        #expect(rejected.allSatisfy { $0.reason == "Forbidden" })
        #expect(rejected.count + run.count(.accepted) == run.outcomes.count)
        #expect(rejected.count < 20, "\(rejected.count) pushes before the topic stopped")
        for outcome in rejected { #expect(run.books.requests[outcome.deviceToken] == 1) }
        #expect(run.recovery < 20)
    }

    /// A tenth of the requests meets a refusal of the topic, so that the topic stops and recovers again and again. Each
    /// notice has a line or is counted by one.
    @Test func topicThatStopsAgainAndAgainHasFewLines() throws {
        let log = LogRecorder()
        let begin = ContinuousClock.now
        let run = try run("status:403:TopicDisallowed:0.1", seconds: 4, log: log)
        // The first line, the line of each further ten seconds, and the line of the end.
        let most = 2 + Int((ContinuousClock.now - begin) / .seconds(10))
        expectAll(run, "TopicDisallowed 10 %")
        let (stops, texts) = (
            run.counters.stops,
            ["APNs refuses the credential or topic", "APNs accepts pushes for the topic again"]
        )
        #expect(stops > 2 * most, "\(stops) stops are no flood")
        for text in texts { #expect((1...most).contains(log.messages.count(containing: text))) }
        let notices = texts.reduce(0) { $0 + log.messages.notices(containing: $1) }
        #expect(notices == 2 * stops)
    }

    @Test func unknownReasonAppearsInOutcomeAndCounters() throws {
        let run = try run("status:400:OddOne:1.0", seconds: 1, jobs: 20)
        #expect(run.counters.unknownReasons.keys.contains("OddOne"))
        #expect(run.outcomes.contains { $0.kind == .rejected && $0.reason == "OddOne" })
    }

    /// A server may repeat what it was sent.
    @Test func reasonThatMayHoldATokenAppearsNowhere() throws {
        let run = try run("status:400:0a1b 2c3d:1.0", seconds: 1, jobs: 20)
        #expect(Array(run.counters.unknownReasons.keys) == ["unknown"])
        #expect(run.outcomes.contains { $0.kind == .rejected && $0.reason == "unknown" })
    }
}
