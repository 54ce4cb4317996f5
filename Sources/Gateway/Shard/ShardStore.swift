import DeliveryCore
import EventLoop
import Glibc
import RetryStore
import SluiceModel
import StoreEncryption

/// A shard's side of the store: partition handles, and the requests of a turn. ``ShardMachine`` makes the decisions.
/// Shard's thread only.
final class ShardStore {
    /// Requests of a batch, in the batch's order.
    struct Requests {
        var residency: StoreRequests
        /// Items that move to other shards. The store has them under their new tokens.
        var migrations: [Migration]
    }

    private struct Partition {
        var handle: StorePartition
        let committed: CommittedOffset
    }

    let store: RetryStore
    private var batch: StoreBatch
    /// Items that move to other shards with the batch.
    private var migrations: [Migration] = []
    /// Partitions by slot.
    private var partitions: [Partition?] = []
    /// Changelog keys of ended items, kept where tombstones aren't written with the outcomes.
    private var changelogKeys: [EndedItem: [UInt8]] = [:]
    /// New tokens of past token changes, by their numbers.
    private var pastTokens: [[UInt8]] = []
    private var erased = ErasedDevices()
    private var keyWriter = ByteWriter(minimumCapacity: 128)
    private var valueWriter = ByteWriter(minimumCapacity: 1024)
    /// Memory for the plain form of an item.
    private var plainWriter = ByteWriter(minimumCapacity: 1024)
    /// Decrypts the values; nil: encryption is off.
    private var cipher: ValueCipher?
    /// Encrypts the values; nil: they are written in clear.
    private(set) var sealing: ValueCipher?
    private var hasLostChange = false
    private(set) var counters = StoreCounters()

    init(_ store: RetryStore) throws(CipherFailure) {
        self.store = store
        batch = store.makeBatch()
        if let keyring = store.keyring { try use(keyring) }
    }

    /// Encrypts and decrypts with these keys from now on.
    func use(_ keyring: StoreKeyring) throws(CipherFailure) {
        let new = try ValueCipher(keyring)
        (cipher, sealing) = (new, keyring.encrypts ? new : nil)
    }

    // MARK: Partitions

    func beginPartition(_ slot: UInt16, _ handle: StorePartition, _ committed: CommittedOffset) {
        while partitions.count <= Int(slot) { partitions.append(nil) }
        partitions[Int(slot)] = Partition(handle: handle, committed: committed)
    }

    func endPartition(_ slot: UInt16) {
        if Int(slot) < partitions.count { partitions[Int(slot)] = nil }
        changelogKeys = changelogKeys.filter { $0.key.place.partitionSlot != slot }
    }

    /// Returns nil when the partition has ended.
    func handle(_ slot: UInt16) -> StorePartition? {
        Int(slot) < partitions.count ? partitions[Int(slot)]?.handle : nil
    }

    /// Calls with each partition's slot and the offset up to which it is committed.
    func forEachCommitted(_ body: (UInt16, Int64) -> Void) {
        for (slot, partition) in partitions.enumerated() {
            if let partition { body(UInt16(slot), partition.committed.offset) }
        }
    }

    /// Drops the store's handles, and the requests not submitted yet.
    func forgetPartitions() {
        partitions = []
        _ = takeBatch()
    }

    // MARK: Bytes

    /// Encodes a key of the changelog. The bytes are valid until the next call.
    func key(_ encode: (inout ByteWriter) -> Void) -> UnsafeRawBufferPointer {
        keyWriter.removeAll()
        encode(&keyWriter)
        return keyWriter.bytes
    }

    /// Encodes a value of the changelog. The bytes are valid until the next call.
    func value(_ encode: (inout ByteWriter) -> Void) -> UnsafeRawBufferPointer {
        valueWriter.removeAll()
        encode(&valueWriter)
        return valueWriter.bytes
    }

    /// Encodes the value of an item, encrypted if encryption is on. The bytes are valid until the next value.
    /// - Returns: the changelog's value, and the part of it that the store keeps beside the due time.
    func value(
        of push: StoredPush, due: Int64
    ) throws(CipherFailure) -> (changelog: UnsafeRawBufferPointer, push: UnsafeRawBufferPointer) {
        valueWriter.removeAll()
        let start: Int
        if let sealing {
            start = try ChangelogKey.encode(
                push, due: due, sealedBy: sealing, scratch: &plainWriter, into: &valueWriter)
        } else {
            start = ChangelogKey.encode(push, due: due, into: &valueWriter)
        }
        let bytes = valueWriter.bytes
        return (bytes, UnsafeRawBufferPointer(rebasing: bytes[start...]))
    }

    /// Returns the plain bytes of a loaded item, valid until the next item is encoded or decoded.
    func plain(
        _ bytes: UnsafeRawBufferPointer, at place: ValuePlace
    ) throws(SealedValueError) -> UnsafeRawBufferPointer {
        guard SealedValue.isSealed(bytes) else { return bytes }
        guard let cipher else { throw SealedValue.fault(of: bytes, with: nil) ?? .malformed }
        plainWriter.removeAll()
        try cipher.open(bytes, at: place, into: &plainWriter)
        return plainWriter.bytes
    }

    /// Returns the digits of a loaded device's token, valid until the next item is encoded or decoded. Empty: the store
    /// has no token.
    func token(
        of device: LoadedDevice, in result: BatchResult
    ) throws(SealedValueError) -> UnsafeRawBufferPointer {
        plainWriter.removeAll()
        try result.appendToken(of: device, with: cipher, to: &plainWriter)
        return plainWriter.bytes
    }

    func keepChangelogKey(of item: EndedItem, _ key: UnsafeRawBufferPointer) {
        changelogKeys[item] = Array(key)
    }

    func takeChangelogKey(of item: EndedItem) -> [UInt8]? { changelogKeys.removeValue(forKey: item) }

    func keepToken(_ token: UnsafeRawBufferPointer, number: Int) {
        while pastTokens.count <= number { pastTokens.append([]) }
        pastTokens[number] = Array(token)
    }

    /// Overwrites and frees the token of a past token change.
    func forgetToken(number: Int) {
        guard pastTokens.indices.contains(number) else { return }
        for index in pastTokens[number].indices { pastTokens[number][index] = 0 }
        pastTokens[number] = []
    }

    func pastToken(_ number: Int) -> [UInt8] { pastTokens.indices.contains(number) ? pastTokens[number] : [] }

    // MARK: The batch

    /// Requests a load of a device's items in a partition; does nothing when the partition has ended.
    func load(_ slot: UInt16, _ device: DeviceKey, withItems: Bool) {
        guard let handle = handle(slot) else { return }
        batch.load(handle, device, withItems: withItems)
        counters.loads += 1
    }

    func put(
        _ handle: StorePartition, _ key: ItemKey, due: Int64, replacingDue: Int64?, _ push: StoredPush
    ) {
        batch.put(handle, key, due: due, replacingDue: replacingDue, push)
        counters.puts += 1
    }

    /// - Parameter value: the bytes of a ``StoredPush``, encrypted or not.
    func put(
        _ handle: StorePartition, _ key: ItemKey, due: Int64, replacingDue: Int64?,
        value: UnsafeRawBufferPointer
    ) {
        batch.put(handle, key, due: due, replacingDue: replacingDue, value: value)
        counters.puts += 1
    }

    /// Removes an item that has ended.
    func remove(_ handle: StorePartition, _ key: ItemKey, due: Int64) {
        batch.remove(handle, key, due: due)
        counters.removals += 1
    }

    /// Removes an item's old key when the item moves to another key.
    func leave(_ handle: StorePartition, _ key: ItemKey, due: Int64) { batch.remove(handle, key, due: due) }

    func put(_ handle: StorePartition, _ mark: RelocationMark) { batch.put(handle, mark) }

    func removeMark(_ handle: StorePartition, offset: Int64) { batch.removeMark(handle, offset: offset) }

    func put(_ handle: StorePartition, _ device: DeviceKey, _ state: DeviceState) {
        batch.put(handle, device: device, state)
    }

    /// - Parameter token: the device's token, for the changelog's key.
    func put(
        _ handle: StorePartition, _ device: DeviceKey, _ state: DeviceState, token: UnsafeRawBufferPointer
    ) throws(CipherFailure) {
        guard let sealing else { return batch.put(handle, device: device, state, token: token) }
        try batch.put(handle, device: device, state, token: token, sealedBy: sealing)
    }

    func forget(_ handle: StorePartition, _ device: DeviceKey) {
        batch.remove(handle, device: device)
        counters.forgotten += 1
    }

    // MARK: Erasures

    func noteErasure(of device: DeviceKey, at now: Int64) { erased.insert(device, at: now) }

    func isErased(_ device: DeviceKey, at now: Int64) -> Bool { erased.contains(device, at: now) }

    /// - Parameter device: see ``StoreBatch/notePurge(_:ifHas:)``.
    func notePurge(_ handle: StorePartition, ifHas device: DeviceKey? = nil) {
        batch.notePurge(handle, ifHas: device)
    }

    // MARK: Moves

    func depart(_ migration: Migration) { migrations.append(migration) }

    /// Whether requests wait to be submitted to the store.
    /// Whether a batch may be submitted: never after ``loseChange()``.
    var hasBatch: Bool { !batch.isEmpty && !hasLostChange }

    /// Notes that a change on which the machine counts is missing. Later changes may build on it, such as the removal of
    /// an item's earlier due time, so none is submitted any more.
    func loseChange() { hasLostChange = true }

    /// Returns the gathered batch, and starts an empty one.
    func takeBatch() -> StoreBatch { exchange(&batch, with: store.makeBatch()) }

    func takeMigrations() -> [Migration] { exchange(&migrations, with: []) }

    /// Fates of items that were found.
    enum Found { case loaded, damaged, undecryptable, unsendable }

    func count(_ found: Found) {
        switch found {
        case .loaded: counters.loaded += 1
        case .damaged: counters.damaged += 1
        case .undecryptable:
            counters.damaged += 1
            counters.undecryptable += 1
        case .unsendable: counters.unsendable += 1
        }
    }
}

extension SystemError {
    /// OpenSSL lacked memory for a cipher.
    init(_ failure: CipherFailure) { self.init(call: failure.call, code: ENOMEM) }
}

/// Counts of a shard's requests to the store.
public struct StoreCounters: Sendable, Equatable {
    /// Items written.
    public var puts = 0
    /// Items removed.
    public var removals = 0
    /// Loads of devices' items.
    public var loads = 0
    /// Items that loads have found.
    public var loaded = 0
    /// Expired presences that were removed.
    public var forgotten = 0
    /// Items that couldn't be read, and device tokens that couldn't be decrypted.
    public var damaged = 0
    /// Items and device tokens among ``damaged`` that couldn't be decrypted.
    public var undecryptable = 0
    /// Items that exceeded a limit of this version and ended as undeliverable.
    public var unsendable = 0
    /// Partitions whose scan hasn't finished, at the moment of reading. Until a scan finishes, each device is looked up
    /// in its partition. The maximum of all shards.
    public var scansUnderWay = 0

    public init() {}

    static func + (left: StoreCounters, right: StoreCounters) -> StoreCounters {
        var sum = left
        sum.puts += right.puts
        sum.removals += right.removals
        sum.loads += right.loads
        sum.loaded += right.loaded
        sum.forgotten += right.forgotten
        sum.damaged += right.damaged
        sum.undecryptable += right.undecryptable
        sum.unsendable += right.unsendable
        sum.scansUnderWay = max(left.scansUnderWay, right.scansUnderWay)
        return sum
    }
}
