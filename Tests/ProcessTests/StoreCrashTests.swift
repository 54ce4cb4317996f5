import Foundation
import TestSupport
import Testing

/// A worker with a store, killed again and again while everything goes on around it.
@Suite("Store: workers that are killed and restarted")
struct StoreCrashTests {
    static let faults = [
        "--latency", "3", "--jitter", "40", "--retry-after", "1", "--errors",
        "ServiceUnavailable=0.001,TooManyRequests=0.01,InternalServerError=0.01,Shutdown=0.001",
    ]

    private static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    /// More kills than the suite's time allows by default: SLUICE_TEST_STORE_KILLS=100. A failed run prints its seed, which
    /// SLUICE_TEST_STORE_SEED takes; moments are the machine's, so it need not fail again.
    @Test("kill -9 at any moment loses nothing, repeats little, and keeps what is newest")
    func killed() throws {
        let cycles = Int(Self.number("SLUICE_TEST_STORE_KILLS") ?? 5)
        let seed = Self.number("SLUICE_TEST_STORE_SEED") ?? UInt64.random(in: 1...1_000_000)
        var load = StoreLoad(seed: seed, devices: 60)
        let bed = try StoreBed(partitions: max(4, cycles / 8), simulatorOptions: Self.faults)
        var ways: [String: Int] = [:]
        for _ in 0..<cycles {
            // Now and then before it has its partitions, and else after some steps of work.
            if load.random.chance(10) {
                _ = try bed.launch()
                try bed.worker!.waitForOutput("store opened")
                try bed.produce(load.next(5, bed))
                ways["starting", default: 0] += 1
            } else {
                try bed.start { try bed.produce(load.next(3, bed)) }
                let steps = Int.random(in: 1...40, using: &load.random)
                let simulatorDies =
                    load.random.chance(30) ? Int.random(in: 0..<steps, using: &load.random) : -1
                for step in 0..<steps {
                    if step == simulatorDies {
                        try bed.killSimulator()
                        ways["simulator", default: 0] += 1
                    }
                    try bed.produce(load.next(20, bed))
                    try bed.poll()
                }
                ways["working", default: 0] += 1
            }
            try bed.kill()
        }
        try Self.end(bed, &load)
        Self.judge(try bed.audit(), seed: seed, "\(cycles) kills \(ways)")
        // What came back from the store was there to come back.
        #expect(bed.history.outcomes.count > bed.history.jobs.count, "a kill repeats something")
    }

    @Test("SIGTERM and start, ten times under load: one outcome each, and nothing is repeated")
    func restarted() throws {
        let seed = Self.number("SLUICE_TEST_STORE_SEED") ?? UInt64.random(in: 1...1_000_000)
        var load = StoreLoad(seed: seed, devices: 60)
        let bed = try StoreBed(simulatorOptions: Self.faults)
        for _ in 0..<10 {
            try bed.start { try bed.produce(load.next(3, bed)) }
            for _ in 0..<Int.random(in: 1...20, using: &load.random) {
                try bed.produce(load.next(20, bed))
                try bed.poll()
            }
            try bed.stop()
        }
        try Self.end(bed, &load)
        #expect(bed.refusals == [])
        let auditor = try bed.audit()
        Self.judge(auditor, seed: seed, "10 restarts")
        #expect(bed.history.outcomes.count == bed.history.jobs.count, "seed \(seed)")
    }

    /// A last worker brings everything to its end.
    static func end(_ bed: StoreBed, _ load: inout StoreLoad) throws {
        try bed.start()
        var next = ContinuousClock.now
        try bed.finish {
            // Devices that were asked to confirm and did not are taken for offline until they are heard of once more.
            guard ContinuousClock.now >= next else { return }
            next = .now + .seconds(1)
            try bed.produce(load.settle(bed))
        }
        try bed.stop()
    }

    static func judge(_ auditor: Auditor, seed: UInt64, _ what: String) {
        let history = auditor.history
        let repeated = history.outcomes.count - history.jobs.count
        print(
            "\(what), seed \(seed): \(history.jobs.count) jobs, \(history.arrivals.count) pushes at APNs, \(repeated) outcomes repeated"
        )
        for violation in auditor.violations.prefix(5) { Issue.record("seed \(seed): \(violation)") }
        #expect(auditor.violations.count == 0, "seed \(seed)")
    }
}
