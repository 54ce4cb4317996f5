import DeliveryCore
import EventLoop

/// State of a worker's Kafka thread at one moment.
public struct IntakeSnapshot: Sendable {
    /// Phase of the worker's life.
    public enum Phase: Sendable, Equatable {
        /// Jobs are taken.
        case running
        /// Pushes in flight end; no new job is taken.
        case draining
        /// The shards end, or have ended.
        case ended
    }

    public var phase = Phase.running
    /// Reason for the worker's stop; nil while it runs, and after a requested stop.
    public var failure: String?
    /// Whether the group has assigned partitions, or none, and the worker has taken the assignment over.
    public var isAssigned = false
    /// Count of partitions assigned but not taken over yet; nil without such an assignment.
    public var arriving: Int?
    /// Arriving partitions whose part of the store is being opened.
    public var opening: [Int32] = []
    /// Arriving partitions that are being restored from the changelog.
    public var restoring: [Int32] = []
    /// Assigned partitions that aren't read, because the group's offset lies beyond the log's end and nothing shows why.
    public var unexplained: [Int32] = []
    /// Records of the changelog restored since the start.
    public var restoredRecords = 0
    /// Records of the changelog that were skipped, because they aren't the store's or can't be read.
    public var skippedRecords = 0
    /// Records of the changelog still to be read; 0 while nothing is restored.
    public var remainingRecords = 0
    /// Whether reading has stopped because the last write to the store failed.
    public var isStoreFailing = false
    /// Whether this process was stopped for long. Nothing is sent until the group confirms the partitions.
    public var isMembershipInDoubt = false
    /// Whether no push is begun, because no commit succeeds or the producer has no identifier.
    public var arePushesHeld = false
    /// Outcomes and dead letters that are made and not committed, about.
    public var uncommittedPushes = 0
    /// Most pushes that may be begun and not committed now.
    public var pushWindow = 0
    /// The worker's partitions in order.
    public var partitions: [PartitionReport] = []
    /// Counts of the intake since the worker's start.
    public var counters = IntakeCounters()
    /// Jobs taken from Kafka whose outcomes are still missing.
    public var outstanding = 0
    /// Bytes of records that the worker holds.
    public var bytesInFlight = 0
    /// Most jobs and most bytes of records that the worker holds.
    public var limits: (jobs: Int, bytes: Int) = (0, 0)
    /// Distances to the end of each partition's log, in the order of ``partitions``.
    public var lags: [PartitionLag] = []
    /// Work of the Kafka thread; nil before it answered.
    public var loop: LoopUsage?
    /// librdkafka's last statistics by client, as JSON; empty before the first.
    public var statistics: [String: String] = [:]
    /// Whether pushes that must wait for long are written to a store.
    public var hasStore = false
    /// Whether the store is being searched for pushes that wait with their topics.
    public var looksForSuspended = false
    /// Nil without a changelog.
    public var changelog: Changelog?
    /// Nil without transactions.
    public var transactions: Transactions?

    /// State of the changelog.
    public struct Changelog: Sendable, Equatable {
        /// Offsets by partition: one above the highest known offset.
        public var ends: [Int32: Int64] = [:]
        /// Changes that Kafka has not acknowledged. They are counted at barriers, without transactions.
        public var unacknowledged = 0

        public init() {}
    }

    /// State and counts of the transactions.
    public struct Transactions: Sendable, Equatable {
        /// State's name in ``TransactionCycle/State``.
        public var state: String
        /// Transactions begun so far, the open one included.
        public var begun: Int
        /// Transactions aborted so far.
        public var aborted: Int

        public init(state: String, begun: Int, aborted: Int) {
            self.state = state
            self.begun = begun
            self.aborted = aborted
        }
    }

    public init() {}
}

/// Distance of a worker from the end of a partition's log.
public struct PartitionLag: Sendable, Equatable {
    public var partition: Int32
    /// Records behind the last polled one; nil before the first fetch.
    public var records: Int64?
    /// Records at or behind the committed offset; nil before the first fetch.
    public var uncommitted: Int64?
    /// Age of the last polled record while further records wait, in seconds; 0 otherwise.
    public var seconds: Double
}

/// State of a worker's loops at one moment, as far as the loops answered.
public struct WorkerSnapshot: Sendable {
    /// Nil when the Kafka thread did not answer or has ended.
    public var intake: IntakeSnapshot?
    /// Counters of the shards that answered, by the shard's index.
    public var shards: [Int: ShardCounters] = [:]
    /// Names of loops that have ended.
    public var ended: [String] = []
    /// Progress of the worker's stop, after the loops had answered; nil when it wasn't asked.
    public var stop: WorkerStop?

    public init() {}

    /// Sum over the shards that answered.
    public var totals: ShardCounters { shards.values.reduce(ShardCounters()) { $0 + $1 } }
    /// Counters of the Kafka thread; zeros when the thread did not answer.
    public var counters: IntakeCounters { intake?.counters ?? IntakeCounters() }
    /// Jobs taken from Kafka whose outcomes are still missing.
    public var outstanding: Int { intake?.outstanding ?? 0 }
    /// Partitions that are read, or whose jobs still end.
    public var assignedPartitions: Int { intake?.partitions.count ?? 0 }

    /// Adds one loop's answer.
    public mutating func add(_ answer: LoopAnswer) {
        switch answer {
        case .intake(let snapshot): intake = snapshot
        case .shard(let index, let counters): shards[index] = counters
        case .ended(let loop): ended.append(loop)
        }
    }

    /// Number of loops that have answered or ended.
    public var count: Int { (intake == nil ? 0 : 1) + shards.count + ended.count }

    /// Returns the names of the loops that did not answer: the intake's first, then the shards'.
    public func silent(of loops: [String]) -> [String] {
        loops.enumerated().filter { index, name in
            !ended.contains(name) && (index == 0 ? intake == nil : shards[index - 1] == nil)
        }.map(\.element)
    }
}

/// Answer of one of a worker's loops.
public enum LoopAnswer: Sendable {
    /// State of the Kafka thread.
    case intake(IntakeSnapshot)
    /// Number and counters of a shard.
    case shard(Int, ShardCounters)
    /// The loop has ended with the worker.
    case ended(String)
}

extension Intake {
    func snapshot() -> IntakeSnapshot {
        var snapshot = IntakeSnapshot()
        snapshot.phase =
            switch machine.phase {
            case .running: .running
            case .draining: .draining
            default: .ended
            }
        snapshot.failure = machine.failure.map { describe($0) }
        snapshot.isAssigned = machine.isAssigned
        snapshot.arriving = machine.arriving
        snapshot.opening = machine.opening
        snapshot.restoring = machine.restoring
        snapshot.unexplained = machine.unexplainedPartitions
        if let restorer {
            snapshot.restoredRecords = restorer.restored.load(ordering: .relaxed)
            snapshot.skippedRecords = restorer.skipped.load(ordering: .relaxed)
            snapshot.remainingRecords = remainingRecords
            var changelog = IntakeSnapshot.Changelog()
            changelog.ends = machine.changelogEnds
            changelog.unacknowledged = machine.unacknowledgedChanges
            snapshot.changelog = changelog
        }
        snapshot.isStoreFailing = machine.hasStoreFailed
        snapshot.isMembershipInDoubt = machine.isMembershipInDoubt
        snapshot.arePushesHeld = machine.arePushesHeld
        snapshot.uncommittedPushes = machine.uncommittedPushes
        snapshot.pushWindow = machine.pushWindow
        snapshot.partitions = partitionReports()
        snapshot.counters = counters
        snapshot.outstanding = machine.outstanding
        snapshot.bytesInFlight = bytesInFlight.count
        snapshot.limits = (settings.maximumInFlight, settings.maximumBytes)
        snapshot.lags = snapshot.partitions.map { lag(of: $0) }
        snapshot.loop = loop.usage()
        snapshot.statistics = statistics
        snapshot.hasStore = store != nil
        snapshot.looksForSuspended = machine.looksForSuspended
        snapshot.transactions = machine.transactionState.map {
            IntakeSnapshot.Transactions(
                state: "\($0.state)", begun: Int($0.begun), aborted: $0.aborted)
        }
        return snapshot
    }

    func partitionReports() -> [PartitionReport] {
        machine.partitionReports(topic: jobsTopic, at: loop.now.nanoseconds)
    }

    var counters: IntakeCounters {
        var counters = machine.counters
        counters.restarts = restarts
        return counters
    }

    /// Records of the changelog that are still to be read.
    var remainingRecords: Int {
        machine.opening.isEmpty && machine.restoring.isEmpty
            ? 0 : restorer?.remaining.load(ordering: .relaxed) ?? 0
    }
}

extension Worker {
    /// Names of the loops that ``ask(_:)`` asks.
    public var loopNames: [String] { [intake.loop.name] + shards.map(\.loop.name) }

    /// Asks all loops, and returns at once. Each loop calls `answer` on its own thread with a copy of its state. A
    /// stuck loop never calls it. For an ended loop, `answer` is called on this thread.
    ///
    /// - Parameter isDetailed: whether shards add figures of apps, pools and loops, which take longer to copy.
    public func ask(isDetailed: Bool = true, _ answer: @escaping @Sendable (LoopAnswer) -> Void) {
        for (index, shard) in shards.enumerated() {
            let accepted = shard.loop.execute {
                answer(.shard(index, shard.snapshot(isDetailed: isDetailed)))
            }
            if !accepted { answer(.ended(shard.loop.name)) }
        }
        let accepted = intake.loop.execute { [intake] in answer(.intake(intake.snapshot())) }
        if !accepted { answer(.ended(intake.loop.name)) }
    }
}
