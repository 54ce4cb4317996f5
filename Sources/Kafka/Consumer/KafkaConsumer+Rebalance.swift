import CRdkafka

extension KafkaConsumer {
    /// Partitions that this consumer reads now: answered assignments without answered revocations.
    public var assignment: [TopicPartition] { context.table.assigned }

    /// Whether the group has revoked the partitions already, so that a commit would fail.
    public var isAssignmentLost: Bool { rd_kafka_assignment_lost(client) != 0 }

    /// Reads partitions of the group's assignment, each from the given offset. Answers `KafkaConsumerEvent.assigned` if
    /// the event is still unanswered. Partitions of the event that aren't named also belong to this consumer, and are
    /// read when a later call names them. The other partitions continue meanwhile. Also valid within the event.
    ///
    /// In a consumer without topics: reads exactly these partitions from now on.
    /// - Throws: when the group hasn't assigned a partition, a partition is read already, or librdkafka refuses.
    ///   Without a cooperative strategy, an answer names all partitions.
    public func assign(_ partitions: [TopicPartitionOffset]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("assign: the consumer is closed") }
        guard subscribes else {
            if let error = context.answer(assign: partitions) { throw error }
            return
        }
        let waiting = context.unread
        for partition in partitions where !waiting.contains(partition.topicPartition) {
            throw .invalid(
                "assign: \(partition.topicPartition) is not waiting to be read; waiting are: "
                    + waiting.sorted().map(\.description).joined(separator: ", "))
        }
        if case .assign = context.pending {
            if let error = context.answer(assign: partitions) { throw error }
        } else {
            // A loss that is not yet reported must not be treated as a mere revocation.
            guard !isAssignmentLost else { throw .invalid("assign: the group has revoked all partitions") }
            try add(partitions)
        }
    }

    /// Answers `KafkaConsumerEvent.revoked` or `.lost` with exactly the event's partitions. This call releases the
    /// partitions: commit before. `poll` returns no record of them any more. Also valid within the event.
    ///
    /// In a consumer without topics: stops reading all partitions.
    /// - Throws: when no revocation waits for an answer, the partitions differ, or librdkafka refuses.
    public func unassign(_ partitions: [TopicPartition]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("unassign: the consumer is closed") }
        if subscribes {
            guard case .revoke(let expected) = context.pending else {
                throw .invalid("unassign: no revocation waits for an answer")
            }
            guard Set(partitions) == expected else {
                throw .invalid(
                    "unassign: the answer must name exactly the partitions of the event: "
                        + expected.sorted().map(\.description).joined(separator: ", "))
            }
        }
        // librdkafka keeps the mark of a pause beyond the assignment: the reassigned partition would stay silent.
        let stillPaused = partitions.filter { paused.contains($0) }
        if !stillPaused.isEmpty { try resume(stillPaused) }
        if let error = context.answer(unassign: partitions) { throw error }
    }

    /// Reads these partitions as well, in a consumer without topics. Keeps records prefetched for other partitions.
    public func add(_ partitions: [TopicPartitionOffset]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("assign: the consumer is closed") }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        if let error = rd_kafka_incremental_assign(client, list.pointer) {
            throw KafkaError(consuming: error, "assign partitions")
        }
        for partition in partitions { context.table.assign(partition.topicPartition) }
    }

    /// Stops reading these partitions, in a consumer without topics. Keeps records prefetched for other partitions.
    public func remove(_ partitions: [TopicPartition]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("unassign: the consumer is closed") }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        if let error = rd_kafka_incremental_unassign(client, list.pointer) {
            throw KafkaError(consuming: error, "unassign partitions")
        }
        for partition in partitions { context.table.unassign(partition) }
    }

    // MARK: Pausing

    /// Stops returning records of these partitions; records already returned are unaffected. librdkafka drops
    /// prefetched records and fetches them again after `resume`. For a short break it is cheaper not to poll.
    public func pause(_ partitions: [TopicPartition]) throws(KafkaError) {
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        let code = rd_kafka_pause_partitions(client, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "pause partitions") }
        if let error = list.firstError("pause") { throw error }
        paused.formUnion(partitions)
    }

    /// Continues behind the last returned record. Partitions that are not paused are unaffected.
    public func resume(_ partitions: [TopicPartition]) throws(KafkaError) {
        let partitions = partitions.filter { paused.contains($0) }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        let code = rd_kafka_resume_partitions(client, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "resume partitions") }
        paused.subtract(partitions)
        if let error = list.firstError("resume") { throw error }
    }

    /// Partitions that the owner has paused and not resumed.
    public var pausedPartitions: Set<TopicPartition> { paused }
}

extension ConsumerContext {
    /// Handles librdkafka's callback. The owner answers later; until then librdkafka keeps the group waiting.
    func rebalance(
        _ client: OpaquePointer, _ code: rd_kafka_resp_err_t,
        _ list: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>
    ) {
        hasRebalanced = true
        hold.rebalanced(joins: watch.traffic.joins)
        // The list belongs to librdkafka and is valid only during the callback.
        let named = PartitionList.elements(list).map { TopicPartition($0) }
        let partitions = named.filter { TopicPartition.numbers.contains($0.partition) }
        switch code {
        case RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            // The group's leader, another program, has chosen the partitions.
            for partition in named where !TopicPartition.numbers.contains(partition.partition) {
                let most = TopicPartition.numbers.upperBound - 1
                emit(
                    .partitionError(
                        partition,
                        .invalid("\(partition) is not read; only partitions from 0 to \(most) are supported"))
                )
            }
            pending = .assign(Set(partitions))
            if isCooperative(client) { granted.formUnion(partitions) } else { granted = Set(partitions) }
            if isClosing {
                _ = answer(assign: partitions.map { TopicPartitionOffset($0) })
            } else {
                emit(.assigned(partitions))
            }
        case RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            pending = .revoke(Set(partitions))
            if isClosing {
                _ = answer(unassign: partitions)
            } else {
                emit(rd_kafka_assignment_lost(client) != 0 ? .lost(partitions) : .revoked(partitions))
            }
        default:
            emit(.error(KafkaError(code, "rebalance")))
            rd_kafka_assign(client, nil)
            table.removeAll()
            granted = []
            answered()
        }
    }

    /// Whether the group's assignor moves partitions one by one. Otherwise (`range`, `roundrobin`) each rebalance
    /// revokes all partitions and assigns all.
    private func isCooperative(_ client: OpaquePointer) -> Bool {
        guard let name = rd_kafka_rebalance_protocol(client) else { return false }
        return String(cString: name) == "COOPERATIVE"
    }

    /// Partitions that the group has assigned and that aren't read.
    var unread: Set<TopicPartition> { granted.filter { !table.contains($0) } }

    func answer(assign partitions: [TopicPartitionOffset]) -> KafkaError? {
        guard let client else { return nil }
        let list = PartitionList(partitions)
        if isCooperative(client) {
            if let error = rd_kafka_incremental_assign(client, list.pointer) {
                return KafkaError(consuming: error, "assign partitions")
            }
        } else {
            let code = rd_kafka_assign(client, list.pointer)
            if code != RD_KAFKA_RESP_ERR_NO_ERROR { return KafkaError(code, "assign partitions") }
            table.removeAll()
        }
        for partition in partitions { table.assign(partition.topicPartition) }
        answered()
        return nil
    }

    func answer(unassign partitions: [TopicPartition]) -> KafkaError? {
        guard let client else { return nil }
        if isCooperative(client) {
            // librdkafka refuses partitions that it doesn't read.
            let list = PartitionList(partitions.filter(table.contains))
            if let error = rd_kafka_incremental_unassign(client, list.pointer) {
                return KafkaError(consuming: error, "unassign partitions")
            }
            for partition in partitions { table.unassign(partition) }
            granted.subtract(partitions)
            hold.revoked(joins: watch.traffic.joins, at: MonotonicDeadline.now)
        } else {
            let code = rd_kafka_assign(client, nil)
            if code != RD_KAFKA_RESP_ERR_NO_ERROR { return KafkaError(code, "unassign partitions") }
            table.removeAll()
            granted = []
        }
        answered()
        return nil
    }

    private func answered() {
        pending = .none
        hold.answered(at: MonotonicDeadline.now)
    }
}
