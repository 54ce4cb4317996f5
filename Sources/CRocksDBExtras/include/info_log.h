#pragma once

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a database write warnings and errors to `directory/LOG`, or nowhere when `directory` is null. A file of more
/// than a megabyte is renamed to `LOG.old`. Lines that can't be written are dropped.
void sluice_set_info_log(rocksdb_options_t *options, const char *directory);

/// Version of the library that is loaded, for example "7.8.3". Lives as long as the process.
const char *sluice_rocksdb_version(void);

#ifdef __cplusplus
}
#endif
