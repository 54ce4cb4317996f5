import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Several workers of one group, each with a store of its own and a changelog between them, started and ended as a test
/// likes, and all that can be known of them from outside: an ``AuditedHistory``.
final class ReplicaBed {
    let installation: Installation
    private(set) var history = AuditedHistory()
    private(set) var replicas: [String: Replica] = [:]
    /// Jobs with an outcome.
    private(set) var withOutcome: Set<JobPlace> = []
    /// `apns-id`s that APNs has accepted.
    private(set) var accepted: Set<String> = []
    private(set) var nextOffsets: [Int64]

    private let tail: OutcomeTail
    private var outcomesTaken = 0
    private let letters: TopicReader
    private var log: LineTail
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private let group: KafkaConsumer
    private var commits: [(time: Int64, offsets: [Int64])] = []
    private var lastLook = ContinuousClock.now
    /// An orderly stop can come to its deadline.
    var brokersMayBeAway = false
    /// More of the workers' settings.
    var environment: [String: String] = [:]
    /// Partitions whose worker has not ended in order, so that whoever has them next does some things again.
    private var isDisturbed: Set<Int32> = []

    /// Does a hand-over in order repeat jobs? The embedded cluster refuses commits while members join.
    static let commitsAreRefused = TestKafka.realBrokers == nil
    /// The embedded cluster answers transactions and forgets their offsets.
    static let hasTransactions = TestKafka.realBrokers != nil
    /// Kafka takes no less than 6 s by default; the embedded cluster waits for it in each rebalance.
    static let sessionTimeout = TestKafka.realBrokers == nil ? 4_000 : 6_000

    /// Sessions, heartbeats and limits are those that a worker has without settings.
    let hasDefaults: Bool
    /// Workers have their names as `POD_NAME`, so that the group knows them again after a restart.
    var hasPodNames = false

    init(partitions: Int = 6, simulatorOptions: [String] = [], hasDefaults: Bool = false) throws {
        self.hasDefaults = hasDefaults
        installation = try Installation(
            partitions: partitions, simulatorOptions: ["--log-tokens"] + simulatorOptions)
        tail = try OutcomeTail(installation)
        letters = try TopicReader(installation.kafka, "dead-letters", partitions: 1)
        log = LineTail(installation.directory.file("pushes.jsonl"))
        producer = try KafkaProducer(
            properties: KafkaProperties(bootstrapServers: installation.kafka.bootstrapServers))
        topic = try producer.topic(installation.kafka.topic("jobs"))
        nextOffsets = Array(repeating: 0, count: partitions)
        var properties = installation.kafka.clientProperties
        properties["group.id"] = installation.kafka.group
        group = try KafkaConsumer(properties: properties, topics: []) { _ in }
    }

    deinit {
        producer.close()
        group.close()
    }

    var now: Int64 { Int64(Date().timeIntervalSince1970 * 1_000) }

    // MARK: Jobs

    func partition(of deviceToken: String) -> Int32 {
        Int32((UInt32(deviceToken.suffix(4), radix: 16) ?? 0) % UInt32(installation.partitions))
    }

    /// Produces jobs in order and waits until Kafka has them. Returns their places.
    @discardableResult
    func produce(_ drafts: [JobDraft]) throws -> [JobPlace] {
        var failed: [KafkaError] = []
        var places: [JobPlace] = []
        let produced = now
        for draft in drafts {
            let partition = partition(of: draft.deviceToken)
            let place = JobPlace(partition, nextOffsets[Int(partition)])
            nextOffsets[Int(partition)] += 1
            places.append(place)
            history.jobs[place] = AuditedJob(
                place: place, deviceToken: draft.deviceToken, kind: draft.kind, produced: produced)
            let record = draft.encoded(created: nil)
            let result = record.key.withUnsafeBytes { key in
                record.value.withUnsafeBytes { value in
                    producer.produce(
                        topic, key: key, value: value, headers: record.headers.map { ($0.name, $0.value) },
                        opaque: 0, partition: partition)
                }
            }
            guard case .queued = result else { throw POSIXError(.ENOBUFS) }
        }
        try producer.flush(timeoutMilliseconds: 60_000) { if let error = $0.error { failed.append(error) } }
        if let error = failed.first { throw error }
        return places
    }

    // MARK: What is seen

    /// Takes in what has come: outcomes, dead letters, pushes, commits and the workers' logs.
    func poll() throws {
        tail.poll()
        letters.poll()
        for outcome in tail.outcomes[outcomesTaken...] {
            let outcome = AuditedOutcome(outcome, read: now)
            history.outcomes.append(outcome)
            withOutcome.insert(outcome.place)
        }
        outcomesTaken = tail.outcomes.count
        for line in log.read() {
            guard let arrival = AuditedArrival(line: line) else {
                log.unreadable += 1
                continue
            }
            if arrival.status == 200 { accepted.insert(arrival.apnsID) }
            history.arrivals.append(arrival)
        }
        if ContinuousClock.now - lastLook > .milliseconds(50) { look() }
        for replica in replicas.values.sorted(by: { $0.name < $1.name }) {
            for line in replica.read() where line.message == "partitions assigned" {
                for partition in line.partitions { take(partition, at: line.time) }
            }
            isDisturbed.formUnion(replica.givenUp)
            replica.givenUp = []
        }
        history.unreadable = tail.unreadable + letters.records.count + log.unreadable
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
        // Brokers may be away: there is no news then.
        guard
            let committed = try? group.committed(
                (0..<Int32(installation.partitions)).map {
                    TopicPartition(installation.kafka.topic("jobs"), $0)
                })
        else { return }
        let offsets = committed.map { $0.offset ?? -1 }
        if commits.last?.offsets != offsets { commits.append((now, offsets)) }
    }

    /// All that was produced is committed, so that only what waits in stores is left.
    var isCommitted: Bool { commits.last.map { $0.offsets == nextOffsets } ?? false }

    /// Jobs without an outcome as yet.
    var open: [AuditedJob] {
        history.jobs.count == withOutcome.count
            ? [] : history.jobs.values.filter { !withOutcome.contains($0.place) }
    }

    /// Waits for a condition, taking in what comes, and doing `meanwhile`.
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
                    keepLogs()
                    throw Trouble(
                        description:
                            "\(replica.name): \(exit)\n\(replica.process.standardError.suffix(3_000))")
                }
                return try condition()
            }
        } catch let error as TimedOut {
            keepLogs()
            let logs = replicas.values.map { "\($0.name): \($0.process.standardError.suffix(2_000))" }
            throw Trouble(description: "\(error)\n\(logs.joined(separator: "\n"))")
        }
    }

    /// Where SLUICE_TEST_REPLICA_LOGS says.
    private func keepLogs() {
        for name in replicas.keys { keepLog(of: name) }
    }

    private func keepLog(of name: String) {
        guard let directory = ProcessInfo.processInfo.environment["SLUICE_TEST_REPLICA_LOGS"],
            let replica = replicas[name]
        else { return }
        let file = "\(directory)/\(name).log"
        let before = (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
        try? (before + replica.process.standardError).write(toFile: file, atomically: false, encoding: .utf8)
    }

    struct Trouble: Error, CustomStringConvertible {
        var description: String
    }

    // MARK: Workers

    /// Starts a worker. One of the same name has the same store.
    func start(_ name: String) throws {
        let path = try installation.directory.write(
            hasDefaults
                ? installation.configuration(consumer: "{}")
                : installation.configuration(delivery: ReplicaLimits.delivery), to: "\(name).yaml")
        let shortWaits = [
            "SLUICE_STORE__AFTER": "1s",
            "SLUICE_KAFKA__CONSUMER_PROPERTIES__SESSION_TIMEOUT_MS": "\(Self.sessionTimeout)",
            "SLUICE_KAFKA__CONSUMER_PROPERTIES__HEARTBEAT_INTERVAL_MS": "800",
        ]
        let process = try ChildProcess(
            Executables.sluice, ["run", "-c", path, "--stop-with-input"],
            environment: [
                "SLUICE_LOG__FORMAT": "json",
                "SLUICE_STORE__DIRECTORY": installation.directory.file("store-\(name)"),
                "SLUICE_STORE__CHANGELOG": "on",
                "SLUICE_STORE__TRANSACTIONS": Self.hasTransactions ? "on" : "off",
                "SLUICE_KAFKA__TOPICS__CHANGELOG": installation.kafka.topic("changelog"),
            ].merging(hasDefaults ? [:] : shortWaits) { $1 }
                .merging(hasPodNames ? ["POD_NAME": name] : [:]) { $1 }.merging(environment) { $1 })
        replicas[name] = Replica(name, process)
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
            && owned.flatMap { $0 }.sorted() == Array(0..<Int32(installation.partitions))
    }

    /// SIGTERM, and waits for the end.
    func stop(_ name: String, meanwhile: () throws -> Void = {}) throws {
        let replica = replicas[name]!
        replica.isActive = false
        replica.process.signal(SIGTERM)
        try wait(for: "\(name) has stopped", meanwhile: meanwhile) { !replica.process.isRunning }
        let exit = try replica.process.wait()
        let mayBeLate = Self.commitsAreRefused || brokersMayBeAway
        #expect(
            exit == .status(0) || (mayBeLate && exit == .status(75)),
            "\(replica.process.standardError.suffix(2_000))")
        if exit != .status(0) { isDisturbed.formUnion(replica.owned.union(replica.leaving)) }
        keepLog(of: name)
        replicas[name] = nil
    }

    /// SIGKILL.
    func kill(_ name: String) throws {
        let replica = replicas[name]!
        try poll()
        replica.process.signal(SIGKILL)
        try #require(try replica.process.wait() == .signal(SIGKILL), "it ended by itself before")
        try poll()
        isDisturbed.formUnion(replica.owned.union(replica.leaving))
        keepLog(of: name)
        replicas[name] = nil
    }

    /// SIGSTOP: the others come to take it for dead.
    func suspend(_ name: String) throws {
        let replica = replicas[name]!
        try poll()
        replica.process.suspend()
        replica.isActive = false
        isDisturbed.formUnion(replica.owned.union(replica.leaving))
    }

    /// SIGCONT.
    func resume(_ name: String) {
        replicas[name]!.isActive = true
        replicas[name]!.owned = []
        replicas[name]!.process.signal(SIGCONT)
    }

    /// Waits until a worker that was resumed has its share and does its work. Kafka aborts a transaction that is open for
    /// longer than `transaction.timeout.ms` and locks its producer out, of which the worker learns when it ends the
    /// transaction: then it starts over.
    func waitUntilItGoesOn(_ name: String, meanwhile: () throws -> Void) throws {
        let replica = replicas[name]!
        var shared: Int64?
        try wait(for: "\(name) goes on", meanwhile: meanwhile) {
            if isShared, shared == nil { shared = now }
            guard Self.hasTransactions, let shared else { return shared != nil }
            return history.outcomes.contains {
                $0.finished > shared && replica.owned.contains($0.place.partition)
            }
        }
    }

    /// When the first worker logged partitions as assigned after a moment; `.max`: none has.
    func firstAssignment(after moment: Int64) -> Int64 {
        replicas.values.flatMap(\.lines).filter { $0.message == "partitions assigned" && $0.time > moment }
            .map(\.time).min() ?? .max
    }

    /// Throws away what a worker that has ended had.
    func removeStore(_ name: String) throws {
        try FileManager.default.removeItem(atPath: installation.directory.file("store-\(name)"))
    }

    func stopAll() throws {
        for name in replicas.keys.sorted() { try stop(name) }
    }

    // MARK: The verdict

    /// Waits until every job has an outcome.
    func finish(timeout: Duration = .seconds(90)) throws {
        do {
            try wait(for: "every job has an outcome", timeout: timeout) { open.isEmpty }
        } catch let error as Trouble {
            Issue.record("\(open.count) of \(history.jobs.count) jobs had no outcome in time: \(error)")
        }
    }

    /// What the auditor finds becomes issues.
    func judge(_ what: String, seed: UInt64) throws {
        try poll()
        let auditor = Auditor(history)
        let repeated = history.outcomes.count - history.jobs.count
        print(
            """
            \(what), seed \(seed): \(history.jobs.count) jobs, \(history.arrivals.count) pushes at APNs, \
            \(repeated) outcomes repeated
            """)
        for violation in auditor.violations.prefix(5) { Issue.record("seed \(seed): \(violation)") }
        #expect(auditor.violations.count == 0, "seed \(seed)")
    }

    /// For how long no outcome of a partition ended, at most, between two instants, in milliseconds.
    func longestPauses(from start: Int64, until end: Int64) -> [Int64] {
        (0..<Int32(installation.partitions)).map { partition in
            let times = history.outcomes.filter { $0.place.partition == partition }.map(\.finished)
                .filter { start < $0 && $0 < end }.sorted()
            return zip([start] + times, times + [end]).map { $1 - $0 }.max() ?? 0
        }
    }
}
