import Foundation
import SluiceModel

@testable import LoadTest

/// Made-up results of runs, with fixed seeds.
enum SampleResults {
    /// A run of a steady load with an outage of APNs and a restart of a worker.
    /// - Parameters:
    ///   - slower: factor of latency and processor time.
    ///   - started: seconds after a fixed moment.
    static func run(
        seed: UInt64 = 1, rate: Int = 200, slower: Double = 1, started: Int64 = 0, warmUp: Int = 4,
        main: Int = 32,
        drain: Int = 3, hasOutage: Bool = true
    ) -> RunResult {
        var random = SeededGenerator(seed: seed)
        let end = warmUp + main + drain
        var seconds: [RunResult.Second] = []
        var phases = [
            phase("warm-up", .warmUp, 0, warmUp), phase("main", .main, warmUp, warmUp + main),
            phase("drain", .drain, warmUp + main, end),
        ]
        let outage = hasOutage && main >= 20 ? (warmUp + 10)..<(warmUp + 15) : 0..<0
        var (open, held, drift, total) = (0, 0, 0.0, 0)
        var kinds: [String: Int] = [:]
        for index in 0..<end {
            var second = RunResult.Second()
            let isDrain = index >= warmUp + main
            drift = 0.7 * drift + normal(&random) * 0.04
            second.intended = isDrain ? 0 : max(0, rate + Int(normal(&random) * Double(rate).squareRoot()))
            second.produced = second.intended
            let isOut = outage.contains(index)
            let returned = isOut ? 0 : isDrain ? held : min(held, rate)
            let held0 = isOut ? second.intended * 9 / 10 : 0
            held += held0 - returned
            let outcomes = second.intended - held0 + returned
            let rejected = outcomes / 200
            second.outcomes["accepted"] = outcomes - rejected
            if rejected > 0 { second.outcomes["rejected"] = rejected }
            if index.isMultiple(of: 9), outcomes > 0 { second.deadLetters = 1 }
            for _ in 0..<outcomes {
                let factor = exp(normal(&random) * 0.5 + drift) * slower
                var time = Int(7_500 * factor)
                if Int.random(in: 0..<400, using: &random) == 0 { time *= 12 }
                if returned > 0, Int.random(in: 0..<max(1, outcomes), using: &random) < returned {
                    time += 4_000_000 + Int.random(in: 0..<2_000_000, using: &random)
                }
                second.latency.record(microseconds: time)
            }
            open = held + rate / 60
            second.open = open
            second.generatorDelayMilliseconds = 0.4 + abs(normal(&random)) * 0.8
            let busy = Double(outcomes) * 24e-6 * slower
            second.cpuSeconds = [
                "worker 1": busy, "simulator": busy * 0.55, "kafka": busy * 0.7,
                "generator": busy * 0.4 + 0.01,
            ]
            second.residentBytes = [
                "worker 1": 61_000_000 + index * 210_000, "simulator": 24_000_000,
                "kafka": 90_000_000 + index * 900_000,
                "generator": 41_000_000,
            ]
            second.slowdown = 1.02 + abs(normal(&random)) * 0.03 + (isOut ? 0 : 0.05)
            let isDown = hasOutage && index == warmUp + 22
            if !isDown {
                second.workers = 1
                second.connections = isOut ? 2 : 4
                second.streamsInUse = isOut ? 0 : 12 + index % 5
                second.streamsFree = isOut ? 0 : 3_988 - index % 5
                second.circuitsOpen = isOut ? 1 : 0
                second.queued = held / 3
                second.queueAgeSeconds = held > 0 ? Double(index - outage.lowerBound + 1) * 0.9 : 0.004
                second.stored = held * 2 / 3
                second.storeBytes = 1_200_000 + held * 900
                second.lagRecords = isOut ? 40 : 3
                second.lagSeconds = isOut ? 0.4 : 0.01
                second.loopBusy = min(1, busy * 1.6 + 0.02)
            }
            let place = index < warmUp ? 0 : isDrain ? 2 : 1
            phases[place].intended += second.intended
            phases[place].produced += second.produced
            phases[place].outcomes += outcomes
            phases[isDrain ? 1 : place].latency.add(second.latency)
            kinds.merge(second.outcomes, uniquingKeysWith: +)
            total += outcomes
            seconds.append(second)
        }
        for place in phases.indices {
            phases[place].cpuMicrosecondsPerOutcome = phases[place].outcomes > 0 ? 24 * slower : nil
        }
        let mainOutcomes = Double(phases[1].outcomes)
        let names: [(String, RunResult.Role)] = [
            ("worker 1", .worker), ("simulator", .simulator), ("kafka", .kafka), ("generator", .generator),
        ]
        let processes = names.map { name, role in
            let time = (warmUp..<(warmUp + main)).reduce(0) { $0 + (seconds[$1].cpuSeconds[name] ?? 0) }
            return RunResult.Process(
                name: name, role: role, cpuSeconds: time,
                cpuMicrosecondsPerOutcome: time * 1e6 / max(1, mainOutcomes),
                maximumResidentBytes: seconds.map { $0.residentBytes[name] ?? 0 }.max() ?? 0)
        }
        let text =
            "name: outage-and-recovery\nseed: \(seed)\nloads:\n  - arrivals: {kind: poisson, rate: \(rate)/s}\n"
        let least = rate * 19 / 20
        let audit = RunResult.Audit(
            produced: total, refused: 0, once: total, missing: 0, doubled: 0, unknown: 0, unreadable: 0,
            byKind: kinds, byReason: ["Unregistered": kinds["rejected"] ?? 0],
            attempts: total + held + total / 9,
            simulatorRequests: total + total / 9)
        var delay = HDRHistogram()
        for second in seconds {
            delay.record(
                microseconds: Int(second.generatorDelayMilliseconds * 1_000), times: max(1, second.produced))
        }
        var reading = HDRHistogram()
        for index in seconds.indices where seconds[index].latency.count > 0 {
            seconds[index].readerDelayMilliseconds = 1.5
            reading.record(microseconds: 1_500, times: seconds[index].latency.count)
        }
        let latency = phases[1].latency
        let p99 = latency.milliseconds(atPercentile: 99)
        var annotations: [RunResult.Annotation] = []
        if !outage.isEmpty {
            annotations = [
                .init(
                    at: Double(outage.lowerBound), until: Double(outage.upperBound), kind: .fault,
                    text: "nine of ten pushes are answered with 503"),
                .init(at: Double(warmUp + 22), until: nil, kind: .action, text: "restart of worker 1"),
                .init(at: Double(warmUp + 22) + 0.6, until: nil, kind: .note, text: "worker 1 polls again"),
            ]
        }
        return RunResult(
            scenario: .init(
                name: "outage-and-recovery",
                description: "A steady load of \(rate) jobs a second; APNs fails for five seconds.",
                text: text,
                seed: seed, target: "embedded", overrides: ["loads.0.arrivals.rate=\(rate)/s"]),
            environment: .init(
                startedMilliseconds: 1_795_600_000_000 + started * 1_000, version: "1.4.0", commit: "85d68f2",
                system: "Debian 12, Linux 6.12, x86_64", processor: "Example 9000 at 3.0 GHz", cores: 4,
                memoryBytes: 16 << 30, loadBefore: 0.2,
                noise: .init(
                    quietNanoseconds: 1_003_000, medianSlowdown: 1.06, worstSlowdown: 1.4, stolenShare: 0.002)
            ),
            phases: phases, seconds: seconds, processes: processes, annotations: annotations,
            audit: audit,
            generator: .init(producers: 1, wasLimit: false, reason: "", delay: delay),
            reader: .init(wasLimit: false, reason: "", delay: reading),
            thresholds: [
                .init(name: "lost", bound: "0", value: 0, isMet: true),
                .init(name: "latency-p99", bound: "≤ 500 ms", value: p99, isMet: (p99 ?? .infinity) <= 500),
                .init(name: "rate", bound: "≥ \(least)/s", value: mainOutcomes / Double(main), isMet: true),
            ])
    }

    private static func phase(
        _ name: String, _ kind: RunResult.PhaseKind, _ from: Int, _ to: Int
    ) -> RunResult.Phase {
        .init(
            name: name, kind: kind, from: Double(from), to: Double(to), intended: 0, produced: 0, outcomes: 0,
            latency: HDRHistogram(), cpuMicrosecondsPerOutcome: nil)
    }

    static func normal(_ random: inout SeededGenerator) -> Double {
        let (one, two) = (
            Double.random(in: 1e-12..<1, using: &random), Double.random(in: 0..<1, using: &random)
        )
        return (-2 * log(one)).squareRoot() * cos(2 * .pi * two)
    }

    /// A run that produced nothing, and has no second.
    static var empty: RunResult {
        var result = run(main: 1, hasOutage: false)
        result.phases = []
        result.seconds = []
        result.processes = []
        result.annotations = []
        result.thresholds = []
        result.audit = .init(
            produced: 0, refused: 0, once: 0, missing: 0, doubled: 0, unknown: 0, unreadable: 0, byKind: [:],
            byReason: [:], attempts: 0, simulatorRequests: nil)
        result.generator.delay = HDRHistogram()
        result.reader = nil
        return result
    }

    /// A run of a single second whose workers were not asked.
    static var oneSecond: RunResult {
        var result = run(warmUp: 0, main: 1, drain: 0, hasOutage: false)
        let second = result.seconds[0]
        var bare = RunResult.Second()
        bare.intended = second.intended
        bare.produced = second.produced
        bare.outcomes = second.outcomes
        bare.latency = second.latency
        bare.readerDelayMilliseconds = second.readerDelayMilliseconds
        result.seconds = [bare]
        result.phases = [result.phases[1]]
        result.processes = []
        return result
    }

    static let hostileText: String =
        "</script><img src=x onerror=alert(1)>\"'&\u{202E}\u{0}" + String(repeating: "W", count: 300)

    /// A run whose texts try to leave their place in the page.
    static var hostile: RunResult {
        var result = run(seed: 5)
        let text = hostileText
        result.scenario.name = text
        result.scenario.description = text
        result.scenario.text = text
        result.scenario.target = text
        result.scenario.overrides = [text]
        result.environment.version = text
        result.environment.commit = text
        result.environment.system = text
        result.environment.processor = text
        result.phases[1].name = text
        for index in result.annotations.indices { result.annotations[index].text = text }
        result.processes[0].name = text
        result.audit.byKind[text] = 3
        result.audit.byReason[text] = 3
        result.generator.wasLimit = true
        result.generator.reason = text
        result.reader?.wasLimit = true
        result.reader?.reason = text
        result.thresholds.append(.init(name: text, bound: text, value: nil, isMet: false))
        for index in result.seconds.indices {
            result.seconds[index].cpuSeconds[text] = 0.1
            result.seconds[index].outcomes[text] = 1
        }
        return result
    }

    /// A run with the greatest figures that are read, and with figures that are no numbers.
    static var huge: RunResult {
        var result = run(seed: 6)
        let most = 1 << 40
        for index in result.seconds.indices {
            result.seconds[index].intended = most
            result.seconds[index].outcomes["accepted"] = most
            result.seconds[index].queueAgeSeconds = index.isMultiple(of: 2) ? .infinity : .nan
            result.seconds[index].lagSeconds = 1e12
            result.seconds[index].storeBytes = .max
            result.seconds[index].slowdown = .nan
            result.seconds[index].latency.record(microseconds: .max, times: 1_000)
        }
        result.phases[1].latency.record(microseconds: .max, times: most)
        result.phases[1].outcomes = most
        result.phases[1].cpuMicrosecondsPerOutcome = .infinity
        result.environment.noise.medianSlowdown = .nan
        result.environment.noise.worstSlowdown = .infinity
        result.environment.loadBefore = .greatestFiniteMagnitude
        result.thresholds[1].value = .nan
        return result
    }

    /// A run of 2,000 seconds with many processes, phases, events and kinds of outcome.
    static var long: RunResult {
        var result = run(seed: 7, rate: 4, main: 1_993)
        for index in result.seconds.indices {
            for worker in 2...12 {
                result.seconds[index].cpuSeconds["worker \(worker)"] = 0.02 * Double(worker)
            }
            for kind in ["expired", "undeliverable", "cancelled", "superseded", "failed", "unknown kind"] {
                result.seconds[index].outcomes[kind] = index % 7
            }
        }
        for number in 0..<40 {
            result.annotations.append(
                .init(
                    at: Double(number) * 49.5, until: Double(number) * 49.5 + 20,
                    kind: number.isMultiple(of: 2) ? .fault : .action, text: "event \(number)"))
        }
        return result
    }

    /// Pages by name.
    static let pages: [(name: String, page: String)] = {
        let groups = [
            Comparison.Group(
                name: "before", results: (0..<3).map { run(seed: UInt64($0) + 10, started: $0 * 200) }),
            Comparison.Group(
                name: "after",
                results: (0..<3).map { run(seed: UInt64($0) + 20, slower: 1.15, started: $0 * 200 + 100) }),
        ]
        let singles = [
            Comparison.Group(name: "monday.json", results: [run(seed: 2)]),
            Comparison.Group(name: "tuesday.json", results: [run(seed: 3, rate: 210)]),
            Comparison.Group(name: hostileText, results: [hostile]),
        ]
        return [
            ("run", RunReport(run()).page()), ("empty", RunReport(empty).page()),
            ("one-second", RunReport(oneSecond).page()), ("hostile", RunReport(hostile).page()),
            ("huge", RunReport(huge).page()), ("long", RunReport(long).page()),
            ("comparison", ComparisonReport(Comparison(groups)).page()),
            ("singles", ComparisonReport(Comparison(singles, draws: 100)).page()),
            (
                "nothing",
                ComparisonReport(
                    Comparison([.init(name: "a", results: [empty]), .init(name: "b", results: [oneSecond])])
                ).page()
            ),
        ]
    }()
}

extension SampleResults {
    /// A second with the names that a merge gives to processes of a generator.
    static func renamed(_ second: RunResult.Second, _ generator: Int) -> RunResult.Second {
        var second = second
        func named<Value>(_ values: [String: Value]) -> [String: Value] {
            Dictionary(uniqueKeysWithValues: values.map { ("\($0.key) of generator \(generator)", $0.value) })
        }
        second.cpuSeconds = named(second.cpuSeconds)
        second.residentBytes = named(second.residentBytes)
        return second
    }
}
