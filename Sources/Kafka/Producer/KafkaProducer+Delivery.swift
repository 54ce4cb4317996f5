import CRdkafka

/// Events of a producer besides delivery reports.
public enum KafkaProducerEvent: Sendable {
    /// A broker, a connection or the client has a problem. A fatal error, such as a lost sequence of the idempotent
    /// producer, ends the producer: every queued record is reported as failed.
    case error(KafkaError)
    /// librdkafka's statistics, one JSON document (its STATISTICS.md), every `statistics.interval.ms`.
    case statistics(String)
    /// A log line of librdkafka.
    case log(KafkaLogLine)
}

/// Result of delivering one record. Valid only inside its handler.
public struct DeliveryReport: ~Copyable {
    private let message: UnsafePointer<rd_kafka_message_t>

    init(_ message: UnsafePointer<rd_kafka_message_t>) { self.message = message }

    /// Value that was passed to `produce`.
    public var opaque: UInt { UInt(bitPattern: message.pointee._private) }

    /// Whether Kafka has acknowledged the record. If not, see `error`.
    public var isDelivered: Bool { message.pointee.err == RD_KAFKA_RESP_ERR_NO_ERROR }

    /// Error of an undelivered record: `message.timeout.ms` passed, the broker refused the record, or the client was
    /// purged. Nil when the record was delivered.
    public var error: KafkaError? {
        isDelivered ? nil : KafkaError(message.pointee.err, "deliver to \(topic)[\(partition)]")
    }

    /// Whether the record is known not to be in Kafka, so that producing it again cannot double it. False for a failed
    /// record means that the record may have been written while the answer was lost.
    public var isKnownUnwritten: Bool {
        rd_kafka_message_status(message) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED
    }

    /// Name of the record's topic, copied.
    public var topic: String { String(cString: rd_kafka_topic_name(message.pointee.rkt)) }
    /// Partition of the record; -1 when the record failed before a partition was chosen.
    public var partition: Int32 { message.pointee.partition }
    /// Offset of the record; -1 when the record was not delivered.
    public var offset: Int64 { isDelivered ? message.pointee.offset : -1 }

    /// The record's key, borrowed until the handler returns.
    public var key: UnsafeRawBufferPointer? {
        message.pointee.key.map { UnsafeRawBufferPointer(start: $0, count: message.pointee.key_len) }
    }

    /// The record's value, borrowed until the handler returns.
    public var value: UnsafeRawBufferPointer? {
        message.pointee.payload.map { UnsafeRawBufferPointer(start: $0, count: message.pointee.len) }
    }

    /// Returns the value of the last header of this name, borrowed until the handler returns; nil without such a header.
    public func lastHeader(_ name: StaticString) -> UnsafeRawBufferPointer? {
        var list: OpaquePointer?
        guard rd_kafka_message_headers(message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR, let list else {
            return nil
        }
        var value: UnsafeRawPointer?
        var count = 0
        let code = name.withUTF8Buffer { name in
            name.withMemoryRebound(to: CChar.self) {
                rd_kafka_header_get_last(list, $0.baseAddress, &value, &count)
            }
        }
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, let value else { return nil }
        return UnsafeRawBufferPointer(start: value, count: count)
    }

    /// Headers of the record, copied, for producing it again.
    public var headers: [(name: String, value: [UInt8]?)] {
        var list: OpaquePointer?
        guard rd_kafka_message_headers(message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR, let list else {
            return []
        }
        var result: [(name: String, value: [UInt8]?)] = []
        while let header = ConsumedRecord.header(list, result.count) {
            result.append((String(decoding: header.name, as: UTF8.self), header.value.map { Array($0) }))
        }
        return result
    }
}

extension KafkaProducer {
    /// Writes 8 bytes (the value 1, as an eventfd expects) to the descriptor when reports or events arrive while none
    /// were waiting. After a write it is silent until `pollDeliveryReports` runs.
    ///
    /// The descriptor must be non-blocking and stay open until `close` has returned.
    public func notify(fileDescriptor: Int32) {
        var one: UInt64 = 1
        rd_kafka_queue_io_event_enable(client.queue, fileDescriptor, &one, 8)
    }

    /// Passes all waiting delivery reports to the handler, and reports waiting events. Waits at most the given time for
    /// the first report or event.
    /// - Returns: the number of delivery reports.
    @discardableResult
    public func pollDeliveryReports(
        timeoutMilliseconds: Int32 = 0, _ handler: (borrowing DeliveryReport) -> Void
    ) -> Int {
        var count = 0
        var timeout = timeoutMilliseconds
        while let event = rd_kafka_queue_poll(client.queue, timeout) {
            timeout = 0
            switch rd_kafka_event_type(event) {
            case RD_KAFKA_EVENT_DR:
                while let message = rd_kafka_event_message_next(event) {
                    handler(DeliveryReport(message))
                    count += 1
                }
            case RD_KAFKA_EVENT_ERROR:
                client.events(
                    .error(
                        clientError(
                            client.handle, rd_kafka_event_error(event).rawValue,
                            rd_kafka_event_error_string(event))))
            case RD_KAFKA_EVENT_STATS:
                if let json = rd_kafka_event_stats(event) {
                    client.events(.statistics(String(cString: json)))
                }
            case RD_KAFKA_EVENT_LOG:
                emitLog(event)
            default:
                break
            }
            rd_kafka_event_destroy(event)
        }
        return count
    }

    private func emitLog(_ event: OpaquePointer) {
        var facility: UnsafePointer<CChar>?
        var text: UnsafePointer<CChar>?
        var level: Int32 = 0
        guard rd_kafka_event_log(event, &facility, &text, &level) == 0,
            let line = KafkaLogLine(level, facility, text)
        else { return }
        client.events(.log(line))
    }

    /// Sends queued records without waiting for batches to fill, and passes delivery reports to the handler until the
    /// queue is empty.
    /// - Throws: `_TIMED_OUT` when records are still queued after the given time. The error has their number.
    public func flush(
        timeoutMilliseconds: Int32, _ handler: (borrowing DeliveryReport) -> Void = { _ in }
    ) throws(KafkaError) {
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        while true {
            pollDeliveryReports(handler)
            guard queued > 0 else { return }
            guard !deadline.hasPassed else {
                throw KafkaError(
                    RD_KAFKA_RESP_ERR__TIMED_OUT, "flush the producer",
                    detail:
                        "\(queued) \(queued == 1 ? "record is" : "records are") still not acknowledged after \(timeoutMilliseconds) ms"
                )
            }
            // In event mode this only waits, and keeps batches from lingering.
            rd_kafka_flush(client.handle, min(10, deadline.remainingMilliseconds))
        }
    }

    /// Records whose delivery report was not polled, and events not polled.
    public var queued: Int { Int(rd_kafka_outq_len(client.handle)) }

    /// Drops records that are queued or in flight; each such record gets its failed report. Polls for at most 5 s.
    public func purge(_ handler: (borrowing DeliveryReport) -> Void) {
        rd_kafka_purge(client.handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT)
        let deadline = MonotonicDeadline(milliseconds: 5_000)
        while queued > 0, !deadline.hasPassed { pollDeliveryReports(timeoutMilliseconds: 20, handler) }
    }

    /// Stops writing to the descriptor of `notify`. The client ends when the producer and its topics are released. Call
    /// `flush` before.
    public func close() {
        rd_kafka_queue_io_event_enable(client.queue, -1, nil, 0)
    }
}
