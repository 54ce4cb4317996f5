import Configuration
import DeliveryCore
import EventLoop

/// Choices of one seed's world of whole workers.
struct WorkerScenario {
    var mode: StoreMode
    var workers: Int
    var shards: Int
    var partitions: Int
    var devices: Int
    /// Collapse identifiers of a device.
    var collapses: Int
    var maxInFlight: Int
    /// Nanoseconds between two of the world's own steps, at most.
    var pace: UInt64
    /// Answers of APNs out of a thousand that aren't 200.
    var badAnswerPerMille: Int
    /// Faults out of a thousand steps.
    var faultsPerMille: Int
    /// Records out of a thousand that can't be decoded.
    var invalidPerMille: Int
    /// Jobs out of a thousand that are due later.
    var laterPerMille: Int
    /// Seconds that a job lives at most.
    var life: Int64
    var storeAfter: Duration
    /// Kinds of faults that happen.
    var faults: [WorkerFault]
    /// Most bytes of a record in the topic of dead letters; nil: Kafka's default.
    var deadLetterBytes: Int?

    /// Most milliseconds by which a worker's clock is wrong.
    var clockDeviation: Int64 { faults.contains(.clock) ? 1500 : 0 }

    init(_ scheduler: Scheduler, mode: StoreMode, withoutFaults: Bool) {
        func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
        self.mode = mode
        workers = mode == .local ? 1 : draw(1...3)
        shards = draw(1...3)
        partitions = draw(1...6)
        devices = draw(0...1) == 0 ? draw(1...4) : draw(5...60)
        collapses = draw(1...4)
        maxInFlight = draw(0...2) == 0 ? draw(8...40) : draw(60...400)
        pace = UInt64([draw(1...60), draw(60...300), draw(300...1500)][draw(0...2)]) * 1_000_000
        badAnswerPerMille = draw(0...2) == 0 ? draw(50...400) : draw(0...50)
        faultsPerMille = withoutFaults ? 0 : draw(5...60)
        // A world with few kinds of faults has fewer excuses.
        faults =
            draw(0...1) == 0
            ? WorkerFault.allCases
            : (0..<draw(1...3)).map { _ in WorkerFault.allCases.randomElement(using: &scheduler.random)! }
        deadLetterBytes = draw(0...2) == 0 ? draw(2000...5000) : nil
        invalidPerMille = draw(0...2) == 0 ? draw(1...50) : 0
        laterPerMille = mode.hasStore ? 200 : 50
        life = Int64(draw(20...120))
        storeAfter = .seconds(draw(1...5))
    }
}

/// Faults of a world of whole workers.
enum WorkerFault: CaseIterable {
    case kill, stop, suspension, cut, blackHole, goAway, leader, groupCoordinator, transactionCoordinator,
        slowKafka, fullDisk, failingDisk, powerLoss, lostDisk, clock, pause, renewal

    /// Whether the fault concerns the whole group: commits are refused until the members that are left have rejoined.
    var isOfGroup: Bool {
        switch self {
        case .leader, .groupCoordinator, .transactionCoordinator, .slowKafka, .kill, .suspension, .powerLoss,
            .lostDisk:
            true
        default: false
        }
    }

    /// Whether the fault is one of a disk.
    var isOfDisk: Bool {
        switch self {
        case .fullDisk, .failingDisk, .powerLoss, .lostDisk: true
        default: false
        }
    }

    /// Whether the fault may hide from a worker what APNs has accepted, or undo what the worker knows.
    var excusesRepeats: Bool {
        switch self {
        case .stop, .goAway, .clock, .pause, .renewal: false
        default: true
        }
    }
}
