import CRdkafka

extension KafkaConsumer {
    /// Brings the group membership into a state from which librdkafka can close: a pending assignment is
    /// accepted first. librdkafka before 2.5.0 never ends closing when an assignment is answered while it
    /// closes (its CHANGELOG, #4528).
    func settleBeforeClose() {
        if case .assign(let partitions) = context.pending {
            _ = context.answer(assign: partitions.map { TopicPartitionOffset($0) })
        }
        // What waits now and not more: records may come in as fast as they are taken out.
        if let queue { Self.serve(queue, context, 0, atMost: rd_kafka_queue_length(queue) + 1) }
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

    /// Gives up the subscription, and serves events until the leader of the group is told, or the deadline has passed.
    ///
    /// librdkafka puts this off while a rebalance is under way. Closing doesn't: a LeaveGroup request would wait behind the
    /// JoinGroup request that the broker has not answered, and end unanswered after five seconds. Also a static member
    /// (`group.instance.id`) leaves so; by closing alone it never does (KIP-345).
    /// - Returns: whether the request to leave was sent, or there was no membership.
    func unsubscribe(until deadline: MonotonicDeadline) -> Bool {
        guard subscribes, let queue, memberID != nil else { return true }
        guard rd_kafka_unsubscribe(client) == RD_KAFKA_RESP_ERR_NO_ERROR else { return false }
        // Not before: the assignment that follows would be answered with another JoinGroup request.
        if case .revoke(let partitions) = context.pending { _ = context.answer(unassign: Array(partitions)) }
        // librdkafka forgets its member identifier with the request to leave.
        while memberID != nil {
            if deadline.hasPassed { return false }
            Self.serve(queue, context, 10, atMost: 1_000)
        }
        return true
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
            Self.serve(closing, context, 20, atMost: 1_000)
        }
        Self.serve(closing, context, 0, atMost: 1_000)
        return true
    }
}
