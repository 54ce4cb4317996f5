import Kafka
import TestSupport
import Testing

@Suite struct TransactionTests {
    @Test func committedRecordsAreReadAndReportsPrecedeTheResult() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        var delivered: [UInt] = []
        for round in 0..<3 {
            try transactions.complete { try $0.beginTransaction() }
            for index in 0..<10 {
                produce(
                    transactions.producer, topic, key: "k", value: "\(round).\(index)",
                    opaque: UInt(round * 10 + index + 1), partition: Int32(index % 2))
            }
            try transactions.sendOffsetsAndCommit([], group: bed.group) { delivered.append($0) }
            #expect(delivered.sorted() == Array(1...UInt(round + 1) * 10))
        }
        transactions.close()
        let expected = { (partition: Int) in
            (0..<3).flatMap { round in stride(from: partition, to: 10, by: 2).map { "\(round).\($0)" } }
        }
        #expect(try bed.read(0).map(\.text) == expected(0))
        #expect(try bed.read(1).map(\.text) == expected(1))
    }

    @Test func recordsAreAcceptedOnlyInAnOpenTransaction() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions(isInitialized: false)
        let topic = try transactions.producer.topic(bed.topic)
        func isTaken() throws -> Bool {
            switch produce(transactions.producer, topic, value: "v", partition: 0) {
            case .queued: true
            case .noTransaction: false
            case let other: throw TestFailure("\(other)")
            }
        }
        #expect(try !isTaken())
        try transactions.complete { try $0.initialize() }
        #expect(try !isTaken())
        try transactions.complete { try $0.beginTransaction() }
        #expect(try isTaken())
        try transactions.complete { try $0.commit() }
        #expect(try !isTaken())
        try transactions.complete { try $0.beginTransaction() }
        try transactions.complete { try $0.abort() }
        #expect(try !isTaken())
        let withHeaders = transactions.producer.produce(
            topic, key: nil, value: nil, headers: [("h", [1])], opaque: 0)
        guard case .noTransaction = withHeaders else { throw TestFailure("\(withHeaders)") }
        #expect(transactions.producer.queued == 0)
        transactions.close()
    }

    @Test func stepsInTheWrongStateAreMisuse() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions(isInitialized: false)
        func isMisuse(_ start: (TransactionalProducer) throws -> Void) throws -> Bool {
            guard case .misuse(let error) = try transactions.failure(start) else { return false }
            return error.message.contains("transaction: ") && error.name == "_STATE"
        }
        #expect(try isMisuse { try $0.beginTransaction() })
        #expect(try isMisuse { try $0.commit() })
        try transactions.complete { try $0.initialize() }
        #expect(try isMisuse { try $0.commit() })
        #expect(try isMisuse { try $0.abort() })
        let group = ConsumerGroupMetadata(unfencedGroup: bed.group)
        let offset = OffsetCommit(topic: bed.topic, partition: 0, offset: 1)
        #expect(try isMisuse { try $0.sendOffsets([offset], group: group) })
        try transactions.complete { try $0.beginTransaction() }
        #expect(try isMisuse { try $0.beginTransaction() })
        // The misuse has changed nothing.
        produce(transactions.producer, try transactions.producer.topic(bed.topic), value: "v", partition: 0)
        try transactions.complete { try $0.commit() }
        #expect(try bed.read().map(\.text) == ["v"])
        transactions.close()
    }

    @Test func stepsRunOneAtATimeAndReportOnce() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions(isInitialized: false)
        #expect(transactions.wait() == nil)
        try transactions.initialize()
        do {
            try transactions.beginTransaction()
            Issue.record("two steps at once")
        } catch {
            #expect(error.name == "_CONFLICT")
        }
        #expect(transactions.wait()?.step == .initialize)
        #expect(transactions.takeResult() == nil)
        #expect(!transactions.isBusy)
        transactions.close()
        #expect(throws: KafkaError.self) { try transactions.beginTransaction() }
    }

    @Test func resultSignalsTheDescriptor() throws {
        let bed = try KafkaTestBed()
        let wakeUp = try WakeUp()
        let transactions = try bed.transactions()
        transactions.notify(fileDescriptor: wakeUp.descriptor)
        let topic = try transactions.producer.topic(bed.topic)
        var reports = 0
        for step in [TransactionStep.begin, .commit, .begin, .abort] {
            switch step {
            case .begin: try transactions.beginTransaction()
            case .commit:
                produce(transactions.producer, topic, value: "v", partition: 0)
                try transactions.commit()
            default: try transactions.abort()
            }
            while true {
                try eventually("a wake-up") { wakeUp.read() != nil }
                reports += transactions.producer.pollDeliveryReports { _ in }
                guard let result = transactions.takeResult() else { continue }
                #expect(result == TransactionResult(step))
                break
            }
        }
        #expect(reports == 1)
        transactions.close()
    }

    @Test func propertiesThatBreakTransactionsAreRefused() throws {
        let properties = KafkaProperties(bootstrapServers: "127.0.0.1:1")
        func message(_ identifier: String, _ name: String? = nil, _ value: String = "") -> String {
            var properties = properties
            if let name { properties[name] = value }
            do {
                _ = try TransactionalProducer(properties: properties, transactionalID: identifier)
                return "made"
            } catch {
                return error.message
            }
        }
        #expect(message("").contains("transactional identifier is empty"))
        #expect(message("a", "enable.idempotence", "false").contains("\"enable.idempotence\""))
        #expect(message("a", "transactional.id", "b").contains("\"transactional.id\""))
        #expect(message("a", "message.timeout.ms", "300000").contains("message.timeout.ms"))
        #expect(message("a") == "made")
    }
}

extension TransactionalProducer {
    /// Ends a transaction whose offsets are not checked. Reports the opaque values of delivered records.
    func sendOffsetsAndCommit(
        _ offsets: [OffsetCommit], group: String, _ delivered: (UInt) -> Void = { _ in }
    ) throws {
        // Reports may arrive with either step.
        let report: (borrowing DeliveryReport) -> Void = { if $0.isDelivered { delivered($0.opaque) } }
        try complete(report) {
            try $0.sendOffsets(offsets, group: ConsumerGroupMetadata(unfencedGroup: group))
        }
        while true {
            try commit()
            let result = wait(report)
            switch result?.failure {
            case nil: return
            case .retriable: continue
            case let failure?: throw TestFailure("commit: \(failure)")
            }
        }
    }
}
