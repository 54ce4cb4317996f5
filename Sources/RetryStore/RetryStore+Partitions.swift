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
    func remove(_ partition: StorePartition) throws(RetryStoreError) {
        // Out of the table first: whatever fails, it isn't given out again before an opening has cleared it up.
        opened.withLock { opened in
            if opened?.partitions[partition.number] === partition {
                opened?.partitions[partition.number] = nil
            }
        }
        for family in partition.families { try family.drop() }
    }

    /// Store's thread. Makes it when it isn't there.
    func partition(_ number: Int32) throws(RetryStoreError) -> StorePartition {
        if let existing = partition(thatIsOpen: number) { return existing }
        guard let database = opened.withLock({ $0?.database }) else { throw .closed }
        let options = database.options
        var made: [ColumnFamily] = []
        do throws(RetryStoreError) {
            for (kind, options) in [
                (StorePartition.Kind.items, options.items), (.due, options.due), (.devices, options.devices),
            ] {
                let name = StorePartition.Family(kind, number).name
                let handle = try database.call {
                    rocksdb_create_column_family(database.handle, options, name, $0)
                }
                made.append(ColumnFamily(handle: handle!, name: name, database: database))
            }
        } catch {
            // So that the next attempt can make them all.
            for family in made { try? family.drop() }
            throw error
        }
        let partition = StorePartition(number: number, items: made[0], due: made[1], devices: made[2])
        opened.withLock { $0?.partitions[number] = partition }
        return partition
    }
}
