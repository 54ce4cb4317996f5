import CRdkafka

extension KafkaConsumer {
    /// Prepares the group membership so that librdkafka can close: accepts a pending assignment first. Before 2.5.0,
    /// librdkafka never finishes closing when an assignment is answered meanwhile (its CHANGELOG, #4528).
    func settleBeforeClose() {
        if case .assign(let partitions) = context.pending {
            _ = context.answer(assign: partitions.map { TopicPartitionOffset($0) })
        }
        // Serves only the present queue, because new records may arrive as fast as they are removed.
        if let queue { Self.serve(queue, context, 0, atMost: rd_kafka_queue_length(queue) + 1) }
    }

    /// Whether this may be the moment between the answers to JoinGroup and SyncGroup of the first assignment. A
    /// cooperative client destroyed at this moment crashes before librdkafka 2.3.0 (its CHANGELOG, #4381). The moment
    /// lies between "has a member identifier" and the first rebalance event; this code cannot see more.
    var mayBeInFirstJoin: Bool {
        subscribes && KafkaLibrary.isOlder(thanMajor: 2, minor: 3) && !context.hasRebalanced
            && memberID != nil
    }

    /// Serves events, and destroys the records among them.
    private static func serve(
        _ queue: OpaquePointer, _ context: ConsumerContext, _ timeoutMilliseconds: Int32, atMost limit: Int
    ) {
        var taken: UnsafeMutablePointer<rd_kafka_message_t>?
        var timeout = timeoutMilliseconds
        for _ in 0..<limit {
            guard rd_kafka_consume_batch_queue(queue, timeout, &taken, 1) == 1, let message = taken else {
                return
            }
            if message.pointee.err != RD_KAFKA_RESP_ERR_NO_ERROR { context.report(message) }
            rd_kafka_message_destroy(message)
            timeout = 0
        }
    }

    /// Unsubscribes, and serves events until the request to leave is sent, or the deadline has passed.
    ///
    /// During a rebalance librdkafka postpones unsubscribing. Closing is not postponed: a LeaveGroup request would wait
    /// behind the JoinGroup request that the broker has not answered. It would end unanswered after five seconds. A
    /// static member (`group.instance.id`) also leaves by unsubscribing; closing alone never makes it leave (KIP-345).
    /// - Returns: whether the request to leave was sent, or there was no membership.
    func unsubscribe(until deadline: MonotonicDeadline) -> Bool {
        guard subscribes, let queue, memberID != nil else { return true }
        guard rd_kafka_unsubscribe(client) == RD_KAFKA_RESP_ERR_NO_ERROR else { return false }
        // Answered only after unsubscribing: the assignment that follows would otherwise be answered with another
        // JoinGroup request.
        if case .revoke(let partitions) = context.pending { _ = context.answer(unassign: Array(partitions)) }
        // librdkafka clears its member identifier with the request to leave.
        while memberID != nil {
            if deadline.hasPassed { return false }
            Self.serve(queue, context, 10, atMost: 1_000)
        }
        return true
    }

    /// Leaves the group, and serves the resulting rebalance. `rd_kafka_consumer_close` would do the same without a time
    /// limit.
    func leaveGroup(until deadline: MonotonicDeadline) -> Bool {
        let closing = rd_kafka_queue_new(client)!
        defer { rd_kafka_queue_destroy(closing) }
        if let error = rd_kafka_consumer_close_queue(client, closing) {
            // A client with a fatal error does not close in order, but can be destroyed.
            rd_kafka_error_destroy(error)
            return true
        }
        // Answered only now, because an assignment follows an answered revocation, see above.
        if case .revoke(let partitions) = context.pending { _ = context.answer(unassign: Array(partitions)) }
        while rd_kafka_consumer_closed(client) == 0 {
            if deadline.hasPassed { return false }
            Self.serve(closing, context, 20, atMost: 1_000)
        }
        Self.serve(closing, context, 0, atMost: 1_000)
        return true
    }
}
