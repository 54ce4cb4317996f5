/// Shared part of the requests of one kind, as encoded on one connection. The block is valid while the header table
/// stays the same. Each part is written with one fixed-size store.
struct PrebuiltBlock {
    /// Longest leading or trailing part that is kept, in bytes. Longer parts are written anew each time.
    static let maximumPart = 32

    typealias Part = (UInt64, UInt64, UInt64, UInt64)

    /// Generation of the encoder's table when the block was written; 0 never matches.
    var generation: UInt32
    /// Pseudo-header fields and the path's prefix, up to its last whole byte.
    private(set) var leadingCount: UInt8 = 0
    /// Offset of the byte for the path's length.
    private(set) var lengthOffset: UInt8 = 0
    private(set) var trailingCount: UInt8 = 0
    /// Bits of the path's prefix that do not fill a byte, and their number.
    private(set) var pendingBits: UInt8 = 0
    private(set) var pendingCount: UInt8 = 0
    private var leading: Part = (0, 0, 0, 0)
    private var trailing: Part = (0, 0, 0, 0)

    init(generation: UInt32) {
        self.generation = generation
    }

    mutating func setLeading(
        _ bytes: UnsafeRawBufferPointer, lengthOffset: Int, _ bits: HuffmanBits
    ) -> Bool {
        guard bytes.count <= Self.maximumPart else { return false }
        withUnsafeMutableBytes(of: &leading) { $0.copyMemory(from: bytes) }
        leadingCount = UInt8(bytes.count)
        self.lengthOffset = UInt8(lengthOffset)
        pendingBits = UInt8(truncatingIfNeeded: bits.pending)
        pendingCount = UInt8(bits.count)
        return true
    }

    mutating func setTrailing(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard bytes.count <= Self.maximumPart else { return false }
        withUnsafeMutableBytes(of: &trailing) { $0.copyMemory(from: bytes) }
        trailingCount = UInt8(bytes.count)
        return true
    }

    /// Writes ``maximumPart`` bytes, of which only the first ``leadingCount`` are valid.
    @inline(__always)
    func writeLeading(to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: leading, as: Part.self)
    }

    @inline(__always)
    func writeTrailing(to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: trailing, as: Part.self)
    }
}
