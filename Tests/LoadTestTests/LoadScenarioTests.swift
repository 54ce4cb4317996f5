import Configuration
import SluiceModel
import Testing

@testable import LoadTest

@Suite("Load test: scenario")
struct LoadScenarioTests {
    static let full = """
        name: full
        description: "Everything: at once"
        seed: 42
        producers: 2
        target: {kind: kafka, bootstrap-servers: "127.0.0.1:9092", properties: {security.protocol: plaintext}}
        workers: {count: 2, shards: 3, store: with-changelog, settings: {delivery: {retry: {initial: 100ms}}}}
        simulator:
          delay: 10ms
          answers: {ServiceUnavailable: 0.01}
          faults:
            - {at: 20s, for: 10s, answers: {InternalServerError: 0.5}}
            - {at: 30s, goaway: {every: 2s}}
        devices: {count: 1000, popularity: zipf(1.1), offline-share: 0.1, return-at: 40s, return-over: 10s, churn-per-minute: 60}
        apps:
          - {name: news, bundle: com.example.news, share: 3}
          - {name: chat, credential: refused}
        loads:
          - name: campaign
            arrivals: {kind: poisson, rate: 2000/s}
            phases: [main]
            priority: 5
            payload: {bytes: 250..600}
            collapse: {share: 0.3, identifiers: 7}
            apps: {news: 1}
          - name: alerts
            arrivals: {kind: bursts, rate: 600/m, every: 10s, length: 1s}
            priority: {10: 0.75, 5: 0.25}
            deliver-after: 10s..20s
            ttl: 1h
            delivery: hold-while-offline
          - name: loop
            arrivals: {kind: closed, in-flight: 9}
            mode: structured
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, duration: 30s}
          - {name: peak, duration: 10s, rate-factor: 4}
        actions:
          - {at: 10s, do: kill-worker, worker: 2, for: 2s}
        thresholds:
          lost: 0
          alerts.latency-p99: ≤ 500ms
          peak.rate: ">= 10/s"

        """

    @Test func everySettingIsRead() throws {
        let scenario = try LoadScenario.read(Self.full, name: "full.yaml")
        #expect(
            scenario.target.kind == .kafka && scenario.target.properties.map(\.name) == ["security.protocol"])
        #expect(scenario.workers.count == 2 && scenario.workers.shards == 3)
        #expect(scenario.workers.store == .withChangelog && scenario.workers.settings != nil)
        #expect(scenario.simulator.delay == 10 && scenario.simulator.answers == ["ServiceUnavailable": 0.01])
        #expect(scenario.devices.popularity == .zipf(1.1) && scenario.devices.returnAt == 40)
        #expect(scenario.apps.map(\.bundle) == ["com.example.news", "com.example.chat"])
        #expect(scenario.apps[1].credential == .refused)
        #expect(scenario.loads[0].rate == 2_000 && scenario.loads[0].phases == [1])
        #expect(scenario.loads[0].payloadBytes == 250...600 && scenario.loads[0].collapseIdentifiers == 7)
        #expect(scenario.appShares(of: scenario.loads[0]) == [1, 0])
        #expect(scenario.appShares(of: scenario.loads[1]) == [3, 1])
        #expect(scenario.loads[1].arrival == .bursts(every: 10, length: 1) && scenario.loads[1].rate == 10)
        #expect(scenario.loads[1].deliverAfter == 10...20 && scenario.loads[1].ttl == 3_600)
        #expect(scenario.loads[1].priorities.map(\.share) == [0.75, 0.25])
        #expect(scenario.loads[2].arrival == .closed(inFlight: 9))
        #expect(scenario.loads.map(\.mode) == [.binary, .binary, .structured])
        #expect(scenario.phases.map(\.kind) == [.warmUp, .main, .main, .drain])
        #expect(scenario.actions == [.init(at: 10, kind: .killWorker, worker: 2, duration: 2)])
        #expect(scenario.thresholds.map(\.relation) == [.most, .most, .least])
        #expect(scenario.text == Self.full)
        #expect(scenario.loadEnd == 45 && scenario.mainSpans == [5...35, 35...45])
        #expect(scenario.highestRate == 2_100)
    }

    @Test func timeScaleShortensTimesAndKeepsRates() throws {
        let scenario = try LoadScenario.read(Self.full, name: "full.yaml", overrides: ["time-scale=0.1"])
        #expect(scenario.loads[0].rate == 2_000)
        #expect(abs(scenario.phases[1].duration - 3) < 1e-9)
        #expect(scenario.phases[3].duration == 30)
        #expect(scenario.actions[0].at == 1 && scenario.actions[0].duration == 0.2)
        #expect(scenario.loads[1].deliverAfter == 1...2)
        #expect(scenario.devices.churnPerMinute == 600)
        let faults = try #require(scenario.simulator.faults)
        #expect(faults.contains("at: 2s") && faults.contains("for: 1s") && faults.contains("every: 200ms"))
    }

    @Test func overriddenScenarioIsWrittenSoThatItReadsTheSame() throws {
        let overrides = [
            "workers.shards=1", "loads.campaign.arrivals.rate=500/s", "loads[1].ttl=2h", "devices.count=50",
            "thresholds.duplicated=≤ 3", "thresholds.alerts.latency-p99=≤ 1s",
            "thresholds[alerts.latency-max]=≤ 2s", #"description="a \"b\" # c: d""#,
            "apps[1]={name: transit}",
        ]
        let scenario = try LoadScenario.read(Self.full, name: "full.yaml", overrides: overrides)
        #expect(
            scenario.workers.shards == 1 && scenario.loads[0].rate == 500 && scenario.loads[1].ttl == 7_200)
        #expect(scenario.devices.count == 50 && scenario.thresholds.count == 5)
        #expect(scenario.thresholds.first { $0.name == "alerts.latency-p99" }?.bound == 1_000)
        #expect(scenario.description == #"a "b" # c: d"# && scenario.apps[1].name == "transit")
        var again = try LoadScenario.read(scenario.text, name: "again.yaml")
        again.overrides = overrides
        // Places of raw settings differ.
        again.workers.settings = scenario.workers.settings
        #expect(again == scenario, "\(scenario.text)")
    }

    @Test(arguments: [
        ("loads.none.ttl=1h", "the list has no element `none`; it has 3: campaign, alerts, loop"),
        ("workers.shards.x=1", "`3` is a single value, and has no member `x`"),
        ("nothing", "expected path=value"),
        ("workers.shrads=1", "there is no such setting in `workers` (did you mean `shards`?)"),
        ("workers.shards=0", "`0` is not allowed; expected integer 1…64"), ("seed={", "is not valid YAML"),
        ("loads.loop.mode=json", "`json` is not one of binary, packed, structured"),
    ])
    func wrongOverrideIsNamed(override: String, message: String) {
        let error = #expect(throws: ConfigurationError.self) {
            try LoadScenario.read(Self.full, name: "full.yaml", overrides: [override])
        }
        let text = error?.description.lowercased() ?? ""
        #expect(text.contains(message.lowercased()), "\(text)")
        #expect(text.contains("--set \(override.lowercased())"), "\(text)")
    }

    @Test func everyMistakeIsReportedWithItsLine() {
        let text = """
            name: a b
            target: {kind: embedded, apns: {host: x}}
            simulator:
              answers: {ServiceUnavailable: 2}
            devices: {count: 0, popularity: zipf(x)}
            loads:
              - name: one
                arrivals: {kind: poisson}
                phases: [none]
                priority: 7
              - name: one
                arrivals: {kind: closed, rate: 5/s}
                payload: {bytes: 600..250}
                apps: {nobody: 1}
                mode: pack
            phases:
              - {name: end, kind: drain, duration: 0s}
              - {name: main, duration: 5}
            actions:
              - {at: 1s, do: pause-worker}
              - {at: 1s, do: dance}
            thresholds:
              lots: 0
              latency-p99: fast
              nobody.rate: 5/s
            """
        let error = #expect(throws: ConfigurationError.self) { try LoadScenario.read(text, name: "bad.yaml") }
        let problems = error?.problems.map(\.description) ?? []
        for expected in [
            "bad.yaml:1:7: name: ", "bad.yaml:2:", "bad.yaml:4:33: simulator.answers.ServiceUnavailable: ",
            "bad.yaml:5:18: devices.count: ", "devices.popularity: ", "loads[0].arrivals.rate: is required",
            "bad.yaml:9:14: loads[0].phases: there is no phase `none`", "bad.yaml:10:15: loads[0].priority: ",
            "loads[1].name: `one` is the name of another load", "loads[1].arrivals.rate: has no effect",
            "loads[1].payload.bytes: `600..250`", "loads[1].apps.nobody: there is no app `nobody`",
            "bad.yaml:15:11: loads[1].mode: `pack` is not one of binary, packed, structured",
            "bad.yaml:17:40: phases[0].duration: must be greater than 0", "phases: only the last phase",
            "phases[1].duration: `5` is not a duration", "actions[0].for: is required",
            "actions[1].do: `dance` is not one of", "thresholds.lots: there is no figure `lots`",
            "thresholds.latency-p99: `fast` is no bound", "thresholds.nobody.rate: there is no load",
        ] {
            #expect(
                problems.contains { $0.contains(expected) },
                "\(expected) in \(problems.joined(separator: "\n"))")
        }
    }

    @Test func faultAfterTheEndOfTheRunIsAMistakeWithItsLine() throws {
        let text = """
            name: late
            simulator:
              faults:
                - {at: 34999ms, unanswered: 0.5}
                - {at: 35s, unanswered: 0.5}
                - at: 1h
                  unanswered: 0.5
            loads: [{name: a, arrivals: {rate: 1/s}}]
            phases: [{name: main, duration: 5s}]

            """
        let error = #expect(throws: ConfigurationError.self) {
            try LoadScenario.read(text, name: "late.yaml")
        }
        let reason = "the run has ended by then; it lasts at most 35s, drain included"
        #expect(
            error?.problems.map(\.description) == [
                "late.yaml:5:12: simulator.faults[1].at: \(reason)",
                "late.yaml:6:11: simulator.faults[2].at: \(reason)",
            ])
        // Without valid phases nobody knows the end.
        let endless = text.replacing("duration: 5s", with: "duration: 90d")
        let other = #expect(throws: ConfigurationError.self) {
            try LoadScenario.read(endless, name: "late.yaml")
        }
        #expect(other?.problems.contains { $0.description.contains("faults") } == false)
        // The fault's own reader refuses times that are out of its range.
        for longest in ["9223372036854775807ms", "9223372036854775s", "31d"] {
            let far = text.replacing("at: 1h", with: "at: \(longest)")
            let error = #expect(throws: ConfigurationError.self) {
                try LoadScenario.read(far, name: "late.yaml")
            }
            #expect(error?.problems.contains { $0.description.contains("faults[1].at: \(reason)") } == true)
        }
        // A drain keeps its length at each time scale.
        let scaled = #expect(throws: ConfigurationError.self) {
            try LoadScenario.read(text, name: "late.yaml", overrides: ["time-scale=0.5"])
        }
        #expect(scaled?.problems.count == 1)
        #expect(
            scaled?.description.contains(
                "at most 32s500ms, drain included, and time-scale 0.5 makes `1h` to 30m") == true)
        let longer = ["phases[0].duration=2h"]
        #expect(try LoadScenario.read(text, name: "late.yaml", overrides: longer).simulator.faults != nil)
    }

    @Test func stagingNeedsItsAllowListAndKey() {
        let text = """
            name: staging
            target: {kind: staging, apns: {host: example.com}}
            loads: [{name: a, arrivals: {rate: 1/s}}]
            phases: [{name: main}]
            """
        let error = #expect(throws: ConfigurationError.self) { try LoadScenario.read(text, name: "s") }
        let text2 = error?.description ?? ""
        #expect(text2.contains("target.apns.tokens-file: is required"))
        #expect(text2.contains("target.apns.key-file: is required"))
    }

    @Test func jobsDependOnSeedAndNumberAlone() throws {
        let scenario = try LoadScenario.read(Self.full, name: "f", overrides: ["devices.churn-per-minute=0"])
        let population = DevicePopulation(scenario.devices, seed: 1)
        let id = APNSID(high: 1, low: 2)
        var first = JobMaker(scenario, load: 0, population: population, names: .made(seed: 1))
        var second = JobMaker(scenario, load: 0, population: population, names: .made(seed: 1))
        _ = try second.make(5, intended: 1, id: id, epoch: 0)
        var keys: Set<[UInt8]> = []
        var collapsed = 0
        for number in 0..<500 {
            let job = try first.make(number, intended: 2, id: id, epoch: 1_000)
            let same = try second.make(number, intended: 2, id: id, epoch: 1_000)
            #expect(job.job.key == same.job.key && job.job.value == same.job.value)
            #expect((250...600).contains(job.job.value.count) && job.due == 2)
            #expect(job.job.key.count == 64)
            let headers = Dictionary(
                uniqueKeysWithValues: job.job.headers.map {
                    ($0.name, String(decoding: $0.value, as: UTF8.self))
                })
            #expect(headers["apns-priority"] == "5" && headers["apns-topic"] == "com.example.news")
            #expect(headers["apns-id"] == id.description)
            if headers["apns-collapse-id"] != nil { collapsed += 1 }
            keys.insert(job.job.key)
        }
        #expect(keys.count > 50)
        #expect((100...200).contains(collapsed))
    }

    @Test func heldJobsAreDueWhenTheirDeviceIsBack() throws {
        let scenario = try LoadScenario.read(
            Self.full, name: "f", overrides: ["devices.offline-share=1", "loads.alerts.deliver-after=1s"])
        let population = DevicePopulation(scenario.devices, seed: 1)
        var maker = JobMaker(scenario, load: 1, population: population, names: .made(seed: 1))
        let made = try maker.make(0, intended: 2, id: APNSID(high: 1, low: 2), epoch: 0)
        #expect((40..<50).contains(made.due))
        let events = PresenceEvents(scenario, population: population, names: .made(seed: 1))
        #expect(events.returns.count == 2_000, "each app has a token of its own")
        #expect(events.returns.contains { abs($0.at - made.due) < 1e-9 })
        let job = try events.job(0, isOnline: true, milliseconds: 5)
        let headers = job.headers.map { "\($0.name)=\(String(decoding: $0.value, as: UTF8.self))" }
        #expect(headers.contains { $0.hasSuffix("=online") }, "\(headers)")
    }

    @Test func jobsOfALoadHaveTheSameContentInEachMode() throws {
        func job(_ mode: JobMode) throws -> EncodedJob {
            let scenario = try LoadScenario.read(
                Self.full, name: "f", overrides: ["loads.campaign.mode=\(mode.rawValue)"])
            let population = DevicePopulation(scenario.devices, seed: 1)
            var maker = JobMaker(scenario, load: 0, population: population, names: .made(seed: 1))
            return try maker.make(7, intended: 2, id: APNSID(high: 1, low: 2), epoch: 1_000).job
        }
        let binary = try job(.binary)
        let packed = try job(.packed)
        let structured = try job(.structured)
        #expect(
            binary.headers.contains { $0.name == "apns-topic" } && binary.value.first == UInt8(ascii: "{"))
        #expect(packed.key == binary.key && packed.headers.isEmpty)
        #expect(packed.value.starts(with: Array("apns-topic:com.example.news\n".utf8)))
        #expect(packed.value.suffix(binary.value.count) == binary.value[...])
        #expect(structured.key == binary.key && structured.headers.map(\.name) == ["content-type"])
        let document = String(decoding: structured.value, as: UTF8.self)
        #expect(
            document.hasSuffix(#""payload":\#(String(decoding: binary.value, as: UTF8.self))}"#),
            "\(document)")
    }

    @Test func eventsOfDevicesHaveTheModeOfTheLoadThatWaitsForThem() throws {
        func event(_ mode: JobMode) throws -> EncodedJob {
            let scenario = try LoadScenario.read(
                Self.full, name: "f", overrides: ["loads.alerts.mode=\(mode.rawValue)"])
            let population = DevicePopulation(scenario.devices, seed: 1)
            return try PresenceEvents(scenario, population: population, names: .made(seed: 1))
                .job(0, isOnline: false, milliseconds: 5)
        }
        #expect(try event(.binary).headers.map(\.name) == ["kind", "event", "occurred-at"])
        #expect(try event(.packed).value == Array("kind:device\nevent:offline\noccurred-at:5\n".utf8))
        #expect(try event(.structured).value.first == UInt8(ascii: "{"))
    }

    @Test func changedTokenIsLearntFromTheFirstAnswer() throws {
        let scenario = try LoadScenario.read(
            Self.full, name: "f", overrides: ["devices.count=1", "devices.churn-per-minute=1"])
        let population = DevicePopulation(scenario.devices, seed: 1)
        var maker = JobMaker(scenario, load: 0, population: population, names: .made(seed: 1))
        func token(_ time: Double) throws -> String {
            String(
                decoding: try maker.make(0, intended: time, id: APNSID(high: 1, low: 2), epoch: 0).job.key,
                as: UTF8.self)
        }
        let before = try token(0)
        #expect(!before.hasPrefix("dead"))
        #expect(try token(61).hasPrefix("dead"))
        let after = try token(61)
        #expect(!after.hasPrefix("dead") && after != before)
    }

    @Test func ratesAreMultipliedByOverridesThatTheTextKeeps() throws {
        let base = try LoadScenario.read(Self.full, name: "f")
        let doubled = try LoadScenario.read(
            Self.full, name: "f", overrides: base.overrides(multiplyingRatesBy: 2))
        #expect(doubled.loads.map(\.rate) == [4_000, 20, 0])
        #expect(try LoadScenario.read(doubled.text, name: "g").loads.map(\.rate) == [4_000, 20, 0])
    }

    @Test func scenarioBeyondTheLimitsIsRefused() {
        for (override, message) in [
            ("phases[1].duration=30d", "lengthen `every`"),
            ("devices={count: 100000000, offline-share: 1}", "more than 5,000,000 devices offline"),
            ("loads.campaign.arrivals.rate=10000000/s", "more than 268435456 jobs"),
            ("loads.alerts.deliver-after=31d", "at most 30d"),
            ("loads.alerts.deliver-after=1s..9000000000000d", "at most 30d"),
        ] {
            let error = #expect(throws: ConfigurationError.self) {
                try LoadScenario.read(
                    Self.full, name: "f",
                    overrides: [
                        "loads.alerts.arrivals={kind: bursts, rate: 1/s, every: 100ms, length: 50ms}",
                        override,
                    ])
            }
            #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
        }
    }
}
