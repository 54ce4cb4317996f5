import SluiceModel

extension RetryStore {
    /// Tells what is due, from the earliest on. It sees all batches that were submitted before.
    ///
    /// What is put later with a time before the cursor's isn't seen by going on from there: that needs a scan from the
    /// beginning.
    /// - Parameters:
    ///   - after: where the scan before ended; nil: from the beginning.
    ///   - through: the last time that counts, in milliseconds since the epoch.
    ///   - limit: of entries.
    public func scanDue(
        _ partition: StorePartition, after: DueCursor?, through: Int64, limit: Int,
        completion: @escaping @Sendable (Result<DueScan, RetryStoreError>) -> Void
    ) {
        let accepted = storeLoop.execute { [line] in
            do throws(RetryStoreError) {
                completion(.success(try partition.due.scan(after: after, through: through, limit: limit)))
            } catch {
                line.tell(error)
                completion(.failure(error))
            }
        }
        if !accepted { completion(.failure(.closed)) }
    }

    /// Hands over the keys of all items of a partition, as they are when the scan begins, in no order that means
    /// anything. On the scan thread, one scan after another.
    /// - Parameters:
    ///   - chunk: keys to hand over at once.
    ///   - each: called on the scan thread, which may be held up.
    public func scanItems(
        _ partition: StorePartition, chunk: Int, each: @escaping @Sendable ([ItemKey]) -> Void,
        completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        let accepted = scanLoop.execute { [self] in
            do throws(RetryStoreError) {
                let snapshot = StoreSnapshot(partition.due.database)
                var cursor: DueCursor?
                while true {
                    if isClosing.load(ordering: .relaxed) { throw .closed }
                    // A cursor of its own for each chunk: one over everything would keep old memtables and files alive.
                    let scan = try partition.due.scan(
                        after: cursor, through: .max, limit: max(1, chunk), snapshot: snapshot)
                    if !scan.entries.isEmpty { each(scan.entries.map(\.key)) }
                    if scan.isEnd { break }
                    cursor = scan.cursor
                }
                completion(nil)
            } catch {
                line.tell(error)
                completion(error)
            }
        }
        if !accepted { completion(.closed) }
    }
}

extension ColumnFamily {
    /// A part of a partition's due entries. Begins at the cursor: what was removed before it isn't stepped over.
    func scan(
        after: DueCursor?, through: Int64, limit: Int, snapshot: StoreSnapshot? = nil
    ) throws(RetryStoreError) -> DueScan {
        var scan = DueScan(entries: [], cursor: after, isEnd: false)
        let end = through < .max ? DueBytes(through + 1) : nil
        let iterator =
            if through < 0 {
                // No entry has a time before the epoch.
                nil as StoreIterator?
            } else if let end {
                withUnsafeBytes(of: end) {
                    StoreIterator(
                        self, .total, upperBound: $0, snapshot: snapshot?.handle, isOnce: snapshot != nil)
                }
            } else {
                StoreIterator(self, .total, snapshot: snapshot?.handle, isOnce: snapshot != nil)
            }
        guard let iterator else {
            scan.isEnd = true
            return scan
        }
        if let after {
            let key = DueKeyBytes(after.entry)
            iterator.seek(key)
            if iterator.isValid, DueKeyBytes(iterator.key)?.entry == key.entry { iterator.next() }
        } else {
            iterator.seekToFirst()
        }
        while iterator.isValid, scan.entries.count < limit {
            guard let entry = DueKeyBytes(iterator.key)?.entry else {
                throw .corrupt(
                    directory: database.directory,
                    text: "a key of column family \(name) has a length that can't be")
            }
            scan.entries.append(entry)
            iterator.next()
        }
        try iterator.check()
        scan.isEnd = !iterator.isValid
        if let last = scan.entries.last { scan.cursor = DueCursor(last) }
        return scan
    }
}
