import CRdkafka
import EventLoop

/// Kafka's brokers in a simulation, and the world outside of the workers: other programs, operators and faults.
///
/// The module's clients are those of the real module, over a twin of librdkafka. `KafkaModel` decides what happens to
/// their requests. The model is brought to the present before each call, and at each of its own times.
///
/// The group is that of the jobs topic, whatever its name.
// Sendable: as `Scheduler`.
public final class KafkaCluster: @unchecked Sendable {
    /// Settings of brokers and clients. Those of the group hold for all clients, whatever their properties. Times are
    /// nanoseconds.
    public struct Settings: Sendable {
        /// Names of the topics that have these roles.
        public var jobs = "sluice.jobs"
        public var outcomes = "sluice.outcomes"
        public var changelog = "sluice.changelog"
        /// Time that a request or an answer is under way.
        public var delay: ClosedRange<UInt64> = 200_000...2_000_000
        /// Requests and answers out of a thousand that are slow.
        public var slowPerMille = 5
        public var slowDelay: ClosedRange<UInt64> = 50_000_000...3_000_000_000
        public var sessionTimeout: UInt64 = 10_000_000_000
        public var heartbeatInterval: UInt64 = 500_000_000
        public var maximumPollInterval: UInt64 = 300_000_000_000
        public var initialRebalanceDelay: UInt64 = 3_000_000_000
        public var transactionTimeout: UInt64 = 15_000_000_000
        /// Longest time until members know of new partitions.
        public var metadataAge: UInt64 = 10_000_000_000
        /// Commits out of a thousand that are taken, and whose answers are lost.
        public var lostAnswersPerMille = 0
        /// Commits are refused as soon as a member joins.
        public var refusesCommitsWhileJoining = false

        public init() {}
    }

    let scheduler: Scheduler
    let settings: Settings
    let model: KafkaModel
    var topics: [Topic] = []
    /// Records by the numbers that the model has for them.
    var records: [StoredRecord] = []
    private var keys: [[UInt8]: Int] = [:]
    private var instances: [String] = []
    /// Clients of running processes.
    var clients: [KafkaClient] = []
    var transactionalIDs: [String] = []
    private var plannedAt = UInt64.max
    /// Error of the last call that reports errors apart.
    var lastError = RD_KAFKA_RESP_ERR_NO_ERROR

    // MARK: Faults

    /// Most records in a client's queue; nil: as the client's properties say.
    public var queueLimit: Int?
    /// Whether no broker answers questions for metadata or orders of an administrator.
    public var isUnreachable = false
    /// Processes that reach no broker.
    var cutOffs: [(process: SimulatedProcess, until: UInt64)] = []

    // MARK: Memory

    /// Memory of consumed records, by process.
    var memories: [ConsumedMemory] = []
    /// Blocks of records in memory of their own.
    var blocks: [UnsafeMutableRawPointer: (ConsumedMemory, byteCount: Int)] = [:]

    /// Makes the brokers of a simulation. One for each scheduler.
    public init(_ scheduler: Scheduler, _ settings: Settings = Settings()) {
        self.scheduler = scheduler
        self.settings = settings
        var configuration = KafkaModel.Configuration()
        configuration.partitions = 0
        configuration.outcomePartitions = KafkaModel.stride
        configuration.deadLetterPartitions = KafkaModel.stride
        configuration.delay = settings.delay
        configuration.slowDelay = settings.slowDelay
        configuration.slowPerMille = settings.slowPerMille
        configuration.sessionTimeout = settings.sessionTimeout
        configuration.heartbeatInterval = settings.heartbeatInterval
        configuration.maximumPollInterval = settings.maximumPollInterval
        configuration.rebalanceTimeout = settings.maximumPollInterval
        configuration.initialRebalanceDelay = settings.initialRebalanceDelay
        configuration.transactionTimeout = settings.transactionTimeout
        configuration.stepTimeout = 2 * settings.transactionTimeout
        configuration.metadataAge = settings.metadataAge
        configuration.answerLostPerMille = settings.lostAnswersPerMille
        configuration.refusesCommitsWhileJoining = settings.refusesCommitsWhileJoining
        configuration.queueLimit = .max
        model = KafkaModel(
            seed: scheduler.random.next(), configuration: configuration, now: scheduler.now)
        scheduler.parts[ObjectIdentifier(KafkaCluster.self)] = self
    }

    /// Brokers of the thread's simulation; nil after its end.
    static var known: KafkaCluster? {
        Scheduler.current.parts[ObjectIdentifier(KafkaCluster.self)] as? KafkaCluster
    }

    static var current: KafkaCluster {
        guard let known else { preconditionFailure("the simulation has no Kafka") }
        return known
    }

    // MARK: Time

    /// Makes a call of the model, and passes on what follows at once.
    @discardableResult
    func call<Result>(_ body: () -> Result) -> Result {
        pump()
        defer { deliver() }
        return body()
    }

    /// Brings the model to the present.
    func pump() {
        model.advance(to: scheduler.now)
        deliver()
    }

    private func deliver() {
        for client in clients { client.takeNews() }
        guard let time = model.nextEventTime, time < plannedAt else { return }
        plannedAt = time
        scheduler.schedule(at: time) { [self] in
            if plannedAt == time { plannedAt = .max }
            pump()
        }
    }

    /// Blocks the caller until a condition holds, or for this many milliseconds; -1: without limit.
    @discardableResult
    func wait(_ milliseconds: Int32, _ isDone: () -> Bool) -> Bool {
        if milliseconds == 0 || isDone() { return isDone() }
        return scheduler.block(
            until: milliseconds < 0 ? .max : scheduler.now + UInt64(milliseconds) * 1_000_000, isDone)
    }

    /// Delays the caller by a request and its answer.
    /// - Returns: false when no broker has answered in time.
    func roundTrip(_ milliseconds: Int32) -> Bool {
        let limit = scheduler.now + UInt64(max(0, milliseconds)) * 1_000_000
        scheduler.block(until: min(limit, scheduler.now + model.drawDelay() + model.drawDelay()))
        let process = scheduler.process
        scheduler.block(until: limit) { !isUnreachable && !isCutOff(process) }
        pump()
        return !isUnreachable && !isCutOff(process)
    }

    // MARK: Records

    func store(_ record: StoredRecord) -> Int {
        records.append(record)
        return records.count - 1
    }

    /// Returns the model's record for a stored one.
    func modelRecord(_ number: Int) -> KafkaModel.Record {
        let record = records[number]
        var key = -1
        if let bytes = record.key {
            key = keys[bytes] ?? keys.count
            keys[bytes] = key
        }
        return KafkaModel.Record(
            payload: number, key: key, isTombstone: record.value == nil, bytes: record.batchBytes)
    }

    func instance(_ name: String) -> Int {
        if let number = instances.firstIndex(of: name) { return number }
        instances.append(name)
        return instances.count - 1
    }

    func transactionalID(_ name: String) -> Int {
        if let number = transactionalIDs.firstIndex(of: name) { return number }
        transactionalIDs.append(name)
        return transactionalIDs.count - 1
    }
}

/// A record's content.
struct StoredRecord {
    var key: [UInt8]?
    var value: [UInt8]?
    var headers: [(name: String, value: [UInt8]?)]
    /// Milliseconds since 1970.
    var timestamp: Int64
    /// The producer's word for the record.
    var opaque: UnsafeMutableRawPointer?
    /// Process that has produced the record; nil for another program.
    var process: SimulatedProcess?

    var contentBytes: Int {
        (key?.count ?? 0) + (value?.count ?? 0)
            + headers.reduce(0) { $0 + $1.name.utf8.count + ($1.value?.count ?? 0) }
    }

    /// Bytes of the record in a batch, about as in Kafka's format.
    var batchBytes: Int { contentBytes + 70 + 4 * headers.count }
}
