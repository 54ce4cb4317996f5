import CRocksDB
import SluiceModel

extension RetryStore {
    /// Passes due entries to `completion`, from the earliest on. The scan sees all batches that were submitted before.
    ///
    /// A later put with a time before the cursor's isn't seen by a scan from that cursor. Only a scan from the
    /// beginning sees it.
    /// - Parameters:
    ///   - after: cursor at which the previous scan ended; nil: from the beginning.
    ///   - through: the last time that counts, in milliseconds since the epoch.
    ///   - limit: most entries to return.
    public func scanDue(
        _ partition: StorePartition, after: DueCursor?, through: Int64, limit: Int,
        completion: @escaping @Sendable (Result<DueScan, RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { () throws(RetryStoreError) in
            try partition.scanDue(after: after, through: through, limit: limit)
        }
    }

    /// Passes the keys of all items of a partition to `each`, in no meaningful order. The keys are those at the scan's
    /// begin. Runs on the scan thread, one scan after another.
    /// - Parameters:
    ///   - chunk: number of keys in each call of `each`.
    ///   - each: called on the scan thread, which it may hold up.
    public func scanItems(
        _ partition: StorePartition, chunk: Int, each: @escaping @Sendable ([ItemKey]) -> Void,
        completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        run(on: scanLoop, { completion($0.failure) }) { [self] () throws(RetryStoreError) in
            let snapshot = StoreSnapshot(partition.due.database)
            var cursor: DueCursor?
            var isEnd = false
            while !isEnd {
                // A single iterator over everything would keep old memtables and files alive. Each new iterator reads a
                // part of every file.
                isEnd = try partition.due.scanKeys(
                    after: &cursor, chunk: max(1, chunk), limit: Self.keysPerIterator, snapshot: snapshot
                ) { keys throws(RetryStoreError) in
                    if isClosing.load(ordering: .relaxed) { throw .closed }
                    each(keys)
                }
            }
        }
    }
}

extension RetryStore {
    /// Passes the devices of a partition whose items were on their way out, see ``DeviceState/isAwaited``. Runs on the
    /// scan thread, one scan after another.
    /// - Parameters:
    ///   - chunk: most devices in each call of `each`.
    ///   - each: called on the scan thread, which it may hold up.
    public func scanAwaitedDevices(
        _ partition: StorePartition, chunk: Int, each: @escaping @Sendable ([DeviceKey]) -> Void,
        completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        run(on: scanLoop, { completion($0.failure) }) { [self] () throws(RetryStoreError) in
            var last: DeviceKey?
            var isEnd = false
            while !isEnd {
                if isClosing.load(ordering: .relaxed) { throw .closed }
                var devices: [DeviceKey] = []
                isEnd = try partition.devices.scan(
                    after: &last, chunk: max(1, chunk), limit: Self.keysPerIterator, into: &devices
                ) { $0.isAwaited }
                if !devices.isEmpty { each(devices) }
            }
        }
    }

    /// Finds pushes that wait with their topic. Each call reads a bounded part of the partition's due entries, whether
    /// their pushes are suspended or not. Runs on the scan thread.
    /// - Parameters:
    ///   - topic: ``StoredPush/topicHash(_:)``; nil: any.
    ///   - stopped: topics whose entries are skipped when any topic is wanted.
    ///   - after: cursor at which the previous scan ended; nil: from the beginning.
    ///   - limit: most entries to return.
    public func scanSuspended(
        _ partition: StorePartition, topic: UInt32?, without stopped: Set<UInt32> = [], after: DueCursor?,
        limit: Int,
        completion: @escaping @Sendable (Result<SuspendedScan, RetryStoreError>) -> Void
    ) {
        run(on: scanLoop, completion) { [self] () throws(RetryStoreError) in
            if isClosing.load(ordering: .relaxed) { throw .closed }
            return try partition.due.scanSuspended(
                topic, without: stopped, after: after, limit: max(1, limit), keys: Self.keysPerIterator)
        }
    }

    /// Finds devices whose state has expired, and removes states that can't be read. Each call reads a bounded part of
    /// the partition's devices. Runs on the scan thread.
    /// - Parameters:
    ///   - after: the last device that the previous scan has read; nil: from the beginning.
    ///   - through: the last moment of expiry that counts, in milliseconds since the epoch.
    ///   - limit: most devices to return.
    public func scanExpired(
        _ partition: StorePartition, after: DeviceKey?, through: Int64, limit: Int,
        completion: @escaping @Sendable (Result<ExpiredScan, RetryStoreError>) -> Void
    ) {
        run(on: scanLoop, completion) { [self] () throws(RetryStoreError) in
            if isClosing.load(ordering: .relaxed) { throw .closed }
            var scan = ExpiredScan(devices: [], last: after, isEnd: false)
            var unreadable: [DeviceKey] = []
            scan.isEnd = try partition.devices.scan(
                after: &scan.last, chunk: max(1, limit), limit: Self.keysPerIterator, into: &scan.devices,
                unreadable: { unreadable.append($0) }
            ) { $0.expiryMilliseconds <= through }
            if !unreadable.isEmpty { removeStates(of: unreadable, in: partition) }
            scan.unreadable = unreadable.count
            return scan
        }
    }

    /// Removes the states of these devices that can't be read. The store may have got another state since the scan.
    private func removeStates(of devices: [DeviceKey], in partition: StorePartition) {
        run(on: storeLoop, { _ in }) { [isChangelogBacked] () throws(RetryStoreError) in
            let batch: OpaquePointer = rocksdb_writebatch_create()
            defer { rocksdb_writebatch_destroy(batch) }
            let family = partition.devices
            for device in devices {
                let key = DeviceKeyBytes(device)
                guard try family.withValue(of: key, { DeviceStateBytes.read($0) == nil }) == true else {
                    continue
                }
                withKey(key) { rocksdb_writebatch_delete_cf(batch, family.handle, $0, $1) }
            }
            // The next scan finds what a failure leaves.
            try isChangelogBacked ? family.database.writeUnlogged(batch) : family.database.write(batch)
        }
    }

    fileprivate static let keysPerIterator = 1 << 18
}

extension ColumnFamily {
    fileprivate func scanSuspended(
        _ topic: UInt32?, without stopped: Set<UInt32>, after: DueCursor?, limit: Int, keys: Int
    ) throws(RetryStoreError) -> SuspendedScan {
        let iterator = StoreIterator(self, .total, isOnce: true)
        seek(iterator, after: after)
        var scan = SuspendedScan(entries: [], cursor: after, isEnd: false)
        var left = keys
        while iterator.isValid, left > 0, scan.entries.count < limit {
            let entry = try dueEntry(iterator)
            if let suspended = SuspendedBytes(iterator.value)?.topic,
                topic.map({ $0 == suspended }) ?? !stopped.contains(suspended)
            {
                scan.entries.append(SuspendedEntry(entry: entry, topic: suspended))
            }
            scan.cursor = DueCursor(entry)
            left -= 1
            iterator.next()
        }
        try iterator.check()
        scan.isEnd = !iterator.isValid
        return scan
    }
}

extension ColumnFamily {
    /// Reads at most `limit` devices, or until a chunk is full. Returns whether they were the last; otherwise moves
    /// `last` on.
    fileprivate func scan(
        after last: inout DeviceKey?, chunk: Int, limit: Int, into devices: inout [DeviceKey],
        unreadable: (DeviceKey) -> Void = { _ in }, _ counts: (DeviceState) -> Bool
    ) throws(RetryStoreError) -> Bool {
        let iterator = StoreIterator(self, .total, isOnce: true)
        if let last {
            iterator.seek(DeviceKeyBytes(last))
            if iterator.isValid, DeviceKeyBytes(iterator.key)?.device == last { iterator.next() }
        } else {
            iterator.seekToFirst()
        }
        var left = limit
        while iterator.isValid, left > 0, devices.count < chunk {
            left -= 1
            if let device = DeviceKeyBytes(iterator.key)?.device {
                last = device
                if let state = DeviceStateBytes.read(iterator.value) {
                    if counts(state) { devices.append(device) }
                } else {
                    unreadable(device)
                }
            }
            iterator.next()
        }
        try iterator.check()
        return !iterator.isValid
    }
}

extension ColumnFamily {
    /// Passes the items' keys of at most `limit` due entries of a partition. Returns whether they were the last;
    /// otherwise moves the cursor to their end.
    fileprivate func scanKeys(
        after cursor: inout DueCursor?, chunk: Int, limit: Int, snapshot: StoreSnapshot,
        _ each: ([ItemKey]) throws(RetryStoreError) -> Void
    ) throws(RetryStoreError) -> Bool {
        let iterator = StoreIterator(self, .total, snapshot: snapshot.handle, isOnce: true)
        seek(iterator, after: cursor)
        var keys: [ItemKey] = []
        keys.reserveCapacity(chunk)
        var left = limit
        while left > 0, iterator.isValid {
            let entry = try dueEntry(iterator)
            keys.append(entry.key)
            left -= 1
            if keys.count == chunk {
                try each(keys)
                keys.removeAll(keepingCapacity: true)
            }
            if left == 0 { cursor = DueCursor(entry) }
            iterator.next()
        }
        try iterator.check()
        let isEnd = !iterator.isValid
        if !keys.isEmpty { try each(keys) }
        return isEnd
    }

    fileprivate func seek(_ iterator: StoreIterator, after: DueCursor?) {
        guard let after else { return iterator.seekToFirst() }
        let key = DueKeyBytes(after.entry)
        iterator.seek(key)
        if iterator.isValid, DueKeyBytes(iterator.key)?.entry == key.entry { iterator.next() }
    }

    fileprivate func dueEntry(_ iterator: StoreIterator) throws(RetryStoreError) -> DueEntry {
        guard let entry = DueKeyBytes(iterator.key)?.entry else {
            throw .corrupt(
                directory: database.directory,
                text: "a key of column family \(name) has an invalid length")
        }
        return entry
    }
}

extension StorePartition {
    /// Reads a part of the due entries, from the cursor on. Removed entries before the cursor aren't stepped over.
    func scanDue(after: DueCursor?, through: Int64, limit: Int) throws(RetryStoreError) -> DueScan {
        var scan = DueScan(entries: [], cursor: after, isEnd: true)
        // No entry has a time before the epoch.
        guard through >= 0, !nextDueCache.isQuiet(after: after, through: through) else { return scan }
        // The bound is a little beyond the window, to find the next due time. A larger bound could meet many removed
        // entries.
        let (end, isEndless) = through.addingReportingOverflow(Self.nextDueCache)
        let iterator =
            if isEndless {
                StoreIterator(due, .total)
            } else {
                withUnsafeBytes(of: DueBytes(end)) { StoreIterator(due, .total, upperBound: $0) }
            }
        due.seek(iterator, after: after)
        var next: Int64?
        while iterator.isValid {
            let entry = try due.dueEntry(iterator)
            guard entry.due <= through, scan.entries.count < limit else {
                next = entry.due
                break
            }
            scan.entries.append(entry)
            iterator.next()
        }
        try iterator.check()
        if let last = scan.entries.last { scan.cursor = DueCursor(last) }
        scan.isEnd = next.map { $0 > through } ?? true
        nextDueCache.found(after: scan.cursor, next: next ?? (isEndless ? .max : end))
        if due.number("rocksdb.num-entries-active-mem-table") > Self.mostUnordered {
            // A later write reports the failure of this flush.
            try? due.flush(waits: false)
        }
        return scan
    }

    /// Milliseconds that a scan reads beyond its window.
    private static let nextDueCache: Int64 = 60_000
    /// Most entries of the memtable that a scan leaves unflushed. The next scan would have to sort them.
    private static let mostUnordered = 8192
}
