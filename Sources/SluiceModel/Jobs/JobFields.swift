/// Fields of a record before their values are validated, a slice for each.
///
/// Numbers stay text, so that all modes share the later steps.
struct JobFields: ~Copyable {
    /// True in structured mode: numbers are JSON numbers, and errors name members instead of headers.
    var isStructured = false
    /// True in packed mode, where missing fields are lines.
    var isPacked = false
    private(set) var present = JobFieldSet()
    /// A slice per field, in memory of the decoder. The slice of a field that is not in `present` is left from an
    /// earlier record.
    private let slots: UnsafeMutablePointer<UnsafeRawBufferPointer>
    /// Headers of the record that are passed on, in `storage`.
    private(set) var passed = PassedHeaders.none
    /// Memory of passed headers and unescaped values; the last owner of the fields frees it. Nil: there are none.
    private(set) var storage: UnsafeMutableRawPointer?
    private var storageUsed = 0

    /// - Parameter slots: memory for ``JobField/count`` slices, which outlives the fields.
    init(slots: UnsafeMutablePointer<UnsafeRawBufferPointer>) { self.slots = slots }

    mutating func set(_ field: JobField, _ value: UnsafeRawBufferPointer) {
        slots[Int(field.rawValue)] = value
        present.formUnion(JobFieldSet(field))
    }

    /// Sets a field that may occur once.
    /// - Throws: when the field is set already.
    @inline(__always)
    mutating func setOnce(_ field: JobField, _ value: UnsafeRawBufferPointer) throws(JobError) {
        if present.contains(field) { throw .doubled(field.headerName ?? "") }
        set(field, value)
    }

    /// Value of the field; nil where the record has none.
    subscript(field: JobField) -> UnsafeRawBufferPointer? {
        present.contains(field) ? slots[Int(field.rawValue)] : nil
    }

    /// Returns the field's name in the producer's encoding.
    func name(_ field: JobField) -> String {
        if isStructured { return field.memberName.description }
        if let header = field.headerName { return header.description }
        return field == .payload ? "payload" : "key"
    }

    func error(_ field: JobField, _ rule: JobRule, _ message: String) -> JobError {
        JobError(field: name(field), rule: rule, message: message)
    }

    /// Returns a whole number within `range`; nil where the record has none.
    func integer(
        _ field: JobField, in range: ClosedRange<Int64>, _ meaning: StaticString
    ) throws(JobError)
        -> Int64?
    {
        guard let text = self[field] else { return nil }
        return try checked(number(text), field, in: range, meaning)
    }

    /// Returns the value of a whole number; nil when the text is none.
    @inline(__always)
    func number(_ text: UnsafeRawBufferPointer) -> Int64? {
        isStructured ? jsonInteger(text) : text.decimal
    }

    /// Returns a number of `number(_:)` that is within `range`.
    @inline(__always)
    func checked(
        _ value: Int64?, _ field: JobField, in range: ClosedRange<Int64>, _ meaning: StaticString
    ) throws(JobError) -> Int64 {
        guard let value else {
            throw error(
                field, .number,
                isStructured ? "is not a whole number" : "is not a whole number in plain decimal digits")
        }
        guard range.contains(value) else {
            throw error(
                field, .range, "is out of range: \(meaning), from \(range.lowerBound) to \(range.upperBound)")
        }
        return value
    }

    /// Unescapes a JSON string's content into `storage`; returns content without escapes unchanged. `storage` is
    /// allocated once per record, large enough for its document, because unescaped text is never longer than escaped
    /// text.
    mutating func unescaped(_ raw: UnsafeRawBufferPointer, documentSize: Int) -> UnsafeRawBufferPointer {
        guard raw.contains(UInt8(ascii: "\\")) else { return raw }
        let memory = storage ?? .allocate(byteCount: documentSize, alignment: 1)
        storage = memory
        let start = memory + storageUsed
        let length = unescapeJSON(raw, into: start)
        storageUsed += length
        return UnsafeRawBufferPointer(start: start, count: length)
    }

    /// Allocates `storage` for passed headers of `count` bytes and for the unescaped values of a document. Returns the
    /// memory of the headers. Called once, before any value is unescaped.
    mutating func reserve(_ count: Int, documentSize: Int) -> UnsafeMutableRawPointer {
        let memory = UnsafeMutableRawPointer.allocate(byteCount: count + documentSize, alignment: 1)
        storage = memory
        storageUsed = count
        passed = PassedHeaders(bytes: UnsafeRawBufferPointer(start: memory, count: count))
        return memory
    }

    /// Notes that only so many bytes of the passed headers were written.
    mutating func keepPassed(_ count: Int) {
        guard count < passed.bytes.count else { return }
        passed = PassedHeaders(bytes: UnsafeRawBufferPointer(rebasing: passed.bytes[..<count]))
    }

    /// Frees the storage of a malformed record.
    mutating func discard() {
        storage?.deallocate()
        storage = nil
    }
}

/// Returns the value of a valid JSON number that is integral ("10", "10.0", "1e1"); nil when it isn't integral. Numbers
/// beyond 64 bits become `Int64.max` or `.min`.
func jsonInteger(_ text: UnsafeRawBufferPointer) -> Int64? {
    var index = 0
    let negative = text.first == UInt8(ascii: "-")
    if negative { index = 1 }
    var mantissa: Int64 = 0
    var exponent = 0
    var zeros = 0
    var inFraction = false
    var overflow = false
    scan: while index < text.count {
        let byte = text[index]
        index += 1
        switch byte {
        case UInt8(ascii: "."): inFraction = true
        case UInt8(ascii: "e"), UInt8(ascii: "E"): break scan
        default:
            if inFraction { exponent -= 1 }
            zeros += 1
            if byte == UInt8(ascii: "0") { continue }
            for _ in 0..<zeros { overflow = !multiplyByTen(&mantissa) || overflow }
            mantissa &+= Int64(byte &- UInt8(ascii: "0"))
            zeros = 0
        }
    }
    exponent += zeros
    if index < text.count {
        let negativeExponent = text[index] == UInt8(ascii: "-")
        var value = 0
        for byte in text.slice(index..<text.count) where isDigit(byte) {
            value = min(value * 10 + Int(byte - UInt8(ascii: "0")), 1_000_000)
        }
        exponent += negativeExponent ? -value : value
    }
    if mantissa == 0, !overflow { return 0 }
    if exponent < 0 { return nil }
    for _ in 0..<min(exponent, 20) { overflow = !multiplyByTen(&mantissa) || overflow }
    if overflow { return negative ? .min : .max }
    return negative ? -mantissa : mantissa
}

/// Returns false, and leaves the value unchanged, when the result would leave no room for one more digit.
private func multiplyByTen(_ value: inout Int64) -> Bool {
    guard value < Int64.max / 10 else { return false }
    value *= 10
    return true
}

/// Writes the text of a valid JSON string's content and returns its length. A lone surrogate becomes U+FFFD.
func unescapeJSON(_ raw: UnsafeRawBufferPointer, into target: UnsafeMutableRawPointer) -> Int {
    var length = 0
    func put(_ byte: UInt8) {
        target.storeBytes(of: byte, toByteOffset: length, as: UInt8.self)
        length += 1
    }
    var index = 0
    while index < raw.count {
        guard raw[index] == UInt8(ascii: "\\"), index + 1 < raw.count else {
            put(raw[index])
            index += 1
            continue
        }
        let escape = raw[index + 1]
        index += 2
        switch escape {
        case UInt8(ascii: "b"): put(0x08)
        case UInt8(ascii: "f"): put(0x0C)
        case UInt8(ascii: "n"): put(0x0A)
        case UInt8(ascii: "r"): put(0x0D)
        case UInt8(ascii: "t"): put(0x09)
        case UInt8(ascii: "u"):
            var code = codeUnit(raw, at: index)
            index = min(index + 4, raw.count)
            if (0xD800..<0xDC00).contains(code), index + 1 < raw.count, raw[index] == UInt8(ascii: "\\"),
                raw[index + 1] == UInt8(ascii: "u")
            {
                let second = codeUnit(raw, at: index + 2)
                if (0xDC00..<0xE000).contains(second) {
                    code = 0x10000 + (code - 0xD800) << 10 + (second - 0xDC00)
                    index = min(index + 6, raw.count)
                }
            }
            let scalar = Unicode.Scalar(code) ?? "\u{FFFD}"
            for byte in UTF8.encode(scalar)! { put(byte) }
        default: put(escape)
        }
    }
    return length
}

private func codeUnit(_ raw: UnsafeRawBufferPointer, at index: Int) -> UInt32 {
    var value: UInt32 = 0
    for position in index..<min(index + 4, raw.count) {
        value = value << 4 | UInt32(hexValue(raw[position]) ?? 0)
    }
    return value
}
