import CRdkafka

/// A member of a consumer group that returns records in batches. The owner decides about all offsets: nothing is
/// committed unless the owner commits.
///
/// Threads: all calls on one thread at a time, the owner's; records may be destroyed on any thread. Events, log lines
/// and statistics are reported inside `poll` and `close` on the owner's thread.
///
/// Order of ending: finish and commit, `close()`, destroy all records, then release the consumer. Call `poll` at least
/// every `max.poll.interval.ms` (librdkafka's default: 5 minutes). This also holds while partitions are paused or a
/// rebalance waits for its answer. Otherwise the group revokes the partitions (`KafkaConsumerEvent.lost`).
public final class KafkaConsumer {
    /// Freed in `deinit`, after every object that refers to it: queues first, then records. The process keeps the
    /// client when `close` could not end the client's own threads.
    let client: OpaquePointer
    /// Queries of the group's offsets, for a thread that may wait for Kafka.
    public let offsets: GroupOffsets
    /// Queue of records and events. Freed by `close`, before the client leaves its group, because librdkafka demands
    /// that order; `nil` afterwards.
    var queue: OpaquePointer?
    /// State of the C callbacks. The client holds an uncounted pointer to the context, so the context must outlive
    /// `client`.
    let context: ConsumerContext
    /// Whether the group assigns the partitions; if not, the owner chooses partitions with `assign`.
    let subscribes: Bool
    /// Name of the consumer group.
    public let group: String
    var nextCommitReference: UInt64 = 1
    /// Partitions the owner has paused. Resuming a partition that is not paused would make librdkafka 2.0.2 restart
    /// from the partition's last start.
    var paused: Set<TopicPartition> = []
    private(set) var isClosed = false
    private var hasLeft = false
    /// Whether destroying the client risks a crash or an endless wait; the process keeps such a client.
    private var mustKeepClient = false
    /// Clients that this process keeps with their threads and sockets, because they could not be destroyed.
    public static var keptClients: Int { ClientDestruction.keptClients }

    /// Creates the client and joins the group (`group.id`) for the topics. Names that begin with `^` are regular
    /// expressions. Without topics the consumer joins no group: the owner names partitions with `assign`.
    ///
    /// Connections are made in the background: an unreachable broker is an event, not an error here.
    /// - Throws: an error that names the property that is missing, unknown, invalid or fixed.
    public convenience init(
        properties: KafkaProperties, topics: [String], events: @escaping (KafkaConsumerEvent) -> Void
    ) throws(KafkaError) {
        try self.init(.consumer, properties: properties, topics: topics, events: events)
    }

    /// - Parameter kind: `consumer` or `reader`.
    init(
        _ kind: ClientConfiguration.Kind, properties: KafkaProperties, topics: [String],
        events: @escaping (KafkaConsumerEvent) -> Void
    ) throws(KafkaError) {
        guard let group = properties["group.id"], !group.isEmpty else {
            throw .invalid("kafka property \"group.id\" is missing: name the consumer group")
        }
        self.group = group
        subscribes = !topics.isEmpty
        let context = ConsumerContext(events: events)
        let configuration = try ClientConfiguration(kind, properties)
        configuration.configure(hasInterceptors: true) { context.install(in: $0) }
        client = try configuration.create()
        self.context = context
        offsets = GroupOffsets(client: client, group: group)
        context.client = client
        if let interval = properties["heartbeat.interval.ms"].flatMap({ UInt64($0) }) {
            // librdkafka has accepted the value, which is at most an hour.
            context.hold = CommitHold(heartbeatMilliseconds: min(interval, 3_600_000))
        }
        // All of the client's events enter the one queue that poll serves.
        _ = rd_kafka_poll_set_consumer(client)
        _ = rd_kafka_set_log_queue(client, nil)
        queue = rd_kafka_queue_get_consumer(client)
        guard !topics.isEmpty else { return }
        let list = PartitionList(topics.map { TopicPartition($0, -1) })
        let code = rd_kafka_subscribe(client, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(code, "subscribe to \(topics.joined(separator: ", "))")
        }
    }

    deinit {
        if !isClosed { _ = close() }
        if mustKeepClient {
            ClientDestruction.keep()
        } else if ClientDestruction.destroy(client) {
            return
        }
        // Callbacks of the client use the context.
        _ = Unmanaged.passRetained(context)
    }

    // MARK: Records

    /// Writes up to `buffer.count` records into uninitialised `buffer`, from its start, and returns their number. Waits
    /// at most the given time for the first record (0: not at all), never for more. Reports events meanwhile.
    ///
    /// The holder destroys each record exactly once. Within one assignment of a partition, offsets rise and none is
    /// repeated. An exception is a log that went back (truncated, or its topic recreated), where reading starts over.
    /// Records of unassigned partitions are never returned. A later pause or rebalance doesn't affect returned records:
    /// the owner decides about them.
    ///
    /// Takes one record from librdkafka at a time. In release 2.0.2, the batch call (`rkmessages_size` > 1) can lose
    /// records. Records are lost when the library pauses partitions during the call, as in every rebalance. See its
    /// CHANGELOG: 2.0.0 "known issues", fixed in 2.1.0. With one record per call nothing can be lost.
    ///
    /// - Parameter bytes: bytes after which no further record is taken, as ``ConsumedRecord/countedBytes(before:)`` counts
    ///   them. The last two records may exceed them. One record is taken in any case.
    public func poll(
        into buffer: UnsafeMutableBufferPointer<ConsumedRecord>, bytes: Int = .max,
        timeoutMilliseconds: Int32 = 0
    ) -> Int {
        guard let queue else { return 0 }
        var (count, left) = (0, bytes)
        var timeout = timeoutMilliseconds
        while count < buffer.count, left > 0 || count == 0 {
            var taken: UnsafeMutablePointer<rd_kafka_message_t>?
            guard rd_kafka_consume_batch_queue(queue, timeout, &taken, 1) == 1, let message = taken else {
                break
            }
            timeout = 0
            if message.pointee.err != RD_KAFKA_RESP_ERR_NO_ERROR {
                context.report(message)
                rd_kafka_message_destroy(message)
            } else if context.table.admit(
                message.pointee.rkt, message.pointee.partition, message.pointee.offset)
            {
                buffer.initializeElement(at: count, to: ConsumedRecord(message))
                if bytes != .max, count > 0 {
                    left &-= buffer[count - 1].countedBytes(before: buffer[count])
                }
                count += 1
            } else {
                rd_kafka_message_destroy(message)
            }
        }
        return count
    }

    /// Writes 8 bytes (the value 1, as an eventfd expects) to the descriptor when the queue turns from empty to not
    /// empty. After a write it is silent until `poll` runs. After a wake-up, poll until fewer records are returned than
    /// requested and their bytes are below the limit, or schedule the next poll yourself.
    ///
    /// The descriptor must be non-blocking and stay open until `close` has returned; librdkafka's threads write to it.
    public func notify(fileDescriptor: Int32) {
        guard let queue else { return }
        var one: UInt64 = 1
        rd_kafka_queue_io_event_enable(queue, fileDescriptor, &one, 8)
    }

    /// Approximate number of records and events in the queue.
    public var queueLength: Int { queue.map { rd_kafka_queue_length($0) } ?? 0 }

    /// Records that librdkafka delivered again or too late, and that `poll` did not return.
    public var droppedRecords: UInt64 { context.table.dropped }

    /// The member's identifier in the group, for logs; nil before the group assigned an identifier.
    public var memberID: String? {
        guard let text = rd_kafka_memberid(client) else { return nil }
        defer { rd_kafka_mem_free(client, text) }
        let identifier = String(cString: text)
        return identifier.isEmpty ? nil : identifier
    }

    // MARK: End

    /// Leaves the group and stops the client. A rebalance that is in progress ends first, as far as time allows. Its
    /// assignment is accepted, and the assigned partitions are revoked. Commit before, because closing commits nothing.
    /// Commits in progress are awaited and reported as events.
    ///
    /// Records stay valid. The client's memory is freed when the consumer is released, which waits for all records to
    /// be destroyed.
    ///
    /// - Returns: false when librdkafka had not left the group after the given time. The group then notices the absence
    ///   by its session timeout. The client's threads and memory then last until the process ends, because of defects
    ///   of librdkafka 2.0.2. They also last when the consumer is closed during its first join.
    @discardableResult
    public func close(timeoutMilliseconds: Int32 = 10_000) -> Bool {
        guard !isClosed else { return hasLeft }
        isClosed = true
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        offsets.close()
        context.isClosing = true
        settleBeforeClose()
        // Read first, because librdkafka clears its member identifier with the request to leave.
        var joining = mayBeInFirstJoin
        let hasUnsubscribed = unsubscribe(until: deadline)
        if let queue {
            rd_kafka_queue_io_event_enable(queue, -1, nil, 0)
            rd_kafka_queue_destroy(queue)
        }
        queue = nil
        hasLeft = leaveGroup(until: deadline) && hasUnsubscribed
        joining = joining || mayBeInFirstJoin
        mustKeepClient = !hasLeft || (joining && !context.hasRebalanced)
        context.table.removeAll()
        return hasLeft
    }
}
