/// A growable byte buffer for JSON and binary formats: strings with escaping, integers, raw bytes.
///
/// The buffer allocates only when it grows; ``removeAll()`` keeps the capacity, so a reused writer stops allocating.
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

    /// Written bytes, valid until the next change of this writer.
    public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: storage, count: count) }

    /// Removes the contents and keeps the capacity.
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

    /// Appends a byte.
    public mutating func append(_ byte: UInt8) {
        reserve(1)
        storage.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
        count += 1
    }

    /// Appends a copy of the bytes.
    public mutating func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress else { return }
        reserve(bytes.count)
        (storage + count).copyMemory(from: source, byteCount: bytes.count)
        count += bytes.count
    }

    /// Appends the literal's UTF-8 bytes, unescaped.
    public mutating func append(_ literal: StaticString) { append(literal.bytes) }

    /// Appends a string. Not meant for literals, because each use of a `String` counts references.
    public mutating func append(text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    /// Appends a decimal integer.
    public mutating func append(decimal value: Int64) {
        reserve(20)
        if value < 0 { append(UInt8(ascii: "-")) }
        var magnitude = value.magnitude
        // Digits are written from the end of a scratch, least significant first; 64 bits fit into it.
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
        reserve(bytes.count + 2)
        append(UInt8(ascii: "\""))
        var index = 0
        while index < bytes.count {
            // Copies eight bytes at a time while none needs escaping or validation.
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

    /// Appends a text as a JSON string, quoted and escaped.
    public mutating func append(jsonString text: String) {
        var text = text
        text.withUTF8 { append(jsonString: UnsafeRawBufferPointer($0)) }
    }
}
