#pragma once

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a database write warnings and errors to `directory/LOG`, or nowhere when `directory` is null. A file of more
/// than a megabyte is renamed to `LOG.old`. Lines that can't be written are dropped.
void sluice_set_info_log(rocksdb_options_t *options, const char *directory);

#ifdef __cplusplus
}
#endif
