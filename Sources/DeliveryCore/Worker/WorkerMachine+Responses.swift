import SluiceModel

/// Rounds in which records that wait leave the consumer's memory.
extension WorkerMachine {
    /// Begins a round when it is time. Called after each poll and at each tick.
    mutating func leaveResponses() {
        guard responses.begins(at: now) else { return }
        act(.copyDeferred)
        act(.requestAll(.leaveResponses))
    }

    /// Replaces the handles of all records that are held back, because their owner has copied them.
    public mutating func replaceDeferredHandles(_ replace: (UInt) -> UInt) {
        for index in partitions.indices where partitions[index].hasDeferredRecords {
            partitions[index].replaceDeferredHandles(replace)
        }
    }

    /// Notes that a shard has ended the round. Its copies take less room than their records did.
    mutating func leftResponses(_ shrunk: [ShrunkRecord]) {
        for record in shrunk {
            guard let index = partitions.index(ofSlot: record.place.partitionSlot) else { continue }
            let bytes = partitions[index].shrink(record.place.recordOffset, by: record.bytes)
            gate.shrink(index, offset: record.place.recordOffset, bytes: bytes)
        }
        let wasBehind = responses.isBehind
        responses.shardEnded()
        afterProgress()
        if wasBehind, !responses.isBehind { act(.poll) }
    }
}
