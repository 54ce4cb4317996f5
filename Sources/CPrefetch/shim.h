#pragma once
// Asks for a cache line before it is needed; never faults. Swift has no word for it.
static inline void sluice_prefetch(const void *address) { __builtin_prefetch(address, 1, 3); }
