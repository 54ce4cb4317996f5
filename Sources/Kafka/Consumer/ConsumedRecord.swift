import CRdkafka

/// A consumed record, the size of a pointer, without reference counting. The record is in librdkafka's buffers, or in
/// memory of its own (``inOwnMemory()``).
///
/// Lifetime: the holder calls `destroy()` exactly once, on any thread. Every borrowed slice (key, value, topic name,
/// header names and values) is invalid afterwards. Destroy all records before their `KafkaConsumer` is released: its
/// last step waits for them.
///
/// Memory: a record in librdkafka's buffers keeps its whole fetch response, up to `fetch.max.bytes` (Sluice's default:
/// 4 MB). A record of a compressed batch keeps the decompressed copy. A record that waits is therefore moved into memory
/// of its own.
///
/// Threads: a record may move between threads, and is used by one thread at a time.
// @unchecked: a message is an independent heap object. Its shared parts (fetch buffer, partition) are counted
// atomically by librdkafka. Only the holder uses the message, by the rule above. A record in its own memory has no
// shared parts.
public struct ConsumedRecord: @unchecked Sendable {
    let message: UnsafeMutablePointer<rd_kafka_message_t>

    init(_ message: UnsafeMutablePointer<rd_kafka_message_t>) { self.message = message }

    /// The record as a raw pointer, for a ring of pointers.
    public var rawPointer: UnsafeMutableRawPointer { UnsafeMutableRawPointer(message) }

    /// Creates the record from a pointer of `rawPointer`; no other pointer is valid.
    public init(rawPointer: UnsafeMutableRawPointer) {
        message = rawPointer.assumingMemoryBound(to: rd_kafka_message_t.self)
    }

    public var partition: Int32 { message.pointee.partition }
    public var offset: Int64 { message.pointee.offset }

    /// `nil`: the record has no key.
    public var key: UnsafeRawBufferPointer? {
        guard let key = message.pointee.key else { return nil }
        return UnsafeRawBufferPointer(start: key, count: message.pointee.key_len)
    }

    /// `nil`: the record's value is null (a tombstone). An empty value is an empty slice.
    public var value: UnsafeRawBufferPointer? {
        guard let value = message.pointee.payload else { return nil }
        return UnsafeRawBufferPointer(start: value, count: message.pointee.len)
    }

    /// Create time or log append time (the topic's `message.timestamp.type`), in ms since 1970. -1: none.
    public var timestampMilliseconds: Int64 {
        keepsResponse ? rd_kafka_message_timestamp(message, nil) : own.pointee.timestamp
    }

    /// The topic's name, borrowed. Empty for a record in memory of its own.
    public var topicName: UnsafeRawBufferPointer {
        guard keepsResponse, let name = rd_kafka_topic_name(message.pointee.rkt) else {
            return UnsafeRawBufferPointer(start: nil, count: 0)
        }
        return UnsafeRawBufferPointer(start: name, count: cStringLength(name))
    }

    /// Calls `body` for each header in the order of the record. Name and value are borrowed; a value may be
    /// null. The first call parses the headers (one small C allocation per header, freed with the record).
    ///
    /// A name ends at its first zero byte, because librdkafka returns names as C strings.
    @inlinable
    public func forEachHeader<Failure: Error>(
        _ body: (_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?) throws(Failure) -> Void
    ) throws(Failure) {
        guard keepsResponse else {
            for header in ownHeaders { try body(header.name, header.value) }
            return
        }
        guard let headers = parsedHeaders() else { return }
        var index = 0
        while let header = Self.header(headers, index) {
            try body(header.name, header.value)
            index += 1
        }
    }

    /// Number of headers of the record.
    public var headerCount: Int {
        keepsResponse ? parsedHeaders().map { rd_kafka_header_cnt($0) } ?? 0 : ownHeaders.count
    }

    /// Frees the record. Call exactly once.
    public func destroy() {
        if keepsResponse {
            rd_kafka_message_destroy(message)
        } else {
            OwnMemory.free(UnsafeMutableRawPointer(own))
        }
    }

    @usableFromInline func parsedHeaders() -> OpaquePointer? {
        var headers: OpaquePointer?
        guard rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR else { return nil }
        return headers
    }

    @usableFromInline static func header(
        _ headers: OpaquePointer, _ index: Int
    ) -> (name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
        var name: UnsafePointer<CChar>?
        var value: UnsafeRawPointer?
        var size = 0
        guard rd_kafka_header_get_all(headers, index, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR,
            let name
        else { return nil }
        return (
            UnsafeRawBufferPointer(start: name, count: cStringLength(name)),
            value.map { UnsafeRawBufferPointer(start: $0, count: size) }
        )
    }
}
