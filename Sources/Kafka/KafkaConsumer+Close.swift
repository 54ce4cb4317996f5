import CRdkafka
import Glibc

extension KafkaConsumer {
    /// Brings the group membership into a state from which librdkafka can close: a pending assignment is
    /// accepted first. librdkafka before 2.5.0 never ends closing when an assignment is answered while it
    /// closes (its CHANGELOG, #4528).
    func settleBeforeClose() {
        if case .assign(let partitions) = context.pending {
            _ = context.answer(assign: partitions.map { TopicPartitionOffset($0) })
        }
        serve(timeoutMilliseconds: 0)
    }

    /// Whether this may be the moment between the answers to JoinGroup and SyncGroup of the very first
    /// assignment: a cooperative client that is destroyed then crashes before librdkafka 2.3.0 (its
    /// CHANGELOG, #4381). It lies between "has a member identifier" and the first rebalance event; more
    /// cannot be seen from here.
    var mayBeInFirstJoin: Bool {
        subscribes && KafkaLibrary.isOlder(thanMajor: 2, minor: 3) && !context.hasRebalanced
            && memberID != nil
    }

    /// Serves events; records that come with them are not wanted any more.
    private func serve(timeoutMilliseconds: Int32) {
        guard let queue else { return }
        Self.serve(queue, context, timeoutMilliseconds)
    }

    private static func serve(
        _ queue: OpaquePointer, _ context: ConsumerContext, _ timeoutMilliseconds: Int32
    ) {
        var taken: UnsafeMutablePointer<rd_kafka_message_t>?
        var timeout = timeoutMilliseconds
        while rd_kafka_consume_batch_queue(queue, timeout, &taken, 1) == 1, let message = taken {
            if message.pointee.err != RD_KAFKA_RESP_ERR_NO_ERROR { context.report(message) }
            rd_kafka_message_destroy(message)
            timeout = 0
        }
    }

    /// Leaves the group, serving the rebalance that this brings. `rd_kafka_consumer_close` would do the same
    /// without a limit of time.
    func leaveGroup(until deadline: MonotonicDeadline) -> Bool {
        let closing = rd_kafka_queue_new(client)!
        defer { rd_kafka_queue_destroy(closing) }
        if let error = rd_kafka_consumer_close_queue(client, closing) {
            // A client with a fatal error does not close in order, but it can be destroyed.
            rd_kafka_error_destroy(error)
            return true
        }
        // Answered now and not before: an answered revoke is followed by an assignment, see above.
        if case .revoke(let partitions) = context.pending { _ = context.answer(unassign: Array(partitions)) }
        while rd_kafka_consumer_closed(client) == 0 {
            if deadline.hasPassed { return false }
            Self.serve(closing, context, 20)
        }
        Self.serve(closing, context, 0)
        return true
    }
}

/// A point on the monotonic clock.
struct MonotonicDeadline {
    private let nanoseconds: UInt64

    init(milliseconds: Int32) { nanoseconds = Self.now + UInt64(max(0, milliseconds)) * 1_000_000 }

    var hasPassed: Bool { Self.now >= nanoseconds }

    /// Rounded up; 0 when the deadline has passed.
    var remainingMilliseconds: Int32 {
        let now = Self.now
        return now >= nanoseconds ? 0 : Int32((nanoseconds - now + 999_999) / 1_000_000)
    }

    private static var now: UInt64 { clock_gettime_nsec(CLOCK_MONOTONIC) }

    private static func clock_gettime_nsec(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
