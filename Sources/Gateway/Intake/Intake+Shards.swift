import DeliveryCore
import EventLoop

/// Passes the machine's requests to the shards.
extension Intake {
    func askAll(_ request: ShardRequest) {
        if store != nil,
            case .begin(let slot, let partition, let readThrough, let earlierFrom, let committed) = request
        {
            return beginPartition(
                slot, partition, readThrough: readThrough, earlierFrom: earlierFrom, committed: committed)
        }
        for index in shards.indices { ask(index, request) }
    }

    /// Begins a partition at each shard, with the partition's part of the store.
    private func beginPartition(
        _ slot: UInt16, _ partition: Int32, readThrough: Int64, earlierFrom: Int64, committed: Int64
    ) {
        guard let handle = parts.handle(of: partition) else {
            // The partition's records wait, because the shards never receive its begin.
            return logger.critical(
                "a partition begins without its part of the store; report this as a bug, and restart the worker",
                metadata: ["partition": "\(partition)"])
        }
        let offset = CommittedOffset(committed)
        watch(slot, offset)
        let marks = parts.takeMarks(of: partition)
        for shard in shards {
            shard.loop.execute {
                shard.beginPartition(
                    slot, handle, readThrough: readThrough, earlierFrom: earlierFrom, offset, marks)
            }
        }
    }

    func ask(_ index: Int, _ request: ShardRequest) {
        let shard = shards[index]
        shard.loop.execute { shard.perform(request) }
    }
}
