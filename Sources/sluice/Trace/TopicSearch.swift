import Foundation
import Kafka
import SluiceModel

/// Search of one topic: its extent, and how far it was read.
struct TopicSearch: Sendable {
    var topic: String
    /// Records read.
    var records = 0
    var period: RecordPeriod
    /// True when all records of the period were read.
    var isComplete = false
    /// Fault in words; nil without.
    var failure: String?
}

/// Records that a trace may still read, in all topics together. Pure.
struct RecordBudget: Sendable {
    /// Records that may still be read; not negative.
    private(set) var left: Int
    /// True when a record was left out, or not waited for, because of the limit.
    private(set) var isExceeded = false

    init(_ limit: Int) { left = max(0, limit) }

    /// Takes a record that has arrived. Returns false when the record has to be left out.
    mutating func take() -> Bool {
        guard left > 0 else {
            isExceeded = true
            return false
        }
        left -= 1
        return true
    }

    /// Returns whether a search goes on after its arrived records.
    /// - Parameter isAtEnd: whether all records have arrived.
    mutating func continues(isAtEnd: Bool) -> Bool {
        guard !isAtEnd else { return false }
        if left == 0 { isExceeded = true }
        return left > 0
    }
}

/// Reads topics for a trace, up to a number of records in all. Joins no group. One thread; calls block.
final class TopicSearcher {
    private let cluster: KafkaCluster
    private let isStopping: () -> Bool
    private var budget: RecordBudget
    private var progress = Progress()
    private let begin = ContinuousClock.now

    /// - Parameters:
    ///   - limit: most records to read in all.
    ///   - isStopping: returns whether a stop is requested; called on this thread.
    init(_ cluster: KafkaCluster, limit: Int, isStopping: @escaping () -> Bool) {
        self.cluster = cluster
        self.isStopping = isStopping
        budget = RecordBudget(limit)
    }

    /// True when the limit kept records from being searched.
    var isLimited: Bool { budget.isExceeded }

    /// Passes `body` the records of a period, in the order of each partition.
    func search(_ topic: String, _ period: RecordPeriod, _ body: (ConsumedRecord) -> Void) -> TopicSearch {
        var search = TopicSearch(topic: topic, period: period)
        // A lookup could wait for brokers that are away.
        guard !isStopping() else { return search }
        do throws(CommandFailure) {
            try read(topic, period, &search, body)
        } catch {
            search.failure = error.message
        }
        progress.clear()
        return search
    }

    private func read(
        _ topic: String, _ period: RecordPeriod, _ search: inout TopicSearch, _ body: (ConsumedRecord) -> Void
    ) throws(CommandFailure) {
        let ranges = try ranges(topic, period)
        let total = ranges.reduce(0) { $0 + Int($1.upperBound - $1.lowerBound) }
        guard total > 0 else {
            search.isComplete = true
            return
        }
        let reader = try TopicReader(
            topic: topic, start: .offsets(ranges.map(\.lowerBound)), stopsAtEnd: true, cluster: cluster,
            bounds: ranges.map(\.upperBound))
        defer { reader.close() }
        var patience = Patience(longest: cluster.patience)
        while budget.continues(isAtEnd: reader.isAtEnd), !isStopping() {
            let before = reader.count
            let start = ContinuousClock.now
            try reader.poll(timeoutMilliseconds: 100) { record in
                guard budget.take() else { return }
                search.records += 1
                if period.contains(record.timestampMilliseconds, unstamped: true) { body(record) }
            }
            patience.add(.now - start, isAnswered: reader.count > before || reader.isAtEnd)
            guard !patience.isOver else {
                throw CommandFailure(
                    .unavailable,
                    "no record from Kafka at \(cluster.bootstrapServers) within "
                        + "\(Numbers.fixed(cluster.patience / .seconds(1), 0)) s, after "
                        + "\(Numbers.grouped(search.records)) of \(Numbers.counted(total, "record")); check the brokers"
                )
            }
            let count = search.records
            progress.show(fraction: Double(count) / Double(total)) {
                "\(topic): \(Numbers.grouped(count)) of \(Numbers.counted(total, "record")), "
                    + Numbers.rate(count, over: ContinuousClock.now - begin)
            }
        }
        // The end may have arrived together with records that were left out.
        search.isComplete = reader.isAtEnd && !budget.isExceeded
    }

    /// Returns the offsets to read, by partition.
    private func ranges(_ topic: String, _ period: RecordPeriod) throws(CommandFailure) -> [Range<Int64>] {
        let marks = try cluster.watermarks(of: topic)
        let since = try offsets(topic, from: period.since, partitions: marks.count)
        let until = try offsets(topic, from: period.until, partitions: marks.count)
        return marks.indices.map { index in
            period.offsets(
                low: marks[index].low, high: marks[index].high, since: since[index], until: until[index])
        }
    }

    private func offsets(
        _ topic: String, from milliseconds: Int64?, partitions: Int
    ) throws(CommandFailure) -> [Int64?] {
        guard let milliseconds else { return Array(repeating: nil, count: partitions) }
        do throws(KafkaError) {
            return try KafkaAdmin(properties: cluster.properties).offsets(
                of: topic, partitions: partitions, from: milliseconds,
                timeoutMilliseconds: cluster.limit(15_000))
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    // MARK: Single records

    /// State that the events of a poll change.
    private final class Ends {
        /// Partition that is read.
        var partition: TopicPartition?
        var hasEnded = false
        var error: KafkaError?
    }

    /// Reads the records at these places. Passes `body` each place with its record, or nil when the record is gone.
    /// - Throws: when Kafka refuses a partition, or doesn't answer in time.
    func read(
        _ places: [RecordAddress], _ body: (RecordAddress, ConsumedRecord?) -> Void
    ) throws(CommandFailure) {
        guard !places.isEmpty else { return }
        var properties = cluster.properties
        properties["group.id"] = "sluice-tools"
        properties["enable.partition.eof"] = "true"
        properties["auto.offset.reset"] = "latest"
        if properties["fetch.wait.max.ms"] == nil { properties["fetch.wait.max.ms"] = "50" }
        let ends = Ends()
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 1)
        defer { buffer.deallocate() }
        do throws(KafkaError) {
            let consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                switch event {
                case .endOfPartition(let partition, _) where partition == ends.partition: ends.hasEnded = true
                case .partitionError(let partition, let error) where partition == ends.partition:
                    ends.error = error
                default: break
                }
            }
            defer { consumer.close() }
            for place in places where !isStopping() {
                (ends.hasEnded, ends.error) = (false, nil)
                ends.partition = TopicPartition(place.topic, place.partition)
                try consumer.assign([
                    TopicPartitionOffset(
                        topic: place.topic, partition: place.partition, start: .offset(place.offset))
                ])
                let deadline = ContinuousClock.now + min(.seconds(15), cluster.patience)
                var count = 0
                while count == 0, !ends.hasEnded, ends.error == nil, .now < deadline, !isStopping() {
                    count = consumer.poll(into: buffer, timeoutMilliseconds: 100)
                }
                guard count > 0 else {
                    if let error = ends.error {
                        guard error.isUnknownTopic || error.name == "_UNKNOWN_PARTITION" else { throw error }
                    } else if !ends.hasEnded {
                        if isStopping() { break }
                        throw .timedOut(reading: place)
                    }
                    body(place, nil)
                    continue
                }
                let record = buffer[0]
                body(place, record.offset == place.offset ? record : nil)
                record.destroy()
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
    }
}
