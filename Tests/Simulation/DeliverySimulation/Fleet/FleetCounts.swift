import DeliveryCore

/// Counts of what happened.
public struct FleetCounts: Sendable {
    public var events = 0
    public var jobs = 0
    public var pushes = 0
    public var outcomes = 0
    public var repeatedOutcomes = 0
    public var starts = 0
    public var ends = 0
    public var cleanEnds = 0
    public var kills = 0
    public var freezes = 0
    public var stops = 0
    public var faults = 0
    public var commits = 0
    /// Changes of an operator's switches.
    public var switches = 0

    public init() {}

    public mutating func add(_ other: FleetCounts) {
        events += other.events
        jobs += other.jobs
        pushes += other.pushes
        outcomes += other.outcomes
        repeatedOutcomes += other.repeatedOutcomes
        starts += other.starts
        ends += other.ends
        cleanEnds += other.cleanEnds
        kills += other.kills
        freezes += other.freezes
        stops += other.stops
        faults += other.faults
        commits += other.commits
        switches += other.switches
    }
}

/// A broken promise of a fleet.
public struct FleetViolation: Error, Sendable, CustomStringConvertible, BrokenPromise {
    public var seed: UInt64
    public var mode: StoreMode
    public var promise: Promise
    public var what: String
    /// Steps of the run before it.
    public var events: Int
    /// The last steps.
    public var trace: [String]

    public var description: String {
        "seed \(seed), \(mode), event \(events): \"\(promise.rawValue)\" is broken: \(what)"
    }
}
