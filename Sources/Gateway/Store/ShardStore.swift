import DeliveryCore
import EventLoop
import RetryStore
import SluiceModel

/// A shard's side of the store: what it has asked for, what it awaits, and which devices have items there only.
/// Belongs to the shard's thread.
final class ShardStore: TimerHandler {
    /// An item that the machine has asked to keep.
    struct Put: BitwiseCopyable {
        var slot: UInt32
        var version: UInt64
    }

    /// Which record, by the slot of its partition.
    struct Place: Hashable, BitwiseCopyable {
        var partitionSlot: UInt16
        var offset: Int64
    }

    /// An item that has ended and is still in the store: until its outcome is safe.
    struct Ended {
        var key: ItemKey
        var due: Int64
        /// That of its outcome: after a token change another than that of the key, which is where the item is kept.
        var device: DeviceKey
        /// Nil without a changelog, or when that says so already.
        var changelogKey: [UInt8]?
    }

    /// A key that an item isn't under any more, as its device has a new token.
    struct Left: Hashable, BitwiseCopyable {
        var place: Place
        var device: DeviceKey
    }

    /// A token change whose outcome waits for items in flight.
    struct TokenChange {
        /// Nil while it is being taken in.
        var incoming: IncomingRecord?
        /// Items that it concerns.
        var count: UInt32?
        /// Of those, the ones that it waits for.
        var items = 0
    }

    /// What a device's token was changed to.
    struct PastChange {
        var token: [UInt8]
        var occurredMilliseconds: Int64
        var origin: RecordOrigin
    }

    struct Load: BitwiseCopyable {
        var device: DeviceKey
        var partitionSlot: UInt16
    }

    /// What a batch asks for, in its order.
    struct Requests {
        var puts: [Put] = []
        /// Keys that items are not under any more.
        var left: [Left] = []
        /// Items that go to other shards, which the store has under their new tokens.
        var departures: [Departure] = []
        var removals: [Place] = []
        var loads: [Load] = []
    }

    /// Where to look for what is known of a device, besides the partitions that have items of it.
    enum PresenceLook: Equatable {
        case nowhere
        case partition(UInt16)
        /// The device's own partition isn't known: what concerns it comes from another device's.
        case everywhere

        func union(_ other: PresenceLook) -> PresenceLook {
            if self == other || other == .nowhere { return self }
            return self == .nowhere ? other : .everywhere
        }
    }

    /// A device whose items are on their way from the store, or that has to wait for that, with what is for it
    /// meanwhile, in order.
    struct Arrival {
        var look: PresenceLook
        var waiting: [Event] = []
        var state = State.queued
        /// What was asked for doesn't cover all: once more before anything that waits goes on.
        var looksAgain = false
        /// By partition: the first item that was left in the store, as an older push waits here.
        var skipped: [UInt16: Int64] = [:]
        /// Loads that were asked for and haven't come.
        var awaited = 0
        /// Devices whose first event needs this one as well.
        var dependents: [DeviceKey] = []

        enum State {
            /// In line for its loads.
            case queued
            case loading
            /// All of it is in memory; its first event waits for another device.
            case loaded
        }
    }

    /// What waits for a device.
    enum Event {
        case record(IncomingRecord)
        case departure(Departure)
    }

    /// What a partition of the store is to this shard, by slot.
    struct Partition {
        var handle: StorePartition
        let committed: CommittedOffset
        /// It goes away: nothing of it comes back to memory.
        var isEnding = false
    }

    let store: RetryStore
    var batch: StoreBatch
    var requests = Requests()
    private var partitions: [Partition?] = []
    /// By slot: all records of the partition up to this offset have been handed to the shards. Apart from the rest, which
    /// can't be read for each record without counting references to its handles.
    private(set) var readThrough: [Int64] = []
    /// Records that came, by another way, before the news that their partition begins.
    var early: [IncomingRecord] = []
    var cold = ColdDevices()
    var arrivals: [DeviceKey: Arrival] = [:]
    /// Devices that are to be loaded, first come first served.
    var loadQueue: [DeviceKey] = []
    var loadQueueHead = 0
    var loadsUnderWay = 0
    /// There was no room for what came: loads wait until then.
    var noLoadsBefore = MonotonicTime(nanoseconds: 0)
    /// Until the store has done so: a load that was asked for before may still find the item. How often.
    var left: [Left: Int] = [:]
    /// Records that may be read once more although the store has their items, under other tokens.
    var marked: [Place: APNSID] = [:]
    /// Marks in the store that are to be forgotten when their records are committed.
    var marks: [Place] = []
    var nextForgetting = MonotonicTime(nanoseconds: 0)
    /// Token changes by their records, of items in flight that the store has under the old token.
    var changes: [Place: TokenChange] = [:]
    /// Those that wait no more.
    var changesDone: [TokenChange] = []
    /// The latest token changes, by the device of the old token, and in the order in which they came.
    private(set) var pastChanges: [DeviceKey: PastChange] = [:]
    private var pastDevices: [DeviceKey] = []
    private var oldestPast = 0
    /// Told when the line for loads is short.
    var whenShort: [@Sendable () -> Void] = []
    /// Items in memory that came from the store: they take room that the intake doesn't know of.
    var restored = 0
    var ended: [Place: Ended] = [:]
    /// Of the changelog: what was produced between two barriers, which those who wait for its acknowledgement go by.
    var epoch: UInt32 = 0
    var produced = 0
    var keyWriter = ByteWriter(minimumCapacity: 128)
    var valueWriter = ByteWriter(minimumCapacity: 1024)
    /// Something was written since the last barrier.
    var hasWritten = false
    /// The store doesn't do for now what it is asked for: what it has to do waits there, and no item is added to that.
    var isFailing = false
    /// Asks for a turn's end, when loads may be asked for again.
    var wake: () -> Void = {}
    var counters = StoreCounters()

    /// Loads under way at once, and items from the store at once before no more are loaded.
    static let mostLoads = 256
    static let mostRestored = 8192
    /// Devices in line of which the store has nothing, and that go on in one turn.
    static let mostIdle = 1024
    /// Token changes that are remembered.
    static let mostPastChanges = 4096
    /// More room than the intake hands out records: for items that come back.
    static let room = 2 * mostRestored

    init(_ store: RetryStore) {
        self.store = store
        batch = store.makeBatch()
    }

    // MARK: Partitions

    subscript(slot: UInt16) -> Partition? {
        get { Int(slot) < partitions.count ? partitions[Int(slot)] : nil }
        set {
            while partitions.count <= Int(slot) { partitions.append(nil) }
            partitions[Int(slot)] = newValue
        }
    }

    func begin(_ slot: UInt16, _ partition: Partition, readThrough offset: Int64) {
        self[slot] = partition
        while readThrough.count < partitions.count { readThrough.append(.max) }
        readThrough[Int(slot)] = offset
    }

    var partitionSlots: [UInt16] { partitions.indices.filter { partitions[$0] != nil }.map { UInt16($0) } }

    func hasRead(_ slot: UInt16, through offset: Int64) {
        guard Int(slot) < readThrough.count, readThrough[Int(slot)] < offset else { return }
        readThrough[Int(slot)] = offset
    }

    /// A record of this device comes soon.
    func expect(_ device: DeviceKey) {
        if cold.count > 0 { cold.prefetch(device) }
    }

    /// Lets go of the store's handles, and of what was not handed over.
    func forgetPartitions() {
        partitions = []
        readThrough = []
        _ = takeBatch()
    }

    func timerFired(_ timer: TimerID) { wake() }

    /// Remembers a token change; the oldest gives way.
    func remember(_ change: PastChange, of device: DeviceKey) {
        if let known = pastChanges[device] {
            if known.occurredMilliseconds <= change.occurredMilliseconds { pastChanges[device] = change }
            return
        }
        pastChanges[device] = change
        guard pastDevices.count == Self.mostPastChanges else { return pastDevices.append(device) }
        pastChanges[pastDevices[oldestPast]] = nil
        pastDevices[oldestPast] = device
        oldestPast = (oldestPast + 1) % Self.mostPastChanges
    }

    // MARK: Requests

    func remove(_ place: Place) {
        guard let item = ended[place], let partition = self[place.partitionSlot] else { return }
        batch.remove(partition.handle, item.key, due: item.due)
        requests.removals.append(place)
        counters.removals += 1
    }

    func load(_ load: Load) {
        guard let partition = self[load.partitionSlot] else { return }
        batch.load(partition.handle, load.device)
        requests.loads.append(load)
        counters.loads += 1
    }

    /// Takes what has gathered for the store, with an empty batch in its place.
    func takeBatch() -> StoreBatch {
        hasWritten = true
        return exchange(&batch, with: store.makeBatch())
    }

    func takeRequests() -> Requests { exchange(&requests, with: Requests()) }
}

/// What a shard has asked of the store.
public struct StoreCounters: Sendable, Equatable {
    /// Items written, and removed.
    public var puts = 0
    public var removals = 0
    /// Looks for a device's items, and items that were found.
    public var loads = 0
    public var loaded = 0
    /// Items that could not be read.
    public var damaged = 0
    /// Items that exceed a limit of this version, and have ended as undeliverable.
    public var unsendable = 0
    /// Partitions of which it isn't known yet which devices the store has something of: until it is, each device is looked
    /// for there. As it stands at the moment of reading; of all shards the most.
    public var scansUnderWay = 0

    public init() {}

    static func + (left: StoreCounters, right: StoreCounters) -> StoreCounters {
        var sum = left
        sum.puts += right.puts
        sum.removals += right.removals
        sum.loads += right.loads
        sum.loaded += right.loaded
        sum.damaged += right.damaged
        sum.unsendable += right.unsendable
        sum.scansUnderWay = max(left.scansUnderWay, right.scansUnderWay)
        return sum
    }
}
