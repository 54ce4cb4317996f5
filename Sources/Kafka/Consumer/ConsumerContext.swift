import CRdkafka

/// The consumer's side of librdkafka's callbacks.
///
/// All callbacks run inside a poll on the owner's thread. The client is configured to queue errors, statistics, log
/// lines and rebalances in the consumer's queue. The library holds an uncounted pointer to this object; the consumer
/// keeps it until the client is destroyed.
final class ConsumerContext {
    enum Pending {
        case none
        case assign(Set<TopicPartition>)
        case revoke(Set<TopicPartition>)
    }

    private let events: (KafkaConsumerEvent) -> Void
    /// Client, borrowed from the consumer; set right after its creation, before anything can poll.
    var client: OpaquePointer?
    var table = PartitionTable()
    var pending = Pending.none
    var isEventOpen: Bool { if case .none = pending { false } else { true } }
    /// Partitions that the group has assigned, including partitions that aren't read yet.
    var granted: Set<TopicPartition> = []
    /// Requests to the group. The context keeps the watch, because the context outlives the client.
    let watch = JoinWatch()
    var hold = CommitHold()
    /// Whether the group has ever assigned or revoked partitions of this member.
    var hasRebalanced = false
    /// Whether the consumer is closing: rebalances are then answered here at once and not reported.
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
        watch.install(in: configuration)
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

    /// Detects that librdkafka started over in a partition because the broker refused an offset. The only sign in
    /// librdkafka 2.0.2 is a warning in its log (with `log_level` below 4: none). The warning is queued before the
    /// first fetch that follows is sent. `auto.offset.reset=error` would produce an event, but it stops the partition.
    /// Only a new assignment starts the partition again.
    private func noteOffsetReset(_ line: KafkaLogLine) {
        guard line.facility == "OFFSET", line.level <= 4 else { return }
        for partition in table.assigned {
            let sign = "\(partition.topic) [\(partition.partition)]: offset reset ("
            if line.message.hasPrefix(sign) || line.message.contains(": \(sign)") {
                table.startOver(partition)
            }
        }
    }

    /// Reports an error that arrived as a message.
    func report(_ message: UnsafeMutablePointer<rd_kafka_message_t>) {
        let code = message.pointee.err
        let partition = message.pointee.rkt.flatMap { rd_kafka_topic_name($0) }.map {
            TopicPartition(String(cString: $0), message.pointee.partition)
        }
        if code == RD_KAFKA_RESP_ERR__PARTITION_EOF, let partition {
            return emit(.endOfPartition(partition, offset: message.pointee.offset))
        }
        let text = rd_kafka_message_errstr(message).map { String(cString: $0) }
        if code == RD_KAFKA_RESP_ERR__FATAL, let client {
            // A fatal error of a consumer arrives as a message, and its cause is asked for.
            emit(.error(clientError(client, code.rawValue, nil)))
        } else if let partition {
            emit(.partitionError(partition, KafkaError(code, "read \(partition)", detail: text)))
        } else {
            emit(.error(KafkaError(code, "consume", detail: text)))
        }
    }
}

/// Returns the error behind librdkafka's error callback; a fatal error carries its cause.
func clientError(_ client: OpaquePointer, _ code: Int32, _ reason: UnsafePointer<CChar>?) -> KafkaError {
    let text = reason.map { String(cString: $0) } ?? ""
    guard code == RD_KAFKA_RESP_ERR__FATAL.rawValue else {
        return KafkaError(rd_kafka_resp_err_t(rawValue: code), "Kafka client", detail: text)
    }
    var buffer = [CChar](repeating: 0, count: 512)
    let cause = rd_kafka_fatal_error(client, &buffer, buffer.count)
    return KafkaError(
        code: cause.rawValue, message: "Kafka client failed fatally: \(ClientConfiguration.text(buffer))",
        isFatal: true)
}
