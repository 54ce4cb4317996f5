import CRocksDB

/// Key of a partition's need of a purge in the default column family. The value is the time of the first removal that no
/// purge covers, in milliseconds since the epoch, big-endian.
struct PurgeKey {
    private let bytes: [UInt8]

    init(_ partition: Int32) { bytes = Array("purge-\(partition)".utf8) }

    /// Returns the time of the need; nil: the partition needs no purge. A value of another length is a need since ever.
    func since(in family: ColumnFamily) throws(RetryStoreError) -> Int64? {
        let value: [UInt8]? = try bytes.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { Array($0) } }
        }.get()
        guard let value else { return nil }
        guard value.count == 8 else { return 0 }
        return max(0, value.withUnsafeBytes { Int64(bigEndian: $0.loadUnaligned(as: Int64.self)) })
    }

    /// Adds the need to a batch.
    func put(_ since: Int64, _ family: ColumnFamily, in batch: OpaquePointer) {
        bytes.withUnsafeBytes { key in
            withUnsafeBytes(of: since.bigEndian) { value in
                rocksdb_writebatch_put_cf(
                    batch, family.handle, key.baseAddress!.assumingMemoryBound(to: CChar.self), key.count,
                    value.baseAddress!.assumingMemoryBound(to: CChar.self), value.count)
            }
        }
    }

    /// Removes the need. After a crash the need can return, which costs a further purge.
    func remove(from family: ColumnFamily, isLogged: Bool) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        bytes.withUnsafeBytes { key in
            rocksdb_writebatch_delete_cf(
                batch, family.handle, key.baseAddress!.assumingMemoryBound(to: CChar.self), key.count)
        }
        if isLogged {
            try family.database.write(batch)
        } else {
            try family.database.writeUnlogged(batch)
        }
    }
}
