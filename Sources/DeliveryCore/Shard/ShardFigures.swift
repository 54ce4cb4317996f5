/// Figures of a shard's machine.
public struct ShardFigures: Sendable {
    public var delivery: DeliveryMilestones
    /// Topics that APNs' answers have stopped, and topics that an operator has paused.
    public var stoppedTopics: Int
    public var pausedTopics: Int
    /// Topics for which APNs has asked for a pause, and pools.
    public var overloadedTopics: Int
    public var overloadedPools: [UInt16]
    /// Numbers of the tenants with pushes beyond their share that are parked, or take the room of others.
    public var tenantsOverShare: [UInt32]
    /// Partitions whose items in the store are still being scanned.
    public var scansUnderWay: Int
    /// Devices that have items only in the store.
    public var evictedDevices: Int
    /// Items in memory that came from the store.
    public var restoredItems: Int
    /// Devices that are online and whose items wait for their turn in the store.
    public var devicesAwaitingTurn: Int

    init(_ machine: borrowing DeliveryMachine, _ residency: borrowing DeviceResidency) {
        delivery = machine.milestones
        stoppedTopics = machine.stoppedTopics
        pausedTopics = machine.pausedTopics.count
        overloadedTopics = machine.overloadedTopics
        overloadedPools = machine.overloadedPools
        tenantsOverShare = machine.tenantsOverShare
        scansUnderWay = residency.scansUnderWay
        evictedDevices = residency.evictedDevices
        restoredItems = residency.restoredItems
        devicesAwaitingTurn = residency.devicesAwaitingTurn
    }
}
