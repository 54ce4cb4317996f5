import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Records several workers of one group, each with a store of its own and a changelog between them. A test starts and
/// ends them.
final class ReplicaGroup: Recorder {
    /// Workers that run, by name.
    private(set) var replicas: [String: WorkerProcess] = [:]
    /// Whether sessions, heartbeats and limits are those of a worker without settings.
    private let hasDefaults: Bool
    /// Whether workers have their names as `POD_NAME`, so that the group recognises them after a restart.
    private let hasPodNames: Bool
    /// Further settings of the workers.
    private let environment: [String: String]
    /// Whether an orderly stop may exceed its deadline because brokers are away.
    private let brokersMayBeAway: Bool
    private let group: KafkaConsumer
    private var commits: [(time: Int64, offsets: [Int64])] = []
    private var lastLook = ContinuousClock.now
    /// Partitions whose worker has not ended in order, so that the next worker repeats some jobs.
    private var isDisturbed: Set<Int32> = []

    /// Whether an orderly hand-over may repeat jobs: the embedded cluster refuses the last commit of a revocation when a
    /// rebalance begins meanwhile, as among three workers.
    static let commitsAreRefused = TestKafka.realBrokers == nil
    /// Milliseconds. Kafka takes no less than 6 s by default; the embedded cluster waits for it in each rebalance.
    private static let sessionTimeout = TestKafka.realBrokers == nil ? 4_000 : 6_000
    /// Limits that a small load reaches.
    private static let delivery = """
        {max-in-flight: 400, commit-interval: 100ms, shards: 2, return-rate: 5000, drain-deadline: 3s, \
        retry: {initial: 20ms, maximum: 1s, max-attempts: 1000}}
        """

    init(
        _ bed: Bed, hasDefaults: Bool = false, hasPodNames: Bool = false,
        environment: [String: String] = [:], brokersMayBeAway: Bool = false
    ) throws {
        self.hasDefaults = hasDefaults
        self.hasPodNames = hasPodNames
        self.environment = environment
        self.brokersMayBeAway = brokersMayBeAway
        var properties = bed.kafka.clientProperties
        properties["group.id"] = bed.kafka.group
        group = try KafkaConsumer(properties: properties, topics: []) { _ in }
        try super.init(bed)
    }

    deinit { group.close() }

    // MARK: Observations

    override func observeWorkers(_ outcomes: [AuditedOutcome]) throws {
        if ContinuousClock.now - lastLook > .milliseconds(50) { look() }
        for replica in replicas.values.sorted(by: { $0.name < $1.name }) {
            for line in replica.readLog() where line.message == "partitions assigned" {
                for partition in line.partitions { take(partition, at: line.time) }
            }
            isDisturbed.formUnion(replica.givenUp)
            replica.givenUp = []
        }
    }

    private func take(_ partition: Int32, at time: Int64) {
        let isFirst = commits.allSatisfy { $0.offsets[Int(partition)] < 0 }
        for replica in replicas.values { replica.leaving.remove(partition) }
        guard isDisturbed.remove(partition) != nil || (Self.commitsAreRefused && !isFirst) else { return }
        let committed = commits.last { $0.time < time }?.offsets[Int(partition)] ?? 0
        history.takeovers[partition, default: []].append(Takeover(time: time, committed: committed))
        history.takeovers[partition]!.sort { $0.time < $1.time }
    }

    private func look() {
        lastLook = .now
        // Nothing is known while the brokers are away.
        guard
            let committed = try? group.committed(
                (0..<Int32(bed.partitions)).map { TopicPartition(bed.kafka.topic("jobs"), $0) })
        else { return }
        let offsets = committed.map { $0.offset ?? -1 }
        if commits.last?.offsets != offsets { commits.append((now, offsets)) }
    }

    /// Whether all that was produced is committed, so that only stores have pushes that wait.
    var isCommitted: Bool { commits.last.map { $0.offsets == nextOffsets } ?? false }

    /// Waits for a condition, polling and doing `meanwhile`. Throws when a worker ends early, with its log.
    func wait(
        for what: String, timeout: Duration = .seconds(90), meanwhile: () throws -> Void = {},
        _ condition: () throws -> Bool
    ) throws {
        do {
            try eventually(what, timeout: timeout) {
                try poll()
                try meanwhile()
                for replica in replicas.values {
                    guard let exit = replica.endedEarly else { continue }
                    throw Bed.Trouble(description: "\(replica.name): \(exit)\n\(replica.log.suffix(3_000))")
                }
                return try condition()
            }
        } catch {
            throw bed.withLogs(error)
        }
    }

    /// When the first worker logged partitions as assigned after a moment; `.max` if none has.
    func firstAssignment(after moment: Int64) -> Int64 {
        replicas.values.flatMap(\.lines).filter { $0.message == "partitions assigned" && $0.time > moment }
            .map(\.time).min() ?? .max
    }

    /// By partition, the longest time between two instants in which no outcome finished, in milliseconds.
    func longestPauses(from start: Int64, until end: Int64) -> [Int64] {
        (0..<Int32(bed.partitions)).map { partition in
            let times = history.outcomes.filter { $0.place.partition == partition }.map(\.finished)
                .filter { start < $0 && $0 < end }.sorted()
            return zip([start] + times, times + [end]).map { $1 - $0 }.max() ?? 0
        }
    }

    // MARK: Workers

    /// Starts a worker. Workers of the same name have the same store.
    func start(_ name: String) throws {
        var options =
            hasDefaults
            ? WorkerOptions(delivery: "{}", consumerProperties: "{}") : WorkerOptions(delivery: Self.delivery)
        options.environment = bed.storeEnvironment("store-\(name)", hasChangelog: true)
        options.environment["SLUICE_LOG__FORMAT"] = "json"
        if !hasDefaults {
            let consumer = "SLUICE_KAFKA__CONSUMER_PROPERTIES__"
            options.environment["SLUICE_STORE__AFTER"] = "1s"
            options.environment[consumer + "SESSION_TIMEOUT_MS"] = "\(Self.sessionTimeout)"
            options.environment[consumer + "HEARTBEAT_INTERVAL_MS"] = "800"
        }
        if hasPodNames { options.environment["POD_NAME"] = name }
        options.environment.merge(environment) { $1 }
        replicas[name] = try bed.launch(options, name: name)
    }

    /// Starts workers and waits until all have their share.
    func start(_ names: [String], meanwhile: () throws -> Void = {}) throws {
        for name in names { try start(name) }
        try waitForShares(meanwhile: meanwhile)
    }

    /// Waits until each partition has its worker, and each worker partitions.
    func waitForShares(meanwhile: () throws -> Void = {}) throws {
        try wait(for: "the workers share the partitions", meanwhile: meanwhile) { isShared }
    }

    private var isShared: Bool {
        let owned = replicas.values.filter { $0.isActive }.map(\.owned)
        return !owned.isEmpty && owned.allSatisfy { !$0.isEmpty }
            && owned.flatMap { $0 }.sorted() == Array(0..<Int32(bed.partitions))
    }

    /// SIGTERM, and waits for the end.
    func stop(_ name: String, meanwhile: () throws -> Void = {}) throws {
        requestStop(of: name)
        try waitForStop(of: name, meanwhile: meanwhile)
    }

    private func requestStop(of name: String) {
        replicas[name]!.isActive = false
        replicas[name]!.signal(SIGTERM)
    }

    private func waitForStop(of name: String, meanwhile: () throws -> Void = {}) throws {
        let replica = replicas[name]!
        try wait(for: "\(name) has stopped", meanwhile: meanwhile) { !replica.isRunning }
        let exit = try replica.waitForEnd()
        let mayBeLate = Self.commitsAreRefused || brokersMayBeAway
        #expect(
            exit == .status(0) || (mayBeLate && exit == .status(75)), "\(name): \(replica.log.suffix(2_000))")
        if exit != .status(0) { isDisturbed.formUnion(replica.owned.union(replica.leaving)) }
        replicas[name] = nil
    }

    /// SIGKILL.
    func kill(_ name: String) throws {
        let replica = replicas[name]!
        try poll()
        replica.signal(SIGKILL)
        try #require(try replica.waitForEnd() == .signal(SIGKILL), "the worker ended by itself before")
        try poll()
        isDisturbed.formUnion(replica.owned.union(replica.leaving))
        replicas[name] = nil
    }

    /// SIGSTOP: the other workers lose it from their group.
    func suspend(_ name: String) throws {
        let replica = replicas[name]!
        try poll()
        replica.suspend()
        replica.isActive = false
        isDisturbed.formUnion(replica.owned.union(replica.leaving))
    }

    /// SIGCONT.
    func resume(_ name: String) {
        replicas[name]!.isActive = true
        replicas[name]!.owned = []
        replicas[name]!.signal(SIGCONT)
    }

    /// Waits until a resumed worker has its share and finishes jobs.
    ///
    /// Kafka aborts a transaction that is open for longer than `transaction.timeout.ms`, and fences its producer. The
    /// worker learns of that when it ends the transaction, and starts over.
    func waitUntilItWorks(_ name: String, meanwhile: () throws -> Void) throws {
        let replica = replicas[name]!
        var shared: Int64?
        try wait(for: "\(name) finishes jobs", meanwhile: meanwhile) {
            if isShared, shared == nil { shared = now }
            guard Bed.hasTransactions, let shared else { return shared != nil }
            return history.outcomes.contains {
                $0.finished > shared && replica.owned.contains($0.place.partition)
            }
        }
    }

    /// Removes the store of a worker that has ended.
    func removeStore(_ name: String) throws {
        try FileManager.default.removeItem(atPath: bed.directory.file("store-\(name)"))
    }

    // MARK: Verdict

    /// Waits until every job has an outcome and is committed. Otherwise a worker could end while it repeats jobs, and leave
    /// the later ones to nobody.
    func finish(timeout: Duration = .seconds(90)) throws {
        do {
            try wait(for: "every job has an outcome and is committed", timeout: timeout) {
                open.isEmpty && isCommitted
            }
        } catch let error as Bed.Trouble {
            for replica in replicas.values { replica.keepLog() }
            Issue.record("\(open.count) of \(history.jobs.count) jobs had no outcome in time: \(error)")
        }
    }

    /// Stops all workers at once, so that none takes over the partitions of another and repeats a part of their jobs.
    override func endWorkers() throws {
        let names = replicas.keys.sorted()
        for name in names { requestStop(of: name) }
        for name in names { try waitForStop(of: name) }
    }
}
