/// Faults of a world of whole workers, and acts of its operators.
enum WorkerFault: CaseIterable {
    // Processes.
    case kill, secondKill, stop, earlyStop, rollingRestart, stopInRebalance, suspension, clock
    // Connections to APNs.
    case cut, halfClose, blackHole, slowConnection, goAway, hostWithoutAPNs, nameService, refusedDial,
        refusedTLS
    // Brokers and clients.
    case leader, groupCoordinator, forgottenGroup, transactionCoordinator, slowKafka, lostAnswers,
        silentBrokers
    case hostWithoutKafka, fullQueue, failedClient, forbiddenTopic, compaction
    // The jobs topic.
    case growth, retention, lostTail, recreation
    // Disks.
    case fullDisk, failingDisk, failedSync, failedRead, failedOpening, damagedDisk, slowDisk, powerLoss,
        lostDisk
    // Operators.
    case pause, renewal, tornKey

    /// What may follow from a fault while it lasts, and for a while after.
    enum Excuse {
        /// Nothing: each push is sent once, and has one outcome.
        case nothing
        /// The host may not learn what APNs has accepted, or not keep it.
        case host
        /// Partitions change hands before their outcomes are committed, or commits of any worker are refused or late.
        case group
    }

    /// The excuse for a push that is accepted again, and without transactions for an outcome that is written again.
    /// Faults of the jobs topic also exempt the records that they hit.
    var excuse: Excuse {
        switch self {
        case .stop, .earlyStop, .rollingRestart, .clock, .goAway, .nameService, .refusedDial, .refusedTLS,
            .compaction, .growth, .pause, .renewal, .tornKey:
            .nothing
        case .cut, .halfClose, .blackHole, .slowConnection, .hostWithoutAPNs, .fullQueue, .fullDisk,
            .failingDisk, .failedSync, .failedRead, .slowDisk:
            .host
        case .kill, .secondKill, .stopInRebalance, .suspension, .leader, .groupCoordinator, .forgottenGroup,
            .transactionCoordinator, .slowKafka, .lostAnswers, .silentBrokers, .hostWithoutKafka,
            .failedClient, .forbiddenTopic, .retention, .lostTail, .recreation, .failedOpening, .damagedDisk,
            .powerLoss, .lostDisk:
            .group
        }
    }

    /// Whether the fault may undo what a worker or the group has kept before.
    var forgets: Bool {
        switch self {
        case .forgottenGroup, .retention, .lostTail, .recreation, .fullDisk, .failingDisk, .failedSync,
            .failedRead, .failedOpening, .damagedDisk, .powerLoss, .lostDisk:
            true
        default: false
        }
    }

    /// Parts of the reasons for which a process may end by itself; others start over, or go on.
    var endings: [String] {
        switch self {
        case .failedOpening, .damagedDisk, .fullDisk, .failingDisk, .failedSync, .failedRead: ["store"]
        case .silentBrokers, .hostWithoutKafka, .slowKafka: ["Kafka at kafka:9092", "the cluster's metadata"]
        case .forbiddenTopic: ["Topic authorization failed"]
        case .failedClient: ["kafka.instance-id"]
        case .tornKey: ["key"]
        // A worker that starts asks for the topics one after the other.
        case .growth: ["topics must have the same number of partitions"]
        default: []
        }
    }

    /// Whether workers may learn late of an operator's pause.
    var delaysPauses: Bool {
        switch self {
        case .suspension, .leader, .slowKafka, .silentBrokers, .hostWithoutKafka, .fullQueue, .failedClient,
            .forbiddenTopic:
            true
        default: false
        }
    }
}
