import DeliveryCore
import SluiceModel
import StreamScheduling

/// An outcome on its way to Kafka.
struct PendingOutcome {
    var record: Int
    /// Its acknowledgement completes the record's offset; not when the store had done that already.
    var completes: Bool
    /// It is removed from the store after that.
    var isStored: Bool
    /// Of its chain of removals.
    var device: UInt64
    var job: Int
}

/// A commit between the moment that it says what is complete and Kafka's answer.
struct IssuedCommit {
    var offset: Int64
    var metadata: String
    var serial: Int
    /// The number that the removals know it by.
    var removals: UInt64
    /// What it says is complete is on disk, where that is in the store; the commit is on its way to Kafka.
    var isSent = false
}

/// A partition's removals, of which there is one whoever holds it.
final class Removals {
    var order = DeferredDeletes()
}

/// A partition as a worker has it.
struct PartitionState {
    var isOwned = false
    var slot: UInt16 = 0
    var epoch = -1
    var tracker = OffsetTracker(nextOffset: 0)
    /// The next record to poll.
    var position = 0
    /// The group takes it away: what is in flight ends first.
    var isEnding = false
    var patience = 0
    var isPaused = false
    var outcomes = Queue<PendingOutcome>()
    var commit: IssuedCommit?
    var isDirty = false
    /// Items of this assignment that the shards hold.
    var live = 0
    let removals = Removals()
    /// It isn't known yet what the store has of it; what is still to be told.
    var isScanning = false
    var scan: [StoreModel.Due]?
    /// Where the last look for due items ended, and until when it looked.
    var dueCursor: StoreModel.Due?
    var lookedThrough = Int64.min
    var isLooking = false
    /// Due, of records that are still to be read.
    var ahead: [StoreModel.Due] = []
}

/// How an attempt ended last.
enum LastResult: UInt8 {
    case none, unprocessed, retriable, configuration, unknown, accepted, final
}

/// What the worker's shell keeps by slot, and what the auditor has seen of this stay of the push.
struct Copy {
    var isLive = false
    var job = 0
    var partition = 0
    var epoch = 0
    /// The device token that it is sent to, and the one that was noted for later, -1 for none.
    var address = 0
    var noted = -1
    /// Under which the store has it, or will when it has done what was asked of it.
    var key: StoredKey?
    /// It came from the store in this stay.
    var isRestored = false
    var isRetrying: Bool { isLive && retrySteps >= 0 }
    var lane = 0
    /// The lane whose scheduler it was put into last: that of a push that it has replaced can be another.
    var queuedIn = 0
    /// Where it is in flight.
    var connection = -1
    var streamIndex = 0

    // The auditor's.
    var last = LastResult.none
    var failures = 0
    var expiry: Int64 = 0
    var firstSent: Int64 = 0
    /// Not before this moment of the monotonic clock: what a server asked for.
    var notBefore: UInt64 = 0
    /// By then it is neither coalescing nor between two attempts any more.
    var waitsUntil: UInt64 = 0
    /// An answer that asked for a pause may have made a retry before the expiration impossible.
    var mayExpireEarly = false
    var acceptedAt: UInt64 = 0
    /// It came back from the store, accepted, behind an older one in flight.
    var isReceiptPutOff = false
    var awaitedSince: UInt64 = 0
    /// News of its device came since it was accepted.
    var hasNews = false
    var isWithdrawn = false
    var isConfirmed = false
    /// Set while it waits out a back-off, to the worker's clock steps at its beginning.
    var retrySteps = -1
    /// Since when it was seen to be past its expiration; 0 while it isn't.
    var overdueSince: UInt64 = 0
    /// Nanoseconds since when it is held though its device is online and no other returns; 0: it isn't.
    var heldOnlineSince: UInt64 = 0
    var hasMoved = false
    /// The stop of its topic during which it was begun, -1 when there was none.
    var probe = -1
}

/// One connection to APNs.
struct ConnectionModel {
    var streams: [UInt32] = []
    var limit: Int
    /// After GOAWAY.
    var isDraining = false
}

/// The connections of one credential on one shard.
final class LaneModel {
    var scheduler: StreamScheduler
    var connections: [ConnectionModel]

    init(_ scenario: Scenario, notifications: NotificationTable) {
        scheduler = StreamScheduler(
            .init(
                connections: scenario.connections, apps: scenario.topics, placementRun: 4, urgentPerMille: 50),
            notifications: notifications)
        connections = [ConnectionModel](
            repeating: ConnectionModel(limit: scenario.streams), count: scenario.connections)
        for index in connections.indices { report(index) }
    }

    func report(_ index: Int) {
        let open = connections[index].streams.count
        scheduler.connectionChanged(
            UInt32(index), inFlight: open, streamsFree: max(0, connections[index].limit - open),
            windowFree: 1 << 20,
            state: connections[index].isDraining ? .draining : .ready)
    }
}

/// One event loop of a worker: the machine, its schedulers, and the job table.
final class ShardModel {
    let number: Int
    var machine: DeliveryMachine
    let store: ShardStore
    var lanes: [LaneModel] = []
    var copies: [Copy]
    var used = 0
    /// Of these, items that came from the store.
    var restoredInSlots = 0

    // The auditor's.
    let incarnation: Int
    /// By token: items, and those in flight.
    var pending: [Int]
    var inFlight: [Int]
    var holdUntil: [UInt64]
    var laneHolds: [LaneHold]
    /// By token: APNs has asked for a pause once.
    var wasBusy: [Bool]
    /// By token: when the last event of its presence happened, and whether it said offline.
    var presenceAt: [ReportTime]
    var isOffline: [Bool]
    /// The worker may think it knows better than the events: a receipt may be missing.
    var isPresumable: [Bool]
    /// By topic: whether a configuration answer has stopped it, and what is in flight that was begun since.
    var isStopped: [Bool]
    var probes: [Int]
    /// By topic: it was stopped as most tokens were taken for wrong, and what its answers said of tokens.
    var isStoppedByTokens: [Bool]
    var tokensSeen: [TokensSeen]
    var stops: [Int]
    var lastAdvance: UInt64 = 0
    var (received, finished, dropped, departed, restored, imported, sent) = (0, 0, 0, 0, 0, 0, 0)
    var (evicted, repeated) = (0, 0)
    /// By token: what was last learned of its presence.
    var lastPresence: [KnownPresence?]

    /// 503 with `Retry-After`: until when, whether also urgent pushes wait, and when the last probe left, or the hold began.
    struct LaneHold {
        var until: UInt64 = 0
        var begin: UInt64 = 0
        var isTotal = false
        var lastProbe: UInt64 = 0
    }

    /// Answers of a topic that took a token for right or for wrong.
    struct TokensSeen {
        var (all, wrong) = (0, 0)

        mutating func note() {
            all += 1
            if all == 200 { (all, wrong) = (100, wrong / 2) }
        }

        mutating func isBurst(after answer: AttemptAnswer, _ isStopped: Bool) -> Bool {
            guard answer.reason == .badDeviceToken || answer.reason == .deviceTokenNotForTopic else {
                return false
            }
            wrong += 1
            note()
            return isStopped || wrong == all && wrong >= 20 || wrong > 50 && wrong > all - wrong
        }
    }

    init(number: Int, incarnation: Int, _ scenario: Scenario, seed: UInt64) {
        self.number = number
        self.incarnation = incarnation
        pending = [Int](repeating: 0, count: scenario.tokens)
        store = ShardStore(scenario, shard: number)
        lastPresence = [KnownPresence?](repeating: nil, count: scenario.tokens)
        machine = DeliveryMachine(limits: scenario.limits, seed: seed)
        copies = [Copy](repeating: Copy(), count: scenario.limits.capacity)
        inFlight = [Int](repeating: 0, count: scenario.tokens)
        holdUntil = [UInt64](repeating: 0, count: scenario.tokens)
        wasBusy = [Bool](repeating: false, count: scenario.tokens)
        laneHolds = [LaneHold](repeating: LaneHold(), count: scenario.lanes)
        presenceAt = [ReportTime](repeating: .none, count: scenario.tokens)
        isOffline = [Bool](repeating: false, count: scenario.tokens)
        isPresumable = [Bool](repeating: false, count: scenario.tokens)
        isStopped = [Bool](repeating: false, count: scenario.topics)
        stops = [Int](repeating: 0, count: scenario.topics)
        probes = [Int](repeating: 0, count: scenario.topics)
        isStoppedByTokens = [Bool](repeating: false, count: scenario.topics)
        tokensSeen = [TokensSeen](repeating: TokensSeen(), count: scenario.topics)
        let notifications = NotificationTable(capacity: scenario.limits.capacity)
        for _ in 0..<scenario.lanes { lanes.append(LaneModel(scenario, notifications: notifications)) }
    }
}

/// A worker as its shell is: what it has in memory, all of which a crash takes away.
final class WorkerModel {
    let number: Int
    var shards: [ShardModel] = []
    var partitions: [PartitionState]
    /// Partition by the slot that the machines know it by.
    var partitionBySlot = [Int](repeating: -1, count: 256)
    var nextSlot = 0
    /// Of its wall clock against the true time, in milliseconds.
    var clockError: Int64 = 0
    var clockSteps = 0
    /// Being stopped: what is in flight ends first.
    var isDraining = false
    var patience = 0
    /// What the store is to do, and what it has done and the shards are still to hear of.
    var batches = Queue<StoreBatch>()
    var answers = Queue<StoreAnswer>()
    /// The store's first batch failed and is tried again then, with all behind it after it; 0 when it works.
    var storeWaitsUntil: UInt64 = 0
    /// Items that were found to be due.
    var due = Queue<(partition: Int, epoch: Int, found: [StoreModel.Due])>()
    var nextLook: UInt64 = 0
    /// Looks for items that wait with their topics.
    var parkedLooks = Queue<(shard: Int, topic: Int, isProbe: Bool)>()

    init(number: Int, incarnation: Int, _ scenario: Scenario, seed: UInt64) {
        self.number = number
        partitions = [PartitionState](repeating: PartitionState(), count: scenario.partitions)
        for shard in 0..<scenario.shards {
            shards.append(
                ShardModel(
                    number: shard, incarnation: incarnation + shard, scenario, seed: seed &+ UInt64(shard)))
        }
    }

    /// Items of all shards.
    var used: Int { shards.reduce(0) { $0 + $1.used } }

    /// Records that the intake has handed out, as long as they are in memory.
    var taken: Int { shards.reduce(0) { $0 + $1.used + $1.store.waiting - $1.restoredInSlots } }

    /// Nothing more of the partition is sent that isn't on its way.
    func isEnding(_ partition: Int) -> Bool { isDraining || partitions[partition].isEnding }

    func newSlot(for partition: Int) -> UInt16 {
        while partitions.contains(where: { $0.isOwned && Int($0.slot) == nextSlot }) {
            nextSlot = (nextSlot + 1) % 256
        }
        let slot = nextSlot
        nextSlot = (nextSlot + 1) % 256
        partitionBySlot[slot] = partition
        return UInt16(slot)
    }
}
