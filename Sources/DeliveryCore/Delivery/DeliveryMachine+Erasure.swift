import SluiceModel

extension DeliveryMachine {
    /// Ends all pending items of a device, and forgets its presence, because its data is to be erased. An item in flight
    /// ends with its attempt. Returns the number of items that ended.
    public mutating func erase(
        _ device: DeviceKey, origin: RecordOrigin? = nil, at now: DeliveryTime
    ) -> Int {
        milestones.events += 1
        guard let entry = devices.find(device) else { return 0 }
        var count = 0
        forEachItem(ofEntry: entry) { machine, slot in
            let item = machine.items + Int(slot)
            // An item still in flight of a revoked partition is withdrawn by the partition's next worker.
            guard item.pointee.isBefore(origin), !machine.isEnding(item.pointee.partition) else { return }
            guard item.pointee.state != .inFlight else {
                item.pointee.flags.insert(.withdrawn)
                machine.actions.append(.noteErasure(slot))
                return
            }
            machine.finish(slot, .cancelled, .deviceErased, at: now)
            count += 1
        }
        // The end of its last item can have removed the entry.
        if let entry = devices.find(device), devices.entries[Int(entry)].presence != Self.noSlot {
            forget(entry, devices.entries[Int(entry)].presence, at: now)
        }
        return count
    }
}
