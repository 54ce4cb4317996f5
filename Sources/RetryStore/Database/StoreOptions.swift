import CRocksDB
import CRocksDBExtras
import EventLoop
import Glibc

/// RocksDB's options for a store that writes much and reads little. Each entry is replaced or removed once.
// Sendable: RocksDB copies options when it opens; the handles are only read afterwards, and freed in deinit.
final class StoreOptions: @unchecked Sendable {
    /// Options of the database, and of the column family with facts about the whole database.
    let database: OpaquePointer
    let items: OpaquePointer
    let due: OpaquePointer
    let devices: OpaquePointer
    let cache: OpaquePointer

    /// - Parameters:
    ///   - memtableBytes: limit of all column families' memtables together, including those that RocksDB is flushing.
    ///     Flushes begin at half of it.
    ///   - isReadOnly: true when single due entries are looked up as well, in memtables that hold the whole log.
    ///   - logDirectory: directory for RocksDB's warnings and errors; nil: none are written.
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
        // The list of files records the length of each log that is closed and synced. A missing or shorter log is
        // damage, which a log's tolerated end would hide.
        // Writes continue at 64 MiB/s at first, about 90,000 pushes a second, where compaction is far behind. RocksDB's
        // default is 16 MiB/s.
        let options = copy(plain, with: "track_and_verify_wals_in_manifest=true;delayed_write_rate=67108864")
        rocksdb_options_set_create_if_missing(options, 1)
        // A failed write stops all later writes until the cause is gone, rather than leaving a gap. RocksDB checks the
        // data that it reads at opening.
        rocksdb_options_set_paranoid_checks(options, 1)
        // After a power cut a log may end within a record. RocksDB drops that record, which was never acknowledged. Any
        // other damage makes the opening fail; point-in-time recovery would silently drop everything behind it.
        rocksdb_options_set_wal_recovery_mode(
            options, Int32(rocksdb_tolerate_corrupted_tail_records_recovery))
        // Memtables of all column families together: a worker has three for each of its partitions, and most are small.
        // At seven eighths of this limit RocksDB flushes the memtable with the oldest data.
        rocksdb_options_set_db_write_buffer_size(options, memtableBytes / 2)
        // After a full disk RocksDB resumes by itself when there is room for the largest memtable again.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 2)
        // A column family with rare writes would keep old logs alive. Beyond this size of the logs RocksDB flushes its
        // memtable. The size bounds how much an opening after a crash reads again.
        rocksdb_options_set_max_total_wal_size(options, 256 << 20)
        // Two threads flush, because a flush needs as long as filling a memtable. A single thread compacts, so that the
        // store's own thread gets its share.
        rocksdb_options_set_max_background_flushes(options, BackgroundThreads.flushes)
        rocksdb_options_set_max_background_compactions(options, BackgroundThreads.compactions)
        // Open files: RocksDB closes the least recently used file, and reopening it costs a load some 50 µs. The
        // default never closes a file. A third of the process's limit leaves the rest for connections.
        rocksdb_options_set_max_open_files(options, fileLimit())
        // Lets the disk write in small steps while a file is made. A large write at the file's end would hold up the
        // fsync of the log.
        rocksdb_options_set_bytes_per_sync(options, 1 << 20)
        rocksdb_options_set_wal_bytes_per_sync(options, 1 << 20)
        // Memtables need no atomic insertion, because a single thread writes.
        rocksdb_options_set_allow_concurrent_memtable_write(options, 0)
        // A background thread removes files that are no longer needed, not the thread that notices them.
        rocksdb_options_set_avoid_unnecessary_blocking_io(options, 1)
        // No periodic statistics.
        rocksdb_options_set_stats_dump_period_sec(options, 0)
        rocksdb_options_set_stats_persist_period_sec(options, 0)
        // RocksDB rewrites the list of files when the list has grown to this size.
        rocksdb_options_set_max_manifest_file_size(options, 16 << 20)
        return options
    }

    private static func fileLimit() -> Int32 {
        Int32(clamping: min(4096, max(64, ProcessFiles.limit / 3)))
    }

    /// Returns options for short keys with small values or none.
    private static func makeKeys(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int
    ) -> OpaquePointer {
        // Each file is compacted once a day. Removed items free their room, even where nothing is written any more.
        let options = copy(database, with: "periodic_compaction_seconds=86400")
        setTables(options, cache, bloomOfPrefixes: false)
        // Keys enter a memtable in any order. The memtable must fit into the processor's cache when it is sorted.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 32)
        // Each column family fills one memtable while another is flushed. With more memtables and two flushing threads,
        // this version could misorder them after a failed flush (RocksDB's release notes, 7.9.0).
        rocksdb_options_set_max_write_buffer_number(options, 2)
        // Memtables count whole blocks from the first entry on. Small blocks matter, because each of many partitions
        // has three memtables. The largest size is the size of blocks on huge pages, with the trait RocksDBTuning.
        rocksdb_options_set_arena_block_size(
            options, max(4 << 10, min(256 << 10, memtableBytes / 256)))
        // Each merge of level 0 into level 1 rewrites keys, so many files gather before. The files are small (about 40
        // bytes for a push), and a load skips most of them by their filters.
        rocksdb_options_set_level0_file_num_compaction_trigger(options, 64)
        // Partitions with equal load all reach that many files at once, and a single thread merges them in turn. The
        // last partition gathers twice as many meanwhile, which is no reason to slow writes down.
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
        // Only scans find entries, so their memtable is unordered until a scan or a flush sorts it. Sorting at once
        // costs about a third of keeping the order. A scan doesn't leave the memtable large (`StorePartition.scanDue`).
        if !isReadOnly { rocksdb_options_set_memtable_vector_rep(options) }
        // A file in which nearly all entries are removals is compacted soon. A scan from the beginning then doesn't
        // step over the removals again. Replacing leaves half of the entries as removals, which needs no hurry. Items
        // have no such collector: their removals are in random order, so each compaction would rewrite all of them.
        rocksdb_options_add_compact_on_deletion_collector_factory(options, 4096, 3584)
        return options
    }

    private static func makeItems(
        _ database: OpaquePointer, _ cache: OpaquePointer, _ memtableBytes: Int
    ) -> OpaquePointer {
        let keys = makeKeys(database, cache, memtableBytes)
        defer { rocksdb_options_destroy(keys) }
        // Device keys are hashes. Each insertion searches from where the last key with the same first byte was
        // inserted, rather than from the top. A hash table of devices needed as much time, because each flush sorts it.
        // The table needed half as much memory again.
        let options = copy(keys, with: "memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.1")
        setTables(options, cache, bloomOfPrefixes: true)
        // The bound over all column families takes effect first; this bound is for a database of one partition.
        rocksdb_options_set_write_buffer_size(options, memtableBytes / 2)
        // A device's items are read together, so filters contain devices, not items. The memtable's own filter has
        // about ten bits for each item that fits into it.
        rocksdb_options_set_prefix_extractor(
            options, rocksdb_slicetransform_create_fixed_prefix(DeviceKeyBytes.count))
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, 0.003)
        // Values are written to blob files once, when the memtable is flushed; compactions move keys and references
        // only. Without blob files each push would be written about ten times in its life.
        rocksdb_options_set_enable_blob_files(options, 1)
        rocksdb_options_set_min_blob_size(options, 128)
        rocksdb_options_set_blob_file_size(options, 64 << 20)
        // Each compaction moves the remaining values of the oldest twentieth of the blob files. When half of that
        // twentieth is garbage, RocksDB compacts the keys that refer to it. A larger part would make every compaction
        // rewrite values that nobody has removed.
        rocksdb_options_set_enable_blob_gc(options, 1)
        rocksdb_options_set_blob_gc_age_cutoff(options, 0.05)
        rocksdb_options_set_blob_gc_force_threshold(options, 0.5)
        // Read-ahead of each blob file from which a compaction moves values; all of them are read at the same time.
        rocksdb_options_set_blob_compaction_readahead_size(options, 128 << 10)
        // Single values hardly shrink: LZ4 saved a tenth of the disk for a fifth of the time of a put.
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
        // Index and filter blocks count as cached blocks, so that memory stays bounded however much is stored. Index
        // and filters are split into parts of a block's size, and the table of the parts stays cached. A large store
        // therefore doesn't read a whole filter at once.
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(tables, 1)
        rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(tables, 1)
        rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(tables, 1)
        rocksdb_block_based_options_set_index_type(
            tables, Int32(rocksdb_block_based_table_index_type_two_level_index_search))
        rocksdb_block_based_options_set_partition_filters(tables, 1)
        rocksdb_block_based_options_set_pin_top_level_index_and_filter(tables, 1)
        // Ten bits for a key: one in a hundred lookups reads a block in vain. Filters contain devices for items, and
        // whole keys elsewhere.
        rocksdb_block_based_options_set_filter_policy(tables, rocksdb_filterpolicy_create_bloom_full(10))
        rocksdb_block_based_options_set_whole_key_filtering(tables, bloomOfPrefixes ? 0 : 1)
        rocksdb_block_based_options_set_format_version(tables, 5)
        rocksdb_options_set_block_based_table_factory(options, tables)
    }

    /// Copies options, and sets an option for which the C interface has no function.
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
