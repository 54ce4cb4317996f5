import CRdkafka

/// The consumer's side of librdkafka's callbacks.
///
/// All of them run inside a poll on the owner's thread: the client is configured so that errors, statistics,
/// log lines and rebalances go through the consumer's queue. librdkafka holds an uncounted pointer to this
/// object; the consumer keeps it until the client is destroyed.
final class ConsumerContext {
    enum Pending {
        case none
        case assign(Set<TopicPartition>)
        case revoke(Set<TopicPartition>)
    }

    private let events: (KafkaConsumerEvent) -> Void
    /// Borrowed from the consumer; set right after the client was created, before anything can poll.
    var client: OpaquePointer?
    var table = PartitionTable()
    var pending = Pending.none
    /// Partitions that the group has assigned, those that aren't read yet included.
    var granted: Set<TopicPartition> = []
    /// Whether the group has ever told this member its partitions.
    var hasRebalanced = false
    /// From now on rebalances are answered here at once and not handed over.
    var isClosing = false

    init(events: @escaping (KafkaConsumerEvent) -> Void) { self.events = events }

    func emit(_ event: KafkaConsumerEvent) { events(event) }

    static func of(_ opaque: UnsafeMutableRawPointer?) -> ConsumerContext? {
        opaque.map { Unmanaged<ConsumerContext>.fromOpaque($0).takeUnretainedValue() }
    }

    static func of(_ client: OpaquePointer?) -> ConsumerContext? {
        client.flatMap { of(rd_kafka_opaque($0)) }
    }

    func install(in configuration: OpaquePointer) {
        rd_kafka_conf_set_opaque(configuration, Unmanaged.passUnretained(self).toOpaque())
        rd_kafka_conf_set_rebalance_cb(configuration) { client, code, partitions, opaque in
            guard let client, let partitions else { return }
            ConsumerContext.of(opaque)?.rebalance(client, code, partitions)
        }
        rd_kafka_conf_set_error_cb(configuration) { client, code, reason, opaque in
            guard let client else { return }
            ConsumerContext.of(opaque)?.emit(.error(clientError(client, code, reason)))
        }
        rd_kafka_conf_set_stats_cb(configuration) { _, json, length, opaque in
            if let json {
                let bytes = UnsafeRawBufferPointer(start: json, count: length)
                ConsumerContext.of(opaque)?.emit(.statistics(String(decoding: bytes, as: UTF8.self)))
            }
            return 0  // librdkafka frees the document.
        }
        rd_kafka_conf_set_log_cb(configuration) { client, level, facility, text in
            guard let line = KafkaLogLine(level, facility, text), let context = ConsumerContext.of(client)
            else {
                return
            }
            context.noteOffsetReset(line)
            context.emit(.log(line))
        }
    }

    /// The one sign that librdkafka 2.0.2 gives when it begins anew in a partition because the broker refused an offset
    /// is a warning in its log (with `log_level` below 4: none). It is in the queue before the first fetch that follows
    /// is sent. With `auto.offset.reset=error` there would be an event, but then the partition is stopped, and only a
    /// new assignment starts it again.
    private func noteOffsetReset(_ line: KafkaLogLine) {
        guard line.facility == "OFFSET", line.level <= 4 else { return }
        for partition in table.assigned {
            let sign = "\(partition.topic) [\(partition.partition)]: offset reset ("
            if line.message.hasPrefix(sign) || line.message.contains(": \(sign)") {
                table.startOver(partition)
            }
        }
    }

    /// An error that came as a message.
    func report(_ message: UnsafeMutablePointer<rd_kafka_message_t>) {
        let code = message.pointee.err
        let partition = message.pointee.rkt.flatMap { rd_kafka_topic_name($0) }.map {
            TopicPartition(String(cString: $0), message.pointee.partition)
        }
        if code == RD_KAFKA_RESP_ERR__PARTITION_EOF, let partition {
            return emit(.endOfPartition(partition, offset: message.pointee.offset))
        }
        let text = rd_kafka_message_errstr(message).map { String(cString: $0) }
        if let partition {
            emit(.partitionError(partition, KafkaError(code, "read \(partition)", detail: text)))
        } else {
            emit(.error(KafkaError(code, "consume", detail: text)))
        }
    }
}

/// The error behind librdkafka's error callback; a fatal one carries its cause.
func clientError(_ client: OpaquePointer, _ code: Int32, _ reason: UnsafePointer<CChar>?) -> KafkaError {
    let text = reason.map { String(cString: $0) } ?? ""
    guard code == RD_KAFKA_RESP_ERR__FATAL.rawValue else {
        return KafkaError(rd_kafka_resp_err_t(rawValue: code), "Kafka client", detail: text)
    }
    var buffer = [CChar](repeating: 0, count: 512)
    let cause = rd_kafka_fatal_error(client, &buffer, buffer.count)
    return KafkaError(
        code: cause.rawValue, message: "Kafka client failed for good: \(ClientConfiguration.text(buffer))",
        isFatal: true)
}
