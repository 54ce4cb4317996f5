import Foundation
import KafkaTestSupport
import TestSupport
import Testing

/// Several workers that hand over partitions and their held pushes through the changelog.
@Suite("Replicas: workers that hand over to each other")
struct ReplicaTests {
    static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    /// SLUICE_TEST_REPLICA_SEED repeats the load of a run, but not its timing.
    static var seed: UInt64 { number("SLUICE_TEST_REPLICA_SEED") ?? .random(in: 1...1_000_000) }

    /// Number of held pushes; SLUICE_TEST_REPLICA_DEVICES sets another.
    static var devices: Int { Int(number("SLUICE_TEST_REPLICA_DEVICES") ?? 60) }

    /// Produces the absent devices' pushes, and waits until all offsets are committed: only stores have them then.
    private func hold(
        _ load: inout ReplicaLoad, _ group: ReplicaGroup, deliverAt: Int64? = nil, expiration: Int64? = nil
    ) throws {
        try group.produce(load.hold(deliverAt: deliverAt, expiration: expiration))
        try group.wait(for: "all offsets are committed") { group.isCommitted }
    }

    /// Brings all devices back, after which all jobs end and each held push arrives.
    private func end(
        _ load: inout ReplicaLoad, _ group: ReplicaGroup, _ what: String, seed: UInt64
    ) throws {
        try group.produce(load.bringBack())
        try group.finish()
        #expect(load.held.allSatisfy { group.accepted.contains($0.apnsID) }, "held pushes are delivered")
        try group.judge(what, seed: seed)
    }

    @Test func rollingRestartUnderLoadKeepsOrderAndLosesNothing() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 60, absent: Self.devices)
        let options = BedOptions(
            partitions: 6, simulator: ["--latency", "5", "--jitter", "20"], hasDevices: true)
        try withBed(options) { bed in
            let group = try ReplicaGroup(bed)
            let names = ["one", "two", "three"]
            try group.start(names)
            try hold(&load, group)
            let start = group.now
            for _ in 0..<(Self.number("SLUICE_TEST_ROLLING_RESTARTS") ?? 1) {
                for name in names {
                    try group.stop(name) { try load.tick(group) }
                    try group.start([name]) { try load.tick(group) }
                }
            }
            let pauses = group.longestPauses(from: start, until: group.now)
            print(
                "rolling restart, \(group.now - start) ms: partitions without progress for \(pauses) ms at most"
            )
            try end(&load, group, "rolling restart of three", seed: seed)
            if Bed.hasTransactions {
                #expect(
                    group.history.outcomes.count == group.history.jobs.count, "seed \(seed): one outcome each"
                )
            }
        }
    }

    @Test func heldPushesOfLostWorkerAreRestoredOnTime() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 0, absent: Self.devices)
        try withBed(BedOptions(partitions: 6, simulator: ["--latency", "5"], hasDevices: true)) { bed in
            let group = try ReplicaGroup(bed)
            try group.start(["one", "two"])
            let soon = (group.now + 4_000) / 1_000 * 1_000
            try hold(&load, group, deliverAt: soon + 3_000, expiration: soon)
            let lost = group.replicas["one"]!.owned
            #expect(!lost.isEmpty)
            try group.kill("one")
            try group.removeStore("one")
            try group.waitForShares()
            let restored = group.replicas["two"]!.lines.filter { $0.message == "partition restored" }
                .compactMap { $0.fields["partition"].flatMap { Int32($0) } }
            #expect(lost.isSubset(of: restored), "lost partitions are restored before their jobs are taken")
            // Pushes that are due or expire in the meantime.
            try group.wait(for: "due pushes have ended") {
                group.open.allSatisfy { $0.push?.deliverAt == nil && $0.push?.expiration == nil }
            }
            try group.start(["three"])
            try end(&load, group, "loss of one of two workers", seed: seed)
            #expect(group.history.outcomes.count == group.history.jobs.count, "each job has one outcome")
            #expect(group.history.arrivals.count == group.accepted.count, "no push is sent twice")
        }
    }

    @Test func scalingUpAndDownUnderLoadLosesNothing() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 60, absent: Self.devices)
        try withBed(BedOptions(partitions: 6, simulator: ["--latency", "5", "--jitter", "20"])) { bed in
            let group = try ReplicaGroup(bed)
            try group.start(["one"])
            try hold(&load, group)
            let start = group.now
            for _ in 0..<(Self.number("SLUICE_TEST_SCALINGS") ?? 1) {
                try group.start(["two", "three"]) { try load.tick(group) }
                for name in ["three", "two"] {
                    try group.stop(name) { try load.tick(group) }
                    try group.waitForShares { try load.tick(group) }
                }
            }
            let pauses = group.longestPauses(from: start, until: group.now)
            print("scaling, \(group.now - start) ms: partitions without progress for \(pauses) ms at most")
            try end(&load, group, "one, three, one", seed: seed)
        }
    }

    @Test func workerResumedPastItsSessionRepeatsNothing() throws {
        let seed = Self.seed
        var load = ReplicaLoad(seed: seed, live: 200, absent: Self.devices)
        // With few streams and slow answers many pushes wait in the worker when it is stopped.
        try withBed(
            BedOptions(partitions: 6, simulator: ["--latency", "150", "--jitter", "40", "--streams", "2"])
        ) { bed in
            let group = try ReplicaGroup(bed, environment: ["SLUICE_APNS__MAX_CONNECTIONS": "2"])
            try group.start(["one", "two"])
            try hold(&load, group)
            let waiting = group.replicas["one"]!
            try group.wait(for: "pushes wait for their turn", meanwhile: { try load.tick(group, jobs: 20) }) {
                group.open.filter { waiting.owned.contains($0.place.partition) && !$0.isHeld }.count > 60
            }
            try group.suspend("one")
            let stopped = group.now
            try group.wait(
                for: "the other worker has all partitions", meanwhile: { try load.tick(group, jobs: 1) }
            ) {
                group.replicas["two"]!.owned.count == bed.partitions
            }
            try group.wait(for: "the other worker has ended all jobs") { group.open.allSatisfy { $0.isHeld } }
            let resumed = group.now
            let outcomes = group.history.outcomes.count
            let arrivals = group.history.arrivals.count
            group.resume("one")
            try group.waitUntilItWorks("one") { try load.tick(group, jobs: 1) }
            try group.waitForShares()
            try group.poll()
            // Hand-overs may repeat jobs, see `commitsAreRefused`.
            let handedOver = Bed.hasTransactions ? .max : group.firstAssignment(after: resumed)
            let stale = group.history.arrivals[arrivals...].filter { $0.time < handedOver }
            let ended = Set(group.history.outcomes[..<outcomes].map(\.place))
            // Outcomes from before the stop may still be in the producer's queue, and only transactions fence them.
            // Jobs don't end during the stop, so its middle separates old outcomes from new ones, even if clocks
            // differ.
            let repeated = group.history.outcomes[outcomes...].filter {
                ended.contains($0.place) && $0.finished < handedOver
                    && (Bed.hasTransactions || $0.finished > (stopped + resumed) / 2)
            }
            print(
                """
                a worker was stopped for \(resumed - stopped) ms; after it resumed: \(stale.count) pushes, \
                \(stale.map { $0.time - resumed }) ms later, \(repeated.count) outcomes of jobs that the other had ended, \
                \(repeated.map { $0.finished - resumed }) ms later
                """)
            #expect(repeated.isEmpty, "seed \(seed)")
            let pushedAgain = stale.filter { arrival in
                group.history.outcomes[..<outcomes].contains { $0.apnsID == arrival.apnsID }
            }
            #expect(pushedAgain.isEmpty, "seed \(seed): pushes of jobs that the other worker had ended")
            try end(&load, group, "one of two stopped past its session", seed: seed)
        }
    }

    /// SLUICE_TEST_CRASHES sets the number of crashes. Each takes some seconds, because the group has to notice it.
    @Test(
        .enabled(
            if: Bed.hasTransactions,
            "the embedded cluster shows aborted records: SLUICE_TEST_BOOTSTRAP_SERVERS"))
    func crashesWithTransactionsGiveExactlyOneOutcomePerJob() throws {
        let seed = Self.seed
        let crashes = Int(Self.number("SLUICE_TEST_CRASHES") ?? 50)
        var load = ReplicaLoad(seed: seed, live: 100, absent: Self.devices)
        try withBed(BedOptions(partitions: 6, simulator: ["--latency", "5", "--jitter", "20"])) { bed in
            let group = try ReplicaGroup(bed)
            let names = ["one", "two"]
            try group.start(names)
            try hold(&load, group)
            for _ in 0..<crashes {
                let (name, jobs) = (
                    names.randomElement(using: &load.random)!, Int.random(in: 1...300, using: &load.random)
                )
                let count = group.history.jobs.count + jobs
                try group.wait(for: "more jobs are produced", meanwhile: { try load.tick(group) }) {
                    group.history.jobs.count >= count
                }
                try group.kill(name)
                try group.start([name]) { try load.tick(group, jobs: 1) }
            }
            try end(&load, group, "\(crashes) crashes with transactions", seed: seed)
            let counts = Dictionary(grouping: group.history.outcomes, by: \.place).mapValues(\.count)
            let wrong = counts.filter { $0.value != 1 }
            #expect(
                wrong.isEmpty, "seed \(seed): \(wrong.count) of \(counts.count) jobs have several outcomes")
            #expect(counts.count == group.history.jobs.count, "seed \(seed)")
        }
    }
}

extension AuditedJob {
    fileprivate var isHeld: Bool { push?.delivery == .holdWhileOffline }
}
