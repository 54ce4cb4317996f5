import DeliveryCore
import DeliverySimulation
import Testing

struct DeliverySimulationTests {
    /// These seeds reach everything that can happen in a world, and break no promise. `make simulate` runs many
    /// more seeds.
    @Test func randomWorldsBreakNoPromise() throws {
        var counts = SimulationCounts()
        // The last three reach `leftInStore`, which is rare.
        for seed in Array(UInt64(1)...337) + [559, 1702, 2122] {
            if let violation = Simulation.run(seed: seed, events: 4000, counts: &counts) {
                let lines = violation.trace.joined(separator: "\n  ")
                Issue.record(
                    """
                    \(violation)
                      \(lines)
                    replay: sluice-simulate --replay \(seed) --events 4000
                    """)
                return
            }
        }
        #expect(counts.missing == [])
    }

    @Test func equalSeedsGiveEqualRuns() {
        var runs: [[Int]] = []
        for _ in 0..<2 {
            var counts = SimulationCounts()
            _ = Simulation.run(seed: 77, events: 3000, counts: &counts)
            runs.append(Happening.allCases.map { counts[$0] } + [counts.events])
        }
        #expect(runs[0] == runs[1])
        #expect(runs[0].last! >= 3000)
    }

    /// Whole workers in every mode break no promise, and enter each state and transition of their machines. `make
    /// simulate` runs many more seeds.
    @Test(arguments: StoreMode.allCases) func fleetsKeepTheirPromisesInEveryMode(mode: StoreMode) {
        var (counts, coverage) = (FleetCounts(), FleetCoverage())
        for seed in FleetExpectation.seeds(mode) {
            guard
                let violation = FleetSimulation.run(
                    seed: seed, events: FleetExpectation.steps, mode: mode, counts: &counts,
                    coverage: &coverage)
            else { continue }
            let lines = violation.trace.joined(separator: "\n  ")
            Issue.record(
                """
                \(violation)
                  \(lines)
                replay: sluice-simulate --fleet \(mode) --replay \(seed) --events \(FleetExpectation.steps)
                """)
            return
        }
        #expect(counts.kills > 0 && counts.freezes > 0 && counts.cleanEnds > 0)
        #expect(mode != .transactions || counts.repeatedOutcomes == 0)
        #expect(
            coverage.missing(FleetExpectation(mode)) == [],
            "choose other seeds: sluice-simulate --fleet \(mode) --seeds 20000 --events 3000 --choose-seeds")
    }
}
