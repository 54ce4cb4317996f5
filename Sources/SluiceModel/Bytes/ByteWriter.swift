/// A growable byte buffer for JSON and binary formats: strings with escaping, integers, raw bytes.
///
/// The buffer allocates only when it grows; ``removeAll()`` keeps the capacity, so a reused writer stops allocating.
public struct ByteWriter: ~Copyable {
    private var storage: UnsafeMutableRawPointer
    private var capacity: Int
    /// Bytes written so far.
    public private(set) var count = 0
    /// Ten digits of a second.
    private struct SecondText {
        var second: UInt64 = 0
        var first: UInt64 = 0
        var last: UInt64 = 0
    }
    /// The two seconds written last. Most times of a turn lie in the present one, or in that of the jobs' creation.
    private var latest = SecondText()
    private var earlier = SecondText()

    /// - Parameter minimumCapacity: bytes to reserve at once.
    public init(minimumCapacity: Int = 512) {
        capacity = max(minimumCapacity, 64)
        storage = .allocate(byteCount: capacity, alignment: 8)
    }

    deinit { storage.deallocate() }

    /// Written bytes, valid until the next change of this writer.
    public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: storage, count: count) }

    /// Removes the contents and keeps the capacity.
    public mutating func removeAll() { count = 0 }

    @inline(__always)
    private mutating func reserve(_ more: Int) {
        if capacity &- count < more { grow(more) }
    }

    @inline(never)
    private mutating func grow(_ more: Int) {
        let larger = max(capacity * 2, count + more)
        let fresh = UnsafeMutableRawPointer.allocate(byteCount: larger, alignment: 8)
        fresh.copyMemory(from: storage, byteCount: count)
        storage.deallocate()
        storage = fresh
        capacity = larger
    }

    /// Appends a byte.
    @inline(__always)
    public mutating func append(_ byte: UInt8) {
        reserve(1)
        storage.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
        count &+= 1
    }

    /// Appends a copy of the bytes.
    @inline(__always)
    public mutating func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress else { return }
        reserve(bytes.count)
        (storage + count).copyMemory(from: source, byteCount: bytes.count)
        count &+= bytes.count
    }

    /// Appends `count` bytes, which `fill` writes. Appends nothing when `fill` returns false.
    /// - Returns: the result of `fill`.
    @inline(__always)
    public mutating func append(count added: Int, _ fill: (UnsafeMutableRawPointer) -> Bool) -> Bool {
        reserve(added)
        guard fill(storage + count) else { return false }
        count &+= added
        return true
    }

    /// Appends the literal's UTF-8 bytes, unescaped. The length of a literal is known where this is inlined, so that the
    /// copy is a few stores.
    @inline(__always)
    public mutating func append(_ literal: StaticString) { append(literal.bytes) }

    /// Appends a string. Not meant for literals, because each use of a `String` counts references.
    public mutating func append(text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    /// Appends a decimal integer.
    public mutating func append(decimal value: Int64) {
        // Longest text: a sign and 19 digits; digits are stored eight at a time.
        reserve(32)
        if value < 0 { append(UInt8(ascii: "-")) }
        let magnitude = value.magnitude
        let block: UInt64 = 100_000_000
        if magnitude < block {
            appendFirst(UInt32(truncatingIfNeeded: magnitude))
        } else if magnitude < block * block {
            let (high, low) = magnitude.quotientAndRemainder(dividingBy: block)
            appendFirst(UInt32(truncatingIfNeeded: high))
            appendNext(UInt32(truncatingIfNeeded: low))
        } else {
            let (high, rest) = magnitude.quotientAndRemainder(dividingBy: block * block)
            let (middle, low) = rest.quotientAndRemainder(dividingBy: block)
            appendFirst(UInt32(truncatingIfNeeded: high))
            appendNext(UInt32(truncatingIfNeeded: middle))
            appendNext(UInt32(truncatingIfNeeded: low))
        }
    }

    /// Appends milliseconds since the epoch as a decimal integer.
    public mutating func append(milliseconds value: Int64) {
        // The times of thirteen digits: 2001 to 2286.
        guard (1_000_000_000_000..<10_000_000_000_000).contains(value) else { return append(decimal: value) }
        let (second, rest) = value.magnitude.quotientAndRemainder(dividingBy: 1_000)
        if second != latest.second {
            (latest, earlier) = (earlier, latest)
            if second != latest.second {
                let (high, low) = second.quotientAndRemainder(dividingBy: 100)
                latest = SecondText(
                    second: second,
                    first: eightDigits(UInt32(truncatingIfNeeded: high)) | 0x3030_3030_3030_3030,
                    last: (eightDigits(UInt32(truncatingIfNeeded: low)) | 0x3030_3030_3030_3030) &>> 48)
            }
        }
        reserve(16)
        let last = (eightDigits(UInt32(truncatingIfNeeded: rest)) | 0x3030_3030_3030_3030) &>> 40
        storage.storeBytes(of: latest.first.littleEndian, toByteOffset: count, as: UInt64.self)
        storage.storeBytes(
            of: (latest.last | last &<< 16).littleEndian, toByteOffset: count &+ 8, as: UInt64.self)
        count &+= 13
    }

    /// Appends the first digits of a number, 1 to 8, without leading zeros.
    @inline(__always)
    private mutating func appendFirst(_ value: UInt32) {
        let digits = eightDigits(value)
        // The first digit lies in the lowest byte.
        let zeros = min(digits.trailingZeroBitCount &>> 3, 7)
        storage.storeBytes(
            of: ((digits | 0x3030_3030_3030_3030) &>> UInt64(zeros &<< 3)).littleEndian,
            toByteOffset: count,
            as: UInt64.self)
        count &+= 8 &- zeros
    }

    /// Appends eight further digits of a number.
    @inline(__always)
    private mutating func appendNext(_ value: UInt32) {
        storage.storeBytes(
            of: (eightDigits(value) | 0x3030_3030_3030_3030).littleEndian, toByteOffset: count,
            as: UInt64.self)
        count &+= 8
    }

    /// Appends an integer's bytes, least significant first.
    public mutating func append<Value: FixedWidthInteger & BitwiseCopyable>(littleEndian value: Value) {
        reserve(MemoryLayout<Value>.size)
        storage.storeBytes(of: value.littleEndian, toByteOffset: count, as: Value.self)
        count += MemoryLayout<Value>.size
    }

    /// Appends a LEB128 number of 1 to 10 bytes. Each byte has seven bits, least significant first. The top bit is set
    /// in all bytes but the last.
    public mutating func append(varint value: UInt64) {
        reserve(10)
        var rest = value
        while rest >= 0x80 {
            storage.storeBytes(
                of: UInt8(truncatingIfNeeded: rest) | 0x80, toByteOffset: count, as: UInt8.self)
            count &+= 1
            rest &>>= 7
        }
        storage.storeBytes(of: UInt8(truncatingIfNeeded: rest), toByteOffset: count, as: UInt8.self)
        count &+= 1
    }

    /// Packs an even number of valid hexadecimal digits, two to a byte.
    mutating func append(packing digits: UnsafeRawBufferPointer) {
        reserve(digits.count / 2)
        HexadecimalText.pack(digits, into: storage + count)
        count += digits.count / 2
    }

    /// Appends the 36 characters of a canonical UUID.
    public mutating func append(_ id: APNSID) {
        reserve(APNSID.textLength)
        id.write(to: storage + count)
        count += APNSID.textLength
    }

    /// Appends a JSON string with its quotes (RFC 8259 §7). Bytes that are not valid UTF-8 become U+FFFD, so that the
    /// result is always valid JSON.
    public mutating func append(jsonString bytes: UnsafeRawBufferPointer) {
        // No byte takes more than six in the result: \u00XX.
        reserve(bytes.count &* 6 &+ 16)
        if bytes.count >= 32, bytes.isPlainText {
            append(UInt8(ascii: "\""))
            append(bytes)
            append(UInt8(ascii: "\""))
            return
        }
        let end = bytes.count
        var index = 0
        var target = storage + count
        target.storeBytes(of: UInt8(ascii: "\""), as: UInt8.self)
        target += 1
        // Copies eight bytes at a time while none needs escaping or validation.
        while index &+ 8 <= end {
            let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            guard isPlainText(word) else { break }
            target.storeBytes(of: word, as: UInt64.self)
            target += 8
            index &+= 8
        }
        // The last eight bytes again, which overlap those before.
        if end &- 8 >= 0, end &- index < 8, index < end {
            let word = bytes.loadUnaligned(fromByteOffset: end &- 8, as: UInt64.self)
            if isPlainText(word) {
                target += end &- 8 &- index
                target.storeBytes(of: word, as: UInt64.self)
                target += 8
                index = end
            }
        }
        while index < end {
            let byte = bytes[index]
            guard byte >= 0x20, byte < 0x80, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") else {
                break
            }
            target.storeBytes(of: byte, as: UInt8.self)
            target += 1
            index &+= 1
        }
        count = target - storage
        if index < end { appendEscaped(bytes.slice(index..<end)) }
        append(UInt8(ascii: "\""))
    }

    /// Appends text of a JSON string that may need escapes.
    @inline(never)
    private mutating func appendEscaped(_ bytes: UnsafeRawBufferPointer) {
        var index = 0
        while index < bytes.count {
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
    }

    /// Appends a text as a JSON string, quoted and escaped.
    public mutating func append(jsonString text: String) {
        var text = text
        text.withUTF8 { append(jsonString: UnsafeRawBufferPointer($0)) }
    }
}

/// Returns the eight decimal digits of a number below 10^8, leading zeros included. Each byte has the value of a digit; the
/// first digit is in the lowest byte.
@inline(__always)
private func eightDigits(_ value: UInt32) -> UInt64 {
    let (high, low) = value.quotientAndRemainder(dividingBy: 10_000)
    // Two numbers below 10^4, then four below 100, then eight digits. The products are exact quotients in these ranges.
    let fours = UInt64(high) | UInt64(low) &<< 32
    let hundreds = (fours &* 10_486) &>> 20 & 0x0000_007F_0000_007F
    let twos = hundreds | (fours &- hundreds &* 100) &<< 16
    let tens = (twos &* 103) &>> 10 & 0x000F_000F_000F_000F
    return tens | (twos &- tens &* 10) &<< 8
}
