import CRocksDB
import CRocksDBExtras
import EventLoop
import Glibc

/// How RocksDB is set up: much is written, each entry is replaced or removed once, and little is read.
// Sendable: RocksDB copies options when it opens; the handles are only read afterwards, and freed in deinit.
final class StoreOptions: @unchecked Sendable {
    /// Of the database and of the column family with what is known of all of it.
    let database: OpaquePointer
    let items: OpaquePointer
    let due: OpaquePointer
    let devices: OpaquePointer
    let cache: OpaquePointer

    /// - Parameters:
    ///   - memtableBytes: of all column families together, at most: they are written out from half of it on, and what is
    ///     being written out counts.
    ///   - isReadOnly: single due entries are looked for as well, in memtables with all that the log has.
    ///   - logDirectory: where RocksDB tells of warnings and errors; nil: nowhere.
    init(
        blockCacheBytes: Int, memtableBytes: Int, isReadOnly: Bool = false, logDirectory: String? = nil
    ) {
        sluice_return_large_blocks()
        cache = rocksdb_cache_create_lru(blockCacheBytes)
        database = Self.makeDatabase(memtableBytes)
        sluice_set_info_log(database, logDirectory)
        due = Self.makeDue(database, cache, memtableBytes, isReadOnly: isReadOnly)
        items = Self.makeItems(database, cache, memtableBytes)
        devices = Self.makeDevices(database, cache, memtableBytes)
    }

    deinit {
        rocksdb_options_destroy(devices)
        rocksdb_options_destroy(items)
        rocksdb_options_destroy(due)
        rocksdb_options_destroy(database)
        rocksdb_cache_destroy(cache)
    }

    func options(of kind: StorePartition.Kind) -> OpaquePointer {
        switch kind {
        case .items: items
        case .due: due
        case .devices: devices
        }
    }

    private static func makeDatabase(_ memtableBytes: Int) -> OpaquePointer {
        let plain: OpaquePointer = rocksdb_options_create()
        defer { rocksdb_options_destroy(plain) }
        // The list of files says how long each log was that is closed and synced: one that is missing or shorter is damage,
        // which a log's tolerated end would hide.
        // Where merging is far behind, writes go on at 64 MiB/s, about 90,000 pushes, at first, rather than at 16.
        let options = copy(plain, with: "track_and_verify_wals_in_manifest=true;delayed_write_rate=67108864")
        rocksdb_options_set_create_if_missing(options, 1)
        // A write that can't be carried out stops all later ones until the cause is gone, rather than leaving a gap;
        // what is read at opening is checked.
        rocksdb_options_set_paranoid_checks(options, 1)
        // After a power cut a log may end within a record: that one was never acknowledged, and is dropped. Any other
        // damage refuses to open; point-in-time recovery would silently drop all that stands behind it.
        rocksdb_options_set_wal_recovery_mode(
            options, Int32(rocksdb_tolerate_corrupted_tail_records_recovery))
        // Memtables of all column families together: a worker has three for each of its partitions, and most are small.
        // When they reach seven eighths of it, the one with the oldest data is written out.
        rocksdb_options_set_db_write_buffer_size(options, memtableBytes / 2)
        // After a full disk RocksDB goes on by itself when there is room for the largest memtable again.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 2)
        // A column family that is written rarely would keep old logs alive: beyond this its memtable is written out.
        // It bounds what an opening after a crash has to read again.
        rocksdb_options_set_max_total_wal_size(options, 256 << 20)
        // Writing memtables out takes as long as filling them, so two threads do that; one compacts, so that the store's own
        // thread gets its share.
        rocksdb_options_set_max_background_flushes(options, BackgroundThreads.flushes)
        rocksdb_options_set_max_background_compactions(options, BackgroundThreads.compactions)
        // Open files: RocksDB closes the one that was used least recently, and opening it again costs a load some 50 µs. The
        // default never closes one; a third of what the process may have leaves the rest for connections.
        rocksdb_options_set_max_open_files(options, fileLimit())
        // Lets the disk write in small steps while a file is made, instead of all at its end, which would hold up the
        // fsync of the log.
        rocksdb_options_set_bytes_per_sync(options, 1 << 20)
        rocksdb_options_set_wal_bytes_per_sync(options, 1 << 20)
        // One thread writes, so memtables need no atomic insertion.
        rocksdb_options_set_allow_concurrent_memtable_write(options, 0)
        // Files that are no longer needed are removed in the background, not by the thread that notices.
        rocksdb_options_set_avoid_unnecessary_blocking_io(options, 1)
        // No periodic statistics.
        rocksdb_options_set_stats_dump_period_sec(options, 0)
        rocksdb_options_set_stats_persist_period_sec(options, 0)
        // The list of files is written anew when it has grown to this.
        rocksdb_options_set_max_manifest_file_size(options, 16 << 20)
        return options
    }

    private static func fileLimit() -> Int32 {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 256 }
        return Int32(clamping: min(4096, max(64, limit.rlim_cur / 3)))
    }

    /// For short keys with small values or none.
    private static func makeKeys(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int
    ) -> OpaquePointer {
        // Each file is compacted once a day: removed items give their room back, even where nothing is written any more.
        let options = copy(database, with: "periodic_compaction_seconds=86400")
        setTables(options, cache, bloomOfPrefixes: false)
        // Keys come into a memtable in any order: it is to fit into the processor's cache when it is put in order.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 32)
        // Of each column family one is filled while one is written out. With more of them, and two threads that write out, this
        // version of RocksDB could take them in a wrong order after one has failed (its release notes, 7.9.0).
        rocksdb_options_set_max_write_buffer_number(options, 2)
        // Counted in full from the first entry on: with three memtables for each of many partitions small blocks matter.
        // The largest size is the size of blocks on huge pages, with the trait RocksDBTuning.
        rocksdb_options_set_arena_block_size(
            options, max(4 << 10, min(256 << 10, memtableBytes / 256)))
        // Keys are rewritten each time that level 0 is merged into level 1, so many files are gathered before. They are
        // small (about 40 bytes for a push), and a load skips most of them by their filters.
        rocksdb_options_set_level0_file_num_compaction_trigger(options, 64)
        // Partitions that are filled alike all have so many at once, and one thread merges them in turn: the last gathers twice
        // as many meanwhile, which is no reason to slow writes down.
        rocksdb_options_set_level0_slowdown_writes_trigger(options, 256)
        rocksdb_options_set_level0_stop_writes_trigger(options, 512)
        rocksdb_options_set_max_bytes_for_level_base(options, 256 << 20)
        rocksdb_options_set_target_file_size_base(options, 16 << 20)
        // Keys are random: compressing them costs more than it saves.
        rocksdb_options_set_compression(options, Int32(rocksdb_no_compression))
        return options
    }

    private static func makeDue(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int, isReadOnly: Bool
    ) -> OpaquePointer {
        let options = makeKeys(database, cache, memtableBytes)
        // Entries are found by scans alone, so their memtable has no order until a scan or a flush puts it in order at once,
        // which costs about a third of keeping it. A scan doesn't leave it large (`StorePartition.scanDue`).
        if !isReadOnly { rocksdb_options_set_memtable_vector_rep(options) }
        // A file in which nearly all entries are removals is compacted soon, so that a scan from the beginning doesn't step
        // over them again. Half of them is what replacing leaves, and nothing to hurry for. Not for items, which are removed
        // in random order: each such compaction would write all of them anew.
        rocksdb_options_add_compact_on_deletion_collector_factory(options, 4096, 3584)
        return options
    }

    private static func makeItems(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int
    ) -> OpaquePointer {
        let keys = makeKeys(database, cache, memtableBytes)
        defer { rocksdb_options_destroy(keys) }
        // Device keys are hashes: each is looked for from where the last one with its first byte went, rather than from the
        // top. A hash table of devices took as much time, in putting it in order at each flush, and half as much memory again.
        let options = copy(keys, with: "memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.1")
        setTables(options, cache, bloomOfPrefixes: true)
        // The bound over all column families comes first; this is for a database of one partition.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 2)
        // A device's items are read together: filters know devices, not items. The memtable's own filter has about ten
        // bits for each item that fits into it.
        rocksdb_options_set_prefix_extractor(
            options, rocksdb_slicetransform_create_fixed_prefix(DeviceKeyBytes.count))
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, 0.003)
        // Values go to blob files once, when the memtable is written out; compactions move keys and references only.
        // Without it each push would be written about ten times in its life.
        rocksdb_options_set_enable_blob_files(options, 1)
        rocksdb_options_set_min_blob_size(options, 128)
        rocksdb_options_set_blob_file_size(options, 64 << 20)
        // Each compaction moves what is left of the oldest twentieth of the blob files; when half of that is garbage, the
        // keys that refer to it are compacted for its sake. A larger part would have every compaction write values anew
        // that nobody has removed.
        rocksdb_options_set_enable_blob_gc(options, 1)
        rocksdb_options_set_blob_gc_age_cutoff(options, 0.05)
        rocksdb_options_set_blob_gc_force_threshold(options, 0.5)
        // Of each blob file that a compaction moves something of; all of them at the same time.
        rocksdb_options_set_blob_compaction_readahead_size(options, 128 << 10)
        // Each value by itself hardly shrinks: LZ4 saved a tenth of the disk for a fifth of the time of a put.
        rocksdb_options_set_blob_compression_type(options, Int32(rocksdb_no_compression))
        return options
    }

    private static func makeDevices(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int
    ) -> OpaquePointer {
        let options = makeKeys(database, cache, memtableBytes)
        setTables(options, cache, bloomOfPrefixes: false)
        return options
    }

    private static func setTables(_ options: OpaquePointer, _ cache: OpaquePointer, bloomOfPrefixes: Bool) {
        let tables: OpaquePointer = rocksdb_block_based_options_create()
        defer { rocksdb_block_based_options_destroy(tables) }
        rocksdb_block_based_options_set_block_cache(tables, cache)
        // Index and filter blocks count as cached blocks, so that memory stays bounded however much is stored. In parts
        // of a block's size, with the table of the parts kept, so that a large store doesn't read a whole filter at once.
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(tables, 1)
        rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(tables, 1)
        rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(tables, 1)
        rocksdb_block_based_options_set_index_type(
            tables, Int32(rocksdb_block_based_table_index_type_two_level_index_search))
        rocksdb_block_based_options_set_partition_filters(tables, 1)
        rocksdb_block_based_options_set_pin_top_level_index_and_filter(tables, 1)
        // Ten bits: one in a hundred lookups reads a block in vain. Of devices for items, of whole keys elsewhere.
        rocksdb_block_based_options_set_filter_policy(tables, rocksdb_filterpolicy_create_bloom_full(10))
        rocksdb_block_based_options_set_whole_key_filtering(tables, bloomOfPrefixes ? 0 : 1)
        rocksdb_block_based_options_set_format_version(tables, 5)
        rocksdb_options_set_block_based_table_factory(options, tables)
    }

    /// A copy with an option for which the C interface has no function.
    private static func copy(_ options: OpaquePointer, with option: String) -> OpaquePointer {
        let copy: OpaquePointer = rocksdb_options_create()
        do {
            try rocks { rocksdb_get_options_from_string(options, option, copy, $0) }
        } catch {
            preconditionFailure("RocksDB doesn't know an option: \(error.text)")
        }
        return copy
    }
}
