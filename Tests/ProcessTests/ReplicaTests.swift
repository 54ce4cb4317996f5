import Foundation
import KafkaTestSupport
import TestSupport
import Testing

/// Several workers that hand partitions over, with what is held, by way of the changelog.
@Suite("Replicas: workers that hand over to each other")
struct ReplicaTests {
    static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    /// SLUICE_TEST_REPLICA_SEED repeats the load of a run; moments are the machine's.
    static var seed: UInt64 { number("SLUICE_TEST_REPLICA_SEED") ?? .random(in: 1...1_000_000) }

    /// Held pushes; SLUICE_TEST_REPLICA_DEVICES=10000 for more.
    static var devices: Int { Int(number("SLUICE_TEST_REPLICA_DEVICES") ?? 60) }

    /// The absent devices' pushes wait in stores alone: all offsets are committed, and have left memory.
    private func hold(
        _ load: inout ReplicaLoad, _ bed: ReplicaBed, deliverAt: Int64? = nil, expiration: Int64? = nil
    ) throws {
        try bed.produce(load.hold(deliverAt: deliverAt, expiration: expiration))
        try bed.wait(for: "what is held is committed") { bed.isCommitted }
    }

    /// All devices are back: everything ends, and each held push has arrived.
    private func end(
        _ load: inout ReplicaLoad, _ bed: ReplicaBed, _ what: String, seed: UInt64
    ) throws {
        try bed.produce(load.bringBack())
        try bed.finish()
        #expect(load.held.allSatisfy { bed.accepted.contains($0.apnsID) }, "what was held is delivered")
        try bed.stopAll()
        try bed.judge(what, seed: seed)
    }

    @Test("a rolling restart under load loses nothing, keeps each device's order, and what is held")
    func rollingRestart() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 60, absent: Self.devices)
        let bed = try ReplicaBed(simulatorOptions: ["--latency", "5", "--jitter", "20"])
        let names = ["one", "two", "three"]
        try bed.start(names)
        try hold(&load, bed)
        let start = bed.now
        for _ in 0..<(Self.number("SLUICE_TEST_ROLLING_RESTARTS") ?? 1) {
            for name in names {
                try bed.stop(name) { try load.tick(bed) }
                try bed.start([name]) { try load.tick(bed) }
            }
        }
        let pauses = bed.longestPauses(from: start, until: bed.now)
        print("rolling restart, \(bed.now - start) ms: partitions without progress for \(pauses) ms at most")
        try end(&load, bed, "rolling restart of three", seed: seed)
        if ReplicaBed.hasTransactions {
            #expect(bed.history.outcomes.count == bed.history.jobs.count, "seed \(seed): one outcome each")
        }
    }

    @Test("what a worker held that is gone for good is restored by another, and is in time")
    func goneForGood() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 0, absent: Self.devices)
        let bed = try ReplicaBed(simulatorOptions: ["--latency", "5"])
        try bed.start(["one", "two"])
        let soon = (bed.now + 4_000) / 1_000 * 1_000
        try hold(&load, bed, deliverAt: soon + 3_000, expiration: soon)
        let lost = bed.replicas["one"]!.owned
        #expect(!lost.isEmpty)
        try bed.kill("one")
        try bed.removeStore("one")
        try bed.waitForShares()
        let restored = bed.replicas["two"]!.lines.filter { $0.message == "partition restored" }
            .compactMap { $0.fields["partition"].flatMap { Int32($0) } }
        #expect(lost.isSubset(of: restored), "it is restored before the partition's jobs are taken")
        // What is due in the meantime, by its moment or its expiration.
        try bed.wait(for: "what is due has ended") {
            bed.open.allSatisfy { $0.push?.deliverAt == nil && $0.push?.expiration == nil }
        }
        try bed.start(["three"])
        try end(&load, bed, "one of two gone for good", seed: seed)
        #expect(bed.history.outcomes.count == bed.history.jobs.count, "one outcome each")
        #expect(bed.history.arrivals.count == bed.accepted.count, "nothing is sent twice")
    }

    @Test("from one worker to three and back under load, with what is held")
    func scaling() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 60, absent: Self.devices)
        let bed = try ReplicaBed(simulatorOptions: ["--latency", "5", "--jitter", "20"])
        try bed.start(["one"])
        try hold(&load, bed)
        let start = bed.now
        for _ in 0..<(Self.number("SLUICE_TEST_SCALINGS") ?? 1) {
            try bed.start(["two", "three"]) { try load.tick(bed) }
            for name in ["three", "two"] {
                try bed.stop(name) { try load.tick(bed) }
                try bed.waitForShares { try load.tick(bed) }
            }
        }
        let pauses = bed.longestPauses(from: start, until: bed.now)
        print("scaling, \(bed.now - start) ms: partitions without progress for \(pauses) ms at most")
        try end(&load, bed, "one, three, one", seed: seed)
    }

    @Test(
        "a worker that was stopped past its session neither pushes nor says anything of what others have now")
    func zombie() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 200, absent: Self.devices)
        // Few streams and slow answers: much waits in the worker for its turn when it is stopped.
        let bed = try ReplicaBed(simulatorOptions: ["--latency", "150", "--jitter", "40", "--streams", "2"])
        bed.environment = ["SLUICE_APNS__MAX_CONNECTIONS": "2"]
        try bed.start(["one", "two"])
        try hold(&load, bed)
        let waiting = bed.replicas["one"]!
        try bed.wait(for: "pushes wait for their turn", meanwhile: { try load.tick(bed, jobs: 20) }) {
            bed.open.filter { waiting.owned.contains($0.place.partition) && !$0.isHeld }.count > 60
        }
        try bed.suspend("one")
        let stopped = bed.now
        try bed.wait(for: "the other one has it all", meanwhile: { try load.tick(bed, jobs: 1) }) {
            bed.replicas["two"]!.owned.count == bed.installation.partitions
        }
        try bed.wait(for: "the other one has ended it") { bed.open.allSatisfy { $0.isHeld } }
        let resumed = bed.now
        let outcomes = bed.history.outcomes.count
        let arrivals = bed.history.arrivals.count
        bed.resume("one")
        try bed.waitUntilItGoesOn("one") { try load.tick(bed, jobs: 1) }
        try bed.waitForShares()
        try bed.poll()
        // The embedded cluster refuses commits while members join: what is handed over then may be repeated.
        let handedOver = ReplicaBed.hasTransactions ? .max : bed.firstAssignment(after: resumed)
        let stale = bed.history.arrivals[arrivals...].filter { $0.time < handedOver }
        let ended = Set(bed.history.outcomes[..<outcomes].map(\.place))
        // What ended before it was stopped may be in its producer's queue still; only transactions fence that. Between the
        // two nothing ends, whatever the worker's clock and this one differ by.
        let repeated = bed.history.outcomes[outcomes...].filter {
            ended.contains($0.place) && $0.finished < handedOver
                && (ReplicaBed.hasTransactions || $0.finished > (stopped + resumed) / 2)
        }
        print(
            """
            a worker was stopped for \(resumed - stopped) ms; when it went on: \(stale.count) pushes, \
            \(stale.map { $0.time - resumed }) ms later, \(repeated.count) outcomes of what the other had ended, \
            \(repeated.map { $0.finished - resumed }) ms later
            """)
        #expect(repeated.isEmpty, "seed \(seed)")
        let pushedAgain = stale.filter { arrival in
            bed.history.outcomes[..<outcomes].contains { $0.apnsID == arrival.apnsID }
        }
        #expect(pushedAgain.isEmpty, "seed \(seed): pushes of what the other had ended")
        try end(&load, bed, "one of two stopped past its session", seed: seed)
    }

    /// SLUICE_TEST_CRASHES: how many; some seconds each, as the group has to notice.
    @Test(
        "kill -9 again and again with transactions: who reads committed records sees one outcome for each job",
        .enabled(
            if: ReplicaBed.hasTransactions,
            "the embedded cluster shows aborted records: SLUICE_TEST_BOOTSTRAP_SERVERS"))
    func exactlyOnce() throws {
        let seed = Self.seed
        let crashes = Int(Self.number("SLUICE_TEST_CRASHES") ?? 50)
        var load = ReplicaLoad(seed: seed, live: 100, absent: Self.devices)
        let bed = try ReplicaBed(simulatorOptions: ["--latency", "5", "--jitter", "20"])
        let names = ["one", "two"]
        try bed.start(names)
        try hold(&load, bed)
        for _ in 0..<crashes {
            let (name, jobs) = (
                names.randomElement(using: &load.random)!, Int.random(in: 1...300, using: &load.random)
            )
            let count = bed.history.jobs.count + jobs
            try bed.wait(for: "some more jobs", meanwhile: { try load.tick(bed) }) {
                bed.history.jobs.count >= count
            }
            try bed.kill(name)
            try bed.start([name]) { try load.tick(bed, jobs: 1) }
        }
        try end(&load, bed, "\(crashes) crashes with transactions", seed: seed)
        let counts = Dictionary(grouping: bed.history.outcomes, by: \.place).mapValues(\.count)
        let wrong = counts.filter { $0.value != 1 }
        #expect(wrong.isEmpty, "seed \(seed): \(wrong.count) of \(counts.count) jobs have several outcomes")
        #expect(counts.count == bed.history.jobs.count, "seed \(seed)")
    }
}

extension AuditedJob {
    fileprivate var isHeld: Bool { push?.delivery == .holdWhileOffline }
}
