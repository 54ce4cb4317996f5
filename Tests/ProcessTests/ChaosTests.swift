import Foundation
import KafkaTestSupport
import TestSupport
import Testing

/// Workers with default settings on real brokers, under load and under whatever can befall them, and an auditor who knows
/// nothing of how they work. `make chaos` runs it; it ends by itself.
///
/// | variable | |
/// |---|---|
/// | `SLUICE_TEST_CHAOS_FAULTS` | how many faults; without it this doesn't run |
/// | `SLUICE_TEST_CHAOS_KINDS` | of `stop`, `kill`, `freeze` and `broker`; all unless told |
/// | `SLUICE_TEST_CHAOS_WORKERS` | 3 unless told |
/// | `SLUICE_TEST_CHAOS_SEED` | repeats kinds and times; moments are the machine's |
/// | `SLUICE_TEST_CHAOS_PAUSE` | milliseconds between faults; 500 to 4000 unless told |
/// | `SLUICE_TEST_CHAOS_NAMED` | 1: workers have a `POD_NAME` |
/// | `SLUICE_TEST_CHAOS_SECONDS` | after so long no further fault begins; 600 unless told |
/// | `SLUICE_TEST_BROKER_COMMAND` | called with `kill N` and `startone N` for broker N of 1 to 3; without it brokers stay |
@Suite("Chaos")
struct ChaosTests {
    enum Fault: String, CaseIterable {
        /// SIGTERM, and a start when the worker has ended.
        case stop
        /// SIGKILL, and a start at once.
        case kill
        /// SIGSTOP for 5 to 60 seconds.
        case freeze
        /// A broker is killed, and is away for 5 to 25 seconds.
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

    /// A fault from its beginning until it was over.
    private struct Episode {
        var fault: Fault
        var start: Int64
        var end: Int64
    }

    /// A broker that was killed, until it has caught up with the others.
    private struct Absence {
        var number: Int
        var since: Int64
        var until: Int64
        /// Its start.
        var process: ChildProcess?
        /// When it has answered again.
        var returned: Int64?
    }

    /// For replicas, once a broker answers again, in milliseconds.
    private static let catchingUp: Int64 = 10_000

    @Test(
        "whatever befalls workers and brokers: one outcome for each job, and nothing is pushed that has ended",
        .enabled(if: faults != nil && ReplicaBed.hasTransactions, "make chaos"))
    func everythingAtOnce() throws {
        let seed = Self.text("CHAOS_SEED").flatMap { UInt64($0) } ?? .random(in: 1...1_000_000)
        print("chaos, seed \(seed)")
        var random = SeededRandom(seed: seed)
        var load = ReplicaLoad(seed: seed, live: 300, absent: 60)
        let names = (1...(Self.text("CHAOS_WORKERS").flatMap { Int($0) } ?? 3)).map { "worker-\($0)" }
        let bed = try ReplicaBed(
            partitions: 2 * names.count, simulatorOptions: ["--latency", "5", "--jitter", "20"],
            hasDefaults: true)
        bed.hasPodNames = Self.text("CHAOS_NAMED") == "1"
        let pause = Self.text("CHAOS_PAUSE").flatMap { Int64($0) }
        bed.brokersMayBeAway = Self.kinds.contains(.broker)
        try bed.start(names)
        try bed.produce(load.hold())
        let deadline = bed.now + 1_000 * (Self.text("CHAOS_SECONDS").flatMap { Int64($0) } ?? 600)
        var frozen: [(name: String, until: Int64, since: Int64)] = []
        var broker: Absence?
        var episodes: [Episode] = []
        var wakings: [Int64] = []
        var begun: [Fault: Int] = [:]
        var isBusy: Bool { !frozen.isEmpty || broker != nil }

        /// Lets the load go on, and ends faults whose time has come.
        func pass(until moment: Int64) throws {
            try bed.wait(
                for: "time passes", timeout: .seconds(400), meanwhile: { try load.tick(bed, jobs: 6) }
            ) {
                for item in frozen where bed.now >= item.until {
                    bed.resume(item.name)
                    wakings.append(bed.now)
                    episodes.append(Episode(fault: .freeze, start: item.since, end: bed.now))
                }
                frozen.removeAll { bed.now >= $0.until }
                if let away = broker, away.process == nil, bed.now >= away.until {
                    broker!.process = try Self.broker("startone", away.number)
                }
                // Two that are away at once are more than the topics' replicas bear.
                if let away = broker, let process = away.process, !process.isRunning {
                    guard let since = away.returned else {
                        broker!.returned = bed.now
                        return false
                    }
                    if bed.now >= since + Self.catchingUp {
                        episodes.append(Episode(fault: .broker, start: away.since, end: since))
                        broker = nil
                    }
                }
                return bed.now >= moment
            }
        }

        var number = 0
        while number < Self.faults ?? 0, bed.now < deadline {
            let drawn = Int64.random(in: 500...4_000, using: &random)
            try pass(until: bed.now + (pause ?? drawn))
            let fault = Self.kinds.randomElement(using: &random)!
            let awake = names.filter { name in !frozen.contains { $0.name == name } }
            let name = awake.randomElement(using: &random)!
            let long = Int64.random(in: 5_000...60_000, using: &random)
            let start = bed.now
            // A worker stays that can go on.
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
                try bed.stop(name) { try load.tick(bed, jobs: 6) }
                try bed.start(name)
                episodes.append(Episode(fault: fault, start: start, end: bed.now))
            case .kill:
                try bed.kill(name)
                try bed.start(name)
                episodes.append(Episode(fault: fault, start: start, end: bed.now))
            case .freeze:
                try bed.suspend(name)
                frozen.append((name, start + long, start))
            case .broker:
                let number = Int.random(in: 1...3, using: &random)
                // A start waits for the broker's answer, a kill for nothing.
                _ = try Self.broker("kill", number)?.wait()
                broker = Absence(number: number, since: start, until: start + min(long, 25_000))
            }
        }
        while isBusy { try pass(until: bed.now + 500) }
        try pass(until: bed.now + 15_000)
        let loadEnd = bed.now
        try bed.produce(load.bringBack())
        try bed.finish(timeout: .seconds(180))
        let restarts = bed.replicas.values.reduce(0) { $0 + $1.restarts }
        try bed.stopAll()
        report(bed, episodes, loadEnd, wakings, begun, restarts)
        try bed.judge("chaos", seed: seed)
        let counts = Dictionary(grouping: bed.history.outcomes, by: \.place).mapValues(\.count)
        let several = counts.filter { $0.value != 1 }
        for outcome in bed.history.outcomes where several[outcome.place] != nil {
            print(
                "\(outcome.place): \(outcome.kind.name), finished \(outcome.finished), read \(outcome.read)")
        }
        #expect(
            several.isEmpty, "seed \(seed): \(several.count) of \(counts.count) jobs have several outcomes")
        #expect(counts.count == bed.history.jobs.count, "seed \(seed): each job has an outcome")
        let late = Self.pushedAfterTheirOutcome(bed.history)
        #expect(
            late.isEmpty,
            "seed \(seed): \(late.count) pushes of jobs whose outcome had been read, \(late.prefix(20)) ms after that"
        )
    }

    /// How long after a committed outcome was read its job was pushed, for each push that was: it had ended.
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
        _ bed: ReplicaBed, _ episodes: [Episode], _ loadEnd: Int64, _ wakings: [Int64],
        _ begun: [Fault: Int], _ restarts: Int
    ) {
        print("faults: \(begun.map { "\($0.key) \($0.value)" }.sorted().joined(separator: ", "))")
        print("\(wakings.count) workers woke up; \(restarts) workers started over in their process")
        for fault in Fault.allCases {
            // Alone, so that no other fault explains a pause.
            let alone = episodes.filter { episode in
                episode.fault == fault
                    && !episodes.contains {
                        ($0.start, $0.end) != (episode.start, episode.end) && $0.start < episode.end + 20_000
                            && $0.end + 20_000 > episode.start
                    }
            }
            let all = episodes.filter { $0.fault == fault }
            let pauses = { (some: [Episode]) in
                // Without load there is no progress either.
                some.map {
                    bed.longestPauses(from: $0.start, until: min($0.end + 20_000, loadEnd)).max() ?? 0
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
