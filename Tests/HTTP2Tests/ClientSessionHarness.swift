import Testing

@testable import HTTP2

/// Bytes of frames as a server would send them.
enum Raw {
    static func frame(_ type: UInt8, flags: UInt8 = 0, stream: UInt32 = 0, _ payload: [UInt8] = []) -> [UInt8]
    {
        let length = UInt32(payload.count)
        return [UInt8(length >> 16), UInt8(length >> 8 & 255), UInt8(length & 255), type, flags]
            + word(stream) + payload
    }

    static func word(_ value: UInt32) -> [UInt8] {
        [UInt8(value >> 24), UInt8(value >> 16 & 255), UInt8(value >> 8 & 255), UInt8(value & 255)]
    }

    static func settings(_ values: [(UInt16, UInt32)] = []) -> [UInt8] {
        frame(4, values.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 255)] + word($0.1) })
    }

    /// `:status 200` is index 8 of the static table, 400 is 12.
    static func ok(_ stream: UInt32) -> [UInt8] { frame(1, flags: 0x5, stream: stream, [0x88]) }
    static func bad(_ stream: UInt32) -> [UInt8] { frame(1, flags: 0x4, stream: stream, [0x8c]) }
    static func data(_ stream: UInt32, _ text: String, end: Bool = true) -> [UInt8] {
        frame(0, flags: end ? 1 : 0, stream: stream, Array(text.utf8))
    }
    static func reset(_ stream: UInt32, _ code: UInt32) -> [UInt8] { frame(3, stream: stream, word(code)) }
    static func goAway(_ last: UInt32, _ code: UInt32, _ debug: String = "") -> [UInt8] {
        frame(7, word(last) + word(code) + Array(debug.utf8))
    }
    static func windowUpdate(_ stream: UInt32, _ increment: UInt32) -> [UInt8] {
        frame(8, stream: stream, word(increment))
    }
}

/// A client session with a log of its events and access to its frames.
final class Harness {
    let fields = StableFields()
    let topic: StableFields.ID
    let name: StableFields.ID
    var session: ClientSession
    var bodies: [[UInt8]] = []
    var log: [String] = []

    init(
        waits: Bool = false, maximumStreams: Int = 100, maximumBody: Int = ClientSession.maximumResponseBody
    ) {
        topic = fields.add(name: "apns-topic", value: Array("com.example.app".utf8))
        name = fields.add(name: "apns-id")
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = waits
        configuration.maximumStreams = maximumStreams
        configuration.maximumBody = maximumBody
        session = ClientSession(configuration: configuration, fields: fields)
    }

    func submit(_ tag: UInt32, bytes: Int = 10, deadline: UInt64 = .max) -> ClientSession.SubmitResult {
        let body = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes, alignment: 1)
        for index in 0..<bytes { body[index] = UInt8(truncatingIfNeeded: index) }
        let topic = topic
        let name = name
        return session.submit(tag: tag, body: UnsafeRawBufferPointer(body), deadline: deadline) { block in
            block.indexedStatic(3)
            block.indexedStatic(7)
            block.path("/3/device/", UnsafeRawBufferPointer(start: nil, count: 0))
            block.stable(topic)
            Array("id-\(tag)".utf8).withUnsafeBytes { block.value(name, $0) }
        }
    }

    @discardableResult
    func receive(_ bytes: [UInt8]) -> HTTP2ConnectionError? {
        defer { drain() }
        do throws(HTTP2ConnectionError) {
            var failure: HTTP2ConnectionError?
            bytes.withUnsafeBytes { bytes in
                do throws(HTTP2ConnectionError) {
                    var offset = 0
                    // In two pieces, as a socket may deliver them.
                    let cut = bytes.count / 2
                    offset += try session.receive(UnsafeRawBufferPointer(rebasing: bytes[..<cut]))
                    drain()
                    offset += try session.receive(UnsafeRawBufferPointer(rebasing: bytes[offset...]))
                    #expect(offset == bytes.count)
                } catch {
                    failure = error
                }
            }
            if let failure { throw failure }
            return nil
        } catch {
            return error
        }
    }

    func drain() {
        for event in session.events.all {
            switch event.kind {
            case .response:
                log.append("\(event.tag): \(event.status) \(String(decoding: event.body, as: UTF8.self))")
            case .failed:
                let code = HTTP2ErrorCode(rawValue: event.code)
                log.append("\(event.tag): \(event.processed == .no ? "not processed" : "unknown") \(code)")
            case .capacityChanged: log.append("settings")
            case .goAway:
                log.append("goaway \(event.code) \(String(decoding: event.body, as: UTF8.self))")
            case .pingAnswered: log.append("pong \(event.code)")
            }
        }
        session.events.removeAll()
    }

    /// The frames written since the last call: type, flags, stream, payload.
    func frames() -> [(type: UInt8, flags: UInt8, stream: UInt32, payload: [UInt8])] {
        var bytes = Array(session.output.readable)
        session.output.removeAll()
        if bytes.starts(with: Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)) { bytes.removeFirst(24) }
        var result: [(UInt8, UInt8, UInt32, [UInt8])] = []
        while bytes.count >= 9 {
            let header = bytes.withUnsafeBytes { FrameHeader($0.baseAddress!) }
            result.append((header.type, header.flags, header.stream, Array(bytes[9..<9 + header.length])))
            bytes.removeFirst(9 + header.length)
        }
        #expect(bytes.isEmpty)
        return result
    }
}
