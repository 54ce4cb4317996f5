import Gateway
import Metrics
import RetryStore

/// Metrics of the store and of restoring.
extension WorkerMetrics {
    static func addStoreKeys(
        _ keys: StoreKeyReport?, _ totals: ShardCounters, to metrics: inout MetricFamilies
    ) {
        metrics.counter(
            "store_undecryptable_items",
            "Unreadable items, and device tokens, that could not be decrypted.",
            totals.store.undecryptable)
        guard let keys else { return }
        metrics.gauge(
            "store_keys", "1 for the key that encrypts stored pushes, 0 for keys that decrypt only.",
            keys.names.enumerated().map { .init(["key": $1], .integer(keys.encrypts && $0 == 0 ? 1 : 0)) })
        metrics.gauge(
            "store_key_file_faulty", "1 while the key file is faulty, and the keys before stay in use.",
            keys.fault == nil ? 0 : 1)
        metrics.gauge(
            "store_keys_kept",
            "Keys that the key file lacks and that decrypt until the process restarts.", keys.kept.count)
        metrics.counter(
            "store_key_renewals", "Changes of the key file that were taken over.", keys.renewals)
    }

    static func addStore(
        _ store: StoreStatistics, _ totals: ShardCounters, _ intake: IntakeSnapshot, _ freeBytes: Int?,
        _ purges: PurgeStatus,
        to metrics: inout MetricFamilies
    ) {
        metrics.counter("store_puts", "Items written to the store.", totals.store.puts)
        metrics.counter("store_removals", "Items removed from the store.", totals.store.removals)
        metrics.counter("store_loads", "Lookups of a device's items in the store.", totals.store.loads)
        metrics.counter("store_loaded_items", "Items that lookups found.", totals.store.loaded)
        metrics.counter(
            "store_forgotten_devices", "Devices whose expired presence was removed.", totals.store.forgotten)
        metrics.counter("store_damaged_items", "Items that could not be read.", totals.store.damaged)
        metrics.counter(
            "store_unsendable_items",
            "Items that exceeded a limit of this version and ended as undeliverable.", totals.store.unsendable
        )
        metrics.counter("store_failures", "Times that the store failed.", intake.counters.storeFailures)
        metrics.gauge(
            "store_failing", "1 when reading is stopped because the store failed.",
            intake.isStoreFailing ? 1 : 0)
        metrics.gauge(
            "store_items", "Items in the store, estimated.",
            store.estimatedItemsByPartition.sorted { $0.key < $1.key }.map {
                .init(["partition": "\($0)"], .integer($1))
            })
        metrics.gauge(
            "store_copies", "Partitions in the store that were revoked or are being restored.",
            store.copies.count)
        metrics.gauge(
            "store_resident_items", "Items in memory that came from the store.", totals.residentItems)
        metrics.gauge(
            "store_devices", "Devices that may have items in the store but not in memory.",
            totals.evictedDevices)
        metrics.gauge(
            "store_devices_awaiting_turn", "Online devices whose items wait in the store for room in memory.",
            totals.devicesAwaitingTurn)
        metrics.gauge("store_disk_bytes", "Bytes on disk, without the write-ahead log.", store.diskBytes)
        if let freeBytes {
            metrics.gauge("store_disk_free_bytes", "Free bytes of the store's file system.", freeBytes)
        }
        metrics.gauge(
            "store_memtable_bytes", "Bytes in memtables that are not flushed yet.", store.memtableBytes)
        metrics.gauge("store_cache_bytes", "Bytes in the block cache.", store.cacheBytes)
        metrics.gauge(
            "store_queued_bytes", "Bytes that are submitted but not written yet.", store.queuedBytes)
        metrics.gauge(
            "store_pending_compaction_bytes", "Bytes that compactions have yet to rewrite.",
            store.pendingCompactionBytes)
        metrics.gauge(
            "store_write_stopped", "1 when writes wait for compactions.", store.isWriteStopped ? 1 : 0)
        metrics.counter(
            "store_background_errors", "Flushes and compactions that failed.", store.backgroundErrors)
        metrics.counter(
            "store_purges", "Partitions whose files were rewritten without erased data.", purges.completed)
        metrics.counter("store_purge_failures", "Purges that failed.", purges.failed)
        metrics.gauge(
            "store_purge_failing_since_timestamp_seconds",
            "Time since which a partition's purges fail again and again, the earliest of all partitions; 0: none.",
            Int((purges.failingSince ?? 0) / 1_000))
        metrics.gauge(
            "store_purge_pending", "Partitions whose files can have erased data.", purges.pending.count)
        metrics.gauge(
            "store_purge_oldest_timestamp_seconds",
            "Time of the first erasure whose data files can still have; 0: none.",
            Int((purges.pending.values.map(\.since).min() ?? 0) / 1_000))
        metrics.gauge(
            "store_purge_after_seconds", "Time after an erasure within which a purge begins.",
            Int(purges.delay / 1_000))
        guard intake.changelog != nil else { return }
        metrics.gauge(
            "restore_partitions", "Assigned partitions that are being opened or restored.",
            intake.opening.count + intake.restoring.count)
        metrics.counter("restore_records", "Records restored from the changelog.", intake.restoredRecords)
        metrics.counter(
            "restore_skipped_records",
            "Records of the changelog that were skipped, because they are not the store's or can't be read.",
            intake.skippedRecords)
        metrics.gauge(
            "restore_records_remaining", "Records of the changelog that remain to be restored.",
            intake.remainingRecords)
    }
}
