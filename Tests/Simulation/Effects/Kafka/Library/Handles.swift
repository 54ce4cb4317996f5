// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka

// The twin's objects behind librdkafka's opaque pointers.

/// Returns a pointer to an object that somebody else keeps.
func borrowed(_ object: AnyObject) -> OpaquePointer {
    OpaquePointer(Unmanaged.passUnretained(object).toOpaque())
}

/// Returns a pointer that keeps its object until `release`.
func owned(_ object: AnyObject) -> OpaquePointer {
    OpaquePointer(Unmanaged.passRetained(object).toOpaque())
}

func object<Object: AnyObject>(_ pointer: OpaquePointer, as: Object.Type = Object.self) -> Object {
    Unmanaged<Object>.fromOpaque(UnsafeRawPointer(pointer)).takeUnretainedValue()
}

func release(_ pointer: OpaquePointer) {
    Unmanaged<AnyObject>.fromOpaque(UnsafeRawPointer(pointer)).release()
}

/// Memory of C values that belong together.
final class Arena {
    private var blocks: [UnsafeMutableRawPointer] = []

    deinit { for block in blocks { block.deallocate() } }

    func text(_ text: String) -> UnsafeMutablePointer<CChar> {
        array(text.utf8CString.map { $0 })
    }

    func array<Element>(_ elements: [Element]) -> UnsafeMutablePointer<Element> {
        let memory = UnsafeMutablePointer<Element>.allocate(capacity: max(1, elements.count))
        memory.initialize(from: elements, count: elements.count)
        blocks.append(memory)
        return memory
    }
}

/// A topic, as a client has it.
final class TopicHandle {
    let name: String
    let text: UnsafePointer<CChar>
    unowned let client: KafkaClient
    private let arena = Arena()

    init(_ name: String, _ client: KafkaClient) {
        self.name = name
        self.client = client
        text = UnsafePointer(arena.text(name))
    }
}

/// A group's membership at one moment.
final class GroupMetadata {
    let membership: KafkaModel.Membership

    init(_ membership: KafkaModel.Membership) { self.membership = membership }
}

/// Copies a text into a C buffer, cut to its size.
func copy(_ text: String, to buffer: UnsafeMutablePointer<CChar>?, _ size: Int) {
    guard let buffer, size > 0 else { return }
    let bytes = text.utf8.prefix(size - 1)
    for (index, byte) in bytes.enumerated() { buffer[index] = CChar(bitPattern: byte) }
    buffer[bytes.count] = 0
}

func rd_kafka_topic_new(
    _ rk: OpaquePointer!, _ topic: UnsafePointer<CChar>!, _ conf: OpaquePointer!
) -> OpaquePointer! {
    borrowed(object(rk, as: KafkaClient.self).handle(String(cString: topic)))
}

/// A client keeps its handles.
func rd_kafka_topic_destroy(_ rkt: OpaquePointer!) {}

func rd_kafka_topic_name(_ rkt: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(rkt, as: TopicHandle.self).text
}

func rd_kafka_last_error() -> rd_kafka_resp_err_t { KafkaCluster.current.lastError }

// MARK: Errors

/// An error of a call.
final class CallError {
    let code: rd_kafka_resp_err_t
    let text: UnsafePointer<CChar>
    private let arena = Arena()

    init(_ code: rd_kafka_resp_err_t, _ message: String) {
        self.code = code
        text = UnsafePointer(arena.text(message))
    }
}

func rd_kafka_error_code(_ error: OpaquePointer!) -> rd_kafka_resp_err_t {
    object(error, as: CallError.self).code
}

func rd_kafka_error_string(_ error: OpaquePointer!) -> UnsafePointer<CChar>! {
    object(error, as: CallError.self).text
}

func rd_kafka_error_is_fatal(_ error: OpaquePointer!) -> Int32 { 0 }
func rd_kafka_error_is_retriable(_ error: OpaquePointer!) -> Int32 { 0 }
func rd_kafka_error_txn_requires_abort(_ error: OpaquePointer!) -> Int32 { 0 }
func rd_kafka_error_destroy(_ error: OpaquePointer!) { release(error) }
