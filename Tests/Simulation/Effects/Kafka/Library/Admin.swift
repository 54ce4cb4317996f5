// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka

// MARK: Metadata

func rd_kafka_metadata(
    _ rk: OpaquePointer!, _ all_topics: Int32, _ only_rkt: OpaquePointer!,
    _ metadatap: UnsafeMutablePointer<UnsafePointer<rd_kafka_metadata>?>!, _ timeout_ms: Int32
) -> rd_kafka_resp_err_t {
    let world = object(rk, as: KafkaClient.self).world
    guard world.roundTrip(timeout_ms) else { return RD_KAFKA_RESP_ERR__TRANSPORT }
    let arena = Arena()
    let names =
        only_rkt.map { [object($0, as: TopicHandle.self).name] }
        ?? (all_topics != 0 ? world.topics.map(\.name) : [])
    let topics = names.map { name -> rd_kafka_metadata_topic in
        let partitions = (0..<Int32(world.topic(name)?.partitions ?? 0)).map { number in
            let isAway = world.log(TopicPartition(name, number))?.isAway ?? true
            let replicas = arena.array([1 as Int32])
            return rd_kafka_metadata_partition(
                id: number, err: RD_KAFKA_RESP_ERR_NO_ERROR, leader: isAway ? -1 : 1, replica_cnt: 1,
                replicas: replicas, isr_cnt: isAway ? 0 : 1, isrs: replicas)
        }
        return rd_kafka_metadata_topic(
            topic: arena.text(name), partition_cnt: Int32(partitions.count),
            partitions: arena.array(partitions),
            err: partitions.isEmpty
                ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : RD_KAFKA_RESP_ERR_NO_ERROR)
    }
    let broker = rd_kafka_metadata_broker(id: 1, host: arena.text("kafka"), port: 9092)
    let metadata = arena.array([
        rd_kafka_metadata(
            broker_cnt: 1, brokers: arena.array([broker]), topic_cnt: Int32(topics.count),
            topics: arena.array(topics), orig_broker_id: 1,
            // Keeps the memory.
            orig_broker_name: UnsafeMutableRawPointer(owned(arena)).assumingMemoryBound(to: CChar.self))
    ])
    metadatap.pointee = UnsafePointer(metadata)
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_metadata_destroy(_ metadata: UnsafePointer<rd_kafka_metadata>!) {
    release(OpaquePointer(metadata.pointee.orig_broker_name))
}

func rd_kafka_controllerid(_ rk: OpaquePointer!, _ timeout_ms: Int32) -> Int32 { 1 }

// MARK: Orders

/// A topic in an administrator's order.
private final class TopicOrder {
    let name: String
    let partitions: Int
    var configuration: [(name: String, value: String)] = []

    init(_ name: String, partitions: Int = 0) {
        self.name = name
        self.partitions = partitions
    }
}

/// A topic in an administrator's answer, an entry of its configuration, or its resource.
final class ResultHandle {
    let code: rd_kafka_resp_err_t
    let name: UnsafePointer<CChar>
    let value: UnsafePointer<CChar>
    /// Entries of the configuration.
    let entries: [ResultHandle]
    let pointers: UnsafeMutablePointer<OpaquePointer?>
    private let arena = Arena()

    init(
        _ name: String, _ value: String = "", _ code: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR,
        entries: [ResultHandle] = []
    ) {
        self.code = code
        self.name = UnsafePointer(arena.text(name))
        self.value = UnsafePointer(arena.text(value))
        self.entries = entries
        pointers = arena.array(entries.map { borrowed($0) })
    }
}

/// Carries out an order at the controller, whose answer is an event of a queue.
private func order(
    _ rk: OpaquePointer, _ rkqu: OpaquePointer, _ type: Int32, _ body: @escaping () -> [ResultHandle]
) {
    let (client, queue) = (object(rk, as: KafkaClient.self), object(rkqu, as: KafkaQueue.self))
    guard !client.isDead else { return }
    let world = client.world
    world.scheduler.schedule(after: world.model.drawDelay()) {
        guard !world.isUnreachable, !world.isCutOff(client.process) else { return }
        let event = KafkaEvent(type)
        event.result = ResultHandle("", entries: body())
        world.scheduler.schedule(after: world.model.drawDelay()) { queue.events.append(event) }
    }
}

private func orders(_ list: UnsafeMutablePointer<OpaquePointer?>, _ count: Int) -> [TopicOrder] {
    (0..<count).map { object(list[$0]!) }
}

private func results(
    _ result: OpaquePointer, _ count: UnsafeMutablePointer<Int>
) -> UnsafeMutablePointer<OpaquePointer?> {
    let handle = object(result, as: ResultHandle.self)
    count.pointee = handle.entries.count
    return handle.pointers
}

func rd_kafka_NewTopic_new(
    _ topic: UnsafePointer<CChar>!, _ num_partitions: Int32, _ replication_factor: Int32,
    _ errstr: UnsafeMutablePointer<CChar>!, _ errstr_size: Int
) -> OpaquePointer! {
    owned(TopicOrder(String(cString: topic), partitions: Int(num_partitions)))
}

func rd_kafka_NewTopic_set_config(
    _ new_topic: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!
) -> rd_kafka_resp_err_t {
    object(new_topic, as: TopicOrder.self).configuration
        .append((String(cString: name), String(cString: value)))
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

func rd_kafka_NewTopic_destroy(_ new_topic: OpaquePointer!) { release(new_topic) }

func rd_kafka_CreateTopics(
    _ rk: OpaquePointer!, _ new_topics: UnsafeMutablePointer<OpaquePointer?>!, _ new_topic_cnt: Int,
    _ options: OpaquePointer!, _ rkqu: OpaquePointer!
) {
    let world = object(rk, as: KafkaClient.self).world
    let topics = orders(new_topics, new_topic_cnt)
    order(rk, rkqu, RD_KAFKA_EVENT_CREATETOPICS_RESULT) {
        topics.map { topic in
            let isNew = world.createTopic(
                topic.name, partitions: topic.partitions, configuration: topic.configuration)
            return ResultHandle(
                topic.name, "",
                isNew ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        }
    }
}

func rd_kafka_NewPartitions_new(
    _ topic: UnsafePointer<CChar>!, _ new_total_cnt: Int, _ errstr: UnsafeMutablePointer<CChar>!,
    _ errstr_size: Int
) -> OpaquePointer! { owned(TopicOrder(String(cString: topic), partitions: new_total_cnt)) }

func rd_kafka_NewPartitions_destroy(_ new_parts: OpaquePointer!) { release(new_parts) }

func rd_kafka_CreatePartitions(
    _ rk: OpaquePointer!, _ new_parts: UnsafeMutablePointer<OpaquePointer?>!, _ new_parts_cnt: Int,
    _ options: OpaquePointer!, _ rkqu: OpaquePointer!
) {
    let world = object(rk, as: KafkaClient.self).world
    let topics = orders(new_parts, new_parts_cnt)
    order(rk, rkqu, RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT) {
        topics.map { topic in
            let hasGrown = world.addPartitions(to: topic.name, total: topic.partitions)
            return ResultHandle(
                topic.name, "",
                hasGrown ? RD_KAFKA_RESP_ERR_NO_ERROR : RD_KAFKA_RESP_ERR_INVALID_PARTITIONS)
        }
    }
}

func rd_kafka_ConfigResource_new(
    _ restype: rd_kafka_ResourceType_t, _ resname: UnsafePointer<CChar>!
) -> OpaquePointer! { owned(TopicOrder(String(cString: resname))) }

func rd_kafka_ConfigResource_destroy(_ config: OpaquePointer!) { release(config) }

func rd_kafka_DescribeConfigs(
    _ rk: OpaquePointer!, _ configs: UnsafeMutablePointer<OpaquePointer?>!, _ config_cnt: Int,
    _ options: OpaquePointer!, _ rkqu: OpaquePointer!
) {
    let world = object(rk, as: KafkaClient.self).world
    let topics = orders(configs, config_cnt)
    order(rk, rkqu, RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT) {
        topics.map { topic in
            guard let found = world.topic(topic.name) else {
                return ResultHandle(topic.name, "", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
            }
            return ResultHandle(
                topic.name, entries: found.configuration.map { ResultHandle($0.name, $0.value) })
        }
    }
}

// MARK: Answers

func rd_kafka_event_CreateTopics_result(_ rkev: OpaquePointer!) -> OpaquePointer! {
    object(rkev, as: KafkaEvent.self).result.map { borrowed($0) }
}

func rd_kafka_event_CreatePartitions_result(_ rkev: OpaquePointer!) -> OpaquePointer! {
    object(rkev, as: KafkaEvent.self).result.map { borrowed($0) }
}

func rd_kafka_event_DescribeConfigs_result(_ rkev: OpaquePointer!) -> OpaquePointer! {
    object(rkev, as: KafkaEvent.self).result.map { borrowed($0) }
}

func rd_kafka_CreateTopics_result_topics(
    _ result: OpaquePointer!, _ cntp: UnsafeMutablePointer<Int>!
) -> UnsafeMutablePointer<OpaquePointer?>! { results(result, cntp) }

func rd_kafka_CreatePartitions_result_topics(
    _ result: OpaquePointer!, _ cntp: UnsafeMutablePointer<Int>!
) -> UnsafeMutablePointer<OpaquePointer?>! { results(result, cntp) }

func rd_kafka_DescribeConfigs_result_resources(
    _ result: OpaquePointer!, _ cntp: UnsafeMutablePointer<Int>!
) -> UnsafeMutablePointer<OpaquePointer?>! { results(result, cntp) }

func rd_kafka_topic_result_error(_ topicres: OpaquePointer!) -> rd_kafka_resp_err_t {
    object(topicres, as: ResultHandle.self).code
}

func rd_kafka_topic_result_error_string(_ topicres: OpaquePointer!) -> UnsafePointer<CChar>! {
    rd_kafka_err2str(object(topicres, as: ResultHandle.self).code)
}

func rd_kafka_topic_result_name(_ topicres: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(topicres, as: ResultHandle.self).name
}

func rd_kafka_ConfigResource_configs(
    _ config: OpaquePointer!, _ cntp: UnsafeMutablePointer<Int>!
) -> UnsafeMutablePointer<OpaquePointer?>! { results(config, cntp) }

func rd_kafka_ConfigResource_error(_ config: OpaquePointer!) -> rd_kafka_resp_err_t {
    object(config, as: ResultHandle.self).code
}

func rd_kafka_ConfigResource_error_string(_ config: OpaquePointer!) -> UnsafePointer<CChar>! {
    rd_kafka_topic_result_error_string(config)
}

func rd_kafka_ConfigResource_name(_ config: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(config, as: ResultHandle.self).name
}

func rd_kafka_ConfigEntry_name(_ entry: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(entry, as: ResultHandle.self).name
}

func rd_kafka_ConfigEntry_value(_ entry: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(entry, as: ResultHandle.self).value
}

// MARK: What isn't simulated

func rd_kafka_AdminOptions_new(_ rk: OpaquePointer!, _ for_api: rd_kafka_admin_op_t) -> OpaquePointer! { rk }

func rd_kafka_AdminOptions_destroy(_ options: OpaquePointer!) {}

func rd_kafka_AdminOptions_set_request_timeout(
    _ options: OpaquePointer!, _ timeout_ms: Int32, _ errstr: UnsafeMutablePointer<CChar>!,
    _ errstr_size: Int
) -> rd_kafka_resp_err_t { RD_KAFKA_RESP_ERR_NO_ERROR }

func rd_kafka_AdminOptions_set_operation_timeout(
    _ options: OpaquePointer!, _ timeout_ms: Int32, _ errstr: UnsafeMutablePointer<CChar>!,
    _ errstr_size: Int
) -> rd_kafka_resp_err_t { RD_KAFKA_RESP_ERR_NO_ERROR }

func rd_kafka_DeleteTopic_new(_ topic: UnsafePointer<CChar>!) -> OpaquePointer! {
    preconditionFailure("topics aren't deleted")
}

func rd_kafka_DeleteTopic_destroy(_ del_topic: OpaquePointer!) {}

func rd_kafka_DeleteTopics(
    _ rk: OpaquePointer!, _ del_topics: UnsafeMutablePointer<OpaquePointer?>!, _ del_topic_cnt: Int,
    _ options: OpaquePointer!, _ rkqu: OpaquePointer!
) {}

func rd_kafka_event_DeleteTopics_result(_ rkev: OpaquePointer!) -> OpaquePointer! { nil }

func rd_kafka_DeleteTopics_result_topics(
    _ result: OpaquePointer!, _ cntp: UnsafeMutablePointer<Int>!
) -> UnsafeMutablePointer<OpaquePointer?>! { nil }
