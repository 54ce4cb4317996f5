import CRocksDB

extension RetryStore {
    /// Passes a partition to `completion`, and makes the partition when it doesn't exist.
    public func open(
        partition number: Int32,
        completion: @escaping @Sendable (Result<StorePartition, RetryStoreError>) -> Void
    ) {
        precondition(number >= 0, "a partition has no negative number")
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in try partition(number) }
    }

    /// Removes a partition with its entries. The store discards later changes to this partition; a later opening makes
    /// an empty partition.
    public func drop(
        _ partition: StorePartition, completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        run(on: storeLoop, { completion($0.failure) }) { [self] () throws(RetryStoreError) in
            try remove(partition)
        }
    }

    func partition(thatIsOpen number: Int32) -> StorePartition? { opened.withLock { $0?.partitions[number] } }

    /// Removes a partition on the store's thread.
    func remove(_ partition: StorePartition) throws(RetryStoreError) { try remove([partition]) }

    /// Removes partitions on the store's thread.
    func remove(_ partitions: [StorePartition]) throws(RetryStoreError) {
        // Removes the partitions from the table first. After a failure no opening then returns a partition that is to
        // be removed.
        opened.withLock { opened in
            for partition in partitions where opened?.partitions[partition.number] === partition {
                opened?.partitions[partition.number] = nil
            }
        }
        try removeRemains(and: partitions.flatMap(\.families))
    }

    /// Runs on the store's thread. Drops what earlier calls could not drop. Failed drops are retried before partitions
    /// are made.
    private func removeRemains(and families: [ColumnFamily] = []) throws(RetryStoreError) {
        guard let (database, remains) = opened.withLock({ $0.map { ($0.database, $0.remains) } }) else {
            throw .closed
        }
        var left: [ColumnFamily] = []
        defer { opened.withLock { $0?.remains = left } }
        try database.drop(remains + families, left: &left)
    }

    /// Returns a partition on the store's thread, and makes the partition when it doesn't exist.
    func partition(_ number: Int32) throws(RetryStoreError) -> StorePartition {
        if let existing = partition(thatIsOpen: number) { return existing }
        return try make([number])[0]
    }

    /// Makes partitions that don't exist yet on the store's thread, all or none.
    func make(_ numbers: [Int32]) throws(RetryStoreError) -> [StorePartition] {
        try removeRemains()
        guard let database = opened.withLock({ $0?.database }) else { throw .closed }
        var left: [ColumnFamily] = []
        defer { if !left.isEmpty { opened.withLock { $0?.remains += left } } }
        let families = try database.make(
            numbers.flatMap { number in [.items, .due, .devices].map { StorePartition.Family($0, number) } },
            left: &left)
        let made = numbers.enumerated().map { index, number in
            StorePartition(
                number: number, items: families[3 * index], due: families[3 * index + 1],
                devices: families[3 * index + 2])
        }
        opened.withLock { opened in
            for partition in made { opened?.partitions[partition.number] = partition }
        }
        return made
    }
}
