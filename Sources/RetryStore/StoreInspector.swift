import CRocksDB
import SluiceModel

/// Looks at a store that no worker has open, and changes nothing but RocksDB's info log. What the log has that isn't in
/// the tables yet is seen, too.
///
/// One thread.
public final class StoreInspector {
    public let directory: String
    /// With the keys that are kept in the database.
    public let hasher: IdentityHasher
    /// The jobs topic.
    public let sourceTopic: String
    /// By number, those that are complete.
    public let partitions: [Int32]

    let opened: OpenedDatabase

    /// Opens the database for reading.
    public init(directory: String) throws(RetryStoreError) {
        self.directory = directory
        try StoreDirectory(path: directory).check()
        let options = StoreOptions(blockCacheBytes: 32 << 20, memtableBytes: 64 << 20)
        let (database, families) = try Database.open(directory, options: options, readOnly: true)
        opened = try OpenedDatabase(database, families, making: nil)
        hasher = IdentityHasher(key0: opened.meta.hasher.0, key1: opened.meta.hasher.1)
        sourceTopic = opened.meta.topic
        partitions = opened.partitions.keys.sorted()
    }

    /// An item as it is stored; its bytes live until the visitor returns.
    public struct Item {
        public var key: ItemKey
        /// In milliseconds since the epoch.
        public var due: Int64
        /// Of a ``StoredPush``, if nothing is damaged.
        public var push: UnsafeRawBufferPointer
    }

    /// Visits the items of a partition by device and offset until `visit` returns false. Marks, and entries that
    /// aren't items, are left out: ``verify(problemLimit:)`` tells of them.
    public func visitItems(of partition: Int32, _ visit: (Item) -> Bool) throws(RetryStoreError) {
        guard let partition = opened.partitions[partition] else { return }
        let iterator = StoreIterator(partition.items, .total, isOnce: true)
        iterator.seekToFirst()
        try visitItems(iterator, visit)
    }

    /// Visits the items of a device token in a partition, by offset.
    /// - Parameter token: in hexadecimal digits.
    public func visitItems(
        of partition: Int32, token: UnsafeRawBufferPointer, _ visit: (Item) -> Bool
    ) throws(RetryStoreError) {
        guard let partition = opened.partitions[partition] else { return }
        let iterator = StoreIterator(partition.items, .prefix)
        let device = hasher.device(token)
        iterator.seek(DeviceKeyBytes(device))
        try visitItems(iterator) { $0.key.device == device && visit($0) }
    }

    private func visitItems(_ iterator: StoreIterator, _ visit: (Item) -> Bool) throws(RetryStoreError) {
        while iterator.isValid {
            let value = iterator.value
            if let key = ItemKeyBytes(iterator.key)?.key, !StoreMarkBytes.isKey(key),
                let due = DueBytes(prefixOf: value)?.due
            {
                let push = UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
                guard visit(Item(key: key, due: due, push: push)) else { return }
            }
            iterator.next()
        }
        try iterator.check()
    }

    /// Visits the marks of a partition by offset until `visit` returns false.
    public func visitMarks(of partition: Int32, _ visit: (StoreMark) -> Bool) throws(RetryStoreError) {
        guard let partition = opened.partitions[partition] else { return }
        try partition.items.visitMarks { mark, _ in mark.map(visit) ?? true }
    }

    /// Visits the due entries of a partition, from the earliest on, until `visit` returns false.
    public func visitDue(of partition: Int32, _ visit: (DueEntry) -> Bool) throws(RetryStoreError) {
        guard let partition = opened.partitions[partition] else { return }
        let iterator = StoreIterator(partition.due, .total, isOnce: true)
        iterator.seekToFirst()
        while iterator.isValid {
            if let entry = DueKeyBytes(iterator.key)?.entry {
                guard visit(entry) else { return }
            }
            iterator.next()
        }
        try iterator.check()
    }

    /// Visits what is known of devices, those included that have expired and aren't removed yet, until `visit` returns
    /// false.
    public func visitDevices(
        of partition: Int32, _ visit: (DeviceKey, DeviceState) -> Bool
    ) throws(RetryStoreError) {
        guard let partition = opened.partitions[partition] else { return }
        let iterator = StoreIterator(partition.devices, .total, isOnce: true)
        iterator.seekToFirst()
        while iterator.isValid {
            if let key = DeviceKeyBytes(iterator.key)?.device,
                let state = DeviceStateBytes.read(iterator.value)
            {
                guard visit(key, state) else { return }
            }
            iterator.next()
        }
        try iterator.check()
    }

    /// What is known of a device token in a partition.
    public func device(
        of partition: Int32, token: UnsafeRawBufferPointer
    ) throws(RetryStoreError) -> DeviceState? {
        guard let partition = opened.partitions[partition] else { return nil }
        return try partition.devices.withValue(of: DeviceKeyBytes(hasher.device(token))) {
            DeviceStateBytes.read($0)
        } ?? nil
    }
}
