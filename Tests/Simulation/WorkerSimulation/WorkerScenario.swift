import Configuration
import DeliveryCore
import EventLoop
import Gateway

/// Choices of one seed's world of whole workers.
struct WorkerScenario {
    var mode: StoreMode
    var workers: Int
    var shards: Int
    var partitions: Int
    var devices: Int
    /// Devices that are channels, those with the lowest numbers. All pushes for them are broadcasts.
    var channels: Int
    /// Records out of a thousand for the first few devices.
    var hotPerMille: Int
    /// Topics of pushes, beside those of Live Activities.
    var topics: Int
    /// Collapse identifiers of a device.
    var collapses: Int
    var maxInFlight: Int
    /// Most bytes of the records that a worker holds; nil: as workers do by default. Records then have large headers.
    var maxInFlightBytes: Int?
    /// True: workers read ahead of pushes of priority 5 and 1.
    var readsAhead = false
    /// Nanoseconds between two of the world's own steps, at most.
    var pace: UInt64
    /// Answers of APNs out of a thousand that aren't 200, and their kinds.
    var badAnswerPerMille: Int
    var answers: [WorkerAnswer]
    /// Records out of a thousand that are no pushes, and their kinds.
    var eventsPerMille: Int
    var events: [WorkerEvent]
    /// Pushes out of a thousand with each policy.
    var policies: [WorkerPolicy: Int]
    /// Faults out of a thousand steps.
    var faultsPerMille: Int
    /// Records out of a thousand that can't be decoded.
    var invalidPerMille: Int
    /// Jobs out of a thousand that are due later.
    var laterPerMille: Int
    /// Most milliseconds until such a job is due.
    var longestDelay: Int
    /// Seconds that a job lives at most.
    var life: Int64
    var storeAfter: Duration
    /// Pushes of a device that may be in flight.
    var inFlightPerDevice: Int
    /// Unfinished pushes of a device.
    var pendingPerDevice: Int
    /// Most attempts at a push; nil: no limit.
    var maxAttempts: Int?
    /// Seconds that workers wait at most because of `Retry-After`.
    var retryAfterLimit: Int
    /// Milliseconds that a push with a collapse identifier waits for a newer one.
    var coalesceWindow: Int
    /// Kinds of faults that happen.
    var faults: [WorkerFault]
    /// Most bytes of a record in the topic of dead letters; nil: Kafka's default.
    var deadLetterBytes: Int?
    /// Nanoseconds after which the topic has that limit. Workers that have started before don't know the limit.
    var deadLetterBytesAfter: UInt64 = 0
    /// Seconds after which producers give a record up; nil: as workers do by default.
    var deliveryTimeout: Int?
    /// True in a world without faults, bad answers, events and small limits. A push waits for slow answers alone.
    var isCalm = false
    /// Trouble of the first app in a calm world; nil: none.
    var trouble: Trouble?
    /// Apps of the service: one with all topics, or one for each topic.
    var apps = [App(topics: WorkerService.topics)]
    /// Bounds of workers, many of them much smaller than in production.
    var bounds = WorkerBounds()

    struct App {
        var topics: [String]
        var weight = 1
        /// Pushes per second of a worker; nil: no limit.
        var ratePerSecond: Double?
        /// Pushes in flight of a worker; nil: no limit.
        var maxInFlight: Int?
    }

    /// What APNs does to all pushes of an app, or a limit of the app itself.
    enum Trouble: CaseIterable {
        case unavailable, retryAfter, internalError, refusedStreams, silence, busyDevices, refusedTopic, pace,
            cap
    }

    /// Seconds that a push or a report of a device counts at most.
    static let longestLife: Int64 = 1800
    /// Seconds after which a request without an answer has failed.
    static let requestTimeout: Int64 = 5

    /// Most milliseconds by which a worker's clock is wrong.
    var clockDeviation: Int64 { faults.contains(.clock) ? 1500 : 0 }

    init(_ scheduler: Scheduler, mode: StoreMode, withoutFaults: Bool) {
        func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
        self.mode = mode
        workers = mode == .local ? 1 : draw(1...3)
        shards = draw(1...3)
        partitions = draw(1...6)
        devices = draw(0...1) == 0 ? draw(1...4) : draw(5...60)
        channels = draw(0...3) == 0 ? draw(1...max(1, devices / 3)) : 0
        hotPerMille = draw(0...1) == 0 ? draw(0...800) : 0
        topics = draw(0...1) == 0 ? 1 : draw(2...WorkerService.topics.count)
        collapses = draw(1...4)
        maxInFlight = draw(0...2) == 0 ? draw(8...40) : draw(60...400)
        pace = UInt64([draw(1...60), draw(60...300), draw(300...1500)][draw(0...2)]) * 1_000_000
        badAnswerPerMille = draw(0...2) == 0 ? draw(50...400) : draw(0...50)
        // A world of few kinds has rare combinations of them more often.
        answers =
            draw(0...1) == 0
            ? WorkerAnswer.allCases.filter { $0 != .tokenUpdates }
            : (0..<draw(1...3)).map { _ in WorkerAnswer.allCases.randomElement(using: &scheduler.random)! }
        eventsPerMille = draw(0...3) == 0 ? 0 : draw(20...500)
        events =
            draw(0...1) == 0
            ? WorkerEvent.allCases
            : (0..<draw(1...3)).map { _ in WorkerEvent.allCases.randomElement(using: &scheduler.random)! }
        policies = [:]
        let share = [100, 300, 1000][draw(0...2)]
        for policy in WorkerPolicy.allCases where draw(0...999) < share { policies[policy] = draw(30...500) }
        maxInFlightBytes = draw(0...3) == 0 ? draw(1 << 16...1 << 17) : nil
        // A worker that is at its limit reads no device events: what waits for them ends with its expiration.
        if !mode.hasStore, maxInFlight < 200 || maxInFlightBytes != nil {
            (policies[.holds], policies[.confirmations]) = (nil, nil)
        }
        inFlightPerDevice = draw(0...1) == 0 ? 16 : draw(1...6)
        pendingPerDevice = draw(0...3) == 0 ? draw(4...30) : 128
        maxAttempts = draw(0...3) == 0 ? draw(2...8) : nil
        retryAfterLimit = draw(0...1) == 0 ? 60 : draw(2...20)
        coalesceWindow = draw(0...3) == 0 ? draw(100...4000) : 0
        faultsPerMille = withoutFaults ? 0 : draw(5...60)
        // A world with few kinds of faults has fewer excuses.
        faults =
            draw(0...1) == 0
            ? WorkerFault.allCases
            : (0..<draw(1...3)).map { _ in WorkerFault.allCases.randomElement(using: &scheduler.random)! }
        deadLetterBytes = draw(0...2) == 0 ? draw(3072...6144) : nil
        if draw(0...1) == 0 { deadLetterBytesAfter = pace * UInt64(draw(0...100)) }
        deliveryTimeout = mode != .transactions && draw(0...2) == 0 ? draw(2...12) : nil
        invalidPerMille = draw(0...2) == 0 ? draw(1...50) : 0
        laterPerMille = mode.hasStore ? [200, 500][draw(0...1)] : 50
        longestDelay = mode.hasStore && draw(0...1) == 0 ? 60_000 : 20_000
        life = Int64(draw(20...120))
        storeAfter = .seconds(draw(1...5))
        if draw(0...3) == 0 { bounds.spareSlots = draw(0...60) }
        if mode.hasStore, draw(0...3) == 0 { bounds.spanLimit = draw(64...300) }
        if draw(0...1) == 0 { bounds.residency.restored = draw(2...60) }
        if draw(0...1) == 0 {
            // All items of a device fit. Otherwise all its loads would be partial.
            bounds.residency.room = max(pendingPerDevice, min(60, bounds.residency.restored)) + draw(0...30)
        }
        if draw(0...1) == 0 { bounds.residency.loads = draw(1...8) }
        if draw(0...1) == 0 { bounds.residency.returns = draw(1...40) }
        (bounds.residency.idle, bounds.residency.pastChanges) = (4, 4)
        // At least the time by which due items are loaded ahead.
        if draw(0...1) == 0 { bounds.residentMilliseconds = Int64(draw(2500...8000)) }
        let recordsPerTurn = draw(0...1) == 0 ? draw(1...4) : bounds.recordsPerTurn
        isCalm = draw(0...9) == 0
        // A copy of the generator, so that these choices change no other ones.
        var random = scheduler.random
        if mode.hasStore, Int.random(in: 0...9, using: &random) == 0 {
            isCalm = true
            trouble = Trouble.allCases.randomElement(using: &random)
        }
        if isCalm {
            (faultsPerMille, faults, badAnswerPerMille, eventsPerMille, policies) = (0, [], 0, 0, [:])
            (maxInFlight, maxInFlightBytes, inFlightPerDevice, pendingPerDevice) = (400, nil, 16, 128)
            (coalesceWindow, laterPerMille, channels) = (0, 0, 0)
            (deliveryTimeout, deadLetterBytes, storeAfter) = (nil, nil, .seconds(5))
            bounds = WorkerBounds()
            // The world then lasts for longer than its workers take to settle.
            pace = UInt64(draw(600...1500)) * 1_000_000
        }
        bounds.recordsPerTurn = recordsPerTurn
        random = scheduler.random
        readsAhead = mode.hasStore && !isCalm && Bool.random(using: &random)
        guard draw(0...2) > 0 || trouble != nil else { return }
        apps = WorkerService.topics.map { App(topics: [$0], weight: draw(0...1) == 0 ? 1 : draw(1...20)) }
        if let trouble {
            beginTrouble(trouble, &random)
            return
        }
        guard !isCalm else { return }
        // One app in trouble of its own beside the others.
        switch draw(0...2) {
        case 0: apps[0].ratePerSecond = Double(draw(2...20))
        case 1: apps[0].maxInFlight = shards * draw(1...2)
        default: break
        }
    }

    /// Makes room scarce, and most pushes those of the first app.
    private mutating func beginTrouble(_ trouble: Trouble, _ random: inout some RandomNumberGenerator) {
        workers = mode == .local ? 1 : Int.random(in: 1...2, using: &random)
        topics = apps.count
        devices = Int.random(in: 60...200, using: &random)
        hotPerMille = 0
        maxInFlight = shards * Int.random(in: 40...80, using: &random)
        pace = UInt64.random(in: 200...500, using: &random) * 1_000_000
        switch trouble {
        case .pace: apps[0].ratePerSecond = 0.5
        case .cap: apps[0].maxInFlight = shards
        default: break
        }
    }
}
