#pragma once

#include <stddef.h>
#include <stdint.h>

/// Returns the CRC-32C (Castagnoli; RFC 3720, appendix B.4) of bytes that follow those of `checksum`. For the first
/// bytes `checksum` is 0.
uint32_t sluice_crc32c_extend(uint32_t checksum, const char *bytes, size_t count);

/// Returns whether RocksDB computes its checksums with the function above. True on x86-64, in programs that have the
/// function among their own objects.
int sluice_crc32c_serves_rocksdb(void);
