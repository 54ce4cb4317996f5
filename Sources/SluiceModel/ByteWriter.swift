/// A growable byte buffer that JSON is written into: strings with escaping, integers, raw bytes.
///
/// It allocates only when it grows; ``removeAll()`` keeps the capacity, so a reused writer stops allocating.
public struct ByteWriter: ~Copyable {
    private var storage: UnsafeMutableRawPointer
    private var capacity: Int
    /// Bytes written so far.
    public private(set) var count = 0

    /// - Parameter minimumCapacity: bytes to reserve at once.
    public init(minimumCapacity: Int = 512) {
        capacity = max(minimumCapacity, 64)
        storage = .allocate(byteCount: capacity, alignment: 8)
    }

    deinit { storage.deallocate() }

    /// What was written. Valid until the next change of this writer.
    public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: storage, count: count) }

    /// Forgets the contents and keeps the capacity.
    public mutating func removeAll() { count = 0 }

    @inline(__always)
    private mutating func reserve(_ more: Int) {
        if capacity - count < more { grow(more) }
    }

    private mutating func grow(_ more: Int) {
        let larger = max(capacity * 2, count + more)
        let fresh = UnsafeMutableRawPointer.allocate(byteCount: larger, alignment: 8)
        fresh.copyMemory(from: storage, byteCount: count)
        storage.deallocate()
        storage = fresh
        capacity = larger
    }

    public mutating func append(_ byte: UInt8) {
        reserve(1)
        storage.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
        count += 1
    }

    public mutating func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress else { return }
        reserve(bytes.count)
        (storage + count).copyMemory(from: source, byteCount: bytes.count)
        count += bytes.count
    }

    public mutating func append(_ literal: StaticString) { append(literal.bytes) }

    public mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    /// A decimal integer.
    public mutating func append(decimal value: Int64) {
        reserve(20)
        if value < 0 { append(UInt8(ascii: "-")) }
        var magnitude = value.magnitude
        // Least significant digit first, from the end of a scratch that 64 bits fit into.
        var scratch: InlineArray<20, UInt8> = .init(repeating: 0)
        var start = 20
        repeat {
            let (quotient, digit) = magnitude.quotientAndRemainder(dividingBy: 10)
            start &-= 1
            scratch[start] = UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: digit)
            magnitude = quotient
        } while magnitude > 0
        for index in start..<20 {
            storage.storeBytes(of: scratch[index], toByteOffset: count, as: UInt8.self)
            count &+= 1
        }
    }

    /// 36 characters of a canonical UUID.
    public mutating func append(_ id: APNSID) {
        reserve(APNSID.textLength)
        id.write(to: storage + count)
        count += APNSID.textLength
    }

    /// A JSON string with its quotes (RFC 8259 §7). Bytes that are not valid UTF-8 are written as U+FFFD, so
    /// that the result is valid JSON whatever comes in.
    public mutating func append(jsonString bytes: UnsafeRawBufferPointer) {
        reserve(bytes.count + 2)
        append(UInt8(ascii: "\""))
        var index = 0
        while index < bytes.count {
            // Eight bytes at a time as long as none needs attention.
            while index &+ 8 <= bytes.count {
                let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                guard isPlainText(word) else { break }
                reserve(8)
                storage.storeBytes(of: word, toByteOffset: count, as: UInt64.self)
                count &+= 8
                index &+= 8
            }
            guard index < bytes.count else { break }
            let byte = bytes[index]
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                append(UInt8(ascii: "\\"))
                append(byte)
                index += 1
            case 0..<0x20:
                append("\\u00")
                append(hexDigit(byte >> 4))
                append(hexDigit(byte & 15))
                index += 1
            case 0x20..<0x80:
                append(byte)
                index += 1
            default:
                let length = utf8SequenceLength(bytes, at: index)
                if length == 0 {
                    append("\u{FFFD}")
                    index += 1
                } else {
                    append(bytes.slice(index..<index + length))
                    index += length
                }
            }
        }
        append(UInt8(ascii: "\""))
    }

    public mutating func append(jsonString text: String) {
        var text = text
        text.withUTF8 { append(jsonString: UnsafeRawBufferPointer($0)) }
    }
}

/// Whether eight bytes of text are all ASCII that JSON doesn't escape.
@inline(__always)
private func isPlainText(_ word: UInt64) -> Bool {
    let ones: UInt64 = 0x0101_0101_0101_0101
    let quotes = word ^ (ones &* UInt64(UInt8(ascii: "\"")))
    let backslashes = word ^ (ones &* UInt64(UInt8(ascii: "\\")))
    // The top bit of a byte is set where the byte is below 0x20, a quote, a backslash, or beyond ASCII.
    let found =
        (word &- ones &* 0x20) & ~word | (quotes &- ones) & ~quotes | (backslashes &- ones) & ~backslashes
        | word
    return found & (ones &* 0x80) == 0
}

@inline(__always)
func hexDigit(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") &+ value : UInt8(ascii: "a") &+ value &- 10
}

/// Length of the valid UTF-8 sequence of two to four bytes at `index`, or 0 (RFC 3629 §4: no overlong form, no
/// surrogate, at most U+10FFFF).
func utf8SequenceLength(_ bytes: UnsafeRawBufferPointer, at index: Int) -> Int {
    let length: Int
    var low: UInt8 = 0x80
    var high: UInt8 = 0xBF
    switch bytes[index] {
    case 0xC2...0xDF: length = 2
    case 0xE0: (length, low) = (3, 0xA0)
    case 0xED: (length, high) = (3, 0x9F)
    case 0xE1...0xEF: length = 3
    case 0xF0: (length, low) = (4, 0x90)
    case 0xF4: (length, high) = (4, 0x8F)
    case 0xF1...0xF3: length = 4
    default: return 0
    }
    guard bytes.count - index >= length, (low...high).contains(bytes[index + 1]) else { return 0 }
    for position in 2..<length where bytes[index + position] & 0xC0 != 0x80 { return 0 }
    return length
}
