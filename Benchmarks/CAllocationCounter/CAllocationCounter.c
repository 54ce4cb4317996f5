#define _GNU_SOURCE
#include "CAllocationCounter.h"
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

// glibc's own, under the names that stay when malloc is replaced.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { maximum_traces = 16384, depth = 12 };

static __thread bool is_counting;
// Set while an allocation is being recorded: what that allocates itself is not the program's.
static __thread bool is_recording;
static __thread sluice_allocation_counts counts;

// The count of all threads, except for the thread that began it.
static atomic_bool is_counting_all;
static __thread bool is_exempt;
static _Atomic uint64_t all_mallocs, all_swift, all_named;
static char name_prefix[16];

// A single count at a time.
static void *traces[maximum_traces][depth];
static int trace_lengths[maximum_traces];
static bool trace_is_swift[maximum_traces];
static atomic_int trace_count;
static int trace_limit;

static void record(bool is_swift) {
    // The C libraries' many must not crowd out Swift's few.
    if (trace_count >= (is_swift ? trace_limit : trace_limit / 2)) return;
    int place = atomic_fetch_add(&trace_count, 1);
    if (place >= trace_limit) {
        atomic_fetch_sub(&trace_count, 1);
        return;
    }
    is_recording = true;
    trace_lengths[place] = backtrace(traces[place], depth);
    trace_is_swift[place] = is_swift;
    is_recording = false;
}

// Code of the program and of the Swift runtime. The runtime's allocators end in malloc, by a call or by a jump; so
// what malloc returns to lies in the runtime or in the program, for objects, arrays and memory taken by hand alike.
struct range {
    uintptr_t start, end;
};
enum { maximum_ranges = 32 };
static struct range ranges[maximum_ranges];
static int range_count;

static bool is_of_swift(void *caller) {
    bool is_swift = false;
    for (int i = 0; i < range_count; i++) {
        is_swift |= (uintptr_t)caller >= ranges[i].start && (uintptr_t)caller < ranges[i].end;
    }
    return is_swift;
}

static __attribute__((noinline)) void count_of_all(void *caller) {
    if (is_recording || is_exempt) return;
    atomic_fetch_add_explicit(&all_mallocs, 1, memory_order_relaxed);
    if (!is_of_swift(caller)) return;
    atomic_fetch_add_explicit(&all_swift, 1, memory_order_relaxed);
    char name[16] = {0};
    if (prctl(PR_GET_NAME, name) == 0 && strncmp(name, name_prefix, strlen(name_prefix)) == 0) {
        atomic_fetch_add_explicit(&all_named, 1, memory_order_relaxed);
    }
    record(true);
}

static inline void count_malloc(void *caller) {
    if (__builtin_expect(atomic_load_explicit(&is_counting_all, memory_order_relaxed), 0)) return count_of_all(caller);
    if (__builtin_expect(!is_counting || is_recording, 1)) return;
    counts.mallocs++;
    bool is_swift = is_of_swift(caller);
    counts.swift += is_swift;
    record(is_swift);
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size) {
    count_malloc(CALLER);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    count_malloc(CALLER);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    count_malloc(CALLER);
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    count_malloc(CALLER);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count_malloc(CALLER);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
    count_malloc(CALLER);
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL) return ENOMEM;
    *result = memory;
    return 0;
}

static int add_range(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    (void)context;
    const char *file = strrchr(info->dlpi_name, '/');
    // The program itself has no name.
    if (info->dlpi_name[0] != 0 && (file == NULL || strncmp(file, "/libswift", 9) != 0)) return 0;
    for (int i = 0; i < info->dlpi_phnum && range_count < maximum_ranges; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X)) continue;
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        ranges[range_count++] = (struct range){start, start + header->p_memsz};
    }
    return 0;
}

void sluice_allocations_prepare(void) {
    range_count = 0;
    dl_iterate_phdr(add_range, NULL);
    // Its first call loads the unwinder.
    void *frames[depth];
    backtrace(frames, depth);
}

void sluice_allocations_begin(int limit) {
    trace_count = 0;
    trace_limit = limit < maximum_traces ? limit : maximum_traces;
    counts = (sluice_allocation_counts){0};
    is_counting = true;
}

sluice_allocation_counts sluice_allocations_end(void) {
    is_counting = false;
    return counts;
}

void sluice_allocations_begin_all(int limit, const char *prefix) {
    is_exempt = true;
    snprintf(name_prefix, sizeof name_prefix, "%s", prefix);
    trace_count = 0;
    trace_limit = limit < maximum_traces ? limit : maximum_traces;
    all_mallocs = 0;
    all_swift = 0;
    all_named = 0;
    is_counting_all = true;
}

sluice_allocation_counts sluice_allocations_end_all(void) {
    is_counting_all = false;
    is_exempt = false;
    return (sluice_allocation_counts){.mallocs = all_mallocs, .swift = all_swift, .named = all_named};
}

// Two allocations are of one kind when their innermost callers are.
static bool is_same(int a, int b, int frames) {
    for (int i = 0; i < frames; i++) {
        if (i >= trace_lengths[a] || i >= trace_lengths[b]) return trace_lengths[a] == trace_lengths[b];
        if (traces[a][i] != traces[b][i]) return false;
    }
    return true;
}

void sluice_allocations_describe(char *text, int capacity) {
    enum { compared = 8, first = 2 };
    static int kinds[maximum_traces], sizes[maximum_traces];
    int kind_count = 0, used = 0;
    for (int trace = 0; trace < trace_count; trace++) {
        int kind = 0;
        while (kind < kind_count && !is_same(kinds[kind], trace, compared)) kind++;
        if (kind == kind_count) {
            kinds[kind_count] = trace;
            sizes[kind_count++] = 0;
        }
        sizes[kind]++;
    }
    // Swift's first.
    for (int kind = 0; kind < kind_count; kind++) {
        if (trace_is_swift[kinds[kind]]) sizes[kind] += maximum_traces;
    }
    text[0] = 0;
    for (int printed = 0; printed < kind_count && used < capacity; printed++) {
        int best = 0;
        for (int kind = 1; kind < kind_count; kind++) {
            if (sizes[kind] > sizes[best]) best = kind;
        }
        bool is_swift = sizes[best] > maximum_traces;
        used += snprintf(
            text + used, capacity - used, "%s %d ×", is_swift ? "Swift:" : "C:",
            is_swift ? sizes[best] - maximum_traces : sizes[best]);
        sizes[best] = -1;
        for (int i = first; i < compared && i < trace_lengths[kinds[best]] && used < capacity; i++) {
            void *address = traces[kinds[best]][i];
            Dl_info info = {0};
            dladdr(address, &info);
            const char *file = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
            file = file ? file + 1 : "?";
            if (info.dli_sname) {
                used += snprintf(text + used, capacity - used, " < %s %s", file, info.dli_sname);
            } else {
                used += snprintf(
                    text + used, capacity - used, " < %s+%#tx", file, (char *)address - (char *)info.dli_fbase);
            }
        }
        if (used < capacity) used += snprintf(text + used, capacity - used, "\n");
        if (used >= capacity) return;
    }
}
