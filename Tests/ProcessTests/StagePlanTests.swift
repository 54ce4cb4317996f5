import APNSSimulator
import Configuration
import Foundation
import LoadTest
import TestSupport
import Testing

@testable import sluice

/// Rules of a plan, and what is calculated from samples. No process runs.
@Suite("Load test: plan and figures of a run")
struct StagePlanTests {
    private func refusal(_ body: (inout StagePlan) -> Void) -> String? {
        var plan = StagePlan()
        plan.apps = [StagePlan.App(name: "news", bundle: "com.example.news")]
        body(&plan)
        do throws(CommandFailure) {
            _ = try plan.check()
            return nil
        } catch {
            return error.message
        }
    }

    @Test func planOfStandardsIsGood() {
        #expect(refusal { _ in } == nil)
        #expect(refusal { $0.apps = [] }?.contains("at least one app") == true)
        #expect(refusal { $0.partitions = 0 }?.contains("partitions: 1 to 10000") == true)
        #expect(refusal { $0.topics.outcomes = $0.topics.jobs }?.contains("four different topics") == true)
        #expect(
            refusal { plan in
                plan.workers.settings = try? ConfigurationValue.parse(
                    "outcomes: {device-token: hash}", name: "settings")
            }?.contains("recognizes events of devices by their tokens") == true)
        #expect(refusal { $0.workers.count = 65 }?.contains("workers: 0 to 64") == true)
        #expect(refusal { $0.workers.count = 0 }?.contains("set a port other than 0") == true)
    }

    @Test func actionsThatCannotHappenAreNamedWithTheirTime() {
        func refusal(_ actions: StagePlan.Action...) -> String? {
            self.refusal {
                $0.workers.count = 2
                $0.actions = actions
            }
        }
        #expect(refusal(.init(at: 3, .addWorker), .init(at: 4, .restartWorker(3))) == nil)
        #expect(
            refusal(.init(at: 3, .restartWorker(3)))
                == "actions: at 3.0 s: there is no worker 3; there are: 1, 2")
        // The order of time counts, not the order of writing.
        #expect(refusal(.init(at: 4, .restartWorker(3)), .init(at: 3, .addWorker)) == nil)
        #expect(refusal(.init(at: 2, .restartWorker(3)), .init(at: 3, .addWorker)) != nil)
        #expect(
            refusal(.init(at: 1, .killWorker(1, downSeconds: nil)), .init(at: 2, .restartWorker(1))) != nil)
        #expect(
            refusal(.init(at: 1, .removeWorker), .init(at: 2, .removeWorker))?
                .contains("no worker would remain") == true)
        #expect(refusal(.init(at: -1, .addWorker))?.contains("a time from 0 on") == true)
        #expect(refusal(.init(at: .nan, .addWorker))?.contains("a time from 0 on") == true)
        #expect(refusal(.init(at: 1, .outage(seconds: .infinity)))?.contains("a length from 0") == true)
        var plan = StagePlan()
        plan.actions = [.init(at: 9, .removeWorker), .init(at: 1, .addWorker), .init(at: 2, .addWorker)]
        #expect(plan.mostWorkersAtATime == 3)
    }

    @Test func nullSimulatorHasNoFaults() throws {
        var simulator = StagePlan.Simulator()
        simulator.isNull = true
        #expect(refusal { $0.apns = .simulator(simulator) } == nil)
        simulator.faults = try FaultTimeline.parse("faults: [{unanswered: 0.5}]", name: "faults")
        #expect(refusal { $0.apns = .simulator(simulator) }?.contains("null simulator") == true)
    }

    // MARK: Server on another machine

    @Test func anotherMachineNeedsAllowListConfirmationAndALowRate() throws {
        let directory = try TemporaryDirectory("tokens")
        let list = try directory.write(
            "# mine\n\n\(String(repeating: "0A", count: 32))\r\n  0123456789abcdef\n", to: "tokens.txt")
        var server = StagePlan.Server(
            host: "api.sandbox.push.apple.com", keyFile: "k.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ")
        var confirmed: [String] = []
        func refusal(_ rate: Double = 100) -> String? {
            self.refusal {
                $0.apns = .server(server)
                $0.highestRate = rate
                $0.consent.hosts = confirmed
            }
        }
        #expect(refusal()?.contains("name a file with the device tokens") == true)
        server.allowList = list
        #expect(refusal()?.contains("--confirm-host api.sandbox.push.apple.com") == true)
        confirmed = ["api.push.apple.com"]
        #expect(refusal()?.contains("not `api.push.apple.com`") == true)
        confirmed.append(server.host)
        #expect(refusal() == nil)
        #expect(refusal(201)?.contains("201.0 jobs per second, above the cap of 200.0") == true)
        #expect(refusal(.infinity)?.contains("a load has no greatest rate") == true)
        server.rateCap = 20_000
        #expect(refusal()?.contains("at most 10000") == true)
        server.rateCap = 100
        #expect(
            try server.checked(highestRate: 50, confirmedHosts: confirmed) == [
                Array(String(repeating: "0a", count: 32).utf8), Array("0123456789abcdef".utf8),
            ])

        // The workers' own limits hold retries back, too.
        var plan = StagePlan()
        plan.apps = ["a", "b"].map { StagePlan.App(name: $0, bundle: "com.example.\($0)") }
        plan.apps[0].share = 3
        plan.workers.count = 2
        plan.apns = .server(server)
        #expect(plan.ratesPerSecond == [37.5, 12.5])
    }

    @Test func loadWithoutARateIsRefusedForAnotherMachine() throws {
        func plan(_ arrivals: String) throws -> StagePlan {
            let scenario = try LoadScenario.read(
                """
                name: staging
                target:
                  kind: staging
                  apns: {host: push.example.com, key-file: k.p8, key-id: A, team-id: B, tokens-file: tokens.txt}
                apps: [{name: a, bundle: com.example.a, share: 3}, {name: b, bundle: com.example.b}]
                loads: [{name: load, arrivals: {\(arrivals)}}]
                phases: [{name: main, duration: 1s, rate-factor: 2}]
                """, name: "staging")
            return try StagePlan(
                scenario, directory: "/", consent: .init(hosts: ["push.example.com"]),
                traces: [0: ArrivalTrace("0\n0.5\n", name: "trace")])
        }
        #expect(try plan("rate: 10/s").highestRate == 20)
        #expect(try plan("rate: 10/s").ratesPerSecond == [150, 50])
        #expect(try plan("kind: closed, in-flight: 3").highestRate == .infinity)
        #expect(try plan("kind: trace, file: times.csv").highestRate == .infinity)
    }

    @Test func appsDivideTheCapByTheRatesOfTheirLoads() throws {
        let scenario = try LoadScenario.read(
            """
            name: staging
            target:
              kind: staging
              apns: {host: push.example.com, key-file: k.p8, key-id: A, team-id: B, tokens-file: tokens.txt}
            apps: [{name: shop, share: 1}, {name: bank, share: 1}]
            loads:
              - {name: campaign, arrivals: {rate: 150/s}, apps: {shop: 1}}
              - {name: alerts, arrivals: {rate: 30/s}, apps: {bank: 1}}
              - {name: both, arrivals: {rate: 20/s}}
            phases: [{name: main, duration: 1s}]
            """, name: "staging")
        let plan = try StagePlan(scenario, directory: "/", consent: .init(), traces: [:])
        #expect(plan.ratesPerSecond == [160, 40])
    }

    // MARK: Settings

    /// Message that refuses settings of the workers and of the app; nil: none.
    private func refusal(workers: String?, app: String? = nil, elsewhere: Bool) throws -> String? {
        let directory = try TemporaryDirectory("tokens")
        let list = try directory.write(String(repeating: "0a", count: 32), to: "tokens.txt")
        let settings = try workers.map { try ConfigurationValue.parse($0, name: "settings") }
        let ofApp = try app.map { try ConfigurationValue.parse($0, name: "settings") }
        return refusal { plan in
            plan.workers.settings = settings
            plan.apps[0].settings = ofApp
            guard elsewhere else { return }
            plan.apns = .server(
                StagePlan.Server(
                    host: "push.example.com", keyFile: "k.p8", keyID: "A", teamID: "B", allowList: list))
            plan.consent.hosts = ["push.example.com"]
        }
    }

    @Test(
        arguments: [
            ("apns: {host: api.push.apple.com}", "workers.settings.apns.host"),
            ("apns: {host: [localhost]}", "workers.settings.apns.host"),
            ("apns: {proxy: {host: proxy.example.com}}", "workers.settings.apns.proxy.host"),
            ("credentials: {team: {host: 10.0.0.1}}", "workers.settings.credentials.team.host"),
            (
                "credentials: {team: {environment: production}}",
                "workers.settings.credentials.team.environment"
            ),
            (
                "apps: [{name: a}, {name: b, credential: {environment: development}}]",
                "workers.settings.apps[1].credential.environment"
            ),
            ("kafka: {bootstrap-servers: kafka:9092}", "workers.settings.kafka.bootstrap-servers"),
            ("kafka: {group-id: sluice}", "workers.settings.kafka.group-id"),
            ("kafka: {topics: {jobs: sluice.jobs}}", "workers.settings.kafka.topics.jobs"),
        ])
    func settingsThatNameAnotherMachineAreRefused(settings: String, path: String) throws {
        let text = try refusal(workers: settings, elsewhere: false)
        #expect(text?.hasPrefix("\(path): ") == true, "\(text ?? "no refusal")")
    }

    @Test func settingsOfThisMachineAreGood() throws {
        for settings in [
            "apns: {host: localhost, environment: development, connections: 4}",
            "credentials: {team: {environment: development, host: 127.0.0.1}}",
            "apps: [{name: a, weight: 2}]",
            "kafka: {consumer-properties: {session.timeout.ms: 4000}}", "delivery: {retry: {initial: 1s}}",
        ] {
            #expect(try refusal(workers: settings, elsewhere: false) == nil, "\(settings)")
        }
        #expect(try refusal(workers: nil, app: "{rate-per-second: 5, burst: 2}", elsewhere: false) == nil)
        #expect(
            try refusal(workers: nil, app: "credential: {host: push.example.com}", elsewhere: false)?
                .hasPrefix("apps[0].settings.credential.host: `push.example.com` is not this machine") == true
        )
    }

    @Test(
        arguments: [
            ("apns: {host: localhost}", "apns.host"), ("apns: {port: 2197}", "apns.port"),
            ("apns: {environment: production}", "apns.environment"),
            ("apns: {proxy: {host: localhost}}", "apns.proxy"),
            ("credentials: {team: {port: 2197}}", "credentials.team.port"),
            ("credentials: {more: {environment: production}}", "credentials.more.environment"),
            ("apps: []", "apps"), ("kafka: {topics: {jobs: sluice.jobs}}", "kafka.topics.jobs"),
        ])
    func settingsCannotReplaceTheServerOfAnotherMachine(settings: String, path: String) throws {
        let text = try refusal(workers: settings, elsewhere: true)
        #expect(text?.hasPrefix("workers.settings.\(path): ") == true, "\(text ?? "no refusal")")
    }

    @Test func limitsOfAnAppCannotBeReplacedForAnotherMachine() throws {
        for (settings, key) in [
            ("rate-per-second: 1000", "rate-per-second"), ("burst: 1000", "burst"),
            ("credential: other", "credential"),
        ] {
            let text = try refusal(workers: nil, app: settings, elsewhere: true)
            #expect(text?.hasPrefix("apps[0].settings.\(key): ") == true, "\(text ?? "no refusal")")
        }
        #expect(try refusal(workers: "delivery: {shards: 2}", app: "weight: 2", elsewhere: true) == nil)
    }

    // MARK: Cluster on another machine

    @Test func clusterOnAnotherMachineNeedsAConfirmationAndItsTopics() throws {
        func refusal(_ servers: String, _ more: (inout StagePlan) -> Void = { _ in }) -> String? {
            self.refusal {
                $0.cluster = .given(bootstrapServers: servers, properties: [:])
                more(&$0)
            }
        }
        #expect(refusal("127.0.0.1:9092,localhost:9093, [::1]:9094") == nil)
        #expect(refusal("kafka-1:9092,kafka-2:9092")?.contains("--confirm-host kafka-1") == true)
        #expect(refusal("localhost:9092, SSL://kafka-2:9092")?.contains("--confirm-host kafka-2") == true)
        #expect(refusal("kafka-1:9092") { $0.consent.hosts = ["kafka"] }?.contains("not `kafka`") == true)
        #expect(refusal("kafka-1:9092") { $0.consent.hosts = ["kafka-1"] } == nil)
        #expect(
            refusal("kafka-1:9092") {
                $0.consent.hosts = ["kafka-1"]
                $0.hasNamedTopics = false
            }?.contains("name the run's own: target.topics.jobs") == true)
        let other = self.refusal {
            $0.cluster = .given(bootstrapServers: "localhost", properties: ["bootstrap.servers": "kafka-1"])
        }
        #expect(other?.contains("bootstrap.servers is set by target.bootstrap-servers") == true)
    }

    @Test func workersThatRunElsewhereNeedAnAllowListAndALowRate() throws {
        let directory = try TemporaryDirectory("tokens")
        let list = try directory.write(String(repeating: "0a", count: 32), to: "tokens.txt")
        func plan(
            _ rate: Int, _ consent: StagePlan.Consent,
            topics: String = "topics: {jobs: a, outcomes: b, dead-letters: c}",
            more: String = ""
        ) throws -> StagePlan {
            let scenario = try LoadScenario.read(
                """
                name: elsewhere
                target: {kind: kafka, bootstrap-servers: 'kafka-1:9092', \(topics)}
                workers: {count: 0}
                loads: [{name: load, arrivals: {rate: \(rate)/s}}]
                phases: [{name: main, duration: 1s}]
                \(more)
                """, name: "elsewhere")
            return try StagePlan(scenario, directory: "/", consent: consent, traces: [:])
        }
        func refusal(_ plan: StagePlan) -> String? {
            do throws(CommandFailure) {
                _ = try plan.check()
                return nil
            } catch {
                return error.message
            }
        }
        var consent = StagePlan.Consent()
        #expect(try refusal(plan(100, consent))?.contains("--confirm-host kafka-1") == true)
        consent.hosts = ["kafka-1"]
        #expect(try refusal(plan(100, consent))?.contains("--tokens-file FILE") == true)
        consent.allowList = list
        #expect(try plan(100, consent).check() == [Array(String(repeating: "0a", count: 32).utf8)])
        #expect(try refusal(plan(201, consent))?.contains("above the cap of 200.0") == true)
        consent.rateCap = 300
        #expect(try refusal(plan(201, consent)) == nil)
        #expect(try plan(201, consent).rateLimit == 300)
        #expect(try refusal(plan(1, consent, topics: "topics: {jobs: a}"))?.contains("target.topics") == true)
        // A server on this machine says nothing about workers elsewhere.
        var local = try plan(201, StagePlan.Consent(hosts: ["kafka-1"]))
        local.apns = .server(
            StagePlan.Server(host: "localhost", keyFile: "k.p8", keyID: "A", teamID: "B", allowList: list))
        #expect(refusal(local)?.contains("above the cap of 200.0") == true)
        #expect(local.rateLimit == 200)
        // No simulator is started, unless the workers can know its port.
        guard case .elsewhere = try plan(1, consent).apns else {
            Issue.record("a simulator that no worker knows")
            return
        }
        guard case .simulator = try plan(1, consent, more: "simulator: {port: 2197}").apns else {
            Issue.record("no simulator")
            return
        }
        #expect(
            try refusal(plan(1, consent, more: "actions: [{do: outage, for: 1s}]"))?
                .contains("an outage needs a simulator") == true)
    }

    // MARK: Length and size

    @Test func actionAfterTheEndOfTheRunIsRefused() throws {
        let scenario = try LoadScenario.read(
            """
            name: late
            loads: [{name: load, arrivals: {rate: 1/s}}]
            phases: [{name: main, duration: 10s}, {name: drain, kind: drain, duration: 5s}]
            actions: [{at: 15s, do: restart-worker}]
            """, name: "late")
        var plan = try StagePlan(scenario, directory: "/", consent: .init(), traces: [:])
        #expect(throws: CommandFailure.self) { try plan.check() }
        plan.actions[0].at = 14
        #expect(try plan.check() == nil)
    }

    @Test func embeddedClusterHoldsTheEventsOfAllAppsOrIsRefused() throws {
        func plan(_ apps: Int, _ rate: Int, partitions: String = "") throws -> StagePlan {
            let names = (0..<apps).map { "{name: app\($0)}" }.joined(separator: ", ")
            let scenario = try LoadScenario.read(
                """
                name: large
                target: {\(partitions)}
                workers: {store: without-changelog}
                devices: {count: 100000, offline-share: 0.5}
                apps: [\(names)]
                loads: [{name: load, arrivals: {rate: \(rate)/s}, delivery: hold-while-offline}]
                phases: [{name: main, duration: 100s}]
                """, name: "large")
            return try StagePlan(scenario, directory: "/", consent: .init(), traces: [:])
        }
        // Two events of 50,000 devices, for each app.
        #expect(try plan(1, 0).partitions == StagePlan.partitions(jobs: 100_000, bytes: 650))
        #expect(try plan(10, 0).partitions == StagePlan.partitions(jobs: 1_000_000, bytes: 650))
        let failure = #expect(throws: CommandFailure.self) { try plan(1, 1_000_000) }
        #expect(failure?.message.contains("of an embedded cluster, which gets at most 2,000") == true)
        #expect(try plan(1, 1_000_000, partitions: "partitions: 100").partitions == 100)
    }

    @Test func wrongListOfTokensIsNamedWithItsLine() throws {
        let directory = try TemporaryDirectory("tokens")
        func refusal(_ text: String?) throws -> String? {
            let list =
                try text.map { try directory.write($0, to: "tokens.txt") } ?? directory.file("absent.txt")
            let server = StagePlan.Server(
                host: "127.0.0.1", keyFile: "k.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ", allowList: list
            )
            return self.refusal { $0.apns = .server(server) }
        }
        #expect(try refusal("0123456789abcdef\n0123456789abcdeg\n")?.contains("tokens.txt:2: is no") == true)
        #expect(try refusal("# nothing\n")?.contains("has no device token") == true)
        #expect(try refusal(nil)?.contains("absent.txt does not exist") == true)
    }

    @Test(
        arguments: [
            ("localhost", true), ("127.0.0.1", true), ("127.8.8.8", true), ("::1", true),
            ("128.0.0.1", false), ("example.com", false), ("127.0.0.1.example.com", false),
            ("0.0.0.0", false),
        ])
    func thisMachineHasItsOwnNamesOnly(host: String, isThis: Bool) {
        #expect(StagePlan.Server.isThisMachine(host) == isThis)
    }

    // MARK: Faults

    @Test func restOfATimelineBeginsWithTheFaultsInForce() throws {
        let timeline = try FaultTimeline.parse(
            """
            faults:
              - {at: 1s, for: 2s, unanswered: 0.1}
              - {at: 1s, for: 10s, unanswered: 0.2}
              - {at: 2s, goaway: {}}
              - {at: 3s, black-hole: {}}
              - {at: 9s, disconnect: {}}
            """, name: "faults")
        let rest = timeline.remaining(after: .seconds(4))
        #expect(
            rest.entries == [
                FaultTimeline.Entry(at: .zero, lasts: .seconds(7), .unanswered(share: 0.2)),
                FaultTimeline.Entry(at: .zero, .blackHole(share: 1)),
                FaultTimeline.Entry(at: .seconds(5), .disconnect(share: 1, every: nil)),
            ])
    }

    @Test func annotationsOfATimelineHaveItsFaultsWithTheirSpans() throws {
        let timeline = try FaultTimeline.parse(
            """
            repeat: 10s
            faults:
              - {at: 1s, for: 2s, answers: {ServiceUnavailable: 0.5}}
              - {at: 8s, unanswered: 0.25}
              - {at: 9s, goaway: {}}
            """, name: "faults")
        let (all, none) = timeline.annotations(until: 15)
        #expect(none == 0)
        #expect(all.map(\.at) == [1, 8, 9, 11])
        #expect(all.map(\.until) == [3, 10, nil, 13])
        #expect(all[0].text == "answers: ServiceUnavailable 0.5")
        #expect(all[1].text == "unanswered: 0.25")
        #expect(all[2].text.hasPrefix("goaway: "))
        #expect(FaultTimeline().annotations(until: 15).shown == [])
    }

    @Test func annotationsOfATimelineThatIsRepeatedOftenAreBoundedAndTheOthersCounted() throws {
        let timeline = try FaultTimeline.parse(
            """
            repeat: 2s
            faults:
              - {at: 0s, for: 500ms, unanswered: 0.5}
              - {at: 1s, for: 500ms, unanswered: 0.25}
            """, name: "faults")
        let within = timeline.annotations(until: 500)
        #expect(within.shown.count == 500 && within.leftOut == 0)
        let long = timeline.annotations(until: 3_600.5)
        #expect(long.shown.count == 500 && long.leftOut == 3_101)
        #expect(long.shown.last?.at == 499)
    }

    // MARK: Figures

    /// A series whose first phase begins five seconds after the sampler. The process uses half a core from then on.
    private var series: BenchSeries {
        let origin = ContinuousClock.now
        var series = BenchSeries(origin: origin, quietNanoseconds: 1e6)
        series.start = origin + .seconds(5)
        series.processes = [
            .init(name: "worker-1", role: .worker), .init(name: "worker-2", role: .worker),
        ]
        for number in 0...50 {
            let time = Double(number) * 0.2
            let cpu = max(0, time - 5) * 0.5
            var machine = MachineReading("cpu 0 0 0 0 0 0 0 0\n")
            machine?.total = time * 2
            machine?.busy = time
            machine?.stolen = time * 0.1
            series.readings.append(
                .init(
                    // The second process begins later.
                    time: time, cpu: number < 30 ? [cpu] : [cpu, cpu - 0.5], slowdown: number < 35 ? 1 : 2,
                    machine: machine))
        }
        return series
    }

    @Test func processorTimeIsDividedBetweenReadings() {
        let series = series
        #expect(abs(series.cpuSeconds(0, in: 0...1) - 0.5) < 1e-9)
        #expect(abs(series.cpuSeconds(0, in: 0.3...0.5) - 0.1) < 1e-9)
        #expect(abs(series.cpuSeconds(0, in: -4...0) - 0) < 1e-9)
        #expect(abs(series.cpuSeconds(0, in: 4...1_000) - 0.5) < 1e-9, "nothing is known later")
        #expect(series.cpuSeconds(1, in: 0...0.5) == 0)
        var seconds = Array(repeating: RunResult.Second(), count: 7)
        series.add(to: &seconds)
        #expect(seconds.map { $0.slowdown } == [1, 1, 2, 2, 2, 2, nil])
        #expect(abs((seconds[1].cpuSeconds["worker-2"] ?? 0) - 0.5) < 1e-9)
    }

    @Test func noiseCountsTheMainPhasesAlone() {
        let noise = series.noise(in: [0...1, 2...4])
        // The readings of the first second are quiet.
        #expect(noise.medianSlowdown == 2 && noise.worstSlowdown == 2)
        #expect(series.noise(in: [0...1]).medianSlowdown == 1)
        #expect(abs(noise.stolenShare - 0.05) < 1e-9)
        // Busy for half of the time of two cores, of which the processes used a part.
        let own = 1.5 + 1.0
        #expect(abs((noise.othersShare ?? 0) - (3 - own) / 6) < 1e-9, "\(noise)")
        #expect(series.noise(in: []).medianSlowdown == 1)
    }

    @Test func machineTimeIsReadFromTheFirstLine() throws {
        let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))
        let reading = try #require(MachineReading("cpu  100 20 30 400 50 6 7 80 90 10\ncpu0 1 1 1 1\n"))
        #expect(abs(reading.total - 693 / ticks) < 1e-9)
        #expect(abs(reading.busy - 163 / ticks) < 1e-9)
        #expect(abs(reading.stolen - 80 / ticks) < 1e-9)
        #expect(MachineReading("cpu 1 2 3\n") == nil)
        #expect(MachineReading("intr 1") == nil && MachineReading("") == nil)
    }

    @Test func settingsAreMergedIntoTheWorkersConfiguration() throws {
        let settings = try ConfigurationValue.parse(
            """
            delivery: {shards: 4, retry: {initial: 5ms}}
            kafka: {consumer-properties: {fetch.wait.max.ms: 7}}
            log: {level: "\\"quoted\\" \\\\ text"}
            """, name: "settings")
        let app = try ConfigurationValue.parse("weight: 9", name: "app")
        let configuration = LocalConfiguration(
            bootstrapServers: "127.0.0.1:1", group: "a \"group\"", consumerProperties: ["a.b": "1"],
            server: .init(host: "localhost", port: "7"), credentials: [.init(name: "team")],
            apps: [.init(name: "news", bundle: "com.example.news", credentials: ["team"], settings: app)])
        let merged = try ConfigurationValue.parse(try configuration.text(with: settings), name: "merged")
        func text(_ path: String) -> String? {
            var value = merged
            for name in path.split(separator: "/") {
                switch value.content {
                case .map(let entries):
                    guard let entry = entries.first(where: { $0.key == name }) else { return nil }
                    value = entry.value
                case .list(let elements):
                    guard let index = Int(name), elements.indices.contains(index) else { return nil }
                    value = elements[index]
                case .scalar, .empty: return nil
                }
            }
            guard case .scalar(let text, _) = value.content else { return nil }
            return text
        }
        #expect(text("delivery/shards") == "4" && text("delivery/drain-deadline") == "5s")
        #expect(text("delivery/retry/initial") == "5ms")
        #expect(text("kafka/group-id") == "a \"group\"")
        #expect(text("kafka/consumer-properties/a.b") == "1")
        #expect(text("kafka/consumer-properties/fetch.wait.max.ms") == "7")
        #expect(text("log/level") == "\"quoted\" \\ text")
        #expect(text("apps/0/weight") == "9" && text("apps/0/topics/0") == "com.example.news")
    }

    @Test func partitionsOfAnEmbeddedClusterHoldTheWholeLoad() {
        #expect(StagePlan.partitions(jobs: 100, bytes: 500) == 4)
        #expect(StagePlan.partitions(jobs: 1_000_000, bytes: 800) == 300)
    }
}
