/// Headers of a job that return on its outcome: a row of bytes, borrowed.
///
/// A header in the row is its name's length (1 byte), its value's length (2 bytes, little-endian; 0xFFFF: null), its name
/// and its value.
public struct PassedHeaders: BitwiseCopyable {
    /// The row; empty without headers.
    public var bytes: UnsafeRawBufferPointer

    /// No headers.
    public static var none: PassedHeaders { PassedHeaders(bytes: .empty) }

    /// Appends a header to a row. The header has a name of 1 to 255 bytes, and a value below 64 KiB; another is left out.
    public static func append(_ header: RecordHeader, to writer: inout ByteWriter) {
        guard fits(header, in: .max) else { return }
        writer.append(UInt8(truncatingIfNeeded: header.name.count))
        let count = header.value.map { UInt16(truncatingIfNeeded: $0.count) } ?? null
        writer.append(UInt8(truncatingIfNeeded: count))
        writer.append(UInt8(truncatingIfNeeded: count &>> 8))
        writer.append(header.name)
        if let value = header.value { writer.append(value) }
    }

    /// Takes a row from ``append(_:to:)``.
    /// - Returns: nil when the bytes are no such row.
    public init?(checking bytes: UnsafeRawBufferPointer) {
        self.init(bytes: bytes)
        var next = 0
        while next < bytes.count {
            guard let header = header(at: next) else { return nil }
            next += Self.size(of: header)
        }
    }

    init(bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    public var isEmpty: Bool { bytes.isEmpty }

    /// Returns the same headers in a copy of their row, which the caller has made.
    public func moved(to copy: UnsafeRawBufferPointer) -> PassedHeaders { PassedHeaders(bytes: copy) }

    /// Passes each header to `body`, in order.
    public func forEach(_ body: (RecordHeader) -> Void) {
        var next = 0
        while next < bytes.count, let header = header(at: next) {
            body(header)
            next += Self.size(of: header)
        }
    }

    /// Value of the first header of this name, which is in lower case; nil when there is none, or it is null.
    public func value(of name: StaticString) -> UnsafeRawBufferPointer? {
        var found: UnsafeRawBufferPointer?
        forEach { if found == nil, $0.name.equalsIgnoringCase(name) { found = $0.value } }
        return found
    }

    private func header(at start: Int) -> RecordHeader? {
        guard bytes.count - start >= Self.lengths else { return nil }
        let nameCount = Int(bytes[start])
        let raw = UInt16(littleEndian: bytes.loadUnaligned(fromByteOffset: start + 1, as: UInt16.self))
        let valueCount = raw == Self.null ? 0 : Int(raw)
        let nameStart = start + Self.lengths
        guard nameCount > 0, nameStart + nameCount + valueCount <= bytes.count else { return nil }
        let valueStart = nameStart + nameCount
        return RecordHeader(
            name: bytes.slice(nameStart..<valueStart),
            value: raw == Self.null ? nil : bytes.slice(valueStart..<valueStart + valueCount))
    }

    private static let lengths = 3
    private static let null = UInt16.max

    /// Returns the bytes that a header takes in a row.
    static func size(of header: RecordHeader) -> Int {
        lengths + header.name.count + (header.value?.count ?? 0)
    }

    /// Returns whether a header fits into the remaining room of a row, in bytes.
    static func fits(_ header: RecordHeader, in room: Int) -> Bool {
        (1...Int(UInt8.max)).contains(header.name.count)
            && (header.value?.count ?? 0) < Int(null) && size(of: header) <= room
    }

    /// Writes a header that fits, and returns its size.
    static func write(_ header: RecordHeader, to target: UnsafeMutableRawPointer) -> Int {
        target.storeBytes(of: UInt8(header.name.count), as: UInt8.self)
        target.storeBytes(
            of: (header.value.map { UInt16($0.count) } ?? null).littleEndian, toByteOffset: 1, as: UInt16.self
        )
        (target + lengths).copy(header.name)
        if let value = header.value { (target + lengths + header.name.count).copy(value) }
        return size(of: header)
    }
}

extension UnsafeMutableRawPointer {
    fileprivate func copy(_ bytes: UnsafeRawBufferPointer) {
        if let start = bytes.baseAddress, bytes.count > 0 { copyMemory(from: start, byteCount: bytes.count) }
    }
}

/// Names of the headers that return on outcomes: `jobs.pass-headers`.
public struct PassedHeaderNames: Sendable {
    /// Names by default: those of trace contexts, and the producer's own.
    public static let standard = ["traceparent", "tracestate", "x-*"]

    /// Whole names in lower case.
    private var names: [[UInt8]] = []
    /// Beginnings of names in lower case.
    private var prefixes: [[UInt8]] = []

    /// - Parameter patterns: names, or beginnings of names followed by `*`.
    public init(_ patterns: [String] = Self.standard) {
        for pattern in patterns {
            var bytes = pattern.utf8.map { SluiceModel.lowercased($0) }
            if bytes.last == UInt8(ascii: "*") {
                bytes.removeLast()
                prefixes.append(bytes)
            } else {
                names.append(bytes)
            }
        }
    }

    /// Returns whether a header of this name is passed on. The case of letters doesn't matter.
    func contain(_ name: UnsafeRawBufferPointer) -> Bool {
        for prefix in prefixes where name.begins(with: prefix) { return true }
        for whole in names where whole.count == name.count && name.begins(with: whole) { return true }
        return false
    }
}

extension UnsafeRawBufferPointer {
    /// Compares the beginning with text in lower case.
    fileprivate func begins(with text: [UInt8]) -> Bool {
        guard count >= text.count else { return false }
        for index in text.indices where lowercased(self[index]) != text[index] { return false }
        return true
    }
}

/// Trace of a job, for the log.
public enum TraceIdentifier {
    /// Header with the trace context (W3C Trace Context, level 1).
    static let headerName: StaticString = "traceparent"

    /// Returns the trace identifier in a value of `traceparent`; nil when the value is malformed.
    public static func text(in value: UnsafeRawBufferPointer) -> String? {
        // version "-" trace identifier "-" ...
        guard value.count >= 36, value[2] == UInt8(ascii: "-"), value[35] == UInt8(ascii: "-") else {
            return nil
        }
        let digits = value.slice(3..<35)
        for digit in digits where hexValue(digit) == nil { return nil }
        return String(decoding: digits, as: UTF8.self)
    }

    /// Returns the trace identifier of a job; nil when the job has none, or its headers aren't passed on.
    public static func text(of headers: PassedHeaders) -> String? {
        headers.value(of: headerName).flatMap { text(in: $0) }
    }

    /// Returns both halves of a job's trace identifier; nil when the job has none, or its headers aren't passed on.
    public static func number(of headers: PassedHeaders) -> (UInt64, UInt64)? {
        guard let text = text(of: headers), let high = UInt64(text.prefix(16), radix: 16),
            let low = UInt64(text.suffix(16), radix: 16)
        else { return nil }
        return (high, low)
    }

    /// Returns the trace identifier of a record; nil when the record has none. In packed mode a line has it.
    public static func text(of record: JobRecord) -> String? {
        if var lines = PackedFields.Lines(record.value) {
            while let line = try? lines.line() {
                if line.name.equalsIgnoringCase(headerName) { return text(in: line.value) }
            }
            return nil
        }
        for header in record.headers where header.name.equalsIgnoringCase(headerName) {
            return header.value.flatMap { text(in: $0) }
        }
        return nil
    }
}
