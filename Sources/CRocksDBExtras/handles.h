// Layouts of the C interface's handles, which RocksDB keeps private (db/c.cc). Each handle is an object whose first
// member is the C++ object. Libraries of another minor version have another name, so the version compiled against is
// the version at run time.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

// Versions whose layouts were compared with db/c.cc. For another version: compare the structures below, run
// `make test ARGS='--filter RetryStoreTests'`, and extend the range.
#if ROCKSDB_MAJOR * 100 + ROCKSDB_MINOR < 707 || ROCKSDB_MAJOR * 100 + ROCKSDB_MINOR > 910
#error "CRocksDBExtras knows RocksDB 7.7 to 9.10: compare Sources/CRocksDBExtras/handles.h with db/c.cc of this version"
#endif

struct rocksdb_t {
    rocksdb::DB *rep;
};

struct rocksdb_options_t {
    rocksdb::Options rep;
};

struct rocksdb_column_family_handle_t {
    rocksdb::ColumnFamilyHandle *rep;
#if ROCKSDB_MAJOR * 100 + ROCKSDB_MINOR > 901
    // True for the default column family's handle alone, which nobody destroys (RocksDB's pull request 12514).
    bool immortal = false;
#endif
};
