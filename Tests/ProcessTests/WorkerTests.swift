import Foundation
import SluiceModel
import TestSupport
import Testing

@Suite("Worker, as a process")
struct WorkerTests {
    @Test("a record in each encoding, made by hand with kcat, gives an outcome")
    func kcat() throws {
        let installation = try Installation()
        let worker = try installation.startWorker()
        let servers = installation.kafka.bootstrapServers
        let topic = installation.kafka.topic("jobs")
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
            // Without kcat the same two records come from the tool of our own.
            let binary = try sluice(
                "produce", "-b", servers, "--jobs-topic", topic, "--device-token", deviceToken,
                "--topic", "com.example.news", "--alert", "Hi", "--collapse-id", "score")
            #expect(binary.exit == .status(0))
            let document = try sluice(
                "produce", "-b", servers, "--jobs-topic", topic, "--file", "-", input: structured)
            #expect(document.exit == .status(0))
        }
        let tail = try OutcomeTail(installation)
        try tail.wait(for: 2, of: worker)
        #expect(tail.outcomes.map(\.headline) == ["accepted", "accepted"])
        #expect(tail.outcomes.map(\.deviceToken) == [deviceToken, deviceToken])
        #expect(tail.outcomes.compactMap(\.collapseIdentifier) == ["score"])
        #expect(tail.outcomes.contains { $0.apnsID.description == "123e4567-e89b-12d3-a456-426614174000" })
        let shown = try sluice(
            "outcomes", "-b", servers, "--from", installation.kafka.topic("outcomes"), "--from-beginning",
            "--count", "2")
        #expect(shown.standardOutput.split(separator: "\n").allSatisfy { $0.contains("  accepted ") })

        #expect(try worker.stop() == .status(0))
        #expect(!worker.standardError.contains(deviceToken), "a device token is in the log")
        #expect(installation.pushes().map(\.status) == [200, 200])
    }

    @Test("what APNs answers decides the outcome; what it asks to repeat is repeated")
    func answers() throws {
        let installation = try Installation(simulatorOptions: [
            "--errors", "ServiceUnavailable=0.2", "--devices", "dead=Unregistered,bad0=BadDeviceToken",
        ])
        let worker = try installation.startWorker()
        var random = SeededRandom(seed: 7)
        var jobs = (0..<200).map { Installation.job(&random, number: $0, structured: $0 % 2 == 0) }
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
        try installation.produce(jobs)
        let tail = try OutcomeTail(installation)
        try tail.wait(for: jobs.count, of: worker)
        let headlines = Dictionary(grouping: tail.outcomes, by: \.headline).mapValues(\.count)
        #expect(headlines["accepted"] == 200)
        #expect(headlines["rejected: 410 Unregistered"] == 1)
        #expect(headlines["rejected: 400 BadDeviceToken"] == 1)
        #expect(headlines["expired"] == 2)
        #expect(tail.outcomes.count { $0.kind == .undeliverable && $0.cause == "no-credential" } == 1)
        #expect(tail.outcomes.first { $0.reason == "Unregistered" }?.deleteToken == true)
        #expect(tail.outcomes.contains { $0.attempts > 1 })
        #expect(tail.outcomes.count == jobs.count)
        #expect(try worker.stop() == .status(0))
    }

    @Test("SIGTERM: what is in flight gets its outcome, nothing is repeated and nothing lost")
    func drain() throws {
        let installation = try Installation(simulatorOptions: ["--latency", "1000"])
        let first = try installation.startWorker()
        var random = SeededRandom(seed: 3)
        let count = 300
        try installation.produce((0..<count).map { Installation.job(&random, number: $0) })
        try first.waits(for: "pushes are in flight") { installation.pushes().count > 5 }
        #expect(try first.stop() == .status(0))
        let tail = try OutcomeTail(installation)
        let second = try installation.startWorker()
        try tail.wait(for: count, of: second)
        #expect(try second.stop() == .status(0))
        tail.poll()
        #expect(tail.outcomes.count == count, "each job has one outcome")
        let pushes = installation.pushes()
        #expect(pushes.count == count && Set(pushes.map(\.apnsID)).count == count, "each job was pushed once")
    }

    @Test("kill -9 in the middle: every job has an outcome, and what is repeated was in flight")
    func killed() throws {
        // More than the suite's time allows by default: SLUICE_TEST_KILL_JOBS=100000.
        let count = ProcessInfo.processInfo.environment["SLUICE_TEST_KILL_JOBS"].flatMap { Int($0) } ?? 20_000
        // About a thousand pushes are in flight at any time, so that the whole takes seconds.
        let installation = try Installation(
            partitions: max(6, count / 3_000), simulatorOptions: ["--latency", "200", "--jitter", "100"])
        let limit = 1_000
        let delivery = "{max-in-flight: \(limit), commit-interval: 200ms}"
        let first = try installation.startWorker(delivery: delivery)
        var random = SeededRandom(seed: 11)
        let tail = try OutcomeTail(installation)
        try installation.produce((0..<count).map { Installation.job(&random, number: $0) })
        try first.waits(for: "a part is done") {
            tail.poll()
            return tail.outcomes.count > count / 8
        }
        first.signal(SIGKILL)
        #expect(try first.wait() == .signal(SIGKILL))
        tail.poll()
        #expect(tail.outcomes.count < count, "it was killed in the middle")
        let second = try installation.startWorker(delivery: delivery)
        try tail.wait(for: count, of: second)
        #expect(try second.stop() == .status(0))
        tail.poll()
        #expect(tail.jobs.count == count && tail.unreadable == 0)
        let accepted = installation.pushes().filter { $0.status == 200 }
        let repeated = accepted.count - Set(accepted.map(\.apnsID)).count
        print(
            "kill -9 in the middle of \(count) jobs: \(repeated) pushes and \(tail.outcomes.count - count) outcomes repeated"
        )
        #expect(Set(accepted.map(\.apnsID)).count == count, "a repeated push has the same apns-id")
        // What was in flight, and what had been done since the last commit: at this rate less than a thousand in each
        // interval of 200 ms, and a late commit is one interval more.
        #expect(repeated > 0 && repeated <= 4 * limit)
    }

    @Test("when the drain deadline comes first, the status says so and the jobs are done again")
    func drainDeadline() throws {
        let installation = try Installation(simulatorOptions: ["--latency", "60000"])
        let first = try installation.startWorker(delivery: "{drain-deadline: 100ms}")
        var random = SeededRandom(seed: 5)
        try installation.produce((0..<10).map { Installation.job(&random, number: $0) })
        try first.waits(for: "pushes are in flight") { !installation.pushes().isEmpty }
        first.signal(SIGTERM)
        #expect(try first.wait() == .status(75))
        #expect(first.standardError.contains("will be processed again"))
    }

    @Test("a second signal ends a worker at once")
    func secondSignal() throws {
        let installation = try Installation(simulatorOptions: ["--latency", "60000"])
        let worker = try installation.startWorker(delivery: "{drain-deadline: 10m}")
        var random = SeededRandom(seed: 6)
        try installation.produce([Installation.job(&random, number: 0)])
        try worker.waits(for: "a push is in flight") { !installation.pushes().isEmpty }
        worker.signal(SIGTERM)
        try worker.waitForOutput("the worker is draining")
        worker.signal(SIGTERM)
        #expect(try worker.wait() == .status(128 + SIGTERM))
    }

    @Test("logs as JSON are one object on each line, with time, level and message")
    func logs() throws {
        let installation = try Installation()
        let path = try installation.directory.write(
            installation.configuration()
                + "\nlog: {format: json, level: debug}\nmetrics: {stats-interval: 100ms}",
            to: "json.yaml")
        let worker = try ChildProcess(Executables.sluice, ["run", "-c", path, "--stop-with-input"])
        try worker.waitForOutput(#""message":"partitions assigned""#)
        try worker.waitForOutput(#""message":"worker statistics","#)
        #expect(try worker.stop() == .status(0))
        let lines = worker.standardError.split(separator: "\n")
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

    @Test("a worker that can't start says why, with the status for it")
    func cannotStart() throws {
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

    @Test("a worker whose admin address is taken ends with 69 and says what to do")
    func takenAddress() throws {
        let installation = try Installation()
        let worker = try installation.startWorker()
        let log = worker.standardError
        let match = try #require(
            log.firstMatch(of: /admin endpoint listens address=http:\/\/(127\.0\.0\.1:[0-9]+)/))
        let text = installation.configuration().replacing("127.0.0.1:0", with: match.1)
        let path = try installation.directory.write(text, to: "taken.yaml")
        let result = try sluice("run", "-c", path)
        #expect(result.exit == .status(69))
        #expect(result.standardError.contains("can't listen at \(match.1): another process has this port"))
        worker.signal(SIGTERM)
        #expect(try worker.wait() == .status(0))
    }

    @Test("a worker without Kafka ends with 69 and names the address")
    func withoutKafka() throws {
        let installation = try Installation()
        let text = installation.configuration().replacing(
            installation.kafka.bootstrapServers, with: "127.0.0.1:1")
        let path = try installation.directory.write(text, to: "down.yaml")
        let result = try sluice("run", "-c", path)
        #expect(result.exit == .status(69))
        #expect(result.standardError.contains("127.0.0.1:1"))
    }
}

@Suite("Demo")
struct DemoTests {
    @Test("the demo's counts add up, twice")
    func demo() throws {
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

    @Test("an interrupted demo leaves nothing behind")
    func interrupted() throws {
        let demo = try ChildProcess(Executables.sluice, ["demo", "--jobs", "1000000"])
        try demo.waitForOutput("worker  ")
        let processes = Self.processes(in: demo.standardOutput)
        #expect(processes.count == 3)
        demo.signal(SIGINT)
        #expect(try demo.wait() == .status(1))
        for identifier in processes { #expect(kill(identifier, 0) == -1, "process \(identifier) is left") }
    }

    @Test("a killed demo takes its processes with it")
    func killed() throws {
        let demo = try ChildProcess(Executables.sluice, ["demo", "--jobs", "1000000"])
        try demo.waitForOutput("worker  ")
        let processes = Self.processes(in: demo.standardOutput)
        demo.signal(SIGKILL)
        try demo.wait()
        try eventually("the demo's processes have ended") {
            // They belong to init now, which may be slow to collect them, or to nobody: a zombie has ended.
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
