import CRocksDB
import SluiceModel

/// Records of the changelog on their way into the store. Filled on one thread, then handed over.
public struct ChangelogChunk: Sendable {
    private struct Entry: BitwiseCopyable {
        /// Of a mark: that of the store. The offset doesn't matter for a device.
        var key: ItemKey
        var isDevice: Bool
        /// Of several records of one key the last counts.
        var number: UInt32
        /// Where its value is.
        var start: Int
        /// -1: it is removed.
        var count: Int

        @inline(__always)
        static func precedes(_ left: Entry, _ right: Entry) -> Bool {
            let (key, other) = (left.key, right.key)
            if key.device.high != other.device.high { return key.device.high < other.device.high }
            if key.device.low != other.device.low { return key.device.low < other.device.low }
            if left.isDevice != right.isDevice { return right.isDevice }
            let (offset, next) = (UInt64(bitPattern: key.offset), UInt64(bitPattern: other.offset))
            return offset != next ? offset < next : left.number < right.number
        }
    }

    private var entries: [Entry] = []
    private var values: [UInt8] = []
    /// Records that aren't the changelog's.
    public private(set) var unknown = 0
    private let hasher: IdentityHasher

    /// - Parameter hasher: the store's.
    public init(hasher: IdentityHasher) { self.hasher = hasher }

    public var count: Int { entries.count }
    public var bytes: Int { values.count }

    public mutating func append(key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?) {
        guard let key = key.flatMap({ ChangelogKey($0) }) else {
            unknown += 1
            return
        }
        let subject: ItemKey
        var isDevice = false
        switch key {
        case .item(let offset, let token): subject = ItemKey(device: hasher.device(token), offset: offset)
        case .mark(let offset): subject = StoreMarkBytes.key(offset)
        case .device(let token):
            subject = ItemKey(device: hasher.device(token), offset: 0)
            isDevice = true
        }
        if let value, !Self.isValue(value, of: key) {
            unknown += 1
            return
        }
        entries.append(
            Entry(
                key: subject, isDevice: isDevice, number: UInt32(truncatingIfNeeded: entries.count),
                start: values.count, count: value?.count ?? -1))
        if let value { values.append(contentsOf: value) }
    }

    private static func isValue(_ value: UnsafeRawBufferPointer, of key: ChangelogKey) -> Bool {
        switch key {
        case .item: value.count > DueBytes.count
        case .device: true
        case .mark(let offset): StoreMarkBytes.read(StoreMarkBytes.key(offset), value) != nil
        }
    }

    // MARK: Into the store

    /// Nothing is appended any more. In the order of their keys, what is read of the store on the way lies together.
    mutating func sort() { entries.sort(by: Entry.precedes) }

    func apply(to partition: StorePartition) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        for index in entries.indices {
            let entry = entries[index]
            if index + 1 < entries.count, entries[index + 1].key == entry.key,
                entries[index + 1].isDevice == entry.isDevice
            {
                continue
            }
            if entry.isDevice {
                withKey(DeviceKeyBytes(entry.key.device)) { write(entry, $0, $1, partition.devices, batch) }
            } else if StoreMarkBytes.isKey(entry.key) {
                withKey(ItemKeyBytes(entry.key)) { write(entry, $0, $1, partition.items, batch) }
            } else {
                try put(entry, partition, batch)
            }
        }
        partition.outlook.forget()
        try partition.items.database.writeUnlogged(batch)
    }

    private func put(
        _ entry: Entry, _ partition: StorePartition, _ batch: OpaquePointer
    ) throws(RetryStoreError) {
        let key = ItemKeyBytes(entry.key)
        let old = try partition.items.withValue(of: key) { DueBytes(prefixOf: $0)?.due } ?? nil
        let due =
            entry.count < 0
            ? nil
            : values.withUnsafeBytes {
                DueBytes(prefixOf: UnsafeRawBufferPointer(rebasing: $0[entry.start...]))?.due
            }
        if let old, old != due { partition.due.removeDue(old, entry.key, in: batch) }
        withKey(key) { write(entry, $0, $1, partition.items, batch) }
        if let due { partition.due.putDue(due, entry.key, in: batch) }
    }

    private func write(
        _ entry: Entry, _ key: UnsafePointer<CChar>, _ count: Int, _ family: ColumnFamily,
        _ batch: OpaquePointer
    ) {
        guard entry.count >= 0 else {
            return rocksdb_writebatch_delete_cf(batch, family.handle, key, count)
        }
        values.withUnsafeBytes { values in
            rocksdb_writebatch_put_cf(
                batch, family.handle, key, count,
                values.baseAddress.map {
                    ($0 + entry.start).assumingMemoryBound(to: CChar.self)
                }, entry.count)
        }
    }
}
