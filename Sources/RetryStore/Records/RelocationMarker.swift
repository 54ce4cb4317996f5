import CRocksDB
import SluiceModel

/// Says of a job's record that its push is in the store, or was and has ended, under another device token than the
/// record names: its device got a new one. Whoever reads the record again would look for it in vain, and do it twice.
///
/// Marks are known by the partition and offset of the record. They are needed until that is committed.
public struct RelocationMarker: Hashable, Sendable {
    /// Of the push's Kafka record.
    public var offset: Int64
    /// Of the push: another one at the same offset, of a topic that was made anew, isn't meant.
    public var apnsID: APNSID

    public init(offset: Int64, apnsID: APNSID) {
        self.offset = offset
        self.apnsID = apnsID
    }
}

extension StoreBatch {
    /// Keeps a mark.
    public mutating func put(_ partition: StorePartition, _ mark: RelocationMarker) {
        put(
            partition.items, ItemKeyBytes(RelocationMarkerBytes.key(mark.offset)),
            count: RelocationMarkerBytes.count
        ) {
            RelocationMarkerBytes.write(mark, to: $0)
        }
    }

    /// Removes the mark of a record. Nothing happens when there is none.
    public mutating func removeMark(_ partition: StorePartition, offset: Int64) {
        withKey(ItemKeyBytes(RelocationMarkerBytes.key(offset))) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.items.handle, key, count)
        }
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count
    }
}

extension RetryStore {
    /// All marks of a partition, by offset: after a crash few, as those of committed records go.
    public func loadMarks(
        of partition: StorePartition,
        completion: @escaping @Sendable (Result<[RelocationMarker], RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { () throws(RetryStoreError) in
            var marks: [RelocationMarker] = []
            try partition.items.visitMarks { mark, _ in
                if let mark { marks.append(mark) }
                return true
            }
            return marks
        }
    }
}

extension ColumnFamily {
    /// Visits the marks among a partition's items, by offset, until `visit` returns false; with nil what should be one
    /// and isn't.
    func visitMarks(_ visit: (RelocationMarker?, ItemKey) -> Bool) throws(RetryStoreError) {
        let iterator = StoreIterator(self, .prefix)
        iterator.seek(DeviceKeyBytes(RelocationMarkerBytes.device))
        while iterator.isValid {
            guard let key = ItemKeyBytes(iterator.key)?.key, RelocationMarkerBytes.isKey(key) else { break }
            guard visit(RelocationMarkerBytes.read(key, iterator.value), key) else { return }
            iterator.next()
        }
        try iterator.check()
    }
}

/// A mark as the database and the changelog have it. In `items-<p>` marks are the items of device key 0, which a version
/// that knows nothing of them never looks for: so the database's format is what it was.
enum RelocationMarkerBytes {
    static let version: UInt8 = 1
    static let count = 17
    static let device = DeviceKey(high: 0, low: 0)

    static func key(_ offset: Int64) -> ItemKey { ItemKey(device: device, offset: offset) }

    static func isKey(_ key: ItemKey) -> Bool { key.device == device }

    static func write(_ mark: RelocationMarker, to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: version, as: UInt8.self)
        target.storeBytes(of: mark.apnsID.high.bigEndian, toByteOffset: 1, as: UInt64.self)
        target.storeBytes(of: mark.apnsID.low.bigEndian, toByteOffset: 9, as: UInt64.self)
    }

    /// Nil for what isn't one.
    static func read(_ key: ItemKey, _ value: UnsafeRawBufferPointer) -> RelocationMarker? {
        guard value.count == count, value[0] == version else { return nil }
        return RelocationMarker(
            offset: key.offset,
            apnsID: APNSID(
                high: UInt64(bigEndian: value.loadUnaligned(fromByteOffset: 1, as: UInt64.self)),
                low: UInt64(bigEndian: value.loadUnaligned(fromByteOffset: 9, as: UInt64.self))))
    }
}
