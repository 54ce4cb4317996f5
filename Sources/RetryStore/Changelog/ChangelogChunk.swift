import CRocksDB
import SluiceModel
import StoreEncryption

/// Records of a partition of the changelog on their way into the store, in the order of the changelog. A chunk is
/// filled on one thread, passed to ``RetryStore/restore(_:completion:)``, and then reused.
// Sendable: the chunk has one owner at a time, which fills it. From `restore` to its completion the owner is the
// store's thread.
public final class ChangelogChunk: @unchecked Sendable {
    /// A record of an item that may be in the store already. The replaced item has to be looked up.
    private struct Replacement: BitwiseCopyable {
        var key: ItemKey
        /// Position in the chunk: the last of several records with the same key counts.
        var number: UInt32
        /// Place of the value's first byte in `values`.
        var start: Int
        /// Bytes of the value; -1: the item is removed.
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

    /// Partition of the records; nil: the chunk is empty, and has no hold on the store.
    private var partition: StorePartition?
    private let hasher: IdentityHasher
    /// Writes that need no lookup in the store, in the order of the records. Freed in deinit.
    private let writes: OpaquePointer
    private var replacements: [Replacement] = []
    private var values: [UInt8] = []
    /// Writes of the replacements. Freed in deinit.
    private let replacing: OpaquePointer
    /// Number of records, including records that need no write.
    public private(set) var count = 0
    /// Approximate bytes of these records in the memtables.
    public private(set) var bytes = 0
    /// Number of records that aren't the changelog's, states of devices that can't be read included.
    public private(set) var unknown = 0
    /// Failure to encrypt a device's token; nil: there was none. The chunk then lacks the device's state.
    public private(set) var failure: CipherFailure?
    /// Memory for the state with its encrypted token.
    private var sealed = ByteWriter(minimumCapacity: 256)

    /// Notes of erasures: the partition's copy can have got values that were erased.
    private(set) var purges: [PurgeNote] = []

    /// - Parameter store: store to which the chunk belongs.
    public init(of store: RetryStore) {
        hasher = store.hasher
        writes = rocksdb_writebatch_create()
        replacing = rocksdb_writebatch_create()
    }

    deinit {
        rocksdb_writebatch_destroy(writes)
        rocksdb_writebatch_destroy(replacing)
    }

    /// Discards all records, and keeps the memory. The chunk is then filled for a partition, or (nil) for none yet.
    public func begin(_ partition: StorePartition?) {
        self.partition = partition
        rocksdb_writebatch_clear(writes)
        rocksdb_writebatch_clear(replacing)
        replacements.removeAll(keepingCapacity: true)
        values.removeAll(keepingCapacity: true)
        purges = []
        (count, bytes, unknown) = (0, 0, 0)
        failure = nil
    }

    /// - Parameters:
    ///   - keys: keys of all items that were appended for the partition since it was empty. Nil: it wasn't empty.
    ///   - cipher: encrypts the devices' tokens; nil: encryption is off.
    public func append(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, among keys: inout RestoreFilter?,
        cipher: ValueCipher? = nil
    ) {
        guard let partition else { preconditionFailure("a chunk needs a partition") }
        guard let key = key.flatMap({ ChangelogKey($0) }) else {
            unknown += 1
            return
        }
        var value = value
        if let bytes = value, !Self.isValue(bytes, of: key) {
            unknown += 1
            // The record replaces the device's state before it in the changelog, so the device has no known state.
            guard case .device = key else { return }
            value = nil
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
            write(ItemKeyBytes(RelocationMarkBytes.key(offset)), value, partition.items, writes)
        case .device(let token):
            writeState(value, token, partition, cipher)
        case .erasure: purges = [PurgeNote(partition: partition)]
        }
    }

    /// Writes the state with its token, with which a device can be removed from the changelog later.
    private func writeState(
        _ value: UnsafeRawBufferPointer?, _ token: UnsafeRawBufferPointer, _ partition: StorePartition,
        _ cipher: ValueCipher?
    ) {
        let device = hasher.device(token)
        let key = DeviceKeyBytes(device)
        guard let value, let state = DeviceStateBytes.read(value) else {
            return write(key, nil, partition.devices, writes)
        }
        if let cipher {
            sealed.removeAll()
            do throws(CipherFailure) {
                try DeviceStateBytes.append(
                    state, sealing: token, at: .device(partition: partition.number, device), by: cipher,
                    to: &sealed)
            } catch {
                failure = error
                return
            }
            return write(key, sealed.bytes, partition.devices, writes)
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
        case .device(let token): DeviceStateBytes.read(value) != nil && DeviceToken.violation(token) != .hex
        case .erasure: value.count == 8
        case .mark(let offset): RelocationMarkBytes.read(RelocationMarkBytes.key(offset), value) != nil
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

    /// Sorts the replacements by key, so that neighbouring lookups read neighbouring data. Nothing is appended
    /// afterwards.
    func sort() { replacements.sort(by: Replacement.precedes) }

    /// Runs on the store's thread. Writes new items first, because a replacement may be of an item in the same chunk.
    /// Idempotent: after a failure between both steps, a repetition restores the new items and then replaces them.
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
        partition.due.putDue(due, key, SealedValue.suspendedTopic(of: push), in: batch)
    }
}
