import Foundation
import Kafka
import SluiceModel

/// Produces jobs again, each with its entry in the ledger: a batch and its entries are one transaction.
///
/// For use on a single thread; calls block.
final class RedriveWriter {
    /// Most records of a batch.
    static let mostRecords = 500
    /// Bytes of records from which a batch is written.
    static let mostBytes = 4 << 20
    /// Most transactions with the same jobs that the brokers abort.
    static let mostAttempts = 5
    /// Length of a single wait, in milliseconds. A request to stop is seen in between.
    private static let slice: Int32 = 100
    private static let advice = "check the brokers, and run the command again"

    /// Settings of a writer.
    struct Settings {
        var properties: KafkaProperties
        var ledger: String
        var transactionalID: String
        /// Identifier of the run, for the ledger.
        var run: String
        /// Highest number of jobs per second; nil: no limit. A batch is at most a second's worth.
        var rate: Double?
        /// Longest wait for the answers to a step; a batch has up to three steps.
        var patience = Duration.seconds(60)

        /// Brokers of the properties, for messages.
        var brokers: String { properties["bootstrap.servers"] ?? "" }
    }

    private var settings: Settings
    private let transactions: TransactionalProducer
    private var topics: [String: KafkaTopic] = [:]
    private var batch: [RedriveItem] = []
    private var batchBytes = 0
    /// Takes each item with its end, when it is known.
    private let ended: (RedriveItem, RedriveEnd) -> Void
    /// Returns whether a stop is requested. Answers on their way are then awaited for a short time only.
    private let isStopping: () -> Bool
    /// Error of the first record that could not be produced; nil: none.
    private(set) var firstError: KafkaError?

    /// Reports about the records of a transaction.
    private struct Reports {
        /// Error of the first record that failed; nil: none.
        var error: KafkaError?
        /// Whether a record was refused for its size or that of its batch.
        var isTooLarge = false
        /// Whether answers did not arrive in time.
        var isSilent = false

        mutating func take(_ failure: KafkaError?) {
            guard let failure else { return }
            error = error ?? failure
            isTooLarge = isTooLarge || failure.isTooLarge
        }
    }

    /// Connects, and fences an earlier run that is still alive. Read the ledger afterwards.
    /// - Parameters:
    ///   - isStopping: returns whether a stop is requested; called on this thread.
    ///   - ended: called on this thread, inside of the calls below.
    init(
        _ settings: Settings, isStopping: @escaping () -> Bool = { false },
        ended: @escaping (RedriveItem, RedriveEnd) -> Void
    ) throws(CommandFailure) {
        self.settings = settings
        self.isStopping = isStopping
        self.ended = ended
        do throws(KafkaError) {
            transactions = try TransactionalProducer(
                properties: settings.properties, transactionalID: settings.transactionalID
            ) { event in
                if case .error(let error) = event { Terminal.error("sluice: Kafka: \(error)") }
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
        var reports = Reports()
        let failure = try step(&reports) { (transactions) throws(KafkaError) in
            try transactions.initialize()
        }
        guard let failure else { return }
        let advice =
            failure.error.isRefusal || failure.error.isUnsupported
            ? "the brokers must have transactions, and a user needs the rights Write and Describe on the transactional "
                + "identifier \(settings.transactionalID)"
            : Self.advice
        throw CommandFailure(.unavailable, "Kafka at \(settings.brokers): \(failure); \(advice)")
    }

    /// Sets the longest wait for the answers to each later step.
    func wait(atMost patience: Duration) { settings.patience = patience }

    /// Takes a job, and writes the batch when it is full.
    func add(_ item: RedriveItem) throws(CommandFailure) {
        batch.append(item)
        batchBytes += item.record.byteCount
        let most = settings.rate.map { Int(max(1, min(Double(Self.mostRecords), $0))) } ?? Self.mostRecords
        if batch.count >= most || batchBytes >= Self.mostBytes { try flush() }
    }

    /// Writes the jobs that wait.
    func flush() throws(CommandFailure) {
        defer {
            batch = []
            batchBytes = 0
        }
        if !batch.isEmpty { try write(batch) }
    }

    /// Drops the jobs that wait, and closes the producer.
    func close() {
        batch = []
        topics = [:]
        transactions.close()
    }

    // MARK: Transactions

    private func write(_ items: [RedriveItem]) throws(CommandFailure) {
        for number in 1... {
            var reports = Reports()
            guard let error = try attempt(items, &reports) else {
                items.forEach { ended($0, .redriven) }
                return
            }
            let isOver = reports.isSilent || isStopping()
            if isOver || !reports.isTooLarge && number >= Self.mostAttempts {
                items.forEach { ended($0, .failed) }
                let fault =
                    reports.isSilent
                    ? "didn't take a batch \(withinTime), so the batch was not produced"
                    : isStopping()
                        ? "refused a batch before the stop" : "refuses the transaction again and again"
                throw CommandFailure(
                    .unavailable, "Kafka at \(settings.brokers) \(fault): \(error); \(Self.advice)")
            }
            guard reports.isTooLarge else { continue }
            // Brokers refuse batches, so that one job can be at fault, or none.
            guard items.count > 1 else {
                firstError = firstError ?? error
                return ended(items[0], .failed)
            }
            let half = items.count / 2
            do throws(CommandFailure) { try write(Array(items[..<half])) } catch {
                items[half...].forEach { ended($0, .failed) }
                throw error
            }
            return try write(Array(items[half...]))
        }
    }

    /// Writes jobs and their entries in one transaction.
    /// - Returns: nil when the transaction is committed; the error for which it is aborted.
    /// - Throws: when no other transaction can follow; the jobs have their end then.
    private func attempt(
        _ items: [RedriveItem], _ reports: inout Reports
    ) throws(CommandFailure) -> KafkaError? {
        /// End of the jobs if the present step fails for good.
        var end = RedriveEnd.failed
        do throws(CommandFailure) {
            let begun = try step(&reports) { (transactions) throws(KafkaError) in
                try transactions.beginTransaction()
            }
            if let begun { throw fault(begun) }
            var failure: TransactionFailure?
            for item in items where failure == nil {
                failure = produce(item, &reports).map { .abortable($0) }
            }
            if failure == nil {
                end = .unanswered
                failure = try step(&reports) { (transactions) throws(KafkaError) in try transactions.commit()
                }
            }
            guard let failure else { return nil }
            // A fenced commit may be the repetition of a commit that took effect. Only the ledger knows.
            guard case .abortable(let error) = failure else { throw fault(failure) }
            // Without a commit the coordinator aborts the transaction.
            end = .failed
            let aborting = try step(&reports) { (transactions) throws(KafkaError) in try transactions.abort()
            }
            if let aborting { throw fault(aborting) }
            return reports.error ?? error
        } catch {
            items.forEach { ended($0, end) }
            throw error
        }
    }

    private func fault(_ failure: TransactionFailure) -> CommandFailure {
        CommandFailure(
            .unavailable,
            failure.error.isFenced
                ? "another `sluice redrive` of the same topic has begun, and Kafka has fenced this one; what this run "
                    + "has committed is in the ledger"
                : "Kafka at \(settings.brokers): \(failure); \(Self.advice): the ledger has what is committed"
        )
    }

    /// Runs a step of the transactions to its end. Repeats a step as long as it can be repeated.
    private func step(
        _ reports: inout Reports, _ start: (TransactionalProducer) throws(KafkaError) -> Void
    ) throws(CommandFailure) -> TransactionFailure? {
        var wait = AnswerWait(settings.patience)
        while true {
            do throws(KafkaError) { try start(transactions) } catch { throw CommandFailure(kafka: error) }
            var answer: TransactionResult?
            while answer == nil {
                answer = transactions.wait(timeoutMilliseconds: Self.slice) { reports.take($0.error) }
                guard answer == nil, wait.isOver(isStopping: isStopping()) else { continue }
                throw CommandFailure(
                    .unavailable,
                    "Kafka's transaction coordinator at \(settings.brokers) didn't answer \(withinTime); "
                        + "\(Self.advice): the ledger has what is committed")
            }
            guard case .retriable = answer?.failure, !wait.isOver(isStopping: isStopping()) else {
                return answer?.failure
            }
            usleep(200_000)
        }
    }

    /// Limit of a step, for messages.
    private var withinTime: String {
        isStopping() ? "before the stop" : "within \(Numbers.fixed(settings.patience / .seconds(1), 0)) s"
    }

    // MARK: Records

    /// Queues a job and its entry. All entries are in one partition, so that they have an order. Returns the error with which the producer refuses one of them.
    private func produce(_ item: RedriveItem, _ reports: inout Reports) -> KafkaError? {
        let entry = RedriveEntry(
            source: item.source, identity: item.identity, destination: item.destination,
            atMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000), run: settings.run)
        return produce(item.destination, item.record, partition: item.partition, &reports)
            ?? produce(
                settings.ledger,
                RecordCopy(key: Array(item.place.description.utf8), value: entry.json, headers: []),
                partition: 0, &reports)
    }

    private func produce(
        _ name: String, _ record: RecordCopy, partition: Int32, _ reports: inout Reports
    ) -> KafkaError? {
        let topic: KafkaTopic
        if let known = topics[name] {
            topic = known
        } else {
            do throws(KafkaError) { topic = try transactions.producer.topic(name) } catch { return error }
            topics[name] = topic
        }
        var wait = AnswerWait(settings.patience)
        while true {
            let result = withBytes(record.key) { key in
                withBytes(record.value) { value in
                    var list = HeaderList(capacity: record.headers.count)
                    for header in record.headers {
                        header.nameBytes.withUnsafeBytes { name in
                            withBytes(header.value) { list.append(name, $0) }
                        }
                    }
                    return transactions.producer.produce(
                        topic, key: key, value: value, headers: list, opaque: 0, partition: partition)
                }
            }
            switch result {
            case .queued: return nil
            case .failed(let error):
                reports.take(error)
                return error
            case .noTransaction: return reports.error ?? .reportsMissing
            case .queueFull:
                transactions.producer.pollDeliveryReports(timeoutMilliseconds: 50) { reports.take($0.error) }
                guard wait.isOver(isStopping: isStopping()) else { continue }
                reports.isSilent = true
                return .notAcknowledged(transactions.producer.queued)
            }
        }
    }
}
