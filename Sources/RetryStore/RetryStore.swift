import CRocksDB
import EventLoop
import Glibc
import SluiceModel
import Synchronization

/// Pushes that wait for long, on disk: a RocksDB database for each worker, in it three column families for each
/// partition of the jobs topic.
///
/// Threads: all functions may be called on any thread at the same time. What is submitted takes effect in the order of
/// the calls. Completions are called on a thread of the store's, which they must not hold up: whoever wants to work on
/// a result goes to its own thread. They are called on the caller's thread when the store is closed.
public final class RetryStore: Sendable {
    public struct Settings: Sendable {
        /// Made when missing; the store's alone.
        public var directory: String
        /// The jobs topic; a database belongs to one.
        public var sourceTopic: String
        /// For what is read from disk, indexes and filters included.
        public var blockCacheBytes = 64 << 20
        /// For what isn't written out yet, of all column families together; from half of it on it is written out. A
        /// batch waits when the disk can't keep up.
        public var memtableBytes = 128 << 20

        /// The changelog topic has everything that is here: nothing is logged, and a partition that was not closed in an
        /// orderly way is restored from there.
        public var isChangelogBacked = false

        /// Brings a file's data to the disk; for tests.
        var synchronize: @Sendable (Int32) -> Int32 = { fdatasync($0) }

        public init(directory: String, sourceTopic: String) {
            self.directory = directory
            self.sourceTopic = sourceTopic
        }
    }

    /// Of all device keys of this store; its keys are kept in the database.
    public let hasher: IdentityHasher
    public let directory: String
    /// Of this database: 16 hexadecimal digits, the same as long as it lives.
    public var identity: String {
        let hash = hasher.notification(APNSID(high: 0, low: 0))
        let digits = String(hash, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
    /// See ``Settings/isChangelogBacked``.
    public let isChangelogBacked: Bool
    /// Rights that others have to the directory and its files, for people; empty: none.
    public let exposures: [String]

    let opened: Mutex<OpenedDatabase?>
    /// Ends scans.
    let isClosing = Atomic<Bool>(false)
    /// Applies batches.
    let storeLoop: EventLoop
    /// Waits for the disk.
    let syncLoop: EventLoop
    /// Reads all of a partition.
    let scanLoop: EventLoop
    private let pool = Mutex<[BatchStorage]>([])
    private let queued = Atomic<Int>(0)
    let memory: WriteThrottle
    let line: WriteQueue
    private let syncRequests = Mutex<[@Sendable (RetryStoreError?) -> Void]>([])
    private let logFiles: Mutex<WriteAheadLogSync>
    /// Why what the log has may not be on the disk even when it can be synced again; nil: it is then.
    private let syncFailure = Mutex<RetryStoreError?>(nil)

    private static let pooledBatches = 16
    /// A batch that has grown beyond it isn't kept.
    private static let pooledBytes = 1 << 20

    /// Opens the database, or makes one, with the partitions that it has. Blocks: after a crash the log is read again.
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
        hasher = IdentityHasher(key0: opened.meta.hasher.0, key1: opened.meta.hasher.1)
        do throws(SystemError) {
            storeLoop = try EventLoop(name: "store")
            syncLoop = try EventLoop(name: "store-sync")
            scanLoop = try EventLoop(name: "store-scan")
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
        // RocksDB counts each comparison in a variable of the thread, for figures that nobody reads here.
        for loop in [storeLoop, scanLoop] { loop.execute { rocksdb_set_perf_level(Int32(rocksdb_disable)) } }
    }

    deinit {
        // The threads end by themselves if `close` was forgotten; they own themselves.
        for loop in [scanLoop, storeLoop, syncLoop] { loop.stop() }
    }

    /// The partitions that are there.
    public var partitions: [StorePartition] {
        opened.withLock { $0.map { Array($0.partitions.values) } ?? [] }.sorted { $0.number < $1.number }
    }

    /// Bytes of the batches that are submitted and not yet written: whoever writes faster than the disk can take it has
    /// to wait for completions.
    public var queuedBytes: Int { queued.load(ordering: .relaxed) }

    /// An empty batch.
    public func makeBatch() -> StoreBatch {
        StoreBatch(pool.withLock { $0.popLast() } ?? BatchStorage())
    }

    /// Makes the changes of a batch and then its loads. Written means: into the log in the system's memory, where it
    /// outlives this process; ``sync(completion:)`` brings it to the disk.
    ///
    /// When that fails but may succeed later, as on a full disk, it is tried again every second, and everything that is
    /// submitted meanwhile waits for it; see ``observeFailures(_:)``.
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
        if !line.take(step) { step.fail(.closed) }
    }

    /// Store's thread.
    private func apply(_ storage: BatchStorage) throws(RetryStoreError) -> BatchResult {
        guard let database = opened.withLock({ $0?.database }) else { throw .closed }
        if storage.changes > 0 {
            defer { storage.wereWritten() }
            if isChangelogBacked {
                try database.writeUnlogged(storage.writes)
            } else {
                try database.write(storage.writes)
            }
            memory.written(storage.bytes, opened)
        }
        return storage.loads.isEmpty ? BatchResult(error: nil) : try DeviceLoader.load(storage.loads)
    }

    /// Does something else on one of the store's threads, and tells what has become of it. It isn't tried again; that it
    /// failed is told to those who watch as well.
    func run<Value>(
        on loop: EventLoop, _ completion: @escaping @Sendable (Result<Value, RetryStoreError>) -> Void,
        _ body: @escaping @Sendable () throws(RetryStoreError) -> Value
    ) {
        let accepted = loop.execute { [line] in
            do throws(RetryStoreError) {
                completion(.success(try body()))
            } catch {
                line.tell(error)
                completion(.failure(error))
            }
        }
        if !accepted { completion(.failure(.closed)) }
    }

    /// Calls `observer` with each failure of the database, from ``RetryStoreError/isTransient`` ones to those that nothing
    /// but an operator can mend, and with nil when it works again. On the store's thread.
    public func observeFailures(_ observer: @escaping @Sendable (RetryStoreError?) -> Void) {
        line.observe(observer)
    }

    /// Nil: it works.
    public var failure: RetryStoreError? { line.failure }

    private func recycle(_ storage: BatchStorage) {
        guard storage.bytes <= Self.pooledBytes else { return }
        storage.removeAll()
        pool.withLock { if $0.count < Self.pooledBatches { $0.append(storage) } }
    }

    /// Brings all batches that were submitted before this call to the disk. Those who ask while the disk is busy share
    /// the next turn.
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

    /// Sync thread.
    private func syncNow() {
        let requests = syncRequests.withLock { requests in
            defer { requests = [] }
            return requests
        }
        // Something that was submitted before isn't written, or may have been lost on its way to the disk.
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

    /// The disk may never get what the log has, even if it is asked once more and says that it did. So all of it is written
    /// out, which needs no log; nothing counts as synced, and nothing else is written, before that has succeeded.
    private func replaceLog(_ error: RetryStoreError) {
        syncFailure.withLock { $0 = error }
        let step = IdempotentWrite {
            [self] () throws(RetryStoreError) in
            try opened.withLock { $0?.families ?? [] }.writeOut()
            syncFailure.withLock { $0 = nil }
        } fail: { _ in
        }
        _ = line.take(step)
    }

    /// Ends the store: what was submitted is written, scans end with ``RetryStoreError/closed``, memtables are written
    /// out so that the next opening has no log to read. Blocks; not from a completion. The directory is free when the
    /// partitions and batches that came from this store are gone, too.
    public func close() {
        isClosing.store(true, ordering: .relaxed)
        for loop in [scanLoop, storeLoop, syncLoop] {
            loop.stop()
            loop.join()
        }
        line.close()
        guard let opened = opened.withLock({ $0.take() }) else { return }
        pool.withLock { $0 = [] }
        // If there is no room, all of it is still in the log.
        try? opened.families.writeOut()
    }
}
