#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The one size of block that is taken from huge pages: that of RocksDB's memtables where their bound is 64 MiB or more.
enum { sluice_memtable_block_bytes = 256 << 10 };

/// Blocks of that size which are in use now, of those that come from huge pages.
size_t sluice_memtable_blocks(void);

/// Memory that the system has given for them, or will when it is touched.
size_t sluice_memtable_bytes(void);

/// What RocksDB calls, for tests: C++'s `new char[bytes]` and `delete[]`.
void *sluice_memtable_new(size_t bytes);
void sluice_memtable_delete(void *block);

#ifdef __cplusplus
}
#endif
