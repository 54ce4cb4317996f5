import Kafka
import TestSupport
import Testing

extension KafkaTestBed {
    /// A producer with an identifier of its own, initialised by default.
    func transactions(
        _ identifier: String = "worker", isInitialized: Bool = true,
        _ more: [(name: String, value: String)] = [],
        events: @escaping @Sendable (KafkaProducerEvent) -> Void = { _ in }
    ) throws -> TransactionalProducer {
        let producer = try TransactionalProducer(
            properties: properties([("linger.ms", "1")] + more), transactionalID: "\(topic)-\(identifier)",
            events: events)
        if isInitialized { try producer.complete { try $0.initialize() } }
        return producer
    }

    /// Reads a partition from its beginning to its end with this isolation level.
    func read(_ partition: Int32 = 0, isolation: String = "read_committed") throws -> [Received] {
        let reader = try Member(
            consumerProperties([("enable.partition.eof", "true"), ("isolation.level", isolation)]),
            topics: [])
        defer { reader.consumer.close() }
        try reader.consumer.assign([TopicPartitionOffset(self.partition(partition), .beginning)])
        try eventually("the end of the partition") {
            reader.poll()
            return !reader.ends.isEmpty
        }
        return reader.records
    }
}

extension TransactionalProducer {
    /// Runs a step, repeats it while its failure is retriable, and expects its success.
    func complete(
        _ reports: (borrowing DeliveryReport) -> Void = { _ in },
        _ start: (TransactionalProducer) throws -> Void
    ) throws {
        while true {
            try start(self)
            guard let result = wait(reports) else { throw TestFailure("no result") }
            switch result.failure {
            case nil: return
            case .retriable: continue
            case let failure?: throw TestFailure("\(result.step): \(failure)")
            }
        }
    }

    /// Runs a step and expects its failure.
    func failure(
        _ start: (TransactionalProducer) throws -> Void,
        _ reports: (borrowing DeliveryReport) -> Void = { _ in }
    ) throws -> TransactionFailure {
        try start(self)
        guard let failure = wait(reports)?.failure else { throw TestFailure("the step succeeded") }
        return failure
    }
}
