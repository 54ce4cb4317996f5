import DeliveryCore
import DeliverySimulation
import Testing

struct DeliverySimulationTests {
    /// These seeds reach everything that can happen in a world, and break no promise. `make simulate` runs many
    /// more seeds.
    @Test func randomWorldsBreakNoPromise() throws {
        var counts = SimulationCounts()
        // The last four reach `leftInStore` and `returnedAhead`, which are rare.
        for seed in Array(UInt64(1)...337) + [559, 1702, 2122, 5591] {
            let events = seed == 5591 ? 8000 : 4000
            if let violation = Simulation.run(seed: seed, events: events, counts: &counts) {
                let lines = violation.trace.joined(separator: "\n  ")
                Issue.record(
                    """
                    \(violation)
                      \(lines)
                    replay: sluice-simulate --replay \(seed) --events \(events)
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
                    seed: seed, events: FleetExpectation.steps, mode: mode, limits: FleetExpectation.limits,
                    counts: &counts, coverage: &coverage)
            else { continue }
            return record(violation, events: FleetExpectation.steps, FleetExpectation.limits)
        }
        #expect(counts.kills > 0 && counts.freezes > 0 && counts.cleanEnds > 0)
        #expect(mode != .transactions || counts.repeatedOutcomes == 0)
        #expect(
            coverage.missing(FleetExpectation(mode)) == [],
            "choose other seeds: sluice-simulate --fleet \(mode) --seeds 20000 --events 3000 --choose-seeds")
    }

    /// Operators pause topics and all sending, and workers learn of it late, in worlds with all other faults.
    @Test(arguments: StoreMode.allCases) func pausedFleetsKeepTheirPromises(mode: StoreMode) {
        var (counts, coverage) = (FleetCounts(), FleetCoverage())
        // Each of these seeds has shown a mistake of a machine or of a check.
        let found: [UInt64] =
            switch mode {
            case .none: [156]
            case .local: [99, 164, 340, 368]
            case .changelog: [164, 184, 553]
            case .transactions: [878, 1742]
            }
        let events = 3000
        for seed in Array(1...24) + found {
            guard
                let violation = FleetSimulation.run(
                    seed: seed, events: events, mode: mode, counts: &counts, coverage: &coverage)
            else { continue }
            return record(violation, events: events, FleetLimits())
        }
        #expect(counts.switches > 20 && counts.outcomes > 1000)
    }

    private func record(_ violation: FleetViolation, events: Int, _ limits: FleetLimits) {
        let lines = violation.trace.joined(separator: "\n  ")
        let bounds = limits.description
        Issue.record(
            """
            \(violation)
              \(lines)
            replay: sluice-simulate --fleet \(violation.mode) --replay \(violation.seed) --events \(events) \
            \(bounds.isEmpty ? "" : "--limit \(bounds)")
            """)
    }
}
