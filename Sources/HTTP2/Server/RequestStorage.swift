import Glibc

/// Storage that collects an incoming request. The raw memory is reused, so a request costs no allocation of its own.
/// Owned by a ``ServerStreamTable``.
struct RequestStorage {
    /// A piece of `text`.
    struct Range {
        var offset: UInt32 = 0
        var count: UInt32 = 0
    }

    struct Field {
        var name = Range()
        var value = Range()
    }

    /// Names and values in sequence; nil until the first.
    private var text: UnsafeMutableRawPointer?
    private var textCapacity = 0
    private var fields: UnsafeMutablePointer<Field>?
    private var fieldCapacity = 0
    private let headerListLimit: Int
    private var textCount = 0
    private(set) var fieldCount = 0
    /// Size of the header list by RFC 9113 §6.5.2, in bytes.
    private(set) var headerListSize = 0
    private(set) var method = Range()
    private(set) var path = Range()
    private(set) var authority = Range()

    /// Memory of the body; nil until a first body is kept.
    private(set) var body: UnsafeMutableRawPointer?
    private var bodyCapacity = 0
    private let bodyLimit: Int
    private(set) var bodyCount = 0
    private(set) var bodyLength = 0
    var isBodyCutOff: Bool { bodyLength > bodyLimit }

    /// - Parameters:
    ///   - headerListSize: longest header list by the measure of HTTP/2, which counts 32 bytes for each field.
    ///   - bodyLimit: longest body in bytes.
    init(headerListSize: Int, bodyLimit: Int) {
        headerListLimit = headerListSize
        self.bodyLimit = bodyLimit
    }

    func deallocate() {
        text?.deallocate()
        fields?.deallocate()
        body?.deallocate()
    }

    mutating func reset() {
        textCount = 0
        fieldCount = 0
        headerListSize = 0
        method = Range()
        path = Range()
        authority = Range()
        bodyCount = 0
        bodyLength = 0
    }

    func bytes(_ range: Range) -> UnsafeRawBufferPointer {
        guard let text else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        return UnsafeRawBufferPointer(start: text + Int(range.offset), count: Int(range.count))
    }

    func field(_ index: Int) -> Field {
        precondition(index >= 0 && index < fieldCount, "no header field \(index)")
        return fields.unsafelyUnwrapped[index]
    }

    /// Adds a field. Returns false and drops the field if the list becomes too long.
    mutating func append(
        name: UnsafePointer<UInt8>, _ nameCount: Int, value: UnsafePointer<UInt8>, _ valueCount: Int
    ) -> Bool {
        headerListSize += nameCount + valueCount + 32
        guard headerListSize <= headerListLimit else { return false }
        if nameCount > 0, name[0] == UInt8(ascii: ":") {
            // A handler receives three of the pseudo-headers; `:scheme` has no use for a handler.
            if nameCount == 5 {
                path = store(value, valueCount)
            } else if nameCount == 7, name[1] == UInt8(ascii: "m") {
                method = store(value, valueCount)
            } else if nameCount == 10 {
                authority = store(value, valueCount)
            }
            return true
        }
        if fieldCount == fieldCapacity { growFields() }
        fields.unsafelyUnwrapped[fieldCount] = Field(
            name: store(name, nameCount), value: store(value, valueCount))
        fieldCount += 1
        return true
    }

    private mutating func growFields() {
        let grown = UnsafeMutablePointer<Field>.allocate(capacity: max(fieldCapacity * 2, 16))
        fieldCapacity = max(fieldCapacity * 2, 16)
        if let fields {
            grown.initialize(from: fields, count: fieldCount)
            fields.deallocate()
        }
        fields = grown
    }

    private mutating func store(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> Range {
        if textCapacity - textCount < count { growText(textCount + count) }
        if let text { memcpy(text + textCount, bytes, count) }
        defer { textCount += count }
        return Range(offset: UInt32(textCount), count: UInt32(count))
    }

    private mutating func growText(_ size: Int) {
        textCapacity = max(textCapacity * 2, size, 1_024)
        let grown = UnsafeMutableRawPointer.allocate(byteCount: textCapacity, alignment: 16)
        if let text {
            memcpy(grown, text, textCount)
            text.deallocate()
        }
        text = grown
    }

    /// Adds a piece of the body, as far as the limit allows. Returns false once the body exceeds the limit.
    mutating func append(body bytes: UnsafePointer<UInt8>, _ count: Int) -> Bool {
        bodyLength += count
        let kept = min(count, bodyLimit - bodyCount)
        if kept > bodyCapacity - bodyCount { makeRoom(bodyCount + kept) }
        if let body { memcpy(body + bodyCount, bytes, kept) }
        bodyCount += kept
        return !isBodyCutOff
    }

    /// Counts a piece of a body that is not kept. Returns false once the body exceeds the limit.
    mutating func count(body count: Int) -> Bool {
        bodyLength += count
        return !isBodyCutOff
    }

    private mutating func makeRoom(_ size: Int) {
        bodyCapacity = min(max(bodyCapacity * 2, size, 4_096), bodyLimit)
        let grown = UnsafeMutableRawPointer.allocate(byteCount: bodyCapacity, alignment: 16)
        if let body {
            memcpy(grown, body, bodyCount)
            body.deallocate()
        }
        body = grown
    }
}
