import Glibc

/// Writes the header blocks of one connection's requests (RFC 7541), straight into the frame buffer.
///
/// The dynamic table is used without eviction: a stable field is inserted the first time it is used while
/// there is room, and is one or two bytes from then on; when the table is full the rest goes as literals.
/// A replaced value (the provider token, hourly) or a smaller table empties it and it fills anew. So an
/// entry's index follows from the order of insertion alone, and nothing needs to be searched.
public struct HeaderBlockEncoder {
    private let fields: StableFields
    /// By field: the insertion's number plus one; 0 when it is not in the table.
    private var insertion: [UInt32] = []
    private var insertions: UInt32 = 0
    private var tableUsed = 0
    private var tableLimit: Int
    private var seenVersion: UInt32
    private var announceTableSize = false

    private var cursor: UnsafeMutableRawPointer
    private var end: UnsafeMutableRawPointer
    /// Set when the block did not fit into its room; the connection can't be used any longer then.
    private(set) var overflowed = false

    /// RFC 9113 §6.5.2: the table's size until the server's SETTINGS say otherwise. Also our upper limit.
    static let defaultTableSize = 4096
    private static let staticTableLength: UInt32 = 61

    init(fields: StableFields) {
        self.fields = fields
        tableLimit = Self.defaultTableSize
        seenVersion = fields.version
        cursor = UnsafeMutableRawPointer(bitPattern: 1)!
        end = cursor
    }

    /// The server's SETTINGS_HEADER_TABLE_SIZE.
    mutating func peerTableSize(_ size: UInt32) {
        let limit = min(Int(size), Self.defaultTableSize)
        guard limit != tableLimit else { return }
        tableLimit = limit
        announceTableSize = true
    }

    mutating func begin(at start: UnsafeMutableRawPointer, capacity: Int) {
        cursor = start
        end = start + capacity
        overflowed = false
        if seenVersion != fields.version || announceTableSize {
            seenVersion = fields.version
            announceTableSize = false
            forgetTable()
            // RFC 7541 §6.3: to nothing, which empties the table, and back to its size.
            integer(0, prefixBits: 5, pattern: 0x20)
            if tableLimit > 0 { integer(UInt32(tableLimit), prefixBits: 5, pattern: 0x20) }
        }
        if insertion.count < fields.fields.count {
            insertion.append(
                contentsOf: repeatElement(0, count: fields.fields.count - insertion.count))
        }
    }

    func finish(from start: UnsafeMutableRawPointer) -> Int {
        cursor - start
    }

    private mutating func forgetTable() {
        for index in insertion.indices { insertion[index] = 0 }
        insertions = 0
        tableUsed = 0
    }

    // MARK: For the request's encoder

    /// A field of RFC 7541's static table (appendix A), name and value.
    public mutating func indexedStatic(_ index: UInt8) {
        guard hasRoom(1) else { return }
        put(0x80 | index)
    }

    /// A stable field: its index, or inserted now, or a literal when the table is full.
    public mutating func stable(_ id: StableFields.ID) {
        let index = tableIndex(id)
        if index != 0 {
            guard hasRoom(6) else { return }
            integer(index, prefixBits: 7, pattern: 0x80)
            return
        }
        let field = fields.fields[id.index]
        literal(named: id, field: field, value: field.value)
    }

    /// A value of this request under a name that repeats. The value never enters the table, but for the
    /// first time, when it takes the name there.
    public mutating func value(_ name: StableFields.ID, _ bytes: UnsafeRawBufferPointer) {
        literal(named: name, field: fields.fields[name.index], value: bytes)
    }

    /// `:path`, as a literal without indexing: `prefix` then `rest`.
    public mutating func path(_ prefix: StaticString, _ rest: UnsafeRawBufferPointer) {
        guard hasRoom(8 + 4 * (prefix.utf8CodeUnitCount + rest.count)) else { return }
        put(0x04)
        let start = beginHuffman()
        var bits = HuffmanBits()
        bits.append(
            UnsafeRawBufferPointer(start: prefix.utf8Start, count: prefix.utf8CodeUnitCount), to: &cursor)
        bits.append(rest, to: &cursor)
        bits.finish(to: &cursor)
        endString(start, huffman: true)
    }

    // MARK: Representations

    private func tableIndex(_ id: StableFields.ID) -> UInt32 {
        let number = insertion[id.index]
        return number == 0 ? 0 : Self.staticTableLength + insertions - number + 1
    }

    private mutating func literal(
        named id: StableFields.ID, field: StableFields.Field, value: UnsafeRawBufferPointer
    ) {
        guard hasRoom(16 + 4 * (field.name.count + value.count)) else { return }
        let nameIndex = tableIndex(id)
        if nameIndex != 0 {
            integer(nameIndex, prefixBits: 4, pattern: 0x00)
        } else {
            let size = field.name.count + value.count + 32
            let insert = tableUsed + size <= tableLimit
            if insert {
                insertions += 1
                insertion[id.index] = insertions
                tableUsed += size
            }
            put(insert ? 0x40 : 0x00)
            string(field.name)
        }
        string(value)
    }

    private mutating func string(_ bytes: UnsafeRawBufferPointer) {
        if HuffmanBits.length(of: bytes) < bytes.count {
            let start = beginHuffman()
            var bits = HuffmanBits()
            bits.append(bytes, to: &cursor)
            bits.finish(to: &cursor)
            endString(start, huffman: true)
        } else {
            integer(UInt32(bytes.count), prefixBits: 7, pattern: 0x00)
            if let source = bytes.baseAddress { memcpy(cursor, source, bytes.count) }
            cursor += bytes.count
        }
    }

    private mutating func beginHuffman() -> UnsafeMutableRawPointer {
        let start = cursor
        cursor += 1
        return start
    }

    /// Writes the length before the string; strings of 127 bytes and more are moved, which is rare.
    private mutating func endString(_ start: UnsafeMutableRawPointer, huffman: Bool) {
        let length = cursor - start - 1
        if length < 127 {
            start.storeBytes(of: (huffman ? 0x80 : 0) | UInt8(length), as: UInt8.self)
            return
        }
        var extra = 1
        var rest = (length - 127) >> 7
        while rest > 0 {
            extra += 1
            rest >>= 7
        }
        memmove(start + 1 + extra, start + 1, length)
        cursor = start
        integer(UInt32(length), prefixBits: 7, pattern: huffman ? 0x80 : 0)
        cursor += length
    }

    /// RFC 7541 §5.1.
    private mutating func integer(_ value: UInt32, prefixBits: UInt32, pattern: UInt8) {
        let limit = UInt32(1) << prefixBits - 1
        if value < limit {
            put(pattern | UInt8(truncatingIfNeeded: value))
            return
        }
        put(pattern | UInt8(truncatingIfNeeded: limit))
        var rest = value - limit
        while rest >= 128 {
            put(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        put(UInt8(truncatingIfNeeded: rest))
    }

    private mutating func put(_ byte: UInt8) {
        cursor.storeBytes(of: byte, as: UInt8.self)
        cursor += 1
    }

    private mutating func hasRoom(_ count: Int) -> Bool {
        if end - cursor >= count, !overflowed { return true }
        overflowed = true
        return false
    }
}

/// Collects Huffman codes into bytes.
struct HuffmanBits {
    private var pending: UInt64 = 0
    private var pendingCount: UInt64 = 0

    /// Bytes that `bytes` take when coded.
    static func length(of bytes: UnsafeRawBufferPointer) -> Int {
        let table = HuffmanCode.packed
        var bits: UInt64 = 0
        for byte in bytes { bits &+= table[Int(byte)] & 0xff }
        return Int((bits + 7) / 8)
    }

    mutating func append(_ bytes: UnsafeRawBufferPointer, to cursor: inout UnsafeMutableRawPointer) {
        let table = HuffmanCode.packed
        var pending = pending
        var count = pendingCount
        for byte in bytes {
            let entry = table[Int(byte)]
            let length = entry & 0xff
            pending = pending &<< length | entry &>> 8
            count &+= length
            if count >= 32 {
                count &-= 32
                cursor.storeBytes(
                    of: UInt32(truncatingIfNeeded: pending &>> count).bigEndian, as: UInt32.self)
                cursor += 4
            }
        }
        self.pending = pending
        pendingCount = count
    }

    /// Pads the last byte with ones, the beginning of the end-of-string code (RFC 7541 §5.2).
    mutating func finish(to cursor: inout UnsafeMutableRawPointer) {
        while pendingCount >= 8 {
            pendingCount -= 8
            cursor.storeBytes(of: UInt8(truncatingIfNeeded: pending >> pendingCount), as: UInt8.self)
            cursor += 1
        }
        if pendingCount > 0 {
            let padding = 8 - pendingCount
            let byte = UInt8(truncatingIfNeeded: pending << padding) | UInt8((1 << padding) - 1)
            cursor.storeBytes(of: byte, as: UInt8.self)
            cursor += 1
        }
    }
}
