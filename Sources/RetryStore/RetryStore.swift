import CRocksDB
import EventLoop
import Glibc
import SluiceModel
import StoreEncryption
import Synchronization

/// Pushes that wait for long, on disk. Each worker has a RocksDB database, with three column families for each
/// partition of the jobs topic.
///
/// Threads: all functions may be called on any thread at the same time. The store runs submitted work in the order of
/// the calls. Completions run on a thread of the store's, and must not hold it up. A caller processes results on its
/// own thread. Completions run on the caller's thread when the store is closed.
public final class RetryStore: Sendable {
    /// Settings of a store.
    public struct Settings: Sendable {
        /// Directory of the database, for the store alone. The store makes a missing directory.
        public var directory: String
        /// Name of the jobs topic; a database belongs to a single topic.
        public var sourceTopic: String
        /// Bytes of the cache for data read from disk, indexes and filters included.
        public var blockCacheBytes = 64 << 20
        /// Bytes of all column families' memtables together; flushes begin at half of it. A batch waits when the disk
        /// can't keep up.
        public var memtableBytes = 128 << 20

        /// True when the changelog topic has everything that the store has. Nothing is logged then, and a partition
        /// without an orderly close is restored from the changelog.
        public var isChangelogBacked = false
        /// Keys of the values; nil: values are written in clear, and the store must not have others.
        public var keyring: StoreKeyring?

        /// Longest time between a removal whose bytes must leave the disk and the begin of its purge.
        public var purgeAfter: Duration = .seconds(86_400)

        /// Syncs a file's data to the disk; replaced by tests.
        var synchronize: @Sendable (Int32) -> Int32 = { fdatasync($0) }

        public init(directory: String, sourceTopic: String) {
            self.directory = directory
            self.sourceTopic = sourceTopic
        }
    }

    /// Hasher of all device keys of this store; the database keeps its keys.
    public let hasher: IdentityHasher
    /// Directory of the database, for the store alone.
    public let directory: String
    /// Identity of this database: 16 hexadecimal digits, constant over its life.
    public var identity: String {
        Self.name(of: hasher.notification(APNSID(high: 0, low: 0)))
    }

    /// Returns a number as 16 hexadecimal digits.
    static func name(of number: UInt64) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
    /// See ``Settings/isChangelogBacked``.
    public let isChangelogBacked: Bool
    /// Partitions whose copies have values of a key that the settings lack. They are restored from the changelog.
    public let copiesWithoutKey: [Int32]
    /// Access rights that others have to the directory and its files, as text for people; empty: none.
    public let exposures: [String]

    let opened: Mutex<OpenedDatabase?>
    let keys: Mutex<StoreKeyring?>
    /// True from ``close()`` on; scans end with it.
    let isClosing = Atomic<Bool>(false)
    /// Thread that applies batches.
    let storeLoop: EventLoop
    /// Thread that waits for the disk.
    let syncLoop: EventLoop
    /// Thread of scans, which read whole partitions.
    let scanLoop: EventLoop
    let purger: StorePurger
    private let pool = Mutex<[BatchStorage]>([])
    private let queued = Atomic<Int>(0)
    let memory: WriteThrottle
    let line: WriteQueue
    private let syncRequests = Mutex<[@Sendable (RetryStoreError?) -> Void]>([])
    private let logFiles: Mutex<WriteAheadLogSync>
    /// Cause why logged data may be lost even if a later sync succeeds; nil: a successful sync is sufficient.
    private let syncFailure = Mutex<RetryStoreError?>(nil)

    private static let pooledBatches = 16
    /// Bytes of a batch beyond which the pool doesn't keep it.
    private static let pooledBytes = 1 << 20

    /// Opens the database with its partitions, or makes a new one. Blocks, because after a crash RocksDB reads the log
    /// again. Searches all values for those of a key that the settings lack, if the database has recorded such a key.
    public init(_ settings: Settings) throws(RetryStoreError) {
        directory = settings.directory
        isChangelogBacked = settings.isChangelogBacked
        let place = StoreDirectory(path: settings.directory)
        try place.prepare()
        exposures = try place.protect()
        let options = StoreOptions(
            blockCacheBytes: settings.blockCacheBytes, memtableBytes: settings.memtableBytes,
            logDirectory: settings.directory)
        let (database, families) = try Database.open(settings.directory, options: options, readOnly: false)
        var opened = try OpenedDatabase(database, families, making: .random(topic: settings.sourceTopic))
        guard opened.meta.topic == settings.sourceTopic else {
            throw .wrongTopic(
                directory: settings.directory, found: opened.meta.topic, expected: settings.sourceTopic)
        }
        try database.drop(opened.remains, left: &opened.remains)
        copiesWithoutKey = try opened.check(settings.keyring, areCopies: settings.isChangelogBacked)
        keys = Mutex(settings.keyring)
        hasher = IdentityHasher(key0: opened.meta.hasher.0, key1: opened.meta.hasher.1)
        do throws(SystemError) {
            storeLoop = try EventLoop(name: "store")
            syncLoop = try EventLoop(name: "store-sync")
            scanLoop = try EventLoop(name: "store-scan")
            purger = try StorePurger(delay: settings.purgeAfter)
        } catch {
            throw .io(directory: settings.directory, text: error.description)
        }
        let family = opened.metaFamily
        let isLogged = !settings.isChangelogBacked
        line = WriteQueue(storeLoop) { () throws(RetryStoreError) in try family.probe(isLogged: isLogged) }
        self.opened = Mutex(opened)
        memory = WriteThrottle(limit: settings.memtableBytes)
        logFiles = Mutex(WriteAheadLogSync(directory: settings.directory, synchronize: settings.synchronize))
        for loop in [storeLoop, syncLoop, scanLoop] { loop.start() }
        // RocksDB counts each comparison in a variable of the thread, for figures that Sluice doesn't read.
        for loop in [storeLoop, scanLoop] { loop.execute { rocksdb_set_perf_level(Int32(rocksdb_disable)) } }
        try startPurges(opened)
    }

    deinit {
        // The threads own themselves, and end by themselves if `close` was forgotten.
        for loop in [scanLoop, storeLoop, syncLoop, purger.loop] { loop.stop() }
    }

    /// Existing partitions, by number.
    public var partitions: [StorePartition] {
        opened.withLock { $0.map { Array($0.partitions.values) } ?? [] }.sorted { $0.number < $1.number }
    }

    /// Bytes of batches that are submitted and not yet written. A caller that writes faster than the disk has to wait
    /// for completions.
    public var queuedBytes: Int { queued.load(ordering: .relaxed) }

    /// Returns an empty batch.
    public func makeBatch() -> StoreBatch {
        StoreBatch(pool.withLock { $0.popLast() } ?? BatchStorage())
    }

    /// Makes the changes of a batch and then its loads. Written changes are in the log in the system's memory, where
    /// they outlive this process; ``sync(completion:)`` syncs them to the disk.
    ///
    /// A failure that is transient, such as a full disk, is retried every second. All work that is submitted meanwhile
    /// waits for it; see ``observeFailures(_:)``.
    public func submit(
        _ batch: consuming StoreBatch, completion: @escaping @Sendable (BatchResult) -> Void
    ) {
        let storage = batch.storage
        let bytes = storage.bytes
        queued.add(bytes, ordering: .relaxed)
        let end: @Sendable (BatchResult) -> Void = { [self] result in
            queued.subtract(bytes, ordering: .relaxed)
            recycle(storage)
            completion(result)
        }
        let step = IdempotentWrite {
            [self] () throws(RetryStoreError) in
            end(try apply(storage))
        } fail: {
            end(BatchResult(error: $0))
        }
        if !line.enqueue(step) { step.fail(.closed) }
    }

    /// Applies a batch on the store's thread: changes first, then loads.
    private func apply(_ storage: BatchStorage) throws(RetryStoreError) -> BatchResult {
        guard let database = opened.withLock({ $0?.database }) else { throw .closed }
        if storage.changes > 0 {
            defer { storage.wereWritten() }
            let purged =
                try storage.purges.isEmpty ? [] : addPurgeNeeds(storage.purges, to: storage.writes)
            if isChangelogBacked {
                try database.writeUnlogged(storage.writes)
            } else {
                try database.write(storage.writes)
            }
            if !purged.isEmpty { removed(from: purged) }
            memory.written(storage.bytes, opened)
        }
        return storage.loads.isEmpty ? BatchResult(error: nil) : try DeviceLoader.load(storage.loads)
    }

    /// Runs `body` on one of the store's threads, and passes its result to `completion`. A failed `body` isn't retried;
    /// observers receive the failure as well.
    func run<Value>(
        on loop: EventLoop, _ completion: @escaping @Sendable (Result<Value, RetryStoreError>) -> Void,
        _ body: @escaping @Sendable () throws(RetryStoreError) -> Value
    ) {
        let accepted = loop.execute { [line] in
            do throws(RetryStoreError) {
                completion(.success(try body()))
            } catch {
                line.report(error)
                completion(.failure(error))
            }
        }
        if !accepted { completion(.failure(.closed)) }
    }

    /// Calls `observer` on the store's thread with each failure of the database, and with nil when the database works
    /// again. Failures range from ``RetryStoreError/isTransient`` ones to those that only an operator can mend.
    public func observeFailures(_ observer: @escaping @Sendable (RetryStoreError?) -> Void) {
        line.observe(observer)
    }

    /// Current failure of the database; nil: it works.
    public var failure: RetryStoreError? { line.failure }

    private func recycle(_ storage: BatchStorage) {
        guard storage.bytes <= Self.pooledBytes else { return }
        storage.removeAll()
        pool.withLock { if $0.count < Self.pooledBatches { $0.append(storage) } }
    }

    /// Syncs all batches that were submitted before this call to the disk. Requests that arrive while the disk is busy
    /// share the next sync.
    public func sync(completion: @escaping @Sendable (RetryStoreError?) -> Void) {
        let isOpen = opened.withLock { $0 != nil }
        let accepted =
            isOpen
            && storeLoop.execute { [self] in
                let isFirst = syncRequests.withLock { requests in
                    requests.append(completion)
                    return requests.count == 1
                }
                if isFirst { syncLoop.execute { [self] in syncNow() } }
            }
        if !accepted { completion(.closed) }
    }

    /// Syncs the log on the sync thread, and answers all waiting requests.
    private func syncNow() {
        let requests = syncRequests.withLock { requests in
            defer { requests = [] }
            return requests
        }
        // An earlier submitted change isn't written, or may have been lost on its way to the disk.
        var failure = line.failure ?? syncFailure.withLock { $0 }
        if failure == nil {
            do throws(RetryStoreError) {
                try logFiles.withLock { (files) throws(RetryStoreError) in try files.sync() }
            } catch {
                failure = error
                replaceLog(error)
            }
        }
        for request in requests { request(failure) }
    }

    /// Flushes all memtables, which need no log. The disk may never get the logged data, even if a repeated sync
    /// reports success. Nothing counts as synced, and nothing else is written, before the flush has succeeded.
    private func replaceLog(_ error: RetryStoreError) {
        syncFailure.withLock { $0 = error }
        let step = IdempotentWrite {
            [self] () throws(RetryStoreError) in
            try opened.withLock { $0?.families ?? [] }.writeOut()
            syncFailure.withLock { $0 = nil }
        } fail: { _ in
        }
        _ = line.enqueue(step)
    }

    /// Closes the store. Writes submitted changes, ends scans and purges with ``RetryStoreError/closed``, and flushes
    /// memtables. The next opening continues a purge from its beginning.
    /// The next opening then has no log to read. Blocks, and must not be called from a completion. The directory is
    /// free when the store's partitions and batches are released, too.
    public func close() {
        isClosing.store(true, ordering: .relaxed)
        opened.withLock { $0?.database }?.endRewrites()
        purger.close()
        for loop in [scanLoop, storeLoop, syncLoop] {
            loop.stop()
            loop.join()
        }
        line.close()
        guard let opened = opened.withLock({ $0.take() }) else { return }
        pool.withLock { $0 = [] }
        // If there is no room for the flush, all data is still in the log, or in the changelog topic.
        try? opened.families.writeOut()
    }
}
