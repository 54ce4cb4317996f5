import Foundation
import KafkaTestSupport
import LoadTest
import TestSupport
import Testing

@testable import sluice

/// `sluice bench` with real processes, at a small time scale.
@Suite("Load test: sluice bench")
struct BenchTests {
    /// A scenario for these tests: its time scale, overrides, and the kinds of outcomes that its result must have.
    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var scale: Double
        var overrides: [String] = []
        var kinds: Set<String> = ["accepted"]
        var annotations = 0
        var testDescription: String { name }
    }

    /// Sessions end soon, so that a killed worker's partitions are free soon.
    private static let session =
        "workers.settings={kafka: {consumer-properties: {session.timeout.ms: 4000, heartbeat.interval.ms: 200}}}"

    static let cases = [
        Case(
            name: "steady", scale: 0.05,
            overrides: ["loads.alerts.arrivals.rate=500/s", "thresholds.rate=1/s"]),
        Case(
            name: "campaign-and-alerts", scale: 0.05, overrides: ["loads.campaign.arrivals.rate=500/s"]),
        Case(name: "flash-crowd", scale: 0.05, overrides: ["loads.scores.arrivals.rate=100/s"]),
        Case(
            name: "mass-return", scale: 0.08, overrides: ["devices.count=2000"],
            kinds: ["accepted", "applied"]),
        Case(
            name: "apns-outage", scale: 0.05, overrides: ["loads.alerts.arrivals.rate=200/s"], annotations: 1),
        Case(name: "one-app-down", scale: 0.05, kinds: ["accepted", "expired"]),
        Case(
            name: "wrong-environment", scale: 0.05, overrides: ["thresholds.before.rejected-share=1"],
            kinds: ["accepted", "rejected"], annotations: 1),
        Case(name: "token-expiry-storm", scale: 0.05, kinds: ["accepted", "rejected"], annotations: 2),
        Case(name: "rolling-restart", scale: 0.03, overrides: [session], annotations: 2),
        // A greater share of so few jobs is not yet committed when a worker is killed.
        Case(
            name: "rebalance-storm", scale: 0.03,
            overrides: [session, "thresholds.duplicated-share=0.5"], annotations: 3),
        Case(
            name: "million-held", scale: 0.02, overrides: ["loads.scheduled.arrivals.rate=1000/s"]),
    ]

    /// Thresholds of latencies hold on a machine that does nothing else; a test judges no duration.
    private static func latencies(of name: String) throws -> [String] {
        try BenchScenarios.load(name).read([]).thresholds.map(\.name).filter { $0.contains("latency") }
    }

    private func bench(
        _ arguments: [String], input: String = ""
    ) throws -> (
        exit: ChildProcess.Exit, standardOutput: String, standardError: String
    ) {
        try ChildProcess.run(Executables.sluice, ["bench"] + arguments, input: input, timeout: .seconds(240))
    }

    private func result(_ directory: TemporaryDirectory, _ name: String = "out") throws -> RunResult {
        let text = try #require(directory.read("\(name)/result.json"))
        return try JSONDecoder().decode(RunResult.self, from: Data(text.utf8))
    }

    @Test(arguments: cases)
    func builtInScenarioMeetsItsThresholds(_ scenario: Case) throws {
        let directory = try TemporaryDirectory("bench")
        var arguments = [
            scenario.name, "-q", "--time-scale", "\(scenario.scale)", "--out", directory.file("out"),
        ]
        for override in scenario.overrides { arguments += ["--set", override] }
        for name in try Self.latencies(of: scenario.name) {
            arguments += ["--set", "thresholds[\(name)]=≤ 1h"]
        }
        let run = try bench(arguments)
        #expect(run.exit == .status(0), "\(run.standardOutput)\n\(run.standardError)")
        let result = try result(directory)
        #expect(result.isPassed && result.thresholds.count >= 3)
        let audit = result.audit
        #expect(audit.produced > 50 && audit.missing == 0 && audit.unknown == 0 && audit.unreadable == 0)
        #expect(audit.once + audit.doubled == audit.produced - audit.refused)
        #expect(Set(audit.byKind.keys).isSuperset(of: scenario.kinds), "\(audit.byKind)")
        let bySecond = result.seconds.reduce(0) { $0 + $1.outcomes.values.reduce(0, +) + $1.deadLetters }
        #expect(bySecond == audit.byKind.filter { $0.key != "applied" }.values.reduce(0, +))
        #expect(result.seconds.reduce(0) { $0 + $1.intended } == bySecond)
        #expect(
            result.annotations.count { $0.kind != .note } >= scenario.annotations, "\(result.annotations)")
        #expect(result.processes.contains { $0.role == .worker && $0.cpuSeconds > 0 })
        // Each job with a latency has a delay of the reader, and readings at different moments differ.
        let reader = try #require(result.reader)
        let latencies = result.phases.filter { $0.kind == .main }.reduce(0) { $0 + $1.latency.count }
        #expect(reader.delay.count == latencies && reader.delay.greatest > 0)
        #expect(
            reader.wasLimit == result.annotations.contains { $0.text.hasPrefix("the reader of outcomes") })
        #expect(result.seconds.allSatisfy { ($0.latency.count > 0) == ($0.readerDelayMilliseconds != nil) })
        let again = try LoadScenario.read(result.scenario.text, name: "result")
        #expect(
            again.thresholds.map { $0.judged(result) } == result.thresholds, "a result can be judged again")
        #expect(directory.read("out/scenario.yaml") == result.scenario.text)
    }

    @Test func everyBuiltInScenarioIsTested() {
        #expect(Self.cases.map(\.name) == BenchScenarios.all.map(\.name))
    }

    @Test func schemaAcceptsEachBuiltInScenario() throws {
        for source in BenchScenarios.all {
            let check = try ChildProcess.run(
                "python3", ["\(Repository.root)/Schemas/validate.py", "yaml", "bench-scenario"],
                input: source.text)
            #expect(
                check.standardOutput == "valid\n",
                "\(source.name): \(check.standardOutput)\(check.standardError)")
        }
        let mistakes = [
            "workers: {count: 65}", "devices: {popularity: zipf}", "thresholds: {lots: 0}",
            "target: {kind: kafka}",
            "load: []", "simulator: {faults: [{at: 1s}]}", "apps: [{bundle: a.b}]", "time-scale: 2",
        ]
        for mistake in mistakes {
            let text = "name: a\nphases: [{name: b}]\nloads: [{name: c, arrivals: {rate: 1/s}}]\n\(mistake)\n"
            let check = try ChildProcess.run(
                "python3", ["\(Repository.root)/Schemas/validate.py", "yaml", "bench-scenario"], input: text)
            #expect(!check.standardOutput.isEmpty && check.standardOutput != "valid\n", "\(mistake)")
            #expect(try bench(["show", "/dev/stdin"], input: text).exit == .status(78), "\(mistake)")
        }
    }

    @Test func exampleOfTheSchemaIsAScenario() throws {
        let scenario = try BenchScenarios.load("\(Repository.root)/Schemas/examples/bench-scenario.yaml")
            .read([])
        #expect(scenario.loads.count == 4 && scenario.thresholds.count == 7)
    }

    @Test func scenariosAreListedAndShown() throws {
        let list = try bench(["--list"])
        #expect(list.exit == .status(0))
        for source in BenchScenarios.all { #expect(list.standardOutput.contains(source.name)) }
        #expect(try bench(["list"]).standardOutput == list.standardOutput)
        let shown = try bench(["show", "steady"])
        #expect(shown.standardOutput == BenchScenarios.all[0].text)
        let changed = try bench(["show", "steady", "--set", "workers.shards=3", "--time-scale", "0.5"])
        #expect(changed.standardOutput.contains("workers: {shards: 3}"))
        #expect(changed.standardOutput.contains("time-scale: 0.5"))
    }

    @Test func wrongScenarioIsReportedBeforeAnythingStarts() throws {
        let unknown = try bench(["nosuch"])
        #expect(unknown.exit == .status(78))
        #expect(
            unknown.standardError.contains("no built-in scenario and no file `nosuch`; built in are steady"))
        let directory = try TemporaryDirectory("bench")
        let missing = try bench([directory.file("none.yaml")])
        #expect(missing.exit == .status(78))
        #expect(missing.standardError.contains("can't read \(directory.file("none.yaml")): does not exist"))
        let misspelt = try bench(["steady", "--set", "worker.shards=2", "--out", directory.file("out")])
        #expect(misspelt.exit == .status(78))
        #expect(misspelt.standardError.contains("did you mean `workers`?"))
        #expect(directory.read("out/result.json") == nil)
        let trace = try directory.write(
            """
            name: trace
            loads: [{name: a, arrivals: {kind: trace, file: times.csv}}]
            phases: [{name: main, duration: 1s}]
            """, to: "trace.yaml")
        try directory.write("0,5\n0.5,x\n", to: "times.csv")
        let wrong = try bench([trace, "--out", directory.file("out")])
        #expect(wrong.exit == .status(78))
        #expect(wrong.standardError.contains("times.csv:2: `x` is no number of jobs"))
    }

    @Test func stagingNeedsAConfirmation() throws {
        let directory = try TemporaryDirectory("bench")
        try directory.write(String(repeating: "0a", count: 32) + "\n", to: "tokens.txt")
        let path = try directory.write(
            """
            name: staging
            target:
              kind: staging
              apns: {host: push.example.com, key-file: key.p8, key-id: A, team-id: B, tokens-file: tokens.txt}
            loads: [{name: a, arrivals: {rate: 1/s}}]
            phases: [{name: main, duration: 1s}]
            """, to: "staging.yaml")
        let run = try bench([path, "--out", directory.file("out")])
        #expect(run.exit == .status(78))
        #expect(run.standardError.contains("--confirm-host push.example.com"), "\(run.standardError)")
        let fast = try bench(
            [
                path, "--out", directory.file("out"), "--confirm-host", "push.example.com", "--set",
                "loads.a.arrivals.rate=500/s",
            ])
        #expect(fast.exit == .status(78))
        #expect(fast.standardError.contains("above the cap of 200"), "\(fast.standardError)")
    }

    @Test func scenarioAndEarlierResultsAreNotOverwritten() throws {
        let directory = try TemporaryDirectory("bench")
        let text =
            "name: mine\nloads: [{name: a, arrivals: {rate: 1/s}}]\nphases: [{name: main, duration: 1s}]\n"
        let path = try directory.write(text, to: "scenario.yaml")
        let own = try bench([path, "--out", directory.path])
        #expect(own.exit == .status(65))
        #expect(own.standardError.contains("has a file scenario.yaml, which a run would overwrite"))
        #expect(directory.read("scenario.yaml") == text)
        for file in ["result.json", "1-10/result.json"] {
            let earlier = try TemporaryDirectory("bench")
            try FileManager.default.createDirectory(
                atPath: earlier.file("1-10"), withIntermediateDirectories: true)
            try earlier.write("{}", to: file)
            let run = try bench([path, "--out", earlier.path])
            #expect(run.exit == .status(65))
            #expect(run.standardError.contains("has a file \(file)"), "\(run.standardError)")
            #expect(earlier.read(file) == "{}")
        }
    }

    @Test func searchForAnotherMachineStaysBelowTheCap() throws {
        let scenario = try LoadScenario.read(
            """
            name: staging
            target:
              kind: staging
              apns: {host: push.example.com, key-file: k.p8, key-id: A, team-id: B, tokens-file: t.txt, rate-cap: 90}
            loads: [{name: a, arrivals: {rate: 10/s}}, {name: b, arrivals: {rate: 5/s}}]
            phases: [{name: main, duration: 1s}, {name: high, duration: 1s, rate-factor: 2}]
            """, name: "staging")
        let runner = BenchRun(directory: "/", consent: .init(), isQuiet: true, stop: StopSignals())
        let factor = try runner.greatestFactor(scenario)
        #expect(abs(factor - 3) < 1e-6)
        let greatest = try LoadScenario.read(
            scenario.text, name: "staging", overrides: scenario.overrides(multiplyingRatesBy: factor))
        #expect(greatest.highestRate <= 90)
    }

    @Test func missedThresholdFailsTheRunWithItsResult() throws {
        let directory = try TemporaryDirectory("bench")
        let path = try directory.write(
            """
            name: trace-and-loop
            workers: {count: 1}
            simulator: {answers: {Unregistered: 0.5}, error-budget: off}
            loads:
              - {name: recorded, arrivals: {kind: trace, file: times.csv}, malformed-share: 0.2}
              - {name: loop, arrivals: {kind: closed, in-flight: 5}}
            phases: [{name: main, duration: 2s}]
            thresholds: {lost: 0, rejected-share: ≤ 0.1}
            """, to: "mine.yaml")
        try directory.write("0,100\n1,0\n1.5,50\n2,0\n", to: "times.csv")
        let run = try bench([path, "-q", "--out", directory.file("out")])
        #expect(run.exit == .status(1), "\(run.standardError)")
        #expect(run.standardOutput.contains("✗ rejected-share ≤ 0.1: 0."), "\(run.standardOutput)")
        #expect(run.standardOutput.contains("✓ lost ≤ 0: 0"))
        let result = try result(directory)
        #expect(!result.isPassed && result.audit.missing == 0)
        let recorded = try #require(result.loads?.first)
        #expect(recorded.intended == 150)
        #expect((10...60).contains(recorded.byKind["dead-letter"] ?? 0), "\(recorded.byKind)")
        let loop = try #require(result.loads?.last)
        #expect(loop.produced > 20 && loop.latency.count == loop.produced)
        #expect((result.audit.byReason["Unregistered"] ?? 0) > 20)
    }

    /// Malformed jobs of each mode come back as dead letters that the reader knows by their identifiers.
    @Test func jobsOfEachModeHaveTheirOutcomes() throws {
        let kafka = try TestKafka([("jobs", 2), ("outcomes", 2), ("dead-letters", 1)])
        let directory = try TemporaryDirectory("bench")
        let topics = "jobs: \(kafka.topic("jobs")), outcomes: \(kafka.topic("outcomes"))"
        let path = try directory.write(
            """
            name: modes
            target:
              kind: kafka
              bootstrap-servers: "\(kafka.bootstrapServers)"
              topics: {\(topics), dead-letters: \(kafka.topic("dead-letters"))}
              group: bench-\(kafka.suffix)
            workers: {store: without-changelog}
            simulator: {error-budget: off}
            devices: {count: 500, offline-share: 0.1, return-at: 1s, return-over: 500ms}
            loads:
              - {name: binary, arrivals: {rate: 100/s}, malformed-share: 0.2}
              - {name: packed, mode: packed, arrivals: {rate: 100/s}, malformed-share: 0.2, delivery: hold-while-offline}
              - {name: structured, mode: structured, arrivals: {rate: 100/s}, malformed-share: 0.2}
            phases: [{name: main, duration: 2s}]
            thresholds: {lost: 0}
            """, to: "modes.yaml")
        let run = try bench([path, "-q", "--out", directory.file("out")])
        #expect(run.exit == .status(0), "\(run.standardOutput)\n\(run.standardError)")
        let result = try result(directory)
        let audit = result.audit
        #expect(audit.missing == 0 && audit.unknown == 0 && audit.unreadable == 0, "\(audit)")
        let loads = try #require(result.loads)
        for load in loads {
            #expect(load.byKind["accepted", default: 0] > 50, "\(load.name): \(load.byKind)")
            #expect(load.byKind["dead-letter", default: 0] > 5, "\(load.name): \(load.byKind)")
        }
        let reader = try TopicReader(kafka, "jobs", partitions: 2)
        try eventually("all jobs are read") {
            reader.poll()
            return reader.records.count >= audit.produced
        }
        let structured = reader.records.count { $0.headers.map(\.name) == ["content-type"] }
        let packed = reader.records.filter(\.headers.isEmpty).compactMap(\.valueText)
        let events = packed.count { $0.hasPrefix("kind:device\n") }
        // A producer repeats a few records when acknowledgements are late on a busy machine.
        func isAbout(_ count: Int, _ produced: Int) -> Bool {
            (produced...produced * 11 / 10).contains(count)
        }
        #expect(isAbout(structured, loads[2].produced), "\(structured)")
        #expect(isAbout(packed.count - events, loads[1].produced), "\(packed.count - events)")
        #expect(events > 50 && packed.allSatisfy { $0.hasPrefix("kind:") || $0.hasPrefix("apns-topic:") })
        #expect(isAbout(reader.records.count - structured - packed.count, loads[0].produced))
    }

    @Test func sweepRunsEachValueAndKeepsEachResult() throws {
        let directory = try TemporaryDirectory("bench")
        let run = try bench(
            [
                "steady", "-q", "--time-scale", "0.03", "--sweep", "devices.count=10,1000", "--set",
                "loads.alerts.arrivals.rate=100/s", "--set", "thresholds={lost: 0}", "--out",
                directory.file("out"),
            ])
        #expect(run.exit == .status(0), "\(run.standardError)")
        #expect(run.standardOutput.contains("1-10") && run.standardOutput.contains("2-1000"))
        #expect(try result(directory, "out/1-10").scenario.overrides.last == "devices.count=10")
        #expect(try result(directory, "out/2-1000").isPassed)
    }

    @Test func searchFindsTheRateAboveWhichAThresholdIsMissed() throws {
        let directory = try TemporaryDirectory("bench")
        let path = try directory.write(
            """
            name: limited
            workers: {settings: {delivery: {retry: {initial: 100ms, maximum: 200ms}}}}
            simulator: {error-budget: off, faults: [{throttle: {per-second: 300}}]}
            loads: [{name: a, arrivals: {kind: constant, rate: 200/s}}]
            phases: [{name: warm-up, kind: warm-up, duration: 1s}, {name: main, duration: 3s}]
            thresholds: {lost: 0, attempts-per-job: ≤ 1.2}
            """, to: "limited.yaml")
        let run = try bench([
            path, "-q", "--find-max-rate", "--precision", "1", "--out", directory.file("out"),
        ])
        #expect(run.exit == .status(0), "\(run.standardOutput)\(run.standardError)")
        let text = try #require(directory.read("out/search.json"))
        let report = try JSONDecoder().decode(BenchSearch.Report.self, from: Data(text.utf8))
        let rate = try #require(report.rate)
        #expect((200...400).contains(rate) && (report.failedRate ?? 0) >= 400, "\(text)")
        #expect(report.probes.suffix(2).allSatisfy { $0.isConfirmation && $0.isPassed })
        #expect(try result(directory).audit.missing == 0)
    }
}
