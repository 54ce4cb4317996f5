/// Generator of numbers by the simulation's seed.
public struct ProcessRandom: RandomNumberGenerator {
    public init() {}
    public mutating func next() -> UInt64 { Scheduler.current.random.next() }
}
