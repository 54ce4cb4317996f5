import CRdkafka
import Glibc

/// The partitions a consumer has taken over and, for each, the next offset it may hand out.
///
/// librdkafka 2.0.2 can deliver a record twice: one that poll takes while the library pauses the partition
/// (it does so in every rebalance) is fetched again after the resume. The table lets each offset through once
/// and in rising order, and nothing of a partition that is not assigned.
///
/// A log that has gone back (it was truncated, or its topic made anew) looks the same by its offsets. But then the broker
/// has refused the offset that was asked for, librdkafka has begun anew where `auto.offset.reset` says, and `startOver` is
/// told.
struct PartitionTable {
    private struct Topic {
        let name: String
        /// The topic's C handle, learnt from its records. Valid while one of its partitions is assigned,
        /// which keeps the handle alive; cleared after that, because the address may be used again.
        var identity: UnsafeRawPointer?
        /// By partition: `notAssigned`, or the lowest offset that is let through.
        var next: [Int64]
    }

    private static let notAssigned: Int64 = -1

    private var topics: [Topic] = []
    private var lastTopic = 0

    /// Records that were not let through: seen before, or of a partition that is not assigned.
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

    /// The partition's offsets may begin anew.
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

    /// Whether the record is the next of an assigned partition; takes note of it.
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
