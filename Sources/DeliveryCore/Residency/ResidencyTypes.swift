import SluiceModel

/// Limits of a ``DeviceResidency``, fixed for its life.
public struct ResidencyLimits: Sendable {
    /// Without a store nothing is loaded, and only what finds no slot waits.
    public var hasStore: Bool
    /// Slots of the delivery machine.
    public var capacity: Int
    /// Loads under way at once, each of one device in one partition.
    public var loads: Int
    /// Items from the store in memory before no further device is asked for.
    public var restored: Int
    /// Items from the store in memory at once; the machine's other slots are for records.
    public var room: Int
    /// Items that a load is expected to bring, for which room is reserved; 1 to ``room``.
    public var itemsPerLoad: Int
    /// Devices in line of which the store has nothing, and that go on in one turn.
    public var idle: Int
    /// Token changes that are remembered.
    public var pastChanges: Int
    /// Devices that stand in line of themselves, as they have items of an earlier log.
    public var earlierDevices: Int
    /// Items in memory on their way to devices that are back, before further devices wait for their turn in the store.
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

/// Where to look for what is known of a device, besides the partitions that have items of it.
public enum PresenceLook: Hashable, Sendable {
    case nowhere
    case partition(UInt16)
    /// The device's own partition isn't known: what concerns it comes from another device's.
    case everywhere

    func union(_ other: PresenceLook) -> PresenceLook {
        if self == other || other == .nowhere { return self }
        return self == .nowhere ? other : .everywhere
    }
}

/// A record that concerns a device.
public struct DeferredRecord: Equatable, Sendable {
    /// The owner's number of what it keeps of the record; chosen by the owner when the record is deferred.
    public var handle: UInt32
    public var device: DeviceKey
    public var place: RecordPlace
    /// For what is known of the device, where the record has to know that.
    public var look: PresenceLook
    public var isPush: Bool
    /// It reports that the device is online, and nothing else.
    public var isReturn: Bool
    /// The device of the new token of a token change, where it is another and this shard's.
    public var otherDevice: DeviceKey?

    public init(
        handle: UInt32 = 0, device: DeviceKey, place: RecordPlace, look: PresenceLook, isPush: Bool,
        isReturn: Bool = false, otherDevice: DeviceKey? = nil
    ) {
        self.handle = handle
        self.device = device
        self.place = place
        self.look = look
        self.isPush = isPush
        self.isReturn = isReturn
        self.otherDevice = otherDevice
    }
}

/// An item that comes from another shard, as its device has a token of this one.
public struct DeferredMigration: Equatable, Sendable {
    /// The owner's number of what it keeps of the item.
    public var handle: UInt32
    /// Of the new token.
    public var device: DeviceKey
    public var place: RecordPlace
    /// It may be taken over at once: what its old shard has said of it can't come after what this one says.
    public var isReleased: Bool
    /// It came from the store, and takes room that the intake doesn't count.
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

/// Who may go on.
public enum ArrivalVerdict: Equatable, Sendable {
    /// All of its device is in memory.
    case takeOver
    /// It waits under its handle.
    case deferred
    /// There is no room for it: let it go. The store has it under its new token, and brings it back.
    case leaveInStore
}

/// What the owner of a ``DeviceResidency`` has to do, in the order in which the actions come.
public enum ResidencyAction: Equatable, Sendable {
    /// Take the record in as if it came now: its partition has begun.
    case takeIn(UInt32)
    /// The record goes on: all of its device is in memory.
    case proceed(UInt32)
    /// The record's push ends as undeliverable (``OutcomeCause/deviceLimit``): its device has more items than there is room
    /// for.
    case refuse(UInt32)
    /// Adopt the item: all of its device is in memory.
    case takeOver(UInt32)
    /// Let go of the item that was to be taken over: there is no room for it. The store has it under its new token.
    case leaveInStore(UInt32)
    /// Let go of what has waited under the handle: its partition goes away.
    case letGo(UInt32)
    /// Have the store look for a device's presence in a partition, and for its items; part of the next batch.
    case load(DeviceKey, UInt16, withItems: Bool)
    /// Have the store forget a mark; part of the next batch.
    case removeMark(RecordPlace)
    /// Tell the intake that an item has left the store. The device is that of its outcome.
    case removed(RecordPlace, DeviceKey)
}

/// What becomes of an item that a load has found.
public struct LoadedItemVerdict: Equatable, Sendable {
    /// Nil: nothing is to be done, as it is here already, comes later, or isn't what the store has any more. Otherwise it
    /// comes back under this place.
    public var restore: RecordPlace?
    /// The record under this handle is complete, since the store has its item; it waits no more.
    public var completes: UInt32?
}

/// What the store has of an item, as far as its shard knows; goes along when the item does.
public struct ResidentFacts: Equatable, BitwiseCopyable, Sendable {
    /// The device under which the store was asked to keep the item last. Of no meaning without ``storedDue``.
    public var storedUnder = DeviceKey(high: 0, low: 0)
    /// For when it was asked, in milliseconds since the epoch; nil: it wasn't asked.
    public var storedDue: Int64?
    /// It came from the store, and takes room that the intake doesn't count.
    public var isRestored = false
    /// Its device's token isn't that of its record any more.
    public var hasMoved = false
    /// The store says so.
    public var isMarked = false

    public init() {}

    /// Of an item that a load has found.
    public init(restoredFrom device: DeviceKey, due: Int64) {
        storedUnder = device
        storedDue = due
        isRestored = true
    }
}

/// The key of an item in the store, beside its offset.
public struct StoredKey: Equatable, BitwiseCopyable, Sendable {
    public var device: DeviceKey
    /// In milliseconds since the epoch.
    public var due: Int64
}

/// How an item is written.
public struct StoreWrite: Equatable, BitwiseCopyable, Sendable {
    /// The store has it for this moment under the same device; nil: it doesn't.
    public var replacesDue: Int64?
    /// It was under this key, which the same batch removes; nil: it wasn't under another.
    public var leaves: StoredKey?
    /// The same batch writes a mark: whoever reads the item's record again has to know that it has moved.
    public var marks: Bool
}

/// What one batch asks of the store, handed back when the batch is done.
public struct StoreRequests: Sendable {
    public struct Put: BitwiseCopyable, Sendable {
        public var slot: UInt32
        public var version: UInt64
    }

    /// Items that the delivery machine has asked to keep.
    public internal(set) var puts: [Put] = []
    /// Devices that are looked for, in the order of the loads.
    public internal(set) var loads: [RequestedLoad] = []
    var staleKeys: [LocalCopy] = []
    var removals: [EndedItem] = []

    public init() {}
}

/// A look for the items of a device in a partition.
public struct RequestedLoad: BitwiseCopyable, Sendable {
    public var device: DeviceKey
    public var partitionSlot: UInt16
    /// Of the assignment during which it was asked for.
    var assignment: UInt32
    /// Items stay in the store: the device's presence alone is looked for.
    public var isOfPresence = false
}

/// A key that an item isn't under any more, as its device has a new token.
struct LocalCopy: Hashable, BitwiseCopyable, Sendable {
    var place: RecordPlace
    var device: DeviceKey
}

/// What a device's token was changed to.
public struct PastChange: Equatable, BitwiseCopyable, Sendable {
    /// The owner keeps the new token under this number, below ``ResidencyLimits/pastChanges``.
    public var number: Int
    /// The device of the new token.
    public var to: DeviceKey
    public var occurredMilliseconds: Int64
    public var origin: RecordOrigin
}

/// How often what is rare has happened.
public struct ResidencyMilestones: Equatable, Sendable {
    /// Records and departures that had to wait for a device, and for two devices.
    public var deferred = 0
    public var waitedForTwo = 0
    /// Devices that had to be looked for once more.
    public var reloaded = 0
    /// Rounds of loads that found no room for all, and those that went on without it.
    public var shortOfRoom = 0
    public var partial = 0
    /// Events that found no slot.
    public var awaitedSlot = 0
    /// Items that came from another shard and stayed in the store.
    public var leftInStore = 0
    /// Reports of devices that are back whose items stayed in the store until their turn.
    public var putOff = 0
    /// Newer items that a load left in the store as an older push waits.
    public var skipped = 0
    /// Items whose records are still to be read.
    public var future = 0
    /// Items that had left the key under which they were found, or were on their way here.
    public var stale = 0

    public init() {}
}
