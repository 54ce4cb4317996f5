import DeliveryCore
import SluiceModel

/// A record of the jobs topic, with what an observer outside of the workers has seen of it.
struct FleetJob {
    enum Kind: UInt8 {
        case push, cancel, online, offline
        /// Not decodable: a dead letter follows.
        case invalid
    }

    var kind: Kind
    var token: Int
    var partition: Int
    var offset: Int64 = 0
    /// How often the topic was made anew before.
    var incarnation = 0
    /// Of a push, without the slot of its partition.
    var facts: PushFacts
    /// Of a cancel.
    var target = CancelTarget.notificationKey(0)
    /// In milliseconds since the epoch.
    var occurred: Int64 = 0
    var size = KafkaModel.Size.normal

    // MARK: Seen from outside

    /// Outcomes and dead letters that a reader of committed records has seen.
    var outcomes = 0
    /// Nanoseconds at which a commit covered the record; 0: none has.
    var committedAt: UInt64 = 0
    var pushes = 0
    /// An operator has set the group's offsets back, or the topic was made anew: outcomes may come twice, or never.
    var isExempt = false
}

/// A record that a worker has produced.
struct FleetOutput {
    var job: Int
    /// Nanoseconds at which the producer was asked.
    var producedAt: UInt64
}

/// Choices of one seed's world.
struct FleetScenario {
    var mode: StoreMode
    var workers: Int
    var shards: Int
    var partitions: Int
    var tokens: Int
    var collapses: Int
    var spanLimit: Int
    var metadataBytes: Int
    var maximumInFlight: Int
    /// Requests that one shard has in flight at most.
    var streams: Int
    var badAnswerPerMille: Int
    var isCooperative: Bool
    var session: UInt64
    /// Faults out of a thousand steps.
    var faultsPerMille: Int
    var limits: DeliveryLimits
    var invalidPerMille: Int
    var hasLargeRecords: Bool

    init(_ draw: inout Draw, mode: StoreMode) {
        self.mode = mode
        workers = draw.among(1...4)
        shards = draw.among(1...3)
        partitions = draw.among(1...6)
        tokens = draw.spread(2...60)
        collapses = draw.spread(1...6)
        spanLimit = draw.chance(300) ? draw.among(64...200) : 4096
        metadataBytes = draw.chance(300) ? draw.among(40...120) : CommitMetadata.maximumBytes
        maximumInFlight = draw.chance(300) ? draw.among(8...40) : draw.among(60...400)
        streams = draw.spread(1...40)
        badAnswerPerMille = draw.chance(300) ? draw.among(100...500) : draw.among(0...80)
        isCooperative = draw.chance(700)
        session = UInt64(draw.among(6...30)) * 1_000_000_000
        faultsPerMille = draw.chance(200) ? 0 : draw.spread(1...12)
        invalidPerMille = draw.chance(300) ? draw.among(1...60) : 0
        hasLargeRecords = draw.chance(200)
        let backoff = { (base: Int, cap: Int) in
            try! ExponentialBackoff(baseMilliseconds: Int64(base), capMilliseconds: Int64(cap))
        }
        limits = DeliveryLimits(
            capacity: maximumInFlight + 1200, pendingPerDevice: draw.among(8...64),
            inFlightPerDevice: draw.spread(1...16), knownDevices: tokens + 8,
            maximumExpirationMilliseconds: 600_000, defaultLifeMilliseconds: 300_000,
            retry: RetryBackoff(
                later: backoff(draw.among(50...1000), draw.among(1000...10_000)),
                configuration: backoff(1000, 10_000), maximumAttempts: draw.chance(500) ? 0 : 8,
                attemptsAtOnce: 2, refusalsAtOnce: 8, retryAfterLimitMilliseconds: 10_000,
                onceMilliseconds: 5000),
            confirm: backoff(1000, 10_000), returnsPerSecond: 1000, returnBurst: 100,
            storeAfterMilliseconds: Int64(draw.among(0...5000)),
            storeIsDurable: false, residentMilliseconds: Int64(draw.among(100...5000)))
    }
}
