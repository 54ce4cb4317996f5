import CNghttp2

/// What a request needs to know of a response's header fields.
struct ResponseFields {
    var status: UInt16 = 0
    /// `retry-after` in seconds, 0 when absent or not a number.
    var retryAfterSeconds: UInt32 = 0
    /// RFC 9113 §8.3.2, §8.2: a malformed response (no or a doubled status, an upper-case name, a pseudo-header
    /// field out of its place) is a stream error.
    var isMalformed = false
    var sawRegularField = false
}

/// Decodes response header blocks with nghttp2's HPACK inflater. Owns the inflater.
struct HeaderBlockDecoder: ~Copyable {
    private var inflater: OpaquePointer?

    /// The sum of the fields' sizes that we take of one response; announced to the server.
    static let maximumHeaderListSize = 16_384

    init() {
        precondition(nghttp2_hd_inflate_new(&inflater) == 0, "out of memory")
    }

    deinit {
        nghttp2_hd_inflate_del(inflater)
    }

    enum Failure: Error {
        case compression
        case tooLarge
    }

    /// Decodes a whole header block.
    mutating func decode(_ block: UnsafeRawBufferPointer) throws(Failure) -> ResponseFields {
        var fields = ResponseFields()
        var input = UnsafeMutablePointer(mutating: block.bindMemory(to: UInt8.self).baseAddress)
        var remaining = block.count
        var listSize = 0
        while true {
            var pair = nghttp2_nv()
            var flags: Int32 = 0
            let used = nghttp2_hd_inflate_hd2(inflater, &pair, &flags, input, remaining, 1)
            guard used >= 0 else { throw .compression }
            input = input.map { $0 + used }
            remaining -= used
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
                listSize += pair.namelen + pair.valuelen + 32
                guard listSize <= Self.maximumHeaderListSize else { throw .tooLarge }
                fields.take(
                    name: UnsafeRawBufferPointer(start: pair.name, count: pair.namelen),
                    value: UnsafeRawBufferPointer(start: pair.value, count: pair.valuelen))
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
                nghttp2_hd_inflate_end_headers(inflater)
                break
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0, remaining == 0 { break }
        }
        return fields
    }
}

extension ResponseFields {
    private static func equals(_ bytes: UnsafeRawBufferPointer, _ text: StaticString) -> Bool {
        guard bytes.count == text.utf8CodeUnitCount else { return false }
        for index in 0..<bytes.count where bytes[index] != text.utf8Start[index] { return false }
        return true
    }

    mutating func take(name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer) {
        guard let first = name.first else {
            isMalformed = true
            return
        }
        if first == UInt8(ascii: ":") {
            guard Self.equals(name, ":status"), status == 0, !sawRegularField, value.count == 3 else {
                isMalformed = true
                return
            }
            var number: UInt16 = 0
            for byte in value {
                guard byte >= 0x30, byte <= 0x39 else {
                    isMalformed = true
                    return
                }
                number = number * 10 + UInt16(byte - 0x30)
            }
            guard number >= 100 else {
                isMalformed = true
                return
            }
            status = number
            return
        }
        sawRegularField = true
        for byte in name where byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") { isMalformed = true }
        if Self.equals(name, "retry-after") {
            retryAfterSeconds = 0
            for byte in value.prefix(9) {
                guard byte >= 0x30, byte <= 0x39 else {
                    retryAfterSeconds = 0
                    return
                }
                retryAfterSeconds = retryAfterSeconds * 10 + UInt32(byte - 0x30)
            }
        }
    }
}
