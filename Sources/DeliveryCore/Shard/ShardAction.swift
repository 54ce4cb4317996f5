import SluiceModel

/// Action of a ``ShardMachine`` for its shard. Actions are done in the order in which they come.
///
/// A slot identifies a push. The shard owns its bytes and frees them when an action asks for it; the slot is free by
/// then.
public enum ShardAction: Equatable, BitwiseCopyable, Sendable {
    /// Put the push into its pool's stream scheduler.
    case enqueue(UInt32, atFront: Bool)
    /// Remove the push from the scheduler, where it waits.
    case dequeue(UInt32)
    /// Update the push in the scheduler because it was replaced. It keeps its place there. Its length has changed,
    /// and its priority may be more urgent.
    case requeue(UInt32)
    /// Write the outcome of the push, and free the push. `successor` is the slot of the push that superseded it,
    /// ``DeliveryMachine/noSlot`` otherwise.
    case finish(UInt32, OutcomeKind, OutcomeCause?, successor: UInt32, OutcomeFacts)
    /// Free the push without an outcome: Kafka has it for the next worker that is assigned the partition.
    case giveBack(UInt32)
    /// Free the push without an outcome: the store has it.
    case evict(UInt32)
    /// Report to the intake that so many jobs of a partition were given back. Jobs that the producer drops with a lost
    /// partition are given back, too.
    case abandoned(SlotCount, isLost: Bool)
    /// Report to the intake that nothing new is sent, and that so many jobs were given back.
    case drained(Int)
    /// Remove an item, under the key, from the store and the changelog: its outcome is safe. The item is of its own log.
    case remove(EndedItem, StoredKey)
    /// Report to the intake that a job of the partition ends without an outcome of this worker.
    case gaveBack(UInt16)
    /// Release the token change that waits under the handle: Kafka delivers it again.
    case giveBackChange(UInt32)
    /// Give the push memory of its own, because it waits for long and there is no store.
    case keep(UInt32)
    /// Write the push into the store, with the next batch: ``ShardMachine/takeWriting()`` says how.
    case put(UInt32)
    /// Write a device's presence into a partition's part of the store, with the next batch. `item` is the slot of a
    /// push of this device, ``DeliveryMachine/noSlot`` when none is in memory.
    case keepPresence(KnownPresence, in: UInt16, item: UInt32)
    /// Remove a device's presence from a partition's part of the store and from the changelog, because its data is erased.
    case forgetPresence(DeviceKey, in: UInt16)
    /// Keep the event's new token under a number.
    case keepToken(Int)
    /// Forget the token of a number, because its device is erased.
    case forgetToken(Int)
    /// Take the kept token of a number as the event's new token for all actions that follow.
    case moveOn(Int)
    /// Remember the new token of the event for a later ``readdress(_:isStored:)``.
    case noteMove(UInt32)
    /// Address the push to the new token of its device from here on: the noted token, or the token of the event.
    /// - isStored: the store has the push under its old token, or was asked to keep it.
    case readdress(UInt32, isStored: Bool)
    /// Address the push to its device's new token, and send it to that token's shard, with
    /// ``ShardMachine/takeDeparture()``.
    case depart(UInt32)
    /// Tell a person that the pool has had no connection for a while, so that its pushes wait in the store.
    case poolSuspended(UInt16)
    /// Tell a person that the pool's pushes don't wait any more. `isConnected`: the pool has a connection, and not all
    /// pools are without one.
    case poolResumed(UInt16, isConnected: Bool)
    /// Alert a person, because APNs' answers have stopped the topic.
    case alert(topic: UInt16, slot: UInt32, TopicFault)
    /// Alert a person, because the server has asked for a pause of the pool.
    case poolOverloaded(UInt16)
    /// The topic's pushes continue.
    case recovered(topic: UInt16)
    /// Report to the intake that pushes of the topic wait for a cause that no clock ends.
    case suspended(topic: UInt16)
    /// Report to the intake that the topic's pushes continue.
    case resumed(topic: UInt16)
    /// Report to the intake that some suspended pushes of the topic are wanted back.
    case pushesWanted(topic: UInt16, count: Int)
    /// Tell a person that a push of the topic is isolated, because connections have ended with it in flight.
    case isolated(topic: UInt16)
    /// Tell a person that pushes of the topic's tenant beyond its share are parked. `pushes`: its pushes in memory.
    case parked(topic: UInt16, pushes: Int)
    /// Tell a person that pushes of priority 5 and 1 of the topic's tenant are parked to read ahead. `pushes`: its pushes in
    /// memory.
    case readsAhead(topic: UInt16, pushes: Int)
    /// Tell a person that the parked pushes of the topic's tenant have returned.
    case unparked(topic: UInt16)
    /// Tell a person, at intervals, that pushes of the topic's tenant take the room of others and can't be parked.
    case crowds(topic: UInt16, pushes: Int)
    /// Let at most so many pushes of the tenant of this number be in flight.
    case limitsFlights(tenant: UInt32, Int)
    /// Report to the worker whether a tenant has pushes here.
    case tenant(UInt32, isActive: Bool)
}

/// Facts of a push that has ended, for its outcome.
public struct OutcomeFacts: Equatable, BitwiseCopyable, Sendable {
    /// Time at which the changelog records that an item has left the store.
    public enum Removal: Equatable, BitwiseCopyable, Sendable {
        /// Never: the store doesn't have the push, or there is no changelog.
        case none
        /// Right before the outcome: both are in one transaction.
        case now(EndedItem)
        /// With ``ShardMachine/remove(_:)``.
        case later(EndedItem)
    }

    /// Record of the push.
    public var place: RecordPlace
    /// Attempts that APNs answered or may have seen.
    public var attempts: UInt16 = 0
    /// Time of the first attempt, in milliseconds since the epoch; 0 when never sent.
    public var firstSentMilliseconds: Int64 = 0
    /// True when the store has the push, or was asked to keep it.
    public var isStored = false
    /// True when the offset is complete already because the store has the push. False without ``isStored``.
    public var isOffsetDone = false
    /// Time at which the store forgets the push.
    public var removal = Removal.none

    init(_ place: RecordPlace, _ progress: ItemProgress) {
        self.place = place
        attempts = progress.attempts
        firstSentMilliseconds = progress.firstSentMilliseconds
    }
}

/// Result of handing a push to a ``ShardMachine``. The actions follow.
public enum Settlement: Equatable, BitwiseCopyable, Sendable {
    /// Keep the push in this slot.
    case placed(UInt32)
    /// Write the outcome of the slot's old push, which is superseded, and keep the new push there instead.
    case replaced(UInt32, OutcomeFacts)
    /// Write the outcome of the push, and free it. `newer` is the slot of the push that superseded it,
    /// ``DeliveryMachine/noSlot`` otherwise.
    case refused(OutcomeKind, OutcomeCause?, newer: UInt32, OutcomeFacts)
    /// Free the push: it is in memory already.
    case repeated
    /// Keep the record or migration of the push under this handle: it waits for a slot.
    case deferred(UInt32)
    /// Free the push: the store or Kafka has it.
    case leftOut
}

/// An item for the store to write, under its device's present token.
public struct ItemWriting: BitwiseCopyable, Sendable {
    /// Record of the item's job.
    public var place: RecordPlace
    /// Device of the present token.
    public var device: DeviceKey
    public var progress: ItemProgress
    /// Other parts of the write.
    public var write: StoreWrite
}

/// An item on its way to the shard of its device's new token. Its bytes move with it.
public struct ItemMigration: Sendable {
    /// Facts of the push; the device is that of the new token.
    public var facts: PushFacts
    public var progress: ItemProgress
    /// Facts of the item in the store.
    public var resident: ResidentFacts
    /// Time at which the token was changed, in milliseconds since the epoch; nil when unknown.
    public var movedAtMilliseconds: Int64?
    /// Kafka's number of the partition that ``PushFacts/partition`` stands for.
    public var partition: Int32
    /// Put of an item that the store has; nil when the store doesn't have it. The old shard's batch writes the item
    /// under its new token, and the item follows that batch.
    public var writing: ItemWriting?

    /// Record of the item's job.
    public var place: RecordPlace { RecordPlace(partitionSlot: facts.partition, offset: facts.offset) }
}

/// Decision about an item that came from another shard.
public enum MigrationVerdict: Equatable, Sendable {
    /// Take the item over with ``ShardMachine/takeOver(_:at:)``.
    case takeOver
    /// Keep the item under this handle.
    case deferred(UInt32)
    /// Free the item: the store or Kafka has it.
    case leftOut
}
