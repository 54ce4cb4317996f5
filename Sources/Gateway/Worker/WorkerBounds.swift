import DeliveryCore

/// Bounds of a worker that no setting has. Tests and the simulation use smaller ones, so that a table is full sooner.
public struct WorkerBounds: Sendable {
    /// Milliseconds after which a local copy of a partition is useless.
    public var longestAbsence = RestoreLimits.longestAbsence
    /// Pushes that may be begun before the first commit.
    public var firstPushes = PushWindow.firstSize
    /// Slots of a shard besides those of the jobs in flight and of items from the store. Polling exceeds the limit of
    /// jobs in flight by one batch of records at most.
    public var spareSlots = 1024
    /// Limits of a shard's items from the store; the worker's settings decide about `hasStore`, `capacity` and
    /// `itemsPerLoad`.
    public var residency = ResidencyLimits(hasStore: true, capacity: 1)
    /// Milliseconds before an item is due at which the item stays in memory.
    public var residentMilliseconds: Int64 = 10_000
    /// Offsets of a partition between the first that is incomplete and the last that is read, at which reading pauses.
    public var spanLimit = 1 << 20

    public init() {}
}
