#if RocksDBTuning
import CRocksDBTuning
import SluiceModel
import TestSupport
import Testing

@Suite struct ChecksumTests {
    /// Values of RFC 3720, appendix B.4, and the check value of CRC-32C.
    @Test func checksumMatchesKnownValues() {
        #expect(checksum([UInt8](repeating: 0, count: 32)) == 0x8a91_36aa)
        #expect(checksum([UInt8](repeating: 0xff, count: 32)) == 0x62a8_ab43)
        #expect(checksum(Array(0..<32)) == 0x46dd_794e)
        #expect(checksum((0..<32).reversed()) == 0x113f_db5c)
        #expect(checksum(Array("123456789".utf8)) == 0xe306_9283)
        #expect(checksum([]) == 0)
    }

    @Test func checksumMatchesBitwiseReferenceForAnySlice() {
        var random = SeededGenerator(seed: 32)
        let bytes = (0..<4096).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        for count in 0..<200 {
            let start = Int.random(in: 0..<3000, using: &random)
            let part = Array(bytes[start..<start + count])
            let expected = bitByBit(part)
            bytes.withUnsafeBytes {
                let part = UnsafeRawBufferPointer(rebasing: $0[start..<start + count])
                #expect(extended(0, part) == expected, "\(count) bytes at \(start)")
                let middle = Int.random(in: 0...count, using: &random)
                let first = extended(0, UnsafeRawBufferPointer(rebasing: part[..<middle]))
                #expect(extended(first, UnsafeRawBufferPointer(rebasing: part[middle...])) == expected)
            }
        }
    }

    #if arch(x86_64)
    @Test func rocksDBUsesTheChecksumFunction() {
        #expect(sluice_crc32c_serves_rocksdb() == 1)
    }
    #endif

    private func checksum(_ bytes: [UInt8]) -> UInt32 { bytes.withUnsafeBytes { extended(0, $0) } }

    private func extended(_ checksum: UInt32, _ bytes: UnsafeRawBufferPointer) -> UInt32 {
        sluice_crc32c_extend(
            checksum, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
    }

    private func bitByBit(_ bytes: [UInt8]) -> UInt32 {
        var state = UInt32.max
        for byte in bytes {
            state ^= UInt32(byte)
            for _ in 0..<8 { state = state & 1 == 1 ? state >> 1 ^ 0x82f6_3b78 : state >> 1 }
        }
        return ~state
    }
}
#endif
