import DeliveryCore
import DequeModule
import SluiceModel
import StreamScheduling

/// An outcome on its way to Kafka.
struct PendingOutcome {
    var record: Int
    /// Whether the acknowledgement completes the record's offset; false when the store had completed the offset
    /// already.
    var completes: Bool
    /// Whether the store removes the item after the acknowledgement.
    var isStored: Bool
    /// Device whose chain of removals has the item.
    var device: UInt64
    var job: Int
}

/// A commit between the moment that it reports complete offsets and Kafka's answer.
struct IssuedCommit {
    var offset: Int64
    var metadata: String
    var serial: Int
    /// Number by which the removals know the commit.
    var removals: UInt64
    /// Whether the commit is on its way to Kafka. Stored items that it reports complete are on disk by then.
    var isSent = false
}

/// A partition's removals, shared by all workers that own the partition in turn.
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
    /// Whether the group revokes the partition; pushes in flight end first.
    var isEnding = false
    var patience = 0
    var isPaused = false
    var outcomes = Deque<PendingOutcome>()
    var commit: IssuedCommit?
    var isDirty = false
    /// Items of this assignment that the shards hold.
    var live = 0
    let removals = Removals()
    /// Whether the shards still have to learn what the store has of the partition; `scan` has the items still to
    /// report.
    var isScanning = false
    var scan: [StoreModel.Due]?
    /// Place where the last look for due items ended, and the time until which that look searched.
    var dueCursor: StoreModel.Due?
    var lookedThrough = Int64.min
    var isLooking = false
    /// Due items of records that are still to be read.
    var ahead: [StoreModel.Due] = []
}

/// How an attempt ended last.
enum LastResult: UInt8 {
    case none, unprocessed, retriable, configuration, unknown, accepted, final
}

/// End of a broadcast that nobody answered, so that only the sweep finds the next one.
enum Outlived: UInt8 {
    case none, ended, dropped
}

/// Facts that the worker's shell keeps by slot, and the auditor's view of this stay of the push.
struct Copy {
    var isLive = false
    var job = 0
    var partition = 0
    var epoch = 0
    /// The device token to which the push is sent, and the token noted for later, -1 for none.
    var address = 0
    var noted = -1
    /// Key under which the store has the item, or will have the item after the writes asked for.
    var key: StoredKey?
    /// Whether the item was loaded from the store in this stay.
    var isRestored = false
    var isRetrying: Bool { isLive && retrySteps >= 0 }
    var pool = 0
    /// The pool whose scheduler has the push. A push replaced by this one can have another pool.
    var queuedIn = 0
    /// Connection on which the push is in flight, -1 when none.
    var connection = -1
    var streamIndex = 0

    // The auditor's.
    var last = LastResult.none
    var failures = 0
    var expiry: Int64 = 0
    var firstSent: Int64 = 0
    /// Moment of the monotonic clock before which nothing is sent, as a server asked.
    var notBefore: UInt64 = 0
    /// Moment by which the push is neither coalescing nor between two attempts any more.
    var waitsUntil: UInt64 = 0
    /// Whether an answer that asked for a pause may have ruled out a retry before the expiration.
    var mayExpireEarly = false
    var acceptedAt: UInt64 = 0
    /// Whether the item was restored as accepted, behind an older push in flight.
    var isReceiptPutOff = false
    var awaitedSince: UInt64 = 0
    /// Whether a report about its device was read since it was accepted.
    var hasNews = false
    var isWithdrawn = false
    var isConfirmed = false
    /// The worker's clock steps at the beginning of the push's back-off, -1 when the push isn't in one.
    var retrySteps = -1
    /// Moment since which the push was seen past its expiration; 0 while it isn't.
    var overdueSince: UInt64 = 0
    /// Nanoseconds since when the push is held though its device is online and no other returns; 0 while it isn't held
    /// so.
    var heldOnlineSince: UInt64 = 0
    var hasMoved = false
    /// Number of the push's arrival in its shard. A push that takes another one's place keeps that number.
    var arrival = 0
    /// Nanoseconds since when nothing holds up the limited broadcast any more; 0 while something does.
    var freeSince: UInt64 = 0
    /// The way in which a broadcast that held up this one has ended last.
    var outlived = Outlived.none
    /// The stop of its topic during which the attempt began, -1 when the topic wasn't stopped.
    var probe = -1
}

/// A connection to APNs.
struct ConnectionModel {
    var streams: [UInt32] = []
    var limit: Int
    /// Whether APNs has sent GOAWAY.
    var isDraining = false
}

/// The connections of one credential on one shard.
final class PoolModel {
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

/// An event loop of a worker: the machine, its schedulers, and the job table.
final class ShardModel {
    let number: Int
    var machine: DeliveryMachine
    let store: ShardStore
    var pools: [PoolModel] = []
    var copies: [Copy]
    var used = 0
    /// Items in `used` that were restored from the store.
    var restoredInSlots = 0

    // The auditor's.
    let incarnation: Int
    /// Items by token, and those in flight.
    var pending: [Int]
    var inFlight: [Int]
    var holdUntil: [UInt64]
    var poolPauses: [PoolPause]
    /// End of each pool's rest, by its number; 0 before the first rest.
    var restUntil: [UInt64]
    /// By token: whether APNs has asked for a pause once.
    var wasBusy: [Bool]
    /// By token: whether the worker may presume its device offline against the events, because a receipt may be
    /// missing.
    var presenceAt: [ReportTime]
    var isOffline: [Bool]
    /// By token: whether the worker may trust a missing receipt more than the events.
    var isPresumable: [Bool]
    /// By topic: whether a configuration answer has stopped it, and the number of attempts in flight begun since.
    var isStopped: [Bool]
    var probes: [Int]
    /// By topic: whether the topic stopped because most tokens were rejected, and its answers about tokens.
    var isStoppedByTokens: [Bool]
    var tokensSeen: [TokensSeen]
    var stops: [Int]
    var lastAdvance: UInt64 = 0
    /// Number of the last arrival.
    var lastArrival = 0
    var (received, finished, dropped, departed, restored, imported, sent) = (0, 0, 0, 0, 0, 0, 0)
    var (evicted, repeated) = (0, 0)
    /// By token: the last presence that was learned.
    var lastPresence: [KnownPresence?]

    /// A hold by 503 with `Retry-After`: its end, its beginning, whether urgent pushes wait too, and its last probe.
    /// `lastProbe` is the beginning of the hold until a probe has left.
    struct PoolPause {
        var until: UInt64 = 0
        var begin: UInt64 = 0
        var isTotal = false
        var lastProbe: UInt64 = 0
    }

    /// Counts of a topic's answers that accepted or rejected a token.
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
        poolPauses = [PoolPause](repeating: PoolPause(), count: scenario.pools)
        restUntil = [UInt64](repeating: 0, count: scenario.pools)
        presenceAt = [ReportTime](repeating: .none, count: scenario.tokens)
        isOffline = [Bool](repeating: false, count: scenario.tokens)
        isPresumable = [Bool](repeating: false, count: scenario.tokens)
        isStopped = [Bool](repeating: false, count: scenario.topics)
        stops = [Int](repeating: 0, count: scenario.topics)
        probes = [Int](repeating: 0, count: scenario.topics)
        isStoppedByTokens = [Bool](repeating: false, count: scenario.topics)
        tokensSeen = [TokensSeen](repeating: TokensSeen(), count: scenario.topics)
        let notifications = NotificationTable(capacity: scenario.limits.capacity)
        for _ in 0..<scenario.pools { pools.append(PoolModel(scenario, notifications: notifications)) }
    }
}

/// A worker's shell: everything that the worker has in memory, and loses in a crash.
final class WorkerModel {
    let number: Int
    var shards: [ShardModel] = []
    var partitions: [PartitionState]
    /// Partition by the slot by which the machines know it.
    var partitionBySlot = [Int](repeating: -1, count: 256)
    var nextSlot = 0
    /// Error of the worker's wall clock against the true time, in milliseconds.
    var clockError: Int64 = 0
    var clockSteps = 0
    /// Whether the worker is being stopped; pushes in flight end first.
    var isDraining = false
    var patience = 0
    /// Batches that the store still has to process, and answers that the shards still have to read.
    var batches = Deque<StoreBatch>()
    var answers = Deque<StoreAnswer>()
    /// Moment when the store retries its failed first batch, and then all batches behind it; 0 when the store works.
    var storeWaitsUntil: UInt64 = 0
    /// Due items that a look has found.
    var due = Deque<(partition: Int, epoch: Int, found: [StoreModel.Due])>()
    var nextLook: UInt64 = 0
    /// Looks for items that wait with their topics.
    var suspendedLooks = Deque<(shard: Int, topic: Int, isProbe: Bool)>()

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

    /// Whether the worker starts no more requests for the partition.
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
