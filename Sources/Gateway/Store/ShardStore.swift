import DeliveryCore
import EventLoop
import RetryStore
import SluiceModel

/// A shard's side of the store: handles of partitions, and what is asked for in a turn. ``DeviceResidency`` decides. Belongs to the shard's thread.
final class ShardStore: TimerHandler {
    /// What a batch asks for, in its order.
    struct Requests {
        var residency: StoreRequests
        /// Items that go to other shards, which the store has under their new tokens.
        var departures: [Departure]
    }

    private struct Partition {
        var handle: StorePartition
        let committed: CommittedOffset
    }

    let store: RetryStore
    private(set) var batch: StoreBatch
    /// Items that go to other shards with the batch.
    private var departures: [Departure] = []
    /// By slot.
    private var partitions: [Partition?] = []
    /// Changelog keys of items that have ended, where tombstones don't go with the outcomes.
    private var changelogKeys: [EndedItem: [UInt8]] = [:]
    /// New tokens of past token changes, by their numbers.
    private var pastTokens: [[UInt8]] = []
    /// Called when the line for loads is short.
    private var whenShort: [@Sendable () -> Void] = []
    /// Of the changelog: what was produced between two barriers, which those who wait for its acknowledgement go by.
    private(set) var epoch: UInt32 = 0
    private var produced = 0
    var keyWriter = ByteWriter(minimumCapacity: 128)
    var valueWriter = ByteWriter(minimumCapacity: 1024)
    /// Something was written since the last barrier.
    private var hasWritten = false
    private let wake: () -> Void
    var counters = StoreCounters()

    /// Items from the store in memory before no more are loaded, and at once.
    static let mostRestored = 8192
    static let room = 2 * mostRestored

    /// - Parameter wake: asks for a turn's end, when loads may be asked for again.
    init(_ store: RetryStore, wake: @escaping () -> Void) {
        self.store = store
        self.wake = wake
        batch = store.makeBatch()
    }

    static func limits(hasStore: Bool, _ limits: DeliveryLimits) -> ResidencyLimits {
        ResidencyLimits(
            hasStore: hasStore, capacity: limits.capacity, restored: mostRestored, room: room,
            itemsPerLoad: limits.pendingPerDevice)
    }

    func timerFired(_ timer: TimerID) { wake() }

    // MARK: Partitions

    func begin(_ slot: UInt16, _ handle: StorePartition, _ committed: CommittedOffset) {
        while partitions.count <= Int(slot) { partitions.append(nil) }
        partitions[Int(slot)] = Partition(handle: handle, committed: committed)
    }

    func end(_ slot: UInt16) {
        if Int(slot) < partitions.count { partitions[Int(slot)] = nil }
        changelogKeys = changelogKeys.filter { $0.key.place.partitionSlot != slot }
    }

    /// Nil: the partition has ended.
    func handle(_ slot: UInt16) -> StorePartition? {
        Int(slot) < partitions.count ? partitions[Int(slot)]?.handle : nil
    }

    /// Calls with each partition's slot and the offset up to which it is committed.
    func forEachCommitted(_ body: (UInt16, Int64) -> Void) {
        for (slot, partition) in partitions.enumerated() {
            if let partition { body(UInt16(slot), partition.committed.offset) }
        }
    }

    /// Lets go of the store's handles, and of what was not handed over.
    func forgetPartitions() {
        partitions = []
        _ = takeBatch()
    }

    // MARK: Bytes

    func keepChangelogKey(of item: EndedItem) { changelogKeys[item] = Array(keyWriter.bytes) }

    func takeChangelogKey(of item: EndedItem) -> [UInt8]? { changelogKeys.removeValue(forKey: item) }

    func keepToken(_ token: UnsafeRawBufferPointer, number: Int) {
        while pastTokens.count <= number { pastTokens.append([]) }
        pastTokens[number] = Array(token)
    }

    func pastToken(_ number: Int) -> [UInt8] { pastTokens.indices.contains(number) ? pastTokens[number] : [] }

    // MARK: Requests

    func write(_ body: (inout StoreBatch) -> Void) { body(&batch) }

    func depart(_ departure: Departure) { departures.append(departure) }

    /// A record was written to the changelog.
    func changed() { produced += 1 }

    func callWhenShort(_ body: @escaping @Sendable () -> Void) { whenShort.append(body) }

    /// The line for loads is short.
    func lineIsShort() {
        guard !whenShort.isEmpty else { return }
        for body in exchange(&whenShort, with: []) { body() }
    }

    /// Takes what has gathered for the store, with an empty batch in its place.
    func takeBatch() -> StoreBatch {
        hasWritten = true
        return exchange(&batch, with: store.makeBatch())
    }

    func takeDepartures() -> [Departure] { exchange(&departures, with: []) }

    /// What was written since this was asked last.
    func takeFlush(shard: Int) -> StoreFlush {
        var flush = StoreFlush()
        flush.hasWritten = hasWritten
        flush.source = ChangeSource(shard: UInt16(shard), epoch: epoch)
        flush.produced = produced
        hasWritten = false
        epoch &+= 1
        produced = 0
        return flush
    }
}

/// Records and items that wait, under the handles by which ``DeviceResidency`` knows them.
struct WaitingEvents {
    enum Event {
        case record(IncomingRecord)
        case departure(Departure)
        /// A token change whose outcome waits for items in flight; the number of items that it concerns.
        case change(IncomingRecord, count: UInt32?)
    }

    private var events: [UInt32: Event] = [:]
    private var nextHandle: UInt32 = 0

    mutating func keep(_ event: Event) -> UInt32 {
        nextHandle &+= 1
        events[nextHandle] = event
        return nextHandle
    }

    mutating func take(_ handle: UInt32) -> Event? { events.removeValue(forKey: handle) }

    /// A departure that waits under a handle; nil: something else does.
    func departure(_ handle: UInt32) -> Departure? {
        if case .departure(let departure)? = events[handle] { departure } else { nil }
    }
}

/// What a shard has asked of the store.
public struct StoreCounters: Sendable, Equatable {
    /// Items written, and removed.
    public var puts = 0
    public var removals = 0
    /// Looks for a device's items, and items that were found.
    public var loads = 0
    public var loaded = 0
    /// Presences of devices that have expired, and were removed.
    public var forgotten = 0
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
        sum.forgotten += right.forgotten
        sum.damaged += right.damaged
        sum.unsendable += right.unsendable
        sum.scansUnderWay = max(left.scansUnderWay, right.scansUnderWay)
        return sum
    }
}
