import CRocksDB
import SluiceModel

/// Marks a job's record whose push is or was stored under another device token than the record names. The token differs
/// because the device got a new one. A repeated read of the record would not find the push, and would process it twice.
///
/// Marks are identified by the partition and offset of the record. They are needed until the record is committed.
public struct RelocationMark: Hashable, Sendable {
    /// Offset of the push's Kafka record.
    public var offset: Int64
    /// The push's `apns-id`. It excludes a push at the same offset of a recreated topic.
    public var apnsID: APNSID

    public init(offset: Int64, apnsID: APNSID) {
        self.offset = offset
        self.apnsID = apnsID
    }
}

extension StoreBatch {
    /// Writes a mark.
    public mutating func put(_ partition: StorePartition, _ mark: RelocationMark) {
        put(
            partition.items, ItemKeyBytes(RelocationMarkBytes.key(mark.offset)),
            count: RelocationMarkBytes.count
        ) {
            RelocationMarkBytes.write(mark, to: $0)
        }
    }

    /// Removes the mark of a record. Does nothing when there is none.
    public mutating func removeMark(_ partition: StorePartition, offset: Int64) {
        withKey(ItemKeyBytes(RelocationMarkBytes.key(offset))) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.items.handle, key, count)
        }
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count
    }
}

extension RetryStore {
    /// Loads all marks of a partition, by offset. They are few after a crash, because marks of committed records are
    /// removed.
    public func loadMarks(
        of partition: StorePartition,
        completion: @escaping @Sendable (Result<[RelocationMark], RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { () throws(RetryStoreError) in
            var marks: [RelocationMark] = []
            try partition.items.visitMarks { mark, _ in
                if let mark { marks.append(mark) }
                return true
            }
            return marks
        }
    }
}

extension ColumnFamily {
    /// Visits the marks among a partition's items, by offset, until `visit` returns false. Unreadable marks are visited
    /// as nil.
    func visitMarks(_ visit: (RelocationMark?, ItemKey) -> Bool) throws(RetryStoreError) {
        let iterator = StoreIterator(self, .prefix)
        iterator.seek(DeviceKeyBytes(RelocationMarkBytes.device))
        while iterator.isValid {
            guard let key = ItemKeyBytes(iterator.key)?.key, RelocationMarkBytes.isKey(key) else { break }
            guard visit(RelocationMarkBytes.read(key, iterator.value), key) else { return }
            iterator.next()
        }
        try iterator.check()
    }
}

/// A mark's bytes in the database and in the changelog. In `items-<p>` marks are the items of device key 0. Versions
/// without marks never look for that key, so the database's format is unchanged.
enum RelocationMarkBytes {
    static let version: UInt8 = 1
    static let count = 17
    static let device = DeviceKey(high: 0, low: 0)

    static func key(_ offset: Int64) -> ItemKey { ItemKey(device: device, offset: offset) }

    static func isKey(_ key: ItemKey) -> Bool { key.device == device }

    static func write(_ mark: RelocationMark, to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: version, as: UInt8.self)
        target.storeBytes(of: mark.apnsID.high.bigEndian, toByteOffset: 1, as: UInt64.self)
        target.storeBytes(of: mark.apnsID.low.bigEndian, toByteOffset: 9, as: UInt64.self)
    }

    /// Parses a mark; nil for bytes that aren't a mark.
    static func read(_ key: ItemKey, _ value: UnsafeRawBufferPointer) -> RelocationMark? {
        guard value.count == count, value[0] == version else { return nil }
        return RelocationMark(
            offset: key.offset,
            apnsID: APNSID(
                high: UInt64(bigEndian: value.loadUnaligned(fromByteOffset: 1, as: UInt64.self)),
                low: UInt64(bigEndian: value.loadUnaligned(fromByteOffset: 9, as: UInt64.self))))
    }
}
