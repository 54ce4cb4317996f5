import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// One worker with a store, ended and started again as often as a test likes, and all that can be known of it from
/// outside: an ``AuditedHistory``.
final class StoreBed {
    let installation: Installation
    private(set) var history = AuditedHistory()
    private(set) var worker: ChildProcess?
    /// The worker's sections `delivery` and `store`; the store's directory is `store`.
    var delivery: String
    var store: String
    /// Further sections.
    var more = "metrics: {stats-interval: 200ms}"
    /// Runs the worker: its command line follows.
    var wrapper: [String] = []
    /// How much later than it is worker and simulator think it is, in seconds.
    private(set) var clockOffset: Int64 = 0

    private let tail: OutcomeTail
    private var outcomesTaken = 0
    private let letters: TopicReader
    private var log: LineTail
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private var nextOffsets: [Int64]
    private var group: CommittedGroup
    /// When the outcomes of this worker are settled, as a number of commits of their partition.
    private var settledAt: [JobPlace: Int] = [:]
    private var lastOfDevice: [String: JobPlace] = [:]
    private var settled: Set<JobPlace> = []
    private(set) var withOutcome: Set<JobPlace> = []
    private(set) var accepted: Set<String> = []

    static let delivery = """
        {max-in-flight: 400, commit-interval: 100ms, shards: 2, return-rate: 5000, \
        retry: {initial: 20ms, maximum: 1s, max-attempts: 1000}}
        """

    init(
        partitions: Int = 4, simulatorOptions: [String] = [], delivery: String = StoreBed.delivery,
        store: String = "{directory: store, after: 1s, changelog: off}", clockOffset: Int64? = nil
    ) throws {
        self.clockOffset = clockOffset ?? 0
        installation = try Installation(
            partitions: partitions, simulatorOptions: ["--log-tokens"] + simulatorOptions,
            clockOffset: clockOffset)
        self.delivery = delivery
        self.store = store
        tail = try OutcomeTail(installation)
        letters = try TopicReader(installation.kafka, "dead-letters", partitions: 1)
        log = LineTail(installation.directory.file("pushes.jsonl"))
        producer = try KafkaProducer(
            properties: KafkaProperties(bootstrapServers: installation.kafka.bootstrapServers))
        topic = try producer.topic(installation.kafka.topic("jobs"))
        nextOffsets = Array(repeating: 0, count: partitions)
        group = try CommittedGroup(installation, number: 0)
    }

    deinit { producer.close() }

    // MARK: Time

    /// By the clock of worker and simulator, in milliseconds since the epoch.
    var now: Int64 { Int64(Date().timeIntervalSince1970 * 1_000) + clockOffset * 1_000 }

    /// Sets the clocks of worker and simulator, neither of which may run.
    func setClock(offset: Int64) { clockOffset = offset }

    // MARK: Jobs

    /// The partition that Kafka's clients would choose by the key, more or less.
    func partition(of deviceToken: String) -> Int32 {
        Int32((UInt32(deviceToken.suffix(4), radix: 16) ?? 0) % UInt32(installation.partitions))
    }

    /// Produces jobs in order and waits until Kafka has them.
    func produce(_ drafts: [JobDraft]) throws {
        var failed: [KafkaError] = []
        let produced = now
        for draft in drafts {
            let partition = partition(of: draft.deviceToken)
            let place = JobPlace(partition, nextOffsets[Int(partition)])
            nextOffsets[Int(partition)] += 1
            history.jobs[place] = AuditedJob(
                place: place, deviceToken: draft.deviceToken, kind: draft.kind, produced: produced)
            let record = draft.encoded(created: clockOffset == 0 ? nil : produced)
            let result = record.key.withUnsafeBytes { key in
                record.value.withUnsafeBytes { value in
                    producer.produce(
                        topic, key: key, value: value, headers: record.headers.map { ($0.name, $0.value) },
                        opaque: 0, partition: partition)
                }
            }
            switch result {
            case .queued: break
            case .failed(let error): throw error
            case .queueFull, .noTransaction: throw POSIXError(.ENOBUFS)
            }
        }
        try producer.flush(timeoutMilliseconds: 60_000) { if let error = $0.error { failed.append(error) } }
        if let error = failed.first { throw error }
    }

    // MARK: What is seen

    /// Takes in what has come: outcomes, dead letters, pushes and commits.
    func poll() throws {
        tail.poll()
        letters.poll()
        let outcomes = tail.outcomes[outcomesTaken...].map { AuditedOutcome($0, read: now) }
        outcomesTaken = tail.outcomes.count
        readPushes()
        // After the outcomes: a commit that is seen next time was taken after they were read.
        if !outcomes.isEmpty || group.hasMoved { try group.look() }
        for outcome in outcomes {
            history.outcomes.append(outcome)
            withOutcome.insert(outcome.place)
            // One that an earlier worker left is not settled by the commits of this one.
            if outcome.finished >= history.lives.last?.start ?? 0 {
                settledAt[outcome.place] = settlement(outcome)
            } else {
                settled.remove(outcome.place)
            }
        }
        history.unreadable = tail.unreadable + letters.records.count + log.unreadable
    }

    /// By so many commits nothing is left to do again of a job whose outcome was in Kafka just now: the first may have
    /// been on its way already; one that follows has the outcome; then what was kept leaves the store, and after that the
    /// offset is committed. What came before it for its device may need as much before.
    private func settlement(_ outcome: AuditedOutcome) -> Int {
        let key = "\(outcome.place.partition) \(outcome.deviceToken)"
        let before = lastOfDevice.updateValue(outcome.place, forKey: key).flatMap { settledAt[$0] } ?? 0
        return max(group.commits[Int(outcome.place.partition)] + 4, before + 2)
    }

    private func readPushes() {
        for line in log.read() {
            guard let arrival = AuditedArrival(line: line) else {
                log.unreadable += 1
                continue
            }
            if arrival.status == 200 { accepted.insert(arrival.apnsID) }
            history.arrivals.append(arrival)
        }
    }

    /// Jobs without an outcome as yet.
    var open: [AuditedJob] {
        history.jobs.count == withOutcome.count
            ? [] : history.jobs.values.filter { !withOutcome.contains($0.place) }
    }

    // MARK: Lives

    /// Starts a worker and waits until it has its partitions, doing `meanwhile`.
    func start(meanwhile: () throws -> Void = {}) throws {
        let ready = try launch()
        try worker!.waits(for: "the worker has partitions") {
            try poll()
            try meanwhile()
            return installation.directory.read(ready) != nil
        }
    }

    /// Starts a worker. Returns the name of the file that is there when it has its partitions.
    func launch() throws -> String {
        precondition(worker?.isRunning != true)
        let number = history.lives.count + 1
        // The embedded cluster takes long to give a dead member's partitions to another, so each worker has a group of
        // its own, for which is committed what was for the one before.
        group = try group.copied(installation, number: number)
        let ready = "worker\(number).ready"
        let path = try configuration("worker\(number).yaml")
        history.lives.append(WorkerLife(start: now))
        let arguments = [
            "run", "-c", path, "--stop-with-input", "--ready-file", installation.directory.file(ready),
        ]
        if wrapper.isEmpty {
            worker = try FakeClock.start(
                arguments, offset: clockOffset == 0 ? nil : clockOffset, installation.directory)
        } else {
            let command = try wrapper + [Executables.sluice] + arguments
            worker = try ChildProcess(command[0], Array(command.dropFirst()))
        }
        return ready
    }

    /// Writes a worker's configuration. Returns its path.
    func configuration(_ name: String, store: String? = nil, jobsTopic: String? = nil) throws -> String {
        var text = installation.configuration(
            delivery: delivery, group: group.name, more: "store: \(store ?? self.store)\n\(more)")
        if let jobsTopic {
            text = text.replacing("jobs: \(installation.kafka.topic("jobs"))", with: "jobs: \(jobsTopic)")
        }
        return try installation.directory.write(text, to: name)
    }

    /// Waits until Kafka has a commit for all that was produced: everything has an outcome or is in the store.
    func waitUntilCommitted() throws {
        let produced = nextOffsets.reduce(0, +)
        try worker!.waits(for: "all \(produced) records are committed") {
            try poll()
            try group.look()
            return group.total == produced
        }
    }

    /// SIGKILL.
    func kill() throws {
        worker!.signal(SIGKILL)
        try #require(try worker!.wait() == .signal(SIGKILL), "it ended by itself before")
        try group.look()
        // What it has not come to, no later worker does before the job is heard of once more.
        for (place, commits) in settledAt {
            if group.commits[Int(place.partition)] >= commits {
                settled.insert(place)
            } else {
                settled.remove(place)
            }
        }
        (settledAt, lastOfDevice) = ([:], [:])
        history.lives[history.lives.count - 1].settled = settled
        history.lives[history.lives.count - 1].end = .killed
    }

    /// SIGTERM.
    func stop() throws {
        #expect(try worker!.stop() == .status(0), "\(worker!.standardError.suffix(2_000))")
        history.lives[history.lives.count - 1].end = .stopped
    }

    /// Kills the simulator; what it had is not answered. Another takes its place.
    func killSimulator() throws {
        history.simulatorDeaths.append(now)
        try installation.restartSimulator(with: SIGKILL)
        history.simulatorDeaths.append(now)
    }

    /// Restarts the simulator, which must have nothing to do, with the clock of now.
    func restartSimulator() throws {
        try installation.restartSimulator(
            with: SIGTERM, clockOffset: clockOffset == 0 ? nil : clockOffset)
    }

    // MARK: The verdict

    /// Waits until every job has an outcome, doing `meanwhile` time and again.
    func finish(timeout: Duration = .seconds(90), meanwhile: () throws -> Void = {}) throws {
        do {
            try worker!.waits(for: "every job has an outcome", timeout: timeout) {
                try poll()
                try meanwhile()
                return open.isEmpty
            }
        } catch is TimedOut {
            Issue.record("\(open.count) of \(history.jobs.count) jobs had no outcome in time")
        }
    }

    /// Of the dead letters, which there should be none of: what was wrong with the records.
    var refusals: Set<String> {
        Set(letters.records.compactMap { $0.header(DeadLetter.Header.message.rawValue) })
    }

    /// What the auditor finds.
    func audit() throws -> Auditor {
        try poll()
        for (number, life) in history.lives.enumerated() where life.end == .stopped {
            let next = number + 1 < history.lives.count ? history.lives[number + 1].start : .max
            let before = number > 0 ? history.lives[number - 1].settled : []
            // After an end in order nothing is left to do of what has ended in its time.
            let ended = history.outcomes.filter { life.start <= $0.finished && $0.finished < next }
            history.lives[number].settled = before.union(ended.map(\.place))
        }
        return Auditor(history)
    }
}
