/// Allocates memory that begins with a cache line. An element as long as a line, or a part of a line, lies in one line.
/// - Parameter capacity: Number of elements; below 1 counts as 1. The memory is uninitialized, and the caller
///   deallocates it.
package func allocateLines<Element: BitwiseCopyable>(capacity: Int) -> UnsafeMutablePointer<Element> {
    UnsafeMutableRawPointer.allocate(
        byteCount: max(1, capacity) * MemoryLayout<Element>.stride, alignment: 128
    ).bindMemory(to: Element.self, capacity: max(1, capacity))
}
