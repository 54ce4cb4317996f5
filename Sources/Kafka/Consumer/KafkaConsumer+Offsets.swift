import CRdkafka

extension KafkaConsumer {
    /// Whether a commit has to wait, because this member joins the group anew or may be about to. A broker reads such a
    /// commit after the group has its next generation, and refuses the commit (`ILLEGAL_GENERATION`). librdkafka before
    /// 2.8.3 then gives all partitions up, though they are still this member's (its CHANGELOG, #4059).
    ///
    /// True in these times:
    /// - from a request to join to the rebalance event that follows
    /// - for a moment after a broker's answer that can make the client join, and after an answer to a rebalance event
    /// - soon after a rebalance, if such an answer has come, until librdkafka may join again
    ///
    /// False while a rebalance event awaits its answer, so that a revocation's commit is sent.
    public var holdsCommits: Bool {
        context.hold.isOn(
            context.watch.traffic, isEventOpen: context.isEventOpen, at: MonotonicDeadline.now)
    }

    /// Commits offsets of this group, with metadata.
    ///
    /// Asynchronous: returns at once; `KafkaConsumerEvent.committed` reports the result with the returned reference.
    /// Synchronous: waits for the brokers' answer; no event follows.
    /// - Throws: synchronous: the first error, or `_TIMED_OUT` without an answer in time; the commit may still happen.
    ///   Asynchronous: only when the request cannot be made at all.
    @discardableResult
    public func commit(
        _ commits: [OffsetCommit], synchronous: Bool = false, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> UInt64 {
        let reference = nextCommitReference
        nextCommitReference += 1
        guard !commits.isEmpty else { return reference }
        guard let queue else { throw .invalid("commit: the consumer is closed") }
        let list = PartitionList(commits)
        if synchronous {
            try commitAndWait(list, reference, timeoutMilliseconds)
            return reference
        }
        let code = rd_kafka_commit_queue(
            client, list.pointer, queue,
            { client, code, partitions, opaque in
                guard let context = ConsumerContext.of(client) else { return }
                context.emit(.committed(CommitResult(code, partitions, UInt64(UInt(bitPattern: opaque)))))
            }, UnsafeMutableRawPointer(bitPattern: UInt(reference)))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(code, "commit offsets of group \(group)")
        }
        return reference
    }

    /// Commits with a time limit; `rd_kafka_commit` would wait without limit.
    private func commitAndWait(
        _ list: borrowing PartitionList, _ reference: UInt64, _ timeoutMilliseconds: Int32
    ) throws(KafkaError) {
        final class Answer { var result: CommitResult? }
        let answer = Answer()
        // Only this call uses the queue: its callback runs inside the poll below or never.
        let replies = rd_kafka_queue_new(client)!
        defer { rd_kafka_queue_destroy(replies) }
        let code = rd_kafka_commit_queue(
            client, list.pointer, replies,
            { _, code, partitions, opaque in
                guard let opaque else { return }
                Unmanaged<Answer>.fromOpaque(opaque).takeUnretainedValue().result =
                    CommitResult(code, partitions, 0)
            }, Unmanaged.passUnretained(answer).toOpaque())
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(code, "commit offsets of group \(group)")
        }
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        while answer.result == nil {
            if deadline.hasPassed {
                throw KafkaError(
                    RD_KAFKA_RESP_ERR__TIMED_OUT, "commit offsets of group \(group)",
                    detail: "no answer within \(timeoutMilliseconds) ms")
            }
            rd_kafka_queue_poll_callback(replies, deadline.remainingMilliseconds)
        }
        if let error = answer.result?.error { throw error }
    }

    /// Returns the group's committed offsets for these partitions, queried from the group's coordinator. Blocks.
    /// - Throws: the error of the request or of the first partition.
    public func committed(
        _ partitions: [TopicPartition], timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> [CommittedOffset] {
        guard !partitions.isEmpty else { return [] }
        return try committedOffsets(client, group, partitions, timeoutMilliseconds)
    }

    /// Returns the partition's watermarks as of its last fetch, without a request, for lag. `nil` before the first
    /// fetch. The low watermark is kept current only with `statistics.interval.ms` set.
    public func watermarks(of partition: TopicPartition) -> Watermarks? {
        var low: Int64 = 0
        var high: Int64 = 0
        let code = rd_kafka_get_watermark_offsets(client, partition.topic, partition.partition, &low, &high)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, high >= 0 else { return nil }
        return Watermarks(low: max(0, low), high: high)
    }

    /// Returns the partition's watermarks, queried from its leader. Blocks.
    public func queryWatermarks(
        of partition: TopicPartition, timeoutMilliseconds: Int32 = 10_000
    ) throws(KafkaError) -> Watermarks {
        try logEnds(client, partition, timeoutMilliseconds)
    }
}

func logEnds(
    _ client: OpaquePointer, _ partition: TopicPartition, _ timeoutMilliseconds: Int32
) throws(KafkaError) -> Watermarks {
    guard let answer = try logEnds(client, [partition], timeoutMilliseconds)[partition] else {
        throw .system("read the watermarks of \(partition): the brokers left it out")
    }
    return try answer.get()
}

extension CommitResult {
    init(
        _ code: rd_kafka_resp_err_t, _ list: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>?,
        _ reference: UInt64
    ) {
        let partitions = list.map { PartitionList.elements($0) }.map { elements in
            elements.map { element in
                let partition = TopicPartition(element)
                let error =
                    element.err == RD_KAFKA_RESP_ERR_NO_ERROR
                    ? nil : KafkaError(element.err, "commit offset \(element.offset) of \(partition)")
                return (topicPartition: partition, offset: element.offset, error: error)
            }
        }
        self.reference = reference
        self.partitions = partitions ?? []
        error =
            code == RD_KAFKA_RESP_ERR_NO_ERROR
            ? self.partitions.lazy.compactMap(\.error).first
            : (self.partitions.lazy.compactMap(\.error).first ?? KafkaError(code, "commit offsets"))
    }
}

func committedOffsets(
    _ client: OpaquePointer, _ group: String, _ partitions: [TopicPartition], _ timeoutMilliseconds: Int32
) throws(KafkaError) -> [CommittedOffset] {
    let list = PartitionList(partitions)
    let code = rd_kafka_committed(client, list.pointer, timeoutMilliseconds)
    guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
        throw KafkaError(code, "read the committed offsets of group \(group)")
    }
    if let error = list.firstError("read the committed offset of") { throw error }
    return list.elements.map { element in
        let metadata = element.metadata.map {
            String(
                decoding: UnsafeRawBufferPointer(start: $0, count: element.metadata_size), as: UTF8.self)
        }
        return CommittedOffset(
            topicPartition: TopicPartition(element), offset: element.offset >= 0 ? element.offset : nil,
            metadata: metadata ?? "")
    }
}
