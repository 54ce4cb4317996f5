import EventLoop
import RetryStore
import SluiceModel

/// Calls of a store that wait for their completions.
extension RetryStore {
    public func opened(_ number: Int32) throws(RetryStoreError) -> StorePartition {
        try awaited { open(partition: number, completion: $0) }.get()
    }

    public func dropped(_ partition: StorePartition) -> RetryStoreError? {
        awaited { drop(partition, completion: $0) }
    }

    /// Submits the batch that `fill` makes.
    @discardableResult
    public func written(_ fill: (inout StoreBatch) -> Void) -> BatchResult {
        var batch = makeBatch()
        fill(&batch)
        let answer = BlockingAnswer<BatchResult>()
        submit(batch) { answer.set($0) }
        return answer.wait()
    }

    public func synced() -> RetryStoreError? { awaited { sync(completion: $0) } }

    public func due(
        _ partition: StorePartition, after: DueCursor? = nil, through: Int64 = .max, limit: Int = 1_000
    ) throws(RetryStoreError) -> DueScan {
        try awaited { scanDue(partition, after: after, through: through, limit: limit, completion: $0) }.get()
    }

    public func suspended(
        _ partition: StorePartition, topic: UInt32?, limit: Int
    ) throws(RetryStoreError) -> SuspendedScan {
        try awaited { scanSuspended(partition, topic: topic, after: nil, limit: limit, completion: $0) }.get()
    }

    public func expired(
        _ partition: StorePartition, through: Int64, limit: Int
    ) throws(RetryStoreError) -> ExpiredScan {
        try awaited { scanExpired(partition, after: nil, through: through, limit: limit, completion: $0) }
            .get()
    }

    public func marks(of partition: StorePartition) throws(RetryStoreError) -> [RelocationMark] {
        try awaited { loadMarks(of: partition, completion: $0) }.get()
    }

    public func copies(of numbers: [Int32]) throws(RetryStoreError) -> [RestorablePartition] {
        try awaited { openCopies(partitions: numbers, reachedAfter: 0, completion: $0) }.get()
    }

    public func restored(_ chunk: ChangelogChunk) -> RetryStoreError? {
        awaited { restore(chunk, completion: $0) }
    }

    public func checkpointed(
        _ partition: StorePartition, _ position: ChangelogCheckpoint
    ) throws(RetryStoreError) {
        try awaited { checkpoint(partition, position: position, completion: $0) }.get()
    }

    public func purged(_ scope: PurgeScope) -> RetryStoreError? {
        awaited { _ = purge(scope, completion: $0) }
    }

    private func awaited<Value: Sendable>(_ begin: (@escaping @Sendable (Value) -> Void) -> Void) -> Value {
        let answer = BlockingAnswer<Value>()
        begin { answer.set($0) }
        return answer.wait()
    }
}

extension StoreReader {
    /// Items of a partition: device, offset, due time and bytes of each, in order.
    public func items(of partition: Int32) throws(RetryStoreError) -> [String] {
        var items: [String] = []
        try visitItems(of: partition) {
            items.append("\($0.key.device.high >> 60)/\($0.key.offset) due \($0.due): \(Array($0.push))")
            return true
        }
        return items
    }
}
