import APNSSimulator
import Configuration
import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import LoadTest
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// Reader of the executable, not of the test support.
private typealias OutcomeReader = sluice.TopicReader

/// The processes of a load test, with real processes.
@Suite("Load test: processes of a run")
struct BenchStageTests {
    /// A stage with a producer and a reader, driven as a run does.
    private final class Drive {
        let stage: BenchStage
        let files: LocalFiles
        private let producer: RecordProducer
        private let reader: OutcomeReader
        private let start: ContinuousClock.Instant
        private var produced = 0
        /// Outcomes by the number of the job.
        private(set) var outcomes: [Int: Int] = [:]
        private(set) var kinds: [String: Int] = [:]

        var now: Double { (.now - start) / .seconds(1) }
        var open: Int { produced - outcomes.count }

        init(_ plan: StagePlan) throws {
            files = try LocalFiles(executable: Executables.sluice)
            stage = try BenchStage(plan, files: files, stop: StopSignals())
            producer = try RecordProducer(topic: plan.topics.jobs, properties: stage.cluster.properties) {
                _ in
            }
            reader = try OutcomeReader(
                topic: plan.topics.outcomes, start: .beginning, stopsAtEnd: false, cluster: stage.cluster)
            start = try stage.beginPhases()
        }

        func produce(_ count: Int, bundle: String = "com.example.news") throws {
            for _ in 0..<count {
                var push = PushDescription(
                    deviceToken: String(repeating: "0a", count: 30) + String(1_000 + produced % 500),
                    topic: bundle, payload: Array(#"{"aps":{"alert":"Hi"}}"#.utf8))
                push.apnsID = "\(APNSID(high: 7, low: UInt64(produced)))"
                try producer.produce(JobEncoder.binary(push))
                produced += 1
            }
        }

        /// Ticks the stage and reads outcomes until a condition holds, doing `meanwhile`.
        func run(until what: String, meanwhile: () throws -> Void = {}, _ condition: () throws -> Bool) throws
        {
            do {
                try eventually(what, timeout: .seconds(90)) {
                    try meanwhile()
                    producer.poll()
                    try reader.poll(timeoutMilliseconds: 5) { record in
                        guard let outcome = record.value.flatMap({ OutcomeSummary(json: $0) }) else { return }
                        outcomes[Int(outcome.apnsID.low), default: 0] += 1
                        kinds["\(outcome.kind.name)", default: 0] += 1
                    }
                    try stage.tick(now: now)
                    return try condition()
                }
            } catch {
                let logs = (try? FileManager.default.contentsOfDirectory(atPath: files.directory)) ?? []
                for log in logs where log.hasSuffix(".log") {
                    let text = (try? String(contentsOfFile: files.path(log), encoding: .utf8)) ?? ""
                    Issue.record("\(log): \(text.suffix(2_000))")
                }
                throw error
            }
        }

        /// Produces at a rate until a condition holds, and then waits for all outcomes.
        func load(rate: Double, until what: String, _ condition: () throws -> Bool) throws {
            try run(until: what, meanwhile: { try produce(max(0, Int(now * rate) - produced)) }, condition)
            try run(until: "every job has an outcome") { open == 0 }
        }

        func end(main: [ClosedRange<Double>]? = nil) -> StageResult {
            producer.finish(timeoutMilliseconds: 10_000)
            reader.close()
            return stage.end(main: main ?? [0...now])
        }
    }

    private static func plan(_ body: (inout StagePlan) -> Void = { _ in }) -> StagePlan {
        var plan = StagePlan()
        plan.partitions = 4
        plan.apps = [StagePlan.App(name: "news", bundle: "com.example.news")]
        body(&plan)
        return plan
    }

    /// Settings with which a lost member leaves its group soon. The embedded cluster lets a new group wait for three
    /// seconds, which a session must outlast.
    private static let shortSessions = try! ConfigurationValue.parse(
        "kafka: {consumer-properties: {session.timeout.ms: 4000, heartbeat.interval.ms: 300}}",
        name: "settings")

    /// Processes whose command line names a file of a directory.
    private static func processes(naming directory: String, _ file: String) -> [pid_t] {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
            .filter { process in
                let bytes = FileManager.default.contents(atPath: "/proc/\(process)/cmdline") ?? Data()
                return String(decoding: bytes, as: UTF8.self).contains("\(directory)/\(file)")
            }
    }

    /// Command lines that name a directory.
    private static func processes(naming directory: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).filter { Int32($0) != nil }
            .compactMap { process in
                guard let bytes = FileManager.default.contents(atPath: "/proc/\(process)/cmdline"),
                    case let text = String(decoding: bytes, as: UTF8.self), text.contains(directory)
                else { return nil }
                return text.replacing("\0", with: " ")
            }
    }

    @Test func oneWorkerUnderLoadIsSampledAndAllProcessesEnd() throws {
        let drive = try Drive(
            Self.plan { plan in
                plan.workers.store = .withoutChangelog
            })
        try drive.load(rate: 400, until: "three seconds are over") { drive.now > 3.2 }
        let span = 0.0...3.0
        let directory = drive.files.directory
        #expect(Self.processes(naming: directory).count == 3, "each names its ready file")
        let result = drive.end(main: [span])
        #expect(Self.processes(naming: directory) == [])
        #expect(result.badEndings == [])
        #expect(Set(drive.outcomes.values) == [1])

        #expect(result.simulator?.accepted == UInt64(drive.outcomes.count))
        #expect(Set(result.processes.map(\.name)) == ["generator", "kafka", "simulator", "worker-1"])
        for process in result.processes {
            #expect(process.cpuSeconds > 0 && process.cpuSeconds < 30, "\(process)")
            #expect(process.maximumResidentBytes > 1 << 20, "\(process)")
        }
        let worker = try #require(result.cpuSeconds(.worker, in: span))
        #expect(worker == result.processes.first { $0.role == .worker }?.cpuSeconds)
        #expect(result.environment.cores > 0 && result.environment.memoryBytes > 1 << 20)
        let noise = result.environment.noise
        #expect(noise.quietNanoseconds > 100_000 && noise.medianSlowdown > 0.2)
        #expect(noise.worstSlowdown >= noise.medianSlowdown)
        #expect((0...1).contains(noise.stolenShare) && (0...1).contains(noise.othersShare ?? -1))

        var seconds = Array(repeating: RunResult.Second(), count: 3)
        result.add(to: &seconds)
        // A busy machine may leave out a sample.
        #expect(seconds.contains { $0.slowdown != nil && $0.residentBytes["worker-1"] ?? 0 > 1 << 20 })
        let sum = seconds.reduce(0) { $0 + ($1.cpuSeconds["worker-1"] ?? 0) }
        #expect(abs(sum - worker) < 1e-6, "the seconds' processor time adds up")
        let sampled = seconds.contains { second in
            second.workers == 1 && second.connections ?? 0 > 0 && second.stored == 0
                && second.lagRecords != nil && second.loopBusy ?? 0 > 0 && second.streamsFree ?? 0 > 0
        }
        #expect(sampled, "\(seconds)")
    }

    @Test func workerThatIsKilledAndRestartedKeepsItsAccount() throws {
        let drive = try Drive(
            Self.plan { plan in
                plan.workers.settings = Self.shortSessions
                plan.actions = [
                    StagePlan.Action(at: 0.4, .killWorker(1, downSeconds: 0.2)),
                    // Due while the worker is away, so it begins afterwards.
                    StagePlan.Action(at: 0.5, .restartWorker(1)),
                    StagePlan.Action(at: 0.6, .pauseKafka(seconds: 0.1)),
                ]
            })
        #expect(!drive.stage.isSettled)
        try drive.load(rate: 100, until: "the actions are over") { drive.stage.isSettled }
        let result = drive.end()
        #expect(result.badEndings == [])
        let actions = result.annotations.filter { $0.kind == .action }
        #expect(
            Set(actions.map(\.text)) == ["worker-1 is killed", "worker-1 is restarted", "Kafka is paused"])
        let killed = try #require(actions.first { $0.text == "worker-1 is killed" })
        let restarted = try #require(actions.first { $0.text == "worker-1 is restarted" })
        #expect(try #require(killed.until) - killed.at > 0.2)
        #expect(try #require(killed.until) <= restarted.at)
        #expect(result.processes.count { $0.role == .worker } == 1, "a process's lives are one")
        var seconds = Array(repeating: RunResult.Second(), count: Int(drive.now))
        result.add(to: &seconds)
        #expect(seconds.contains { $0.workers == 0 }, "no worker answers while it is away")
        // A sum over three lives, each of which costs more than a hundredth of a second.
        #expect(try #require(result.cpuSeconds(.worker, in: 0...1_000)) > 0.03)
    }

    @Test func workersAreAddedRemovedAndRestartedInTurn() throws {
        let drive = try Drive(
            Self.plan { plan in
                plan.workers.count = 2
                plan.workers.settings = Self.shortSessions
                plan.actions = [
                    StagePlan.Action(at: 0.2, .addWorker), StagePlan.Action(at: 0.4, .removeWorker),
                ]
            })
        try drive.load(rate: 50, until: "the actions are over") { drive.stage.isSettled }
        let result = drive.end()
        #expect(result.badEndings == [])
        #expect(
            Set(result.processes.filter { $0.role == .worker }.map(\.name)) == [
                "worker-1", "worker-2", "worker-3",
            ])
        // The removed worker is the one that was being started.
        #expect(
            result.annotations.filter { $0.kind == .action }.map(\.text) == [
                "worker-3 is added", "worker-3 is removed",
            ])
    }

    @Test func workerThatCrashesWhileItStopsInOrderIsABadEnding() throws {
        let drive = try Drive(
            Self.plan { plan in
                plan.workers.settings = Self.shortSessions
                plan.actions = [StagePlan.Action(at: 1_000, .restartWorker(1))]
            })
        let worker = try #require(
            Self.processes(naming: drive.files.directory, "worker-1.yaml").first, "the worker runs")
        // The worker is asked to stop here, and killed before it can end.
        try drive.stage.tick(now: 1_000)
        #expect(kill(worker, SIGKILL) == 0)
        try eventually("the worker is restarted") {
            try drive.stage.tick(now: 1_001)
            return drive.stage.isSettled
        }
        let result = drive.end()
        #expect(result.badEndings == ["worker-1 was killed by signal 9"])
        #expect(result.annotations.count { $0.kind == .note } == 1, "\(result.annotations)")
    }

    @Test func faultsCountFromTheFirstPhaseAndOutlastAnOutage() throws {
        let drive = try Drive(
            Self.plan { plan in
                var simulator = StagePlan.Simulator()
                simulator.faults = try! FaultTimeline.parse(
                    """
                    faults:
                      - {answers: {Unregistered: 1.0}}
                      - {at: 500ms, disconnect: {}}
                    """, name: "faults")
                plan.apns = .simulator(simulator)
                plan.actions = [StagePlan.Action(at: 0.8, .outage(seconds: 0.2))]
            })
        let address = drive.stage.simulatorAddress
        try drive.load(rate: 50, until: "the outage is over") { drive.stage.isSettled && drive.now > 1.5 }
        #expect(drive.stage.simulatorAddress == address)
        let result = drive.end()
        #expect(result.badEndings == [])
        // The faults began before the first job, and go on in the second simulator.
        #expect(drive.kinds.keys.sorted() == ["rejected"], "\(drive.kinds)")
        #expect(result.simulator?.accepted == 0)
        #expect(result.simulator?.rejected["Unregistered"] == UInt64(drive.outcomes.count))
        #expect(
            Set(result.annotations.map(\.text)) == [
                "answers: Unregistered 1", "disconnect: share 1", "the simulator is away",
            ])
    }

    @Test func refusedKeyRejectsOneAppAlone() throws {
        let drive = try Drive(
            Self.plan { plan in
                plan.apps.append(
                    StagePlan.App(name: "old", bundle: "com.example.old", credential: .refused))
            })
        try drive.produce(20)
        try drive.run(until: "the good app's jobs are done") { drive.kinds["accepted"] == 20 }
        try drive.produce(20, bundle: "com.example.old")
        let simulator = drive.stage.simulatorAddress
        #expect(simulator != nil)
        try drive.produce(20)
        try drive.run(until: "the good app goes on") { drive.kinds["accepted"] == 40 }
        #expect(drive.kinds.keys.allSatisfy { $0 == "accepted" || $0 == "rejected" }, "\(drive.kinds)")
        _ = drive.end()
    }

    @Test func simulatorThatRunsElsewhereTakesThePushesOfAllowedTokens() throws {
        let directory = try TemporaryDirectory("elsewhere")
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "key.p8")
        let token = String(repeating: "0a", count: 32)
        try directory.write(token.uppercased() + "\n", to: "tokens.txt")
        let simulator = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--stop-with-input", "--ready-file", directory.file("ready"),
                "--directory", directory.path, "--key",
                "\(Bed.keyID):\(Bed.teamID):\(directory.file("key.p8"))",
            ])
        try simulator.waits(for: "the simulator is ready") { directory.read("ready") != nil }
        let address = try #require(directory.read("ready")).split(whereSeparator: \.isNewline)[0]
        let drive = try Drive(
            Self.plan { plan in
                plan.apns = .server(
                    StagePlan.Server(
                        host: "localhost", port: Int(address.split(separator: ":").last ?? "") ?? 0,
                        caFile: directory.file("ca.pem"), keyFile: directory.file("key.p8"),
                        keyID: Bed.keyID, teamID: Bed.teamID, allowList: directory.file("tokens.txt")))
            })
        #expect(drive.stage.simulatorAddress == nil)
        #expect(drive.stage.allowedTokens == [Array(token.utf8)])
        try drive.produce(30)
        try drive.run(until: "every job has an outcome") { drive.open == 0 }
        let result = drive.end()
        #expect(drive.kinds == ["accepted": 30] && result.badEndings == [])
        #expect(result.simulator == nil && !result.processes.contains { $0.role == .simulator })
        simulator.closeInput()
        #expect(try simulator.wait() == .status(0))
        #expect(simulator.standardOutput.contains("accepted 30"))
    }

    @Test func clusterThatRunsAlreadyIsUsedWithItsTopics() throws {
        let kafka = try TestKafka([
            ("jobs", 3), ("outcomes", 2), ("dead-letters", 1), ("changelog", 3),
        ])
        var plan = Self.plan { plan in
            plan.cluster = .given(bootstrapServers: kafka.bootstrapServers, properties: ["client.id": "load"])
            plan.topics = StagePlan.Topics(
                jobs: kafka.topic("jobs"), outcomes: kafka.topic("outcomes"),
                deadLetters: kafka.topic("dead-letters"), changelog: kafka.topic("changelog"))
            plan.group = kafka.group
        }
        let drive = try Drive(plan)
        #expect(drive.stage.partitions == 3)
        try drive.load(rate: 100, until: "half a second is over") { drive.now > 0.5 }
        let result = drive.end()
        #expect(result.badEndings == [])
        #expect(!result.processes.contains { $0.role == .kafka })

        // Jobs of somebody else would be pushed first.
        try kafka.produce(to: "jobs", [NewRecord(value: "{}")])
        #expect(try refusal(plan).contains("has 1 record that the workers"))
        plan.workers.count = 4
        #expect(try refusal(plan).contains("4 workers need as many partitions"))
        plan.topics.outcomes = "nowhere-\(kafka.suffix)"
        if TestKafka.realBrokers != nil {
            #expect(try refusal(plan).contains("there is no topic nowhere"))
        }
    }

    @Test func workersThatRunElsewhereAreOnlyAsked() throws {
        let kafka = try TestKafka([("jobs", 1), ("outcomes", 1), ("dead-letters", 1)])
        let port = try freePort()
        var plan = Self.plan { plan in
            plan.cluster = .given(bootstrapServers: kafka.bootstrapServers, properties: [:])
            plan.topics = StagePlan.Topics(
                jobs: kafka.topic("jobs"), outcomes: kafka.topic("outcomes"),
                deadLetters: kafka.topic("dead-letters"))
            plan.workers.count = 0
            // Nobody listens there.
            plan.workers.adminAddresses = ["127.0.0.1:1"]
            var simulator = StagePlan.Simulator()
            simulator.port = port
            plan.apns = .simulator(simulator)
        }
        let drive = try Drive(plan)
        #expect(drive.stage.simulatorAddress == "127.0.0.1:\(port)")
        try drive.run(until: "three seconds are over") { drive.now > 3 }
        let result = drive.end()
        #expect(Set(result.processes.map(\.role)) == [.generator, .simulator])
        #expect(result.cpuSeconds(.worker, in: 0...1) == nil)
        var seconds = Array(repeating: RunResult.Second(), count: 3)
        result.add(to: &seconds)
        #expect(seconds.contains { $0.workers == 0 })
        #expect(seconds.allSatisfy { $0.workers != 1 && $0.connections == nil })
        plan.workers.adminAddresses = ["nowhere:port"]
        #expect(try refusal(plan).contains("`nowhere:port` is not host:port"))
    }

    @Test func wrongSettingsOfTheWorkersAreReportedWithTheWorkersReason() throws {
        var plan = Self.plan()
        plan.apps[0].bundle = "not a bundle"
        let text = try refusal(plan)
        #expect(text.contains("worker-1 ended with status 78"), "\(text)")
        #expect(text.contains("apps[0].topics"), "\(text)")
    }

    @Test func killedCommandLeavesNoProcessBehind() throws {
        let directory = try TemporaryDirectory("bench")
        let command = try ChildProcess(
            Executables.sluice,
            [
                "bench", "steady", "--quiet", "--out", directory.file("out"), "--set",
                "workers.settings={kafka: {consumer-properties: {session.timeout.ms: 4000, heartbeat.interval.ms: 300}}}",
            ])
        // The stage's directory is in the command lines of its processes.
        let mark = "/worker-1.yaml"
        let stage = try command.waitsForChild(naming: mark)
        try command.waits(for: "the worker is ready") {
            FileManager.default.fileExists(atPath: "\(stage)/worker-1.ready")
        }
        command.signal(SIGKILL)
        try command.wait()
        try eventually("all processes have ended") { Self.processes(naming: stage) == [] }
        try? FileManager.default.removeItem(atPath: stage)
    }

    /// Message with which a stage refuses a plan.
    private func refusal(_ plan: StagePlan) throws -> String {
        do throws(CommandFailure) {
            let files = try LocalFiles(executable: try? Executables.sluice)
            let stage = try BenchStage(plan, files: files, stop: StopSignals())
            _ = stage.end(main: [])
            return "no refusal"
        } catch {
            return error.message
        }
    }
}

extension ChildProcess {
    /// Waits for a process of this one whose command line names a file, and returns the file's directory.
    fileprivate func waitsForChild(naming file: String) throws -> String {
        var directory = ""
        try waits(for: "a process that names \(file)") {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
            for name in names where Int32(name) != nil {
                guard let stat = try? String(contentsOfFile: "/proc/\(name)/stat", encoding: .utf8),
                    let end = stat.lastIndex(of: ")"),
                    stat[end...].split(separator: " ").dropFirst(2).first.flatMap({ Int32($0) })
                        == identifier,
                    let line = FileManager.default.contents(atPath: "/proc/\(name)/cmdline"),
                    let path = line.split(separator: 0).map({ String(decoding: $0, as: UTF8.self) })
                        .first(where: { $0.hasSuffix(file) })
                else { continue }
                directory = String(path.dropLast(file.count))
                return true
            }
            return false
        }
        return directory
    }
}
