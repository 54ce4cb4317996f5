// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka
import EventLoop

extension KafkaClient {
    func makeProducer() {
        let name = settings["transactional.id"]
        world.call {
            model.makeProducer(id, transactionalID: name.map { world.transactionalID($0) })
            let timeout =
                settings.number("message.timeout.ms") ?? settings.number("delivery.timeout.ms")
                ?? (name == nil ? 300_000 : settings.number("transaction.timeout.ms") ?? 60_000)
            state.producer.deliveryTimeout = UInt64(timeout) * 1_000_000
            state.producer.batchBytes = settings.number("batch.size") ?? 1_000_000
        }
    }

    /// Queues a record.
    /// - Parameter headers: librdkafka's list, which the record takes over when it is queued.
    func produce(
        _ topic: String, _ partition: Int32, _ key: UnsafeRawBufferPointer?, _ value: UnsafeRawBufferPointer?,
        _ headers: OpaquePointer?, _ opaque: UnsafeMutableRawPointer?
    ) -> rd_kafka_resp_err_t {
        guard fatalError == nil else { return RD_KAFKA_RESP_ERR__FATAL }
        guard !isDead else { return RD_KAFKA_RESP_ERR__STATE }
        let most = world.queueLimit ?? settings.number("queue.buffering.max.messages") ?? 100_000
        guard model.queued(id) < most else { return RD_KAFKA_RESP_ERR__QUEUE_FULL }
        guard let found = world.topic(topic), found.partitions > 0 else {
            return RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC
        }
        var list: [(name: String, value: [UInt8]?)] = []
        while let headers, let header = ConsumedRecord.header(headers, list.count) {
            list.append((String(decoding: header.name, as: UTF8.self), header.value.map { Array($0) }))
        }
        let record = StoredRecord(
            key: key.map { Array($0) }, value: value.map { Array($0) }, headers: list,
            timestamp: wallClockMilliseconds(), opaque: opaque, process: process)
        guard record.batchBytes <= settings.number("message.max.bytes") ?? 1_000_000 else {
            return RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
        }
        let number = partition >= 0 ? Int(partition) : chosen(record.key, found.partitions)
        guard number < found.partitions else { return RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION }
        let stored = world.store(record)
        let answer = world.call {
            model.produce(
                id, world.modelRecord(stored), to: found.space, found.first + number, opaque: stored)
        }
        switch answer {
        case .queued:
            if let headers { rd_kafka_headers_destroy(headers) }
            return RD_KAFKA_RESP_ERR_NO_ERROR
        case .queueFull: return RD_KAFKA_RESP_ERR__QUEUE_FULL
        case .noTransaction: return RD_KAFKA_RESP_ERR__STATE
        case .failed(let failure): return failure.code
        }
    }

    /// Partition of a key. It isn't the one that Kafka's clients choose.
    private func chosen(_ key: [UInt8]?, _ partitions: Int) -> Int {
        guard let key else { return Int(world.scheduler.below(UInt64(partitions))) }
        let hash = key.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return Int((hash >> 16) % UInt64(partitions))
    }

    /// Returns the message of a report.
    func message(of report: KafkaModel.Report) -> Message.Pointer {
        let partition = world.partition(report.topic, report.partition)
        let memory = MessageMemory(
            world, bytes: world.records[report.opaque].contentBytes, isResponse: false)
        var position = 0
        let message = Message.make(
            report.opaque, handle(partition.topic), partition.partition, report.offset, in: memory,
            at: &position, isConsumed: false)
        guard let failure = report.failure else { return message }
        let code: rd_kafka_resp_err_t =
            switch failure {
            case .timedOut: RD_KAFKA_RESP_ERR__MSG_TIMED_OUT
            case .purged where !report.isKnownUnwritten: RD_KAFKA_RESP_ERR__PURGE_INFLIGHT
            default: failure.code
            }
        message.pointee.message.err = code
        message.pointee.status =
            report.isKnownUnwritten
            ? RD_KAFKA_MSG_STATUS_NOT_PERSISTED : RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED
        lostRecord = code
        return message
    }
}

func rd_kafka_produce(
    _ rkt: OpaquePointer!, _ partition: Int32, _ msgflags: Int32, _ payload: UnsafeMutableRawPointer!,
    _ len: Int, _ key: UnsafeRawPointer!, _ keylen: Int, _ msg_opaque: UnsafeMutableRawPointer!
) -> Int32 {
    let topic = object(rkt, as: TopicHandle.self)
    let code = topic.client.produce(
        topic.name, partition, slice(key, keylen), slice(payload, len), nil, msg_opaque)
    topic.client.world.lastError = code
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : -1
}

func sluice_produce_with_headers(
    _ client: OpaquePointer!, _ topic: OpaquePointer!, _ partition: Int32, _ key: UnsafeRawPointer!,
    _ key_length: Int, _ value: UnsafeRawPointer!, _ value_length: Int, _ headers: OpaquePointer!,
    _ opaque: UnsafeMutableRawPointer!
) -> rd_kafka_resp_err_t {
    object(client, as: KafkaClient.self).produce(
        object(topic, as: TopicHandle.self).name, partition, slice(key, key_length),
        slice(value, value_length), headers, opaque)
}

private func slice(_ start: UnsafeRawPointer?, _ count: Int) -> UnsafeRawBufferPointer? {
    start.map { UnsafeRawBufferPointer(start: count > 0 ? $0 : nil, count: count) }
}

func rd_kafka_outq_len(_ rk: OpaquePointer!) -> Int32 {
    let client = object(rk, as: KafkaClient.self)
    return client.isDead ? 0 : Int32(client.model.queued(client.id) + client.operations.count)
}

/// Waits for a report or an event.
@discardableResult
func rd_kafka_flush(_ rk: OpaquePointer!, _ timeout_ms: Int32) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    client.world.wait(timeout_ms) { client.hasWork }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

@discardableResult
func rd_kafka_purge(_ rk: OpaquePointer!, _ purge_flags: Int32) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    client.world.call { client.model.purge(client.id) }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}
