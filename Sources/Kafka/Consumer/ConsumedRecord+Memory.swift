import CRdkafka

/// Memory that a record keeps, and its move out of librdkafka's buffers.
extension ConsumedRecord {
    /// A record in memory of its own. Headers and bytes follow it in the same block.
    struct Own {
        /// First, so that the record's pointer is that of a message. Its `_private` is nil, which no consumed message of
        /// librdkafka has.
        var message: rd_kafka_message_t
        /// Milliseconds since 1970; -1: none.
        var timestamp: Int64
        var headerCount: Int
    }

    /// A header of a record in memory of its own.
    @usableFromInline struct OwnHeader {
        @usableFromInline var name: UnsafeRawBufferPointer
        /// Nil for a null value.
        @usableFromInline var value: UnsafeRawBufferPointer?
    }

    /// Whether the record is in librdkafka's buffers, and keeps a whole fetch response.
    public var keepsResponse: Bool { message.pointee._private != nil }

    /// Valid for a record in memory of its own.
    var own: UnsafeMutablePointer<Own> {
        UnsafeMutableRawPointer(message).assumingMemoryBound(to: Own.self)
    }

    /// Headers of a record in memory of its own.
    @usableFromInline var ownHeaders: UnsafeBufferPointer<OwnHeader> {
        let first = (UnsafeRawPointer(own) + Self.headersStart).assumingMemoryBound(to: OwnHeader.self)
        return UnsafeBufferPointer(start: first, count: own.pointee.headerCount)
    }

    private static var headersStart: Int {
        let alignment = MemoryLayout<OwnHeader>.alignment
        return (MemoryLayout<Own>.size + alignment - 1) / alignment * alignment
    }

    /// Bytes of key, value, names and values of headers. Parses the headers.
    private var contentBytes: Int { (key?.count ?? 0) + (value?.count ?? 0) + headerBytes }

    /// Bytes of the headers' names and values. Parses the headers.
    private var headerBytes: Int {
        var bytes = 0
        forEachHeader { name, value in bytes += name.count + (value?.count ?? 0) }
        return bytes
    }

    /// Moves the record into memory of its own, and destroys this one. Slices of this record are invalid afterwards. A
    /// record that has its own memory already is returned as it is.
    public func inOwnMemory() -> ConsumedRecord {
        guard keepsResponse else { return self }
        let headerCount = headerCount
        let bytesStart = Self.headersStart + headerCount * MemoryLayout<OwnHeader>.stride
        let block = OwnMemory.allocate(
            byteCount: bytesStart + contentBytes, alignment: MemoryLayout<Own>.alignment)
        var free = block + bytesStart
        func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
            let target = UnsafeMutableRawBufferPointer(start: free, count: bytes.count)
            target.copyMemory(from: bytes)
            free += bytes.count
            return UnsafeRawBufferPointer(target)
        }
        var copied = message.pointee
        copied.rkt = nil
        copied._private = nil
        copied.key = key.flatMap { UnsafeMutableRawPointer(mutating: copy($0).baseAddress) }
        copied.payload = value.flatMap { UnsafeMutableRawPointer(mutating: copy($0).baseAddress) }
        let headers = (block + Self.headersStart).bindMemory(to: OwnHeader.self, capacity: headerCount)
        var filled = 0
        forEachHeader { name, value in
            (headers + filled).initialize(to: OwnHeader(name: copy(name), value: value.map(copy)))
            filled += 1
        }
        let own = block.bindMemory(to: Own.self, capacity: 1)
        own.initialize(
            to: Own(message: copied, timestamp: timestampMilliseconds, headerCount: headerCount))
        destroy()
        return ConsumedRecord(rawPointer: block)
    }

    // MARK: Sizes

    /// Bytes that a record counts for beside its key, value and headers: librdkafka's message and the worker's tables.
    static let bookkeepingBytes = 512
    /// Bytes of librdkafka's object for a parsed header, without name and value.
    static let bytesPerParsedHeader = 80
    /// Bytes between two neighbouring records of a fetch response up to which they count without a look at the headers.
    private static let mostUnreadBytes = 4_096

    /// Returns the bytes that the record counts for. A record whose headers weren't parsed is measured by the distance to
    /// its successor, because parsing costs more than all else that the caller does with a record.
    ///
    /// In Kafka's format, the headers follow the value, and the next record follows the headers. So headers are never
    /// longer than the distance from the value to the next record's key. Where the next record isn't near, the headers
    /// are parsed: at the end of a batch, of a poll, and at long headers.
    /// - Parameter next: the record polled next, which hasn't been freed; nil: there is none.
    public func countedBytes(before next: ConsumedRecord?) -> Int {
        let bytes = bareBytes
        if let value = message.pointee.payload, let next,
            let start = next.message.pointee.key ?? next.message.pointee.payload
        {
            let distance = Int(bitPattern: start) &- Int(bitPattern: value) &- message.pointee.len
            if distance >= 0, distance <= Self.mostUnreadBytes { return bytes &+ distance }
        }
        return countedBytes(headers: headerCount, bytes: headerBytes)
    }

    /// Returns the bytes that a record with parsed headers counts for.
    /// - Parameters:
    ///   - count: number of its headers.
    ///   - bytes: bytes of their names and values, which librdkafka's buffer has as well.
    public func countedBytes(headers count: Int, bytes: Int) -> Int {
        keepsResponse
            ? bareBytes &+ 2 &* bytes &+ count &* Self.bytesPerParsedHeader
            : bareBytes &+ bytes &+ count &* MemoryLayout<OwnHeader>.stride
    }

    /// Bytes that a record in memory of its own counts for.
    public var ownBytes: Int { countedBytes(headers: headerCount, bytes: headerBytes) }

    private var bareBytes: Int {
        message.pointee.key_len &+ message.pointee.len &+ Self.bookkeepingBytes
    }
}
