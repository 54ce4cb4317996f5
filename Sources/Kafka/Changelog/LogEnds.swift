import CRdkafka

/// First and next offset of several partitions, as `read_uncommitted` readers see them: the high watermark, not the
/// last stable offset. Queries all leaders at the same time.
struct LogEnds: ~Copyable {
    private let client: OpaquePointer

    init(_ properties: KafkaProperties) throws(KafkaError) {
        var properties = properties
        // Decides which end the brokers report.
        properties["isolation.level"] = "read_uncommitted"
        client = try ClientConfiguration(.admin, properties).create()
    }

    deinit { _ = ClientDestruction.destroy(client) }

    /// Returns each partition's watermarks, or the error. Blocks at most a second more than the given time. The end of
    /// this value may take ten seconds (`ClientDestruction`).
    func query(
        _ partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        // A partition without a leader would spoil the answer for all.
        var result = leaderless(partitions, timeoutMilliseconds)
        let led = partitions.filter { result[$0] == nil }
        guard !led.isEmpty else { return result }
        let patience = deadline.remainingMilliseconds
        do throws(KafkaError) {
            return result.merging(try ask(led, led.count == 1 ? patience : max(1, patience / 2))) { $1 }
        } catch {
            guard led.count > 1 else {
                result[led[0]] = .failure(Self.named(led[0], error))
                return result
            }
        }
        // A leader has left meanwhile, or doesn't answer: query each partition alone, as far as time allows.
        for partition in led {
            do throws(KafkaError) {
                let patience = min(1_000, deadline.remainingMilliseconds)
                guard patience > 0 else {
                    throw KafkaError(RD_KAFKA_RESP_ERR__TIMED_OUT, "read the watermarks")
                }
                result.merge(try ask([partition], patience)) { $1 }
            } catch {
                result[partition] = .failure(Self.named(partition, error))
            }
        }
        return result
    }

    /// Returns errors of partitions that have no leader, or don't exist; empty if the brokers don't report them.
    private func leaderless(
        _ partitions: [TopicPartition], _ timeoutMilliseconds: Int32
    ) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        var result: [TopicPartition: Result<Watermarks, KafkaError>] = [:]
        for (topic, group) in Dictionary(grouping: partitions, by: \.topic) {
            guard let handle = rd_kafka_topic_new(client, topic, nil) else { continue }
            defer { rd_kafka_topic_destroy(handle) }
            var answer: UnsafePointer<rd_kafka_metadata>?
            guard
                rd_kafka_metadata(client, 0, handle, &answer, timeoutMilliseconds)
                    == RD_KAFKA_RESP_ERR_NO_ERROR, let answer
            else { continue }
            defer { rd_kafka_metadata_destroy(answer) }
            guard answer.pointee.topic_cnt > 0, let found = answer.pointee.topics?.pointee,
                found.err == RD_KAFKA_RESP_ERR_NO_ERROR
            else {
                continue
            }
            let led = UnsafeBufferPointer(start: found.partitions, count: Int(found.partition_cnt))
            for partition in group {
                let entry = led.first { $0.id == partition.partition }
                guard entry == nil || entry!.leader < 0 else { continue }
                let code =
                    entry == nil
                    ? RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION : RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE
                result[partition] = .failure(KafkaError(code, "read the watermarks of \(partition)"))
            }
        }
        return result
    }

    private static func named(_ partition: TopicPartition, _ error: KafkaError) -> KafkaError {
        KafkaError(
            code: error.code, message: "\(partition): \(error.message)", isRetriable: error.isRetriable)
    }

    private func ask(
        _ partitions: [TopicPartition], _ timeoutMilliseconds: Int32
    ) throws(KafkaError) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        try logEnds(client, partitions, timeoutMilliseconds)
    }
}

/// Returns each partition's first offset and end, or the error. The end is the last stable offset where the client
/// reads committed records only, else the high watermark. Takes at most a second more than the given time.
///
/// Uses `rd_kafka_offsets_for_times`, which queries all leaders at the same time and ends in time. Before librdkafka
/// 2.3.0 `rd_kafka_query_watermark_offsets` waits as long as a leader is away (its issue 2588).
func logEnds(
    _ client: OpaquePointer, _ partitions: [TopicPartition], _ timeoutMilliseconds: Int32
) throws(KafkaError) -> [TopicPartition: Result<Watermarks, KafkaError>] {
    let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
    let low = try queryOffsets(client, partitions, .beginning, timeoutMilliseconds)
    let high = try queryOffsets(client, partitions, .end, max(1_000, deadline.remainingMilliseconds))
    return Dictionary(
        uniqueKeysWithValues: partitions.map { partition in
            (partition, watermarks(partition, low[partition], high[partition]))
        })
}

private func watermarks(
    _ partition: TopicPartition, _ low: Result<Int64, KafkaError>?, _ high: Result<Int64, KafkaError>?
) -> Result<Watermarks, KafkaError> {
    guard let low, let high else {
        return .failure(.system("read the watermarks of \(partition): the brokers left it out"))
    }
    return low.flatMap { low in high.map { Watermarks(low: low, high: $0) } }
}

/// - Parameter place: `.beginning` or `.end`.
func queryOffsets(
    _ client: OpaquePointer, _ partitions: [TopicPartition], _ place: StartOffset,
    _ timeoutMilliseconds: Int32
) throws(KafkaError) -> [TopicPartition: Result<Int64, KafkaError>] {
    // The offset stands for a time here, and -2 and -1 for the log's two ends (Kafka protocol, ListOffsets).
    let list = PartitionList(partitions.map { TopicPartitionOffset($0, place) })
    let code = rd_kafka_offsets_for_times(client, list.pointer, timeoutMilliseconds)
    guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "read the watermarks") }
    var result: [TopicPartition: Result<Int64, KafkaError>] = [:]
    for element in list.elements {
        let partition = TopicPartition(element)
        result[partition] =
            element.err == RD_KAFKA_RESP_ERR_NO_ERROR && element.offset >= 0
            ? .success(element.offset)
            : .failure(KafkaError(element.err, "read the watermarks of \(partition)"))
    }
    return result
}
