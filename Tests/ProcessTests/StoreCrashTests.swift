import Foundation
import TestSupport
import Testing

/// A worker with a store that is killed again and again under load.
@Suite("Store: workers that are killed and restarted")
struct StoreCrashTests {
    static let faults = [
        "--latency", "3", "--jitter", "40", "--retry-after", "1", "--errors",
        "ServiceUnavailable=0.001,TooManyRequests=0.01,InternalServerError=0.01,Shutdown=0.001",
    ]

    private static func number(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    /// SLUICE_TEST_STORE_KILLS sets the number of kills. SLUICE_TEST_STORE_SEED repeats the load of a failed run, which
    /// prints its seed. The timing is not repeated.
    @Test func killsAtAnyMomentLoseNothingAndRepeatLittle() throws {
        let cycles = Int(Self.number("SLUICE_TEST_STORE_KILLS") ?? 5)
        let seed = Self.number("SLUICE_TEST_STORE_SEED") ?? UInt64.random(in: 1...1_000_000)
        try withBed(BedOptions(partitions: max(4, cycles / 8), simulator: Self.faults)) { bed in
            let lives = try StoreLives(bed)
            var load = StoreLoad(seed: seed, devices: 60)
            var ways: [String: Int] = [:]
            for _ in 0..<cycles { try live(lives, &load, &ways) }
            try end(lives, &load)
            try lives.judge("\(cycles) kills \(ways)", seed: seed)
            // A kill that repeats nothing would not have tested the store.
            #expect(lives.history.outcomes.count > lives.history.jobs.count, "kills repeat some jobs")
        }
    }

    /// Starts a worker under load, and kills it. Counts the way in which it lived.
    private func live(_ lives: StoreLives, _ load: inout StoreLoad, _ ways: inout [String: Int]) throws {
        // Some kills hit the worker before it has its partitions, and the others during its work.
        if load.random.chance(10) {
            try lives.launch()
            try lives.worker.waitForOutput("store opened")
            try lives.produce(load.next(5, lives))
            ways["starting", default: 0] += 1
        } else {
            try lives.start { try lives.produce(load.next(3, lives)) }
            let steps = Int.random(in: 1...40, using: &load.random)
            let simulatorDies = load.random.chance(30) ? Int.random(in: 0..<steps, using: &load.random) : -1
            for step in 0..<steps {
                if step == simulatorDies {
                    try lives.killSimulator()
                    ways["simulator", default: 0] += 1
                }
                try lives.produce(load.next(20, lives))
                try lives.poll()
            }
            ways["working", default: 0] += 1
        }
        try lives.kill()
    }

    @Test func tenRestartsUnderLoadRepeatNothing() throws {
        let seed = Self.number("SLUICE_TEST_STORE_SEED") ?? UInt64.random(in: 1...1_000_000)
        try withBed(BedOptions(partitions: 4, simulator: Self.faults)) { bed in
            let lives = try StoreLives(bed)
            var load = StoreLoad(seed: seed, devices: 60)
            for _ in 0..<10 {
                try lives.start { try lives.produce(load.next(3, lives)) }
                for _ in 0..<Int.random(in: 1...20, using: &load.random) {
                    try lives.produce(load.next(20, lives))
                    try lives.poll()
                }
                try lives.stop()
            }
            try end(lives, &load)
            #expect(lives.refusals == [])
            try lives.judge("10 restarts", seed: seed)
            #expect(lives.history.outcomes.count == lives.history.jobs.count, "seed \(seed)")
        }
    }

    /// Starts a last worker, and brings all devices back until every job has an outcome.
    private func end(_ lives: StoreLives, _ load: inout StoreLoad) throws {
        try lives.start()
        var next = ContinuousClock.now
        try lives.finish {
            // Devices that sent no receipt in time count as offline until their next event.
            guard ContinuousClock.now >= next else { return }
            next = .now + .seconds(1)
            try lives.produce(load.settle(lives))
        }
    }
}
