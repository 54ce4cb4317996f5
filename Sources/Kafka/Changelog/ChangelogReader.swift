import CRdkafka

/// What a reader has to tell besides records. Handed over inside `poll` and `read`, on the thread that calls them.
public enum ChangelogEvent: Sendable {
    /// Everything before the partition's end was handed over, see `ChangelogProgress.State.complete`. Records that `poll`
    /// returns from the same call belong to it.
    case complete(ChangelogProgress)
    /// Told once each time it begins, see `ChangelogProgress.State.waitingForTransaction`.
    case waitingForTransaction(ChangelogProgress)
    /// The log has no record at the position. What is there locally does not fit to the log any more: drop it and
    /// `read` the partition again from its beginning. The watermarks are those that were asked for last.
    case outOfRange(ChangelogProgress, log: Watermarks)
    /// The partition's ends could not be asked: `read` it again later.
    case failed(TopicPartition, KafkaError)
    /// Reading the partition failed, for example because its leader is unknown. librdkafka tries again.
    case partitionError(TopicPartition, KafkaError)
    /// As `KafkaConsumerEvent`: a client-wide error, a log line, statistics.
    case client(KafkaConsumerEvent)
}

/// Reads partitions of compacted topics from a given offset to the end they have when it is asked for, to restore what was
/// written there: only committed records, without a consumer group.
///
/// **The end** is the high watermark, not the last stable offset. When a worker takes a partition over, the offsets of its
/// predecessor's last transaction may be committed already while the marker has not reached the changelog's partition yet;
/// up to the last stable offset these changes would be missing. So the reader waits for transactions that are open
/// (`waitingForTransaction`). Ask for the group's committed offsets first (librdkafka waits for pending ones there), then
/// call `read`.
///
/// Partitions are read some at a time, in their order, each to its end.
///
/// **A start in the middle**, from a local checkpoint: valid only as long as the topic keeps tombstones
/// (`delete.retention.ms`, Kafka's default 24 hours). From an older one, deleted keys come back to life: begin anew.
///
/// Threads: everything on one thread at a time; records may be destroyed on any. Records must be destroyed before the
/// reader is let go of.
public final class ChangelogReader {
    private let properties: KafkaProperties
    private let events: (ChangelogEvent) -> Void
    private var consumer: KafkaConsumer!
    private var table: [TopicPartition: ChangelogProgress] = [:]
    private var watermarks: [TopicPartition: Watermarks] = [:]
    /// The partition of the last record, and its progress, kept out of the table meanwhile.
    private var current: ChangelogProgress?
    private var currentTopic: OpaquePointer?
    /// What came between the records of the poll that runs.
    private var news: [News] = []
    private var knowsLeaders = false
    /// What the client reads isn't what is to be read.
    private var isOutdated = false
    /// That this can't be changed; once until it can.
    private var hasTold = false

    /// Of partitions that are read at the same time, besides those that wait for a transaction. Enough for several brokers;
    /// whoever stores the records has that many ends to write at.
    static let mostAtOnce = 8
    /// With those that wait for a transaction.
    static let mostAssigned = 16

    private enum News {
        case end(TopicPartition, Int64)
        case outOfRange(TopicPartition)
    }

    /// - Parameters:
    ///   - properties: of a consumer. `group.id` must be there, as librdkafka wants one; nothing is asked or committed
    ///     under it. `isolation.level`, `auto.offset.reset` and `enable.partition.eof` are the reader's.
    /// - Throws: an error that names the property that is missing, unknown, bad or not to be changed.
    public init(
        properties: KafkaProperties, events: @escaping (ChangelogEvent) -> Void
    ) throws(KafkaError) {
        self.properties = properties
        self.events = events
        consumer = try KafkaConsumer(.reader, properties: properties, topics: []) { [weak self] event in
            self?.take(event)
        }
    }

    // MARK: Partitions

    /// Ends of partitions, which ``read(_:ends:)`` takes, or why there are none. Any thread. Blocks for the time of a round
    /// trip, or a second more than the given time.
    /// - Throws: when no client can be made of the properties.
    public static func ends(
        of partitions: [TopicPartition], properties: KafkaProperties, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        try LogEnds(properties).query(partitions, timeoutMilliseconds: timeoutMilliseconds)
    }

    /// Asks for the partitions' ends and begins to read, as ``read(_:ends:)`` does.
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

    /// Begins to read. Partitions that are being read go on; a partition that is named again begins anew. Blocks for two
    /// seconds at most, and only until the first leader is known.
    ///
    /// A partition with nothing to read is complete at once, and reported so.
    /// - Parameters:
    ///   - starts: `.offset` or `.beginning`.
    ///   - answers: ends of these partitions, asked for before.
    /// - Throws: when a start is something else, or the client is closed. A failure of one partition is an event.
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
                tell(progress)
            }
        }
    }

    /// What is assigned before the client knows of any leader often waits for the next time that it looks for those that are
    /// missing, which it does once a second. So it is asked something; its answer, the last stable offset, is of no use here.
    private func learnLeaders(_ answers: [TopicPartition: Result<Watermarks, KafkaError>]) {
        guard !knowsLeaders else { return }
        for case (let partition, .success) in answers {
            knowsLeaders = (try? consumer.queryWatermarks(of: partition, timeoutMilliseconds: 1_000)) != nil
            return
        }
    }

    /// Forgets partitions, for example because they were taken away. No record of them comes any more.
    public func stop(_ partitions: [TopicPartition]) throws(KafkaError) {
        putBack()
        for partition in partitions { table[partition] = nil }
        try assign()
    }

    /// Reads what is not complete, from where it is: as much of it as may be read at the same time.
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
        (isOutdated, hasTold) = (false, false)
    }

    // MARK: Records

    /// Takes up to `buffer.count` records into uninitialised `buffer`, from its start, and returns how many. Waits for the
    /// first one at most the given time. Per partition they come in the order of their offsets, which may have gaps. Each
    /// must be destroyed once by whoever holds it.
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
        takeNews()
        goOn()
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
        if before?.isComplete == false, progress.isComplete { tell(progress) }
    }

    private func goOn() {
        guard isOutdated else { return }
        // Tried again with the next poll.
        do {
            try assign()
        } catch {
            if !hasTold { events(.client(.error(error))) }
            hasTold = true
        }
    }

    private func tell(_ progress: ChangelogProgress) {
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

    /// Events come inside the consumer's poll, before the records that were ahead of them in the queue.
    private func take(_ event: KafkaConsumerEvent) {
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

    private func takeNews() {
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
        if progress.state != before { tell(progress) }
    }

    // MARK: State

    /// Per partition, in their order.
    public var progress: [ChangelogProgress] {
        table.values.sorted { $0.topicPartition < $1.topicPartition }
    }

    /// Offsets before the ends of all partitions; an upper bound for the records to come.
    public var remaining: Int64 {
        table.values.reduce(0) { sum, progress in
            // The brokers say where logs end.
            let (more, overflow) = sum.addingReportingOverflow(progress.remaining)
            return overflow ? .max : more
        }
    }

    public func progress(of partition: TopicPartition) -> ChangelogProgress? { table[partition] }

    public var isComplete: Bool { table.values.allSatisfy(\.isComplete) }

    /// Stops the client. Records stay valid.
    public func close() { consumer.close() }
}
