#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Size in bytes of the blocks on huge pages. RocksDB's memtables have this block size where their bound is 64 MiB or
/// more.
enum { sluice_memtable_block_bytes = 256 << 10 };

/// Returns the number of blocks in use in the region of huge pages.
size_t sluice_memtable_blocks(void);

/// Returns the bytes that the system has provided for that region, or will provide when they are touched.
size_t sluice_memtable_bytes(void);

/// Replacements for C++'s `new char[bytes]` and `delete[]`, which RocksDB calls; for tests.
void *sluice_memtable_new(size_t bytes);
void sluice_memtable_delete(void *block);

#ifdef __cplusplus
}
#endif
