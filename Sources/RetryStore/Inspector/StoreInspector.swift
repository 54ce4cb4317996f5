import CRocksDB
import SluiceModel
import StoreEncryption

/// Reads a store that no worker has open, and changes nothing but RocksDB's info log. Logged changes that aren't in the
/// tables yet are visible, too.
///
/// For use on one thread.
public final class StoreInspector {
    /// Directory of the database.
    public let directory: String
    /// Reader of the whole store.
    public let reader: StoreReader

    let opened: OpenedDatabase

    /// Opens the database for reading.
    /// - Parameter keyring: keys of encrypted values; nil: such values stay unread.
    public init(directory: String, keyring: StoreKeyring? = nil) throws(RetryStoreError) {
        self.directory = directory
        try StoreDirectory(path: directory).check()
        let options = StoreOptions(blockCacheBytes: 32 << 20, memtableBytes: 64 << 20, isReadOnly: true)
        let (database, families) = try Database.open(directory, options: options, readOnly: true)
        opened = try OpenedDatabase(database, families, making: nil)
        reader = try StoreReader(opened, keyring)
    }
}
