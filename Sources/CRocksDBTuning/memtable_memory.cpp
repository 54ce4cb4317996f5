// A put touches its memtable in no order, and so the processor's table of pages (TLB). That table is too small for tens
// of megabytes of small pages. On a virtual machine each miss walks two such tables, which cost a fifth of putting a
// push. RocksDB can use huge pages only if the machine's administrator has reserved some.
//
// RocksDB allocates a memtable's blocks with `new char[]`, which a program may replace (C++ standard,
// [replacement.functions]). Here blocks of that size are from a region for which the system makes huge pages when it
// has them. All other allocations are unchanged. Freed blocks are reused without returning to the system each time.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memtable_memory.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

namespace {

constexpr size_t block_bytes = sluice_memtable_block_bytes;
/// Size of a huge page on x86-64 and, with small pages of 4 KiB, on ARM.
constexpr size_t slab_bytes = 2 << 20;
constexpr size_t slab_count = 256;
constexpr size_t region_bytes = slab_count * slab_bytes;
constexpr uint8_t all_free = 0xff;
static_assert(slab_bytes / block_bytes == 8, "one bit for each block");
/// Most slabs without a block in use that keep their memory for the next memtable.
constexpr size_t most_spare = 8;

std::mutex lock;
/// Begin of the region; null before its first use, and where there is none. The value never changes once it is set.
std::atomic<char *> region;
bool was_tried;
/// State of each slab: a bit for each free block, and whether the slab may have memory.
uint8_t free_blocks[slab_count];
bool has_memory[slab_count];
size_t used;
size_t backed;
size_t spare;

bool is_in_region(const void *address) {
    char *begin = region.load(std::memory_order_relaxed);
    return begin && static_cast<const char *>(address) >= begin && static_cast<const char *>(address) < begin + region_bytes;
}

/// Reserves addresses only: no memory counts before it is used.
void reserve() {
    was_tried = true;
    void *mapped = mmap(nullptr, region_bytes + slab_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return;
    auto begin = (reinterpret_cast<uintptr_t>(mapped) + slab_bytes - 1) & ~(slab_bytes - 1);
    for (uint8_t &blocks : free_blocks) blocks = all_free;
    region.store(reinterpret_cast<char *>(begin), std::memory_order_relaxed);
}

/// Returns a slab for the next block; `slab_count`: none is free. Prefers a slab in use, so that other slabs become
/// free, then a slab with memory.
size_t slab_for_next() {
    size_t with_memory = slab_count, other = slab_count;
    for (size_t slab = 0; slab < slab_count; slab++) {
        if (free_blocks[slab] == 0) continue;
        if (free_blocks[slab] != all_free) return slab;
        size_t &first = has_memory[slab] ? with_memory : other;
        if (first == slab_count) first = slab;
    }
    return with_memory != slab_count ? with_memory : other;
}

/// Returns a block; null where there is no region, no room in it, or no memory.
void *take() {
    std::lock_guard<std::mutex> guard(lock);
    if (!was_tried) reserve();
    char *begin = region.load(std::memory_order_relaxed);
    if (!begin) return nullptr;
    size_t slab = slab_for_next();
    if (slab == slab_count) return nullptr;
    char *memory = begin + slab * slab_bytes;
    if (!has_memory[slab]) {
        if (mprotect(memory, slab_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
        // The system uses small pages where it has no huge pages, or may not make any.
        madvise(memory, slab_bytes, MADV_HUGEPAGE);
        has_memory[slab] = true;
        backed++;
    } else if (free_blocks[slab] == all_free) {
        spare--;
    }
    int block = __builtin_ctz(free_blocks[slab]);
    free_blocks[slab] &= ~(1u << block);
    used++;
    return memory + block * block_bytes;
}

void give(void *address) {
    std::lock_guard<std::mutex> guard(lock);
    char *begin = region.load(std::memory_order_relaxed);
    size_t offset = static_cast<char *>(address) - begin;
    size_t slab = offset / slab_bytes;
    free_blocks[slab] |= 1u << (offset % slab_bytes / block_bytes);
    used--;
    if (free_blocks[slab] != all_free) return;
    if (spare < most_spare) {
        spare++;
        return;
    }
    // Inaccessible memory doesn't count as the process's memory.
    char *memory = begin + slab * slab_bytes;
    madvise(memory, slab_bytes, MADV_DONTNEED);
    mprotect(memory, slab_bytes, PROT_NONE);
    has_memory[slab] = false;
    backed--;
}

}  // namespace

void *operator new[](size_t bytes) {
    if (bytes == block_bytes) {
        if (void *block = take()) return block;
    }
    return ::operator new(bytes);
}

void operator delete[](void *address) noexcept {
    if (is_in_region(address)) return give(address);
    ::operator delete(address);
}

void operator delete[](void *address, size_t) noexcept { operator delete[](address); }

// RocksDB calls this function to learn how much memory a memtable takes.
extern "C" size_t malloc_usable_size(void *address) noexcept {
    using function = size_t(void *);
    if (is_in_region(address)) return block_bytes;
    // Looks up the C library's function. Two threads that look it up at once find the same.
    static std::atomic<function *> found;
    function *library = found.load(std::memory_order_relaxed);
    if (!library) {
        library = reinterpret_cast<function *>(dlsym(RTLD_NEXT, "malloc_usable_size"));
        if (!library) return 0;
        found.store(library, std::memory_order_relaxed);
    }
    return library(address);
}

size_t sluice_memtable_blocks(void) {
    std::lock_guard<std::mutex> guard(lock);
    return used;
}

size_t sluice_memtable_bytes(void) {
    std::lock_guard<std::mutex> guard(lock);
    return backed * slab_bytes;
}

void *sluice_memtable_new(size_t bytes) { return new char[bytes]; }

void sluice_memtable_delete(void *block) { delete[] static_cast<char *>(block); }
