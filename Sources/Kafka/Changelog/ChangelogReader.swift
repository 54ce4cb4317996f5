import CRdkafka

/// Events of a reader besides records. The reader reports them inside `poll` and `read`, on the calling thread.
public enum ChangelogEvent: Sendable {
    /// Every record before the partition's end was returned, see `ChangelogProgress.State.complete`. Records that the
    /// same call of `poll` returns are included.
    case complete(ChangelogProgress)
    /// Reported once each time the wait begins, see `ChangelogProgress.State.waitingForTransaction`.
    case waitingForTransaction(ChangelogProgress)
    /// The log has no record at the position. The local copy no longer matches the log: drop the copy and `read` the
    /// partition again from its beginning. The watermarks are from the last query.
    case outOfRange(ChangelogProgress, log: Watermarks)
    /// The query for the partition's ends failed: `read` the partition again later.
    case failed(TopicPartition, KafkaError)
    /// Reading the partition failed, for example because its leader is unknown. librdkafka retries.
    case partitionError(TopicPartition, KafkaError)
    /// A client-wide error, a log line or statistics, as in `KafkaConsumerEvent`.
    case client(KafkaConsumerEvent)
}

/// Restores partitions of compacted topics: reads from a given offset to the end at the time of the query. Returns only
/// committed records, and uses no consumer group.
///
/// **The end** is the high watermark, not the last stable offset. When a worker takes a partition over, the offsets of
/// its predecessor's last transaction may be committed already. The transaction's marker may not have reached the
/// changelog's partition yet. Reading up to the last stable offset would miss these changes. So the reader waits for
/// open transactions (`waitingForTransaction`). Query the group's committed offsets first, because librdkafka waits for
/// pending offsets there. Then call `read`.
///
/// The reader reads some partitions at a time, in their order, each to its end.
///
/// **A start in the middle**, from a local checkpoint, is valid only while the topic keeps tombstones
/// (`delete.retention.ms`, Kafka's default 24 hours). A start from an older checkpoint would revive deleted keys: read
/// from the beginning instead.
///
/// Threads: all calls on one thread at a time; records may be destroyed on any thread. Destroy all records before the
/// reader is released.
public final class ChangelogReader {
    private let properties: KafkaProperties
    private let events: (ChangelogEvent) -> Void
    private var consumer: KafkaConsumer!
    private var table: [TopicPartition: ChangelogProgress] = [:]
    private var watermarks: [TopicPartition: Watermarks] = [:]
    /// Progress of the last record's partition, kept out of the table meanwhile; nil before the first record of a poll.
    private var current: ChangelogProgress?
    private var currentTopic: OpaquePointer?
    /// Ends and range errors that the running poll has reported between its records.
    private var news: [News] = []
    private var knowsLeaders = false
    /// Whether the client's assignment differs from the partitions to read.
    private var isOutdated = false
    /// Whether the failure to change the assignment was already reported; reset once a change succeeds.
    private var hasReported = false

    /// Partitions read at the same time, besides those that wait for a transaction. Enough for several brokers. The
    /// code that stores the records writes at as many ends.
    static let mostAtOnce = 8
    /// Partitions assigned at the same time, including those that wait for a transaction.
    static let mostAssigned = 16

    private enum News {
        case end(TopicPartition, Int64)
        case outOfRange(TopicPartition)
    }

    /// - Parameters:
    ///   - properties: Properties of a consumer. `group.id` is required, because librdkafka demands a group. The reader
    ///     neither queries nor commits offsets of the group. The reader sets `isolation.level`, `auto.offset.reset` and
    ///     `enable.partition.eof`.
    /// - Throws: an error that names the property that is missing, unknown, invalid or fixed.
    public init(
        properties: KafkaProperties, events: @escaping (ChangelogEvent) -> Void
    ) throws(KafkaError) {
        self.properties = properties
        self.events = events
        consumer = try KafkaConsumer(.reader, properties: properties, topics: []) { [weak self] event in
            self?.handle(event)
        }
    }

    // MARK: Partitions

    /// Returns the ends of partitions for ``read(_:ends:)``, or the error per partition. Any thread. Blocks for a round
    /// trip, at most a second more than the given time.
    /// - Throws: when no client can be created from the properties.
    public static func ends(
        of partitions: [TopicPartition], properties: KafkaProperties, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        try LogEnds(properties).query(partitions, timeoutMilliseconds: timeoutMilliseconds)
    }

    /// Queries the partitions' ends and begins to read, as ``read(_:ends:)`` does.
    public func read(
        _ starts: [TopicPartitionOffset], timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) {
        try Self.check(starts)
        let ends = try Self.ends(
            of: starts.map(\.topicPartition), properties: properties, timeoutMilliseconds: timeoutMilliseconds
        )
        try read(starts, ends: ends)
    }

    private static func check(_ starts: [TopicPartitionOffset]) throws(KafkaError) {
        for start in starts {
            switch start.start {
            case .beginning, .offset(0...): break
            default: throw .invalid("read \(start.topicPartition): a changelog has no start \(start.start)")
            }
        }
    }

    /// Begins to read. Partitions that are being read continue; a partition that is named again starts over. Blocks for
    /// two seconds at most, and only until the first leader is known.
    ///
    /// A partition with nothing to read is complete at once, and reported as complete.
    /// - Parameters:
    ///   - starts: `.offset` or `.beginning` for each partition.
    ///   - answers: Ends of these partitions, from an earlier query.
    /// - Throws: when a start has another kind, or the client is closed. A failure of one partition is an event.
    public func read(
        _ starts: [TopicPartitionOffset], ends answers: [TopicPartition: Result<Watermarks, KafkaError>]
    ) throws(KafkaError) {
        try Self.check(starts)
        guard !starts.isEmpty else { return }
        putBack()
        learnLeaders(answers)
        try consumer.remove(starts.map(\.topicPartition).filter(Set(consumer.assignment).contains))
        for start in starts {
            let partition = start.topicPartition
            switch answers[partition] {
            case .success(let marks):
                watermarks[partition] = marks
                table[partition] = ChangelogProgress(partition, from: start.start, marks)
            case .failure, nil:
                table[partition] = ChangelogProgress(failed: partition, from: start.start)
            }
        }
        try assign()
        for start in starts {
            guard let progress = table[start.topicPartition] else { continue }
            if case .failure(let error) = answers[start.topicPartition] {
                events(.failed(start.topicPartition, error))
            } else {
                report(progress)
            }
        }
    }

    /// Queries one partition's watermarks, so that the client learns the leaders before the first assignment.
    /// Partitions assigned before any leader is known often wait for the next search for missing leaders. librdkafka
    /// searches once a second. The answer, the last stable offset, is not used.
    private func learnLeaders(_ answers: [TopicPartition: Result<Watermarks, KafkaError>]) {
        guard !knowsLeaders else { return }
        for case (let partition, .success) in answers {
            knowsLeaders = (try? consumer.queryWatermarks(of: partition, timeoutMilliseconds: 1_000)) != nil
            return
        }
    }

    /// Drops partitions, for example because they were revoked. `poll` returns no record of them any more.
    public func stop(_ partitions: [TopicPartition]) throws(KafkaError) {
        putBack()
        for partition in partitions { table[partition] = nil }
        try assign()
    }

    /// Assigns incomplete partitions from their positions, as many as may be read at the same time.
    private func assign() throws(KafkaError) {
        isOutdated = true
        try consumer.remove(consumer.assignment.filter { table[$0]?.isReading != true })
        let assigned = Set(consumer.assignment)
        let busy = assigned.filter { table[$0]?.state == .reading }.count
        let room = min(Self.mostAtOnce - busy, Self.mostAssigned - assigned.count)
        let next = progress.filter { $0.isReading && !assigned.contains($0.topicPartition) }
        try consumer.add(
            next.prefix(max(0, room)).map {
                TopicPartitionOffset($0.topicPartition, .offset($0.position))
            })
        (isOutdated, hasReported) = (false, false)
    }

    // MARK: Records

    /// Writes up to `buffer.count` records into uninitialised `buffer`, from its start, and returns their number. Waits
    /// at most the given time for the first record. Records of a partition come in the order of their offsets, which
    /// may have gaps. The holder destroys each record exactly once.
    public func poll(
        into buffer: UnsafeMutableBufferPointer<ConsumedRecord>, timeoutMilliseconds: Int32 = 0
    ) -> Int {
        let taken = consumer.poll(into: buffer, timeoutMilliseconds: timeoutMilliseconds)
        var count = 0
        for index in 0..<taken {
            let record = buffer[index]
            if admit(record) {
                buffer[count] = record
                count += 1
            } else {
                record.destroy()
            }
        }
        putBack()
        applyEvents()
        reassign()
        return count
    }

    private func admit(_ record: ConsumedRecord) -> Bool {
        let topic = record.message.pointee.rkt
        if current == nil || currentTopic != topic || current?.topicPartition.partition != record.partition {
            putBack()
            guard let name = rd_kafka_topic_name(topic) else { return false }
            current = table[TopicPartition(String(cString: name), record.partition)]
            currentTopic = topic
        }
        guard current?.isReading == true, current!.admit(record.offset) else { return false }
        return true
    }

    private func putBack() {
        guard let progress = current else { return }
        current = nil
        let before = table.updateValue(progress, forKey: progress.topicPartition)
        if before?.isComplete == false, progress.isComplete { report(progress) }
    }

    private func reassign() {
        guard isOutdated else { return }
        // Retried with the next poll.
        do {
            try assign()
        } catch {
            if !hasReported { events(.client(.error(error))) }
            hasReported = true
        }
    }

    private func report(_ progress: ChangelogProgress) {
        isOutdated = true
        switch progress.state {
        case .complete: events(.complete(progress))
        case .waitingForTransaction: events(.waitingForTransaction(progress))
        case .outOfRange:
            events(
                .outOfRange(
                    progress, log: watermarks[progress.topicPartition] ?? Watermarks(low: 0, high: 0)))
        case .reading, .failed: break
        }
    }

    /// Collects events, which arrive inside the consumer's poll, before the records that were ahead of them in the
    /// queue.
    private func handle(_ event: KafkaConsumerEvent) {
        switch event {
        case .endOfPartition(let partition, let offset): news.append(.end(partition, offset))
        case .partitionError(let partition, let error):
            if error.code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET.rawValue {
                news.append(.outOfRange(partition))
            } else {
                events(.partitionError(partition, error))
            }
        default: events(.client(event))
        }
    }

    private func applyEvents() {
        guard !news.isEmpty else { return }
        for item in news {
            switch item {
            case .end(let partition, let offset): change(partition) { $0.reachedEnd(at: offset) }
            case .outOfRange(let partition): change(partition) { $0.state = .outOfRange }
            }
        }
        news.removeAll(keepingCapacity: true)
    }

    private func change(_ partition: TopicPartition, _ body: (inout ChangelogProgress) -> Void) {
        guard var progress = table[partition], progress.isReading else { return }
        let before = progress.state
        body(&progress)
        table[partition] = progress
        if progress.state != before { report(progress) }
    }

    // MARK: State

    /// Progress of all partitions, sorted by partition.
    public var progress: [ChangelogProgress] {
        table.values.sorted { $0.topicPartition < $1.topicPartition }
    }

    /// Offsets before the ends of all partitions; an upper bound for the records to come.
    public var remaining: Int64 {
        table.values.reduce(0) { sum, progress in
            // The sum may overflow, because the brokers report where logs end.
            let (more, overflow) = sum.addingReportingOverflow(progress.remaining)
            return overflow ? .max : more
        }
    }

    /// Returns the progress of a partition; nil when the partition isn't read.
    public func progress(of partition: TopicPartition) -> ChangelogProgress? { table[partition] }

    /// Whether all partitions are read to their ends.
    public var isComplete: Bool { table.values.allSatisfy(\.isComplete) }

    /// Stops the client. Records stay valid.
    public func close() { consumer.close() }
}
