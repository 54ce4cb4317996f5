import Kafka

/// Reads all partitions of a topic. Joins no group, so it disturbs no other consumer.
final class TopicReader {
    enum Start {
        case beginning, end
        /// First offset of each partition.
        case offsets([Int64])

        func offset(_ partition: Int32) -> StartOffset {
            switch self {
            case .beginning: .beginning
            case .end: .end
            case .offsets(let offsets):
                offsets.indices.contains(Int(partition)) ? .offset(offsets[Int(partition)]) : .beginning
            }
        }
    }

    private let consumer: KafkaConsumer
    private let unfinished: Unfinished
    /// Ends of the partitions by number, in offsets; nil: reads on.
    private let bounds: [Int64]?
    private let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 500)

    /// State that the events of `poll` change.
    private final class Unfinished {
        var partitions: Set<Int32> = []
        /// Offsets at which partitions ended, by partition.
        var ends: [Int32: Int64] = [:]
        var error: KafkaError?
    }

    /// - Parameters:
    ///   - stopsAtEnd: makes `isAtEnd` true when every partition was read to its end.
    ///   - bounds: offsets at which partitions count as read, by number; later records are left out. Nil: no bounds.
    init(
        topic: String, start: Start, stopsAtEnd: Bool, cluster: KafkaCluster, bounds: [Int64]? = nil
    ) throws(CommandFailure) {
        let count = try cluster.partitionCount(of: topic)
        var properties = cluster.properties
        properties["group.id"] = "sluice-tools"
        properties["enable.partition.eof"] = stopsAtEnd ? "true" : "false"
        if properties["fetch.wait.max.ms"] == nil { properties["fetch.wait.max.ms"] = "50" }
        let unfinished = Unfinished()
        unfinished.partitions = Set(0..<Int32(count))
        self.unfinished = unfinished
        self.bounds = bounds
        do throws(KafkaError) {
            consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                switch event {
                case .endOfPartition(let partition, let offset):
                    unfinished.partitions.remove(partition.partition)
                    unfinished.ends[partition.partition] = offset
                case .partitionError(_, let error): unfinished.error = error
                case .error(let error): Terminal.error("sluice: Kafka: \(error)")
                default: break
                }
            }
            try consumer.assign(
                (0..<Int32(count)).map {
                    TopicPartitionOffset(
                        topic: topic, partition: $0, start: start.offset($0))
                })
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    deinit { buffer.deallocate() }

    /// Records handed over so far.
    private(set) var count = 0

    var isAtEnd: Bool { unfinished.partitions.isEmpty }

    /// Whether the last `poll` took all records that had arrived.
    private(set) var isDrained = false

    /// Passes `body` the records that have arrived within the time. A record is valid inside of `body` only.
    func poll(timeoutMilliseconds: Int32, _ body: (ConsumedRecord) -> Void) throws(CommandFailure) {
        let polled = consumer.poll(into: buffer, timeoutMilliseconds: timeoutMilliseconds)
        count += polled
        isDrained = polled < buffer.count
        for index in 0..<polled {
            let partition = buffer[index].partition
            if let bounds {
                let end = bounds.indices.contains(Int(partition)) ? bounds[Int(partition)] : 0
                if buffer[index].offset < end { body(buffer[index]) }
                // A record that arrives at the end is followed by no other within the bounds.
                if buffer[index].offset >= end - 1 { unfinished.partitions.remove(partition) }
                buffer[index].destroy()
                continue
            }
            // A record behind the end may be followed by more, up to the partition's next end.
            if let end = unfinished.ends[partition], buffer[index].offset >= end {
                unfinished.partitions.insert(partition)
            }
            body(buffer[index])
            buffer[index].destroy()
        }
        if let error = unfinished.error { throw CommandFailure(kafka: error) }
    }

    func close() { consumer.close() }
}
