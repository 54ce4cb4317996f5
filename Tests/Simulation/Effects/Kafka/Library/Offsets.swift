// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka
import EventLoop
import Glibc

func rd_kafka_commit_queue(
    _ rk: OpaquePointer!, _ offsets: UnsafePointer<rd_kafka_topic_partition_list_t>!, _ rkqu: OpaquePointer!,
    _ cb: KafkaClient.CommitCallback!, _ commit_opaque: UnsafeMutableRawPointer!
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    guard !client.isDead else { return RD_KAFKA_RESP_ERR__DESTROY }
    let elements = PartitionList.elements(offsets)
    let commit = KafkaClient.Commit(
        queue: object(rkqu), offsets: elements.map { (TopicPartition($0), $0.offset) }, callback: cb,
        opaque: commit_opaque)
    client.world.call {
        let reference = client.model.commit(
            client.id,
            elements.map {
                KafkaModel.OffsetCommit(
                    partition: Int($0.partition), offset: $0.offset,
                    metadata: $0.metadata == nil
                        ? ""
                        : String(
                            decoding: UnsafeRawBufferPointer(start: $0.metadata, count: $0.metadata_size),
                            as: UTF8.self))
            })
        client.commits[reference] = commit
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

extension KafkaClient {
    /// Asks, and blocks until there is an answer; asks again where the broker is away.
    /// - Parameters:
    ///   - send: sends the request, and returns its reference.
    ///   - isFinal: whether the answer is the last one.
    /// - Returns: nil: there is none in time.
    func ask(
        _ milliseconds: Int32, _ send: () -> Int, _ isFinal: (Answer) -> Bool
    ) -> Answer? {
        let scheduler = world.scheduler
        let limit = scheduler.now + UInt64(max(0, milliseconds)) * 1_000_000
        repeat {
            guard !isDead else { return nil }
            let reference = world.call(send)
            scheduler.block(until: limit) { answers[reference] != nil || isDead }
            guard let answer = answers.removeValue(forKey: reference) else { return nil }
            if isFinal(answer) { return answer }
            scheduler.sleep(min(100_000_000, max(0, limit - min(limit, scheduler.now))))
        } while scheduler.now < limit
        return nil
    }
}

func rd_kafka_committed(
    _ rk: OpaquePointer!, _ partitions: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>!,
    _ timeout_ms: Int32
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    let count = Int(partitions.pointee.cnt)
    let elements = UnsafeMutableBufferPointer(start: partitions.pointee.elems, count: count)
    var set = PartitionSet()
    for element in elements where element.partition < KafkaModel.stride { set.insert(Int(element.partition)) }
    let answer = client.ask(timeout_ms) {
        client.model.fetchCommitted(client.id, set, requireStable: client.readsCommitted)
    } _: { answer in
        if case .committed(_, let failure) = answer {
            return failure != .coordinatorAway && failure != .unstableOffsets
        }
        return true
    }
    guard case .committed(let offsets, let failure) = answer else { return RD_KAFKA_RESP_ERR__TIMED_OUT }
    if let failure { return failure.code }
    for index in elements.indices {
        let found = offsets.first { $0.partition == Int(elements[index].partition) }
        elements[index].offset = found.map { max($0.offset, -1) } ?? -1
        elements[index].err = RD_KAFKA_RESP_ERR_NO_ERROR
        if elements[index].offset < 0 { elements[index].offset = Int64(RD_KAFKA_OFFSET_INVALID) }
        let metadata = Array((found?.metadata ?? "").utf8)
        guard !metadata.isEmpty, let memory = malloc(metadata.count) else { continue }
        // Freed by the list.
        memory.copyMemory(from: metadata, byteCount: metadata.count)
        elements[index].metadata = memory
        elements[index].metadata_size = metadata.count
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Offsets by times, and the ends of logs: -2 and -1 stand for them.
func rd_kafka_offsets_for_times(
    _ rk: OpaquePointer!, _ offsets: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>!,
    _ timeout_ms: Int32
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    let deadline = MonotonicDeadline(milliseconds: timeout_ms)
    for index in 0..<Int(offsets.pointee.cnt) {
        let element = offsets.pointee.elems + index
        guard let log = client.world.log(TopicPartition(element.pointee)) else {
            element.pointee.err = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
            continue
        }
        let answer = client.ask(deadline.remainingMilliseconds) {
            client.model.listOffsets(
                client.id, log.topic, log.partition,
                isolation: client.readsCommitted ? .committed : .uncommitted)
        } _: { answer in
            if case .listed(_, _, .leaderAway) = answer { return false }
            return true
        }
        guard case .listed(let first, let end, let failure) = answer else {
            return RD_KAFKA_RESP_ERR__TIMED_OUT
        }
        element.pointee.err = failure?.code ?? RD_KAFKA_RESP_ERR_NO_ERROR
        switch element.pointee.offset {
        case Int64(RD_KAFKA_OFFSET_BEGINNING): element.pointee.offset = first
        case Int64(RD_KAFKA_OFFSET_END): element.pointee.offset = end
        case let time:
            let found = log.entries.first {
                $0.offset >= first && !$0.isMarker && client.world.records[$0.payload].timestamp >= time
            }
            element.pointee.offset = found?.offset ?? -1
        }
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR
}

/// The bounds of a log that the client reads.
func rd_kafka_get_watermark_offsets(
    _ rk: OpaquePointer!, _ topic: UnsafePointer<CChar>!, _ partition: Int32,
    _ low: UnsafeMutablePointer<Int64>!, _ high: UnsafeMutablePointer<Int64>!
) -> rd_kafka_resp_err_t {
    let client = object(rk, as: KafkaClient.self)
    guard let log = client.world.log(TopicPartition(String(cString: topic), partition)),
        client.state.readings[client.model.place(log.topic, log.partition)].isActive
    else { return RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION }
    (low.pointee, high.pointee) = (log.start, log.end)
    return RD_KAFKA_RESP_ERR_NO_ERROR
}
