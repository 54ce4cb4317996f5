import CPrefetch

/// Asks for a cache line before it is needed: with many pushes waiting none of their memory is in the cache. A builtin of
/// the compiler that Swift has no word for; no library, and of no effect but on time.
@inline(__always)
func prefetch(_ address: UnsafeRawPointer) { sluice_prefetch(address) }
