/// SipHash-2-4 with a 128-bit result (Aumasson and Bernstein), over one run of bytes.
///
/// With a fixed key the hash is a strong mixing function: derived identifiers are stable across processes, versions and
/// machines.
struct SipHash128 {
    private var v0, v1, v2, v3: UInt64
    private var tail: UInt64 = 0
    private var length = 0

    init(key0: UInt64, key1: UInt64) {
        v0 = key0 ^ 0x736f_6d65_7073_6575
        v1 = key1 ^ 0x646f_7261_6e64_6f6d ^ 0xee
        v2 = key0 ^ 0x6c79_6765_6e65_7261
        v3 = key1 ^ 0x7465_6462_7974_6573
    }

    @inline(__always)
    mutating func append(_ byte: UInt8) {
        tail |= UInt64(byte) &<< UInt64((length & 7) * 8)
        length &+= 1
        if length & 7 == 0 {
            compress(tail)
            tail = 0
        }
    }

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        for byte in bytes { append(byte) }
    }

    /// Appends eight bytes at once, at a multiple of eight.
    @inline(__always)
    mutating func append(word: UInt64) {
        precondition(length & 7 == 0)
        compress(word)
        length &+= 8
    }

    /// Appends bytes with these bits set in each eight of them, from a multiple of eight on.
    @inline(__always)
    mutating func append(_ bytes: UnsafeRawBufferPointer, setting bits: UInt64) {
        var offset = 0
        while offset &+ 8 <= bytes.count {
            append(
                word: UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                    | bits)
            offset &+= 8
        }
        while offset < bytes.count {
            append(bytes[offset] | UInt8(truncatingIfNeeded: bits))
            offset &+= 1
        }
    }

    /// Appends the bytes of `value`, least significant first.
    mutating func append<Value: FixedWidthInteger>(littleEndian value: Value) {
        var rest = UInt64(truncatingIfNeeded: value)
        for _ in 0..<MemoryLayout<Value>.size {
            append(UInt8(truncatingIfNeeded: rest))
            rest &>>= 8
        }
    }

    /// Returns the first half of the result.
    mutating func finishFirst() -> UInt64 {
        compress(tail | UInt64(truncatingIfNeeded: length & 0xff) &<< 56)
        v2 ^= 0xee
        for _ in 0..<4 { round() }
        return v0 ^ v1 ^ v2 ^ v3
    }

    /// Returns the result: first and second half, each as the little-endian integer of the reference implementation.
    mutating func finish() -> (UInt64, UInt64) {
        let first = finishFirst()
        v1 ^= 0xdd
        for _ in 0..<4 { round() }
        return (first, v0 ^ v1 ^ v2 ^ v3)
    }

    @inline(__always)
    private mutating func compress(_ word: UInt64) {
        v3 ^= word
        round()
        round()
        v0 ^= word
    }

    @inline(__always)
    private mutating func round() {
        v0 &+= v1
        v1 = rotate(v1, 13) ^ v0
        v0 = rotate(v0, 32)
        v2 &+= v3
        v3 = rotate(v3, 16) ^ v2
        v0 &+= v3
        v3 = rotate(v3, 21) ^ v0
        v2 &+= v1
        v1 = rotate(v1, 17) ^ v2
        v2 = rotate(v2, 32)
    }

    @inline(__always)
    private func rotate(_ value: UInt64, _ bits: UInt64) -> UInt64 { value &<< bits | value &>> (64 &- bits) }
}
