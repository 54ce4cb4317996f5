import CRdkafka

/// A producer whose records and consumer offsets become visible together or not at all (Kafka's transactions, KIP-98
/// and KIP-447). Call `initialize` once, then repeat `begin`, produce, `sendOffsets`, `commit`.
///
/// The steps block inside librdkafka for one or more round trips, so they run on a thread of the producer's own.
/// Starting a step returns at once. `notify`'s descriptor signals the result, and `takeResult` returns it. Only one
/// step runs at a time. `TransactionCycle` decides which step is next.
///
/// **Poll delivery reports** (`producer.pollDeliveryReports`) while a step runs, as always. `commit` and `abort` wait
/// until each record's report exists and was polled. So all reports of a transaction precede its result. Within a
/// transaction a successful report means that the record is in the log; the record counts only with the commit.
///
/// After the commit, readers see the records with `isolation.level=read_committed`, librdkafka's default. A reader with
/// `read_uncommitted` also sees open and aborted records.
///
/// With two producers of the same transactional identifier, the later `initialize` aborts the other's open transaction.
/// It also fences the other producer (`KafkaError.isFenced`). An identifier belongs to one producer, and stays the same
/// across a worker's restarts. Otherwise a new start waits until the coordinator aborts the old producer's open
/// transaction, after `transaction.timeout.ms` (Sluice's default: 15 s, librdkafka's: 60 s).
///
/// Threads: records are produced on any thread; steps, results and polls belong to one thread at a time.
public final class TransactionalProducer: Sendable {
    /// Producer that accepts records while a transaction is open (`ProduceResult.noTransaction` otherwise) and has the
    /// delivery reports. Don't `flush` or `purge` it: `commit` and `abort` do.
    public let producer: KafkaProducer
    /// Identifier by which Kafka fences an earlier producer; not empty.
    public let transactionalID: String
    private let thread: TransactionThread

    /// Creates the client. Connections are made in the background: an unreachable broker is an event.
    ///
    /// - Parameters:
    ///   - properties: As for `KafkaProducer`. `message.timeout.ms` and `socket.timeout.ms` follow
    ///     `transaction.timeout.ms` and must not exceed it.
    ///   - transactionalID: Not empty.
    ///   - events: As for `KafkaProducer`.
    /// - Throws: an error that names the property that is missing, unknown, invalid or fixed.
    public init(
        properties: KafkaProperties, transactionalID: String,
        events: @escaping @Sendable (KafkaProducerEvent) -> Void = { _ in }
    ) throws(KafkaError) {
        guard !transactionalID.isEmpty else {
            throw .invalid("transactional producer: the transactional identifier is empty")
        }
        let configuration = try ClientConfiguration(
            .transactionalProducer, properties, transactionalID: transactionalID)
        let client = try ProducerClient(configuration, events)
        thread = try TransactionThread(client)
        producer = KafkaProducer(client: client)
        self.transactionalID = transactionalID
    }

    deinit { thread.stop() }

    // MARK: Steps

    /// Starts `TransactionStep.initialize`.
    /// - Parameter timeoutMilliseconds: Time after which the step ends as retriable; starting the step again continues
    ///   it. -1: librdkafka's limit, twice `transaction.timeout.ms`.
    /// - Throws: `_CONFLICT` when a step is running or its result was not taken. The other steps throw the same.
    public func initialize(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .initialize, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.begin`. A transaction without records and offsets costs the brokers nothing, so it can
    /// begin long before its first record.
    public func beginTransaction() throws(KafkaError) {
        try thread.start(.init(step: .begin, timeoutMilliseconds: -1))
    }

    /// Starts `TransactionStep.sendOffsets`. The last offset sent for a partition counts.
    /// - Parameters:
    ///   - offsets: Offsets to commit; with an empty list the step succeeds and does nothing.
    ///   - group: The consumer's current group metadata.
    public func sendOffsets(
        _ offsets: [OffsetCommit], group: ConsumerGroupMetadata, timeoutMilliseconds: Int32 = -1
    ) throws(KafkaError) {
        try thread.start(
            .init(
                step: .sendOffsets, offsets: offsets, group: group, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.commit`.
    /// - Parameter timeoutMilliseconds: Time after which the step ends as retriable and continues in the background.
    ///   -1: as long as the transaction can last, which librdkafka recommends.
    public func commit(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .commit, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.abort`. Records not sent yet get a report with the error `_PURGE_QUEUE`.
    /// - Parameter timeoutMilliseconds: as for `commit`.
    public func abort(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .abort, timeoutMilliseconds: timeoutMilliseconds))
    }

    // MARK: Results

    /// Returns the result of the last started step, once.
    public func takeResult() -> TransactionResult? { thread.takeResult() }

    /// Whether a step was started and its result was not taken.
    public var isBusy: Bool { thread.isBusy }

    /// Waits for the result of the last started step, and polls meanwhile. For tools, tests and a worker's start.
    /// - Returns: `nil` after the given time, or when no step was started.
    public func wait(
        timeoutMilliseconds: Int32 = .max, _ reports: (borrowing DeliveryReport) -> Void = { _ in }
    ) -> TransactionResult? {
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        while isBusy {
            producer.pollDeliveryReports(reports)
            if let result = takeResult() { return result }
            if deadline.hasPassed { return nil }
            // An arriving result ends this poll; a result that arrived just before costs its time once.
            producer.pollDeliveryReports(
                timeoutMilliseconds: min(20, deadline.remainingMilliseconds), reports)
        }
        return nil
    }

    /// Signals delivery reports, as `KafkaProducer.notify` does, and results. Poll delivery reports, then take the
    /// result.
    public func notify(fileDescriptor: Int32) {
        producer.notify(fileDescriptor: fileDescriptor)
        thread.notify(fileDescriptor)
    }

    /// Stops writing to the descriptor, and ends the thread when the running step has returned; no other step can
    /// start. Abort an open transaction before. Otherwise the coordinator aborts it after `transaction.timeout.ms`, or
    /// when the identifier is used again. Until then its partitions have no new end for committed readers.
    ///
    /// The client ends when the producer and its topics are released and the thread has ended.
    public func close() {
        thread.stop()
        producer.close()
    }
}
