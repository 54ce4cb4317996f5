import Foundation
import Kafka
import KafkaTestSupport
import TestSupport
import Testing

/// Records one worker with a store, which a test ends and starts again.
final class StoreLives: Recorder {
    private(set) var worker: WorkerProcess!
    private let delivery: String
    /// Section `store`; its directory is `store` by default.
    private let store: String
    private var group: CommittedGroup
    /// When the outcomes of this worker are settled, as a number of commits of any partition.
    private var settledAt: [JobPlace: Int] = [:]
    private var lastOfDevice: [String: JobPlace] = [:]
    private var settled: Set<JobPlace> = []

    static let delivery = """
        {max-in-flight: 400, commit-interval: 100ms, shards: 2, return-rate: 5000, \
        retry: {initial: 20ms, maximum: 1s, max-attempts: 1000}}
        """

    init(
        _ bed: Bed, delivery: String = StoreLives.delivery,
        store: String = "{directory: store, after: 1s, changelog: off}"
    ) throws {
        self.delivery = delivery
        self.store = store
        group = try CommittedGroup(bed, number: 0)
        try super.init(bed)
    }

    override func observeWorkers(_ outcomes: [AuditedOutcome]) throws {
        // After the outcomes: a commit that is seen next time was taken after they were read.
        if !outcomes.isEmpty || group.isDue { try group.look() }
        for outcome in outcomes {
            // Commits of this worker don't settle an outcome that an earlier worker left.
            if outcome.finished >= history.lives.last?.start ?? 0 {
                settledAt[outcome.place] = settlement(outcome)
            } else {
                settled.remove(outcome.place)
            }
        }
    }

    /// Returns the number of commits after which nothing of a job is left to repeat. Its outcome was in Kafka just now.
    ///
    /// The first commit may have been on its way already, and the next one has the outcome. Then the kept push leaves
    /// the store, and after that the offset is committed. An earlier job of the device may need as much before, also if
    /// it came through another partition. One request commits all partitions that have changed.
    private func settlement(_ outcome: AuditedOutcome) -> Int {
        let key = outcome.deviceToken
        let before = lastOfDevice.updateValue(outcome.place, forKey: key).flatMap { settledAt[$0] } ?? 0
        return max(commits + 4 * group.commits.count, before + 2 * group.commits.count)
    }

    private var commits: Int { group.commits.reduce(0, +) }

    // MARK: Lives

    /// Starts a worker and waits until it has its partitions, doing `meanwhile`.
    func start(meanwhile: () throws -> Void = {}) throws {
        try launch()
        try worker.waitUntilReady {
            try poll()
            try meanwhile()
        }
    }

    /// Starts a worker.
    func launch() throws {
        precondition(worker?.isRunning != true)
        // The embedded cluster takes long to give a dead member's partitions to another. So each worker has a group of
        // its own, which starts with the commits of the one before.
        group = try group.copied(bed, number: history.lives.count + 1)
        history.lives.append(WorkerLife(start: now))
        worker = try bed.launch(options())
    }

    /// Settings of the next worker.
    func options(store: String? = nil) -> WorkerOptions {
        WorkerOptions(
            delivery: delivery, group: group.name,
            more: "store: \(store ?? self.store)\nmetrics: {stats-interval: 200ms}")
    }

    /// Waits until Kafka has a commit for all that was produced: everything has an outcome or is in the store.
    func waitUntilCommitted() throws {
        let produced = nextOffsets.reduce(0, +)
        try worker.waits(for: "all \(produced) records are committed") {
            try poll()
            try group.look()
            return group.total == produced
        }
    }

    /// SIGKILL.
    func kill() throws {
        worker.signal(SIGKILL)
        try #require(try worker.waitForEnd() == .signal(SIGKILL), "the worker ended by itself before")
        try group.look()
        // A job that is not settled now stays so until it has another outcome.
        for (place, commits) in settledAt {
            if self.commits >= commits {
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
        try worker.end()
        history.lives[history.lives.count - 1].end = .stopped
    }

    /// Kills the simulator, which answers nothing that it had, and starts another in its place.
    func killSimulator() throws {
        history.simulatorDeaths.append(now)
        try bed.restartSimulator(with: SIGKILL)
        history.simulatorDeaths.append(now)
    }

    // MARK: Verdict

    /// Waits until every job has an outcome, doing `meanwhile` again and again.
    func finish(timeout: Duration = .seconds(90), meanwhile: () throws -> Void = {}) throws {
        do {
            try worker.waits(for: "every job has an outcome", timeout: timeout) {
                try poll()
                try meanwhile()
                return open.isEmpty
            }
        } catch is TimedOut {
            Issue.record("\(open.count) of \(history.jobs.count) jobs had no outcome in time")
        }
    }

    override func endWorkers() throws {
        if !worker.isEnded { try stop() }
    }

    override func completeHistory() {
        for (number, life) in history.lives.enumerated() where life.end == .stopped {
            let next = number + 1 < history.lives.count ? history.lives[number + 1].start : .max
            let before = number > 0 ? history.lives[number - 1].settled : []
            // After an orderly end nothing is left to repeat of a job that ended during the life.
            let ended = history.outcomes.filter { life.start <= $0.finished && $0.finished < next }
            history.lives[number].settled = before.union(ended.map(\.place))
        }
    }
}

/// Commits of a group of one worker for the jobs topic.
final class CommittedGroup {
    let name: String
    private let consumer: KafkaConsumer
    private let partitions: [TopicPartition]
    private var last: [CommittedOffset] = []
    /// By partition, how often a commit was seen to differ from the one before.
    private(set) var commits: [Int]
    private var lastLook = ContinuousClock.now

    init(_ bed: Bed, number: Int, commits: [Int]? = nil) throws {
        let kafka = bed.kafka
        name = "\(kafka.group)-\(number)"
        partitions = (0..<Int32(bed.partitions)).map { TopicPartition(kafka.topic("jobs"), $0) }
        var properties = kafka.clientProperties
        properties["group.id"] = name
        consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
        self.commits = commits ?? Array(repeating: 0, count: bed.partitions)
    }

    deinit { consumer.close() }

    /// Whether the last look was long enough ago for another commit.
    var isDue: Bool { ContinuousClock.now - lastLook > .milliseconds(30) }

    /// Number of records that are committed, by the last look.
    var total: Int64 { last.reduce(0) { $0 + ($1.offset ?? 0) } }

    /// Asks Kafka for the commits.
    func look() throws {
        lastLook = .now
        let now = try consumer.committed(partitions)
        for (index, commit) in now.enumerated() where index >= last.count || last[index] != commit {
            if commit.offset != nil { commits[index] += 1 }
        }
        last = now
    }

    /// Another group with the same commits, which continues the count.
    func copied(_ bed: Bed, number: Int) throws -> CommittedGroup {
        try look()
        let copy = try CommittedGroup(bed, number: number, commits: commits)
        let commits = last.compactMap { commit in
            commit.offset.map {
                OffsetCommit(
                    topic: commit.topicPartition.topic, partition: commit.topicPartition.partition,
                    offset: $0,
                    metadata: commit.metadata)
            }
        }
        try copy.consumer.commit(commits, synchronous: true)
        copy.last = try copy.consumer.committed(partitions)
        try #require(copy.last == last, "the commits are copied")
        return copy
    }
}
