import Glibc
import HTTP2
import Testing

@testable import APNS

/// Tests that signing leaves no copy of the private scalar in this process's memory.
@Suite struct SecretMemoryTests {
    @Test func signingLeavesNoCopyOfTheScalar() throws {
        let pem = try CertificateAuthority(commonName: "test").privateKeyPEM
        let key = try SigningKey(pem: Array(pem.utf8))
        let search = try MemorySearch(scalarOf: pem)
        let before = search.count()
        for number in 0..<8 as Range<UInt8> { _ = try key.sign([number]) }
        #expect(search.count() <= before)
        // The search finds a copy that is there.
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: 32, alignment: 8)
        copy.copyMemory(from: search.scalar)
        #expect(search.count() > before)
        copy.deallocate()
    }
}

/// Searches the process's memory for the private scalar of a PKCS #8 key on P-256.
private final class MemorySearch {
    /// The scalar, in a mapping that the search leaves out.
    let scalar: UnsafeRawBufferPointer
    private let mapping: UnsafeMutableRawPointer
    private let memory: Int32
    private static let size = 1 << 20

    init(scalarOf pem: String) throws {
        let mapped = mmap(nil, Self.size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        mapping = try #require(mapped != MAP_FAILED ? mapped : nil)
        memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        // Decoded into the mapping, so that the test leaves no copy elsewhere.
        let digits = pem.split(separator: "\n").filter { !$0.hasPrefix("-") }.joined().utf8
        var (bits, count) = (UInt32(0), 0)
        for (index, digit) in digits.enumerated() {
            guard let value = Self.alphabet.firstIndex(of: digit) else { continue }
            bits = bits << 6 | UInt32(value)
            guard index % 4 == 3 else { continue }
            for shift in [16, 8, 0] as [UInt32] {
                mapping.storeBytes(
                    of: UInt8(truncatingIfNeeded: bits >> shift), toByteOffset: count, as: UInt8.self)
                count += 1
            }
        }
        // Behind the version of the inner structure (RFC 5915 §3): an octet string of 32 bytes.
        let mark: [UInt8] = [2, 1, 1, 4, 32]
        let place = mark.withUnsafeBytes { [mapping, count] in Self.find($0, in: mapping, count) }
        let found = try #require(place)
        scalar = UnsafeRawBufferPointer(start: found + mark.count, count: 32)
    }

    deinit {
        close(memory)
        munmap(mapping, Self.size + 4096)
    }

    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    /// Number of copies of the scalar in anonymous memory that can be written.
    func count() -> Int {
        var result = 0
        let own = UInt(bitPattern: mapping)
        let buffer = mapping + 4096
        for line in Self.lines(of: "/proc/self/maps") {
            let fields = line.split(separator: " ", omittingEmptySubsequences: true)
            guard fields.count < 6 || fields[5] == "[heap]", fields[1].hasPrefix("rw") else { continue }
            let ends = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
            guard ends.count == 2 else { continue }
            var start = ends[0]
            while start < ends[1] {
                // The kernel may join the mapping with others.
                if start >= own, start < own + UInt(Self.size) + 4096 {
                    start = own + UInt(Self.size) + 4096
                    continue
                }
                var length = min(Int(ends[1] - start), Self.size)
                if start < own { length = min(length, Int(own - start)) }
                let read = pread(memory, buffer, length, off_t(start))
                if read > 0 { result += copies(in: buffer, read) }
                start += UInt(length)
            }
        }
        return result
    }

    private func copies(in buffer: UnsafeMutableRawPointer, _ count: Int) -> Int {
        var (result, offset) = (0, 0)
        while let found = Self.find(scalar, in: buffer + offset, count - offset) {
            result += 1
            offset = found - buffer + 1
        }
        return result
    }

    private static func find(
        _ bytes: UnsafeRawBufferPointer, in buffer: UnsafeMutableRawPointer, _ count: Int
    ) -> UnsafeMutableRawPointer? {
        var offset = 0
        while count - offset >= bytes.count,
            let found = memchr(buffer + offset, Int32(bytes[0]), count - offset - bytes.count + 1)
        {
            if memcmp(found, bytes.baseAddress!, bytes.count) == 0 { return found }
            offset = found - buffer + 1
        }
        return nil
    }

    private static func lines(of path: String) -> [String] {
        guard let file = fopen(path, "re") else { return [] }
        defer { fclose(file) }
        var lines: [String] = []
        var line: UnsafeMutablePointer<CChar>?
        var size = 0
        while getline(&line, &size, file) > 0 {
            if let line { lines.append(String(cString: line).filter { $0 != "\n" }) }
        }
        free(line)
        return lines
    }
}
