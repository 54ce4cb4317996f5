// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Options that have no effect in the model.

package func rocksdb_block_based_options_set_cache_index_and_filter_blocks(_: OpaquePointer, _: UInt8) {}
package func rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(
    _: OpaquePointer, _: UInt8
) {}
package func rocksdb_block_based_options_set_format_version(_: OpaquePointer, _: Int32) {}
package func rocksdb_block_based_options_set_index_type(_: OpaquePointer, _: Int32) {}
package func rocksdb_block_based_options_set_partition_filters(_: OpaquePointer, _: UInt8) {}
package func rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
    _: OpaquePointer, _: UInt8
) {}
package func rocksdb_block_based_options_set_pin_top_level_index_and_filter(_: OpaquePointer, _: UInt8) {}
package func rocksdb_block_based_options_set_whole_key_filtering(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_add_compact_on_deletion_collector_factory(_: OpaquePointer, _: Int, _: Int) {}
package func rocksdb_options_set_allow_concurrent_memtable_write(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_set_arena_block_size(_: OpaquePointer, _: Int) {}
package func rocksdb_options_set_avoid_unnecessary_blocking_io(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_set_blob_compaction_readahead_size(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_blob_compression_type(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_blob_file_size(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_blob_gc_age_cutoff(_: OpaquePointer, _: Double) {}
package func rocksdb_options_set_blob_gc_force_threshold(_: OpaquePointer, _: Double) {}
package func rocksdb_options_set_block_based_table_factory(_: OpaquePointer, _: OpaquePointer) {}
package func rocksdb_options_set_bytes_per_sync(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_compression(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_create_if_missing(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_set_enable_blob_gc(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_set_level0_file_num_compaction_trigger(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_level0_slowdown_writes_trigger(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_level0_stop_writes_trigger(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_max_background_compactions(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_max_background_flushes(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_max_bytes_for_level_base(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_max_manifest_file_size(_: OpaquePointer, _: Int) {}
package func rocksdb_options_set_max_open_files(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_max_total_wal_size(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_max_write_buffer_number(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_memtable_prefix_bloom_size_ratio(_: OpaquePointer, _: Double) {}
package func rocksdb_options_set_memtable_vector_rep(_: OpaquePointer) {}
package func rocksdb_options_set_min_blob_size(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_paranoid_checks(_: OpaquePointer, _: UInt8) {}
package func rocksdb_options_set_stats_dump_period_sec(_: OpaquePointer, _: UInt32) {}
package func rocksdb_options_set_stats_persist_period_sec(_: OpaquePointer, _: UInt32) {}
package func rocksdb_options_set_target_file_size_base(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_wal_bytes_per_sync(_: OpaquePointer, _: UInt64) {}
package func rocksdb_options_set_wal_recovery_mode(_: OpaquePointer, _: Int32) {}
package func rocksdb_options_set_write_buffer_size(_: OpaquePointer, _: Int) {}
