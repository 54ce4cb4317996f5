import CRdkafka
import Synchronization

/// A member of a consumer group that hands out records in batches and leaves every decision about offsets to
/// its owner: nothing is committed unless the owner says so.
///
/// Threads: everything is called on one thread at a time, the owner's; records may be destroyed on any.
/// Events arrive inside `poll` and `close` on that thread, log lines and statistics included.
///
/// Order of ending: finish and commit, `close()`, destroy all records, then let go of the consumer. `poll`
/// must be called at least every `max.poll.interval.ms` (librdkafka's default: 5 minutes), also while
/// partitions are paused or a rebalance waits for its answer; otherwise the group takes the partitions away
/// (`KafkaConsumerEvent.lost`).
public final class KafkaConsumer {
    /// Freed in `deinit`, after all that refers to it: queues first, then records. Not freed when `close`
    /// could not end the client's own threads; then the process keeps it.
    let client: OpaquePointer
    /// For a thread that may wait for Kafka.
    public let offsets: GroupOffsets
    /// The queue records and events arrive in. Freed by `close`, before the client leaves its group, as
    /// librdkafka demands; `nil` afterwards.
    var queue: OpaquePointer?
    /// What the C callbacks work on. The client holds an uncounted pointer to it, so it must outlive
    /// `client`.
    let context: ConsumerContext
    /// Whether the group hands out the partitions; if not, the owner takes what it wants with `assign`.
    let subscribes: Bool
    public let group: String
    var nextCommitReference: UInt64 = 1
    /// Partitions the owner has paused. Resuming one that is not paused would make librdkafka 2.0.2 start
    /// over from where it last started.
    var paused: Set<TopicPartition> = []
    private(set) var isClosed = false
    private var hasLeft = false
    /// The client cannot be destroyed without the risk of a crash or of waiting forever: it is left to the
    /// process.
    private var mustKeepClient = false
    private static let kept = Atomic<Int>(0)
    /// Clients that this process has left behind with their threads and sockets, as they could not be destroyed.
    public static var keptClients: Int { kept.load(ordering: .relaxed) }

    /// Creates the client and joins the group (`group.id`) for the topics. Names that begin with `^` are
    /// regular expressions. Without topics the consumer joins no group: the owner names partitions with
    /// `assign`.
    ///
    /// Connections are made in the background: a broker that cannot be reached is an event, not an error
    /// here.
    /// - Throws: an error that names the property that is missing, unknown, bad or not to be changed.
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
        configuration.configure { context.install(in: $0) }
        client = try configuration.create()
        self.context = context
        offsets = GroupOffsets(client: client, group: group)
        context.client = client
        // All of the client's events go to the one queue that poll serves.
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
            Self.kept.add(1, ordering: .relaxed)
            _ = Unmanaged.passRetained(context)
        } else {
            rd_kafka_destroy(client)
        }
    }

    // MARK: Records

    /// Takes up to `buffer.count` records into uninitialised `buffer`, from its start, and returns how many.
    /// Waits for the first one at most the given time (0: not at all), never for more. Events are handed over
    /// meanwhile.
    ///
    /// Each record must be destroyed once by whoever holds it. Within one assignment of a partition its
    /// offsets rise and none comes twice, unless the log has gone back (it was truncated, or its topic made anew) and
    /// reading begins anew; records of partitions that are not assigned are never returned.
    /// Records returned earlier are unaffected by a later pause or rebalance: what to do with them is the
    /// owner's business.
    ///
    /// One record is taken from librdkafka at a time. Its batch call (`rkmessages_size` > 1) loses records in
    /// release 2.0.2 when the library pauses partitions during the call, as it does in every rebalance (its
    /// CHANGELOG: 2.0.0 "known issues", fixed in 2.1.0); with one record per call there is nothing to lose.
    public func poll(
        into buffer: UnsafeMutableBufferPointer<ConsumedRecord>, timeoutMilliseconds: Int32 = 0
    ) -> Int {
        guard let queue else { return 0 }
        var count = 0
        var timeout = timeoutMilliseconds
        while count < buffer.count {
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
                count += 1
            } else {
                rd_kafka_message_destroy(message)
            }
        }
        return count
    }

    /// Writes 8 bytes (the value 1, as an eventfd wants) to the descriptor when the queue turns from empty to
    /// not empty. Once it has written, it is silent until `poll` runs: after a wake-up poll until fewer
    /// records come than asked for, or schedule the next poll yourself.
    ///
    /// The descriptor must be non-blocking and stay open until `close` has returned; librdkafka's threads
    /// write to it.
    public func notify(fileDescriptor: Int32) {
        guard let queue else { return }
        var one: UInt64 = 1
        rd_kafka_queue_io_event_enable(queue, fileDescriptor, &one, 8)
    }

    /// How many records and events wait in the queue, about.
    public var queueLength: Int { queue.map { rd_kafka_queue_length($0) } ?? 0 }

    /// Records that librdkafka delivered again or too late, and that `poll` did not hand out.
    public var droppedRecords: UInt64 { context.table.dropped }

    /// The member's identifier in the group, once it has one: for logs.
    public var memberID: String? {
        guard let text = rd_kafka_memberid(client) else { return nil }
        defer { rd_kafka_mem_free(client, text) }
        let identifier = String(cString: text)
        return identifier.isEmpty ? nil : identifier
    }

    // MARK: End

    /// Leaves the group and stops the client. A rebalance that is under way ends first, as far as there is time: its
    /// assignment is accepted, and what is assigned is given back. Commit before, nothing is committed by closing. Commits under way are waited
    /// for and reported as events.
    ///
    /// Records stay valid; the client's memory is freed when the consumer is let go of, which waits for all
    /// records to be destroyed.
    ///
    /// - Returns: false when librdkafka had not left the group after the given time; the group then notices
    ///   the absence by its session timeout. In this case, and when the consumer is closed while it joins for
    ///   the first time, the client's threads and memory are left to the end of the process (defects of
    ///   librdkafka 2.0.2).
    @discardableResult
    public func close(timeoutMilliseconds: Int32 = 10_000) -> Bool {
        guard !isClosed else { return hasLeft }
        isClosed = true
        offsets.close()
        context.isClosing = true
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        settleBeforeClose()
        // Asked first: with the request to leave, librdkafka forgets its member identifier.
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
