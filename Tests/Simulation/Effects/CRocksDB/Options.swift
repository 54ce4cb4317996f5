// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// Options of a database or a column family that the model has.
package final class Options {
    /// Length of the prefix that `prefix_same_as_start` compares.
    var prefixCount: Int?
    var hasBlobs = false
    /// Size of all memtables together from which on RocksDB flushes.
    var memtableBytes = Int.max
}

final class WriteOptions {
    var isLogged = true
    var isSynced = false
}

final class ReadOptions {
    var isPrefix = false
    var upperBound: UnsafeRawBufferPointer?
    var snapshot: Snapshot?
}

final class FlushOptions {
    var waits = true
}

/// Stands for objects that have no effect in the model.
private final class Unused {}

package func rocksdb_options_create() -> OpaquePointer { handle(Options()) }
package func rocksdb_options_destroy(_ options: OpaquePointer) { release(options) }

package func rocksdb_get_options_from_string(
    _ base: OpaquePointer, _ text: UnsafePointer<CChar>, _ options: OpaquePointer,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) {
    let (base, copy): (Options, Options) = (object(base), object(options))
    copy.prefixCount = base.prefixCount
    copy.hasBlobs = base.hasBlobs
    copy.memtableBytes = base.memtableBytes
}

package func rocksdb_options_set_db_write_buffer_size(_ options: OpaquePointer, _ value: Int) {
    object(options, Options.self).memtableBytes = value
}

package func rocksdb_options_set_enable_blob_files(_ options: OpaquePointer, _ value: UInt8) {
    object(options, Options.self).hasBlobs = value != 0
}

private final class PrefixTransform {
    let count: Int
    init(_ count: Int) { self.count = count }
}

package func rocksdb_slicetransform_create_fixed_prefix(_ count: Int) -> OpaquePointer {
    handle(PrefixTransform(count))
}

/// Takes over the transform.
package func rocksdb_options_set_prefix_extractor(_ options: OpaquePointer, _ transform: OpaquePointer) {
    object(options, Options.self).prefixCount = object(transform, PrefixTransform.self).count
    release(transform)
}

package func rocksdb_writeoptions_create() -> OpaquePointer { handle(WriteOptions()) }
package func rocksdb_writeoptions_destroy(_ options: OpaquePointer) { release(options) }
package func rocksdb_writeoptions_set_ignore_missing_column_families(_: OpaquePointer, _: UInt8) {}

package func rocksdb_writeoptions_set_sync(_ options: OpaquePointer, _ value: UInt8) {
    object(options, WriteOptions.self).isSynced = value != 0
}

package func rocksdb_writeoptions_disable_WAL(_ options: OpaquePointer, _ value: Int32) {
    object(options, WriteOptions.self).isLogged = value == 0
}

package func rocksdb_readoptions_create() -> OpaquePointer { handle(ReadOptions()) }
package func rocksdb_readoptions_destroy(_ options: OpaquePointer) { release(options) }
package func rocksdb_readoptions_set_total_order_seek(_: OpaquePointer, _: UInt8) {}
package func rocksdb_readoptions_set_fill_cache(_: OpaquePointer, _: UInt8) {}
package func rocksdb_readoptions_set_readahead_size(_: OpaquePointer, _: Int) {}

package func rocksdb_readoptions_set_prefix_same_as_start(_ options: OpaquePointer, _ value: UInt8) {
    object(options, ReadOptions.self).isPrefix = value != 0
}

package func rocksdb_readoptions_set_iterate_upper_bound(
    _ options: OpaquePointer, _ key: UnsafePointer<CChar>?, _ count: Int
) {
    object(options, ReadOptions.self).upperBound = UnsafeRawBufferPointer(start: key, count: count)
}

package func rocksdb_readoptions_set_snapshot(_ options: OpaquePointer, _ snapshot: OpaquePointer) {
    object(options, ReadOptions.self).snapshot = object(snapshot)
}

package func rocksdb_flushoptions_create() -> OpaquePointer { handle(FlushOptions()) }
package func rocksdb_flushoptions_destroy(_ options: OpaquePointer) { release(options) }
package func rocksdb_flushoptions_set_wait(_ options: OpaquePointer, _ value: UInt8) {
    object(options, FlushOptions.self).waits = value != 0
}

// MARK: Without effect

package let rocksdb_no_compression = 0
package let rocksdb_tolerate_corrupted_tail_records_recovery = 0
package let rocksdb_block_based_table_index_type_two_level_index_search = 2
package let rocksdb_disable = 0

package func sluice_return_large_blocks() {}
package func rocksdb_set_perf_level(_: Int32) {}

package func rocksdb_cache_create_lru(_: Int) -> OpaquePointer { handle(Unused()) }
package func rocksdb_cache_destroy(_ cache: OpaquePointer) { release(cache) }
package func rocksdb_cache_get_usage(_: OpaquePointer) -> Int { 0 }

package func rocksdb_create_default_env() -> OpaquePointer { handle(Unused()) }
package func rocksdb_env_destroy(_ environment: OpaquePointer) { release(environment) }
package func rocksdb_env_set_high_priority_background_threads(_: OpaquePointer, _: Int32) {}
package func rocksdb_env_set_low_priority_background_threads(_: OpaquePointer, _: Int32) {}

package func rocksdb_block_based_options_create() -> OpaquePointer { handle(Unused()) }
package func rocksdb_block_based_options_destroy(_ options: OpaquePointer) { release(options) }
package func rocksdb_filterpolicy_create_bloom_full(_: Double) -> OpaquePointer? { nil }
package func rocksdb_block_based_options_set_block_cache(_: OpaquePointer, _: OpaquePointer) {}
package func rocksdb_block_based_options_set_filter_policy(_: OpaquePointer, _: OpaquePointer?) {}
