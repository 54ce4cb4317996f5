import Configuration
import Foundation
import Kafka
import SluiceModel

/// A run of `sluice redrive`: reads dead letters or outcomes, decides, reads jobs at their sources, and produces them again.
/// For use on a single thread; calls block.
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
        var period: RecordPeriod
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

        /// Longest wait for an answer of the brokers.
        var patience: Duration { cluster.patience }
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
    /// Numbers of partitions by topic; nil: there is no such topic.
    private var partitionCounts: [String: Int?] = [:]
    private var candidates: [RedriveFacts] = []
    private var ready: [RedriveItem] = []
    /// Failure of looking up a topic that jobs belong to; nil: none.
    private var lookupFailure: CommandFailure?
    /// Records of the period, for the progress.
    private var total = 0
    private let begin = ContinuousClock.now

    init(_ settings: Settings, stop: StopSignals) {
        self.settings = settings
        self.stop = stop
        check = JobCheck(settings.decoding)
        tally = RedriveTally(isDryRun: settings.isDryRun)
        ledger = RedriveLedger(settings.exceptions)
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
        let ranges = try ranges()
        total = ranges.reduce(0) { $0 + Int($1.upperBound - $1.lowerBound) }
        if let destination = settings.destination { _ = try settings.cluster.partitionCount(of: destination) }
        let hasLedger = try prepareLedger()
        let writer =
            try settings.isDryRun
            ? nil
            : RedriveWriter(writerSettings, isStopping: { [stop] in stop.isRequested }) { [self] item, end in
                ended(item, end)
            }
        defer {
            firstFault = firstFault ?? writer?.firstError?.description
            writer?.close()
            if !isComplete { progress.clear() }
        }
        // After the fencing, so that the entries of a run that was fenced are seen.
        if hasLedger { try readLedger() }
        if total > 0, !stop.isRequested { try readOrigin(ranges, writer) }
        if !stop.isRequested { try readSources(writer) }
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
                of: settings.topic, partitions: partitions, from: milliseconds,
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
            transactionalID: settings.usesTransactions ? Self.transactionalID(ledger: settings.ledger) : nil,
            fencedID: settings.usesTransactions ? nil : Self.transactionalID(ledger: settings.ledger),
            run: identifier, rate: settings.rate, patience: settings.patience)
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

    private func readLedger() throws(CommandFailure) {
        let reader = try TopicReader(
            topic: settings.ledger, start: .beginning, stopsAtEnd: true, cluster: settings.cluster)
        defer { reader.close() }
        var patience = Patience(longest: settings.patience)
        while !reader.isAtEnd, !stop.isRequested {
            try poll(reader, of: settings.ledger, &patience) { record in
                ledger.apply(key: record.key, value: record.value, partition: record.partition)
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

    /// Passes `body` the records that have arrived.
    /// - Throws: when the brokers are silent for too long.
    private func poll(
        _ reader: TopicReader, of topic: String, _ patience: inout Patience,
        _ body: (ConsumedRecord) -> Void
    ) throws(CommandFailure) {
        let before = reader.count
        let begin = ContinuousClock.now
        try reader.poll(timeoutMilliseconds: 100, body)
        patience.add(.now - begin, isAnswered: reader.count > before || reader.isAtEnd)
        guard patience.isOver else { return }
        throw CommandFailure(
            .unavailable,
            "no record of \(topic) from Kafka at \(settings.cluster.bootstrapServers) within "
                + "\(Numbers.fixed(settings.patience / .seconds(1), 0)) s; check the brokers, and run the command again"
        )
    }

    // MARK: Dead letters and outcomes

    private func readOrigin(_ ranges: [Range<Int64>], _ writer: RedriveWriter?) throws {
        let reader = try TopicReader(
            topic: settings.topic, start: .offsets(ranges.map(\.lowerBound)), stopsAtEnd: true,
            cluster: settings.cluster, bounds: ranges.map(\.upperBound))
        defer { reader.close() }
        var patience = Patience(longest: settings.patience)
        while !reader.isAtEnd, !stop.isRequested {
            try poll(reader, of: settings.topic, &patience) { take($0) }
            try handOver(writer)
            if candidates.count >= Self.mostCandidates { try readSources(writer) }
            progress.show(
                fraction: Double(reader.count) / Double(max(1, total))
                    * (settings.origin == .outcomes ? 0.5 : 1)
            ) { state }
        }
    }

    private func take(_ record: ConsumedRecord) {
        guard settings.period.contains(record.timestampMilliseconds, unstamped: false) else { return }
        tally.addRead()
        guard let facts = facts(of: record) else { return }
        guard settings.filter.matches(facts) else { return }
        tally.addSelected(facts)
        let group = RedriveTally.Group(facts)
        switch ledger.decide(place: facts.place, source: facts.source, identity: facts.identity) {
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
                deadLetter: copy.namedHeaders, glimpse: check.glimpse(of: copy), place: place,
                timestampMilliseconds: timestamp, apps: settings.apps)
            if facts == nil { tally.addUnreadable() }
            return facts
        }
    }

    /// Hands a job to the writer, with the next call of `handOver`.
    private func redrive(_ record: RecordCopy, _ facts: RedriveFacts) {
        let made: RedriveItem?
        do {
            made = try RedriveItem(
                record, of: facts, destination: settings.destination,
                before: ledger.state(of: facts.place, source: facts.source, identity: facts.identity),
                partitions: partitionCount)
        } catch {
            if lookupFailure == nil { lookupFailure = error }
            return
        }
        guard let item = made else {
            firstFault =
                firstFault
                ?? "there is no topic \(facts.source.topic); create it, or name another topic by --to"
            drop(facts, .failed)
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
        if let lookupFailure { throw lookupFailure }
        guard let writer else { return }
        for item in ready {
            if pace.wait(stop) { return }
            try writer.add(item)
            progress.show(fraction: nil) { state }
        }
    }

    /// Ends a job that isn't handed to the writer.
    private func drop(_ facts: RedriveFacts, _ end: RedriveEnd) {
        ledger.release(source: facts.source, identity: facts.identity)
        tally.add(end, RedriveTally.Group(facts))
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
            drop(wanted[index], .gone)
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
        case .differs: drop(facts, .differs)
        case .expired: drop(facts, .expired)
        }
    }

    /// Returns the bounds of the logs that candidates are in. Partitions that don't exist are missing.
    private func watermarks(_ wanted: [RedriveFacts]) throws -> [TopicPartition: Watermarks] {
        let partitions = Set(wanted.map { TopicPartition($0.source.topic, $0.source.partition) })
        var marks: [TopicPartition: Watermarks] = [:]
        do throws(KafkaError) {
            let admin = try KafkaAdmin(properties: settings.cluster.properties)
            for topic in Set(partitions.map(\.topic)) {
                guard TopicPartition.isTopicName(topic),
                    let count = try admin.partitionCount(
                        of: topic, timeoutMilliseconds: settings.cluster.limit(10_000))
                else {
                    continue
                }
                for partition in partitions where partition.topic == topic && Int(partition.partition) < count
                {
                    marks[partition] = try admin.watermarks(
                        of: partition, timeoutMilliseconds: settings.cluster.limit(10_000))
                }
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
        return marks
    }
}
