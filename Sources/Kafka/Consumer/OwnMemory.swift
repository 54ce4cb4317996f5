/// Memory of the records that are in memory of their own.
enum OwnMemory {
    @inline(__always)
    static func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer {
        .allocate(byteCount: byteCount, alignment: alignment)
    }

    @inline(__always)
    static func free(_ block: UnsafeMutableRawPointer) { block.deallocate() }
}
