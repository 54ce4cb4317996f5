import Foundation
import SluiceModel
import TestSupport
import Testing

@Suite("Worker, as a process")
struct WorkerTests {
    @Test func recordsInBothEncodingsAreAccepted() throws {
        try withBed { bed in
            let worker = try bed.start()
            let servers = bed.kafka.bootstrapServers
            let topic = bed.kafka.topic("jobs")
            let structured = """
                {"kind":"push","device-token":"\(deviceToken)","topic":"com.example.news","push-type":"alert",\
                "apns-id":"123e4567-e89b-12d3-a456-426614174000","payload":{"aps":{"alert":"Hi"}}}
                """
            if let kcat = Executables.find("kcat") {
                let binary = try ChildProcess.run(
                    kcat,
                    [
                        "-P", "-b", servers, "-t", topic, "-k", deviceToken, "-H",
                        "apns-topic=com.example.news",
                        "-H", "apns-push-type=alert", "-H", "apns-collapse-id=score",
                    ], input: #"{"aps":{"alert":"Hi"}}"#)
                #expect(binary.exit == .status(0), "\(binary.standardError)")
                let document = try ChildProcess.run(
                    kcat,
                    [
                        "-P", "-b", servers, "-t", topic, "-k", deviceToken, "-H",
                        "content-type=application/json",
                    ], input: structured)
                #expect(document.exit == .status(0), "\(document.standardError)")
            } else {
                // Without kcat `sluice produce` writes the same two records.
                let binary = try sluice(
                    "produce", "-b", servers, "--jobs-topic", topic, "--device-token", deviceToken,
                    "--topic", "com.example.news", "--alert", "Hi", "--collapse-id", "score")
                #expect(binary.exit == .status(0))
                let document = try sluice(
                    "produce", "-b", servers, "--jobs-topic", topic, "--file", "-", input: structured)
                #expect(document.exit == .status(0))
            }
            try bed.outcomes.wait(for: 2, of: worker)
            #expect(bed.outcomes.outcomes.map(\.headline) == ["accepted", "accepted"])
            #expect(bed.outcomes.outcomes.map(\.deviceToken) == [deviceToken, deviceToken])
            #expect(bed.outcomes.outcomes.compactMap(\.collapseIdentifier) == ["score"])
            #expect(
                bed.outcomes.outcomes.contains {
                    $0.apnsID.description == "123e4567-e89b-12d3-a456-426614174000"
                })
            let shown = try sluice(
                "outcomes", "-b", servers, "--from", bed.kafka.topic("outcomes"), "--from-beginning",
                "--count", "2")
            #expect(shown.standardOutput.split(separator: "\n").allSatisfy { $0.contains("  accepted ") })

            try worker.end()
            #expect(!worker.log.contains(deviceToken), "a device token is in the log")
            #expect(bed.pushes().map(\.status) == [200, 200])
        }
    }

    @Test func answersOfAPNsDecideOutcomesAndRetries() throws {
        try withBed(
            BedOptions(simulator: [
                "--errors", "ServiceUnavailable=0.2", "--device-reasons",
                "dead=Unregistered,bad0=BadDeviceToken",
            ])
        ) { bed in
            let worker = try bed.start()
            var random = SeededGenerator(seed: 7)
            var jobs = (0..<200).map { Bed.job(&random, number: $0, structured: $0 % 2 == 0) }
            for prefix in ["dead", "bad0"] {
                var push = PushDescription(
                    deviceToken: prefix + random.hexadecimal(bytes: 30), topic: "com.example.news",
                    payload: Array("{}".utf8))
                jobs.append(JobEncoder.binary(push))
                push.expiration = Int64(time(nil)) - 10
                push.deviceToken = random.hexadecimal(bytes: 32)
                jobs.append(JobEncoder.binary(push))
            }
            let strange = PushDescription(
                deviceToken: random.hexadecimal(bytes: 32), topic: "org.example.unknown",
                payload: Array("{}".utf8))
            jobs.append(JobEncoder.binary(strange))
            try bed.produce(jobs)
            try bed.outcomes.wait(for: jobs.count, of: worker)
            let headlines = Dictionary(grouping: bed.outcomes.outcomes, by: \.headline).mapValues(\.count)
            #expect(headlines["accepted"] == 200)
            #expect(headlines["rejected: 410 Unregistered"] == 1)
            #expect(headlines["rejected: 400 BadDeviceToken"] == 1)
            #expect(headlines["expired"] == 2)
            #expect(
                bed.outcomes.outcomes.count { $0.kind == .undeliverable && $0.cause == "no-credential" } == 1)
            #expect(bed.outcomes.outcomes.first { $0.reason == "Unregistered" }?.deleteToken == true)
            #expect(bed.outcomes.outcomes.contains { $0.attempts > 1 })
            #expect(bed.outcomes.outcomes.count == jobs.count)
        }
    }

    @Test func sigtermFinishesJobsInFlightWithoutRepeats() throws {
        try withBed(BedOptions(simulator: ["--latency", "1000"])) { bed in
            let first = try bed.start()
            var random = SeededGenerator(seed: 3)
            let count = 300
            try bed.produce((0..<count).map { Bed.job(&random, number: $0) })
            try first.waits(for: "pushes are in flight") { bed.pushes().count > 5 }
            try first.end()
            let second = try bed.start()
            try bed.outcomes.wait(for: count, of: second)
            try second.end()
            bed.outcomes.poll()
            #expect(bed.outcomes.outcomes.count == count, "each job has one outcome")
            let pushes = bed.pushes()
            #expect(
                pushes.count == count && Set(pushes.map(\.apnsID)).count == count, "each job was pushed once")
        }
    }

    @Test func kill9RepeatsOnlyJobsInFlight() throws {
        // SLUICE_TEST_KILL_JOBS=100000 makes the test larger.
        let count = ProcessInfo.processInfo.environment["SLUICE_TEST_KILL_JOBS"].flatMap { Int($0) } ?? 20_000
        // About a thousand pushes are in flight at any time, so that the test takes seconds.
        try withBed(
            BedOptions(partitions: max(6, count / 3_000), simulator: ["--latency", "200", "--jitter", "100"])
        ) { bed in
            let limit = 1_000
            let delivery = "{max-in-flight: \(limit), commit-interval: 200ms}"
            let first = try bed.start(WorkerOptions(delivery: delivery))
            var random = SeededGenerator(seed: 11)
            try bed.produce((0..<count).map { Bed.job(&random, number: $0) })
            try first.waits(for: "some jobs have outcomes") {
                bed.outcomes.poll()
                return bed.outcomes.outcomes.count > count / 8
            }
            try first.end(by: SIGKILL, with: .signal(SIGKILL))
            bed.outcomes.poll()
            #expect(bed.outcomes.outcomes.count < count, "the worker was killed before all jobs ended")
            let second = try bed.start(WorkerOptions(delivery: delivery))
            try bed.outcomes.wait(for: count, of: second)
            try second.end()
            bed.outcomes.poll()
            #expect(bed.outcomes.jobs.count == count && bed.outcomes.unreadable == 0)
            let accepted = bed.pushes().filter { $0.status == 200 }
            let repeated = accepted.count - Set(accepted.map(\.apnsID)).count
            print(
                "kill -9 in the middle of \(count) jobs: \(repeated) pushes and \(bed.outcomes.outcomes.count - count) outcomes repeated"
            )
            #expect(Set(accepted.map(\.apnsID)).count == count, "a repeated push has the same apns-id")
            // Repetitions are jobs in flight, and jobs that finished since the last commit. At this rate less than a
            // thousand finish in each interval of 200 ms, and a late commit adds one.
            #expect(repeated > 0 && repeated <= 4 * limit)
        }
    }

    @Test func drainPastItsDeadlineExitsWith75() throws {
        try withBed(BedOptions(simulator: ["--latency", "60000"])) { bed in
            let first = try bed.start(WorkerOptions(delivery: "{drain-deadline: 100ms}"))
            var random = SeededGenerator(seed: 5)
            try bed.produce((0..<10).map { Bed.job(&random, number: $0) })
            try first.waits(for: "pushes are in flight") { !bed.pushes().isEmpty }
            try first.end(with: .status(75))
            #expect(first.log.contains("will be processed again"))
        }
    }

    @Test func secondSignalEndsTheWorkerAtOnce() throws {
        try withBed(BedOptions(simulator: ["--latency", "60000"])) { bed in
            let worker = try bed.start(WorkerOptions(delivery: "{drain-deadline: 10m}"))
            var random = SeededGenerator(seed: 6)
            try bed.produce([Bed.job(&random, number: 0)])
            try worker.waits(for: "a push is in flight") { !bed.pushes().isEmpty }
            worker.signal(SIGTERM)
            try worker.waitForOutput("the worker is draining")
            try worker.end(with: .status(128 + SIGTERM))
        }
    }

    @Test func jsonLogsHaveOneObjectPerLine() throws {
        try withBed { bed in
            let worker = try bed.launch(
                WorkerOptions(more: "log: {format: json, level: debug}\nmetrics: {stats-interval: 100ms}"))
            try worker.waitForOutput(#""message":"partitions assigned""#)
            try worker.waitForOutput(#""message":"worker statistics","#)
            try worker.end()
            let lines = worker.log.split(separator: "\n")
            #expect(lines.count > 3)
            for line in lines {
                let object = try #require(
                    try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
                let time = try #require(object["time"] as? String)
                #expect(time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
                #expect(["debug", "info", "notice", "warning", "error"].contains(object["level"] as? String))
                #expect(object["message"] is String)
            }
        }
    }

    @Test func invalidConfigurationExitsWith78AndNamesTheMistake() throws {
        let directory = try TemporaryDirectory("cannot")
        let empty = try sluice("run")
        #expect(empty.exit == .status(78))
        #expect(empty.standardError.contains("kafka.bootstrap-servers: is required"))
        let app = """
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            admin: {listen: off}
            """
        try directory.write("no key", to: "team.p8")
        let bare = try directory.write("kafka: {bootstrap-servers: \"127.0.0.1:1\"}\n\(app)", to: "a.yaml")
        let key = try sluice("run", "--config", bare)
        #expect(key.exit == .status(78))
        #expect(key.standardError.contains("team.p8"))
        let properties =
            "properties: {no.such: 1}, producer-properties: {acks: 0}, consumer-properties: {debug: x}"
        let wrong = try directory.write(
            "kafka: {bootstrap-servers: \"127.0.0.1:1\", \(properties)}\n\(app)", to: "b.yaml")
        let property = try sluice("run", "--config", wrong)
        #expect(property.exit == .status(78))
        #expect(property.standardError.contains("kafka.properties.no.such: "))
    }

    @Test func takenAdminAddressExitsWith69AndIsNamed() throws {
        try withBed { bed in
            let worker = try bed.start()
            let log = worker.log
            let match = try #require(
                log.firstMatch(of: /admin endpoint listens address=http:\/\/(127\.0\.0\.1:[0-9]+)/))
            let text = bed.configuration().replacing("127.0.0.1:0", with: match.1)
            let path = try bed.directory.write(text, to: "taken.yaml")
            let result = try sluice("run", "-c", path)
            #expect(result.exit == .status(69))
            #expect(result.standardError.contains("admin.listen: can't listen at \(match.1): "))
            #expect(result.standardError.contains("another process uses the port"))
        }
    }

    @Test func unreachableKafkaExitsWith69AndIsNamed() throws {
        try withBed { bed in
            let text = bed.configuration().replacing(
                bed.kafka.bootstrapServers, with: "127.0.0.1:1")
            let path = try bed.directory.write(text, to: "down.yaml")
            let result = try sluice("run", "-c", path)
            #expect(result.exit == .status(69))
            #expect(result.standardError.contains("127.0.0.1:1"))
        }
    }
}

@Suite("Demo")
struct DemoTests {
    @Test func demoAccountsForEveryJob() throws {
        for seed in ["1", "2"] {
            let demo = try ChildProcess(Executables.sluice, ["demo", "--jobs", "2500", "--seed", seed])
            #expect(
                try demo.wait(timeout: .seconds(180)) == .status(0),
                "\(demo.standardOutput)\(demo.standardError)")
            #expect(demo.standardOutput.contains("✓ every job has exactly one outcome"))
            #expect(demo.standardOutput.contains("2,500 of 2,500"))
            #expect(!demo.standardOutput.contains("✗"))
            #expect(!demo.standardError.contains("\r"), "plain lines where there is no terminal")
            for identifier in Self.processes(in: demo.standardOutput) {
                #expect(kill(identifier, 0) == -1 && errno == ESRCH, "process \(identifier) is left")
            }
        }
    }

    @Test func interruptedDemoLeavesNoProcesses() throws {
        let demo = try ChildProcess(Executables.sluice, ["demo", "--jobs", "1000000"])
        try demo.waitForOutput("worker  ")
        let processes = Self.processes(in: demo.standardOutput)
        #expect(processes.count == 3)
        demo.signal(SIGINT)
        #expect(try demo.wait() == .status(1))
        for identifier in processes { #expect(kill(identifier, 0) == -1, "process \(identifier) is left") }
    }

    @Test func killedDemoEndsItsProcesses() throws {
        let demo = try ChildProcess(Executables.sluice, ["demo", "--jobs", "1000000"])
        try demo.waitForOutput("worker  ")
        let processes = Self.processes(in: demo.standardOutput)
        demo.signal(SIGKILL)
        try demo.wait()
        try eventually("the demo's processes have ended") {
            // A zombie has ended: init may be slow to collect the processes, or nobody does.
            processes.allSatisfy { identifier in
                let state = try? String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8)
                return state?.contains(") Z ") ?? true
            }
        }
    }

    private static func processes(in output: String) -> [pid_t] {
        output.split(separator: "\n").compactMap { line in
            guard let mark = line.range(of: "(process ") else { return nil }
            return pid_t(line[mark.upperBound...].dropLast())
        }
    }
}
