import SluiceModel

/// Pools without a connection: their items move to the store while other pools have connections. They must not use the
/// room of other credentials' items. When all pools are down, none is suspended: the intake stops at its limit, and
/// Kafka keeps the backlog.
extension DeliveryMachine {
    /// Returns true while the pool is suspended: it can send nothing.
    public func isUnavailable(_ pool: UInt16) -> Bool {
        Int(pool) < unavailablePools.count && unavailablePools[Int(pool)] != nil
    }

    /// Suspends a pool that has been without a connection for a while.
    public mutating func suspend(pool: UInt16, at now: DeliveryTime) {
        while unavailablePools.count <= Int(pool) { unavailablePools.append(nil) }
        guard unavailablePools[Int(pool)] == nil else { return }
        unavailablePools[Int(pool)] = ItemList()
        for slot in 0..<UInt32(highWater)
        where items[Int(slot)].state == .waiting && items[Int(slot)].pool == pool {
            withdraw(slot)
            dispatch(slot, at: now)
        }
        for topic in circuits.indices where circuits[topic].pool == pool { suspended(topic: UInt16(topic)) }
    }

    /// Resumes a pool that has a connection again, or when no pool has one.
    public mutating func resume(pool: UInt16, at now: DeliveryTime) {
        guard isUnavailable(pool) else { return }
        var slots: [UInt32] = []
        while let first = unavailablePools[Int(pool)]?.first, first != Self.noSlot {
            withdraw(first)
            slots.append(first)
        }
        unavailablePools[Int(pool)] = nil
        // Placing one item can end another.
        for slot in slots where items[Int(slot)].state == .undispatched { dispatch(slot, at: now) }
        for topic in circuits.indices where circuits[topic].pool == pool { resumed(topic: UInt16(topic)) }
    }

    mutating func waitForPool(_ slot: UInt32, at now: DeliveryTime) {
        setState(slot, .poolUnavailable)
        if openCircuits > 0 { probeLeft(slot) }
        unavailablePools[Int(items[Int(slot)].pool)]!.append(slot, items)
        store(slot, at: now)
    }
}
