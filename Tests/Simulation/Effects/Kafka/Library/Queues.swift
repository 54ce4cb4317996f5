// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CRdkafka
import DequeModule

/// A queue of a client: that of its records and events, or one for the answers to a caller.
final class KafkaQueue {
    let client: KafkaClient
    var isMain: Bool
    var operations = Deque<KafkaClient.Operation>()
    var events = Deque<KafkaEvent>()

    init(_ client: KafkaClient, isMain: Bool) {
        self.client = client
        self.isMain = isMain
    }
}

func rd_kafka_queue_new(_ rk: OpaquePointer!) -> OpaquePointer! {
    owned(KafkaQueue(object(rk), isMain: false))
}

func rd_kafka_queue_get_consumer(_ rk: OpaquePointer!) -> OpaquePointer! {
    owned(KafkaQueue(object(rk), isMain: true))
}

func rd_kafka_queue_get_main(_ rk: OpaquePointer!) -> OpaquePointer! {
    owned(KafkaQueue(object(rk), isMain: true))
}

func rd_kafka_queue_destroy(_ rkqu: OpaquePointer!) { release(rkqu) }

func rd_kafka_queue_length(_ rkqu: OpaquePointer!) -> Int { object(rkqu, as: KafkaQueue.self).client.length }

func rd_kafka_queue_io_event_enable(
    _ rkqu: OpaquePointer!, _ fd: Int32, _ payload: UnsafeRawPointer!, _ size: Int
) {
    object(rkqu, as: KafkaQueue.self).client.descriptor = fd
}

func rd_kafka_consume_batch_queue(
    _ rkqu: OpaquePointer!, _ timeout_ms: Int32,
    _ rkmessages: UnsafeMutablePointer<UnsafeMutablePointer<rd_kafka_message_t>?>!, _ rkmessages_size: Int
) -> Int {
    let client = object(rkqu, as: KafkaQueue.self).client
    client.touch()
    for timeout in [0, timeout_ms] {
        guard timeout == 0 || client.world.wait(timeout, { client.hasWork }) else { break }
        while let operation = client.next() {
            guard let message = client.serve(operation) else { continue }
            Message.take(message)
            rkmessages.pointee = message.asMessage
            return 1
        }
        if timeout_ms == 0 { break }
    }
    return 0
}

/// Calls back for the answers of a caller's own queue.
@discardableResult
func rd_kafka_queue_poll_callback(_ rkqu: OpaquePointer!, _ timeout_ms: Int32) -> Int32 {
    let queue = object(rkqu, as: KafkaQueue.self)
    queue.client.world.wait(timeout_ms) { !queue.operations.isEmpty }
    var count: Int32 = 0
    while let operation = queue.operations.popFirst() {
        _ = queue.client.serve(operation)
        count += 1
    }
    return count
}

func rd_kafka_queue_poll(_ rkqu: OpaquePointer!, _ timeout_ms: Int32) -> OpaquePointer! {
    let queue = object(rkqu, as: KafkaQueue.self)
    let client = queue.client
    guard queue.isMain else {
        client.world.wait(timeout_ms) { !queue.events.isEmpty }
        return queue.events.popFirst().map { owned($0) }
    }
    client.touch()
    // The end of a step ends the wait too.
    client.world.wait(timeout_ms) { client.hasWork || client.stepResult != nil }
    return client.nextEvent().map { owned($0) }
}

// MARK: Events

/// An event of a queue.
final class KafkaEvent {
    let type: Int32
    /// Reports, and the first that wasn't taken.
    var messages: [Message.Pointer] = []
    var taken = 0
    var code = RD_KAFKA_RESP_ERR_NO_ERROR
    var text: UnsafePointer<CChar>?
    var facility: UnsafePointer<CChar>?
    var level: Int32 = 0
    let arena = Arena()
    /// An administrator's answer.
    var result: ResultHandle?

    init(_ type: Int32) { self.type = type }

    deinit { for message in messages { Message.destroy(message) } }
}

extension KafkaClient {
    /// Takes the next event of a producer: reports that follow each other are one.
    func nextEvent() -> KafkaEvent? {
        guard let operation = next() else { return nil }
        switch operation {
        case .message(let first, _):
            let event = KafkaEvent(RD_KAFKA_EVENT_DR)
            event.messages = [first]
            while case .message(let message, _)? = operations.first {
                operations.removeFirst()
                event.messages.append(message)
            }
            return event
        case .error(let code, let reason): return errorEvent(code, reason)
        case .fatalError: return errorEvent(RD_KAFKA_RESP_ERR__FATAL, fatalError?.reason ?? "")
        case .log(let level, let facility, let text):
            let event = KafkaEvent(RD_KAFKA_EVENT_LOG)
            event.level = level
            event.facility = UnsafePointer(event.arena.text(facility))
            event.text = UnsafePointer(event.arena.text(text))
            return event
        case .rebalance, .committed, .partitionError: return nil
        }
    }

    private func errorEvent(_ code: rd_kafka_resp_err_t, _ reason: String) -> KafkaEvent {
        let event = KafkaEvent(RD_KAFKA_EVENT_ERROR)
        event.code = code
        event.text = UnsafePointer(event.arena.text(reason))
        return event
    }
}

func rd_kafka_event_type(_ rkev: OpaquePointer!) -> rd_kafka_event_type_t {
    object(rkev, as: KafkaEvent.self).type
}

func rd_kafka_event_message_next(_ rkev: OpaquePointer!) -> UnsafePointer<rd_kafka_message_t>! {
    let event = object(rkev, as: KafkaEvent.self)
    guard event.taken < event.messages.count else { return nil }
    event.taken += 1
    return UnsafePointer(event.messages[event.taken - 1].asMessage)
}

func rd_kafka_event_error(_ rkev: OpaquePointer!) -> rd_kafka_resp_err_t {
    object(rkev, as: KafkaEvent.self).code
}

func rd_kafka_event_error_string(_ rkev: OpaquePointer!) -> UnsafePointer<CChar>! {
    let event = object(rkev, as: KafkaEvent.self)
    return event.text ?? rd_kafka_err2str(event.code)
}

/// There are no statistics.
func rd_kafka_event_stats(_ rkev: OpaquePointer!) -> UnsafePointer<CChar>! { nil }

func rd_kafka_event_log(
    _ rkev: OpaquePointer!, _ fac: UnsafeMutablePointer<UnsafePointer<CChar>?>!,
    _ str: UnsafeMutablePointer<UnsafePointer<CChar>?>!, _ level: UnsafeMutablePointer<Int32>!
) -> Int32 {
    let event = object(rkev, as: KafkaEvent.self)
    (fac.pointee, str.pointee, level.pointee) = (event.facility, event.text, event.level)
    return 0
}

func rd_kafka_event_destroy(_ rkev: OpaquePointer!) { release(rkev) }
