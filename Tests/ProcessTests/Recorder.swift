import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Produces the jobs of an audited load, and records what can be known of them from outside: an ``AuditedHistory``.
/// Subclasses add what they know of the workers.
class Recorder {
    let bed: Bed
    var history = AuditedHistory()
    /// Jobs with an outcome.
    private(set) var withOutcome: Set<JobPlace> = []
    /// `apns-id`s that APNs has accepted.
    private(set) var accepted: Set<String> = []
    /// By partition.
    private(set) var nextOffsets: [Int64]

    private var outcomesTaken = 0
    private let letters: TopicReader
    private var log: LineTail
    private var unreadableLines = 0
    private let producer: KafkaProducer
    private let topic: KafkaTopic

    init(_ bed: Bed) throws {
        self.bed = bed
        letters = try TopicReader(bed.kafka, "dead-letters", partitions: 1)
        log = LineTail(bed.directory.file("pushes.jsonl"))
        producer = try KafkaProducer(
            properties: KafkaProperties(bootstrapServers: bed.kafka.bootstrapServers))
        topic = try producer.topic(bed.kafka.topic("jobs"))
        nextOffsets = Array(repeating: 0, count: bed.partitions)
    }

    deinit { producer.close() }

    var now: Int64 { bed.now }

    // MARK: Jobs

    /// A partition by the key, as Kafka's clients would choose one.
    func partition(of deviceToken: String) -> Int32 {
        Int32((UInt32(deviceToken.suffix(4), radix: 16) ?? 0) % UInt32(bed.partitions))
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
            let record = draft.encoded(created: bed.clockOffset == 0 ? nil : produced)
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

    // MARK: Observations

    /// Records new outcomes, dead letters and pushes, and what ``observeWorkers(_:)`` adds.
    func poll() throws {
        bed.outcomes.poll()
        letters.poll()
        let outcomes = bed.outcomes.outcomes[outcomesTaken...].map { AuditedOutcome($0, read: now) }
        outcomesTaken = bed.outcomes.outcomes.count
        history.outcomes += outcomes
        for outcome in outcomes { withOutcome.insert(outcome.place) }
        for line in log.read() {
            guard let arrival = AuditedArrival(line: line) else {
                unreadableLines += 1
                continue
            }
            if arrival.status == 200 { accepted.insert(arrival.apnsID) }
            history.arrivals.append(arrival)
        }
        history.unreadable = bed.outcomes.unreadable + letters.records.count + unreadableLines
        try observeWorkers(outcomes)
    }

    /// Called by ``poll()``, after it has read `outcomes`.
    func observeWorkers(_ outcomes: [AuditedOutcome]) throws {}

    /// Jobs without an outcome as yet.
    var open: [AuditedJob] {
        history.jobs.count == withOutcome.count
            ? [] : history.jobs.values.filter { !withOutcome.contains($0.place) }
    }

    /// Messages of the dead letters, of which an audited load must have none.
    var refusals: Set<String> {
        Set(letters.records.compactMap { $0.header(DeadLetter.Header.message.rawValue) })
    }

    // MARK: Verdict

    /// Called by ``judge(_:seed:)``: ends the workers that still run.
    func endWorkers() throws {}

    /// Called by ``judge(_:seed:)``: completes the history.
    func completeHistory() {}

    /// Ends the workers, and records an issue for each broken promise that the auditor finds, five at most.
    func judge(_ what: String, seed: UInt64) throws {
        try endWorkers()
        try poll()
        completeHistory()
        let repeated = history.outcomes.count - history.jobs.count
        print(
            """
            \(what), seed \(seed): \(history.jobs.count) jobs, \(history.arrivals.count) pushes at APNs, \
            \(repeated) outcomes repeated
            """)
        if let page = bed.page {
            for violation in try DeviceTruth(page: page).violations(history.arrivals).prefix(5) {
                Issue.record("seed \(seed): \(violation)")
            }
        }
        let violations = Auditor(history).violations
        for violation in violations.prefix(5) { Issue.record("seed \(seed): \(violation)") }
        #expect(violations.count == 0, "seed \(seed)")
    }
}
