#pragma once

#if !__has_include(<rocksdb/c.h>)
#error "RocksDB's headers are missing: run Deploy/install-dependencies.sh, or install librocksdb-dev"
#endif
#include <malloc.h>
#include <rocksdb/c.h>

// Its version is told by a C++ header alone, which C can't include. This is named by 7.7 and all later ones; if it isn't
// known here, RocksDB is too old: Debian 12, Ubuntu 24.04 and later have one that is new enough.
enum { sluice_needs_rocksdb_7_7_or_later = rocksdb_prepopulate_blob_flush_only };

// Large blocks, as those of memtables that aren't on huge pages, come and go. Allocated apart from everything else, each goes
// back to the system when it is freed; from the heap, what is allocated between them would keep twice their size resident.
static inline void sluice_return_large_blocks(void) {
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}
