import Glibc
import Synchronization

/// Makes the store's thread wait while memtables exceed their limit. RocksDB itself only starts flushes, and accepts
/// further writes for as many column families as there are.
final class WriteThrottle: Sendable {
    private let limit: Int
    /// Bytes written since the memtables were last measured.
    private let unchecked = Atomic<Int>(0)

    /// Most steps that a batch waits. When flushes fail, as on a full disk, the next write reports the failure.
    private static let longestWait = 1000
    private static let step: UInt32 = 1000

    init(limit: Int) { self.limit = limit }

    /// Counts written bytes on the store's thread, and waits when the memtables exceed the limit.
    func written(_ bytes: Int, _ opened: borrowing Mutex<OpenedDatabase?>) {
        let written = unchecked.load(ordering: .relaxed) + bytes
        // Measures rarely, because each measurement takes locks of RocksDB.
        guard written >= limit / 16 else {
            unchecked.store(written, ordering: .relaxed)
            return
        }
        unchecked.store(0, ordering: .relaxed)
        let families = opened.withLock { $0?.partitions.values.flatMap { [$0.items, $0.due] } ?? [] }
        for _ in 0..<Self.longestWait {
            let size = families.reduce(0) { $0 + $1.number("rocksdb.cur-size-all-mem-tables") }
            if size <= limit { return }
            usleep(Self.step)
        }
    }
}
