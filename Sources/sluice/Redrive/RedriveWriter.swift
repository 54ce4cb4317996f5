import Foundation
import Kafka
import SluiceModel

/// Attempts of a batch whose transactions are aborted. Pure.
struct TransactionAttempts: Sendable {
    /// Most attempts with the same jobs.
    static let most = 5

    /// Decision about the next attempt.
    enum Verdict: Equatable, Sendable {
        case again
        /// The brokers don't take the batch in time, so that a next attempt would wait as long.
        case silent
        case stopped
        /// The brokers have refused too many attempts.
        case refused
    }

    /// Attempts that were aborted.
    private var aborted = 0

    /// Takes an aborted attempt.
    /// - Parameters:
    ///   - isSilent: whether the brokers didn't take the batch in time.
    ///   - isSmaller: whether the next attempt has fewer jobs.
    mutating func aborted(isSilent: Bool, isStopping: Bool, isSmaller: Bool) -> Verdict {
        aborted += 1
        if isSilent { return .silent }
        if isStopping { return .stopped }
        return isSmaller || aborted < Self.most ? .again : .refused
    }
}

/// Produces jobs again, each with its entry in the ledger, in batches.
///
/// With transactions a batch and its entries become visible together. Without them, the intents of a batch are acknowledged
/// first, then its jobs are produced, and each acknowledged job gets its entry `done`. A run that is killed between leaves
/// intents, which later runs report as in doubt.
///
/// For use on a single thread; calls block.
final class RedriveWriter {
    /// Most records of a batch.
    static let mostRecords = 500
    /// Bytes of records from which a batch is written.
    static let mostBytes = 4 << 20
    /// Length of a single wait for reports, in milliseconds. A request to stop is seen in between.
    private static let slice: Int32 = 100

    /// Settings of a writer.
    struct Settings {
        var properties: KafkaProperties
        var ledger: String
        /// Nil without transactions.
        var transactionalID: String?
        /// Identifier of runs with transactions, which a run without transactions fences first. Nil: none.
        var fencedID: String?
        /// Identifier of the run, for the ledger.
        var run: String
        /// Highest number of jobs per second; nil: no limit. A batch is at most a second's worth.
        var rate: Double?
        /// Longest wait for the answers to a step; a batch has up to three steps.
        var patience = Duration.seconds(60)
        /// Longest wait for the fence, because brokers without transactions may never answer.
        var fencePatience: Duration { min(patience, .seconds(10)) }

        /// Brokers of the properties, for messages.
        var brokers: String { properties["bootstrap.servers"] ?? "" }
    }

    private let settings: Settings
    /// Longest wait for the answers to a step.
    private var patience: Duration
    private let producer: KafkaProducer
    /// Nil without transactions.
    private let transactions: TransactionalProducer?
    private var topics: [String: KafkaTopic] = [:]
    private var batch: [RedriveItem] = []
    private var batchBytes = 0
    /// Takes each item with its end, when it is known.
    private let ended: (RedriveItem, RedriveEnd) -> Void
    /// Returns whether a stop is requested. Answers on their way are then awaited for a short time only.
    private let isStopping: () -> Bool
    /// Number of the present step. Late reports of an earlier step have another.
    private var stepNumber: UInt = 0
    /// Error of the first record that could not be produced; nil: none.
    private(set) var firstError: KafkaError?

    /// Reports of the present step, by the records' numbers.
    private struct Reports {
        var isDelivered: [Bool]
        /// Whether a record is known not to be in Kafka.
        var isUnwritten: [Bool]
        /// Whether the brokers refused a record for its size or that of its batch.
        var isTooLarge: [Bool]
        var error: KafkaError?
        /// True when answers did not arrive in time.
        var isSilent = false
        private let step: UInt

        init(_ count: Int, step: UInt) {
            self.step = step
            isDelivered = Array(repeating: false, count: count)
            isUnwritten = Array(repeating: false, count: count)
            isTooLarge = Array(repeating: false, count: count)
        }

        /// Forgets the report of a record that is produced again.
        mutating func forget(_ index: Int) {
            isUnwritten[index] = false
            isTooLarge[index] = false
        }

        /// Returns the word that leads a record's report to its number.
        func opaque(_ number: Int) -> UInt { step << 32 | UInt(number) }

        mutating func take(_ report: borrowing DeliveryReport) {
            let index = Int(report.opaque & 0xFFFF_FFFF)
            guard report.opaque >> 32 == step, isDelivered.indices.contains(index) else { return }
            if report.isDelivered {
                isDelivered[index] = true
                return
            }
            isUnwritten[index] = report.isKnownUnwritten
            guard let failure = report.error else { return }
            if failure.isTooLarge { isTooLarge[index] = true }
            if error == nil { error = failure }
        }
    }

    /// Connects, and fences an earlier run with transactions that is still alive. Read the ledger afterwards.
    /// - Parameters:
    ///   - isStopping: returns whether a stop is requested; called on this thread.
    ///   - ended: called on this thread, inside of the calls below.
    init(
        _ settings: Settings, isStopping: @escaping () -> Bool = { false },
        ended: @escaping (RedriveItem, RedriveEnd) -> Void
    ) throws(CommandFailure) {
        self.settings = settings
        patience = settings.patience
        self.isStopping = isStopping
        self.ended = ended
        let report: @Sendable (KafkaProducerEvent) -> Void = { event in
            if case .error(let error) = event { Terminal.error("sluice: Kafka: \(error)") }
        }
        do throws(KafkaError) {
            if let identifier = settings.transactionalID {
                let transactions = try TransactionalProducer(
                    properties: settings.properties, transactionalID: identifier, events: report)
                self.transactions = transactions
                producer = transactions.producer
            } else {
                transactions = nil
                producer = try KafkaProducer(properties: settings.properties, events: report)
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
        if let failure = try step({ (transactions) throws(KafkaError) in try transactions.initialize() }) {
            let advice =
                failure.error.isRefusal || failure.error.isUnsupported
                ? "a user needs the rights Write and Describe on the transactional identifier "
                    + "\(settings.transactionalID ?? ""), and brokers without transactions need --no-transactions"
                : Self.advice
            throw CommandFailure(.unavailable, "Kafka at \(settings.brokers): \(failure); \(advice)")
        }
        if let identifier = settings.fencedID, let fault = fence(identifier) {
            Terminal.error(
                "sluice: an earlier run with transactions could not be fenced: \(fault); if such a run ended without "
                    + "Kafka's answer, stop this run, and repeat that run with --transactions")
        }
    }

    /// Fences a run with transactions, because its commit may still be on its way to the brokers.
    /// - Returns: the cause for which nothing was fenced; nil where it is fenced, or can't have had transactions.
    private func fence(_ identifier: String) -> String? {
        do throws(KafkaError) {
            let fence = try TransactionalProducer(
                properties: settings.properties, transactionalID: identifier)
            defer { fence.close() }
            var wait = AnswerWait(settings.fencePatience)
            var fault = "no answer of the transaction coordinator"
            while !wait.isOver(isStopping: isStopping()) {
                if !fence.isBusy { try fence.initialize() }
                guard let result = fence.wait(timeoutMilliseconds: Self.slice) else { continue }
                guard let failure = result.failure else { return nil }
                if failure.error.isUnsupported || failure.error.isRefusal { return nil }
                fault = "\(failure.error)"
                guard case .retriable = failure else { break }
                usleep(200_000)
            }
            return fault
        } catch {
            return "\(error)"
        }
    }

    /// Sets the longest wait for the answers to each later step.
    func wait(atMost patience: Duration) { self.patience = patience }

    /// Jobs that are not written yet.
    var waiting: Int { batch.count }

    /// Takes a job, and writes the batch when it is full.
    func add(_ item: RedriveItem) throws(CommandFailure) {
        batch.append(item)
        batchBytes += item.record.byteCount
        let most = settings.rate.map { Int(max(1, min(Double(Self.mostRecords), $0))) } ?? Self.mostRecords
        if batch.count >= most || batchBytes >= Self.mostBytes { try flush() }
    }

    /// Writes the jobs that wait.
    func flush() throws(CommandFailure) {
        let items = batch
        batch = []
        batchBytes = 0
        guard !items.isEmpty else { return }
        if transactions != nil { try writeTransaction(items) } else { try writeInSteps(items) }
    }

    /// Drops the jobs that wait, and closes the producer.
    func close() {
        batch = []
        topics = [:]
        if let transactions { transactions.close() } else { producer.close() }
    }

    private static let advice = "check the brokers, and run the command again"

    private func newReports(_ count: Int) -> Reports {
        stepNumber &+= 1
        return Reports(count, step: stepNumber & 0xFFFF_FFFF)
    }

    // MARK: Transactions

    private func writeTransaction(_ items: [RedriveItem]) throws(CommandFailure) {
        var items = items
        var attempts = TransactionAttempts()
        while !items.isEmpty {
            do throws(CommandFailure) {
                let failure = try step { (transactions) throws(KafkaError) in
                    try transactions.beginTransaction()
                }
                if let failure { throw fault(failure) }
            } catch {
                items.forEach { ended($0, .failed) }
                throw error
            }
            // Even numbers are jobs, odd ones their entries.
            var reports = newReports(items.count * 2)
            var failure: TransactionFailure?
            /// Job that the producer itself refuses for its size.
            var refused: Int?
            for (index, item) in items.enumerated() {
                let refusal =
                    produce(item, number: index * 2, &reports)
                    ?? produce(entry(.done, item), item, number: index * 2 + 1, &reports)
                if let error = refusal {
                    if error.isTooLarge { refused = index }
                    failure = .abortable(error)
                    break
                }
            }
            if failure == nil {
                do throws(CommandFailure) {
                    failure = try step(reports: &reports) { (transactions) throws(KafkaError) in
                        try transactions.commit()
                    }
                } catch {
                    items.forEach { ended($0, .unanswered) }
                    throw error
                }
            }
            guard let failure else {
                for item in items { ended(item, .redriven) }
                return
            }
            guard case .abortable(let error) = failure else {
                // A fenced commit may be the repetition of a commit that took effect. Only the ledger knows.
                items.forEach { ended($0, .unanswered) }
                throw fault(failure)
            }
            do throws(CommandFailure) {
                let aborting = try step(reports: &reports) { (transactions) throws(KafkaError) in
                    try transactions.abort()
                }
                if let aborting { throw fault(aborting) }
                let verdict = attempts.aborted(
                    isSilent: reports.isSilent, isStopping: isStopping(),
                    isSmaller: refused != nil || reports.isTooLarge.contains(true))
                if verdict != .again { throw end(verdict, reports.error ?? error) }
            } catch {
                // Without a commit the coordinator aborts the transaction.
                items.forEach { ended($0, .failed) }
                throw error
            }
            if refused == nil, reports.isTooLarge.contains(true) {
                // Brokers refuse batches, so that one job can be at fault, or none.
                if items.count > 1 {
                    let half = items.count / 2
                    do throws(CommandFailure) {
                        try writeTransaction(Array(items[..<half]))
                    } catch {
                        items[half...].forEach { ended($0, .failed) }
                        throw error
                    }
                    return try writeTransaction(Array(items[half...]))
                }
                refused = 0
            }
            if let refused {
                firstError = firstError ?? reports.error ?? error
                ended(items.remove(at: refused), .failed)
            }
        }
    }

    private func end(_ verdict: TransactionAttempts.Verdict, _ error: KafkaError) -> CommandFailure {
        let fault =
            switch verdict {
            case .silent: "didn't take a batch \(withinTime), so the batch was not produced"
            case .stopped: "refused a batch before the stop"
            case .again, .refused: "refuses the transaction again and again"
            }
        return CommandFailure(
            .unavailable, "Kafka at \(settings.brokers) \(fault): \(error); \(Self.advice)")
    }

    private func fault(_ failure: TransactionFailure) -> CommandFailure {
        if failure.error.isFenced {
            return CommandFailure(
                .unavailable,
                "another `sluice redrive` of the same topic has begun, and Kafka has fenced this one; what this run "
                    + "has committed is in the ledger")
        }
        return CommandFailure(
            .unavailable,
            "Kafka at \(settings.brokers): \(failure); \(Self.advice): the ledger has what is committed")
    }

    /// Runs a step of the transactions to its end; does nothing without transactions. Repeats a step as long as it can be
    /// repeated.
    private func step(
        _ start: (TransactionalProducer) throws(KafkaError) -> Void
    ) throws(CommandFailure) -> TransactionFailure? {
        var reports = newReports(0)
        return try step(reports: &reports, start)
    }

    private func step(
        reports: inout Reports, _ start: (TransactionalProducer) throws(KafkaError) -> Void
    ) throws(CommandFailure) -> TransactionFailure? {
        guard let transactions else { return nil }
        var wait = AnswerWait(patience)
        while true {
            do throws(KafkaError) {
                try start(transactions)
            } catch {
                throw CommandFailure(kafka: error)
            }
            var answer: TransactionResult?
            while answer == nil {
                answer = transactions.wait(timeoutMilliseconds: Self.slice) { reports.take($0) }
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

    // MARK: Without transactions

    private func writeInSteps(_ items: [RedriveItem]) throws(CommandFailure) {
        var items = items
        var entries: [(RedriveItem, RedriveState)] = []
        let intents = writeEntries(items.map { ($0, .intent) })
        firstError = firstError ?? intents.error
        // Without its intent a job isn't produced. While Kafka is silent, no job is.
        for index in items.indices.reversed() where !intents.isDelivered[index] || intents.isSilent {
            let item = items.remove(at: index)
            ended(item, .failed)
            // The ledger may have the intent of a job that wasn't produced.
            if intents.isDelivered[index] || !intents.isUnwritten[index] {
                entries.append((item, .afterFailure(before: item.before)))
            }
        }
        guard !items.isEmpty else { throw noIntents(intents, retract(entries)) }
        let reports = deliver(items.count) { index, reports in
            produce(items[index], number: index, &reports)
        }
        firstError = firstError ?? reports.error
        for (index, item) in items.enumerated() {
            if reports.isDelivered[index] {
                entries.append((item, .done))
            } else if reports.isUnwritten[index] {
                entries.append((item, .afterFailure(before: item.before)))
            }
        }
        let noted = writeEntries(entries)
        var inDoubt = 0
        for (index, item) in items.enumerated() {
            let end: RedriveEnd =
                reports.isDelivered[index] ? .redriven : reports.isUnwritten[index] ? .failed : .unanswered
            if end == .unanswered { inDoubt += 1 }
            ended(item, end)
        }
        inDoubt += noted.isDelivered.count { !$0 }
        if inDoubt > 0 {
            throw CommandFailure(
                .unavailable,
                "Kafka at \(settings.brokers) didn't acknowledge \(Numbers.counted(inDoubt, "record")) "
                    + "\(withinTime), so later runs report up to as many jobs as in doubt: "
                    + "\((reports.error ?? noted.error).map { "\($0)" } ?? "no answer"); \(Self.advice)")
        }
    }

    /// Tries to note jobs that were not produced, because their intents may be in the ledger.
    /// - Returns: the number of jobs that stay in doubt.
    private func retract(_ entries: [(RedriveItem, RedriveState)]) -> Int {
        if entries.isEmpty || isStopping() { return entries.count }
        return writeEntries(entries).isDelivered.count { !$0 }
    }

    private func noIntents(_ intents: Reports, _ inDoubt: Int) -> CommandFailure {
        let doubt =
            inDoubt == 0
            ? ""
            : "; a later run may report up to \(Numbers.grouped(inDoubt)) as in doubt, but none was produced"
        return CommandFailure(
            .unavailable,
            "Kafka at \(settings.brokers) took no entry of the ledger \(settings.ledger)"
                + (intents.isSilent ? " \(withinTime)" : "") + ", so the batch was not produced"
                + (intents.error.map { ": \($0)" } ?? "") + "; \(Self.advice)\(doubt)")
    }

    /// Limit of a step, for messages.
    private var withinTime: String {
        isStopping()
            ? "before the stop" : "within \(Numbers.fixed(patience / .seconds(1), 0)) s"
    }

    private func writeEntries(_ entries: [(RedriveItem, RedriveState)]) -> Reports {
        deliver(entries.count) { index, reports in
            produce(entry(entries[index].1, entries[index].0), entries[index].0, number: index, &reports)
        }
    }

    /// Produces records, and waits for their reports. Records that the brokers refuse for the size of their batch are
    /// produced again, each alone.
    ///
    /// - Parameter queue: queues the record of a number, and returns the error with which the producer refuses it.
    private func deliver(
        _ count: Int, _ queue: (Int, inout Reports) -> KafkaError?
    ) -> Reports {
        var reports = newReports(count)
        /// Error of the first record that the producer itself refuses; nil: none.
        var refusal: KafkaError?
        func add(_ index: Int) {
            guard !reports.isSilent else {
                reports.isUnwritten[index] = true
                return
            }
            guard let error = queue(index, &reports) else { return }
            reports.isUnwritten[index] = true
            refusal = refusal ?? error
            reports.error = reports.error ?? error
        }
        for index in 0..<count { add(index) }
        flush(&reports)
        let refused = reports.isTooLarge.indices.filter {
            reports.isTooLarge[$0] && reports.isUnwritten[$0]
        }
        guard refused.count > 1, !reports.isSilent else { return reports }
        reports.error = refusal
        for index in refused where !reports.isSilent {
            reports.forget(index)
            add(index)
            flush(&reports)
        }
        return reports
    }

    /// Waits for the reports of what was queued. Drops the rest when the wait is over.
    private func flush(_ reports: inout Reports) {
        var wait = AnswerWait(patience)
        while !reports.isSilent {
            do throws(KafkaError) {
                return try producer.flush(timeoutMilliseconds: Self.slice) { reports.take($0) }
            } catch {
                guard wait.isOver(isStopping: isStopping()) else { continue }
                reports.isSilent = true
                reports.error = reports.error ?? .notAcknowledged(producer.queued)
            }
        }
        producer.purge { reports.take($0) }
    }

    // MARK: Records

    private func entry(_ state: RedriveState, _ item: RedriveItem) -> [UInt8] {
        RedriveEntry(
            state: state, source: item.source, identity: item.identity, destination: item.destination,
            atMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000), run: settings.run
        ).json
    }

    /// Queues a job. Returns the error with which the producer refuses it.
    private func produce(
        _ item: RedriveItem, number: Int, _ reports: inout Reports
    ) -> KafkaError? {
        produce(
            item.destination, key: item.record.key, value: item.record.value, headers: item.record.headers,
            partition: item.partition, number: number, &reports)
    }

    /// Queues an entry of the ledger. Returns the error with which the producer refuses it.
    private func produce(
        _ entry: [UInt8], _ item: RedriveItem, number: Int, _ reports: inout Reports
    ) -> KafkaError? {
        produce(
            settings.ledger, key: Array(item.place.description.utf8), value: entry, headers: [],
            partition: -1, number: number, &reports)
    }

    private func produce(
        _ name: String, key: [UInt8]?, value: [UInt8]?, headers: [RecordCopy.Header],
        partition: Int32, number: Int, _ reports: inout Reports
    ) -> KafkaError? {
        let topic: KafkaTopic
        do throws(KafkaError) {
            topic = try self.topic(name)
        } catch {
            return error
        }
        var wait = AnswerWait(patience)
        while true {
            let result = withBytes(key) { key in
                withBytes(value) { value in
                    var list = HeaderList(capacity: headers.count)
                    for header in headers {
                        header.nameBytes.withUnsafeBytes { name in
                            withBytes(header.value) { list.append(name, $0) }
                        }
                    }
                    return producer.produce(
                        topic, key: key, value: value, headers: list, opaque: reports.opaque(number),
                        partition: partition)
                }
            }
            switch result {
            case .queued: return nil
            case .failed(let error): return error
            case .noTransaction:
                return reports.error ?? .reportsMissing
            case .queueFull:
                producer.pollDeliveryReports(timeoutMilliseconds: 50) { reports.take($0) }
                guard wait.isOver(isStopping: isStopping()) else { continue }
                reports.isSilent = true
                return .notAcknowledged(producer.queued)
            }
        }
    }

    private func topic(_ name: String) throws(KafkaError) -> KafkaTopic {
        if let topic = topics[name] { return topic }
        let topic = try producer.topic(name)
        topics[name] = topic
        return topic
    }
}
