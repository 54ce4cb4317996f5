import SluiceModel

/// Pushes of a partition whose uncommitted records are still being read.
///
/// A worker that crashed may have sent a newer push of an identity, and not committed it. The newer push may have expired
/// since. So no push of the partition is sent before the partition's records are read as far as its log went at the
/// assignment. Until then pushes wait as in a coalesce window, where each newer record of their identities ends them.
extension DeliveryMachine {
    /// Nanoseconds after which a push looks again whether it still waits. The owner ends a catch-up earlier.
    private static let catchUpLook: UInt64 = 5_000_000_000

    /// Begins a partition's catch-up, before the partition itself begins.
    public mutating func beginCatchUp(partition: UInt16) { catchingUp.insert(partition) }

    /// Returns true while the item waits for its partition's catch-up.
    func awaitsCatchUp(_ slot: UInt32) -> Bool {
        !catchingUp.isEmpty && catchingUp.contains(items[Int(slot)].partition)
    }

    /// Puts an undispatched item into the state in which it waits for its partition's catch-up.
    mutating func waitForCatchUp(_ slot: UInt32, at now: DeliveryTime) {
        setWaiting(slot, .coalescing)
        timers.insert(slot, due: now.monotonicNanoseconds &+ Self.catchUpLook)
    }

    /// Ends a partition's catch-up: its pushes are sent in the order of their arrival. O(slots).
    public mutating func endCatchUp(partition: UInt16, at now: DeliveryTime) {
        guard catchingUp.remove(partition) != nil else { return }
        var waiting: [UInt32] = []
        for slot in 0..<UInt32(highWater)
        where items[Int(slot)].state == .coalescing && items[Int(slot)].partition == partition
            && items[Int(slot)].notBefore <= now.monotonicNanoseconds
        {
            waiting.append(slot)
        }
        let items = self.items
        waiting.sort { items[Int($0)].order < items[Int($1)].order }
        for slot in waiting where items[Int(slot)].state == .coalescing {
            withdraw(slot)
            dispatch(slot, at: now)
        }
    }

    /// Ends the waiting push that is older than a push whose record is complete. The newer push may have been sent
    /// before a restart.
    public mutating func outdate(by facts: PushFacts, at now: DeliveryTime) {
        guard let device = devices.find(facts.device) else { return }
        let (pending, _) = find(facts.identity, in: device)
        guard pending != Self.noSlot else { return }
        let item = items[Int(pending)]
        guard item.partition == facts.partition, item.offset < facts.offset, facts.isFinal || !item.isFinal,
            !item.flags.contains(.receiptSeen), !isEnding(item.partition)
        else { return }
        finish(pending, .superseded, at: now)
    }
}
