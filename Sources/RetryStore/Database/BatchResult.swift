import CRocksDB
import SluiceModel

/// A device as a load found it.
public struct LoadedDevice: Sendable {
    /// Number of the partition.
    public var partition: Int32
    public var device: DeviceKey
    /// State of the device; nil: the store has none. The state can have expired.
    public var state: DeviceState?
    /// Range of the device's token in the arena; empty: the store has no state or no token of the device.
    var token: Range<Int>
    /// True when the arena has the token in its encrypted form.
    var isTokenSealed = false
    /// Range of the device's items in ``BatchResult/items``, by offset.
    public var items: Range<Int>
}

/// An item as a load found it.
public struct LoadedItem: Sendable {
    /// Offset of the job's record.
    public var offset: Int64
    /// Due time in milliseconds since the epoch.
    public var due: Int64
    /// Place of the push's first byte in the arena.
    var start: Int
    var count: Int
}

/// Outcome of a batch.
// Sendable: all of it is constant after init, and the bytes are freed with it.
public final class BatchResult: @unchecked Sendable {
    /// Cause of a final failure: the store is closed, or damaged. Nil: the batch succeeded. A failed batch has no
    /// loads; its changes may have been made.
    public let error: RetryStoreError?
    /// Devices in the order of the batch's loads.
    public let loads: [LoadedDevice]
    /// Items of all devices.
    public let items: [LoadedItem]
    private let arena: ByteWriter

    init(
        error: RetryStoreError?, loads: [LoadedDevice] = [],
        items: [LoadedItem] = [], arena: consuming ByteWriter = ByteWriter(minimumCapacity: 0)
    ) {
        self.error = error
        self.loads = loads
        self.items = items
        self.arena = arena
    }

    /// Returns the bytes of an item's ``StoredPush``, encrypted or not, alive as long as this result.
    public func push(_ item: LoadedItem) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: arena.bytes[item.start..<item.start + item.count])
    }

    /// Returns the digits of a device's token, or its encrypted form; empty: the store has no token.
    func tokenBytes(_ device: LoadedDevice) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: arena.bytes[device.token])
    }
}

/// Reads the devices of one batch, all in the same state of the database.
struct DeviceLoader: ~Copyable {
    private var iterators: [Int32: StoreIterator] = [:]
    private var loads: [LoadedDevice] = []
    private var items: [LoadedItem] = []
    private var arena = ByteWriter(minimumCapacity: 4096)

    static func load(_ requests: [BatchStorage.Load]) throws(RetryStoreError) -> BatchResult {
        var loader = DeviceLoader()
        for request in requests { try loader.load(request) }
        return BatchResult(error: nil, loads: loader.loads, items: loader.items, arena: loader.arena)
    }

    private mutating func load(_ request: BatchStorage.Load) throws(RetryStoreError) {
        let partition = request.partition
        let first = items.count
        if request.hasItems { try loadItems(request) }
        let token = arena.count
        var isSealed = false
        let state = try partition.devices.withValue(of: DeviceKeyBytes(request.device)) {
            if let sealed = DeviceStateBytes.sealedToken($0) {
                arena.append(sealed)
                isSealed = true
            } else {
                DeviceStateBytes.withToken($0) { arena.append($0) }
            }
            return DeviceStateBytes.read($0)
        }
        loads.append(
            LoadedDevice(
                partition: partition.number, device: request.device, state: state ?? nil,
                token: token..<arena.count, isTokenSealed: isSealed, items: first..<items.count))
    }

    private mutating func loadItems(_ request: BatchStorage.Load) throws(RetryStoreError) {
        let partition = request.partition
        // All of a batch's loads of a partition share a cursor, because a cursor costs more than a seek.
        let iterator = iterators[partition.number] ?? StoreIterator(partition.items, .prefix)
        iterators[partition.number] = iterator
        iterator.seek(DeviceKeyBytes(request.device))
        while iterator.isValid {
            guard let key = ItemKeyBytes(iterator.key)?.key else { throw damage(partition, "a key") }
            guard key.device == request.device else { break }
            let value = iterator.value
            guard let due = DueBytes(prefixOf: value) else { throw damage(partition, "a value") }
            let push = UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
            items.append(
                LoadedItem(offset: key.offset, due: due.due, start: arena.count, count: push.count))
            arena.append(push)
            iterator.next()
        }
        try iterator.check()
    }

    private func damage(_ partition: StorePartition, _ what: String) -> RetryStoreError {
        .corrupt(
            directory: partition.items.database.directory,
            text: "\(what) of column family \(partition.items.name) has an invalid length")
    }
}
