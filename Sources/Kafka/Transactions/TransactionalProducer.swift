import CRdkafka

/// A producer whose records and consumer offsets become visible together or not at all (Kafka's transactions, KIP-98 and
/// KIP-447): `initialize` once, then again and again `begin`, produce, `sendOffsets`, `commit`.
///
/// The steps block inside librdkafka for a round trip or many, so they run on a thread of the producer's own. Starting one
/// returns at once; its result is announced through `notify`'s descriptor and taken with `takeResult`. One step at a time.
/// `TransactionCycle` decides which is next.
///
/// While a step runs, **delivery reports must be polled** as always (`producer.pollDeliveryReports`): `commit` and `abort`
/// wait until each record has its report and that was handed over. So all reports of a transaction come before its result.
/// Within a transaction a report of success means that the record is in the log; it counts only with the commit.
///
/// Readers see the records with `isolation.level=read_committed`, librdkafka's default, after the commit; a reader with
/// `read_uncommitted` sees also what is open and what was aborted.
///
/// Two producers with the same transactional identifier: the later `initialize` ends the other's open transaction and locks
/// it out (`KafkaError.isFenced`). An identifier is for one producer: stable for a worker across its restarts, so that a
/// new start does not wait for `transaction.timeout.ms` (Sluice's default: 15 s, librdkafka's: 60 s) until the coordinator
/// gives up what the old one left open.
///
/// Threads: records are produced on any thread; steps, results and polls belong to one thread at a time.
public final class TransactionalProducer: Sendable {
    /// Takes the records, while a transaction is open (`ProduceResult.noTransaction` otherwise), and has the delivery
    /// reports. Don't `flush` or `purge` it: `commit` and `abort` do.
    public let producer: KafkaProducer
    public let transactionalID: String
    private let thread: TransactionThread

    /// Creates the client. Connections are made in the background: a broker that cannot be reached is an event.
    ///
    /// - Parameters:
    ///   - properties: as for `KafkaProducer`. `message.timeout.ms` and `socket.timeout.ms` follow
    ///     `transaction.timeout.ms` and must not be above it.
    ///   - transactionalID: not empty.
    ///   - events: as for `KafkaProducer`.
    /// - Throws: an error that names the property that is missing, unknown, bad or not to be changed.
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

    deinit { thread.end() }

    // MARK: Steps

    /// Starts `TransactionStep.initialize`.
    /// - Parameter timeoutMilliseconds: after that the step ends as retriable, and goes on when it is started again. -1:
    ///   librdkafka's limit, twice `transaction.timeout.ms`.
    /// - Throws: `_CONFLICT` when a step is under way or its result was not taken. So do the other steps.
    public func initialize(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .initialize, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.begin`. Without records and offsets, a transaction costs the brokers nothing, so one can be
    /// begun long before it is used.
    public func begin() throws(KafkaError) {
        try thread.start(.init(step: .begin, timeoutMilliseconds: -1))
    }

    /// Starts `TransactionStep.sendOffsets`. Per partition the last one sent counts.
    /// - Parameters:
    ///   - offsets: none: the step succeeds and does nothing.
    ///   - group: the consumer's, as it is now.
    public func sendOffsets(
        _ offsets: [OffsetCommit], group: ConsumerGroupMetadata, timeoutMilliseconds: Int32 = -1
    ) throws(KafkaError) {
        try thread.start(
            .init(
                step: .sendOffsets, offsets: offsets, group: group, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.commit`.
    /// - Parameter timeoutMilliseconds: after that the step ends as retriable and goes on in the background. -1: as long as
    ///   the transaction can last, which librdkafka recommends.
    public func commit(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .commit, timeoutMilliseconds: timeoutMilliseconds))
    }

    /// Starts `TransactionStep.abort`. Records that were not sent yet get a report that says `_PURGE_QUEUE`.
    /// - Parameter timeoutMilliseconds: as for `commit`.
    public func abort(timeoutMilliseconds: Int32 = -1) throws(KafkaError) {
        try thread.start(.init(step: .abort, timeoutMilliseconds: timeoutMilliseconds))
    }

    // MARK: Results

    /// The result of the step that was started last, once.
    public func takeResult() -> TransactionResult? { thread.takeResult() }

    /// A step was started and its result has not been taken.
    public var isBusy: Bool { thread.isBusy }

    /// Waits for the result of the step that was started last, and polls meanwhile. For tools, tests and a worker's start.
    /// - Returns: `nil` after the given time, or when no step was started.
    public func wait(
        timeoutMilliseconds: Int32 = .max, _ reports: (borrowing DeliveryReport) -> Void = { _ in }
    ) -> TransactionResult? {
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        while isBusy {
            producer.pollDeliveryReports(reports)
            if let result = takeResult() { return result }
            if deadline.hasPassed { return nil }
            // A result that comes ends this; one that came just before costs its time once.
            producer.pollDeliveryReports(
                timeoutMilliseconds: min(20, deadline.remainingMilliseconds), reports)
        }
        return nil
    }

    /// As `KafkaProducer.notify`, and for results too: poll delivery reports, then take the result.
    public func notify(fileDescriptor: Int32) {
        producer.notify(fileDescriptor: fileDescriptor)
        thread.notify(fileDescriptor)
    }

    /// Stops writing to the descriptor, and ends the thread when the step under way has returned; no other can be
    /// started. Abort an open transaction before: otherwise the coordinator does it after `transaction.timeout.ms`, or
    /// when the identifier is used again, and its partitions have no new end for committed readers until then.
    ///
    /// The client ends when the producer and its topics are let go of, and the thread has ended.
    public func close() {
        thread.end()
        producer.close()
    }
}
