import SluiceModel

extension DeviceResidency {
    /// Returns the first invariant that doesn't hold; nil when all hold. Costs O(waiting devices). A caller in
    /// production therefore asks only while ``waitingDevices`` is small.
    public func checkInvariants() -> String? {
        guard current == nil else { return "a load is being taken in" }
        guard restored.count <= limits.room else {
            return "\(restored.count) items in room for \(limits.room)"
        }
        var (awaited, held, migrations) = (0, 0, 0)
        for load in loads.values {
            awaited += load.awaited
            held += load.reserved
            for case .migration(let migration) in load.waiting where migration.isRestored { migrations += 1 }
            switch load.state {
            case .queued, .loaded, .awaitsSlot:
                guard load.awaited == 0, load.reserved == 0 else {
                    return "a device is \(load.state), and \(load.awaited) loads are under way for it"
                }
            case .loading:
                guard load.awaited > 0 else { return "a device is loading, and nothing is asked for" }
            }
        }
        guard awaited == loadsUnderWay else { return "\(awaited) loads under way, \(loadsUnderWay) counted" }
        guard held == reserved else { return "room for \(held) items is reserved, \(reserved) counted" }
        guard migrations == waitingRestored else {
            return "\(migrations) items wait to be taken over, \(waitingRestored) counted"
        }
        return nil
    }

    /// Devices for which an event waits, or that stand in line for a load.
    public var waitingDevices: Int { loads.count }
}
