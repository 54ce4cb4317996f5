import Glibc
import SluiceModel

/// Writes the header blocks of one connection's requests (RFC 7541), straight into the frame buffer.
///
/// The dynamic table is used without eviction. A stable field is inserted on its first use while there is room, and
/// needs one or two bytes from then on. When the table is full, further fields are literals. A replaced value (the
/// hourly provider token) or a smaller table empties the table, and the table fills anew. An entry's index thus follows
/// from the order of insertion alone, and nothing is searched.
///
/// The part that requests of one kind share is kept as encoded last, and copied while the table stays the same.
public struct HeaderBlockEncoder: ~Copyable {
    private let fields: StableFields
    private let state: UnsafeMutablePointer<StableFields.State>
    /// Number of each field's insertion plus one, by field; 0 when the field is not in the table.
    private var insertion: UnsafeMutablePointer<UInt32>
    private var insertionCount = 0
    private var insertions: UInt32 = 0
    private var tableUsed = 0
    private var tableLimit: Int
    private var seenVersion: UInt32
    private var announceTableSize = false
    /// Changes whenever an index may change.
    private var generation: UInt32 = 1
    private var prebuilt: UnsafeMutablePointer<PrebuiltBlock>
    private var prebuiltCount = 0

    /// The last written number and its string, length included, because expirations within one second are alike.
    private var lastNumber: UInt32?
    private var lastNumberCount = 0
    private var lastNumberBytes: (UInt64, UInt64) = (0, 0)
    /// Code of all but the last four of a number's ten digits, because numbers of one hour mostly share them.
    private var lastStart: UInt32 = 0
    private var lastStartBits = HuffmanBits()
    /// Read once, because a static costs a check on each read.
    private let huffman = HuffmanBits()

    private var cursor: UnsafeMutableRawPointer
    private var end: UnsafeMutableRawPointer
    /// Whether the block did not fit into its room. The connection can't be used any longer then.
    private(set) var overflowed = false

    /// Table size until the server's SETTINGS change it (RFC 9113 §6.5.2). The size is also our upper limit.
    static let defaultTableSize = 4096
    private static let staticTableLength: UInt32 = 61
    /// Bytes behind a string that the string's encoder may overwrite.
    private static let slack = 8

    init(fields: StableFields) {
        self.fields = fields
        state = fields.state
        insertion = .allocate(capacity: 0)
        prebuilt = .allocate(capacity: 0)
        tableLimit = Self.defaultTableSize
        seenVersion = fields.state.pointee.version
        cursor = UnsafeMutableRawPointer(bitPattern: 1)!
        end = cursor
    }

    deinit {
        insertion.deallocate()
        prebuilt.deallocate()
    }

    /// Applies the server's SETTINGS_HEADER_TABLE_SIZE.
    mutating func peerTableSize(_ size: UInt32) {
        let limit = min(Int(size), Self.defaultTableSize)
        guard limit != tableLimit else { return }
        tableLimit = limit
        announceTableSize = true
    }

    mutating func start(at start: UnsafeMutableRawPointer, capacity: Int) {
        cursor = start
        end = start + capacity
        overflowed = false
        if seenVersion != state.pointee.version || announceTableSize {
            seenVersion = state.pointee.version
            announceTableSize = false
            forgetTable()
            // The first update sets size 0, which empties the table; the second restores the size (RFC 7541 §6.3).
            integer(0, prefixBits: 5, pattern: 0x20)
            if tableLimit > 0 { integer(UInt32(tableLimit), prefixBits: 5, pattern: 0x20) }
        }
        if insertionCount < state.pointee.count { addNewFields() }
    }

    func finish(from start: UnsafeMutableRawPointer) -> Int {
        cursor - start
    }

    private mutating func forgetTable() {
        insertion.update(repeating: 0, count: insertionCount)
        insertions = 0
        tableUsed = 0
        generation &+= 1
    }

    private mutating func addNewFields() {
        let count = state.pointee.capacity
        let grown = UnsafeMutablePointer<UInt32>.allocate(capacity: count)
        grown.initialize(repeating: 0, count: count)
        grown.update(from: insertion, count: insertionCount)
        insertion.deallocate()
        insertion = grown
        insertionCount = count
    }

    // MARK: For the request's encoder

    /// Writes the shared part of requests of one kind, and the path. The path is the template's prefix, then `device`:
    /// a device token in hexadecimal digits, or any other text.
    public mutating func request(_ template: StableFields.TemplateID, path device: UnsafeRawBufferPointer) {
        guard hasRoom(2 * PrebuiltBlock.maximumPart + Self.slack + 8 + 4 * device.count) else { return }
        guard template.index < prebuiltCount, prebuilt[template.index].generation == generation else {
            return buildRequest(template, path: device)
        }
        let block = prebuilt + template.index
        block.pointee.writeLeading(to: cursor)
        let start = cursor + Int(block.pointee.lengthOffset)
        cursor += Int(block.pointee.leadingCount)
        var bits = huffman.resumed(pending: block.pointee.pendingBits, count: block.pointee.pendingCount)
        bits.appendHexadecimal(device, to: &cursor)
        bits.finish(to: &cursor)
        endString(start, huffman: true)
        block.pointee.writeTrailing(to: cursor)
        cursor += Int(block.pointee.trailingCount)
    }

    /// Writes `:path` as a literal without indexing: `prefix`, then `rest`.
    public mutating func path(_ prefix: StaticString, _ rest: UnsafeRawBufferPointer) {
        guard hasRoom(16 + Self.slack + 4 * (prefix.utf8CodeUnitCount + rest.count)) else { return }
        put(0x04)
        let start = beginHuffman()
        var bits = huffman
        bits.append(
            UnsafeRawBufferPointer(start: prefix.utf8Start, count: prefix.utf8CodeUnitCount), to: &cursor)
        bits.appendHexadecimal(rest, to: &cursor)
        bits.finish(to: &cursor)
        endString(start, huffman: true)
    }

    /// Writes a field of RFC 7541's static table (appendix A), name and value.
    public mutating func indexedStatic(_ index: UInt8) {
        guard hasRoom(1) else { return }
        put(0x80 | index)
    }

    /// Writes a stable field: as an index, by insertion, or as a literal when the table is full.
    public mutating func stable(_ id: StableFields.ID) {
        let index = tableIndex(id)
        if index != 0 {
            guard hasRoom(6) else { return }
            integer(index, prefixBits: 7, pattern: 0x80)
            return
        }
        literal(named: id, value: state.pointee.fields[id.index].value)
    }

    /// Writes a value of this request under a name that repeats. The value stays out of the table, except the first,
    /// which inserts the name.
    public mutating func value(_ name: StableFields.ID, _ bytes: UnsafeRawBufferPointer) {
        literal(named: name, value: bytes)
    }

    /// Writes an identifier in the canonical form of a UUID, as above: 8-4-4-4-12 lower-case digits. Without Huffman
    /// coding, which would save ten bytes and cost three times as many instructions.
    public mutating func value(_ name: StableFields.ID, identifier high: UInt64, _ low: UInt64) {
        guard beginLiteral(named: name, valueLength: APNSID.textLength) else { return }
        cursor.storeBytes(of: UInt8(APNSID.textLength), as: UInt8.self)
        APNSID(high: high, low: low).write(to: cursor + 1)
        cursor += 1 + APNSID.textLength
    }

    /// Writes a number in decimal digits, as above.
    public mutating func value(_ name: StableFields.ID, decimal number: UInt32) {
        // The estimate of ten digits may exceed the number's. The table then counts as fuller than it is, which is
        // safe.
        guard beginLiteral(named: name, valueLength: 10) else { return }
        if number != lastNumber { encode(number) }
        cursor.storeBytes(of: lastNumberBytes, as: (UInt64, UInt64).self)
        cursor += lastNumberCount
    }

    /// Encodes a number: at most ten digits of six bits, and a length.
    private mutating func encode(_ number: UInt32) {
        let start = number / 10_000
        guard start >= 100_000 else { return encodeShort(number) }
        if start != lastStart {
            // Three pairs do not fill the word that collects them.
            var bits = huffman
            bits.appendDecimalPair(start / 10_000)
            bits.appendDecimalPair(start / 100 % 100)
            bits.appendDecimalPair(start % 100)
            lastStart = start
            lastStartBits = bits
        }
        var bits = lastStartBits
        let end = number - start * 10_000
        bits.appendDecimalPair(end / 100)
        bits.appendDecimalPair(end % 100)
        keep(bits.closed(), of: number)
    }

    private mutating func encodeShort(_ number: UInt32) {
        var bits = huffman
        var divisor: UInt32 = 1_000_000_000
        while divisor > 1, number < divisor { divisor /= 10 }
        while divisor > 0 {
            bits.appendDigit(UInt8(truncatingIfNeeded: number / divisor % 10))
            divisor /= 10
        }
        keep(bits.closed(), of: number)
    }

    private mutating func keep(_ string: (bytes: UInt64, count: Int), of number: UInt32) {
        // The length is first, then the string, in the stored order.
        lastNumberBytes = (
            UInt64(0x80 | string.count) | string.bytes.byteSwapped &<< 8, string.bytes & 0xff
        )
        lastNumberCount = string.count + 1
        lastNumber = number
    }

    // MARK: Templates

    /// Writes a template's fields one by one and keeps the bytes if indices suffice.
    private mutating func buildRequest(
        _ id: StableFields.TemplateID, path device: UnsafeRawBufferPointer
    ) {
        let template = fields.templates[id.index]
        let before = generation
        let start = cursor
        for part in template.leading {
            switch part {
            case .indexedStatic(let index): indexedStatic(index)
            case .stable(let field): stable(field)
            }
        }
        guard hasRoom(16 + Self.slack + 4 * (template.pathPrefix.count + device.count)) else { return }
        // `:path` is the static table's fourth entry, and is not indexed because it differs from device to device.
        put(0x04)
        let length = beginHuffman()
        var bits = huffman
        bits.append(template.pathPrefix, to: &cursor)
        var block = PrebuiltBlock(generation: before)
        let isKept = block.setLeading(
            UnsafeRawBufferPointer(start: start, count: cursor - start), lengthOffset: length - start, bits)
        bits.appendHexadecimal(device, to: &cursor)
        bits.finish(to: &cursor)
        endString(length, huffman: true)
        let trailing = cursor
        for field in template.trailing { stable(field) }
        guard isKept, !overflowed, generation == before,
            block.setTrailing(UnsafeRawBufferPointer(start: trailing, count: cursor - trailing))
        else { return }
        keep(block, as: id)
    }

    private mutating func keep(_ block: PrebuiltBlock, as id: StableFields.TemplateID) {
        if id.index >= prebuiltCount {
            let count = max(16, fields.templates.count, 2 * prebuiltCount)
            let grown = UnsafeMutablePointer<PrebuiltBlock>.allocate(capacity: count)
            grown.initialize(repeating: PrebuiltBlock(generation: 0), count: count)
            grown.update(from: prebuilt, count: prebuiltCount)
            prebuilt.deallocate()
            prebuilt = grown
            prebuiltCount = count
        }
        prebuilt[id.index] = block
    }

    // MARK: Representations

    private func tableIndex(_ id: StableFields.ID) -> UInt32 {
        let number = insertion[id.index]
        return number == 0 ? 0 : Self.staticTableLength + insertions - number + 1
    }

    /// Writes a literal's name, and inserts the field when its name is new and the table has room.
    @inline(__always)
    private mutating func beginLiteral(named id: StableFields.ID, valueLength: Int) -> Bool {
        let nameIndex = tableIndex(id)
        guard nameIndex == 0 else {
            guard hasRoom(16 + Self.slack + 4 * valueLength) else { return false }
            integer(nameIndex, prefixBits: 4, pattern: 0x00)
            return true
        }
        return beginLiteralByName(id, valueLength: valueLength)
    }

    private mutating func beginLiteralByName(_ id: StableFields.ID, valueLength: Int) -> Bool {
        let name = state.pointee.fields[id.index].name
        guard hasRoom(16 + Self.slack + 4 * (name.count + valueLength)) else { return false }
        let size = name.count + valueLength + 32
        let insert = tableUsed + size <= tableLimit
        if insert {
            insertions += 1
            insertion[id.index] = insertions
            tableUsed += size
            generation &+= 1
        }
        put(insert ? 0x40 : 0x00)
        string(name)
        return true
    }

    private mutating func literal(named id: StableFields.ID, value: UnsafeRawBufferPointer) {
        guard beginLiteral(named: id, valueLength: value.count) else { return }
        string(value)
    }

    /// Writes a string, Huffman coded where that is shorter.
    private mutating func string(_ bytes: UnsafeRawBufferPointer) {
        let start = beginHuffman()
        var bits = huffman
        bits.append(bytes, to: &cursor)
        bits.finish(to: &cursor)
        guard cursor - start > bytes.count else { return endString(start, huffman: true) }
        cursor = start
        integer(UInt32(bytes.count), prefixBits: 7, pattern: 0x00)
        if let source = bytes.baseAddress { memcpy(cursor, source, bytes.count) }
        cursor += bytes.count
    }

    private mutating func beginHuffman() -> UnsafeMutableRawPointer {
        let start = cursor
        cursor += 1
        return start
    }

    /// Writes the length before the string. Strings of 127 bytes or more are moved, which is rare.
    @inline(__always)
    private mutating func endString(_ start: UnsafeMutableRawPointer, huffman: Bool) {
        let length = cursor - start - 1
        if length < 127 {
            start.storeBytes(of: (huffman ? 0x80 : 0) | UInt8(truncatingIfNeeded: length), as: UInt8.self)
            return
        }
        endLongString(start, length, huffman: huffman)
    }

    private mutating func endLongString(_ start: UnsafeMutableRawPointer, _ length: Int, huffman: Bool) {
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

    /// Writes an integer (RFC 7541 §5.1).
    @inline(__always)
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

    @inline(__always)
    private mutating func put(_ byte: UInt8) {
        cursor.storeBytes(of: byte, as: UInt8.self)
        cursor += 1
    }

    @inline(__always)
    private mutating func hasRoom(_ count: Int) -> Bool {
        if end - cursor >= count, !overflowed { return true }
        overflowed = true
        return false
    }
}
