import CRocksDB

extension RetryStore {
    /// Gives a partition, and makes it when it isn't there.
    public func open(
        partition number: Int32,
        completion: @escaping @Sendable (Result<StorePartition, RetryStoreError>) -> Void
    ) {
        precondition(number >= 0, "a partition has no negative number")
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in try partition(number) }
    }

    /// Removes a partition with all that is in it. What is submitted for it afterwards is not kept; a later opening
    /// begins with an empty one.
    public func drop(
        _ partition: StorePartition, completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        run(on: storeLoop, { completion($0.failure) }) { [self] () throws(RetryStoreError) in
            try remove(partition)
        }
    }

    func partition(thatIsOpen number: Int32) -> StorePartition? { opened.withLock { $0?.partitions[number] } }

    /// Store's thread.
    func remove(_ partition: StorePartition) throws(RetryStoreError) { try remove([partition]) }

    /// Store's thread.
    func remove(_ partitions: [StorePartition]) throws(RetryStoreError) {
        // Out of the table first: whatever fails, none is given out again before it is gone.
        opened.withLock { opened in
            for partition in partitions where opened?.partitions[partition.number] === partition {
                opened?.partitions[partition.number] = nil
            }
        }
        try removeRemains(and: partitions.flatMap(\.families))
    }

    /// Store's thread. What can't be removed now is tried again before partitions are made.
    private func removeRemains(and families: [ColumnFamily] = []) throws(RetryStoreError) {
        guard let (database, remains) = opened.withLock({ $0.map { ($0.database, $0.remains) } }) else {
            throw .closed
        }
        var left: [ColumnFamily] = []
        defer { opened.withLock { $0?.remains = left } }
        try database.drop(remains + families, left: &left)
    }

    /// Store's thread. Makes it when it isn't there.
    func partition(_ number: Int32) throws(RetryStoreError) -> StorePartition {
        if let existing = partition(thatIsOpen: number) { return existing }
        return try make([number])[0]
    }

    /// Store's thread. Makes partitions that aren't there, all or none.
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
