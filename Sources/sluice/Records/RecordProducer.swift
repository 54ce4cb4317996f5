import Kafka
import SluiceModel

/// A producer that counts its records: every accepted record is acknowledged or failed in the end.
final class RecordProducer {
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private(set) var produced = 0
    private(set) var acknowledged = 0
    private(set) var failed = 0
    /// Error of the first failed record; nil when none failed.
    private(set) var firstError: KafkaError?
    /// Partition and offset of the last acknowledged record; nil when none was acknowledged.
    private(set) var lastPosition: (partition: Int32, offset: Int64)?

    /// Called for each acknowledged record with the opaque value passed to `produce`, the partition and the offset.
    var onAcknowledgement: ((_ opaque: UInt, _ partition: Int32, _ offset: Int64) -> Void)?

    /// Records that were too large since the last ``takeTooLarge()``, by the opaque value passed to `produce`.
    private var tooLarge: [(opaque: UInt, error: KafkaError)] = []

    init(
        topic: String, properties: KafkaProperties, report: @escaping @Sendable (KafkaError) -> Void
    ) throws(CommandFailure) {
        do {
            producer = try KafkaProducer(properties: properties) { event in
                if case .error(let error) = event { report(error) }
            }
            self.topic = try producer.topic(topic)
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    /// Hands a record to the producer; waits for room when the queue is full. A record that is too large counts as
    /// produced and failed, as one that the broker refuses.
    ///
    /// - Parameter partition: partition of the record; nil leaves the choice to the key.
    func produce(_ job: EncodedJob, opaque: UInt = 0, partition: Int32? = nil) throws(CommandFailure) {
        try produce(
            key: job.key, value: job.value, headers: job.headers.map { ($0.name, $0.value) }, opaque: opaque,
            partition: partition)
    }

    func produce(
        key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)], opaque: UInt = 0,
        partition: Int32? = nil
    ) throws(CommandFailure) {
        while true {
            let result = withBytes(key) { key in
                withBytes(value) { value in
                    producer.produce(
                        topic, key: key, value: value, headers: headers, opaque: opaque,
                        partition: partition ?? -1)
                }
            }
            switch result {
            case .queued:
                produced += 1
                return
            case .queueFull, .noTransaction:
                poll(timeoutMilliseconds: 50)
            case .failed(let error) where error.isTooLarge:
                produced += 1
                fail(opaque, error)
                return
            case .failed(let error):
                throw CommandFailure(kafka: error)
            }
        }
    }

    /// Processes the delivery reports that have arrived, or waits for one.
    func poll(timeoutMilliseconds: Int32 = 0) {
        producer.pollDeliveryReports(timeoutMilliseconds: timeoutMilliseconds) { account($0) }
    }

    /// Records without a delivery report.
    var outstanding: Int { produced - acknowledged - failed }

    /// Waits until every record has its report. A record without a report after the given time has failed.
    func finish(timeoutMilliseconds: Int32) {
        do {
            try producer.flush(timeoutMilliseconds: timeoutMilliseconds) { account($0) }
        } catch {
            if firstError == nil { firstError = error }
            producer.purge { account($0) }
        }
        producer.close()
    }

    private func account(_ report: borrowing DeliveryReport) {
        if report.isDelivered {
            acknowledged += 1
            lastPosition = (report.partition, report.offset)
            onAcknowledgement?(report.opaque, report.partition, report.offset)
        } else {
            report.error.map { fail(report.opaque, $0) }
        }
    }

    private func fail(_ opaque: UInt, _ error: KafkaError) {
        failed += 1
        if firstError == nil { firstError = error }
        if error.isTooLarge { tooLarge.append((opaque, error)) }
    }

    /// Returns each record that was too large for producer, topic or broker once.
    func takeTooLarge() -> [(opaque: UInt, error: KafkaError)] {
        defer { tooLarge = [] }
        return tooLarge
    }
}

/// Passes `body` the bytes, or nil for none.
func withBytes<Result>(_ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) -> Result) -> Result {
    guard let bytes else { return body(nil) }
    return bytes.withUnsafeBytes { body($0) }
}
