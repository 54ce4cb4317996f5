import CRocksDB
import SluiceModel

/// Changes that are made together or not at all, and devices to load after them. Made by ``RetryStore/makeBatch()``,
/// filled on one thread, and submitted once; one that is let go changes nothing.
///
/// Later changes of a batch win over earlier ones of the same key.
public struct StoreBatch: ~Copyable, Sendable {
    let storage: BatchStorage

    init(_ storage: BatchStorage) { self.storage = storage }

    /// Neither changes nor loads.
    public var isEmpty: Bool { count == 0 }

    /// Changes and loads; what a put or a remove does is one change.
    public var count: Int { storage.changes + storage.loads.count }

    /// That the changes take, keys and values.
    public var bytes: Int { storage.bytes }

    /// Stores a push, or stores it anew with another state.
    /// - Parameters:
    ///   - due: when it has to be looked at next, in milliseconds since the epoch.
    ///   - replacingDue: what was given last time for this key; nil: it isn't in the store yet.
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
        let parked = push.progress.wait == .parked ? StoredPush.topicHash(push.push.topic) : nil
        putDue(partition, key, due: due, replacing: replacingDue, parked, valueCount: value.count)
    }

    /// The same with the bytes of a ``StoredPush`` that was encoded before.
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
            partition, key, due: due, replacing: replacingDue, StoredPush.parkedTopic(of: value),
            valueCount: DueBytes.count + value.count)
    }

    private mutating func putDue(
        _ partition: StorePartition, _ key: ItemKey, due: Int64, replacing: Int64?, _ parked: UInt32?,
        valueCount: Int
    ) {
        if let replacing, replacing != due { removeDue(partition, key, due: replacing) }
        partition.due.putDue(due, key, parked, in: storage.writes)
        storage.putDue(due, partition)
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count + valueCount + DueKeyBytes.count
    }

    /// Removes a push. Nothing happens when it isn't there.
    /// - Parameter due: what it was stored with.
    public mutating func remove(_ partition: StorePartition, _ key: ItemKey, due: Int64) {
        withKey(ItemKeyBytes(key)) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.items.handle, key, count)
        }
        removeDue(partition, key, due: due)
        storage.changes += 1
        storage.bytes += ItemKeyBytes.count
    }

    /// Removes an entry that a scan brought and to which no push of the same `due` belongs. After a power cut that the
    /// log didn't survive in full there can be one; the push itself, if there is one, stays.
    public mutating func removeStaleDue(_ partition: StorePartition, _ entry: DueEntry) {
        removeDue(partition, entry.key, due: entry.due)
        storage.changes += 1
    }

    private mutating func removeDue(_ partition: StorePartition, _ key: ItemKey, due: Int64) {
        partition.due.removeDue(due, key, in: storage.writes)
        storage.bytes += DueKeyBytes.count
    }

    /// Stores what is known of a device.
    /// - Parameter token: valid digits, which a load gives back with a state that has expired; nil: they aren't needed.
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

    /// A value of so many bytes.
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

    /// Forgets what is known of a device.
    public mutating func remove(_ partition: StorePartition, device: DeviceKey) {
        withKey(DeviceKeyBytes(device)) { key, count in
            rocksdb_writebatch_delete_cf(storage.writes, partition.devices.handle, key, count)
        }
        storage.changes += 1
        storage.bytes += DeviceKeyBytes.count
    }

    /// Asks for what is known of a device in a partition, and for all its items there. The load sees all changes of this
    /// batch and of those that were submitted before.
    public mutating func load(_ partition: StorePartition, _ device: DeviceKey, withItems: Bool = true) {
        storage.loads.append(BatchStorage.Load(partition: partition, device: device, hasItems: withItems))
    }
}

/// What a batch is made of, from its filling to its end, and then of another batch.
// Sendable: it has one owner at a time. The batch can't be copied and is given up when it is submitted; then the store's
// thread has it, until it gives it to the pool under the pool's lock.
final class BatchStorage: @unchecked Sendable {
    struct Load {
        var partition: StorePartition
        var device: DeviceKey
        var hasItems: Bool
    }

    /// Freed in deinit.
    let writes: OpaquePointer
    var scratch = ByteWriter(minimumCapacity: 1024)
    /// Of each partition with new due entries the earliest one.
    private var earliest: [(partition: StorePartition, due: Int64)] = []
    var loads: [Load] = []
    var changes = 0
    var bytes = 0

    init() { writes = rocksdb_writebatch_create() }

    deinit { rocksdb_writebatch_destroy(writes) }

    /// Most batches are of few partitions, and a partition's changes often come together.
    func putDue(_ due: Int64, _ partition: StorePartition) {
        for place in earliest.indices.reversed() where earliest[place].partition === partition {
            earliest[place].due = min(earliest[place].due, due)
            return
        }
        earliest.append((partition, due))
    }

    /// Store's thread: the changes have been made, or may have been.
    func wereWritten() {
        for (partition, due) in earliest { partition.nextDueCache.put(due: due) }
    }

    /// As new, with the memory that it has.
    func removeAll() {
        rocksdb_writebatch_clear(writes)
        earliest.removeAll(keepingCapacity: true)
        loads.removeAll(keepingCapacity: true)
        changes = 0
        bytes = 0
    }
}

extension ColumnFamily {
    /// Adds a due entry, of a push that waits with the topic of this hash; nil: with none.
    func putDue(_ due: Int64, _ item: ItemKey, _ parked: UInt32?, in batch: OpaquePointer) {
        withKey(DueKeyBytes(due: due, item)) { key, count in
            guard let parked else { return rocksdb_writebatch_put_cf(batch, handle, key, count, nil, 0) }
            withKey(ParkedBytes(parked)) { value, valueCount in
                rocksdb_writebatch_put_cf(batch, handle, key, count, value, valueCount)
            }
        }
    }

    /// Of due entries: removes one.
    func removeDue(_ due: Int64, _ item: ItemKey, in batch: OpaquePointer) {
        withKey(DueKeyBytes(due: due, item)) { key, count in
            rocksdb_writebatch_delete_cf(batch, handle, key, count)
        }
    }
}

/// Two pieces of a value as the C interface takes them.
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
