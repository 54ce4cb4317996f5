import SluiceModel

/// Action that the owner of a ``DeliveryMachine`` has to do. Actions are done in the order in which they come.
public enum DeliveryAction: Equatable, Sendable {
    /// Put the item into its pool's stream scheduler.
    case enqueue(UInt32, atFront: Bool)
    /// Remove the item from the scheduler, where it waits.
    case dequeue(UInt32)
    /// Update the item in the scheduler because its job was replaced. It keeps its place there. Its length has
    /// changed, and its priority may be more urgent.
    case requeue(UInt32)
    /// Write the ended item's outcome, free the job, and release the slot. `successor` is the slot of the push that
    /// superseded the item, ``DeliveryMachine/noSlot`` otherwise. An item that is stored, by its progress, leaves the
    /// store after Kafka has acknowledged the outcome. It stays there when the store has a newer version by then.
    case finish(UInt32, OutcomeKind, OutcomeCause?, successor: UInt32)
    /// Free the job and release the slot without an outcome. Kafka or the store has the item for the partition's next
    /// worker.
    case drop(UInt32)
    /// Make the item durable, with the progress of ``DeliveryMachine/progressToStore(_:at:)``. Where the store is
    /// durable, ``DeliveryMachine/stored(_:version:at:)`` or ``DeliveryMachine/storeFailed(_:version:)`` has to
    /// follow.
    case store(UInt32, version: UInt64)
    /// Complete the record's offset because the record is durable in the store. Its outcome completes no offset.
    case offsetDone(partition: UInt16, offset: Int64)
    /// Free the job and release the slot because the store has the item as it is. The item is loaded when it is due.
    /// All items of a device leave together.
    case evict(UInt32)
    /// Make a device's presence durable: ``DeliveryMachine/presence(_:at:)`` of this number. Only where the store is
    /// durable.
    case keepPresence(UInt32)
    /// The erasure of the device has to wait until this item in flight has ended.
    case noteErasure(UInt32)
    /// Remember the new token of the item's device for a later `readdress`. The item is in flight or blocked behind
    /// one.
    case noteMove(UInt32)
    /// Address the job to this device, which is its device's new token: the token of the event, or the noted one.
    case readdress(UInt32, DeviceKey)
    /// Move the item to another shard, because its device's new token belongs there. Export it with
    /// ``DeliveryMachine/export(_:)``, release the slot, and adopt the item in the other shard.
    case depart(UInt32)
    /// Call ``DeliveryMachine/moveOn(_:at:)`` unless the item has to wait at its old token. The request is repeated.
    case moveWanted(UInt32)
    /// Alert a person, because the answers to a topic's pushes have stopped the topic.
    case alert(topic: UInt16, slot: UInt32, TopicFault)
    /// Alert a person, because the server has asked for a pause of the pool (503 with `Retry-After`).
    case poolOverloaded(UInt16)
    /// Report that the topic's pushes continue.
    case recovered(topic: UInt16)
    /// Record that pushes of the topic wait for a cause that no clock ends. Stored ones needn't be loaded before
    /// ``resumed(topic:)``. Only where the store is durable.
    case suspended(topic: UInt16)
    /// Record that the item's device is online. The next action evicts the item; it is loaded when it is its turn.
    case awaitsTurn(UInt32)
    /// Load all pushes of the topic that the store has as suspended.
    case resumed(topic: UInt16)
    /// Load this many pushes of a topic that the store has as suspended: to find out whether APNs accepts them, or because
    /// it is the turn of parked pushes.
    case pushesWanted(topic: UInt16, count: Int)
    /// Report that a push of the topic is isolated, because connections have ended with it in flight.
    case isolated(topic: UInt16)
    /// Report that pushes beyond the share of the topic's tenant are parked from now on. `pushes`: the tenant's pushes in
    /// memory.
    case parked(topic: UInt16, pushes: Int)
    /// Report that pushes of priority 5 and 1 of the topic's tenant are parked from now on, so that records behind them are
    /// read. `pushes`: the tenant's pushes in memory.
    case readsAhead(topic: UInt16, pushes: Int)
    /// Report that the parked pushes of the topic's tenant have returned.
    case unparked(topic: UInt16)
    /// Report that the pushes of the topic's tenant take the room of others, and can't be parked. Repeated while it lasts.
    case crowds(topic: UInt16, pushes: Int)
    /// Let at most so many pushes of the tenant of this number be in flight.
    case limitsFlights(tenant: UInt32, Int)
    /// Report whether the tenant of this number has pushes here, because that has changed while room is scarce.
    case tenant(UInt32, isActive: Bool)
}
