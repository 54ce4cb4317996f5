import SluiceModel
import StoreEncryption

/// Reads a store's contents item by item: an open store's (``RetryStore``) or a closed store's
/// (``StoreInspector``). Each call sees the contents at the time of the call; between two calls they may change.
///
/// For use on one thread.
public struct StoreReader {
    /// Hasher with the keys that the database keeps.
    public let hasher: IdentityHasher
    /// Name of the jobs topic.
    public let sourceTopic: String
    let opened: [Int32: StorePartition]
    private let meta: ColumnFamily
    /// Decrypts the values; nil: there are no keys.
    let cipher: ValueCipher?

    /// - Parameter keyring: keys of encrypted values; nil: the reader shows such values as locked.
    init(_ database: OpenedDatabase, _ keyring: StoreKeyring?) throws(RetryStoreError) {
        do throws(CipherFailure) {
            if let keyring { cipher = try ValueCipher(keyring) } else { cipher = nil }
        } catch {
            throw .io(directory: database.database.directory, text: "\(error)")
        }
        hasher = IdentityHasher(key0: database.meta.hasher.0, key1: database.meta.hasher.1)
        sourceTopic = database.meta.topic
        opened = database.partitions
        meta = database.metaFamily
    }

    /// Numbers of the complete partitions, in order.
    public var partitions: [Int32] { opened.keys.sorted() }

    /// Returns the copies of the changelog that were left in an orderly way, by partition.
    public func leftCopies() throws(RetryStoreError) -> [LocalCopy] {
        var copies: [LocalCopy] = []
        for partition in partitions {
            let copy = try meta.copy(of: partition)
            if copy.position != nil { copies.append(copy) }
        }
        return copies
    }

    /// An item as it is stored; its bytes live until the visitor returns.
    public struct Item {
        /// Device and offset of the item.
        public var key: ItemKey
        /// Due time in milliseconds since the epoch.
        public var due: Int64
        /// Bytes of a ``StoredPush``, if nothing is damaged. With ``fault``: the encrypted bytes.
        public var push: UnsafeRawBufferPointer
        /// Name of the key that encrypted the push; nil: the push is stored in clear, or its head is damaged.
        public var keyName: String?
        /// Reason for which the push can't be decrypted; nil: ``push`` is the plain push.
        public var fault: SealedValueError?
    }

    /// Visits the items of a partition by device and offset until `visit` returns false. Skips marks and entries that
    /// aren't items; ``StoreInspector/verify(problemLimit:)`` reports them.
    /// - Parameter after: key behind which the visit begins; nil: it begins at the first.
    public func visitItems(
        of partition: Int32, after: ItemKey? = nil, _ visit: (Item) -> Bool
    ) throws(RetryStoreError) {
        guard let partition = opened[partition] else { return }
        let iterator = StoreIterator(partition.items, .total, isOnce: true)
        if let after {
            iterator.seek(ItemKeyBytes(after))
            if iterator.isValid, ItemKeyBytes(iterator.key)?.key == after { iterator.next() }
        } else {
            iterator.seekToFirst()
        }
        try visitItems(iterator, of: partition.number, visit)
    }

    /// Visits the items of a device token in a partition, by offset, until `visit` returns false.
    /// - Parameter token: hexadecimal digits.
    public func visitItems(
        of partition: Int32, token: UnsafeRawBufferPointer, _ visit: (Item) -> Bool
    ) throws(RetryStoreError) {
        guard let partition = opened[partition] else { return }
        let iterator = StoreIterator(partition.items, .prefix)
        let device = hasher.device(token)
        iterator.seek(DeviceKeyBytes(device))
        try visitItems(iterator, of: partition.number) { $0.key.device == device && visit($0) }
    }

    private func visitItems(
        _ iterator: StoreIterator, of partition: Int32, _ visit: (Item) -> Bool
    ) throws(RetryStoreError) {
        var plain = ByteWriter(minimumCapacity: 1024)
        while iterator.isValid {
            let value = iterator.value
            if let key = ItemKeyBytes(iterator.key)?.key, !RelocationMarkBytes.isKey(key),
                let due = DueBytes(prefixOf: value)?.due
            {
                let push = UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
                var item = Item(key: key, due: due, push: push)
                if SealedValue.isSealed(push) { open(&item, of: partition, &plain) }
                guard visit(item) else { return }
            }
            iterator.next()
        }
        try iterator.check()
    }

    /// Decrypts an item into `plain`, or notes the fault.
    private func open(_ item: inout Item, of partition: Int32, _ plain: inout ByteWriter) {
        plain.removeAll()
        item.keyName = SealedValue.key(of: item.push)?.name
        do throws(SealedValueError) {
            guard let cipher else { throw SealedValue.fault(of: item.push, with: nil) ?? .malformed }
            try cipher.open(
                item.push, at: .item(partition: partition, offset: item.key.offset), into: &plain)
            item.push = plain.bytes
        } catch {
            item.fault = error
        }
    }

    /// Visits the marks of a partition by offset until `visit` returns false.
    public func visitMarks(of partition: Int32, _ visit: (RelocationMark) -> Bool) throws(RetryStoreError) {
        guard let partition = opened[partition] else { return }
        try partition.items.visitMarks { mark, _ in mark.map(visit) ?? true }
    }

    /// Visits the due entries of a partition, from the earliest on, until `visit` returns false.
    public func visitDue(of partition: Int32, _ visit: (DueEntry) -> Bool) throws(RetryStoreError) {
        guard let partition = opened[partition] else { return }
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

    /// A device's state as it is stored.
    public struct Device {
        public var key: DeviceKey
        public var state: DeviceState
        /// Name of the key that encrypted the device's token; nil: no token is stored, or it is stored in clear.
        public var keyName: String?
    }

    /// Visits the states of a partition's devices until `visit` returns false. Expired states that aren't removed yet
    /// are included.
    /// - Parameter after: device behind which the visit begins; nil: it begins at the first.
    public func visitDevices(
        of partition: Int32, after: DeviceKey? = nil, _ visit: (Device) -> Bool
    ) throws(RetryStoreError) {
        guard let partition = opened[partition] else { return }
        let iterator = StoreIterator(partition.devices, .total, isOnce: true)
        if let after {
            iterator.seek(DeviceKeyBytes(after))
            if iterator.isValid, DeviceKeyBytes(iterator.key)?.device == after { iterator.next() }
        } else {
            iterator.seekToFirst()
        }
        while iterator.isValid {
            if let key = DeviceKeyBytes(iterator.key)?.device,
                let state = DeviceStateBytes.read(iterator.value)
            {
                let sealed = DeviceStateBytes.sealedToken(iterator.value)
                let device = Device(
                    key: key, state: state, keyName: sealed.flatMap { SealedValue.key(of: $0)?.name })
                guard visit(device) else { return }
            }
            iterator.next()
        }
        try iterator.check()
    }

    /// Returns the state of a device token in a partition; nil when there is none.
    public func device(
        of partition: Int32, token: UnsafeRawBufferPointer
    ) throws(RetryStoreError) -> DeviceState? {
        guard let partition = opened[partition] else { return nil }
        return try partition.devices.withValue(of: DeviceKeyBytes(hasher.device(token))) {
            DeviceStateBytes.read($0)
        } ?? nil
    }
}

extension RetryStore {
    /// Runs `body` with a reader on the scan thread, between other scans. A long read takes many calls, each from where
    /// the previous call ended.
    /// - Parameter completion: called on the scan thread, or on the caller's when the store is closed.
    public func read<Value: Sendable>(
        _ body: @escaping @Sendable (StoreReader) throws(RetryStoreError) -> Value,
        completion: @escaping @Sendable (Result<Value, RetryStoreError>) -> Void
    ) {
        let accepted = scanLoop.execute { [self] in
            guard let database = opened.withLock({ $0 }), !isClosing.load(ordering: .relaxed) else {
                return completion(.failure(.closed))
            }
            do throws(RetryStoreError) {
                completion(.success(try body(try StoreReader(database, keyring))))
            } catch {
                completion(.failure(error))
            }
        }
        if !accepted { completion(.failure(.closed)) }
    }
}
