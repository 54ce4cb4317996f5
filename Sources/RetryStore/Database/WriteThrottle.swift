import Glibc
import Synchronization

/// Lets the store's thread wait while memtables are larger than they may be: RocksDB itself only begins to write them out,
/// and goes on taking writes for as many column families as there are.
final class WriteThrottle: Sendable {
    private let limit: Int
    /// Since they were looked at last.
    private let unchecked = Atomic<Int>(0)

    /// How long a batch waits at most. When flushes fail, as on a full disk, it is for the next write to tell.
    private static let longestWait = 1000
    private static let step: UInt32 = 1000

    init(limit: Int) { self.limit = limit }

    /// Store's thread, after so many bytes.
    func written(_ bytes: Int, _ opened: borrowing Mutex<OpenedDatabase?>) {
        let written = unchecked.load(ordering: .relaxed) + bytes
        // Each look takes locks of RocksDB.
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
