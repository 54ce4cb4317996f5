import DeliveryCore

/// Seeded worlds of whole workers. The same seed always gives the same run.
public enum FleetSimulation {
    /// Runs one seed to its end or to the first broken promise.
    public static func run(
        seed: UInt64, events: Int, mode: StoreMode, counts: inout FleetCounts, printsTrace: Bool = false
    ) -> FleetViolation? {
        let world = FleetWorld(seed: seed, events: events, mode: mode, printsTrace: printsTrace)
        let violation = world.run()
        counts.add(world.counts)
        return violation
    }
}
