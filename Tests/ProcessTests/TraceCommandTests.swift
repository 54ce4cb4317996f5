import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// `sluice trace` as a process, with Kafka, a simulator and a worker.
@Suite("Trace of one notification")
struct TraceCommandTests {
    /// Text in all payloads and collapse identifiers of these tests.
    private static let secret = "hush-hush"

    private func id(_ number: Int) -> String {
        "00000000-0000-4000-8000-" + String(format: "%012x", number)
    }

    private func device(_ prefix: String, _ number: Int) -> String {
        prefix + String(repeating: "5", count: 56 - prefix.count) + String(format: "%08x", number)
    }

    private func job(
        _ number: Int, to device: String, _ change: (inout PushDescription) -> Void = { _ in }
    ) -> EncodedJob {
        var push = PushDescription(
            deviceToken: device, topic: "com.example.news",
            payload: Array(#"{"aps":{"alert":"\#(Self.secret)"}}"#.utf8))
        push.apnsID = id(number)
        push.ttl = 3_600
        change(&push)
        return number.isMultiple(of: 2) ? JobEncoder.structured(push) : JobEncoder.binary(push)
    }

    /// Result of a trace, whose output has neither payload nor collapse identifier nor a whole token.
    private func trace(
        _ config: String, _ more: [String]
    ) throws -> (status: ChildProcess.Exit, output: String, error: String) {
        let result = try ChildProcess.run(
            Executables.sluice, ["trace", "--config", config, "--timeout", "30"] + more)
        let text = result.standardOutput + result.standardError
        #expect(!text.contains(Self.secret))
        #expect(!text.contains("5555555555555555"), "a token is in the output")
        return (result.exit, result.standardOutput, result.standardError)
    }

    private func document(_ output: String) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any])
    }

    private func events(_ job: [String: Any]) -> [String] {
        (job["milestones"] as? [[String: Any]] ?? []).compactMap { $0["event"] as? String }
    }

    private func address(_ worker: WorkerProcess) throws -> String {
        let text = try String(contentsOfFile: worker.readyFile, encoding: .utf8)
        let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("admin ") })
        return String(line.dropFirst("admin ".count))
    }

    @Test func jobsHaveTheirMilestones() throws {
        try withBed(BedOptions(simulator: ["--device-reasons", "dead=Unregistered,beef=TooManyRequests"])) {
            bed in
            let worker = try bed.start(
                WorkerOptions(delivery: "{retry: {initial: 600s, maximum: 600s}}"))
            let config = bed.directory.file("\(worker.name).yaml")
            let url = ["--url", try address(worker)]
            let offline = try #require(
                JobEncoder.document(
                    Array(#"{"kind":"device","device-token":"\#(device("0f", 2))","event":"offline"}"#.utf8)))
            let later = Int64(Date().timeIntervalSince1970) * 1_000 + 1_800_000
            func held(_ number: Int) -> EncodedJob {
                job(number, to: device("0f", 2)) {
                    $0.delivery = "hold-while-offline"
                    $0.collapseIdentifier = Self.secret
                }
            }
            try bed.produce([
                job(1, to: device("aa", 1)), offline, held(2), held(3), held(4),
                job(5, to: device("dead", 5)),
                job(6, to: device("aa", 6)) { $0.topic = "com.example.unknown" },
                job(7, to: device("aa", 7)) { $0.deliverAtMilliseconds = later },
                job(8, to: device("beef", 8)),
            ])
            // Not a valid job: the priority is wrong.
            try bed.produce([job(9, to: device("aa", 9)) { $0.priority = 7 }])
            for (number, text) in [
                (8, "last answer 429"), (6, "undeliverable"), (9, "dead-letter"), (3, "superseded"),
                (1, "accepted"),
                (5, "rejected"), (7, "scheduled"), (4, "held"),
            ] {
                try eventually("job \(number) shows: \(text)") {
                    try trace(config, [id(number)] + url).output.contains(text)
                }
            }

            let accepted = try trace(config, [id(1)] + url)
            #expect(accepted.status == .status(0), "\(accepted.error)")
            for text in [
                id(1), "alert to com.example.news", ": accepted\n", "created\n", "produced to ", "with a key",
                "polled", "first sent to APNs", "1 attempt; outcome ",
            ] {
                #expect(accepted.output.contains(text), "\(text) is missing: \(accepted.output)")
            }
            let json = try document(try trace(config, [id(1).uppercased(), "--json"] + url).output)
            let jobs = try #require(json["jobs"] as? [[String: Any]])
            #expect(jobs.count == 1 && json["complete"] as? Bool == true && json["found"] as? Int == 1)
            let milestones = events(jobs[0])
            #expect(milestones.first == "created" || milestones.first == "produced")
            #expect(Set(milestones) == ["created", "produced", "polled", "first-sent", "outcome"])
            #expect(milestones.last == "outcome")
            #expect((jobs[0]["outcome"] as? [String: Any])?["status"] as? Int == 200)

            let rejected = try trace(config, [id(5)] + url)
            #expect(rejected.output.contains("rejected: 410 Unregistered"))

            // Each superseded push leads to the push that replaced it, and the last one waits at the worker.
            let chain = try document(try trace(config, [id(2), "--json"] + url).output)
            let links = try #require(chain["jobs"] as? [[String: Any]])
            #expect(links.map { $0["apns-id"] as? String } == [id(2), id(3), id(4)])
            #expect(links.map { $0["state"] as? String } == ["superseded", "superseded", "held"])
            #expect((links[0]["outcome"] as? [String: Any])?["superseded-by"] as? String == id(3))
            #expect(events(links[2]).contains("polled"))
            #expect((links[2]["workers"] as? [[String: Any]])?.first?["app"] as? String == "news")

            let unroutable = try trace(config, [id(6)] + url)
            #expect(unroutable.output.contains("undeliverable"))
            let scheduled = try document(try trace(config, [id(7), "--json"] + url).output)
            let waiting = try #require((scheduled["jobs"] as? [[String: Any]])?.first)
            #expect(waiting["state"] as? String == "scheduled")
            #expect(
                events(waiting).firstIndex(of: "scheduled")! < events(waiting).firstIndex(of: "deliver-at")!)
            #expect(try trace(config, [id(8)] + url).output.contains("last answer 429 TooManyRequests"))
            let dead = try trace(config, [id(9)] + url)
            #expect(dead.status == .status(0))
            #expect(dead.output.contains("apns-priority breaks the rule choice"))

            // A device's jobs, with its event.
            let all = try document(
                try trace(config, ["--device-token", device("0f", 2).uppercased(), "--json"] + url).output)
            #expect((all["jobs"] as? [Any])?.count == 4)
            let shown = try trace(config, ["--device-token", device("0f", 2)] + url)
            #expect(shown.output.hasPrefix("device 0f555555…\n"))

            // Unknown, with what was searched, and next steps.
            let unknown = try trace(config, [id(99)] + url)
            #expect(unknown.status == .status(1))
            for text in [
                "nothing was found", "searched\n", "worker \(url[1]): 0 pushes",
                "topic \(bed.kafka.topic("jobs")): 10 records since",
                "topic \(bed.kafka.topic("dead-letters"))",
                "try: --since 6h",
            ] {
                #expect(unknown.output.contains(text), "\(text) is missing: \(unknown.output)")
            }
            // A bound that ends the search.
            let bounded = try trace(config, [id(99), "--limit", "3"] + url)
            #expect(bounded.status == .status(1))
            #expect(bounded.output.contains("the limit of 3 records ended the search"))
            // Nothing is that new.
            let future = try trace(config, [id(1), "--since", "0", "--until", "2100-01-01T00:00:00Z"] + url)
            #expect(future.status == .status(1))

            // Without the worker, the topics still have the ended push.
            let away = try trace(config, [id(1), "--url", "127.0.0.1:1", "--json"])
            #expect(away.status == .status(0))
            let searched = try #require(try document(away.output)["searched"] as? [String: Any])
            let silent = try #require((searched["workers"] as? [[String: Any]])?.first)
            #expect(silent["answered"] as? Bool == false && silent["error"] is String)
        }
    }

    @Test func jobThatNoWorkerHasReadIsFoundInItsTopic() throws {
        let kafka = try TestKafka([("jobs", 2), ("outcomes", 1), ("dead", 1)])
        try kafka.produce(
            to: "jobs", [NewRecord(job(1, to: device("aa", 1))), NewRecord(job(2, to: device("aa", 2)))])
        let options = [
            "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--outcomes-topic",
            kafka.topic("outcomes"), "--dead-letters-topic", kafka.topic("dead"), "--url", "127.0.0.1:1",
        ]
        for number in 1...2 {
            let found = try ChildProcess.run(Executables.sluice, ["trace", id(number), "--json"] + options)
            #expect(found.exit == .status(0), "\(found.standardError)")
            let job = try #require((try document(found.standardOutput)["jobs"] as? [[String: Any]])?.first)
            #expect(job["state"] as? String == "produced" && job["has-key"] as? Bool != nil)
            #expect(events(job).contains("produced") && events(job).last == "unknown")
            #expect(!found.standardOutput.contains(Self.secret))
        }
        let text = try ChildProcess.run(Executables.sluice, ["trace", id(1)] + options)
        #expect(text.standardOutput.contains("no outcome was found, and no worker that answered has the job"))
        // A job without an apns-id has that of its record.
        try kafka.produce(
            to: "jobs", [NewRecord(job(3, to: device("aa", 3)) { $0.apnsID = nil })])
        let derived = try (0..<Int32(2)).flatMap { partition in
            try (0..<Int64(3)).compactMap { offset -> String? in
                let id = Array(kafka.topic("jobs").utf8).withUnsafeBytes {
                    APNSID.derived(topic: $0, partition: partition, offset: offset)
                }
                let found = try ChildProcess.run(Executables.sluice, ["trace", "\(id)"] + options)
                return found.exit == .status(0) ? "\(id)" : nil
            }
        }
        #expect(derived.count == 1)
    }

    @Test func unreachableKafkaIsReported() throws {
        let result = try sluice(
            "trace", id(1), "-b", "127.0.0.1:1", "--url", "127.0.0.1:1", "--timeout", "1")
        #expect(result.exit == .status(69))
        #expect(result.standardOutput.contains("topic sluice.outcomes: "))
    }

    @Test(arguments: [
        [], ["x"], ["--device-token", "xyz"], ["--device-token", "ab", "--limit", "0"],
        ["--device-token", "ab", "--since", "soon"], ["--device-token", "ab", "--url", "a b"],
        ["--device-token", "ab", "--since", "1h", "--until", "2h"],
        ["--device-token", "ab", "--timeout", "0"],
        ["--device-token", "ab", "--jobs-topic", "a/b"],
    ])
    func wrongCommandLinesAreRefused(_ arguments: [String]) throws {
        let result = try ChildProcess.run(Executables.sluice, ["trace"] + arguments)
        #expect(result.exit == .status(64))
        #expect(result.standardOutput.isEmpty && !result.standardError.isEmpty)
    }
}
