#pragma once

#if !__has_include(<rocksdb/c.h>)
#error "RocksDB's headers are missing: run Deploy/install-dependencies.sh, or install librocksdb-dev"
#endif
#include <rocksdb/c.h>

// Its version is told by a C++ header alone, which C can't include. This is named by 7.7 and all later ones; if it isn't
// known here, RocksDB is too old: Debian 12, Ubuntu 24.04 and later have one that is new enough.
enum { sluice_needs_rocksdb_7_7_or_later = rocksdb_prepopulate_blob_flush_only };
