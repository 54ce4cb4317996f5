import DeliveryCore
import SluiceModel
import StreamScheduling

/// A record of the jobs topic, with what an observer outside of the workers has seen of it.
struct FleetJob {
    enum Kind: UInt8 {
        case push, cancel, online, offline, receipt, tokenChanged, unregistered, erase
        /// Not decodable: a dead letter follows.
        case invalid
    }

    var kind: Kind
    var token: Int
    var partition: Int
    var offset: Int64 = 0
    /// Number of times that the topic was recreated before.
    var incarnation = 0
    /// Facts of a push, without the slot of its partition.
    var facts: PushFacts
    /// Pushes that a cancel names.
    var target = CancelTarget.notificationKey(0)
    /// The new token of a token change; the push of a receipt.
    var subject = -1
    /// Time of a device event, in milliseconds since the epoch.
    var occurred: Int64 = 0
    /// Who refuses the job's outcome or dead letter that has fewer cuts than needed.
    var size = KafkaModel.Size.normal
    var cutsNeeded: UInt8 = 0

    // MARK: Seen from outside

    /// Outcomes and dead letters that a reader of committed records has seen.
    var outcomes = 0
    /// Nanoseconds at which a commit covered the record; 0: none has.
    var committedAt: UInt64 = 0
    var pushes = 0
    /// The process whose outcome was seen first; -1: none.
    var outcomeOf = -1
    /// Nanoseconds at which that outcome was produced.
    var outcomeAt: UInt64 = 0
    /// Whether an outcome reports that the job's device has no room for it, so that an older push may be sent.
    var isRefused = false
    /// Whether outcomes may be repeated or missing, because an operator set offsets back or the topic was recreated.
    var isExempt = false
    /// Whether the jobs topic was recreated since.
    var isBeforeNewLog = false
    /// Whether a job of an earlier or later log has, or may get, the same key in the store.
    var sharesKey = false
    /// Whether the job had ended for good when its log lost its end.
    var isSettled = false
}

/// A record that a worker has produced.
struct FleetOutput {
    var job: Int
    /// Nanoseconds at which the producer was asked.
    var producedAt: UInt64
    /// The process that has asked it.
    var process: Int
    /// Whether the outcome reports that the job's device has no room for it.
    var isRefused = false
    /// Whether the group had moved on without the process, which couldn't know, when the producer was asked.
    var isOfZombie = false
}

/// Choices of one seed's world.
struct FleetScenario {
    var mode: StoreMode
    var workers: Int
    var shards: Int
    var partitions: Int
    /// Number of tokens that devices have at first.
    var tokens: Int
    /// Number of further tokens, which devices get in the place of theirs.
    var newTokens: Int
    var presencePerMille: Int
    var tokenChangePerMille: Int
    var collapses: Int
    /// Topics of pushes; a token's is the same always.
    var topics: Int
    var spanLimit: Int
    var metadataBytes: Int
    var maximumInFlight: Int
    /// Requests that one shard has in flight at most.
    var streams: Int
    var badAnswerPerMille: Int
    var isCooperative: Bool
    var session: UInt64
    /// Nanoseconds after which the group continues without a member that doesn't answer.
    var rebalanceTimeout: UInt64
    /// Nanoseconds that a stop may take.
    var drainDeadline: UInt64
    /// Faults out of a thousand steps.
    var faultsPerMille: Int
    var limits: DeliveryLimits
    var residency: ResidencyLimits
    /// Whether items of a worker that has lost a partition stay with the worker, without a changelog.
    var sharesNothing: Bool
    var invalidPerMille: Int
    var hasLargeRecords: Bool
    /// Whether workers give the changelog as many partitions as the jobs topic has.
    var extendsChangelog: Bool

    /// Nanoseconds between two passes for presences that have expired.
    static let expiryInterval: UInt64 = 20_000_000_000
    /// Partitions by which the jobs topic grows at most.
    static let growth = 2
    var mostPartitions: Int { partitions + Self.growth }

    init(_ draw: inout Draw, mode: StoreMode, _ bounds: FleetLimits) {
        self.mode = mode
        workers = mode == .local && draw.chance(750) ? 1 : draw.among(1...4)
        sharesNothing = mode == .local && workers > 1
        shards = draw.among(1...3)
        partitions = draw.among(1...6)
        tokens = draw.spread(2...60)
        newTokens = mode.hasStore ? draw.spread(1...200) : 0
        presencePerMille = mode.hasStore && draw.chance(800) ? draw.among(10...120) : 0
        tokenChangePerMille = mode.hasStore && draw.chance(700) ? draw.spread(2...60) : 0
        collapses = draw.spread(1...6)
        topics = draw.among(1...3)
        spanLimit = draw.chance(300) ? draw.among(64...200) : 4096
        metadataBytes = draw.chance(300) ? draw.among(40...120) : CommitMetadata.maximumBytes
        // Stored items that wait in memory for a while count as well.
        maximumInFlight = draw.chance(300) ? draw.among(8...40) : draw.among(60...400)
        if mode.hasStore { maximumInFlight += 30 }
        streams = draw.spread(1...40)
        badAnswerPerMille = draw.chance(300) ? draw.among(100...500) : draw.among(0...80)
        isCooperative = draw.chance(700)
        session = UInt64(draw.among(6...30)) * 1_000_000_000
        rebalanceTimeout =
            draw.chance(400) ? session + UInt64(draw.among(0...10)) * 1_000_000_000 : 60_000_000_000
        drainDeadline = UInt64(draw.chance(300) ? draw.among(1...6) : 20) * 1_000_000_000
        faultsPerMille = draw.chance(200) ? 0 : draw.spread(1...12)
        invalidPerMille = draw.chance(300) ? draw.among(1...60) : 0
        hasLargeRecords = draw.chance(200)
        extendsChangelog = draw.chance(700)
        let backoff = { (base: Int, cap: Int) in
            try! ExponentialBackoff(baseMilliseconds: Int64(base), capMilliseconds: Int64(cap))
        }
        limits = DeliveryLimits(
            capacity: maximumInFlight + 1200, pendingPerDevice: draw.among(8...64),
            inFlightPerDevice: draw.spread(1...16), knownDevices: tokens + newTokens + 8,
            maximumExpirationMilliseconds: mode.hasStore ? 90_000 : 600_000,
            defaultLifeMilliseconds: mode.hasStore ? 60_000 : 300_000,
            retry: RetryBackoff(
                later: backoff(draw.among(50...1000), draw.among(1000...10_000)),
                configuration: backoff(1000, 10_000), maximumAttempts: draw.chance(500) ? 0 : 8,
                attemptsAtOnce: 2, refusalsAtOnce: 8, retryAfterLimitMilliseconds: 10_000,
                onceMilliseconds: 5000),
            confirm: backoff(1000, 10_000), returnsPerSecond: draw.spread(20...1000),
            returnBurst: draw.spread(1...100),
            storeAfterMilliseconds: Int64(draw.among(0...5000)),
            storeIsDurable: mode.hasStore,
            residentMilliseconds: Int64(draw.among(4000...12_000)))
        if mode.hasStore, draw.chance(150) {
            // Slots are fewer than records and items can be, so that some wait for a slot.
            limits.capacity = max(8, maximumInFlight - 30 - draw.below(20))
        }
        if draw.chance(300) { limits.returning = draw.among(1...8) }
        if draw.chance(200) { (limits.returnsPerSecond, limits.returnBurst) = (draw.among(1...5), 1) }
        let room = draw.chance(200) ? draw.among(2...12) : draw.spread(16...200)
        residency = ResidencyLimits(
            hasStore: mode.hasStore, capacity: limits.capacity, loads: draw.spread(1...64), restored: room,
            room: draw.chance(200) ? room : 2 * room, itemsPerLoad: min(limits.pendingPerDevice, room),
            idle: 16,
            pastChanges: draw.spread(2...64), returns: draw.chance(500) ? draw.spread(1...8) : 64)
        keep(to: bounds)
    }

    private mutating func keep(to bounds: FleetLimits) {
        workers = min(workers, bounds.workers)
        sharesNothing = mode == .local && workers > 1
        shards = min(shards, bounds.shards)
        partitions = min(partitions, bounds.partitions)
        tokens = min(tokens, bounds.devices)
        if !bounds.faults.contains(.presence) { presencePerMille = 0 }
        if !bounds.faults.contains(.tokenChange) { tokenChangePerMille = 0 }
        if !bounds.faults.contains(.badAnswer) { badAnswerPerMille = 0 }
        if !bounds.faults.contains(.invalidRecord) { invalidPerMille = 0 }
    }
}
