import CRocksDB
import CRocksDBExtras
import EventLoop
import SluiceModel

/// Metadata of the database, kept in the default column family.
struct StoreMeta {
    /// Format version of keys and values, in decimal digits. A database with another version isn't changed.
    static let version = "1"

    var hasher: (UInt64, UInt64)
    /// Name of the jobs topic of the database's pushes.
    var topic: String

    static func random(topic: String) -> StoreMeta {
        var generator = ProcessRandom()
        return StoreMeta(hasher: (generator.next(), generator.next()), topic: topic)
    }

    private enum Key: String {
        case format, hasher, topic
    }

    /// Reads the metadata; nil for a database that has none yet.
    static func read(from family: ColumnFamily) throws(RetryStoreError) -> StoreMeta? {
        let directory = family.database.directory
        guard let found = try value(.format, family) else { return nil }
        let format = String(decoding: found, as: UTF8.self)
        guard format == version else {
            // A text that isn't a version number isn't repeated in the error.
            let isNumber = !format.isEmpty && format.utf8.count < 10 && format.allSatisfy(\.isNumber)
            throw .format(directory: directory, found: isNumber ? format : "of an unknown kind")
        }
        guard let keys = try value(.hasher, family), keys.count == 16, let topic = try value(.topic, family)
        else {
            throw .corrupt(directory: directory, text: "its topic is not recorded")
        }
        return keys.withUnsafeBytes { keys in
            StoreMeta(
                hasher: (
                    UInt64(bigEndian: keys.loadUnaligned(as: UInt64.self)),
                    UInt64(bigEndian: keys.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
                ), topic: String(decoding: topic, as: UTF8.self))
        }
    }

    /// Writes all metadata at once; it is on the disk when this returns.
    func write(to family: ColumnFamily) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        let keys = [hasher.0.bigEndian, hasher.1.bigEndian].withUnsafeBytes { Array($0) }
        for (key, value) in [
            (Key.format, Array(Self.version.utf8)), (.hasher, keys), (.topic, Array(topic.utf8)),
        ] {
            value.withUnsafeBytes { value in
                rocksdb_writebatch_put_cf(
                    batch, family.handle, key.rawValue, key.rawValue.utf8.count,
                    value.baseAddress?.assumingMemoryBound(to: CChar.self), value.count)
            }
        }
        try family.database.writeSynced(batch)
    }

    private static func value(_ key: Key, _ family: ColumnFamily) throws(RetryStoreError) -> [UInt8]? {
        let key = Array(key.rawValue.utf8)
        return try key.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { Array($0) } }
        }.get()
    }
}

extension RetryStore {
    /// Format of the database's keys and values; a database of another format is refused.
    public static var formatVersion: String { StoreMeta.version }
    /// Formats of a device's state that this version reads, lowest and highest.
    public static var deviceFormats: ClosedRange<UInt8> { 1...DeviceStateBytes.versionWithSealedToken }
    /// Version of the RocksDB that is loaded.
    public static var libraryVersion: String { String(cString: sluice_rocksdb_version()) }
    /// Format of the marks of moved pushes.
    public static var markFormat: UInt8 { RelocationMarkBytes.version }
}

extension ColumnFamily {
    /// Writes without an effect: the write removes a key that doesn't exist.
    func probe(isLogged: Bool) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        rocksdb_writebatch_delete_cf(batch, handle, "probe", 5)
        if isLogged { try database.write(batch) } else { try database.writeUnlogged(batch) }
    }
}
