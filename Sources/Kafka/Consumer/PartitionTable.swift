import CRdkafka
import Glibc

/// The partitions a consumer has taken over, each with the next offset that may be returned.
///
/// Release 2.0.2 of librdkafka can deliver a record twice. The library pauses a partition in every rebalance. A record
/// polled meanwhile is fetched again after the resume. The table admits each offset once and in rising order, and no
/// record of an unassigned partition.
///
/// A log that went back (truncated, or its topic recreated) shows the same offsets. But then the broker has refused the
/// fetch offset, and librdkafka has started over where `auto.offset.reset` points. The context then calls `startOver`.
struct PartitionTable {
    private struct Topic {
        let name: String
        /// The topic's C handle, learnt from its records. Valid while one of its partitions is assigned, which keeps
        /// the handle alive. Cleared after that, because the address may be reused.
        var identity: UnsafeRawPointer?
        /// Lowest admitted offset by partition, or `notAssigned`.
        var next: [Int64]
    }

    private static let notAssigned: Int64 = -1

    private var topics: [Topic] = []
    private var lastTopic = 0

    /// Records that were not admitted: seen before, or of an unassigned partition.
    private(set) var dropped: UInt64 = 0

    mutating func assign(_ partition: TopicPartition) {
        guard TopicPartition.numbers.contains(partition.partition) else { return }
        let index: Int
        if let known = topics.firstIndex(where: { $0.name == partition.topic }) {
            index = known
        } else {
            index = topics.count
            topics.append(Topic(name: partition.topic, identity: nil, next: []))
        }
        let slot = Int(partition.partition)
        while topics[index].next.count <= slot { topics[index].next.append(Self.notAssigned) }
        topics[index].next[slot] = 0
    }

    /// Admits any offset of the partition again.
    mutating func startOver(_ partition: TopicPartition) {
        if contains(partition) { assign(partition) }
    }

    mutating func unassign(_ partition: TopicPartition) {
        guard let index = topics.firstIndex(where: { $0.name == partition.topic }) else { return }
        let slot = Int(partition.partition)
        guard topics[index].next.indices.contains(slot) else { return }
        topics[index].next[slot] = Self.notAssigned
        if !topics[index].next.contains(where: { $0 != Self.notAssigned }) { topics[index].identity = nil }
    }

    mutating func removeAll() { topics.removeAll() }

    func contains(_ partition: TopicPartition) -> Bool {
        guard let topic = topics.first(where: { $0.name == partition.topic }) else { return false }
        let slot = Int(partition.partition)
        return topic.next.indices.contains(slot) && topic.next[slot] != Self.notAssigned
    }

    var assigned: [TopicPartition] {
        topics.flatMap { topic in
            topic.next.indices.filter { topic.next[$0] != Self.notAssigned }
                .map { TopicPartition(topic.name, Int32($0)) }
        }
    }

    /// Whether the record's offset is the next or later in an assigned partition. Advances the table if so.
    @inline(__always)
    mutating func admit(_ topic: OpaquePointer, _ partition: Int32, _ offset: Int64) -> Bool {
        let slot = Int(partition)
        let identity = UnsafeRawPointer(topic)
        if lastTopic < topics.count, topics[lastTopic].identity == identity,
            topics[lastTopic].next.indices.contains(slot)
        {
            let next = topics[lastTopic].next[slot]
            if next >= 0, offset >= next, offset < .max {
                topics[lastTopic].next[slot] = offset + 1
                return true
            }
            dropped += 1
            return false
        }
        return admitSlowly(topic, slot, offset)
    }

    @inline(never)
    private mutating func admitSlowly(_ topic: OpaquePointer, _ slot: Int, _ offset: Int64) -> Bool {
        let identity = UnsafeRawPointer(topic)
        let index =
            topics.firstIndex { $0.identity == identity }
            ?? topics.firstIndex { entry in
                entry.name.withCString { strcmp($0, rd_kafka_topic_name(topic)) == 0 }
            }
        guard let index, topics[index].next.indices.contains(slot),
            topics[index].next[slot] != Self.notAssigned, offset >= topics[index].next[slot], offset < .max
        else {
            dropped += 1
            return false
        }
        topics[index].identity = identity
        topics[index].next[slot] = offset + 1
        lastTopic = index
        return true
    }
}
