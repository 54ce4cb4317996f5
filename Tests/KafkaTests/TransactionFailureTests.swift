import DeliveryCore
import Kafka
import TestSupport
import Testing

/// Failures of a transaction, as a broker reports them.
@Suite(.enabled(if: KafkaTestBed.realBrokers == nil, "the errors are injected into the embedded cluster"))
struct TransactionFailureTests {
    /// Error codes of the Kafka protocol.
    private enum Code {
        static let coordinatorNotAvailable: Int32 = 15
        static let illegalGeneration: Int32 = 22
        static let topicAuthorizationFailed: Int32 = 29
        static let invalidProducerEpoch: Int32 = 47
        static let concurrentTransactions: Int32 = 51
        static let producerFenced: Int32 = 90
    }

    private func offsets(_ bed: KafkaTestBed) -> [OffsetCommit] {
        [OffsetCommit(topic: bed.topic, partition: 0, offset: 3, metadata: "m")]
    }

    @Test func unreachableCoordinatorIsRetriableAndTheStepResumes() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions(isInitialized: false, [("reconnect.backoff.max.ms", "100")])
        cluster.setDown(true)
        for _ in 0..<2 {
            let failure = try transactions.failure { try $0.initialize(timeoutMilliseconds: 50) }
            guard case .retriable = failure else { throw TestFailure("\(failure)") }
        }
        cluster.setDown(false)
        try transactions.complete { try $0.initialize() }

        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        cluster.setDown(true)
        let failure = try transactions.failure { try $0.commit(timeoutMilliseconds: 50) }
        guard case .retriable = failure else { throw TestFailure("\(failure)") }
        cluster.setDown(false)
        try transactions.complete { try $0.commit() }
        #expect(try bed.read().map(\.text) == ["v"])
        transactions.close()
    }

    @Test func movingCoordinatorIsRetriedByTheLibrary() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions()
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        cluster.fail(.addPartitionsToTransaction, with: [Code.concurrentTransactions])
        cluster.fail(.endTransaction, with: [Code.coordinatorNotAvailable])
        try transactions.sendOffsetsAndCommit(offsets(bed), group: bed.group)
        #expect(try bed.read().map(\.text) == ["v"])
        transactions.close()
    }

    @Test func refusedPartitionIsAbortableAndNextTransactionSucceeds() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        try transactions.complete { try $0.beginTransaction() }
        cluster.fail(.addPartitionsToTransaction, with: [Code.topicAuthorizationFailed])
        produce(transactions.producer, topic, value: "first", opaque: 1, partition: 0)
        var reports: [String] = []
        let failure = try transactions.failure({ try $0.commit() }) {
            reports.append($0.error?.name ?? "delivered")
        }
        guard case .abortable(let error) = failure else { throw TestFailure("\(failure)") }
        #expect(error.name == "TOPIC_AUTHORIZATION_FAILED")
        #expect(!error.isGroupMembershipLost)
        guard case .noTransaction = produce(transactions.producer, topic, value: "x", partition: 0) else {
            throw TestFailure("a lost transaction takes records")
        }
        // Only an abort resolves the failure.
        guard case .abortable = try transactions.failure({ try $0.commit() }) else {
            throw TestFailure("a lost transaction can be committed")
        }
        try transactions.abort()
        let result = transactions.wait { reports.append($0.error?.name ?? "delivered") }
        #expect(result == TransactionResult(.abort))
        #expect(reports == ["_PURGE_QUEUE"])
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, topic, value: "second", partition: 0)
        try transactions.complete { try $0.commit() }
        #expect(try bed.read().map(\.text) == ["second"])
        transactions.close()
    }

    @Test func illegalGenerationIsAbortableAsLostMembership() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions()
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        cluster.fail(.transactionOffsetCommit, with: [Code.illegalGeneration])
        let group = ConsumerGroupMetadata(unfencedGroup: bed.group)
        let failure = try transactions.failure { try $0.sendOffsets(offsets(bed), group: group) }
        guard case .abortable(let error) = failure else { throw TestFailure("\(failure)") }
        #expect(error.isGroupMembershipLost)
        #expect(!error.isFenced)
        try transactions.complete { try $0.abort() }
        transactions.close()
    }

    @Test(arguments: [Code.invalidProducerEpoch, Code.producerFenced])
    func fencingByAnotherProducerIsFatal(code: Int32) throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        try transactions.complete { try $0.beginTransaction() }
        produce(transactions.producer, topic, value: "v", partition: 0)
        cluster.fail(.endTransaction, with: [code])
        let failure = try transactions.failure { try $0.commit() }
        guard case .fatal(let error) = failure else { throw TestFailure("\(failure)") }
        #expect(error.isFenced)
        // The failure is permanent for every step.
        for start: (TransactionalProducer) throws -> Void in [
            { try $0.commit() }, { try $0.abort() }, { try $0.beginTransaction() },
        ] {
            guard case .fatal = try transactions.failure(start) else { throw TestFailure("not fatal") }
        }
        guard case .failed(let refusal) = produce(transactions.producer, topic, value: "x", partition: 0)
        else { throw TestFailure("a failed producer takes records") }
        #expect(refusal.isFatal)
        transactions.close()
    }

    @Test func lostRecordMakesTheTransactionAbortable() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        try transactions.complete { try $0.beginTransaction() }
        cluster.fail(.produce, with: [Code.topicAuthorizationFailed])
        produce(transactions.producer, topic, value: "refused", opaque: 1, partition: 0)
        var errors: [String] = []
        try eventually("the report") {
            transactions.producer.pollDeliveryReports { errors.append($0.error?.name ?? "delivered") }
            return !errors.isEmpty
        }
        #expect(errors == ["TOPIC_AUTHORIZATION_FAILED"])
        guard case .abortable = try transactions.failure({ try $0.commit() }) else {
            throw TestFailure("not abortable")
        }
        try transactions.complete { try $0.abort() }
        transactions.close()
    }

    /// `TransactionCycle` and the producer together, while the coordinator answers with one error after another.
    @Test func cycleCommitsEveryRecordDespiteFaults() throws {
        let bed = try KafkaTestBed()
        let cluster = try #require(bed.cluster)
        cluster.fail(.initProducerID, with: [Code.coordinatorNotAvailable])
        let driver = try CycleDriver(bed, interval: 5_000_000)
        for value in 0..<300 {
            if value % 50 == 10 { cluster.fail(.addPartitionsToTransaction, with: [29]) }
            if value % 50 == 20 { cluster.fail(.transactionOffsetCommit, with: [Code.illegalGeneration]) }
            if value % 50 == 30 { cluster.fail(.endTransaction, with: [Code.concurrentTransactions]) }
            try driver.write("\(value)")
        }
        try driver.finish()
        #expect(driver.committed == (0..<300).map { "\($0)" })
        #expect(driver.aborts > 0)
        // The embedded cluster also shows aborted records, so records may appear more than once.
        let seen = try bed.read().compactMap(\.text)
        #expect(Set(seen) == Set(driver.committed))
    }
}

/// An owner of a cycle, like a worker: it keeps its records until they are committed.
private final class CycleDriver {
    private let bed: KafkaTestBed
    private let transactions: TransactionalProducer
    private let topic: KafkaTopic
    private var cycle: TransactionCycle
    private let clock = ContinuousClock()
    private let origin: ContinuousClock.Instant
    /// Written, not committed. The first `sent` of them are in the open transaction.
    private var kept: [String] = []
    private var sent = 0
    private(set) var committed: [String] = []
    private(set) var aborts = 0

    init(_ bed: KafkaTestBed, interval: UInt64) throws {
        self.bed = bed
        transactions = try bed.transactions(isInitialized: false)
        topic = try transactions.producer.topic(bed.topic)
        cycle = TransactionCycle(
            .init(interval: interval, firstPause: 1_000_000, longestPause: 20_000_000))
        origin = clock.now
        try take(cycle.start())
    }

    private var now: UInt64 {
        let (seconds, attoseconds) = (clock.now - origin).components
        return UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
    }

    func write(_ value: String) throws {
        kept.append(value)
        try turn()
    }

    func finish() throws {
        try eventually("everything is committed") {
            try turn()
            return kept.isEmpty
        }
        try take(cycle.stop())
        try eventually("the cycle has stopped") {
            try turn()
            return cycle.state == .stopped
        }
        transactions.close()
    }

    private func turn() throws {
        transactions.producer.pollDeliveryReports { _ in }
        if let result = transactions.takeResult() { try take(cycle.finished(.init(result), at: now)) }
        try take(cycle.wake(at: now))
        while cycle.acceptsRecords, sent < kept.count {
            switch produce(transactions.producer, topic, value: kept[sent], partition: 0) {
            case .queued:
                sent += 1
                cycle.recordProduced(at: now)
            case .noTransaction:
                // The transaction is lost, which the next step reports.
                return try take(cycle.commitNow())
            case let other: throw TestFailure("\(other)")
            }
        }
    }

    private func take(_ turn: TransactionCycle.Turn) throws {
        if let error = turn.failure { throw error }
        switch turn.ended {
        case .committed(let transaction):
            #expect(transaction.records == sent)
            committed += kept[..<sent]
            kept.removeFirst(sent)
            sent = 0
        case .aborted:
            aborts += 1
            sent = 0
        case nil: break
        }
        switch turn.step {
        case .initialize: try transactions.initialize()
        case .begin: try transactions.beginTransaction()
        case .sendOffsets:
            try transactions.sendOffsets(
                [OffsetCommit(topic: bed.topic, partition: 0, offset: Int64(committed.count + sent))],
                group: ConsumerGroupMetadata(unfencedGroup: bed.group))
        case .commit: try transactions.commit()
        case .abort: try transactions.abort()
        case nil: break
        }
    }
}

extension TransactionCycle.StepResult {
    /// Classifies a result for the cycle, as a worker does.
    fileprivate init(_ result: TransactionResult) {
        let steps: [TransactionStep: TransactionCycle.Step] = [
            .initialize: .initialize, .begin: .begin, .sendOffsets: .sendOffsets, .commit: .commit,
            .abort: .abort,
        ]
        let failure: TransactionCycle.Failure? =
            switch result.failure {
            case nil: nil
            case .retriable(let error): .retriable(KafkaFault(error.name))
            case .abortable(let error): .abortable(KafkaFault(error.name))
            case .fatal(let error), .misuse(let error): .fatal(KafkaFault(error.name))
            }
        self.init(steps[result.step]!, failure)
    }
}
