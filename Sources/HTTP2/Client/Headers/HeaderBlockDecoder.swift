import CNghttp2

/// Data that a request needs from a response's header fields.
struct ResponseFields {
    var status: UInt16 = 0
    /// `retry-after` in seconds, 0 when absent or not a number.
    var retryAfterSeconds: UInt32 = 0
    /// Length in bytes of `apns-unique-id`, whose text lies in ``HeaderBlockDecoder/uniqueID(_:)``. 0 when the field is
    /// absent, empty or longer than ``HeaderBlockDecoder/maximumUniqueID``.
    var uniqueIDCount: UInt8 = 0
    /// Whether the response is malformed, which is a stream error (RFC 9113 §8.3.2, §8.2). Examples are a missing or
    /// repeated status, an upper-case name, and a misplaced pseudo-header field.
    var isMalformed = false
    var sawRegularField = false
    /// Whether the block has an `apns-unique-id`, kept or not.
    var sawUniqueID = false
}

/// A regular header field of an answer.
public struct AnswerField: Sendable, Equatable {
    /// Name, in lower case.
    public var name: String
    public var value: String
}

/// Decodes response header blocks with nghttp2's HPACK inflater. Owns the inflater.
struct HeaderBlockDecoder: ~Copyable {
    private var inflater: OpaquePointer?

    /// Text of the last block's `apns-unique-id`, of ``ResponseFields/uniqueIDCount`` bytes; owned.
    private let uniqueIDStorage: UnsafeMutableRawBufferPointer
    /// Whether all fields of a block are kept in ``fields``. No block is then taken for a common answer.
    private let keepsFields: Bool
    /// Regular fields of the last block, when they are kept; empty otherwise.
    private(set) var fields: [AnswerField] = []

    /// Highest sum of the fields' sizes that we accept in a response; announced to the server.
    static let maximumHeaderListSize = 16_384
    /// Highest length in bytes of an `apns-unique-id` that is kept: APNs sends a UUID of 36.
    static let maximumUniqueID = 64

    init(keepsFields: Bool = false) {
        precondition(nghttp2_hd_inflate_new(&inflater) == 0, "out of memory")
        uniqueIDStorage = .allocate(byteCount: Self.maximumUniqueID, alignment: 1)
        self.keepsFields = keepsFields
    }

    deinit {
        nghttp2_hd_inflate_del(inflater)
        uniqueIDStorage.deallocate()
    }

    /// Text of the last block's `apns-unique-id`. Valid until the next block is decoded.
    func uniqueID(_ fields: ResponseFields) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: uniqueIDStorage[..<Int(fields.uniqueIDCount)])
    }

    enum Failure: Error {
        case compression
        case tooLarge
    }

    /// Index in the dynamic table of a name that is known to be a regular field of no interest; 0 when there is none.
    /// The index is valid until a block arrives that may change the table.
    private var plainNameIndex: UInt32 = 0

    /// Decodes a whole header block.
    ///
    /// A common answer needs no inflater: a 200 whose other fields are literals that do not enter the table. Most APNs
    /// answers are of this kind. The bytes alone show the kind, and the table stays unchanged.
    mutating func decode(_ block: UnsafeRawBufferPointer) throws(Failure) -> ResponseFields {
        if keepsFields { return try inflate(block) }
        let common = CommonAnswer(block)
        if common.isOK, common.nameIndex == 0 || common.nameIndex == plainNameIndex {
            var fields = ResponseFields()
            fields.status = 200
            return fields
        }
        let fields = try inflate(block)
        let isPlain =
            fields.status == 200 && fields.retryAfterSeconds == 0 && !fields.sawUniqueID
            && !fields.isMalformed
        plainNameIndex = common.isOK && isPlain ? common.nameIndex : 0
        return fields
    }

    mutating func inflate(_ block: UnsafeRawBufferPointer) throws(Failure) -> ResponseFields {
        var fields = ResponseFields()
        if keepsFields { self.fields.removeAll() }
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
                let name = UnsafeRawBufferPointer(start: pair.name, count: pair.namelen)
                let value = UnsafeRawBufferPointer(start: pair.value, count: pair.valuelen)
                if fields.accept(name: name, value: value) { keepUniqueID(value, &fields) }
                if keepsFields { keep(name, value) }
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
                nghttp2_hd_inflate_end_headers(inflater)
                break
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0, remaining == 0 { break }
        }
        return fields
    }

    private func keepUniqueID(_ value: UnsafeRawBufferPointer, _ fields: inout ResponseFields) {
        fields.sawUniqueID = true
        fields.uniqueIDCount = 0
        guard value.count <= Self.maximumUniqueID else { return }
        uniqueIDStorage.copyBytes(from: value)
        fields.uniqueIDCount = UInt8(value.count)
    }

    private mutating func keep(_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) {
        guard name.first != UInt8(ascii: ":") else { return }
        fields.append(
            AnswerField(
                name: String(decoding: name, as: UTF8.self), value: String(decoding: value, as: UTF8.self)))
    }
}

/// Recognises a 200 whose header block can't change the table. Such a block has `:status: 200` from the static table,
/// then only literals without indexing or never indexed (RFC 7541 §6.1, §6.2.2, §6.2.3). Each literal has an indexed
/// name and a value that is not Huffman coded. The values are skipped, because only decoding shows whether a code is
/// right (§5.2).
struct CommonAnswer {
    private(set) var isOK = false
    /// Index of the fields' name when it lies in the dynamic table; 0 when there is none.
    private(set) var nameIndex: UInt32 = 0

    private static let statusOK: UInt8 = 0x88
    /// Highest length of a recognised block, because an answer so short can't exceed the header list's limit.
    private static let longest = 512
    /// Index of `retry-after`, the one regular name of the static table that is not skipped (RFC 7541, appendix A).
    private static let retryAfter: UInt32 = 53

    init(_ block: UnsafeRawBufferPointer) {
        guard block.first == Self.statusOK, block.count <= Self.longest else { return }
        var offset = 1
        while offset < block.count {
            guard block[offset] < 0x20,
                let index = Self.integer(block, &offset, prefixBits: 4), index >= 15,
                index != Self.retryAfter,
                offset < block.count, block[offset] & 0x80 == 0,
                let length = Self.integer(block, &offset, prefixBits: 7),
                block.count - offset >= Int(length)
            else { return }
            if index > 61 {
                guard nameIndex == 0 || nameIndex == index else { return }
                nameIndex = index
            }
            offset += Int(length)
        }
        isOK = true
    }

    /// Reads an integer (RFC 7541 §5.1). Returns nil when the integer does not end or exceeds our header blocks.
    @inline(__always)
    private static func integer(
        _ bytes: UnsafeRawBufferPointer, _ offset: inout Int, prefixBits: UInt8
    ) -> UInt32? {
        let limit = UInt32(1) << UInt32(prefixBits) - 1
        var value = UInt32(bytes[offset]) & limit
        offset += 1
        guard value == limit else { return value }
        var shift: UInt32 = 0
        while offset < bytes.count, shift <= 14 {
            let byte = bytes[offset]
            offset += 1
            value += UInt32(byte & 0x7f) << shift
            if byte & 0x80 == 0 { return value }
            shift += 7
        }
        return nil
    }
}

extension ResponseFields {
    private static func equals(_ bytes: UnsafeRawBufferPointer, _ text: StaticString) -> Bool {
        guard bytes.count == text.utf8CodeUnitCount else { return false }
        for index in 0..<bytes.count where bytes[index] != text.utf8Start[index] { return false }
        return true
    }

    /// Takes a field in. Returns whether the field is `apns-unique-id`, whose value the caller keeps.
    mutating func accept(name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer) -> Bool {
        guard let first = name.first else {
            isMalformed = true
            return false
        }
        if first == UInt8(ascii: ":") {
            guard Self.equals(name, ":status"), status == 0, !sawRegularField, value.count == 3 else {
                isMalformed = true
                return false
            }
            var number: UInt16 = 0
            for byte in value {
                guard byte >= 0x30, byte <= 0x39 else {
                    isMalformed = true
                    return false
                }
                number = number * 10 + UInt16(byte - 0x30)
            }
            guard number >= 100 else {
                isMalformed = true
                return false
            }
            status = number
            return false
        }
        sawRegularField = true
        for byte in name where byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") { isMalformed = true }
        if Self.equals(name, "retry-after") {
            retryAfterSeconds = 0
            for byte in value.prefix(9) {
                guard byte >= 0x30, byte <= 0x39 else {
                    retryAfterSeconds = 0
                    return false
                }
                retryAfterSeconds = retryAfterSeconds * 10 + UInt32(byte - 0x30)
            }
        }
        return Self.equals(name, "apns-unique-id")
    }
}
