import SluiceModel

/// Orders of a ``ShardMachine`` to its shard, in the order in which they come.
///
/// A push is known by its slot. Its bytes are the shard's, which frees them when an action says so; the slot is free by then.
public enum ShardAction: Equatable, BitwiseCopyable, Sendable {
    /// Put the push into its lane's stream scheduler.
    case enqueue(UInt32, atFront: Bool)
    /// Take it out again; it waits there.
    case dequeue(UInt32)
    /// The push was replaced while it waits in the scheduler: it keeps its place there. Its length is another, and its
    /// priority may be more urgent.
    case requeue(UInt32)
    /// Write the outcome of the push, and free the push. `successor` is the slot of the push that superseded it,
    /// ``DeliveryMachine/noSlot`` otherwise.
    case finish(UInt32, OutcomeKind, OutcomeCause?, successor: UInt32, OutcomeFacts)
    /// Free the push without an outcome: Kafka has it for whoever takes the partition over.
    case giveBack(UInt32)
    /// Free the push without an outcome: the store has it.
    case evict(UInt32)
    /// A job of the partition ends without an outcome of this worker: tell the intake.
    case gaveBack(UInt16)
    /// Let go of the token change that waits under the handle: Kafka brings it again.
    case giveBackChange(UInt32)
    /// The push waits for long, and there is no store: give it memory of its own.
    case keep(UInt32)
    /// Write the push into the store, as ``ShardMachine/writing`` says, with the next batch.
    case put(UInt32)
    /// Write what is known of a device into a partition's part of the store, with the next batch. `item` is the slot of a push
    /// of this device, ``DeliveryMachine/noSlot`` when it has none here.
    case keepPresence(KnownPresence, in: UInt16, item: UInt32)
    /// Remember the new token of the event for a later ``readdress(_:)``.
    case noteMove(UInt32)
    /// The push is for the new token of its device from here on: the one that was noted, or the one of the event.
    case readdress(UInt32)
    /// The same, and the push goes to the shard of its new token, with ``ShardMachine/departing``.
    case depart(UInt32)
    /// APNs' answers have stopped the topic. For a person to mend.
    case alert(topic: UInt16, slot: UInt32, TopicFault)
    /// The topic's pushes go on.
    case recovered(topic: UInt16)
    /// Pushes of the topic wait for what no clock ends: tell the intake.
    case parked(topic: UInt16)
    /// They go on: tell the intake.
    case resumed(topic: UInt16)
    /// A few of them are wanted back: tell the intake.
    case probeWanted(topic: UInt16)
}

/// Facts of a push that has ended, for its outcome.
public struct OutcomeFacts: Equatable, BitwiseCopyable, Sendable {
    /// When the changelog hears that an item has left the store.
    public enum Removal: Equatable, BitwiseCopyable, Sendable {
        /// The store hasn't got the push, or there is no changelog.
        case none
        /// Right before the outcome: both are in one transaction.
        case now(EndedItem)
        /// With ``ShardMachine/remove(_:)``.
        case later(EndedItem)
    }

    public var place: RecordPlace
    /// Attempts that APNs answered or may have seen.
    public var attempts: UInt16 = 0
    /// Milliseconds since the epoch; 0: never sent.
    public var firstSentMilliseconds: Int64 = 0
    /// The store has the push, or was asked to take it.
    public var isStored = false
    /// The offset is complete already, as the store has the push. False without ``isStored``.
    public var isOffsetDone = false
    public var removal = Removal.none

    init(_ place: RecordPlace, _ progress: ItemProgress) {
        self.place = place
        attempts = progress.attempts
        firstSentMilliseconds = progress.firstSentMilliseconds
    }
}

/// Fate of a push that was handed to a ``ShardMachine``. The actions follow.
public enum Settlement: Equatable, BitwiseCopyable, Sendable {
    /// Keep the push in this slot.
    case placed(UInt32)
    /// Write the outcome of the slot's push, which is superseded, and keep the new one there instead.
    case replaced(UInt32, OutcomeFacts)
    /// Write the outcome of the push, and free it. `newer` is the slot of the push that superseded it,
    /// ``DeliveryMachine/noSlot`` otherwise.
    case refused(OutcomeKind, OutcomeCause?, newer: UInt32, OutcomeFacts)
    /// Free the push: it is here already.
    case repeated
    /// Keep what the push came in under this handle: it waits for a slot.
    case deferred(UInt32)
    /// Free the push: the store or Kafka has it.
    case leftOut
}

/// End of a cancel or device event that has had its effect.
public enum ControlEnd: Equatable, Sendable {
    /// Write its outcome, and free it.
    case outcome
    /// Free it: its outcome was written before.
    case replayed
    /// Keep it under this handle: items in flight hold its outcome up.
    case waits(UInt32)
}

/// An item that the store is to write, under its device's present token.
public struct ItemWriting: BitwiseCopyable, Sendable {
    public var place: RecordPlace
    public var device: DeviceKey
    public var progress: ItemProgress
    public var write: StoreWrite
}

/// An item on its way to the shard of its device's new token. The bytes go along.
public struct ItemMigration: Sendable {
    /// The device is that of the new token.
    public var facts: PushFacts
    public var progress: ItemProgress
    /// Facts of the item in the store.
    public var resident: ResidentFacts
    /// When its token was changed; nil: some time before.
    public var movedAtMilliseconds: Int64?
    /// Kafka's number of the partition that ``PushFacts/partition`` stands for.
    public var partition: Int32
    /// The store has it: the old shard's batch writes it under its new token, and the item follows that batch.
    public var writing: ItemWriting?

    public var place: RecordPlace { RecordPlace(partitionSlot: facts.partition, offset: facts.offset) }
}

/// Fate of an item that came from another shard.
public enum MigrationVerdict: Equatable, Sendable {
    /// ``ShardMachine/takeOver(_:at:)`` it.
    case takeOver
    /// Keep it under this handle.
    case deferred(UInt32)
    /// Free it: the store or Kafka has it.
    case leftOut
}
