import Configuration
import Foundation
import Kafka
import SluiceModel

/// A run of `sluice redrive`: reads dead letters or outcomes, decides, reads jobs at their sources, and produces them again.
/// One thread; calls block.
final class RedriveRun {
    /// Settings of a run.
    struct Settings {
        var origin: RedriveOrigin
        /// Topic with the dead letters or outcomes.
        var topic: String
        /// Topic of the ledger.
        var ledger: String
        /// Topic to produce to; nil: the topic that each job was read from.
        var destination: String?
        var filter: RedriveFilter
        var period: RedrivePeriod
        /// Kinds of outcomes that are redriven.
        var kinds: Set<OutcomeKind> = []
        var exceptions: RedriveLedger.Exceptions = []
        var isDryRun: Bool
        var usesTransactions: Bool
        /// Highest number of jobs per second; nil: no limit.
        var rate: Double?
        var apps: RedriveApps
        var decoding: JobDecoder.Settings
        var cluster: KafkaCluster
        var producerProperties: KafkaProperties
        /// Replicas of a ledger topic that is created; -1: the brokers' default.
        var replicationFactor: Int
    }

    /// Most candidates that wait for the records at their sources.
    private static let mostCandidates = 200_000

    private let settings: Settings
    private let stop: StopSignals
    private let check: JobCheck
    /// Identifier of the run, for the ledger.
    let identifier = String(UUID().uuidString.lowercased().prefix(8))
    private(set) var tally: RedriveTally
    private var ledger: RedriveLedger
    private var progress = Progress()
    private var pace: Pace
    private var partitionCounts: [String: Int] = [:]
    private var candidates: [RedriveFacts] = []
    private var ready: [RedriveItem] = []
    /// Failure of looking up a topic that jobs belong to; nil: none.
    private var missing: CommandFailure?
    /// Records of the period, for the progress.
    private var total = 0
    private let begin = ContinuousClock.now

    init(_ settings: Settings, stop: StopSignals) {
        self.settings = settings
        self.stop = stop
        check = JobCheck(settings.decoding)
        tally = RedriveTally(isDryRun: settings.isDryRun)
        ledger = RedriveLedger(settings.exceptions)
        pace = Pace(perSecond: settings.isDryRun ? nil : settings.rate)
    }

    /// Whether everything selected was processed.
    private(set) var isComplete = false
    /// Error of the first job that could not be produced; nil: none.
    private(set) var firstError: KafkaError?
    /// Entries of earlier runs in the ledger.
    private(set) var ledgerCount = 0

    /// Runs to the end of the topic as it is now, or until a stop is requested.
    func run() throws {
        let ranges = try ranges()
        total = ranges.reduce(0) { $0 + Int($1.upperBound - $1.lowerBound) }
        if let destination = settings.destination { _ = try partitionCount(of: destination) }
        let hasLedger = try prepareLedger()
        let writer =
            try settings.isDryRun
            ? nil
            : RedriveWriter(writerSettings) { [self] item, end in
                ended(item, end)
            }
        defer { writer?.close() }
        // After the fencing, so that the entries of a run that was fenced are seen.
        if hasLedger { try readLedger() }
        if total > 0, !stop.isRequested { try readOrigin(ranges, writer) }
        if !stop.isRequested { try readSources(writer) }
        if !stop.isRequested { try writer?.flush() }
        isComplete = !stop.isRequested
        firstError = writer?.firstError
        progress.finish(fraction: isComplete ? 1 : nil, state)
    }

    private var state: String {
        let redriven = tally[.redriven]
        return
            "\(Numbers.grouped(tally.read)) read, \(Numbers.grouped(tally.selected)) selected, "
            + "\(Numbers.grouped(redriven)) \(settings.isDryRun ? "would be redriven" : "redriven"), "
            + Numbers.rate(redriven, over: ContinuousClock.now - begin)
    }

    // MARK: Ranges

    /// Returns the offsets to read, by partition.
    private func ranges() throws -> [Range<Int64>] {
        let marks = try settings.cluster.watermarks(of: settings.topic)
        let since = try offsets(from: settings.period.since, partitions: marks.count)
        let until = try offsets(from: settings.period.until, partitions: marks.count)
        return marks.indices.map { index in
            settings.period.offsets(
                low: marks[index].low, high: marks[index].high, since: since[index], until: until[index])
        }
    }

    private func offsets(from milliseconds: Int64?, partitions: Int) throws -> [Int64?] {
        guard let milliseconds else { return Array(repeating: nil, count: partitions) }
        do throws(KafkaError) {
            return try KafkaAdmin(properties: settings.cluster.properties).offsets(
                of: settings.topic, partitions: partitions, from: milliseconds)
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    private func partitionCount(of topic: String) throws(CommandFailure) -> Int {
        if let count = partitionCounts[topic] { return count }
        let count = try settings.cluster.partitionCount(of: topic)
        partitionCounts[topic] = count
        return count
    }

    // MARK: Ledger

    private var writerSettings: RedriveWriter.Settings {
        RedriveWriter.Settings(
            properties: settings.producerProperties, ledger: settings.ledger,
            transactionalID: settings.usesTransactions ? "sluice-redrive-\(settings.topic)" : nil,
            run: identifier, rate: settings.rate)
    }

    /// Creates the topic of the ledger if it is missing, unless the run is dry.
    /// - Returns: whether there is a ledger.
    private func prepareLedger() throws(CommandFailure) -> Bool {
        let rule = TopicRequirement(
            "cleanup.policy", .list(["compact"]),
            reason: "an entry that is deleted would let its job be sent a second time")
        let difference: TopicDifference?
        do throws(KafkaError) {
            let admin = try KafkaAdmin(properties: settings.cluster.properties)
            if try admin.partitionCount(of: settings.ledger) == nil {
                if settings.isDryRun { return false }
                try admin.createTopics([
                    NewTopic(
                        settings.ledger, partitions: 1, replicationFactor: settings.replicationFactor,
                        configuration: [(name: "cleanup.policy", value: "compact")])
                ])
                Terminal.error("sluice: created topic \(settings.ledger), the ledger of redriven records")
                return true
            }
            difference = try Self.configuration(of: settings.ledger, admin)?.differences(from: [rule]).first
        } catch {
            throw CommandFailure(
                .unavailable,
                "the ledger \(settings.ledger): \(error); create it with cleanup.policy=compact, or name another by --ledger"
            )
        }
        if let difference { throw CommandFailure(.configuration, "\(difference)") }
        return true
    }

    /// Returns nil where the cluster has no configuration, as the embedded one, or the user lacks the right to read it.
    private static func configuration(
        of topic: String, _ admin: KafkaAdmin
    ) throws(KafkaError) -> TopicConfiguration? {
        do throws(KafkaError) {
            return try admin.configurations(of: [topic], timeoutMilliseconds: 5_000)[0]
        } catch {
            if error.isUnsupported || error.isRefusal { return nil }
            throw error
        }
    }

    private func readLedger() throws(CommandFailure) {
        let reader = try TopicReader(
            topic: settings.ledger, start: .beginning, stopsAtEnd: true, cluster: settings.cluster)
        defer { reader.close() }
        while !reader.isAtEnd, !stop.isRequested {
            try reader.poll(timeoutMilliseconds: 100) { record in
                ledger.apply(key: record.key, value: record.value)
            }
            progress.show(fraction: nil) { "reading the ledger: \(Numbers.counted(reader.count, "record"))" }
        }
        ledgerCount = ledger.count
        if ledger.unreadable > 0 {
            progress.clear()
            Terminal.error(
                "sluice: \(settings.ledger) has \(Numbers.counted(ledger.unreadable, "record")) without a ledger's key; left out"
            )
        }
    }

    // MARK: Dead letters and outcomes

    private func readOrigin(_ ranges: [Range<Int64>], _ writer: RedriveWriter?) throws {
        let reader = try TopicReader(
            topic: settings.topic, start: .offsets(ranges.map(\.lowerBound)), stopsAtEnd: true,
            cluster: settings.cluster, bounds: ranges.map(\.upperBound))
        defer { reader.close() }
        while !reader.isAtEnd, !stop.isRequested {
            try reader.poll(timeoutMilliseconds: 100) { take($0) }
            try handOver(writer)
            if candidates.count >= Self.mostCandidates { try readSources(writer) }
            progress.show(
                fraction: Double(reader.count) / Double(max(1, total))
                    * (settings.origin == .outcomes ? 0.5 : 1)
            ) { state }
        }
    }

    private func take(_ record: ConsumedRecord) {
        guard settings.period.contains(record.timestampMilliseconds) else { return }
        tally.addRead()
        guard let facts = facts(of: record) else { return }
        guard settings.filter.matches(facts) else { return }
        tally.addSelected(facts)
        let group = RedriveTally.Group(facts)
        switch ledger.decide(place: facts.place, source: facts.source) {
        case .redriven: tally.add(.before, group)
        case .sameJob: tally.add(.sameJob, group)
        case .inDoubt: tally.add(.inDoubt, group)
        case .send:
            if facts.needsSource { candidates.append(facts) } else { redrive(RecordCopy(record), facts) }
        }
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
                deadLetter: copy.headers, glimpse: check.glimpse(of: copy), place: place,
                timestampMilliseconds: timestamp, apps: settings.apps)
            if facts == nil { tally.addUnreadable() }
            return facts
        }
    }

    /// Hands a job to the writer, with the next call of `handOver`.
    private func redrive(_ record: RecordCopy, _ facts: RedriveFacts) {
        let item: RedriveItem
        do {
            item = try RedriveItem(
                record, of: facts, destination: settings.destination, partitions: partitionCount)
        } catch {
            if missing == nil { missing = error }
            return
        }
        tally.addExample(facts)
        if item.count > 1 { tally.addRepeated() }
        if settings.origin == .deadLetters, check.error(in: item.record) != nil { tally.addInvalid() }
        if settings.isDryRun {
            tally.add(.redriven, item.group)
        } else {
            ready.append(item)
        }
    }

    private func handOver(_ writer: RedriveWriter?) throws {
        defer { ready = [] }
        if let missing {
            throw CommandFailure(missing.status, "\(missing.message); or name another topic by --to")
        }
        guard let writer else { return }
        for item in ready {
            if pace.wait(stop) { return }
            try writer.add(item)
            progress.show(fraction: nil) { state }
        }
    }

    private func ended(_ item: RedriveItem, _ end: RedriveEnd) {
        tally.add(end, item.group)
    }

    // MARK: Sources

    private func readSources(_ writer: RedriveWriter?) throws {
        guard !candidates.isEmpty else { return }
        let wanted = candidates
        candidates = []
        let plan = SourcePlan(wanted.map(\.source), watermarks: try watermarks(wanted))
        let reader = try SourceReader(settings.cluster)
        defer { reader.close() }
        var done = 0
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        try reader.read(plan, stop: stop) { index, record in
            done += 1
            judge(RecordCopy(record), wanted[index], now)
        } gone: { index in
            done += 1
            tally.add(.gone, RedriveTally.Group(wanted[index]))
        } between: {
            try handOver(writer)
            progress.show(fraction: 0.5 + 0.5 * Double(done) / Double(wanted.count)) { state }
        }
        try handOver(writer)
    }

    private func judge(_ record: RecordCopy, _ facts: RedriveFacts, _ now: Int64) {
        switch check.verdict(
            of: record, facts, nowMilliseconds: now, skipsExpired: !settings.kinds.contains(.expired))
        {
        case .same: redrive(record, facts)
        case .differs: tally.add(.differs, RedriveTally.Group(facts))
        case .expired: tally.add(.expired, RedriveTally.Group(facts))
        }
    }

    /// Returns the bounds of the logs that candidates are in. Partitions that don't exist are missing.
    private func watermarks(_ wanted: [RedriveFacts]) throws -> [TopicPartition: Watermarks] {
        let partitions = Set(wanted.map { TopicPartition($0.source.topic, $0.source.partition) })
        var marks: [TopicPartition: Watermarks] = [:]
        do throws(KafkaError) {
            let admin = try KafkaAdmin(properties: settings.cluster.properties)
            for topic in Set(partitions.map(\.topic)) {
                guard TopicPartition.isTopicName(topic), let count = try admin.partitionCount(of: topic)
                else {
                    continue
                }
                for partition in partitions where partition.topic == topic && Int(partition.partition) < count
                {
                    marks[partition] = try admin.watermarks(of: partition)
                }
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
        return marks
    }
}
