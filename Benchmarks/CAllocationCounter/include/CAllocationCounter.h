#pragma once
// Counts the heap allocations of a thread, or of all threads but one. Linked into sluice-bench only, where it takes the
// place of malloc and its kin for the whole process and hands each call on to glibc's. C++'s operator new calls malloc.
#include <stdint.h>

typedef struct {
    // malloc, calloc, realloc and the aligned kinds, whoever called.
    uint64_t mallocs;
    // Swift's among them: objects, array storage, memory taken by hand. The rest is the C libraries'.
    uint64_t swift;
    // Swift's on threads with the given beginning of their names; 0 in a count of one thread.
    uint64_t named;
} sluice_allocation_counts;

// Once, before the first count.
void sluice_allocations_prepare(void);

// Begins to count on the calling thread, from zero. Up to `traces` allocations are
// remembered with their callers, half of the places being Swift's alone.
void sluice_allocations_begin(int traces);

// Ends the count on the calling thread and returns it.
sluice_allocation_counts sluice_allocations_end(void);

// Begins to count on all threads but the calling one, from zero. Up to `traces` allocations of Swift are remembered with
// their callers. Allocations on threads whose names begin with `prefix` are also counted by themselves; it has 15 bytes at most.
void sluice_allocations_begin_all(int traces, const char *prefix);

// Ends the count of all threads and returns it. The thread is the one that began. A thread may still be remembering an
// allocation for some microseconds.
sluice_allocation_counts sluice_allocations_end_all(void);

// Writes the callers that were remembered, Swift's first, then by frequency, into `text`, a line each; as many as fit.
void sluice_allocations_describe(char *text, int capacity);
