#pragma once

#include <rocksdb/c.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Creates column families. After a failure, column families created before it have a handle; all others have a null
/// pointer.
///
/// - Parameter failure: set on a failure; freed by the caller with `rocksdb_free`.
void sluice_create_column_families(
    rocksdb_t *database, size_t count, const rocksdb_options_t *const *options, const char *const *names,
    rocksdb_column_family_handle_t **handles, char **failure);

/// Drops column families; a column family that was dropped before is no failure. Handles stay valid until they are
/// destroyed.
///
/// - Parameter left: for each column family, whether the database still has it.
void sluice_drop_column_families(
    rocksdb_t *database, size_t count, rocksdb_column_family_handle_t *const *handles, bool *left, char **failure);

#ifdef __cplusplus
}
#endif
