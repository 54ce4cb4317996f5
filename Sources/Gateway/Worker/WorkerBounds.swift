import DeliveryCore

/// Bounds of a worker that no setting has. With smaller bounds, tests and the simulation fill a worker's tables soon.
public struct WorkerBounds: Sendable {
    /// Milliseconds after which a local copy of a partition is useless.
    public var longestAbsence = RestoreLimits.longestAbsence
    /// Pushes that may be begun before the first commit.
    public var firstPushes = PushWindow.firstSize
    /// Slots of a shard besides those of the jobs in flight and of items from the store. Polling exceeds the limit of
    /// jobs in flight by one batch of records at most.
    public var spareSlots = 1024
    /// Limits of a shard's items from the store. The worker sets `hasStore`, `capacity` and `itemsPerLoad`.
    public var residency = ResidencyLimits(hasStore: true, capacity: 1)
    /// Records that a shard takes in one turn at most, so that answers are not held up. At least 1.
    public var recordsPerTurn = 2048
    /// ``DeliveryLimits/residentMilliseconds``.
    public var residentMilliseconds = DeliveryLimits.usualResidence
    /// ``WorkerMachine/Settings/spanLimit``.
    public var spanLimit = OffsetTracker.usualSpanLimit

    public init() {}
}
