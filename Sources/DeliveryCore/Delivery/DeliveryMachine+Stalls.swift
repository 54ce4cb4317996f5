import SluiceModel

/// Stalls: items of a credential whose pool has no connection, while other pools have one, go to the store. They must
/// not use the room of other credentials' items. When all pools are down, nothing is stalled: the intake stops at its
/// limit, and Kafka keeps the backlog.
extension DeliveryMachine {
    /// Returns true while the lane can send nothing.
    public func isStalled(_ lane: UInt16) -> Bool { Int(lane) < stalls.count && stalls[Int(lane)] != nil }

    /// Stalls a lane whose pool has been without a connection for a while.
    public mutating func stall(lane: UInt16, at now: DeliveryTime) {
        while stalls.count <= Int(lane) { stalls.append(nil) }
        guard stalls[Int(lane)] == nil else { return }
        stalls[Int(lane)] = ItemList()
        for slot in 0..<UInt32(highWater)
        where items[Int(slot)].state == .waiting && items[Int(slot)].lane == lane {
            withdraw(slot)
            place(slot, at: now)
        }
        for topic in circuits.indices where circuits[topic].lane == lane { parked(topic: UInt16(topic)) }
    }

    /// Resumes a lane whose pool is well again, or no worse than all others.
    public mutating func resume(lane: UInt16, at now: DeliveryTime) {
        guard isStalled(lane) else { return }
        var slots: [UInt32] = []
        while let first = stalls[Int(lane)]?.first, first != Self.noSlot {
            withdraw(first)
            slots.append(first)
        }
        stalls[Int(lane)] = nil
        // Placing one item can end another.
        for slot in slots where items[Int(slot)].state == .unplaced { place(slot, at: now) }
        for topic in circuits.indices where circuits[topic].lane == lane { resumed(topic: UInt16(topic)) }
    }

    mutating func stall(_ slot: UInt32, at now: DeliveryTime) {
        setState(slot, .stalled)
        if openCircuits > 0 { probeLeft(slot) }
        stalls[Int(items[Int(slot)].lane)]!.append(slot, items)
        store(slot, at: now)
    }
}
