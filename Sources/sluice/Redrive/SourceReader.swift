import Kafka
import SluiceModel

/// Reads the records of many places, each partition in the order of its offsets. Joins no group. One thread; calls block.
final class SourceReader {
    private let consumer: KafkaConsumer
    private let cluster: KafkaCluster
    private let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 500)
    private let events: Events

    /// State that the events of a poll change.
    private final class Events {
        /// Partitions at whose end reading has arrived.
        var ended: [TopicPartition] = []
        /// Partitions that the brokers refuse.
        var failed: [(TopicPartition, KafkaError)] = []
    }

    init(_ cluster: KafkaCluster) throws(CommandFailure) {
        self.cluster = cluster
        var properties = cluster.properties
        properties["group.id"] = "sluice-tools"
        properties["enable.partition.eof"] = "true"
        properties["queued.max.messages.kbytes"] = "16384"
        if properties["fetch.wait.max.ms"] == nil { properties["fetch.wait.max.ms"] = "50" }
        let events = Events()
        self.events = events
        do throws(KafkaError) {
            consumer = try KafkaConsumer(properties: properties, topics: []) { event in
                switch event {
                case .endOfPartition(let partition, _): events.ended.append(partition)
                case .partitionError(let partition, let error): events.failed.append((partition, error))
                case .error(let error): Terminal.error("sluice: Kafka: \(error)")
                default: break
                }
            }
        } catch {
            throw CommandFailure(kafka: error)
        }
    }

    deinit { buffer.deallocate() }

    /// Reads all places of a plan, unless a stop is requested.
    ///
    /// - Parameters:
    ///   - found: takes the number of the candidate and its record, valid inside of the call only.
    ///   - gone: takes the number of a candidate without a record.
    ///   - between: called between two polls.
    func read(
        _ plan: SourcePlan, stop: StopSignals, found: (Int, ConsumedRecord) -> Void, gone: (Int) -> Void,
        between: () throws -> Void
    ) throws {
        var plan = plan
        for candidate in plan.gone { gone(candidate) }
        do throws(KafkaError) {
            try consumer.add(plan.starts)
        } catch {
            throw CommandFailure(kafka: error)
        }
        var patience = Patience(longest: cluster.patience)
        while !plan.isFinished, !stop.isRequested {
            let begin = ContinuousClock.now
            let count = consumer.poll(into: buffer, timeoutMilliseconds: 100)
            patience.add(.now - begin, isAnswered: count > 0 || !events.ended.isEmpty)
            var ended: [TopicPartition] = []
            var jumps: [TopicPartitionOffset] = []
            for index in 0..<count {
                let record = buffer[index]
                let partition = TopicPartition(
                    String(decoding: record.topicName, as: UTF8.self), record.partition)
                defer { record.destroy() }
                // Records behind a jump may be in the same poll.
                if jumps.contains(where: { $0.topicPartition == partition }) { continue }
                let answer = plan.read(partition, offset: record.offset)
                answer.gone.forEach(gone)
                for candidate in answer.candidates { found(candidate, record) }
                switch answer.step {
                case .readOn: break
                case .jump(let offset): jumps.append(TopicPartitionOffset(partition, .offset(offset)))
                case .finished: if !ended.contains(partition) { ended.append(partition) }
                }
            }
            try finish(&plan, jumps: jumps, ended: &ended, gone)
            do throws(KafkaError) {
                let reading = Set(consumer.assignment)
                try consumer.remove(
                    (ended + jumps.map(\.topicPartition)).filter { reading.contains($0) })
                try consumer.add(jumps)
            } catch {
                throw CommandFailure(kafka: error)
            }
            try between()
            if patience.isOver {
                throw CommandFailure(
                    .unavailable,
                    "no record of the jobs' topic from Kafka at \(cluster.bootstrapServers) within "
                        + "\(Numbers.fixed(cluster.patience / .seconds(1), 0)) s; check the brokers, and run the command again"
                )
            }
        }
    }

    private func finish(
        _ plan: inout SourcePlan, jumps: [TopicPartitionOffset], ended: inout [TopicPartition],
        _ gone: (Int) -> Void
    ) throws(CommandFailure) {
        for (partition, error) in events.failed {
            guard error.isUnknownTopic || error.name == "_UNKNOWN_PARTITION" else {
                throw CommandFailure(kafka: error)
            }
            events.ended.append(partition)
        }
        events.failed = []
        for partition in events.ended {
            // A partition that jumps is read again from there, up to its end.
            if jumps.contains(where: { $0.topicPartition == partition }) { continue }
            plan.ended(partition).forEach(gone)
            if !ended.contains(partition) { ended.append(partition) }
        }
        events.ended = []
    }

    func close() { consumer.close() }
}
