import DeliveryCore
import RetryStore

/// Parts of the store that an intake has open, by partition, with the facts of their taking over.
/// The intake's thread only.
final class StoreParts {
    /// Parts of assigned partitions, and of partitions still being taken over.
    private var handles: [Int32: StorePartition] = [:]
    /// Marks found when a partition was taken over, until its shards have them.
    private var marks: [Int32: [RelocationMark]] = [:]
    /// Beginnings of the copies in the changelog; a partition without an entry is restored from the topic's beginning.
    private var copyPositions: [Int32: Int64] = [:]
    /// Attempts whose partitions the restorer reads.
    private var restores: [Int32: PartitionRestore.Attempt] = [:]

    /// Part of a partition; nil when it isn't open.
    func handle(of partition: Int32) -> StorePartition? { handles[partition] }

    func keep(_ handle: StorePartition) { handles[handle.number] = handle }

    func keep(_ copy: RestorablePartition) {
        keep(copy.handle)
        copyPositions[copy.handle.number] = copy.position?.offset
    }

    func keep(_ found: [RelocationMark], of partition: Int32) { marks[partition] = found }

    func takeMarks(of partition: Int32) -> [RelocationMark] {
        marks.removeValue(forKey: partition) ?? []
    }

    /// Releases the part of a partition that isn't assigned any more. Its copy's position stays known.
    func release(_ partition: Int32) { handles[partition] = nil }

    /// Releases the part of a partition, and forgets where its copy ends.
    func forget(_ partition: Int32) {
        handles[partition] = nil
        copyPositions[partition] = nil
    }

    func forgetAll(except kept: Set<Int32>) {
        for partition in handles.keys where !kept.contains(partition) { forget(partition) }
    }

    /// Releases all parts, because the loop has ended.
    func releaseAll() { handles = [:] }

    // MARK: Restores

    /// Begins attempts whose partitions are open. Returns what the restorer needs for them.
    func begin(_ attempts: [PartitionRestore.Attempt]) -> [ChangelogRestorer.Start] {
        attempts.compactMap { attempt in
            guard let handle = handles[attempt.partition] else { return nil }
            restores[attempt.partition] = attempt
            return ChangelogRestorer.Start(handle: handle, position: copyPositions[attempt.partition])
        }
    }

    func cancelRestores(_ partitions: [Int32]) {
        for partition in partitions { restores[partition] = nil }
    }

    /// Returns the attempt that the restorer's report is of. Returns nil when the partition was revoked meanwhile, even
    /// if it was assigned again.
    func restoreEnded(
        _ partition: Int32, _ handle: StorePartition? = nil
    ) -> PartitionRestore.Attempt? {
        if let handle, handles[partition] !== handle { return nil }
        return restores.removeValue(forKey: partition)
    }
}
