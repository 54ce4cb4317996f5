import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Workers with default settings on real brokers, under load and random faults, judged by the ``Auditor``. `make chaos`
/// runs this test, which ends by itself.
///
/// | variable | |
/// |---|---|
/// | `SLUICE_TEST_CHAOS_FAULTS` | number of faults; without it the test is disabled |
/// | `SLUICE_TEST_CHAOS_KINDS` | some of `stop`, `kill`, `freeze` and `broker`; default: all |
/// | `SLUICE_TEST_CHAOS_WORKERS` | number of workers; default: 3 |
/// | `SLUICE_TEST_CHAOS_SEED` | repeats kinds and pauses; exact moments depend on the machine |
/// | `SLUICE_TEST_CHAOS_PAUSE` | milliseconds between faults; default: random, 500 to 4000 |
/// | `SLUICE_TEST_CHAOS_NAMED` | 1: workers have a `POD_NAME` |
/// | `SLUICE_TEST_CHAOS_TIMELINE` | 0: APNs has no timeline of faults (``ChaosTimeline``) |
/// | `SLUICE_TEST_CHAOS_SECONDS` | time after which no further fault begins; default: 600 |
/// | `SLUICE_TEST_BROKER_COMMAND` | called with `kill N` and `startone N` for broker N of 1 to 3; default: none |
@Suite("Chaos")
struct ChaosTests {
    enum Fault: String, CaseIterable {
        /// SIGTERM, and a start after the worker has ended.
        case stop
        /// SIGKILL, and a start at once.
        case kill
        /// SIGSTOP for 5 to 60 seconds.
        case freeze
        /// Kills a broker, which returns after 5 to 25 seconds.
        case broker
    }

    private static func text(_ name: String) -> String? {
        ProcessInfo.processInfo.environment["SLUICE_TEST_\(name)"]
    }

    static var faults: Int? { text("CHAOS_FAULTS").flatMap { Int($0) } }
    private static var brokerCommand: String? { text("BROKER_COMMAND") }

    private static var kinds: [Fault] {
        let named = text("CHAOS_KINDS").map {
            $0.split(separator: ",").compactMap { Fault(rawValue: String($0)) }
        }
        return (named ?? Fault.allCases).filter { $0 != .broker || brokerCommand != nil }
    }

    /// A fault from its beginning to its end.
    private struct Episode {
        var fault: Fault
        var start: Int64
        var end: Int64
    }

    /// A killed broker, until its replicas have caught up.
    private struct Absence {
        var number: Int
        var since: Int64
        var until: Int64
        /// The command that starts the broker; nil before that.
        var process: ChildProcess?
        /// The instant at which the broker has answered again; nil before that.
        var returned: Int64?
    }

    /// Time for replicas to catch up once a broker answers again, in milliseconds.
    private static let catchingUp: Int64 = 10_000

    @Test(.enabled(if: faults != nil && Bed.hasTransactions, "make chaos"))
    func jobsHaveOneOutcomeEachThroughAllFaults() throws {
        let seed = Self.text("CHAOS_SEED").flatMap { UInt64($0) } ?? .random(in: 1...1_000_000)
        print("chaos, seed \(seed)")
        var random = SeededGenerator(seed: seed)
        var load = ReplicaLoad(seed: seed, live: 300, absent: 60)
        let names = (1...(Self.text("CHAOS_WORKERS").flatMap { Int($0) } ?? 3)).map { "worker-\($0)" }
        let timeline = Self.text("CHAOS_TIMELINE") == "0" ? nil : ChaosTimeline(seed: seed)
        var options = BedOptions(partitions: 2 * names.count)
        if let timeline {
            options.faults = timeline.document
        } else {
            options.simulator = ["--latency", "5", "--jitter", "20"]
        }
        try withBed(options) { bed in
            let group = try ReplicaGroup(
                bed, hasDefaults: true, hasPodNames: Self.text("CHAOS_NAMED") == "1",
                brokersMayBeAway: Self.kinds.contains(.broker))
            let pause = Self.text("CHAOS_PAUSE").flatMap { Int64($0) }
            try group.start(names)
            try group.produce(load.hold())
            let deadline = group.now + 1_000 * (Self.text("CHAOS_SECONDS").flatMap { Int64($0) } ?? 600)
            var frozen: [(name: String, until: Int64, since: Int64)] = []
            var broker: Absence?
            var episodes: [Episode] = []
            var wakings: [Int64] = []
            var begun: [Fault: Int] = [:]
            var isBusy: Bool { !frozen.isEmpty || broker != nil }

            /// Continues the load until a moment, and ends faults that are due.
            func pass(until moment: Int64) throws {
                try group.wait(
                    for: "time passes", timeout: .seconds(400), meanwhile: { try load.tick(group, jobs: 6) }
                ) {
                    for item in frozen where group.now >= item.until {
                        group.resume(item.name)
                        wakings.append(group.now)
                        episodes.append(Episode(fault: .freeze, start: item.since, end: group.now))
                    }
                    frozen.removeAll { group.now >= $0.until }
                    if let away = broker, away.process == nil, group.now >= away.until {
                        broker!.process = try Self.broker("startone", away.number)
                    }
                    // The topics' replicas tolerate only one absent broker.
                    if let away = broker, let process = away.process, !process.isRunning {
                        guard let since = away.returned else {
                            broker!.returned = group.now
                            return false
                        }
                        if group.now >= since + Self.catchingUp {
                            episodes.append(Episode(fault: .broker, start: away.since, end: since))
                            broker = nil
                        }
                    }
                    return group.now >= moment
                }
            }

            var number = 0
            while number < Self.faults ?? 0, group.now < deadline {
                let drawn = Int64.random(in: 500...4_000, using: &random)
                try pass(until: group.now + (pause ?? drawn))
                let fault = Self.kinds.randomElement(using: &random)!
                let awake = names.filter { name in !frozen.contains { $0.name == name } }
                let name = awake.randomElement(using: &random)!
                let long = Int64.random(in: 5_000...60_000, using: &random)
                let start = group.now
                // At least one worker stays awake.
                if awake.count < 2 || (fault == .broker && broker != nil) {
                    let ends = frozen.map(\.until) + [broker?.until].compactMap { $0 }
                    try pass(until: max(ends.min() ?? start, start + 500))
                    continue
                }
                begun[fault, default: 0] += 1
                number += 1
                print("\(number): \(fault) \(fault == .broker ? "" : name)")
                switch fault {
                case .stop:
                    try group.stop(name) { try load.tick(group, jobs: 6) }
                    try group.start(name)
                    episodes.append(Episode(fault: fault, start: start, end: group.now))
                case .kill:
                    try group.kill(name)
                    try group.start(name)
                    episodes.append(Episode(fault: fault, start: start, end: group.now))
                case .freeze:
                    try group.suspend(name)
                    frozen.append((name, start + long, start))
                case .broker:
                    let number = Int.random(in: 1...3, using: &random)
                    // A start command waits for the broker's answer; a kill command returns at once.
                    _ = try Self.broker("kill", number)?.wait()
                    broker = Absence(number: number, since: start, until: start + min(long, 25_000))
                }
            }
            while isBusy { try pass(until: group.now + 500) }
            try pass(until: group.now + 15_000)
            let loadEnd = group.now
            try group.produce(load.bringBack())
            try group.finish(timeout: .seconds(180))
            let restarts = group.replicas.values.reduce(0) { $0 + $1.restarts }
            report(group, episodes, loadEnd, wakings, begun, restarts)
            if let timeline {
                group.history.simulatorDeaths += timeline.lossInstants(
                    start: bed.simulatorStart, until: group.now)
            }
            try group.judge("chaos", seed: seed)
            let counts = Dictionary(grouping: group.history.outcomes, by: \.place).mapValues(\.count)
            let several = counts.filter { $0.value != 1 }
            for outcome in group.history.outcomes where several[outcome.place] != nil {
                print(
                    "\(outcome.place): \(outcome.kind.name), finished \(outcome.finished), read \(outcome.read)"
                )
            }
            #expect(
                several.isEmpty,
                "seed \(seed): \(several.count) of \(counts.count) jobs have several outcomes")
            #expect(counts.count == group.history.jobs.count, "seed \(seed): each job has an outcome")
            let late = Self.pushedAfterTheirOutcome(group.history)
            #expect(
                late.isEmpty,
                "seed \(seed): \(late.count) pushes of jobs whose outcome had been read, \(late.prefix(20)) ms after that"
            )
        }
    }

    /// For each push that arrived after its committed outcome was read, the delay in milliseconds.
    static func pushedAfterTheirOutcome(_ history: AuditedHistory) -> [Int64] {
        var read: [String: Int64] = [:]
        for outcome in history.outcomes {
            read[outcome.apnsID] = min(read[outcome.apnsID] ?? .max, outcome.read)
        }
        return history.arrivals.compactMap { arrival in
            guard let moment = read[arrival.apnsID], arrival.time > moment + 200 else { return nil }
            return arrival.time - moment
        }
    }

    private func report(
        _ group: ReplicaGroup, _ episodes: [Episode], _ loadEnd: Int64, _ wakings: [Int64],
        _ begun: [Fault: Int], _ restarts: Int
    ) {
        print("faults: \(begun.map { "\($0.key) \($0.value)" }.sorted().joined(separator: ", "))")
        print("\(wakings.count) workers resumed; \(restarts) workers started over in their process")
        for fault in Fault.allCases {
            // Episodes with no other fault near, which could explain a pause.
            let alone = episodes.filter { episode in
                episode.fault == fault
                    && !episodes.contains {
                        ($0.start, $0.end) != (episode.start, episode.end) && $0.start < episode.end + 20_000
                            && $0.end + 20_000 > episode.start
                    }
            }
            let all = episodes.filter { $0.fault == fault }
            let pauses = { (some: [Episode]) in
                // Without load there is no progress.
                some.map {
                    group.longestPauses(from: $0.start, until: min($0.end + 20_000, loadEnd)).max() ?? 0
                }.sorted()
            }
            guard !all.isEmpty else { continue }
            print("\(fault): partitions without progress for at most \(pauses(all)) ms")
            if !alone.isEmpty { print("\(fault), with no other fault near: \(pauses(alone)) ms") }
        }
    }

    @discardableResult
    private static func broker(_ verb: String, _ number: Int) throws -> ChildProcess? {
        guard let command = brokerCommand else { return nil }
        return try ChildProcess(command, [verb, "\(number)"])
    }
}
