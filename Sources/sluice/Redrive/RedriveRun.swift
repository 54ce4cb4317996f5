import Configuration
import Foundation
import Kafka
import SluiceModel

/// A run of `sluice redrive`: selects dead letters or outcomes, asks group and outcomes about their jobs, reads the jobs, and
/// produces them again. For use on a single thread; calls block.
final class RedriveRun {
    /// Settings of a run.
    struct Settings {
        var origin: RedriveOrigin
        /// Topic with the dead letters or outcomes.
        var topic: String
        /// Topic with the outcomes of the same jobs.
        var outcomes: String
        /// Consumer group of the workers.
        var group: String
        /// Topic of the ledger.
        var ledger: String
        /// Topic to produce to; nil: the topic that each job was read from.
        var destination: String?
        var filter: RedriveFilter
        var period: RecordPeriod
        /// Kinds of outcomes that are redriven.
        var kinds: Set<OutcomeKind> = []
        /// Whether jobs that earlier runs redrove are sent once more.
        var sendsAgain: Bool
        /// Whether records that are no valid jobs are sent.
        var sendsInvalid: Bool
        var isDryRun: Bool
        /// Highest number of jobs per second; nil: no limit.
        var rate: Double?
        var apps: RedriveApps
        var decoding: JobDecoder.Settings
        var cluster: KafkaCluster
        var producerProperties: KafkaProperties
        /// Replicas of a ledger topic that is created; -1: the brokers' default.
        var replicationFactor: Int

        /// Longest wait for an answer of the brokers.
        var patience: Duration { cluster.patience }
    }

    /// Most selected jobs that are judged together; each group of them reads the outcomes once.
    private static let mostJobs = 200_000

    private let settings: Settings
    private let stop: StopSignals
    private let check: JobCheck
    /// Identifier of the run, for the ledger.
    let identifier = String(UUID().uuidString.lowercased().prefix(8))
    private(set) var tally: RedriveTally
    private var ledger: RedriveLedger
    private var progress = Progress()
    private var pace: Pace
    /// Numbers of partitions by topic; nil: there is no such topic.
    private var partitionCounts: [String: Int?] = [:]
    private var selected: [RedriveFacts] = []
    private var ready: [RedriveItem] = []
    /// Failure of looking up a topic that jobs belong to; nil: none.
    private var lookupFailure: CommandFailure?
    private let begin = ContinuousClock.now

    init(_ settings: Settings, stop: StopSignals) {
        self.settings = settings
        self.stop = stop
        check = JobCheck(settings.decoding)
        tally = RedriveTally(isDryRun: settings.isDryRun)
        ledger = RedriveLedger(sendsAgain: settings.sendsAgain)
        // Without a limit of the delay, reading would be followed by a burst.
        pace = Pace(
            perSecond: settings.isDryRun ? nil : settings.rate, catchUp: .milliseconds(200))
    }

    /// Whether everything selected was processed.
    private(set) var isComplete = false
    /// Whether a stop is requested.
    var isStopping: Bool { stop.isRequested }
    /// Fault of the first job that could not be produced, in words; nil: none.
    private(set) var firstFault: String?
    /// Entries of earlier runs in the ledger.
    private(set) var ledgerCount = 0

    /// Runs to the end of the topic as it is now, or until a stop is requested.
    func run() throws {
        let ranges = try ranges(of: settings.topic, settings.period)
        let total = ranges.reduce(0) { $0 + Int($1.upperBound - $1.lowerBound) }
        if let destination = settings.destination { _ = try settings.cluster.partitionCount(of: destination) }
        let hasLedger = try prepareLedger()
        let writer =
            try settings.isDryRun
            ? nil
            : RedriveWriter(writerSettings, isStopping: { [stop] in stop.isRequested }) { [self] item, end in
                tally.add(end, item.group)
            }
        defer {
            firstFault = firstFault ?? writer?.firstError?.description
            writer?.close()
            if !isComplete { progress.clear() }
        }
        // After the fencing, so that the entries of a run that was fenced are seen.
        if hasLedger { try readLedger() }
        try scan(settings.topic, ranges) {
            take($0)
        } between: { count in
            if selected.count >= Self.mostJobs { try judge(writer) }
            progress.show(fraction: Double(count) / Double(max(1, total)) * 0.5) { state }
        }
        try judge(writer)
        if !stop.isRequested { try writer?.flush() }
        isComplete = !stop.isRequested
        progress.finish(fraction: isComplete ? 1 : nil, state)
    }

    private var state: String {
        let redriven = tally[.redriven]
        return
            "\(Numbers.grouped(tally.read)) read, \(Numbers.grouped(tally.selected)) selected, "
            + "\(Numbers.grouped(redriven)) \(settings.isDryRun ? "would be redriven" : "redriven"), "
            + Numbers.rate(redriven, over: ContinuousClock.now - begin)
    }

    // MARK: Topics

    /// Returns the offsets of a period, by partition. Counts those that an open transaction holds back.
    private func ranges(of topic: String, _ period: RecordPeriod) throws -> [Range<Int64>] {
        let marks = try settings.cluster.watermarks(of: topic)
        var whole = settings.cluster
        whole.properties["isolation.level"] = "read_uncommitted"
        let unread = zip(try whole.watermarks(of: topic), marks).reduce(0) {
            $0 + max(0, $1.0.high - $1.1.high)
        }
        tally.setUnread(unread, of: topic)
        let since = try offsets(from: period.since, of: topic, partitions: marks.count)
        let until = try offsets(from: period.until, of: topic, partitions: marks.count)
        return marks.indices.map { index in
            period.offsets(
                low: marks[index].low, high: marks[index].high, since: since[index], until: until[index])
        }
    }

    private func offsets(
        from milliseconds: Int64?, of topic: String, partitions: Int
    ) throws -> [Int64?] {
        guard let milliseconds else { return Array(repeating: nil, count: partitions) }
        do throws(KafkaError) {
            return try KafkaAdmin(properties: settings.cluster.properties).offsets(
                of: topic, partitions: partitions, from: milliseconds,
                timeoutMilliseconds: settings.cluster.limit(15_000))
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    /// Returns nil for a topic that doesn't exist.
    private func partitionCount(of topic: String) throws(CommandFailure) -> Int? {
        if let count = partitionCounts[topic] { return count }
        var count: Int?
        if TopicPartition.isTopicName(topic) {
            count = try settings.cluster.existingPartitionCount(of: topic)
        }
        partitionCounts.updateValue(count, forKey: topic)
        return count
    }

    // MARK: Ledger

    private var writerSettings: RedriveWriter.Settings {
        RedriveWriter.Settings(
            properties: settings.producerProperties, ledger: settings.ledger,
            transactionalID: Self.transactionalID(ledger: settings.ledger), run: identifier,
            rate: settings.rate, patience: settings.patience)
    }

    /// Returns the identifier that runs with the same ledger share, so that a later run fences an earlier one.
    static func transactionalID(ledger: String) -> String { "sluice-redrive-\(ledger)" }

    /// Creates the topic of the ledger if it is missing, unless the run is dry.
    /// - Returns: whether there is a ledger.
    private func prepareLedger() throws(CommandFailure) -> Bool {
        let rule = TopicRequirement(
            "cleanup.policy", .list(["compact"]),
            reason: "an entry that is deleted would let its job be sent a second time")
        let difference: TopicDifference?
        do throws(KafkaError) {
            let admin = try KafkaAdmin(properties: settings.cluster.properties)
            let limit = settings.cluster.limit(10_000)
            if try admin.partitionCount(of: settings.ledger, timeoutMilliseconds: limit) == nil {
                if settings.isDryRun { return false }
                try admin.createTopics(
                    [
                        NewTopic(
                            settings.ledger, partitions: 1, replicationFactor: settings.replicationFactor,
                            configuration: [(name: "cleanup.policy", value: "compact")])
                    ], timeoutMilliseconds: settings.cluster.limit(15_000))
                Terminal.error("sluice: created topic \(settings.ledger), the ledger of redriven records")
                return true
            }
            let configuration = try Self.configuration(
                of: settings.ledger, admin, timeoutMilliseconds: settings.cluster.limit(5_000))
            difference = configuration?.differences(from: [rule]).first
        } catch {
            throw CommandFailure(
                .unavailable,
                "the ledger \(settings.ledger) at \(settings.cluster.bootstrapServers): \(error); "
                    + (error.isRetriable
                        ? "check the brokers, and run the command again"
                        : "create it with cleanup.policy=compact, or name another by --ledger"))
        }
        if let difference { throw CommandFailure(.configuration, "\(difference)") }
        return true
    }

    /// Returns nil where the cluster has no configuration, as the embedded one, or the user lacks the right to read it.
    private static func configuration(
        of topic: String, _ admin: KafkaAdmin, timeoutMilliseconds: Int32
    ) throws(KafkaError) -> TopicConfiguration? {
        do throws(KafkaError) {
            return try admin.configurations(of: [topic], timeoutMilliseconds: timeoutMilliseconds)[0]
        } catch {
            if error.isUnsupported || error.isRefusal { return nil }
            throw error
        }
    }

    private func readLedger() throws {
        try scan(settings.ledger, try ranges(of: settings.ledger, RecordPeriod())) { record in
            ledger.apply(key: record.key, value: record.value)
        } between: { count in
            progress.show(fraction: nil) { "reading the ledger: \(Numbers.counted(count, "record"))" }
        }
        ledgerCount = ledger.count
        if ledger.unreadable > 0 {
            progress.clear()
            Terminal.error(
                "sluice: \(settings.ledger) has \(Numbers.counted(ledger.unreadable, "record")) without a ledger's key; left out"
            )
        }
    }

    /// Passes `body` the records of a topic's offsets, until a stop is requested.
    /// - Parameter between: called after each poll with the number of records so far.
    /// - Throws: when the brokers are silent for too long.
    private func scan(
        _ topic: String, _ ranges: [Range<Int64>], _ body: (ConsumedRecord) -> Void,
        between: (Int) throws -> Void
    ) throws {
        guard ranges.contains(where: { !$0.isEmpty }) else { return }
        let reader = try TopicReader(
            topic: topic, start: .offsets(ranges.map(\.lowerBound)), stopsAtEnd: true,
            cluster: settings.cluster, bounds: ranges.map(\.upperBound))
        defer { reader.close() }
        var patience = Patience(longest: settings.patience)
        while !reader.isAtEnd, !stop.isRequested {
            let before = reader.count
            let begin = ContinuousClock.now
            try reader.poll(timeoutMilliseconds: 100, body)
            patience.add(.now - begin, isAnswered: reader.count > before || reader.isAtEnd)
            try between(reader.count)
            guard patience.isOver else { continue }
            throw CommandFailure(
                .unavailable,
                "no record of \(topic) from Kafka at \(settings.cluster.bootstrapServers) within "
                    + "\(Numbers.fixed(settings.patience / .seconds(1), 0)) s; check the brokers, and run the command again"
            )
        }
    }

    // MARK: Dead letters and outcomes

    private func take(_ record: ConsumedRecord) {
        guard settings.period.contains(record.timestampMilliseconds, unstamped: false) else { return }
        tally.addRead()
        guard let facts = facts(of: record), settings.filter.matches(facts) else { return }
        tally.addSelected(facts)
        selected.append(facts)
    }

    /// Returns nil for a record that isn't meant, and counts a record that is none of the origin's.
    private func facts(of record: ConsumedRecord) -> RedriveFacts? {
        let place = RecordAddress(topic: settings.topic, partition: record.partition, offset: record.offset)
        let timestamp = record.timestampMilliseconds
        switch settings.origin {
        case .outcomes:
            guard let value = record.value, let outcome = OutcomeSummary(json: value) else {
                tally.addUnreadable()
                return nil
            }
            guard settings.kinds.contains(outcome.kind) else { return nil }
            return RedriveFacts(
                outcome, place: place, timestampMilliseconds: timestamp, apps: settings.apps)
        case .deadLetters:
            let copy = RecordCopy(record)
            let facts = RedriveFacts(
                deadLetter: copy.namedHeaders, glimpse: check.glimpse(of: copy),
                job: check.identity(ofDeadLetter: copy), place: place, timestampMilliseconds: timestamp,
                apps: settings.apps)
            if facts == nil { tally.addUnreadable() }
            return facts
        }
    }

    // MARK: Judgement

    /// Judges the selected jobs, and hands over those that are sent.
    private func judge(_ writer: RedriveWriter?) throws {
        let open = selected.filter { facts in
            guard let end = ledger.verdict(facts) else { return true }
            drop(facts, end)
            return false
        }
        selected = []
        if open.isEmpty || stop.isRequested { return }
        let pending = try pending(of: open)
        let later = try laterOutcomes(of: open)
        if stop.isRequested { return }
        var jobs: [RedriveFacts] = []
        for (number, facts) in open.enumerated() {
            let partition = TopicPartition(facts.source.topic, facts.source.partition)
            if let end = later[number] {
                drop(facts, end)
            } else if pending[partition]?.contains(facts.source.offset) == true {
                drop(facts, .uncommitted)
            } else {
                if pending[partition] == nil { tally.add(.uncommitted) }
                jobs.append(facts)
            }
        }
        try read(jobs, writer)
    }

    /// Returns the ends of jobs that later outcomes of the period forbid to send.
    private func laterOutcomes(of jobs: [RedriveFacts]) throws -> [Int: RedriveEnd] {
        var later = LaterOutcomes(jobs)
        let topic = settings.outcomes
        let exists = try partitionCount(of: topic) != nil
        if exists {
            try scan(topic, try ranges(of: topic, RecordPeriod(since: settings.period.since))) { record in
                guard let outcome = record.value.flatMap({ OutcomeSummary(json: $0) }) else { return }
                later.take(
                    outcome,
                    at: RecordAddress(topic: topic, partition: record.partition, offset: record.offset),
                    timestampMilliseconds: record.timestampMilliseconds)
            } between: { _ in
                progress.show(fraction: 0.5) { state }
            }
        }
        for (number, job) in jobs.enumerated() where later.ends[number] == nil {
            if !exists { tally.add(.laterOutcome) }
            let isHidden = later.hasHashes && settings.origin == .deadLetters && job.push != nil
            if job.isPushHidden || isHidden || !exists && job.push != nil { tally.add(.superseded) }
        }
        return later.ends
    }

    /// Returns the offsets that the workers' group will read, by partition of the jobs' records. Partitions without a
    /// committed offset are missing.
    private func pending(of jobs: [RedriveFacts]) throws -> [TopicPartition: Range<Int64>] {
        let marks = try watermarks(Set(jobs.map(\.source.topic)))
        let partitions = Set(jobs.map { TopicPartition($0.source.topic, $0.source.partition) })
            .filter { marks[$0] != nil }
        var pending: [TopicPartition: Range<Int64>] = [:]
        for answer in try settings.cluster.committed(Array(partitions), group: settings.group) {
            guard let offset = answer.offset, let mark = marks[answer.topicPartition] else { continue }
            pending[answer.topicPartition] = offset..<max(offset, mark.high)
        }
        return pending
    }

    /// Ends a job that isn't handed to the writer.
    private func drop(_ facts: RedriveFacts, _ end: RedriveEnd) {
        tally.add(end, RedriveTally.Group(facts))
    }

    // MARK: Jobs

    /// Reads jobs at their sources or dead letters, and hands over those that are sent.
    private func read(_ jobs: [RedriveFacts], _ writer: RedriveWriter?) throws {
        if jobs.isEmpty { return }
        let plan = SourcePlan(jobs.map(\.readAt), watermarks: try watermarks(Set(jobs.map(\.readAt.topic))))
        let reader = try SourceReader(settings.cluster)
        defer { reader.close() }
        var done = 0
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        try reader.read(plan, stop: stop) { number, record in
            done += 1
            take(RecordCopy(record), jobs[number], now)
        } gone: { number in
            done += 1
            drop(jobs[number], .gone)
        } between: {
            try handOver(writer)
            progress.show(fraction: 0.5 + 0.5 * Double(done) / Double(jobs.count)) { state }
        }
        try handOver(writer)
    }

    /// Judges a job's record, and keeps what is sent for the next call of `handOver`.
    private func take(_ record: RecordCopy, _ facts: RedriveFacts, _ now: Int64) {
        let end = check.verdict(
            of: record, facts, nowMilliseconds: now, skipsExpired: !settings.kinds.contains(.expired),
            skipsInvalid: !settings.sendsInvalid)
        if let end { return drop(facts, end) }
        guard ledger.take(facts) else { return drop(facts, .sameJob) }
        let made: RedriveItem?
        do {
            made = try RedriveItem(
                record, of: facts, destination: settings.destination,
                renewsLife: settings.kinds.contains(.expired), partitions: partitionCount)
        } catch {
            lookupFailure = lookupFailure ?? error
            return
        }
        guard let item = made else {
            firstFault =
                firstFault
                ?? "there is no topic \(facts.source.topic); create it, or name another topic by --to"
            return drop(facts, .failed)
        }
        tally.addExample(facts)
        if item.count > 1 { tally.addRepeated() }
        if settings.isDryRun { tally.add(.redriven, item.group) } else { ready.append(item) }
    }

    private func handOver(_ writer: RedriveWriter?) throws {
        defer { ready = [] }
        if let lookupFailure { throw lookupFailure }
        guard let writer else { return }
        for item in ready {
            if pace.wait(stop) { return }
            try writer.add(item)
            progress.show(fraction: nil) { state }
        }
    }

    /// Returns the bounds of the topics' logs. Topics that don't exist are missing.
    private func watermarks(_ topics: Set<String>) throws -> [TopicPartition: Watermarks] {
        var marks: [TopicPartition: Watermarks] = [:]
        for topic in topics where try partitionCount(of: topic) != nil {
            for (number, mark) in try settings.cluster.watermarks(of: topic).enumerated() {
                marks[TopicPartition(topic, Int32(number))] = mark
            }
        }
        return marks
    }
}
