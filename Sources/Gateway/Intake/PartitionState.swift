import DeliveryCore
import Kafka

/// One assigned partition: what of it is finished, and what is known of its end.
struct PartitionState {
    let topicPartition: TopicPartition
    var tracker: OffsetTracker
    /// Records that the tracker's window could not hold yet, in order. Owned.
    var held: [ConsumedRecord] = []
    var isPausedForSpan = false
    /// No new record is taken: the group takes the partition away.
    var isEnding = false
    /// Jobs that the shards gave back.
    var abandoned = 0
    /// Something was finished since the last commit.
    var isDirty = false
    /// What was committed last.
    var committed: OffsetCommit?

    /// Jobs whose outcome is still to come.
    var remaining: Int { tracker.outstanding - abandoned }
}

/// The assigned partitions by slot, the number that records and outcomes carry. A slot is used again only after
/// all others, so that an outcome that comes late for a partition that went away meets nobody.
struct PartitionSlots {
    private(set) var states: [UInt16: PartitionState] = [:]
    private var slotByPartition: [UInt16?] = []
    private var next: UInt16 = 0

    var slots: Dictionary<UInt16, PartitionState>.Keys { states.keys }

    subscript(slot: UInt16) -> PartitionState? {
        _read { yield states[slot] }
        _modify { yield &states[slot] }
    }

    func slot(ofPartition partition: Int32) -> UInt16? {
        Int(partition) < slotByPartition.count ? slotByPartition[Int(partition)] : nil
    }

    func slot(of topicPartition: TopicPartition) -> UInt16? { slot(ofPartition: topicPartition.partition) }

    @discardableResult
    mutating func insert(_ state: PartitionState) -> UInt16 {
        while states[next] != nil { next &+= 1 }
        let slot = next
        next &+= 1
        states[slot] = state
        let partition = Int(state.topicPartition.partition)
        while slotByPartition.count <= partition { slotByPartition.append(nil) }
        slotByPartition[partition] = slot
        return slot
    }

    mutating func remove(_ slot: UInt16) -> PartitionState? {
        guard let state = states.removeValue(forKey: slot) else { return nil }
        let partition = Int(state.topicPartition.partition)
        if slotByPartition[partition] == slot { slotByPartition[partition] = nil }
        return state
    }
}
