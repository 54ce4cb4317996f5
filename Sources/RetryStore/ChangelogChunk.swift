import CRocksDB
import SluiceModel

/// Records of the changelog on their way into the store. Filled on one thread, then handed over.
public struct ChangelogChunk: Sendable {
    private enum Subject: Hashable {
        case item(ItemKey)
        case device(DeviceKey)
        /// By the offset of its record.
        case mark(Int64)
    }

    private struct Entry {
        var subject: Subject
        /// Nil: it is removed.
        var value: Range<Int>?
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
        let subject: Subject =
            switch key {
            case .item(let offset, let token): .item(ItemKey(device: hasher.device(token), offset: offset))
            case .device(let token): .device(hasher.device(token))
            case .mark(let offset): .mark(offset)
            }
        if let value, !Self.isValue(value, of: subject) {
            unknown += 1
            return
        }
        let start = values.count
        if let value { values.append(contentsOf: value) }
        entries.append(Entry(subject: subject, value: value.map { start..<start + $0.count }))
    }

    private static func isValue(_ value: UnsafeRawBufferPointer, of subject: Subject) -> Bool {
        switch subject {
        case .item: value.count > DueBytes.count
        case .device: true
        case .mark(let offset): StoreMarkBytes.read(StoreMarkBytes.key(offset), value) != nil
        }
    }

    // MARK: Into the store

    func apply(to partition: StorePartition) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        // Of several records of one key the last counts.
        var last: [Subject: Int] = [:]
        last.reserveCapacity(entries.count)
        for index in entries.indices { last[entries[index].subject] = index }
        for index in entries.indices where last[entries[index].subject] == index {
            switch entries[index].subject {
            case .item(let key): try put(key, entries[index].value, partition, batch)
            case .device(let key): put(key, entries[index].value, partition, batch)
            case .mark(let offset):
                withKey(ItemKeyBytes(StoreMarkBytes.key(offset))) {
                    write(entries[index].value, $0, $1, partition.items, batch)
                }
            }
        }
        try partition.items.database.writeUnlogged(batch)
    }

    private func put(
        _ key: ItemKey, _ range: Range<Int>?, _ partition: StorePartition, _ batch: OpaquePointer
    ) throws(RetryStoreError) {
        let due = range.flatMap { range in
            values.withUnsafeBytes { DueBytes(prefixOf: UnsafeRawBufferPointer(rebasing: $0[range]))?.due }
        }
        let old = try partition.items.withValue(of: ItemKeyBytes(key)) { DueBytes(prefixOf: $0)?.due }
        if let old, let old, old != due {
            withKey(DueKeyBytes(due: old, key)) {
                rocksdb_writebatch_delete_cf(batch, partition.due.handle, $0, $1)
            }
        }
        withKey(ItemKeyBytes(key)) { write(range, $0, $1, partition.items, batch) }
        guard let due else { return }
        withKey(DueKeyBytes(due: due, key)) {
            rocksdb_writebatch_put_cf(batch, partition.due.handle, $0, $1, nil, 0)
        }
    }

    private func put(
        _ device: DeviceKey, _ range: Range<Int>?, _ partition: StorePartition, _ batch: OpaquePointer
    ) {
        withKey(DeviceKeyBytes(device)) { write(range, $0, $1, partition.devices, batch) }
    }

    private func write(
        _ range: Range<Int>?, _ key: UnsafePointer<CChar>, _ count: Int, _ family: ColumnFamily,
        _ batch: OpaquePointer
    ) {
        guard let range else { return rocksdb_writebatch_delete_cf(batch, family.handle, key, count) }
        values.withUnsafeBytes { values in
            let value = values[range]
            rocksdb_writebatch_put_cf(
                batch, family.handle, key, count,
                UnsafeRawBufferPointer(rebasing: value).baseAddress?.assumingMemoryBound(to: CChar.self),
                value.count)
        }
    }
}
