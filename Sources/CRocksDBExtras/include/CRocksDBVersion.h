#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/// Version of the library that is loaded, for example "7.8.3". The text lives as long as the process.
const char *sluice_rocksdb_version(void);

#ifdef __cplusplus
}
#endif
