import EventLoop
import Glibc

@testable import HTTP2

/// A blocking client of single frames (RFC 9113 §4.1), written by hand so that it can break rules. Header
/// blocks use literals without Huffman coding and without the table.
final class RawClient {
    struct Frame: Equatable {
        var type: UInt8
        var flags: UInt8
        var stream: UInt32
        var payload: [UInt8]

        static let data: UInt8 = 0
        static let headers: UInt8 = 1
        static let reset: UInt8 = 3
        static let settings: UInt8 = 4
        static let ping: UInt8 = 6
        static let goAway: UInt8 = 7
        static let windowUpdate: UInt8 = 8

        var endsStream: Bool { flags & 1 != 0 }
        /// The error code of RST_STREAM, or of GOAWAY.
        var errorCode: UInt32 { number(type == Frame.goAway ? 4 : 0) }
        var debugData: String { String(decoding: payload.dropFirst(8), as: UTF8.self) }
        var text: String { String(decoding: payload, as: UTF8.self) }

        func number(_ offset: Int) -> UInt32 {
            payload[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
        }

        /// The entries of SETTINGS.
        var settings: [UInt16: UInt32] {
            var entries: [UInt16: UInt32] = [:]
            for offset in stride(from: 0, to: payload.count, by: 6) {
                entries[UInt16(payload[offset]) << 8 | UInt16(payload[offset + 1])] = number(offset + 2)
            }
            return entries
        }

        /// `:status` as nghttp2 encodes it: from the static table, or as a literal with that name.
        var status: Int? {
            let indexed: [UInt8: Int] = [8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500]
            guard var index = payload.indices.first else { return nil }
            while payload[index] & 0xE0 == 0x20 { index += 1 }
            if payload[index] & 0x80 != 0 { return indexed[payload[index] & 0x7F] }
            // A literal of three digits, Huffman coded: digits take 5 or 6 bits each.
            let length = Int(payload[index + 1] & 0x7F)
            let bytes = Array(payload[(index + 2)..<(index + 2 + length)])
            guard payload[index + 1] & 0x80 != 0 else { return Int(String(decoding: bytes, as: UTF8.self)) }
            var bits = bytes.flatMap { byte in (0..<8).map { byte >> (7 - $0) & 1 } }[...]
            var value = 0
            for _ in 0..<3 {
                let five = bits.prefix(5).reduce(0) { $0 << 1 | Int($1) }
                if five < 3 {
                    value = value * 10 + five
                    bits = bits.dropFirst(5)
                } else {
                    let six = bits.prefix(6).reduce(0) { $0 << 1 | Int($1) }
                    value = value * 10 + six - 0x19 + 3
                    bits = bits.dropFirst(6)
                }
            }
            return value
        }
    }

    let transport: TLSTransport
    private var input: [UInt8] = []

    init(port: UInt16, context: TLSContext, receiveBuffer: Int32? = nil) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        if var size = receiveBuffer { setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, 4) }
        let address = SocketAddress("127.0.0.1", port: port)!
        guard address.withPointer({ Glibc.connect(descriptor, $0, $1) }) == 0 else {
            throw SystemError(call: "connect")
        }
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        transport = try TLSTransport(context: context, fileDescriptor: descriptor, serverName: "localhost")
        while true {
            switch transport.handshake() {
            case .done: return
            case .wantRead: try wait(POLLIN)
            case .wantWrite: try wait(POLLOUT)
            case .failed(let error): throw error
            }
        }
    }

    private func wait(_ events: Int32, milliseconds: Int32 = 30_000) throws {
        var poll = pollfd(fd: transport.fileDescriptor, events: Int16(events), revents: 0)
        guard Glibc.poll(&poll, 1, milliseconds) > 0 else {
            throw SystemError(call: "poll", code: ETIMEDOUT)
        }
    }

    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            switch transport.writeBytes(Array(rest)) {
            case .bytes(let count): rest = rest.dropFirst(count)
            case .wantWrite: try wait(POLLOUT)
            case .wantRead: try wait(POLLIN)
            case .failed(let error): throw error
            }
        }
    }

    /// The preface with empty SETTINGS (§3.4).
    func begin(settings: [UInt8] = []) throws {
        try send(Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + Self.frame(Frame.settings, 0, 0, settings))
    }

    static func frame(_ type: UInt8, _ flags: UInt8, _ stream: UInt32, _ payload: [UInt8]) -> [UInt8] {
        let length = payload.count
        let head: [UInt8] = [
            UInt8(length >> 16 & 0xFF), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF), type, flags,
        ]
        return head + big(stream) + payload
    }

    static func big(_ value: UInt32) -> [UInt8] {
        [UInt8(value >> 24), UInt8(value >> 16 & 0xFF), UInt8(value >> 8 & 0xFF), UInt8(value & 0xFF)]
    }

    static func headerBlock(_ fields: [(String, String)]) -> [UInt8] {
        func string(_ text: String) -> [UInt8] {
            let count = text.utf8.count
            var bytes: [UInt8] = []
            if count < 127 {
                bytes = [UInt8(count)]
            } else {
                bytes = [127]
                var rest = count - 127
                while rest >= 128 {
                    bytes.append(UInt8(rest % 128 + 128))
                    rest /= 128
                }
                bytes.append(UInt8(rest))
            }
            return bytes + Array(text.utf8)
        }
        return fields.flatMap { [0] + string($0.0) + string($0.1) }
    }

    static func post(
        _ stream: UInt32, path: String = "/3/device/00", headers: [(String, String)] = [], endsStream: Bool
    ) -> [UInt8] {
        let block = headerBlock(
            [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost")]
                + headers)
        return frame(Frame.headers, endsStream ? 5 : 4, stream, block)
    }

    static func request(
        _ stream: UInt32, path: String = "/3/device/00", headers: [(String, String)] = [], body: String
    ) -> [UInt8] {
        post(stream, path: path, headers: headers, endsStream: false) + frame(0, 1, stream, Array(body.utf8))
    }

    /// The next frame, or nil once the server has closed.
    func next() throws -> Frame? {
        while true {
            if input.count >= 9 {
                let length = Int(input[0]) << 16 | Int(input[1]) << 8 | Int(input[2])
                if input.count >= 9 + length {
                    let stream = input[5..<9].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
                    let frame = Frame(
                        type: input[3], flags: input[4], stream: stream, payload: Array(input[9..<9 + length])
                    )
                    input.removeFirst(9 + length)
                    return frame
                }
            }
            let (result, bytes) = transport.readBytes()
            switch result {
            case .bytes: input += bytes
            case .wantRead: try wait(POLLIN)
            case .wantWrite: try wait(POLLOUT)
            case .closed, .failed: return nil
            }
        }
    }

    /// The next frame of a type. Skips other frames and acknowledges SETTINGS.
    func next(_ type: UInt8, acknowledges: Bool = true) throws -> Frame? {
        while let frame = try next() {
            let isSettings = frame.type == Frame.settings && frame.flags & 1 == 0
            if isSettings, acknowledges { try send(Self.frame(Frame.settings, 1, 0, [])) }
            if frame.type == type, !(type == Frame.settings && !isSettings) { return frame }
        }
        return nil
    }

    /// Reads until the server closes, and returns the last GOAWAY.
    func untilClosed() throws -> Frame? {
        var last: Frame?
        while let frame = try next() {
            if frame.type == Frame.goAway { last = frame }
        }
        return last
    }
}
