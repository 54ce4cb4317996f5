// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka

extension KafkaClient {
    // MARK: Reading

    /// Reads partitions from these places on. Answers the group's assignment.
    func read(_ starts: [(partition: TopicPartition, start: StartOffset)]) {
        if state.pending == .assign, isEventServed { model.accept(id) }
        for (partition, start) in starts {
            left[partition.partition] = nil
            guard let log = world.log(partition) else {
                missing.append((partition, start))
                operations.append(
                    .partitionError(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, partition, offset: -1))
                continue
            }
            let offset: Int64? =
                switch start {
                case .offset(let offset): offset
                case .beginning: log.start
                case .end: readsCommitted ? log.lastStable : log.end
                case .committed: committedOffset(log.partition)
                }
            if subscribes {
                model.read(id, [(partition: log.partition, offset: offset)])
            } else {
                model.read(
                    id, log.topic, log.partition, from: offset,
                    isolation: readsCommitted ? .committed : .uncommitted, policy: policy)
            }
        }
    }

    private func committedOffset(_ partition: Int) -> Int64? {
        let offset = model.committedOffset(partition).offset
        return offset < 0 ? nil : offset
    }

    private var policy: KafkaModel.ResetPolicy {
        switch settings["auto.offset.reset"] {
        case "error": .none
        case "earliest", "smallest", "beginning": .earliest
        default: .latest
        }
    }

    /// Stops reading partitions. Answers the group's revocation, which must name all of its partitions.
    func stopReading(_ partitions: [TopicPartition]) {
        let places = partitions.compactMap { world.log($0) }.map { model.place($0.topic, $0.partition) }
        for place in places {
            model.stopReading(id, model.logs[place].topic, model.logs[place].partition)
        }
        for partition in partitions { left[partition.partition] = world.scheduler.now }
        dropMessages(places.contains)
        missing.removeAll { partitions.contains($0.partition) }
        if departure == .revoking {
            leave()
        } else if state.pending == .revoke || state.pending == .lost, isEventServed {
            model.unassign(id)
        }
    }

    func stopReadingAll() { stopReading(state.reading.map { partition(at: $0) } + missing.map(\.partition)) }

    /// Begins to read partitions that didn't exist.
    func findMissing() {
        guard missing.contains(where: { world.log($0.partition) != nil }) else { return }
        let found = missing.filter { world.log($0.partition) != nil }
        missing.removeAll { world.log($0.partition) != nil }
        read(found)
    }

    // MARK: Leaving

    /// Leaves the group: after a rebalance that is under way, and after the owner has given its partitions back.
    func depart() {
        guard departure == .wanted else { return }
        let consumer = state.consumer
        guard consumer.member != 0 else { return leave() }
        guard consumer.pending == .none, consumer.joinState == .steady else { return }
        guard !consumer.owned.isEmpty else { return leave() }
        departure = .revoking
        operations.append(.rebalance(RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS, consumer.owned))
    }

    private func leave() {
        departure = .done
        model.leave(id)
    }

    var isMember: Bool { !isDead && state.consumer.member != 0 }

    // MARK: Callbacks

    /// Serves an element of the queue.
    /// - Returns: a message for the owner; nil: the owner was called back.
    func serve(_ operation: Operation) -> Message.Pointer? {
        switch operation {
        case .message(let message, _): return message
        case .fatalError: return Message.error(RD_KAFKA_RESP_ERR__FATAL, nil)
        case .partitionError(let code, let partition, let offset):
            return Message.error(code, handle(partition.topic), partition.partition, offset)
        case .error(let code, let reason):
            settings.error?(borrowed(self), code.rawValue, reason, settings.opaque)
        case .log(let level, let facility, let text):
            settings.log?(borrowed(self), level, facility, text)
        case .rebalance(let code, let set):
            isEventServed = true
            let list = PartitionList(set.map { world.partition(.jobs, $0) })
            settings.rebalance?(borrowed(self), code, list.pointer, settings.opaque)
        case .committed(let commit, let failure):
            let list = PartitionList(
                commit.offsets.map { TopicPartitionOffset($0.partition, .offset($0.offset)) })
            let code = failure?.code ?? RD_KAFKA_RESP_ERR_NO_ERROR
            for index in 0..<commit.offsets.count { list.pointer.pointee.elems[index].err = code }
            commit.callback(borrowed(self), code, list.pointer, commit.opaque)
        }
        return nil
    }
}

// MARK: Functions

func rd_kafka_subscribe(
    _ rk: OpaquePointer!, _ topics: UnsafePointer<rd_kafka_topic_partition_list_t>!
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    let names = PartitionList.elements(topics).map { String(cString: $0.topic) }
    precondition(names == [client.world.settings.jobs], "the model's group is that of the jobs topic")
    client.subscribes = true
    let instance = client.settings["group.instance.id"].map { client.world.instance($0) }
    if !client.isDead { client.world.call { client.model.join(client.id, instance: instance ?? -1) } }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_unsubscribe(_ rk: OpaquePointer!) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    client.world.call { if client.departure == .none { client.departure = .wanted } }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_consumer_close_queue(_ rk: OpaquePointer!, _ rkqu: OpaquePointer!) -> OpaquePointer! {
    let client = object(rk, as: KafkaClient.self)
    if client.fatalError != nil {
        return owned(CallError(RD_KAFKA_RESP_ERR__FATAL, "the client has failed"))
    }
    object(rkqu, as: KafkaQueue.self).isMain = true
    client.world.call {
        client.stopReadingAll()
        if client.subscribes, client.departure == .none { client.departure = .wanted }
    }
    return nil
}

func rd_kafka_consumer_closed(_ rk: OpaquePointer!) -> Int32 {
    let client = object(rk, as: KafkaClient.self)
    return !client.subscribes || client.departure == .done || client.isDead ? 1 : 0
}

func rd_kafka_memberid(_ rk: OpaquePointer!) -> UnsafeMutablePointer<CChar>! {
    let client = object(rk, as: KafkaClient.self)
    let text = client.isMember ? "member-\(client.state.consumer.member)" : ""
    let memory = UnsafeMutablePointer<CChar>.allocate(capacity: text.utf8.count + 1)
    copy(text, to: memory, text.utf8.count + 1)
    return memory
}

private let cooperative: StaticString = "COOPERATIVE"
private let none: StaticString = "NONE"

func rd_kafka_rebalance_protocol(_ rk: OpaquePointer!) -> UnsafePointer<CChar>! {
    let name = object(rk, as: KafkaClient.self).subscribes ? cooperative : none
    return UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
}

func rd_kafka_assignment_lost(_ rk: OpaquePointer!) -> Int32 {
    let consumer = object(rk, as: KafkaClient.self).state.consumer
    return consumer.pending == .lost || consumer.isLostAfter ? 1 : 0
}

private func starts(
    _ list: UnsafePointer<rd_kafka_topic_partition_list_t>
) -> [(partition: TopicPartition, start: StartOffset)] {
    // Sorted, because some callers have sets.
    PartitionList.elements(list).sorted { TopicPartition($0) < TopicPartition($1) }.map { element in
        let start: StartOffset =
            switch element.offset {
            case Int64(RD_KAFKA_OFFSET_BEGINNING): .beginning
            case Int64(RD_KAFKA_OFFSET_END): .end
            case ..<0: .committed
            default: .offset(element.offset)
            }
        return (TopicPartition(element), start)
    }
}

func rd_kafka_incremental_assign(
    _ rk: OpaquePointer!, _ partitions: UnsafePointer<rd_kafka_topic_partition_list_t>!
) -> OpaquePointer! {
    let client = object(rk, as: KafkaClient.self)
    if !client.isDead { client.world.call { client.read(starts(partitions)) } }
    return nil
}

func rd_kafka_incremental_unassign(
    _ rk: OpaquePointer!, _ partitions: UnsafePointer<rd_kafka_topic_partition_list_t>!
) -> OpaquePointer! {
    let client = object(rk, as: KafkaClient.self)
    if !client.isDead {
        client.world.call {
            client.stopReading(PartitionList.elements(partitions).map { TopicPartition($0) })
        }
    }
    return nil
}

/// Without a group: reads exactly these partitions.
func rd_kafka_assign(
    _ rk: OpaquePointer!, _ partitions: UnsafePointer<rd_kafka_topic_partition_list_t>!
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    if !client.isDead {
        client.world.call {
            client.stopReadingAll()
            if let partitions { client.read(starts(partitions)) }
        }
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

private func setPaused(
    _ isPaused: Bool, _ rk: OpaquePointer, _ list: UnsafePointer<rd_kafka_topic_partition_list_t>
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    let logs = PartitionList.elements(list).compactMap { client.world.log(TopicPartition($0)) }
    client.world.call {
        let model = client.model
        for log in logs {
            if isPaused {
                model.pause(client.id, log.topic, log.partition)
            } else {
                model.resume(client.id, log.topic, log.partition)
            }
        }
        // Records fetched ahead are fetched again.
        let places = logs.map { model.place($0.topic, $0.partition) }
        if isPaused { client.dropMessages(places.contains) }
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_pause_partitions(
    _ rk: OpaquePointer!, _ partitions: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>!
) -> rd_kafka_resp_err_t { setPaused(true, rk, partitions) }

func rd_kafka_resume_partitions(
    _ rk: OpaquePointer!, _ partitions: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>!
) -> rd_kafka_resp_err_t { setPaused(false, rk, partitions) }

func rd_kafka_consumer_group_metadata(_ rk: OpaquePointer!) -> OpaquePointer! {
    let client = object(rk, as: KafkaClient.self)
    return owned(GroupMetadata(client.model.membership(client.id) ?? .unfenced))
}

func rd_kafka_consumer_group_metadata_new(_ group_id: UnsafePointer<CChar>!) -> OpaquePointer! {
    owned(GroupMetadata(.unfenced))
}

func rd_kafka_consumer_group_metadata_destroy(_ pointer: OpaquePointer!) { release(pointer) }
