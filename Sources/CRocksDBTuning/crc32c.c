// RocksDB checks each record of its log and each blob with CRC-32C. Distributions build it for the oldest processors,
// where it uses tables. That costs a tenth of storing a push. A program's own symbols take precedence over those of its
// libraries. This function therefore replaces RocksDB's function of the same name, and uses the processor's
// instruction. Where RocksDB has no function of that name, this function is never called.
#define _GNU_SOURCE
#include "checksum.h"

#include <dlfcn.h>
#include <string.h>

static uint32_t bit_by_bit(uint32_t checksum, const char *bytes, size_t count) {
    uint32_t state = ~checksum;
    for (; count > 0; bytes++, count--) {
        state ^= (unsigned char)*bytes;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (0x82f63b78 & -(state & 1));
    }
    return ~state;
}

#if defined(__x86_64__)

// C++ name of rocksdb::crc32c::Extend(uint32_t, const char *, size_t).
#define ROCKSDB_EXTEND "_ZN7rocksdb6crc32c6ExtendEjPKcm"

typedef uint32_t extend_function(uint32_t, const char *, size_t);

__attribute__((visibility("default"))) extend_function extend_for_rocksdb __asm__(ROCKSDB_EXTEND);

__attribute__((target("sse4.2"))) static uint32_t by_instruction(
    uint32_t checksum, const char *bytes, size_t count) {
    uint64_t state = ~checksum;
    for (; count >= 8; bytes += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        state = __builtin_ia32_crc32di(state, word);
    }
    for (; count > 0; bytes++, count--) {
        state = __builtin_ia32_crc32qi((uint32_t)state, (unsigned char)*bytes);
    }
    return ~(uint32_t)state;
}

uint32_t extend_for_rocksdb(uint32_t checksum, const char *bytes, size_t count) {
    if (__builtin_cpu_supports("sse4.2")) return by_instruction(checksum, bytes, count);
    // Looks up RocksDB's own function, which this function hides. Two threads that look it up at once find the same.
    static extend_function *found;
    extend_function *extend = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!extend) {
        extend = (extend_function *)dlsym(RTLD_NEXT, ROCKSDB_EXTEND);
        if (!extend) extend = bit_by_bit;
        __atomic_store_n(&found, extend, __ATOMIC_RELAXED);
    }
    return extend(checksum, bytes, count);
}

uint32_t sluice_crc32c_extend(uint32_t checksum, const char *bytes, size_t count) {
    return extend_for_rocksdb(checksum, bytes, count);
}

int sluice_crc32c_serves_rocksdb(void) {
    return dlsym(RTLD_DEFAULT, ROCKSDB_EXTEND) == (void *)extend_for_rocksdb;
}

#else  // Elsewhere RocksDB asks the processor itself.

uint32_t sluice_crc32c_extend(uint32_t checksum, const char *bytes, size_t count) {
    return bit_by_bit(checksum, bytes, count);
}

int sluice_crc32c_serves_rocksdb(void) { return 0; }

#endif
