import DeliveryCore

/// Seeded worlds of whole workers. The same seed always gives the same run.
public enum FleetSimulation {
    public typealias Shrinker = DeliverySimulation.Shrinker<FleetLimits, FleetViolation>

    /// Runs one seed to its end or to the first broken promise.
    public static func run(
        seed: UInt64, events: Int, mode: StoreMode, limits: FleetLimits = FleetLimits(),
        counts: inout FleetCounts, coverage: inout FleetCoverage, printsTrace: Bool = false
    ) -> FleetViolation? {
        let world = FleetWorld(seed: seed, events: events, mode: mode, limits, printsTrace: printsTrace)
        let violation = world.run()
        counts.add(world.counts)
        coverage.add(world.coverage)
        return violation
    }

    /// Bounds that are just what a seed has drawn.
    public static func size(
        ofSeed seed: UInt64, mode: StoreMode, within limits: FleetLimits = FleetLimits()
    ) -> FleetLimits {
        var draw = Draw(seed: seed)
        let scenario = FleetScenario(&draw, mode: mode, limits)
        var size = limits
        size.workers = scenario.workers
        size.shards = scenario.shards
        size.partitions = scenario.partitions
        size.devices = scenario.tokens
        return size
    }

    /// Looks for the smallest run that breaks the promise of this one.
    public static func shrinker(
        _ violation: FleetViolation, events: Int, limits: FleetLimits = FleetLimits()
    ) -> Shrinker {
        let mode = violation.mode
        let first = Shrinker.Case(
            seed: violation.seed, events: events,
            limits: size(ofSeed: violation.seed, mode: mode, within: limits),
            violation: violation)
        return Shrinker(first) { seed, events, limits in
            var (counts, coverage) = (FleetCounts(), FleetCoverage())
            return run(
                seed: seed, events: events, mode: mode, limits: limits, counts: &counts, coverage: &coverage)
        }
    }
}
