import CRdkafka

/// Result of producing one record. A `DeliveryReport` follows `queued`; the other results are final, without a report.
public enum ProduceResult: Sendable {
    /// The record is in the producer's queue. Exactly one delivery report will follow.
    case queued
    /// The queue is at its limit (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`). Poll delivery reports
    /// and retry.
    case queueFull
    /// The producer belongs to a `TransactionalProducer` and accepts no records now. No transaction is open, or the
    /// open transaction is being committed or can only be aborted. Keep the record for the next transaction.
    case noTransaction
    /// The record was refused, for example because it is larger than `message.max.bytes`.
    case failed(KafkaError)
}

/// An idempotent producer (`enable.idempotence`, `acks=all`). Per partition it keeps the order of `produce` calls and
/// writes each record once, despite internal retries.
///
/// Threads: `topic` and `produce` are called on any thread, at the same time. `pollDeliveryReports`, `flush`, `notify`
/// and `close` belong to one thread at a time, as the events closure does.
///
/// Order of ending: stop producing, `flush`, `close`, release. A record still queued when the producer is freed is lost
/// without a report.
public final class KafkaProducer: Sendable {
    /// Client, freed when the producer and all its topics are freed.
    let client: ProducerClient

    /// Creates the client. Connections are made in the background: an unreachable broker is an event.
    ///
    /// - Parameter events: Handles errors, statistics and log lines. Called inside `pollDeliveryReports` and `flush`,
    ///   on the calling thread.
    /// - Throws: an error that names the property that is missing, unknown, invalid or fixed.
    public init(
        properties: KafkaProperties, events: @escaping @Sendable (KafkaProducerEvent) -> Void = { _ in }
    ) throws(KafkaError) {
        client = try ProducerClient(ClientConfiguration(.producer, properties), events)
    }

    /// Creates the producer inside a `TransactionalProducer`.
    init(client: ProducerClient) { self.client = client }

    /// Returns a handle for producing to `name`; create the handle once and keep it. The handle keeps the client alive.
    /// - Parameter largestBatch: bytes of the largest batch that the topic takes; `.max`: unknown.
    /// - Throws: when the name is invalid. A name has 1 to 249 of the characters `a-z A-Z 0-9 . _ -` (Kafka's rule).
    public func topic(_ name: String, largestBatch: Int = .max) throws(KafkaError) -> KafkaTopic {
        guard TopicPartition.isTopicName(name) else {
            throw .invalid(
                "topic \"\(name)\": a name has 1 to 249 characters of a-z, A-Z, 0-9, dot, underscore, hyphen"
            )
        }
        guard let handle = rd_kafka_topic_new(client.handle, name, nil) else {
            throw KafkaError(rd_kafka_last_error(), "topic \"\(name)\"")
        }
        return KafkaTopic(handle: handle, name: name, largestBatch: largestBatch, client: client)
    }

    /// Queues one record; key and value are copied. Allocates no Swift memory unless it fails.
    ///
    /// - Parameters:
    ///   - key: Decides the partition, by the property `partitioner`. `nil` is no key.
    ///   - value: `nil` is a null value (a tombstone in a compacted topic). An empty slice is an empty value.
    ///   - opaque: Returned in the delivery report.
    ///   - partition: -1 leaves the choice to the partitioner.
    public func produce(
        _ topic: KafkaTopic, key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, opaque: UInt,
        partition: Int32 = -1
    ) -> ProduceResult {
        let (keyStart, keyCount) = Self.bytes(key)
        let (valueStart, valueCount) = Self.bytes(value)
        let answer = rd_kafka_produce(
            topic.handle, partition, RD_KAFKA_MSG_F_COPY, UnsafeMutableRawPointer(mutating: valueStart),
            valueCount,
            keyStart, keyCount, UnsafeMutableRawPointer(bitPattern: opaque))
        if answer == 0 { return .queued }
        return Self.refusal(rd_kafka_last_error(), topic)
    }

    /// Queues one record with headers, in their order; a header's value may be `nil`. Everything is copied. For dead
    /// letters and tools, because it allocates.
    public func produce(
        _ topic: KafkaTopic, key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?,
        headers: [(name: String, value: [UInt8]?)], opaque: UInt, partition: Int32 = -1
    ) -> ProduceResult {
        var list = HeaderList(capacity: headers.count)
        for header in headers { list.append(header.name, header.value) }
        return produce(topic, key: key, value: value, headers: list, opaque: opaque, partition: partition)
    }

    /// Queues one record with headers. Key and value are copied; the record takes the headers over. Allocates no Swift
    /// memory unless it fails.
    public func produce(
        _ topic: KafkaTopic, key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?,
        headers: consuming HeaderList, opaque: UInt, partition: Int32 = -1
    ) -> ProduceResult {
        let (keyStart, keyCount) = Self.bytes(key)
        let (valueStart, valueCount) = Self.bytes(value)
        let code = sluice_produce_with_headers(
            client.handle, topic.handle, partition, keyStart, keyCount, valueStart, valueCount,
            headers.handle, UnsafeMutableRawPointer(bitPattern: opaque))
        if code == RD_KAFKA_RESP_ERR_NO_ERROR {
            headers.handedOver()
            return .queued
        }
        return Self.refusal(code, topic)
    }

    /// Converts a slice to librdkafka's form. The library distinguishes null from empty by the pointer. So an empty
    /// slice needs a pointer.
    @inline(__always)
    static func bytes(_ slice: UnsafeRawBufferPointer?) -> (UnsafeRawPointer?, Int) {
        guard let slice else { return (nil, 0) }
        return (slice.baseAddress ?? UnsafeRawPointer(bitPattern: 1), slice.count)
    }

    @inline(never)
    private static func refusal(_ code: rd_kafka_resp_err_t, _ topic: KafkaTopic) -> ProduceResult {
        if code == RD_KAFKA_RESP_ERR__QUEUE_FULL { return .queueFull }
        // Only a transactional client refuses records by its state.
        if code == RD_KAFKA_RESP_ERR__STATE { return .noTransaction }
        return .failed(KafkaError(code, "produce to \(topic.name)"))
    }
}

/// A topic to produce to.
public final class KafkaTopic: Sendable {
    /// Name of the topic.
    public let name: String
    /// Bytes of the largest batch that the topic takes (`max.message.bytes`); `.max`: unknown.
    public let largestBatch: Int
    /// Bytes of a batch with one record beside the record's key, value and headers, at most.
    public static let batchOverhead = 128
    // nonisolated(unsafe): a librdkafka topic handle is thread-safe; it is set once and freed in deinit.
    nonisolated(unsafe) let handle: OpaquePointer
    /// Keeps the client alive: its topic handles must be freed before it.
    private let client: ProducerClient

    init(handle: OpaquePointer, name: String, largestBatch: Int, client: ProducerClient) {
        self.handle = handle
        self.name = name
        self.largestBatch = largestBatch
        self.client = client
    }

    deinit { rd_kafka_topic_destroy(handle) }
}

/// Owns the C client and its queue of delivery reports and events.
final class ProducerClient: Sendable {
    // nonisolated(unsafe): librdkafka's client and queue handles are thread-safe; set once, freed in deinit.
    nonisolated(unsafe) let handle: OpaquePointer
    // nonisolated(unsafe): as above. Freed before the client it belongs to.
    nonisolated(unsafe) let queue: OpaquePointer
    let events: @Sendable (KafkaProducerEvent) -> Void

    init(
        _ configuration: ClientConfiguration, _ events: @escaping @Sendable (KafkaProducerEvent) -> Void
    ) throws(KafkaError) {
        configuration.configure {
            rd_kafka_conf_set_events(
                $0,
                RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS | RD_KAFKA_EVENT_LOG)
        }
        handle = try configuration.create()
        queue = rd_kafka_queue_get_main(handle)
        _ = rd_kafka_set_log_queue(handle, queue)
        self.events = events
    }

    deinit {
        rd_kafka_queue_io_event_enable(queue, -1, nil, 0)
        rd_kafka_queue_destroy(queue)
        rd_kafka_destroy(handle)
    }
}
