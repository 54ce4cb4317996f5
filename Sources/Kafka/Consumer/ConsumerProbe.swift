/// Tries what a consumer may do, without joining its group and without a commit. One thread; calls block.
public final class ConsumerProbe {
    private let consumer: KafkaConsumer
    private let events = Events()

    /// State that the events of a poll change.
    private final class Events {
        /// Whether the partition's end was reached.
        var isAtEnd = false
        /// Error of the partition; nil without an error.
        var partitionError: KafkaError?
        /// Latest error of a connection; nil without an error.
        var connectionError: KafkaError?
    }

    /// - Parameter properties: properties of the consumer whose rights are tried.
    public init(properties: KafkaProperties) throws(KafkaError) {
        var properties = properties
        properties["enable.partition.eof"] = "true"
        properties["log_level"] = "0"
        properties["statistics.interval.ms"] = nil
        // A static member of the name may be running.
        properties["group.instance.id"] = nil
        let events = events
        consumer = try KafkaConsumer(properties: properties, topics: []) { event in
            switch event {
            case .endOfPartition: events.isAtEnd = true
            case .partitionError(_, let error): events.partitionError = error
            case .error(let error): events.connectionError = error
            default: break
            }
        }
    }

    /// Reads a partition at its end, until the broker has answered.
    /// - Throws: the broker's refusal, or `_TIMED_OUT`.
    public func read(
        endOf partition: TopicPartition, timeoutMilliseconds: Int32
    ) throws(KafkaError) {
        try consumer.assign([
            TopicPartitionOffset(topic: partition.topic, partition: partition.partition, start: .end)
        ])
        let deadline = MonotonicDeadline(milliseconds: timeoutMilliseconds)
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 16)
        defer { buffer.deallocate() }
        while true {
            if deadline.hasPassed {
                throw events.connectionError ?? .noAnswer("read \(partition)", timeoutMilliseconds)
            }
            // librdkafka 2.0.2 can report the end before the error of the same answer.
            let wasAtEnd = events.isAtEnd
            let count = consumer.poll(
                into: buffer, timeoutMilliseconds: min(100, max(1, deadline.remainingMilliseconds)))
            for index in 0..<count { buffer[index].destroy() }
            if let error = events.partitionError { throw error }
            // A record that arrives meanwhile shows the right as well.
            if wasAtEnd || count > 0 { return }
        }
    }

    /// Asks the group's coordinator for a committed offset.
    /// - Throws: the coordinator's refusal, or `_TIMED_OUT`.
    public func askForOffsets(
        of partition: TopicPartition, timeoutMilliseconds: Int32
    ) throws(KafkaError) {
        do throws(KafkaError) {
            _ = try consumer.committed([partition], timeoutMilliseconds: timeoutMilliseconds)
        } catch {
            // librdkafka waits on for a coordinator that refuses the group, and reports the refusal by an event.
            let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 16)
            defer { buffer.deallocate() }
            let count = consumer.poll(into: buffer, timeoutMilliseconds: 100)
            for index in 0..<count { buffer[index].destroy() }
            throw events.connectionError ?? error
        }
    }

    public func close() { consumer.close() }
}
