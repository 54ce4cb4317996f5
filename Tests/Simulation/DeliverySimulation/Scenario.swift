import DeliveryCore
import StreamScheduling

/// Properties of a seed's world. Seeds differ widely, so that each limit bites in some and none in all.
struct Scenario {
    var workers: Int
    /// Machines per worker.
    var shards: Int
    var partitions: Int
    var devices: Int
    /// Number of device tokens that can ever exist; a device that changes its token uses another of them.
    var tokens: Int
    var topics: Int
    var pools: Int
    /// Collapse identifiers per device and topic.
    var collapses: Int
    /// Per mille of pushes without a collapse identifier.
    var plainPerMille: Int
    /// Per mille of pushes that take another one's `apns-id`.
    var sameIDPerMille: Int
    /// Per mille of pushes for the first few devices.
    var hotPerMille: Int
    var holdPerMille: Int
    var confirmPerMille: Int
    var coalescePerMille: Int
    var schedulePerMille: Int
    var oncePerMille: Int
    var avoidPerMille: Int
    /// Devices that are channels, those with the lowest numbers. All pushes for them are broadcasts.
    var channels = 0
    /// Per mille of pushes with a collapse identifier that end a state.
    var finalPerMille = 0
    /// Per mille of devices that never confirm anything.
    var mutePerMille: Int
    var connections: Int
    var streams: Int
    var spanLimit: Int
    /// Characters that Kafka accepts as a commit's metadata.
    var metadataBytes: Int
    var hasGaps: Bool
    /// How likely an answer is anything but 200, per mille.
    var badAnswerPerMille: Int
    var limits: DeliveryLimits
    /// Records in memory at once. Restored items and items from other shards have extra room.
    var intakeLimit: Int
    var importRoom = 0
    var restoredRoom = 0
    /// Restored items in memory above which no more are loaded.
    var mostRestored: Int
    var mostLoads: Int
    var itemsPerLoad: Int
    /// Milliseconds by which items are restored before they are due.
    var leadMilliseconds: Int64
    /// Items that a look for due items finds at most.
    var dueLimit: Int
    var hasPowerLoss: Bool
    /// How often each kind of step is drawn.
    var weights: [Step: Int]

    init(_ draw: inout Draw, _ bounds: SimulationLimits = SimulationLimits()) {
        workers = draw.among(1...2)
        shards = draw.among(1...2)
        partitions = draw.among(1...5)
        devices = draw.spread(2...80)
        tokens = devices + 24
        pools = draw.among(1...2)
        topics = max(pools, draw.among(1...4))
        collapses = draw.spread(1...8)
        plainPerMille = draw.among(0...500)
        sameIDPerMille = draw.chance(200) ? 20 : 0
        hotPerMille = draw.among(0...800)
        holdPerMille = draw.among(0...400)
        confirmPerMille = draw.chance(250) ? 0 : draw.among(0...400)
        coalescePerMille = draw.chance(500) ? draw.among(20...400) : 0
        schedulePerMille = draw.chance(500) ? draw.among(20...200) : 0
        oncePerMille = draw.among(0...150)
        avoidPerMille = draw.among(0...600)
        mutePerMille = draw.chance(300) ? 60 : 0
        connections = draw.among(1...3)
        streams = draw.spread(1...12)
        spanLimit = draw.chance(400) ? draw.among(64...200) : 4096
        metadataBytes = draw.chance(300) ? draw.among(40...120) : CommitMetadata.maximumBytes
        hasGaps = draw.chance(150)
        badAnswerPerMille = draw.chance(300) ? draw.among(200...700) : draw.among(10...200)
        limits = Self.limits(&draw, tokens: tokens)
        intakeLimit = limits.capacity
        mostRestored = draw.spread(2...60)
        mostLoads = draw.among(1...40)
        itemsPerLoad = draw.spread(1...16)
        leadMilliseconds = min(2000, limits.residentMilliseconds)
        dueLimit = draw.spread(2...200)
        hasPowerLoss = draw.chance(500)
        if limits.storeIsDurable {
            // Without extra room, items from other shards may have to wait for a slot.
            importRoom = shards > 1 && draw.chance(500) ? 150 : 0
            limits.pendingPerDevice = min(limits.pendingPerDevice, draw.among(4...40))
            restoredRoom = max(mostRestored, limits.pendingPerDevice) + draw.spread(0...30)
            limits.capacity += restoredRoom + importRoom
            // Fewer slots than there can be records and items, so that some wait for a slot.
            if draw.chance(150) {
                limits.capacity = max(8, limits.capacity - restoredRoom - importRoom - draw.below(20))
            }
        }
        weights = Self.weights(&draw)
        // Drawn apart, so that worlds without these pushes draw the same choices as without this code.
        var apart = draw
        var kinds = Draw(seed: apart.generator.next())
        if kinds.chance(300) { channels = kinds.among(1...max(1, devices / 3)) }
        if kinds.chance(300) { finalPerMille = kinds.among(20...300) }
        if intakeLimit < 64 || (spanLimit < 4096 && !limits.storeIsDurable) {
            // A worker that is at its limit reads no device events: what waits for them would only end with its
            // expiration.
            (holdPerMille, confirmPerMille) = (0, 0)
        }
        keep(to: bounds)
    }

    private mutating func keep(to bounds: SimulationLimits) {
        workers = min(workers, bounds.workers)
        shards = min(shards, bounds.shards)
        partitions = min(partitions, bounds.partitions)
        devices = min(devices, bounds.devices)
        channels = min(channels, devices)
        tokens = devices + 24
        topics = min(topics, bounds.apps)
        pools = min(pools, topics)
        for fault in SimulationFault.allCases where !bounds.faults.contains(fault) { weights[fault.step] = 0 }
    }

    var residency: ResidencyLimits {
        ResidencyLimits(
            hasStore: limits.storeIsDurable, capacity: limits.capacity, loads: mostLoads,
            restored: mostRestored, room: max(1, restoredRoom), itemsPerLoad: itemsPerLoad, idle: 4,
            pastChanges: 4, returns: .max)
    }

    private static func limits(_ draw: inout Draw, tokens: Int) -> DeliveryLimits {
        let capacity = draw.chance(250) ? draw.among(16...48) : draw.among(64...320)
        let backoff = { (base: Int, cap: Int) in
            try! ExponentialBackoff(baseMilliseconds: Int64(base), capMilliseconds: Int64(cap))
        }
        let retry = RetryBackoff(
            later: backoff(draw.among(50...2000), draw.among(2000...40_000)),
            configuration: backoff(draw.among(200...5000), draw.among(5000...40_000)),
            maximumAttempts: draw.chance(300) ? 0 : UInt32(draw.among(2...12)),
            attemptsAtOnce: UInt32(draw.among(0...3)),
            refusalsAtOnce: UInt32(draw.among(1...16)),
            retryAfterLimitMilliseconds: Int64(draw.among(2000...40_000)),
            onceMilliseconds: Int64(draw.among(500...30_000)))
        return DeliveryLimits(
            capacity: capacity, pendingPerDevice: draw.chance(300) ? draw.among(2...6) : draw.among(8...128),
            inFlightPerDevice: draw.spread(1...16),
            knownDevices: draw.chance(200) ? draw.among(1...6) : tokens,
            maximumExpirationMilliseconds: World.maximumExpiration,
            defaultLifeMilliseconds: Int64(draw.among(60_000...7_200_000)), retry: retry,
            confirm: backoff(draw.among(500...5000), draw.among(5000...40_000)),
            returnsPerSecond: draw.spread(1...1000), returnBurst: draw.spread(1...100),
            storeAfterMilliseconds: Int64(draw.among(0...20_000)), storeIsDurable: draw.chance(650),
            residentMilliseconds: Int64(draw.chance(200) ? 0 : draw.spread(100...20_000)))
    }

    private static func weights(_ draw: inout Draw) -> [Step: Int] {
        var weights: [Step: Int] = [
            .produce: 200, .cancel: 14, .presence: 25, .token: 3, .receipt: 60, .poll: 300, .send: 220,
            .answer: 170, .acknowledge: 220, .commit: 60, .settleCommit: 60, .store: 90, .time: 90,
            .connectionFault: 10, .limitFlap: 6, .weather: 8,
        ]
        let rare: [Step: Int] = [.clockStep: 12, .crash: 6, .handOver: 10, .stop: 3, .offsetReset: 1]
        for step in Step.allCases {
            if let weight = weights[step] { weights[step] = max(1, weight * draw.among(50...180) / 25) }
            if let weight = rare[step] {
                weights[step] = draw.chance(700) ? (weight * draw.among(0...100) + 99) / 100 : 0
            }
        }
        return weights
    }
}

/// The kinds of steps that are drawn.
enum Step: Int, CaseIterable {
    case produce, cancel, presence, token, receipt
    case poll, send, answer, acknowledge, commit, settleCommit, store, time
    case connectionFault, limitFlap, weather, clockStep, crash, handOver, stop, offsetReset
}

/// Faults of a world of the delivery core, and events there beside plain pushes.
public enum SimulationFault: UInt8, CaseIterable, Hashable, Sendable {
    case cancel, presence, token, receipt, connectionFault, limitFlap, weather, clockStep, crash, handOver,
        stop,
        offsetReset

    var step: Step {
        switch self {
        case .cancel: .cancel
        case .presence: .presence
        case .token: .token
        case .receipt: .receipt
        case .connectionFault: .connectionFault
        case .limitFlap: .limitFlap
        case .weather: .weather
        case .clockStep: .clockStep
        case .crash: .crash
        case .handOver: .handOver
        case .stop: .stop
        case .offsetReset: .offsetReset
        }
    }
}

public typealias SimulationLimits = WorldLimits<SimulationFault>
