import CRocksDB
import SluiceModel

/// Records of a partition of the changelog on their way into the store, in the order in which the changelog has them. Filled
/// on one thread, then handed over to ``RetryStore/restore(_:completion:)``, and used again.
// Sendable: it has one owner at a time, who fills it; from `restore` to its completion that is the store's thread.
public final class ChangelogChunk: @unchecked Sendable {
    /// A record of an item that may be in the store already: what it replaces has to be looked up.
    private struct Replacement: BitwiseCopyable {
        var key: ItemKey
        /// Of several records of one key the last counts.
        var number: UInt32
        /// Where its value is.
        var start: Int
        /// -1: it is removed.
        var count: Int

        @inline(__always)
        static func precedes(_ left: Self, _ right: Self) -> Bool {
            let (key, other) = (left.key, right.key)
            if key.device.high != other.device.high { return key.device.high < other.device.high }
            if key.device.low != other.device.low { return key.device.low < other.device.low }
            let (offset, next) = (UInt64(bitPattern: key.offset), UInt64(bitPattern: other.offset))
            return offset != next ? offset < next : left.number < right.number
        }
    }

    /// Nil: it is empty, and has no hold on the store.
    private var partition: StorePartition?
    private let hasher: IdentityHasher
    /// Of what needs no look into the store, in the order of the records. Freed in deinit.
    private let writes: OpaquePointer
    private var replacements: [Replacement] = []
    private var values: [UInt8] = []
    /// Of the replacements. Freed in deinit.
    private let replacing: OpaquePointer
    /// Records, of which nothing remains to be done for some.
    public private(set) var count = 0
    /// Of these, about: what they make of the memtables.
    public private(set) var bytes = 0
    /// Records that aren't the changelog's.
    public private(set) var unknown = 0

    /// - Parameter store: to which it belongs.
    public init(of store: RetryStore) {
        hasher = store.hasher
        writes = rocksdb_writebatch_create()
        replacing = rocksdb_writebatch_create()
    }

    deinit {
        rocksdb_writebatch_destroy(writes)
        rocksdb_writebatch_destroy(replacing)
    }

    /// Forgets what it has, and is filled for a partition, or (nil) for none yet. Its memory is kept.
    public func begin(_ partition: StorePartition?) {
        self.partition = partition
        rocksdb_writebatch_clear(writes)
        rocksdb_writebatch_clear(replacing)
        replacements.removeAll(keepingCapacity: true)
        values.removeAll(keepingCapacity: true)
        (count, bytes, unknown) = (0, 0, 0)
    }

    /// - Parameter keys: of all items that were appended for the partition, since it was empty. Nil: it wasn't.
    public func append(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, among keys: inout RestoreFilter?
    ) {
        guard let partition else { preconditionFailure("a chunk is filled for a partition") }
        guard let key = key.flatMap({ ChangelogKey($0) }), value.map({ Self.isValue($0, of: key) }) ?? true
        else {
            unknown += 1
            return
        }
        count += 1
        bytes += ItemKeyBytes.count + DueKeyBytes.count + (value?.count ?? 0)
        switch key {
        case .item(let offset, let token):
            let key = ItemKey(device: hasher.device(token), offset: offset)
            if let value {
                let isNew = keys?.insert(key) ?? false
                if isNew { put(key, value, partition) } else { replace(key, value) }
            } else if keys?.mayContain(key) ?? true {
                replace(key, nil)
            }
        case .mark(let offset):
            write(ItemKeyBytes(RelocationMarkerBytes.key(offset)), value, partition.items, writes)
        case .device(let token):
            writeState(value, token, partition)
        }
    }

    /// With its token, so that the changelog can be made to forget the device.
    private func writeState(
        _ value: UnsafeRawBufferPointer?, _ token: UnsafeRawBufferPointer, _ partition: StorePartition
    ) {
        let key = DeviceKeyBytes(hasher.device(token))
        guard let value, let state = DeviceStateBytes.read(value), DeviceToken.violation(token) != .hex else {
            return write(key, value, partition.devices, writes)
        }
        withUnsafeTemporaryAllocation(
            byteCount: DeviceStateBytes.count(withToken: token), alignment: 1
        ) { bytes in
            DeviceStateBytes.write(state, to: bytes.baseAddress!)
            DeviceStateBytes.addToken(token, to: bytes.baseAddress!)
            write(key, UnsafeRawBufferPointer(bytes), partition.devices, writes)
        }
    }

    private static func isValue(_ value: UnsafeRawBufferPointer, of key: ChangelogKey) -> Bool {
        switch key {
        case .item: value.count > DueBytes.count
        case .device: true
        case .mark(let offset): RelocationMarkerBytes.read(RelocationMarkerBytes.key(offset), value) != nil
        }
    }

    private func put(_ key: ItemKey, _ value: UnsafeRawBufferPointer, _ partition: StorePartition) {
        write(ItemKeyBytes(key), value, partition.items, writes)
        putDue(key, value, partition, in: writes)
    }

    private func replace(_ key: ItemKey, _ value: UnsafeRawBufferPointer?) {
        replacements.append(
            Replacement(
                key: key, number: UInt32(truncatingIfNeeded: replacements.count), start: values.count,
                count: value?.count ?? -1))
        if let value { values.append(contentsOf: value) }
    }

    private func write<Key: BitwiseCopyable>(
        _ key: Key, _ value: UnsafeRawBufferPointer?, _ family: ColumnFamily, _ batch: OpaquePointer
    ) {
        withKey(key) { key, count in
            guard let value else { return rocksdb_writebatch_delete_cf(batch, family.handle, key, count) }
            rocksdb_writebatch_put_cf(
                batch, family.handle, key, count, value.baseAddress?.assumingMemoryBound(to: CChar.self),
                value.count)
        }
    }

    // MARK: Into the store

    /// Nothing is appended any more. In the order of their keys, what is read of the store on the way lies together.
    func sort() { replacements.sort(by: Replacement.precedes) }

    /// Store's thread. What is new comes first: a replacement may be of something that is in the same chunk. Where only that
    /// was written, doing all of it again makes it good: what is new is as it was, and replaced after that.
    func apply() throws(RetryStoreError) {
        guard let partition else { return }
        let database = partition.items.database
        partition.nextDueCache.forget()
        if rocksdb_writebatch_count(writes) > 0 { try database.writeUnlogged(writes) }
        guard !replacements.isEmpty else { return }
        rocksdb_writebatch_clear(replacing)
        for index in replacements.indices {
            let replacement = replacements[index]
            if index + 1 < replacements.count, replacements[index + 1].key == replacement.key { continue }
            try apply(replacement, to: partition)
        }
        try database.writeUnlogged(replacing)
    }

    private func apply(
        _ replacement: Replacement, to partition: StorePartition
    ) throws(RetryStoreError) {
        let key = ItemKeyBytes(replacement.key)
        let old = try partition.items.withValue(of: key) { DueBytes(prefixOf: $0)?.due } ?? nil
        values.withUnsafeBytes { values in
            let value =
                replacement.count < 0
                ? nil
                : UnsafeRawBufferPointer(rebasing: values[replacement.start...].prefix(replacement.count))
            let due = value.flatMap { DueBytes(prefixOf: $0)?.due }
            if let old, old != due { partition.due.removeDue(old, replacement.key, in: replacing) }
            write(key, value, partition.items, replacing)
            if let value { putDue(replacement.key, value, partition, in: replacing) }
        }
    }

    private func putDue(
        _ key: ItemKey, _ value: UnsafeRawBufferPointer, _ partition: StorePartition, in batch: OpaquePointer
    ) {
        guard let due = DueBytes(prefixOf: value)?.due else { return }
        let push = UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
        partition.due.putDue(due, key, StoredPush.parkedTopic(of: push), in: batch)
    }
}
