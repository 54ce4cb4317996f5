import CRocksDB
import Glibc

/// Size of the store, as RocksDB estimates it. The estimates are of slightly different moments.
public struct StoreStatistics: Sendable {
    /// Pushes in the partitions that count. Inexact by recent removals and replacements.
    public var estimatedItems = 0
    /// Estimated items by partition.
    public var estimatedItemsByPartition: [Int32: Int] = [:]
    /// Bytes of keys and values on disk, without the log.
    public var diskBytes = 0
    /// Part of `diskBytes` that values take.
    public var blobBytes = 0
    /// Bytes in memtables, not flushed yet.
    public var memtableBytes = 0
    /// Blocks, indexes and filters in memory.
    public var cacheBytes = 0
    /// Bytes of open files' own tables, beside the cache.
    public var tableBytes = 0
    /// Bytes that compactions have to rewrite to catch up.
    public var pendingCompactionBytes = 0
    /// Flushes and compactions that are under way.
    public var backgroundWork = 0
    /// Failures of flushes and compactions since the opening.
    public var backgroundErrors = 0
    /// True while writes wait for flushes or compactions.
    public var isWriteStopped = false
    /// Number of partitions that count.
    public var partitions = 0
    /// Partitions that don't count, in order: given up, or on their way.
    public var copies: [Int32] = []
    /// Part of `diskBytes` that the copies take.
    public var copyDiskBytes = 0
    /// Bytes of changes that are submitted and not yet written.
    public var queuedBytes = 0
}

extension RetryStore {
    /// Returns the store's size; zeros when the store is closed. Too slow for every push, because it takes locks of
    /// RocksDB.
    /// - Parameter counted: partitions whose items count; nil: all. Bytes are those of the whole database.
    public func statistics(of counted: Set<Int32>? = nil) -> StoreStatistics {
        var statistics = StoreStatistics()
        statistics.queuedBytes = queuedBytes
        let (partitions, meta) = opened.withLock { opened in
            (opened.map { Array($0.partitions.values) } ?? [], opened?.metaFamily)
        }
        guard let meta else { return statistics }
        for partition in partitions {
            let blobs = partition.items.number("rocksdb.live-blob-file-size")
            let tables = partition.families.reduce(0) { $0 + $1.number("rocksdb.live-sst-files-size") }
            statistics.blobBytes += blobs
            statistics.diskBytes += tables
            if counted?.contains(partition.number) == false {
                statistics.copies.append(partition.number)
                statistics.copyDiskBytes += tables + blobs
            } else {
                let items = partition.due.number("rocksdb.estimate-num-keys")
                statistics.partitions += 1
                statistics.estimatedItems += items
                statistics.estimatedItemsByPartition[partition.number] = items
            }
            for family in partition.families {
                statistics.memtableBytes += family.number("rocksdb.cur-size-all-mem-tables")
                statistics.tableBytes += family.number("rocksdb.estimate-table-readers-mem")
                statistics.pendingCompactionBytes += family.number(
                    "rocksdb.estimate-pending-compaction-bytes")
            }
        }
        statistics.copies.sort()
        statistics.diskBytes += statistics.blobBytes
        statistics.cacheBytes = rocksdb_cache_get_usage(meta.database.options.cache)
        statistics.backgroundErrors = meta.number("rocksdb.background-errors")
        for property in ["rocksdb.num-running-flushes", "rocksdb.num-running-compactions"] {
            statistics.backgroundWork += meta.number(property)
        }
        statistics.isWriteStopped = meta.number("rocksdb.is-write-stopped") != 0
        return statistics
    }
}

extension RetryStore {
    /// Free bytes of the store's file system; nil when the system does not have them.
    public var freeBytes: Int? {
        var status = statvfs()
        guard statvfs(directory, &status) == 0 else { return nil }
        return Int(clamping: UInt64(status.f_bavail) &* UInt64(status.f_frsize))
    }
}
