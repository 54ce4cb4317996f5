#pragma once

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes column families. On a failure those that were made before it have a handle, the others null.
///
/// - Parameter failure: as of RocksDB's own functions: set where it failed, to be freed with `rocksdb_free`.
void sluice_create_column_families(
    rocksdb_t *database, size_t count, const rocksdb_options_t *const *options, const char *const *names,
    rocksdb_column_family_handle_t **handles, char **failure);

/// Drops column families; one that was dropped before is none that fails. Their handles stay valid until they are destroyed.
///
/// - Parameter left: for each whether it is still there.
void sluice_drop_column_families(
    rocksdb_t *database, size_t count, rocksdb_column_family_handle_t *const *handles, bool *left, char **failure);

#ifdef __cplusplus
}
#endif
