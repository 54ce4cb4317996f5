import CRdkafka

extension KafkaConsumer {
    /// What this consumer reads now: answered assignments without answered revocations.
    public var assignment: [TopicPartition] { context.table.assigned }

    /// Whether the group has taken the partitions away already, so that a commit would fail.
    public var isAssignmentLost: Bool { rd_kafka_assignment_lost(client) != 0 }

    /// Reads partitions of the group's assignment, each from the given place, and answers `KafkaConsumerEvent.assigned`
    /// where that is still to be done. Partitions of the event that aren't named are this consumer's as well, and are read
    /// when a later call names them; the other partitions go on meanwhile. Also valid within the event.
    ///
    /// In a consumer without topics: reads exactly these partitions from now on.
    /// - Throws: when the group hasn't assigned a partition, when a partition is read already, or when librdkafka refuses.
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
                "assign: \(partition.topicPartition) doesn't wait to be read; these do: "
                    + waiting.sorted().map(\.description).joined(separator: ", "))
        }
        if case .assign = context.pending {
            if let error = context.answer(assign: partitions) { throw error }
        } else {
            // A loss that is still to be handed out must not be taken for a mere revocation.
            guard !isAssignmentLost else { throw .invalid("assign: the group has taken all partitions away") }
            try add(partitions)
        }
    }

    /// Answers `KafkaConsumerEvent.revoked` or `.lost`: exactly its partitions. They are gone with this call:
    /// commit before. No record of them is returned any more. Also valid within the event.
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
        // The mark of a pause outlives an assignment in librdkafka: the partition would come back silent.
        let stillPaused = partitions.filter { paused.contains($0) }
        if !stillPaused.isEmpty { try resume(stillPaused) }
        if let error = context.answer(unassign: partitions) { throw error }
    }

    /// Reads these partitions as well. Records fetched ahead of others are kept.
    func add(_ partitions: [TopicPartitionOffset]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("assign: the consumer is closed") }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        if let error = rd_kafka_incremental_assign(client, list.pointer) {
            throw KafkaError(consuming: error, "assign partitions")
        }
        for partition in partitions { context.table.assign(partition.topicPartition) }
    }

    /// In a consumer without topics: reads these partitions no more. What is fetched ahead of others is kept.
    func remove(_ partitions: [TopicPartition]) throws(KafkaError) {
        guard !isClosed else { throw .invalid("unassign: the consumer is closed") }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        if let error = rd_kafka_incremental_unassign(client, list.pointer) {
            throw KafkaError(consuming: error, "unassign partitions")
        }
        for partition in partitions { context.table.unassign(partition) }
    }

    // MARK: Pausing

    /// Stops handing out records of these partitions; those already returned are unaffected. What librdkafka
    /// has fetched ahead is thrown away and fetched again after `resume`: for a short break it is cheaper not
    /// to poll.
    public func pause(_ partitions: [TopicPartition]) throws(KafkaError) {
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        let code = rd_kafka_pause_partitions(client, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "pause partitions") }
        if let error = list.firstError("pause") { throw error }
        paused.formUnion(partitions)
    }

    /// Goes on behind the last record that was returned. Partitions that are not paused are left alone.
    public func resume(_ partitions: [TopicPartition]) throws(KafkaError) {
        let partitions = partitions.filter { paused.contains($0) }
        guard !partitions.isEmpty else { return }
        let list = PartitionList(partitions)
        let code = rd_kafka_resume_partitions(client, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "resume partitions") }
        paused.subtract(partitions)
        if let error = list.firstError("resume") { throw error }
    }

    public var pausedPartitions: Set<TopicPartition> { paused }
}

extension ConsumerContext {
    /// librdkafka's callback. Answered later, by the owner; until then librdkafka keeps the group waiting.
    func rebalance(
        _ client: OpaquePointer, _ code: rd_kafka_resp_err_t,
        _ list: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>
    ) {
        hasRebalanced = true
        // The list is librdkafka's and valid only now.
        let named = PartitionList.elements(list).map { TopicPartition($0) }
        let partitions = named.filter { TopicPartition.numbers.contains($0.partition) }
        switch code {
        case RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            // The group's leader, another program, has chosen them.
            for partition in named where !TopicPartition.numbers.contains(partition.partition) {
                let most = TopicPartition.numbers.upperBound - 1
                emit(
                    .partitionError(
                        partition, .invalid("\(partition) is not read: partitions from 0 to \(most) are")))
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
            pending = .none
        }
    }

    /// Whether the group's assignor moves partitions one by one. Otherwise (`range`, `roundrobin`) each
    /// rebalance takes all and gives all.
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
        pending = .none
        return nil
    }

    func answer(unassign partitions: [TopicPartition]) -> KafkaError? {
        guard let client else { return nil }
        if isCooperative(client) {
            // librdkafka refuses what it doesn't read.
            let list = PartitionList(partitions.filter(table.contains))
            if let error = rd_kafka_incremental_unassign(client, list.pointer) {
                return KafkaError(consuming: error, "give partitions back")
            }
            for partition in partitions { table.unassign(partition) }
            granted.subtract(partitions)
        } else {
            let code = rd_kafka_assign(client, nil)
            if code != RD_KAFKA_RESP_ERR_NO_ERROR { return KafkaError(code, "give partitions back") }
            table.removeAll()
            granted = []
        }
        pending = .none
        return nil
    }
}
