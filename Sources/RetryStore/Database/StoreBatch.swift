import CRocksDB
import SluiceModel
import StoreEncryption

/// Changes that are made together or not at all, and devices to load after them. ``RetryStore/makeBatch()`` makes a
/// batch. A batch is filled on one thread, and submitted once; a batch that is never submitted changes nothing.
///
/// Later changes of a batch win over earlier changes of the same key.
public struct StoreBatch: ~Copyable, Sendable {
    let storage: BatchStorage

    init(_ storage: BatchStorage) { self.storage = storage }

    /// True when the batch has neither changes nor loads.
    public var isEmpty: Bool { count == 0 }

    /// Number of changes and loads; each put or remove is one change.
    public var count: Int { storage.changes + storage.loads.count }

    /// Bytes of the changes, keys and values.
    public var bytes: Int { storage.bytes }

    /// Stores a push, or stores it again with another state.
    /// - Parameters:
    ///   - due: when the push has to be looked at next, in milliseconds since the epoch.
    ///   - replacingDue: `due` of the last put of this key; nil: the push isn't in the store yet.
    public mutating func put(
        _ partition: StorePartition, _ key: ItemKey, due: Int64, replacingDue: Int64?, _ push: StoredPush
    ) {
        storage.scratch.removeAll()
        let dueBytes = DueBytes(due)
        withUnsafeBytes(of: dueBytes) { storage.scratch.append($0) }
        push.encode(into: &storage.scratch)
        let value = storage.scratch.bytes
        withKey(ItemKeyBytes(key)) { key, keyCount in
            rocksdb_writebatch_put_cf(
                storage.writes, partition.items.handle, key, keyCount,
                value.baseAddress!.assumingMemoryBound(to: CChar.self), value.count)
        }
        putDue(
            partition, key, due: due, replacing: replacingDue, push.suspendedTopic, valueCount: value.count)
    }

    /// Stores a push like the function above, from the bytes of a ``StoredPush`` that was encoded before, encrypted or
    /// not.
    public mutating func put(
        _ partition: StorePartition, _ key: ItemKey, due: Int64, replacingDue: Int64?,
        value: UnsafeRawBufferPointer
    ) {
        let dueBytes = DueBytes(due)
        withKey(ItemKeyBytes(key)) { key, keyCount in
            withKey(dueBytes) { due, dueCount in
                withGathered((due, dueCount), value) { parts, counts in
                    withUnsafePointer(to: Optional(key)) { key in
                        withUnsafePointer(to: keyCount) { keyCount in
                            rocksdb_writebatch_putv_cf(
                                storage.writes, partition.items.handle, 1, key, keyCount, 2, parts, counts)
                        }
                    }
                }
            }
        }
        putDue(
            partition, key, due: due, replacing: replacingDue, SealedValue.suspendedTopic(of: value),
            valueCount: DueBytes.count + value.count)
    }

    private mutating func putDue(
        _ partition: StorePartition, _ key: ItemKey, due: Int64, replacing: Int64?, _ suspended: UInt32?,
        valueCount: Int
    ) {
        if let replacing, replacing != due { removeDue(partition, key, due: replacing) }
        partition.due.putDue(due, key, suspended, in: storage.writes)
        storage.putDue(due, partition)
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count + valueCount + DueKeyBytes.count
    }

    /// Removes a push. Does nothing when the push isn't stored.
    /// - Parameter due: due time with which the push was stored.
    public mutating func remove(_ partition: StorePartition, _ key: ItemKey, due: Int64) {
        withKey(ItemKeyBytes(key)) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.items.handle, key, count)
        }
        removeDue(partition, key, due: due)
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count
    }

    private mutating func removeDue(_ partition: StorePartition, _ key: ItemKey, due: Int64) {
        partition.due.removeDue(due, key, in: storage.writes)
        storage.bytes += DueKeyBytes.count
    }

    /// Stores the state of a device.
    /// - Parameter token: valid digits, which a load returns with a state that has expired; nil: they aren't needed.
    public mutating func put(
        _ partition: StorePartition, device: DeviceKey, _ state: DeviceState,
        token: UnsafeRawBufferPointer? = nil
    ) {
        let count = token.map { DeviceStateBytes.count(withToken: $0) } ?? DeviceStateBytes.count
        put(partition.devices, DeviceKeyBytes(device), count: count) {
            DeviceStateBytes.write(state, to: $0)
            if let token { DeviceStateBytes.addToken(token, to: $0) }
        }
    }

    /// Stores a value of `count` bytes, which `write` fills.
    mutating func put<Key: BitwiseCopyable>(
        _ family: ColumnFamily, _ key: Key, count: Int, _ write: (UnsafeMutableRawPointer) -> Void
    ) {
        withKey(key) { key, keyCount in
            withUnsafeTemporaryAllocation(byteCount: count, alignment: 1) { value in
                write(value.baseAddress!)
                rocksdb_writebatch_put_cf(
                    storage.writes, family.handle, key, keyCount,
                    value.baseAddress!.assumingMemoryBound(to: CChar.self), count)
            }
        }
        storage.changes += 1
        storage.bytes += MemoryLayout<Key>.size + count
    }

    /// Removes the state of a device.
    public mutating func remove(_ partition: StorePartition, device: DeviceKey) {
        withKey(DeviceKeyBytes(device)) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.devices.handle, key, count)
        }
        storage.changes += 1
        storage.bytes += DeviceKeyBytes.count
    }

    /// Notes that bytes of this batch's removals, or of earlier removals, must leave the disk: the partition is purged
    /// within ``RetryStore/Settings/purgeAfter``.
    /// - Parameter device: device whose state the batch removes; the partition is purged only if it has the state. Nil:
    ///   the partition is purged in any case.
    public mutating func notePurge(_ partition: StorePartition, ifHas device: DeviceKey? = nil) {
        storage.purges.append(PurgeNote(partition: partition, device: device))
        storage.changes += 1
    }

    /// Requests the state of a device in a partition, and with `withItems` all its items there. The load sees all
    /// changes of this batch and of batches that were submitted before.
    public mutating func load(_ partition: StorePartition, _ device: DeviceKey, withItems: Bool = true) {
        storage.loads.append(BatchStorage.Load(partition: partition, device: device, hasItems: withItems))
    }
}

/// Contents of a batch, from its filling to its end, and afterwards of another batch.
// Sendable: it has one owner at a time. The batch can't be copied, and submitting consumes it. The store's thread then
// owns the storage, until it returns the storage to the pool under the pool's lock.
final class BatchStorage: @unchecked Sendable {
    struct Load {
        var partition: StorePartition
        var device: DeviceKey
        var hasItems: Bool
    }

    /// Freed in deinit.
    let writes: OpaquePointer
    var scratch = ByteWriter(minimumCapacity: 1024)
    /// Partitions with new due entries, each with its earliest one.
    private var earliest: [(partition: StorePartition, due: Int64)] = []
    var loads: [Load] = []
    /// Removals whose bytes must leave the disk.
    var purges: [PurgeNote] = []
    var changes = 0
    var bytes = 0

    init() { writes = rocksdb_writebatch_create() }

    deinit { rocksdb_writebatch_destroy(writes) }

    /// Searches from the last partition, because most batches have few partitions, and a partition's changes are often
    /// adjacent.
    func putDue(_ due: Int64, _ partition: StorePartition) {
        for place in earliest.indices.reversed() where earliest[place].partition === partition {
            earliest[place].due = min(earliest[place].due, due)
            return
        }
        earliest.append((partition, due))
    }

    /// Runs on the store's thread after the changes have been made, or may have been.
    func wereWritten() {
        for (partition, due) in earliest { partition.nextDueCache.put(due: due) }
    }

    /// Empties the storage, and keeps its memory.
    func removeAll() {
        rocksdb_writebatch_clear(writes)
        earliest.removeAll(keepingCapacity: true)
        loads.removeAll(keepingCapacity: true)
        purges.removeAll(keepingCapacity: true)
        changes = 0
        bytes = 0
    }
}

extension ColumnFamily {
    /// Adds a due entry. `suspended` is the hash of the topic with which the push waits; nil: it waits with none.
    func putDue(_ due: Int64, _ item: ItemKey, _ suspended: UInt32?, in batch: OpaquePointer) {
        withKey(DueKeyBytes(due: due, item)) { key, count in
            guard let suspended else { return rocksdb_writebatch_put_cf(batch, handle, key, count, nil, 0) }
            withKey(SuspendedBytes(suspended)) { value, valueCount in
                rocksdb_writebatch_put_cf(batch, handle, key, count, value, valueCount)
            }
        }
    }

    /// Removes a due entry.
    func removeDue(_ due: Int64, _ item: ItemKey, in batch: OpaquePointer) {
        withKey(DueKeyBytes(due: due, item)) { key, count in
            rocksdb_writebatch_delete_cf(batch, handle, key, count)
        }
    }
}

/// Passes two pieces of a value as the C interface needs them.
@inline(__always)
private func withGathered(
    _ first: (UnsafePointer<CChar>, Int), _ second: UnsafeRawBufferPointer,
    _ body: (UnsafePointer<UnsafePointer<CChar>?>, UnsafePointer<Int>) -> Void
) {
    withUnsafeTemporaryAllocation(of: UnsafePointer<CChar>?.self, capacity: 2) { parts in
        withUnsafeTemporaryAllocation(of: Int.self, capacity: 2) { counts in
            parts[0] = first.0
            parts[1] = second.baseAddress?.assumingMemoryBound(to: CChar.self)
            counts[0] = first.1
            counts[1] = second.count
            body(UnsafePointer(parts.baseAddress!), UnsafePointer(counts.baseAddress!))
        }
    }
}
