#pragma once

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Has a database write its warnings and errors to `directory/LOG`, beginning anew at a megabyte, with the one before as
/// `LOG.old`; with a null pointer nowhere. What can't be written is left out.
void sluice_set_info_log(rocksdb_options_t *options, const char *directory);

#ifdef __cplusplus
}
#endif
