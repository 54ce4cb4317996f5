import CRdkafka

/// Headers of a record that is to be produced, in their order. Owns librdkafka's list until the record has it.
public struct HeaderList: ~Copyable {
    /// Nil once a record has taken the list over.
    private(set) var handle: OpaquePointer?

    /// - Parameter capacity: headers for which room is made at once; more may follow.
    public init(capacity: Int) { handle = rd_kafka_headers_new(capacity) }

    deinit { if let handle { rd_kafka_headers_destroy(handle) } }

    /// Appends a header, and copies its bytes. A nil value is a null.
    public mutating func append(_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?) {
        let (start, count) = KafkaProducer.bytes(value)
        _ = rd_kafka_header_add(
            handle, name.baseAddress?.assumingMemoryBound(to: CChar.self), name.count, start, count)
    }

    /// Appends a header, and copies its bytes. A nil value is a null.
    public mutating func append(_ name: String, _ value: [UInt8]?) {
        var name = name
        name.withUTF8 { name in
            guard let value else { return append(UnsafeRawBufferPointer(name), nil) }
            value.withUnsafeBytes { append(UnsafeRawBufferPointer(name), $0) }
        }
    }

    /// Records that a record has taken the list over.
    mutating func handedOver() { handle = nil }
}
