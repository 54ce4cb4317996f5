// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka

/// Memory of a fetch response, or of a delivery report. Lives as long as one of its messages.
final class MessageMemory {
    let start: UnsafeMutableRawPointer
    let world: KafkaCluster
    private let isResponse: Bool
    let owner: ConsumedMemory

    init(_ world: KafkaCluster, bytes: Int, isResponse: Bool) {
        self.world = world
        self.isResponse = isResponse
        start = .allocate(byteCount: max(1, bytes), alignment: 16)
        owner = world.memory
        if isResponse { owner.responses += 1 }
    }

    /// Bytes of a stored record, headers included.
    func bytes(of record: Int) -> Int { world.records[record].contentBytes }

    deinit {
        start.deallocate()
        if isResponse { owner.responses -= 1 }
    }
}

/// A message, consumed or reported. The message of librdkafka is first, so that both have the same pointer.
struct Message {
    var message: rd_kafka_message_t
    /// Number of the stored record; -1 for an error.
    var record: Int
    var memory: Unmanaged<MessageMemory>?
    /// Parsed headers; nil before.
    var headers: OpaquePointer?
    /// Whether the message is of a fetch response.
    var isConsumed: Bool
    /// Whether the message has left the client's queue.
    var isTaken = false
    var status = RD_KAFKA_MSG_STATUS_PERSISTED

    typealias Pointer = UnsafeMutablePointer<Message>

    /// Bytes of Kafka's format around a record in a response, at least.
    static let overhead = 16

    /// Copies a record to the memory: key, value, headers, as in Kafka's format.
    static func make(
        _ record: Int, _ topic: TopicHandle, _ partition: Int32, _ offset: Int64, in memory: MessageMemory,
        at position: inout Int, isConsumed: Bool
    ) -> Pointer {
        let stored = memory.world.records[record]
        var free = memory.start + position
        func copied(_ bytes: [UInt8]?) -> UnsafeMutableRawPointer? {
            guard let bytes else { return nil }
            defer { free += bytes.count }
            bytes.withUnsafeBytes {
                if let base = $0.baseAddress { free.copyMemory(from: base, byteCount: $0.count) }
            }
            return free
        }
        let key = copied(stored.key)
        let value = copied(stored.value)
        position += stored.contentBytes + overhead + 4 * stored.headers.count
        let pointer = Pointer.allocate(capacity: 1)
        pointer.initialize(
            to: Message(
                message: rd_kafka_message_t(
                    err: RD_KAFKA_RESP_ERR_NO_ERROR, rkt: borrowed(topic), partition: partition,
                    payload: value, len: stored.value?.count ?? 0, key: key,
                    key_len: stored.key?.count ?? 0, offset: offset,
                    // Not nil, which marks a record in memory of its own.
                    _private: isConsumed ? UnsafeMutableRawPointer(pointer) : stored.opaque),
                record: record, memory: .passRetained(memory), isConsumed: isConsumed))
        if isConsumed { memory.owner.records += 1 }
        return pointer
    }

    /// Notes that a message leaves its client's queue.
    static func take(_ pointer: Pointer) {
        guard pointer.pointee.isConsumed else { return }
        pointer.pointee.isTaken = true
        pointer.pointee.memory?._withUnsafeGuaranteedRef {
            $0.owner.bytes += $0.bytes(of: pointer.pointee.record)
        }
    }

    /// Makes a message that is an error.
    static func error(
        _ code: rd_kafka_resp_err_t, _ topic: TopicHandle?, _ partition: Int32 = -1, _ offset: Int64 = -1
    ) -> Pointer {
        let pointer = Pointer.allocate(capacity: 1)
        pointer.initialize(
            to: Message(
                message: rd_kafka_message_t(
                    err: code, rkt: topic.map { borrowed($0) }, partition: partition, payload: nil, len: 0,
                    key: nil, key_len: 0, offset: offset, _private: nil),
                record: -1, memory: nil, isConsumed: false))
        return pointer
    }

    static func of(_ message: UnsafePointer<rd_kafka_message_t>) -> Pointer {
        UnsafeMutableRawPointer(mutating: message).assumingMemoryBound(to: Message.self)
    }

    static func destroy(_ pointer: Pointer) {
        if let headers = pointer.pointee.headers { rd_kafka_headers_destroy(headers) }
        if let memory = pointer.pointee.memory {
            if pointer.pointee.isConsumed {
                memory._withUnsafeGuaranteedRef {
                    $0.owner.records -= 1
                    if pointer.pointee.isTaken { $0.owner.bytes -= $0.bytes(of: pointer.pointee.record) }
                }
            }
            memory.release()
        }
        pointer.deallocate()
    }
}

extension UnsafeMutablePointer<Message> {
    /// The message of librdkafka at the same place.
    var asMessage: UnsafeMutablePointer<rd_kafka_message_t> {
        UnsafeMutableRawPointer(self).assumingMemoryBound(to: rd_kafka_message_t.self)
    }
}

func rd_kafka_message_destroy(_ rkmessage: UnsafeMutablePointer<rd_kafka_message_t>!) {
    Message.destroy(Message.of(rkmessage))
}

func rd_kafka_message_errstr(_ rkmessage: UnsafePointer<rd_kafka_message_t>!) -> UnsafePointer<CChar>! {
    rd_kafka_err2str(rkmessage.pointee.err)
}

func rd_kafka_message_status(_ rkmessage: UnsafePointer<rd_kafka_message_t>!) -> rd_kafka_msg_status_t {
    Message.of(rkmessage).pointee.status
}

func rd_kafka_message_timestamp(
    _ rkmessage: UnsafePointer<rd_kafka_message_t>!,
    _ tstype: UnsafeMutablePointer<rd_kafka_timestamp_type_t>!
) -> Int64 {
    let message = Message.of(rkmessage).pointee
    return message.memory!._withUnsafeGuaranteedRef { $0.world.records[message.record].timestamp }
}

func rd_kafka_message_headers(
    _ rkmessage: UnsafePointer<rd_kafka_message_t>!, _ hdrsp: UnsafeMutablePointer<OpaquePointer?>!
) -> rd_kafka_resp_err_t {
    let message = Message.of(rkmessage)
    if message.pointee.headers == nil, let memory = message.pointee.memory {
        let headers = memory._withUnsafeGuaranteedRef { $0.world.records[message.pointee.record].headers }
        guard !headers.isEmpty else { return RD_KAFKA_RESP_ERR__NOENT }
        let list = rd_kafka_headers_new(headers.count)
        for (name, value) in headers {
            _ = (value ?? []).withUnsafeBytes { bytes in
                rd_kafka_header_add(
                    list, name, name.utf8.count,
                    value == nil ? nil : bytes.baseAddress ?? UnsafeRawPointer(bitPattern: 1), bytes.count)
            }
        }
        message.pointee.headers = list
    }
    hdrsp.pointee = message.pointee.headers
    return message.pointee.headers == nil ? RD_KAFKA_RESP_ERR__NOENT : RD_KAFKA_RESP_ERR_NO_ERROR
}
