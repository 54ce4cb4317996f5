import CRocksDB
import SluiceModel

/// Looks at a store that no worker has open, and changes nothing but RocksDB's info log. What the log has that isn't in
/// the tables yet is seen, too.
///
/// One thread.
public final class StoreInspector {
    public let directory: String
    /// Of all that is in the store.
    public let reader: StoreReader

    let opened: OpenedDatabase

    /// Opens the database for reading.
    public init(directory: String) throws(RetryStoreError) {
        self.directory = directory
        try StoreDirectory(path: directory).check()
        let options = StoreOptions(blockCacheBytes: 32 << 20, memtableBytes: 64 << 20, isReadOnly: true)
        let (database, families) = try Database.open(directory, options: options, readOnly: true)
        opened = try OpenedDatabase(database, families, making: nil)
        reader = StoreReader(opened)
    }
}
