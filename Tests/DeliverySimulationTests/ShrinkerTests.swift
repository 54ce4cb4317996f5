import DeliveryCore
import Testing

@testable import DeliverySimulation

/// Shortens a run that breaks a promise. The run is artificial: a rule decides which worlds break the promise.
struct ShrinkerTests {
    /// Breaks a promise with two workers, three devices, enough steps and kills.
    private func run(_ seed: UInt64, _ events: Int, _ limits: FleetLimits) -> FleetViolation? {
        guard limits.workers >= 2, limits.devices >= 3, events >= 37, limits.faults.contains(.kill) else {
            return nil
        }
        // Smaller worlds break another promise, which the shrinker must ignore.
        let promise = limits.partitions == 1 && seed % 2 == 0 ? Promise.progress : .bounded
        return FleetViolation(
            seed: seed, mode: .local, promise: promise, what: "a rule", events: events, trace: [])
    }

    private func shrinker(mostRuns: Int) throws -> FleetSimulation.Shrinker {
        var limits = FleetLimits()
        (limits.workers, limits.shards, limits.partitions, limits.devices) = (4, 3, 6, 60)
        let violation = try #require(run(2, 3000, limits))
        return FleetSimulation.Shrinker(
            .init(seed: 2, events: 3000, limits: limits, violation: violation), mostRuns: mostRuns, run: run)
    }

    @Test func smallestRunStillBreaksThePromise() throws {
        var shrinker = try shrinker(mostRuns: 4000)
        let smallest = shrinker.shrink()
        #expect(run(smallest.seed, smallest.events, smallest.limits)?.promise == .bounded)
        #expect(smallest.limits.description == "workers=2,shards=1,partitions=1,devices=3,faults=kill")
        #expect(smallest.events < 45)
        #expect(shrinker.runs < 4000)
    }

    @Test func shrinkerStaysWithinItsRunLimit() throws {
        var shrinker = try shrinker(mostRuns: 10)
        _ = shrinker.shrink()
        #expect(shrinker.runs <= 10)
    }

    @Test func shrinkingIsDeterministic() throws {
        var (first, second) = (try shrinker(mostRuns: 300), try shrinker(mostRuns: 300))
        let (one, other) = (first.shrink(), second.shrink())
        #expect(one.seed == other.seed && one.events == other.events && one.limits == other.limits)
        #expect(first.runs == second.runs)
    }

    @Test(arguments: [
        "", "workers=1", "workers=1,shards=2,partitions=3,devices=4,faults=kill+freeze", "faults=none",
    ])
    func limitsRoundTripAsText(text: String) {
        #expect(FleetLimits(text)?.description == text)
    }

    @Test(arguments: ["workers", "workers=0", "workers=x", "faults=thunder", "planets=1"])
    func invalidLimitsAreRefused(text: String) {
        #expect(FleetLimits(text) == nil)
    }
}
