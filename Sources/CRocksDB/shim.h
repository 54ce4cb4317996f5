#pragma once

#if !__has_include(<rocksdb/c.h>)
#error "RocksDB's headers are missing: run Deploy/install-dependencies.sh, or install librocksdb-dev"
#endif
#include <malloc.h>
#include <rocksdb/c.h>

// RocksDB's version is in a C++ header, which C can't include. This constant exists since 7.7. If it is undefined, RocksDB
// is too old: Debian 12, Ubuntu 24.04 and later have a new enough version.
enum { sluice_needs_rocksdb_7_7_or_later = rocksdb_prepopulate_blob_flush_only };

// Allocates large blocks, such as memtables that aren't on huge pages, outside of the heap. They return to the system when
// they are freed. On the heap, allocations between such blocks would keep twice their size resident.
static inline void sluice_return_large_blocks(void) {
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}
