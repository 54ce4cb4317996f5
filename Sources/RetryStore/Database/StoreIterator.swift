import CRocksDB

/// A cursor over a column family in its state when the cursor was made. For use on one thread.
final class StoreIterator {
    enum Order {
        /// All keys.
        case total
        /// A single prefix after each seek, found by the filters.
        case prefix
    }

    let family: ColumnFamily
    private let handle: OpaquePointer
    private let options: OpaquePointer
    /// Owned here, because RocksDB doesn't copy the bound.
    private var upperBound: UnsafeMutableRawBufferPointer?

    /// - Parameters:
    ///   - upperBound: the first key that isn't wanted; nil: there is no bound.
    ///   - snapshot: a state of the database that the caller keeps; nil: the current state.
    ///   - isOnce: true when the entries aren't likely to be read again soon.
    init(
        _ family: ColumnFamily, _ order: Order, upperBound: UnsafeRawBufferPointer? = nil,
        snapshot: OpaquePointer? = nil, isOnce: Bool = false
    ) {
        self.family = family
        options = rocksdb_readoptions_create()
        switch order {
        case .total: rocksdb_readoptions_set_total_order_seek(options, 1)
        case .prefix: rocksdb_readoptions_set_prefix_same_as_start(options, 1)
        }
        if let upperBound {
            let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: upperBound.count, alignment: 8)
            copy.copyMemory(from: upperBound)
            self.upperBound = copy
            rocksdb_readoptions_set_iterate_upper_bound(
                options, copy.baseAddress?.assumingMemoryBound(to: CChar.self), copy.count)
        }
        if let snapshot { rocksdb_readoptions_set_snapshot(options, snapshot) }
        if isOnce {
            rocksdb_readoptions_set_fill_cache(options, 0)
            // Read-ahead of each file in the scan, small because there are dozens of files.
            rocksdb_readoptions_set_readahead_size(options, 128 << 10)
        }
        handle = rocksdb_create_iterator_cf(family.database.handle, options, family.handle)
    }

    deinit {
        rocksdb_iter_destroy(handle)
        rocksdb_readoptions_destroy(options)
        upperBound?.deallocate()
    }

    /// True at an entry. After false, ``check()`` reports a failure.
    var isValid: Bool { rocksdb_iter_valid(handle) != 0 }

    func seekToFirst() { rocksdb_iter_seek_to_first(handle) }

    /// Moves to the first entry that isn't before the key.
    func seek<Key: BitwiseCopyable>(_ key: Key) { withKey(key) { rocksdb_iter_seek(handle, $0, $1) } }

    func next() { rocksdb_iter_next(handle) }

    /// Key of the entry, valid until the next move.
    var key: UnsafeRawBufferPointer {
        var count = 0
        let start = rocksdb_iter_key(handle, &count)
        return UnsafeRawBufferPointer(start: start, count: count)
    }

    /// Value of the entry, valid until the next move.
    var value: UnsafeRawBufferPointer {
        var count = 0
        let start = rocksdb_iter_value(handle, &count)
        return UnsafeRawBufferPointer(start: start, count: count)
    }

    /// Throws when a failure ended the iteration; returns at the real end.
    func check() throws(RetryStoreError) {
        try family.database.call { rocksdb_iter_get_error(handle, $0) }
    }
}

/// The state of a database at a moment, released in deinit.
final class StoreSnapshot {
    private let database: Database
    let handle: OpaquePointer

    init(_ database: Database) {
        self.database = database
        handle = rocksdb_create_snapshot(database.handle)
    }

    deinit { rocksdb_release_snapshot(database.handle, handle) }
}
