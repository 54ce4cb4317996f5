import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// `sluice trace` as a process, while Kafka or workers stand still, or are gone.
@Suite("Trace, while Kafka or workers are away")
struct TraceOutageTests {
    private static let first = "00000000-0000-4000-8000-000000000001"
    private static let second = "00000000-0000-4000-8000-000000000002"
    private static let nothing = #"{"searched":{},"complete":true,"pushes":[]}"#

    private func kafka() throws -> TestKafka {
        try TestKafka([("jobs", 1), ("outcomes", 1), ("dead", 1)], isOwn: true)
    }

    private func arguments(_ kafka: TestKafka, _ workers: [FaultyEndpoint], _ more: [String]) -> [String] {
        [
            "trace", Self.first, "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"),
            "--outcomes-topic", kafka.topic("outcomes"), "--dead-letters-topic", kafka.topic("dead"),
        ] + workers.flatMap { ["--url", $0.address] } + more
    }

    /// A worker's answer with the push, which waits.
    private func pending(_ kafka: TestKafka) -> String {
        """
        {"searched":{},"complete":true,"pushes":[{"apns-id":"\(Self.first)","state":"held","text":"waits",\
        "source":{"topic":"\(kafka.topic("jobs"))","partition":0,"offset":0}}]}
        """
    }

    private func job(_ id: String) -> NewRecord {
        var push = PushDescription(
            deviceToken: String(repeating: "5", count: 64), topic: "com.example.news",
            payload: Array(#"{"aps":{"alert":"Hi"}}"#.utf8))
        push.apnsID = id
        return NewRecord(JobEncoder.binary(push))
    }

    private struct Trace {
        var exit: ChildProcess.Exit
        var error: String
        /// The document; empty where there is none.
        var document: [String: Any]

        init(_ run: ChildProcess) throws {
            exit = try run.wait()
            error = run.standardError
            document =
                try JSONSerialization.jsonObject(with: Data(run.standardOutput.utf8)) as? [String: Any] ?? [:]
        }

        var isComplete: Bool? { document["complete"] as? Bool }

        var states: [String] {
            (document["jobs"] as? [[String: Any]] ?? []).compactMap { $0["state"] as? String }
        }

        private func searched(_ kind: String) -> [[String: Any]] {
            (document["searched"] as? [String: Any])?[kind] as? [[String: Any]] ?? []
        }

        /// Errors of topics in the order of their search, or "" where a topic was read to its end.
        var topics: [String] {
            searched("topics").map { topic in
                topic["error"] as? String ?? (topic["complete"] as? Bool == true ? "" : "not to its end")
            }
        }

        /// Errors of workers in the order of their addresses; "" without.
        var workers: [String] { searched("workers").map { $0["error"] as? String ?? "" } }
    }

    private func trace(
        _ kafka: TestKafka, _ workers: [FaultyEndpoint], _ more: String...
    ) throws -> Trace {
        try Trace(start(kafka, workers, more))
    }

    private func start(
        _ kafka: TestKafka, _ workers: [FaultyEndpoint], _ more: [String]
    ) throws -> ChildProcess {
        try ChildProcess(Executables.sluice, arguments(kafka, workers, ["--json"] + more))
    }

    @Test func aSilentKafkaLeavesTheWorkersAnswers() throws {
        let kafka = try kafka()
        kafka.suspend()
        let worker = try FaultyEndpoint(.body(pending(kafka)))
        let found = try trace(kafka, [worker], "--timeout", "5")
        #expect(found.exit == .status(0), "\(found.error)")
        #expect(found.states == ["held"] && found.isComplete == false)
        #expect(found.topics.count == 2 && found.topics.allSatisfy { $0.contains(kafka.bootstrapServers) })
        #expect(found.workers == [""])

        let idle = try FaultyEndpoint(.body(Self.nothing))
        let unknown = try trace(kafka, [idle], "--timeout", "5")
        #expect(unknown.exit == .status(69))
        #expect(unknown.states.isEmpty && unknown.topics.count == 3 && unknown.isComplete == false)
        #expect(unknown.error.contains("can't look up topic \(kafka.topic("outcomes"))"), "\(unknown.error)")
    }

    /// Kafka stands still between two searches: when the trace asks the worker for the successor of a superseded push.
    @Test(arguments: [false, true])
    func whatWasFoundBeforeKafkaWasAwayIsShown(isKilled: Bool) throws {
        let kafka = try kafka()
        try kafka.produce(to: "jobs", [job(Self.first)])
        try kafka.produce(
            to: "outcomes",
            [
                NewRecord(
                    key: "0a0a",
                    value: """
                        {"outcome":"superseded","device-token":"0a0a","topic":"com.example.news",\
                        "apns-id":"\(Self.first)","superseded-by":"\(Self.second)","attempts":0,\
                        "source":{"topic":"\(kafka.topic("jobs"))","partition":0,"offset":0},\
                        "created-at":1,"polled-at":1,"finished-at":1}
                        """)
            ])
        let worker = try FaultyEndpoint(.body(Self.nothing), .held(Self.nothing))
        let run = try start(kafka, [worker], ["--timeout", "5"])
        try worker.waitForRequest()
        try worker.waitForRequest()
        if isKilled { try kafka.kill() } else { kafka.suspend() }
        worker.release()
        let found = try Trace(run)
        #expect(found.exit == .status(0), "\(found.error)")
        #expect(found.states == ["superseded"] && found.isComplete == false)
        #expect(found.topics.count == 3 && Array(found.topics.prefix(2)) == ["", ""], "\(found.topics)")
        #expect(found.topics.last?.contains(kafka.topic("jobs")) == true, "\(found.topics)")
        #expect(found.workers == [""])
        let advice = found.document["advice"] as? [String] ?? []
        #expect(advice.contains { $0.contains("again when Kafka answers") }, "\(advice)")
    }

    @Test func faultyWorkersAreReportedBesideTheOthers() throws {
        let kafka = try kafka()
        try kafka.produce(to: "jobs", [job(Self.first)])
        let bodies = [
            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"searched\":{}", "garbage\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n{\"searched\":", "HTTP/1.1 500 Oops\r\n\r\n{\"error\":\"\\u001b[2J\"}",
            "",
        ]
        let workers =
            try bodies.map { try FaultyEndpoint(.bytes($0)) } + [
                try FaultyEndpoint(.silence), try FaultyEndpoint(.flood),
                try FaultyEndpoint(.body(pending(kafka))),
            ]
        let found = try trace(kafka, workers, "--timeout", "5")
        #expect(found.exit == .status(0), "\(found.error)")
        #expect(found.states == ["held"] && found.isComplete == false)
        #expect(found.topics == ["", ""])
        #expect(
            Array(found.workers.prefix(6)) == [
                "the connection ended within the answer", "the answer is not HTTP/1.1",
                "status 200: the answer is no document of /trace", #"status 500: \u001b[2J"#,
                "the connection ended without an answer of HTTP/1.1", "no answer in time",
            ])
        #expect(["the answer is larger than 32 MB", "no answer in time"].contains(found.workers[6]))
        #expect(found.workers.last == "")
    }

    /// The worker answers the first question, and none about the records' progress.
    @Test func aWorkerThatStallsLaterMakesTheTraceIncomplete() throws {
        let kafka = try kafka()
        try kafka.produce(to: "jobs", [job(Self.first), job(Self.first), job(Self.first)])
        let worker = try FaultyEndpoint(.body(Self.nothing), .silence)
        let found = try trace(kafka, [worker], "--timeout", "5")
        #expect(found.exit == .status(0), "\(found.error)")
        #expect(found.states == ["produced", "produced", "produced"] && found.isComplete == false)
        #expect(found.workers == ["answered, but not to a later question: no answer in time"])
    }

    @Test func nothingFoundWithoutAllNamedWorkersIsNoVerdict() throws {
        let kafka = try kafka()
        let silent = try FaultyEndpoint(.silence)
        let unknown = try trace(kafka, [silent], "--timeout", "5")
        #expect(unknown.exit == .status(69))
        #expect(unknown.error.contains("worker \(silent.address): no answer in time"), "\(unknown.error)")
        #expect(unknown.topics == ["", "", ""] && unknown.isComplete == false)
        let idle = try FaultyEndpoint(.body(Self.nothing))
        let verdict = try trace(kafka, [idle], "--timeout", "5")
        #expect(verdict.exit == .status(1) && verdict.isComplete == true, "\(verdict.error)")
    }

    @Test func aStopEndsTheWaitForWorkersAndKafka() throws {
        let kafka = try kafka()
        let silent = try FaultyEndpoint(.silence)
        let run = try start(kafka, [silent], ["--timeout", "300"])
        try silent.waitForRequest()
        kafka.suspend()
        run.signal(SIGINT)
        let stopped = try Trace(run)
        #expect(stopped.exit == .status(75), "\(stopped.error)")
        #expect(stopped.isComplete == false && stopped.states.isEmpty)
        #expect(stopped.document["stopped"] as? Bool == true)
        #expect(stopped.workers == ["no answer before the stop"])
        #expect(stopped.topics.allSatisfy { $0 == "not to its end" })
    }
}
