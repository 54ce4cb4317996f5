import SluiceModel

/// Limits of a ``DeviceResidency``, fixed for its life.
public struct ResidencyLimits: Sendable {
    /// True when there is a store. Without a store nothing is loaded, and only events without a slot wait.
    public var hasStore: Bool
    /// Slots of the delivery machine.
    public var capacity: Int
    /// Loads under way at once; a load is of one device in one partition.
    public var loads: Int
    /// Items from the store in memory at which no further device is loaded.
    public var restored: Int
    /// Most items from the store in memory at once; the machine's other slots are for records.
    public var room: Int
    /// Items that a load is expected to bring, for which room is reserved; 1 to ``room``.
    public var itemsPerLoad: Int
    /// Devices in line that need no loads and continue in one turn.
    public var idle: Int
    /// Most token changes that are remembered.
    public var pastChanges: Int
    /// Most devices that stand in line without an event, because they have items of an earlier log.
    public var earlierDevices: Int
    /// Items in memory on their way to devices that are back, at which further devices wait for their turn in the
    /// store.
    public var returns: Int

    public init(
        hasStore: Bool, capacity: Int, loads: Int = 256, restored: Int = 8192, room: Int = 16_384,
        itemsPerLoad: Int = 128, idle: Int = 1024, pastChanges: Int = 4096, earlierDevices: Int = 65_536,
        returns: Int = 1024
    ) {
        self.hasStore = hasStore
        self.capacity = max(1, capacity)
        self.loads = max(1, loads)
        self.restored = max(1, restored)
        self.room = max(1, room)
        self.itemsPerLoad = max(1, min(itemsPerLoad, self.room))
        self.idle = max(1, idle)
        self.pastChanges = max(1, pastChanges)
        self.earlierDevices = max(1, earlierDevices)
        self.returns = max(1, returns)
    }
}

/// Partitions to search for a device's presence, besides the partitions that have items of it.
public enum PresenceLook: Hashable, Sendable {
    /// No further partition.
    case nowhere
    /// The partition of this slot.
    case partition(UInt16)
    /// All partitions: the device's own partition isn't known, because its event comes from another device's
    /// partition.
    case everywhere

    func union(_ other: PresenceLook) -> PresenceLook {
        if self == other || other == .nowhere { return self }
        return self == .nowhere ? other : .everywhere
    }
}

/// A record that concerns a device.
public struct DeferredRecord: Equatable, Sendable {
    /// Owner's number of the data that it keeps of the record; the owner chooses it when the record is deferred.
    public var handle: UInt32
    /// Device of the record's token.
    public var device: DeviceKey
    public var place: RecordPlace
    /// Partitions to search for the device's presence, when the record needs it.
    public var look: PresenceLook
    /// True for a push; false for a cancel, a device event, or a push that was complete before.
    public var isPush: Bool
    /// True when the record reports that the device is online, and nothing else.
    public var isReturn: Bool
    /// True for a push that was complete before, and only outdates older ones.
    public var isReplay: Bool
    /// Device of a token change's new token; nil unless it is another device and belongs to this shard.
    public var otherDevice: DeviceKey?

    public init(
        handle: UInt32 = 0, device: DeviceKey, place: RecordPlace, look: PresenceLook, isPush: Bool,
        isReturn: Bool = false, isReplay: Bool = false, otherDevice: DeviceKey? = nil
    ) {
        self.handle = handle
        self.device = device
        self.place = place
        self.look = look
        self.isPush = isPush
        self.isReturn = isReturn
        self.isReplay = isReplay
        self.otherDevice = otherDevice
    }
}

/// An item that comes from another shard, because its device has a token of this shard.
public struct DeferredMigration: Equatable, Sendable {
    /// Owner's number of the data that it keeps of the item.
    public var handle: UInt32
    /// Device of the new token.
    public var device: DeviceKey
    /// Record of the item's job.
    public var place: RecordPlace
    /// True when the item may be taken over at once: its old shard's reports can't come after this shard's.
    public var isReleased: Bool
    /// True when the item came from the store, and takes room that the intake doesn't count.
    public var isRestored: Bool

    public init(
        handle: UInt32, device: DeviceKey, place: RecordPlace, isReleased: Bool, isRestored: Bool
    ) {
        self.handle = handle
        self.device = device
        self.place = place
        self.isReleased = isReleased
        self.isRestored = isRestored
    }
}

/// Decision about an item that comes from another shard.
public enum ArrivalVerdict: Equatable, Sendable {
    /// The item may be taken over: all of its device is in memory.
    case takeOver
    /// The item waits under its handle.
    case deferred
    /// There is no room for the item: let it go. The store has the item under its new token, and it is loaded later.
    case leaveInStore
}

/// Action that the owner of a ``DeviceResidency`` has to do. Actions are done in the order in which they come.
public enum ResidencyAction: Equatable, Sendable {
    /// Take the record in as if it came now: its partition has begun.
    case takeIn(UInt32)
    /// Resume the record: all of its device is in memory.
    case proceed(UInt32)
    /// End the record's push as undeliverable (``OutcomeCause/deviceLimit``): its device has more items than there is
    /// room for.
    case refuse(UInt32)
    /// Adopt the item: all of its device is in memory.
    case takeOver(UInt32)
    /// Let go of the item that was to be taken over: there is no room for it. The store has it under its new token.
    case leaveInStore(UInt32)
    /// Let go of the event that has waited under the handle: its partition is revoked.
    case discard(UInt32)
    /// Have the store look for a device's presence in a partition, and for its items; part of the next batch.
    case load(DeviceKey, UInt16, withItems: Bool)
    /// Have the store remove a mark; part of the next batch.
    case removeMark(RecordPlace)
    /// Report to the intake that an item has left the store. The device is that of the item's outcome.
    case removed(RecordPlace, DeviceKey)
}

/// Decision about an item that a load has found.
public struct LoadedItemVerdict: Equatable, Sendable {
    /// Place under which the item is restored. Nil when the item is in memory already, comes later, or isn't in the
    /// store any more as it was found.
    public var restore: RecordPlace?
    /// Handle of a record that is complete, because the store has its item; the record waits no more. Nil when there
    /// is none.
    public var completes: UInt32?
}

/// State in the store of an item, as far as its shard knows; it moves to another shard with the item.
public struct ResidentFacts: Equatable, BitwiseCopyable, Sendable {
    /// Device under which the store was last asked to keep the item. Without ``storedDue`` it has no meaning.
    public var storedUnder = DeviceKey(high: 0, low: 0)
    /// Due time for which the store was asked to keep the item, in milliseconds since the epoch; nil when it wasn't
    /// asked.
    public var storedDue: Int64?
    /// True when the item came from the store, and takes room that the intake doesn't count.
    public var isRestored = false
    /// True when the token of the item's device isn't the token of its record any more.
    public var hasMoved = false
    /// True when the store has a mark of the move.
    public var isMarked = false

    public init() {}

    /// Creates the facts of an item that a load has found.
    public init(restoredFrom device: DeviceKey, due: Int64) {
        storedUnder = device
        storedDue = due
        isRestored = true
    }
}

/// The key of an item in the store, beside its offset.
public struct StoredKey: Equatable, BitwiseCopyable, Sendable {
    public var device: DeviceKey
    /// Due time in milliseconds since the epoch.
    public var due: Int64
}

/// Parts of an item's write.
public struct StoreWrite: Equatable, BitwiseCopyable, Sendable {
    /// Due time under which the store has the item for the same device; nil when it doesn't have it.
    public var replacesDue: Int64?
    /// Key of another device that the item was under, and that the same batch removes; nil when there is none.
    public var leaves: StoredKey?
    /// True when the same batch writes a mark: a later reader of the item's record has to know that the item has
    /// moved.
    public var marks: Bool
}

/// Requests of one batch to the store, returned to the machine when the batch is done.
public struct StoreRequests: Sendable {
    /// An item that the store is asked to keep.
    public struct Put: BitwiseCopyable, Sendable {
        /// Slot of the item in the delivery machine.
        public var slot: UInt32
        /// Version of the request (``ItemProgress/storeVersion``); an answer to an older version is ignored.
        public var version: UInt64
    }

    /// Items that the delivery machine has asked the store to keep.
    public internal(set) var puts: [Put] = []
    /// Devices to look for, in the order of the loads.
    public internal(set) var loads: [RequestedLoad] = []
    var staleKeys: [StaleKey] = []
    var removals: [EndedItem] = []

    public init() {}
}

/// A search for the items of a device in a partition.
public struct RequestedLoad: BitwiseCopyable, Sendable {
    public var device: DeviceKey
    /// Slot of the partition.
    public var partitionSlot: UInt16
    /// Assignment of the partition during which the load was issued.
    var assignment: UInt32
    /// True when only the device's presence is looked for: its items stay in the store.
    public var isOfPresence = false
}

/// A key in the store that an item had under its device's old token, and has no more.
struct StaleKey: Hashable, BitwiseCopyable, Sendable {
    var place: RecordPlace
    var device: DeviceKey
}

/// The new token of a device whose token was changed.
public struct PastChange: Equatable, BitwiseCopyable, Sendable {
    /// Number under which the owner keeps the new token, below ``ResidencyLimits/pastChanges``.
    public var number: Int
    /// Device of the new token.
    public var to: DeviceKey
    /// Time of the token change, in milliseconds since the epoch.
    public var occurredMilliseconds: Int64
    /// Record of the token change.
    public var origin: RecordOrigin
}
