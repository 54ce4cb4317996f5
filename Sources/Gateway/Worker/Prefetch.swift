import CPrefetch

/// Prefetches memory that is needed soon. Affects timing only.
///
/// Thousands of jobs wait between two looks at one of them, so that its memory has left the cache.
enum Prefetch {
    private static let line = 64
    /// Most lines of a slice. The processor fetches the following ones by itself.
    private static let mostLines = 6

    @inline(__always)
    static func lines(of start: UnsafeRawPointer, bytes: Int) {
        var offset = 0
        while offset < bytes {
            sluice_prefetch(start + offset)
            offset += line
        }
    }

    @inline(__always)
    static func lines(of slice: UnsafeRawBufferPointer) {
        guard let start = slice.baseAddress else { return }
        lines(of: start, bytes: min(slice.count, mostLines * line))
    }
}
