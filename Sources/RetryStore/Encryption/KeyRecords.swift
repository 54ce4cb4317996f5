import CRocksDB
import StoreEncryption

/// Names and checks of the keys under which the database may have values, in the default column family. A key is
/// recorded before its first value is written.
///
/// The record has for each key: the length of the name (1 byte), the name, the check (8 bytes, big-endian).
struct KeyRecords: Equatable {
    /// Checks by name.
    var checks: [String: UInt64] = [:]

    private static let key = Array("keys".utf8)

    init() {}

    init(_ keys: [StoreKey]) { for key in keys { checks[key.name] = key.check } }

    static func read(from family: ColumnFamily) throws(RetryStoreError) -> KeyRecords {
        let found = try key.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { KeyRecords($0) } }
        }.get()
        switch found {
        case nil: return KeyRecords()
        case .some(nil):
            throw .corrupt(directory: family.database.directory, text: "the record of its keys can't be read")
        case .some(let records?): return records
        }
    }

    /// Parses a record; nil for other bytes.
    private init?(_ bytes: UnsafeRawBufferPointer) {
        var index = 0
        while index < bytes.count {
            let end = index + 1 + Int(bytes[index])
            guard end + 8 <= bytes.count else { return nil }
            let name = String(decoding: bytes[(index + 1)..<end], as: UTF8.self)
            checks[name] = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: end, as: UInt64.self))
            index = end + 8
        }
    }

    /// Writes the record; it is on the disk when this returns.
    func write(to family: ColumnFamily) throws(RetryStoreError) {
        var value: [UInt8] = []
        for (name, check) in checks.sorted(by: { $0.key < $1.key }) {
            value.append(UInt8(name.utf8.count))
            value += name.utf8
            value += withUnsafeBytes(of: check.bigEndian) { Array($0) }
        }
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        Self.key.withUnsafeBytes { key in
            value.withUnsafeBytes {
                rocksdb_writebatch_put_cf(
                    batch, family.handle, key.baseAddress!.assumingMemoryBound(to: CChar.self), key.count,
                    $0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
            }
        }
        try family.database.writeSynced(batch)
    }
}

extension OpenedDatabase {
    /// Checks that all values can be read with these keys, and records the keys.
    ///
    /// The values are searched only when a recorded key is missing or has other bytes. A key that no value needs is
    /// then forgotten. A changelog's copy with a value whose key is missing loses its position, so that it is emptied and
    /// restored when its partition is taken over. The copy may be of a partition that was given up long ago, and the
    /// changelog alone has the values that are still needed.
    /// - Parameter keyring: nil: encryption is off.
    /// - Returns: partitions whose copies lost their positions, in order.
    /// - Throws: ``RetryStoreError/key(directory:partition:_:)`` for a value whose key is missing, unless it is in a copy.
    func check(_ keyring: StoreKeyring?, areCopies: Bool) throws(RetryStoreError) -> [Int32] {
        let recorded = try KeyRecords.read(from: metaFamily)
        let wanted = KeyRecords(keyring?.keys ?? [])
        guard recorded != wanted else { return [] }
        var unreadable: [Int32] = []
        if recorded.checks.contains(where: { wanted.checks[$0.key] != $0.value }) {
            for partition in partitions.values.sorted(by: { $0.number < $1.number }) {
                if areCopies, try PositionKey(partition.number).value(in: metaFamily) == nil { continue }
                do throws(RetryStoreError) {
                    try partition.checkKeys(keyring)
                } catch {
                    switch error {
                    case .key(_, _, .unknownKey), .key(_, _, .noKeys): if !areCopies { throw error }
                    // A key that has changed under its name would encrypt values that no other worker reads.
                    default: throw error
                    }
                    unreadable.append(partition.number)
                }
            }
        }
        try PositionKey.remove(unreadable, from: metaFamily)
        try wanted.write(to: metaFamily)
        return unreadable
    }
}

extension StorePartition {
    /// Looks for a value whose key is missing or has other bytes. Reads the whole partition.
    fileprivate func checkKeys(_ keyring: StoreKeyring?) throws(RetryStoreError) {
        for family in [items, devices] {
            let iterator = StoreIterator(family, .total, isOnce: true)
            iterator.seekToFirst()
            while iterator.isValid {
                let sealed =
                    family === items
                    ? StoredBytes.sealedPush(iterator.value) : DeviceStateBytes.sealedToken(iterator.value)
                if let sealed, let fault = SealedValue.fault(of: sealed, with: keyring), fault.isOfKey {
                    throw .key(directory: family.database.directory, partition: number, fault)
                }
                iterator.next()
            }
            try iterator.check()
        }
    }
}

/// The value of `items-<p>`: a due time, and a push.
enum StoredBytes {
    /// Returns the push of a value if it is encrypted; nil for any other value.
    static func sealedPush(_ value: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        guard value.count > DueBytes.count, value[DueBytes.count] == SealedValue.version else { return nil }
        return UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
    }
}

extension RetryStore {
    /// Present keys; nil: encryption is off.
    public var keyring: StoreKeyring? { keys.withLock { $0 } }

    /// Takes keys over, which must include all keys before. Records them first: the record is on the disk when this
    /// returns, and values may then be written under the new keys. Any thread but a loop's.
    public func use(_ keyring: StoreKeyring) throws(RetryStoreError) {
        try KeyRecords(keyring.keys).write(to: metaFamily())
        keys.withLock { $0 = keyring }
    }
}
