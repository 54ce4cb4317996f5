import CRocksDB

/// The open database. It is closed with the release of its last column family.
final class Database: Sendable {
    let directory: String
    let options: StoreOptions
    // nonisolated(unsafe): a RocksDB database is thread-safe; set once, closed in deinit.
    nonisolated(unsafe) let handle: OpaquePointer
    // nonisolated(unsafe): options for all reads that need no others; never changed, freed in deinit.
    nonisolated(unsafe) let read: OpaquePointer
    // nonisolated(unsafe): as above.
    nonisolated(unsafe) private let write: OpaquePointer
    // nonisolated(unsafe): as above.
    nonisolated(unsafe) private let writeSynced: OpaquePointer
    // nonisolated(unsafe): as above.
    nonisolated(unsafe) private let writeUnlogged: OpaquePointer

    /// Takes over the handle.
    init(handle: OpaquePointer, directory: String, options: StoreOptions) {
        self.handle = handle
        self.directory = directory
        self.options = options
        read = rocksdb_readoptions_create()
        write = rocksdb_writeoptions_create()
        // A batch may still hold writes to a dropped partition. Its writes to other partitions count.
        rocksdb_writeoptions_set_ignore_missing_column_families(write, 1)
        writeSynced = rocksdb_writeoptions_create()
        rocksdb_writeoptions_set_sync(writeSynced, 1)
        writeUnlogged = rocksdb_writeoptions_create()
        rocksdb_writeoptions_set_ignore_missing_column_families(writeUnlogged, 1)
        rocksdb_writeoptions_disable_WAL(writeUnlogged, 1)
    }

    deinit {
        rocksdb_writeoptions_destroy(write)
        rocksdb_writeoptions_destroy(writeSynced)
        rocksdb_writeoptions_destroy(writeUnlogged)
        rocksdb_readoptions_destroy(read)
        rocksdb_close(handle)
    }

    /// Calls a function of RocksDB that reports a failure by its last argument.
    @inline(__always)
    func call<Value>(
        _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Value
    ) throws(RetryStoreError) -> Value {
        do throws(RocksFailure) {
            return try rocks(body)
        } catch {
            throw error.error(in: directory)
        }
    }

    /// Writes all of a batch or nothing into the log, which reaches the system but not yet the disk.
    func write(_ batch: OpaquePointer) throws(RetryStoreError) {
        try call { rocksdb_write(handle, write, batch, $0) }
    }

    /// Writes all of a batch or nothing; the batch is on the disk when this returns.
    func writeSynced(_ batch: OpaquePointer) throws(RetryStoreError) {
        try call { rocksdb_write(handle, writeSynced, batch, $0) }
    }

    /// Writes all of a batch or nothing to memory alone. The batch outlives the process only after its column families
    /// are flushed.
    func writeUnlogged(_ batch: OpaquePointer) throws(RetryStoreError) {
        try call { rocksdb_write(handle, writeUnlogged, batch, $0) }
    }
}

/// A column family of an open database.
final class ColumnFamily: Sendable {
    let database: Database
    let name: String
    // nonisolated(unsafe): a handle is constant; set once, freed in deinit, before the database is closed.
    nonisolated(unsafe) let handle: OpaquePointer

    /// Takes over the handle.
    init(handle: OpaquePointer, name: String, database: Database) {
        self.handle = handle
        self.name = name
        self.database = database
    }

    deinit { rocksdb_column_family_handle_destroy(handle) }

    /// Returns a numeric property of RocksDB; 0 where the property isn't known.
    func number(_ property: String) -> Int {
        var value: UInt64 = 0
        guard rocksdb_property_int_cf(database.handle, handle, property, &value) == 0 else { return 0 }
        return Int(clamping: value)
    }

    /// Passes the value of a key to `body`; returns nil when the key has no value.
    func withValue<Key: BitwiseCopyable, Result>(
        of key: Key, _ body: (UnsafeRawBufferPointer) -> Result
    ) throws(RetryStoreError) -> Result? {
        try withKey(key) { (start, count) throws(RetryStoreError) in
            try withValue(of: UnsafeRawBufferPointer(start: start, count: count), body)
        }
    }

    func withValue<Result>(
        of key: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Result
    ) throws(RetryStoreError) -> Result? {
        let start = key.baseAddress?.assumingMemoryBound(to: CChar.self)
        let found = try database.call {
            rocksdb_get_pinned_cf(database.handle, database.read, handle, start, key.count, $0)
        }
        guard let found else { return nil }
        defer { rocksdb_pinnableslice_destroy(found) }
        var count = 0
        let value = rocksdb_pinnableslice_value(found, &count)
        return body(UnsafeRawBufferPointer(start: value, count: count))
    }

    /// Flushes the memtable, or (without waiting) starts the flush on a thread of RocksDB's.
    func flush(waits: Bool = true) throws(RetryStoreError) {
        let options: OpaquePointer = rocksdb_flushoptions_create()
        defer { rocksdb_flushoptions_destroy(options) }
        rocksdb_flushoptions_set_wait(options, waits ? 1 : 0)
        try database.call { rocksdb_flush_cf(database.handle, options, handle, $0) }
    }
}
