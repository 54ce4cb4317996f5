#pragma once

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Rewrites all tables of a column family, the last level included, and moves all values in use to new blob files.
/// Blocks until that is done, fails, or is ended by `rocksdb_disable_manual_compaction`.
///
/// - Parameter failure: set on a failure; freed by the caller with `rocksdb_free`.
void sluice_rewrite_column_family(
    rocksdb_t *database, rocksdb_column_family_handle_t *family, char **failure);

/// Deletes all files of the directory that the database doesn't need any more, logs of earlier processes included.
///
/// - Parameter failure: set on a failure; freed by the caller with `rocksdb_free`.
void sluice_delete_obsolete_files(rocksdb_t *database, char **failure);

/// Calls `visit` with the name of each table and blob file that a column family's current version has, without the
/// directory.
void sluice_visit_files(
    rocksdb_t *database, rocksdb_column_family_handle_t *family, void (*visit)(void *context, const char *name),
    void *context);

#ifdef __cplusplus
}
#endif
