import Glibc
import RetryStore
import SluiceModel
import Synchronization
import TestSupport

/// A push that owns its bytes, which tests put into a store and look for.
struct TestPush: Equatable {
    var token: String
    var payload: String
    var partition: Int32 = 0
    var offset: Int64
    var attempts: UInt32 = 0
    var topic = "com.example.app"
    var wait = StoredPush.Wait.none

    func encoded() -> [UInt8] {
        var writer = ByteWriter()
        withStored { $0.encode(into: &writer) }
        return Array(writer.bytes)
    }

    func withStored<Result>(_ body: (StoredPush) -> Result) -> Result {
        var (token, topic, payload) = (token, topic, payload)
        return token.withUTF8 { token in
            topic.withUTF8 { topic in
                payload.withUTF8 { payload in
                    let push = PushJob(
                        deviceToken: UnsafeRawBufferPointer(token), topic: UnsafeRawBufferPointer(topic),
                        pushType: .alert, priority: .immediate,
                        apnsID: APNSID(high: 7, low: UInt64(bitPattern: offset)), expiration: .unspecified,
                        collapseIdentifier: nil, payload: UnsafeRawBufferPointer(payload),
                        deliverAtMilliseconds: nil, delivery: .holdWhileOffline,
                        receiptTimeoutSeconds: JobLimits.defaultReceiptTimeout, registeredAtMilliseconds: nil,
                        duplicates: .allow, createdMilliseconds: 1_700_000_000_000)
                    return body(
                        StoredPush(
                            push: push, progress: StoredPush.Progress(attempts: attempts, wait: wait),
                            partition: partition, offset: offset, polledMilliseconds: 1_700_000_000_001))
                }
            }
        }
    }
}

/// A load with its bytes, for comparisons.
struct Loaded: Equatable {
    struct Item: Equatable {
        var offset: Int64
        var due: Int64
        var push: [UInt8]
    }
    var device: DeviceKey
    var state: DeviceState?
    var items: [Item]
}

/// The result of a completion, for a test that waits for it.
final class Awaited<Value: Sendable>: Sendable {
    private let mutex = Mutex<Value?>(nil)

    /// Nil: not completed yet.
    var value: Value? { mutex.withLock { $0 } }

    func set(_ new: Value) {
        mutex.withLock { value in
            precondition(value == nil, "a completion was called twice")
            value = new
        }
    }

    func wait(_ what: String = "a completion") throws -> Value {
        try eventually(what) { value }
    }
}

extension BatchResult {
    var loaded: [Loaded] {
        loads.map { load in
            Loaded(
                device: load.device, state: load.state,
                items: items[load.items].map {
                    Loaded.Item(offset: $0.offset, due: $0.due, push: Array(push($0)))
                })
        }
    }
}

extension RetryStore {
    static func make(
        _ directory: TemporaryDirectory, topic: String = "jobs", memtableBytes: Int = 1 << 20
    ) throws(RetryStoreError) -> RetryStore {
        var settings = Settings(directory: directory.file("store"), sourceTopic: topic)
        settings.memtableBytes = memtableBytes
        settings.blockCacheBytes = 1 << 20
        return try RetryStore(settings)
    }

    func partition(_ number: Int32) throws -> StorePartition {
        let awaited = Awaited<Result<StorePartition, RetryStoreError>>()
        open(partition: number) { awaited.set($0) }
        return try awaited.wait("partition \(number)").get()
    }

    func dropped(_ partition: StorePartition) throws -> RetryStoreError? {
        let awaited = Awaited<RetryStoreError??>()
        drop(partition) { awaited.set(.some($0)) }
        return try awaited.wait("partition dropped") ?? nil
    }

    /// Submits the batch that `fill` makes, and waits for its result.
    @discardableResult
    func submitted(_ fill: (inout StoreBatch) -> Void) throws -> BatchResult {
        var batch = makeBatch()
        fill(&batch)
        let awaited = Awaited<BatchResult>()
        submit(batch) { awaited.set($0) }
        return try awaited.wait("a batch")
    }

    func expired(
        _ partition: StorePartition, after: DeviceKey?, through: Int64, limit: Int
    ) throws -> ExpiredScan {
        let awaited = Awaited<Result<ExpiredScan, RetryStoreError>>()
        scanExpired(partition, after: after, through: through, limit: limit) { awaited.set($0) }
        return try awaited.wait("a scan").get()
    }

    func synced() throws -> RetryStoreError? {
        let awaited = Awaited<RetryStoreError??>()
        sync { awaited.set(.some($0)) }
        return try awaited.wait("a sync") ?? nil
    }

    func due(
        _ partition: StorePartition, after: DueCursor? = nil, through: Int64 = .max, limit: Int = 1_000_000
    ) throws -> DueScan {
        let awaited = Awaited<Result<DueScan, RetryStoreError>>()
        scanDue(partition, after: after, through: through, limit: limit) { awaited.set($0) }
        return try awaited.wait("a due scan").get()
    }

    func suspended(
        _ partition: StorePartition, topic: String? = nil, without stopped: [String] = [],
        after: DueCursor? = nil, limit: Int = 1_000_000
    ) throws -> SuspendedScan {
        let awaited = Awaited<Result<SuspendedScan, RetryStoreError>>()
        let topic = topic.map { Self.hash($0) }
        scanSuspended(
            partition, topic: topic, without: Set(stopped.map { Self.hash($0) }), after: after, limit: limit
        ) { awaited.set($0) }
        return try awaited.wait("a scan of suspended items").get()
    }

    static func hash(_ topic: String) -> UInt32 {
        var topic = topic
        return topic.withUTF8 { StoredPush.topicHash(UnsafeRawBufferPointer($0)) }
    }

    /// Devices that await their items.
    func awaitedDevices(_ partition: StorePartition, chunk: Int) throws -> [DeviceKey] {
        let end = Awaited<RetryStoreError??>()
        let found = Mutex<[DeviceKey]>([])
        scanAwaitedDevices(
            partition, chunk: chunk, each: { part in found.withLock { $0 += part } },
            completion: { end.set(.some($0)) })
        if let error = try end.wait("a scan of devices") ?? nil { throw error }
        return found.withLock { $0 }
    }

    func loaded(_ partition: StorePartition, _ device: DeviceKey) throws -> Loaded {
        let result = try submitted { $0.load(partition, device) }
        if let error = result.error { throw error }
        return result.loaded[0]
    }

    func device(_ token: String) -> DeviceKey {
        var token = token
        return token.withUTF8 { hasher.device(UnsafeRawBufferPointer($0)) }
    }

    func key(_ push: TestPush) -> ItemKey { ItemKey(device: device(push.token), offset: push.offset) }

    /// All keys that a scan of items returns.
    func scannedItems(_ partition: StorePartition, chunk: Int = 3) throws -> [ItemKey] {
        let keys = Awaited<RetryStoreError??>()
        let found = Mutex<[ItemKey]>([])
        scanItems(
            partition, chunk: chunk, each: { part in found.withLock { $0 += part } },
            completion: { keys.set(.some($0)) })
        if let error = try keys.wait("a scan") ?? nil { throw error }
        return found.withLock { $0 }
    }
}

/// A record of the changelog.
struct ChangelogRecord {
    var key: [UInt8]
    var value: [UInt8]?

    /// A push by its offset. Without a due time, its tombstone.
    static func push(
        _ offset: Int64, token: String = String(repeating: "a1", count: 32), due: Int64?
    ) -> ChangelogRecord {
        let push = TestPush(token: token, payload: "{}", offset: offset)
        var key = ByteWriter()
        var token = push.token
        token.withUTF8 {
            ChangelogKey.item(offset: offset, deviceToken: UnsafeRawBufferPointer($0)).encode(into: &key)
        }
        let value = due.map { due in withUnsafeBytes(of: due.bigEndian) { Array($0) } + push.encoded() }
        return ChangelogRecord(key: Array(key.bytes), value: value)
    }
}

extension ChangelogChunk {
    func append(_ record: ChangelogRecord, among keys: inout RestoreFilter?) {
        record.key.withUnsafeBytes { key in
            guard let value = record.value else { return append(key: key, value: nil, among: &keys) }
            value.withUnsafeBytes { append(key: key, value: $0, among: &keys) }
        }
    }
}

extension RetryStore {
    func restored(_ chunk: ChangelogChunk) throws {
        let awaited = Awaited<RetryStoreError??>()
        restore(chunk) { awaited.set(.some($0)) }
        if let error = try awaited.wait("a chunk") ?? nil { throw error }
    }
}
