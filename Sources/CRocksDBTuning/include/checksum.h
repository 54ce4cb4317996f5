#pragma once

#include <stddef.h>
#include <stdint.h>

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of bytes that follow those whose checksum is given; of the first ones it is 0.
uint32_t sluice_crc32c_extend(uint32_t checksum, const char *bytes, size_t count);

/// Whether RocksDB computes its checksums with the function above: on x86-64, in programs that have it among their own
/// objects.
int sluice_crc32c_serves_rocksdb(void);
