/// A seeded world around the delivery core: Kafka, APNs, devices, stores and workers that fail. An auditor checks
/// Sluice's promises after every step. The same seed always repeats the same run.
public enum Simulation {
    /// Runs a seed to its end or to the first broken promise.
    ///
    /// - Parameters:
    ///   - events: number of steps of the faulty part. The healthy part, in which everything has to end, follows in
    ///     addition.
    ///   - limits: bounds of the world, below the drawn ones.
    ///   - counts: counts to which the run adds its happenings.
    ///   - printsTrace: whether each step is printed as it happens.
    public static func run(
        seed: UInt64, events: Int, limits: SimulationLimits = SimulationLimits(),
        counts: inout SimulationCounts,
        printsTrace: Bool = false
    ) -> Violation? {
        let world = World(seed: seed, events: events, limits, printsTrace: printsTrace)
        world.run()
        counts.add(world.counts)
        return world.violation
    }

    public typealias Shrinker = DeliverySimulation.Shrinker<SimulationLimits, Violation>

    /// Looks for the smallest run that breaks the promise of this one.
    public static func shrinker(
        _ violation: Violation, events: Int, limits: SimulationLimits = SimulationLimits()
    ) -> Shrinker {
        var draw = Draw(seed: violation.seed)
        let scenario = Scenario(&draw, limits)
        var size = limits
        size.workers = scenario.workers
        size.shards = scenario.shards
        size.partitions = scenario.partitions
        size.devices = scenario.devices
        size.apps = scenario.topics
        let first = Shrinker.Case(seed: violation.seed, events: events, limits: size, violation: violation)
        return Shrinker(first) { seed, events, limits in
            var counts = SimulationCounts()
            return run(seed: seed, events: events, limits: limits, counts: &counts)
        }
    }
}

/// Promises of Sluice, and the core's invariants behind them.
public enum Promise: String, Sendable, CaseIterable {
    case nothingLost = "nothing is lost"
    case oneOutcome = "exactly one outcome"
    case rightOutcome = "the outcome is what happened"
    case newestWins = "the newest wins"
    case inTurn = "broadcasts of a channel are sent one after the other"
    case neverLate = "never after the expiration"
    case noDuplicate = "no duplicate without a cause"
    case waits = "waits for what it must wait for"
    case bounded = "bounded"
    case watermark = "the watermark never passes unfinished work"
    case milestones = "milestones add up"
    case progress = "no item waits for ever"
    case sound = "the core's tables are sound"
}

/// A broken promise.
public struct Violation: Error, Sendable, CustomStringConvertible, BrokenPromise {
    public var seed: UInt64
    public var promise: Promise
    public var what: String
    /// Number of steps before the violation.
    public var events: Int
    /// The last steps before the violation.
    public var trace: [String]

    public var description: String {
        "seed \(seed), event \(events): \"\(promise.rawValue)\" is broken: \(what)"
    }
}
