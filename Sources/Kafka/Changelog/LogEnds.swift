import CRdkafka

/// First and next offset of several partitions, as they are for readers of everything: the high watermark, not the last
/// stable offset. Asks all leaders at the same time.
struct LogEnds: ~Copyable {
    private let client: OpaquePointer

    init(_ properties: KafkaProperties) throws(KafkaError) {
        var properties = properties
        // Decides which end the brokers tell.
        properties["isolation.level"] = "read_uncommitted"
        client = try ClientConfiguration(.admin, properties).create()
    }

    deinit { rd_kafka_destroy(client) }

    /// Each partition's watermarks, or why there are none. Blocks, for little more than the given time.
    func query(
        _ partitions: [TopicPartition], timeoutMilliseconds: Int32
    ) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        do throws(KafkaError) {
            return try ask(partitions, timeoutMilliseconds)
        } catch {
            // One partition without a leader spoils the answer for all: which is it?
            var result: [TopicPartition: Result<Watermarks, KafkaError>] = [:]
            for partition in partitions {
                do throws(KafkaError) {
                    result.merge(try ask([partition], 1_000)) { _, new in new }
                } catch {
                    result[partition] = .failure(
                        KafkaError(
                            code: error.code, message: "\(partition): \(error.message)",
                            isRetriable: error.isRetriable))
                }
            }
            return result
        }
    }

    private func ask(
        _ partitions: [TopicPartition], _ timeoutMilliseconds: Int32
    ) throws(KafkaError) -> [TopicPartition: Result<Watermarks, KafkaError>] {
        try logEnds(client, partitions, timeoutMilliseconds)
    }
}

/// The first offset of each partition and its end, or why there are none; the end is the last stable offset where the client
/// reads committed records only, else the high watermark. Takes a second more than the given time at most. By `rd_kafka_offsets_for_times`, which asks all leaders at the same
/// time and ends in time: before librdkafka 2.3.0 `rd_kafka_query_watermark_offsets` waits for as long as a leader is away (its
/// issue 2588).
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
private func queryOffsets(
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
