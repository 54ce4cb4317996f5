import CNghttp2
import EventLoop
import Glibc
import TestSupport

@testable import HTTP2

/// A blocking client on nghttp2's session: one thread, one connection.
final class PushClient {
    struct Response: Equatable {
        var status = 0
        var headers: [String: String] = [:]
        var body = ""

        /// `reason` of an error's body.
        var reason: String? {
            body.split(separator: "\"").drop { $0 != "reason" }.dropFirst(2).first.map(String.init)
        }
    }

    /// Results that nghttp2's callbacks fill.
    final class Inbox {
        var responses: [Int32: Response] = [:]
        var closed: [Int32: UInt32] = [:]
        var bodies: [Int32: [UInt8]] = [:]
        var goAway: (errorCode: UInt32, lastStream: Int32, debugData: String)?
        /// Number of GOAWAY frames.
        var goAways = 0
        var settings = 0
    }

    private let transport: TLSTransport
    private var session: OpaquePointer!
    let inbox = Inbox()
    private(set) var isClosed = false

    init(port: UInt16, authority: CertificateAuthority, identity: IssuedCertificate? = nil) throws {
        var options = ClientTLSOptions()
        options.trust = .authorities(.text(authority.certificatePEM))
        options.identity = identity?.identity
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let address = SocketAddress("127.0.0.1", port: port)!
        guard address.withPointer({ Glibc.connect(descriptor, $0, $1) }) == 0 else {
            throw SystemError(call: "connect")
        }
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        // Header and body are two writes. Without TCP_NODELAY the second waits for the first's acknowledgement.
        var yes: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, 4)
        transport = try TLSTransport(
            context: .client(options), fileDescriptor: descriptor, serverName: "localhost")
        handshake: while true {
            switch transport.handshake() {
            case .done: break handshake
            case .wantRead: try wait(POLLIN)
            case .wantWrite: try wait(POLLOUT)
            case .failed(let error): throw error
            }
        }
        try makeSession()
        // Waits for the server's SETTINGS, so that the first request knows the limits.
        try run { self.inbox.settings > 0 }
    }

    deinit { if let session { nghttp2_session_del(session) } }

    private func makeSession() throws {
        var callbacks: OpaquePointer?
        nghttp2_session_callbacks_new(&callbacks)
        defer { nghttp2_session_callbacks_del(callbacks) }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameCount, value, valueCount, _, data in
            let inbox = PushClient.inbox(data)
            let name = PushClient.text(name, nameCount)
            let value = PushClient.text(value, valueCount)
            if name == ":status" {
                inbox.responses[frame!.pointee.hd.stream_id, default: Response()].status = Int(value)!
            } else {
                inbox.responses[frame!.pointee.hd.stream_id, default: Response()].headers[name] = value
            }
            return 0
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
            _, _, stream, bytes, count, data in
            PushClient.inbox(data).responses[stream, default: Response()].body += PushClient.text(
                bytes, count)
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, stream, code, data in
            PushClient.inbox(data).closed[stream] = code
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, data in
            let inbox = PushClient.inbox(data)
            switch UInt32(frame!.pointee.hd.type) {
            case NGHTTP2_SETTINGS.rawValue where frame!.pointee.hd.flags & 1 == 0: inbox.settings += 1
            case NGHTTP2_GOAWAY.rawValue:
                let goAway = frame!.pointee.goaway
                inbox.goAways += 1
                inbox.goAway = (
                    goAway.error_code, goAway.last_stream_id,
                    PushClient.text(goAway.opaque_data, goAway.opaque_data_len)
                )
            default: break
            }
            return 0
        }
        guard
            nghttp2_session_client_new(&session, callbacks, Unmanaged.passUnretained(inbox).toOpaque()) == 0,
            nghttp2_submit_settings(session, 0, nil, 0) == 0
        else { throw SystemError(call: "nghttp2_session_client_new", code: ENOMEM) }
    }

    private static func inbox(_ data: UnsafeMutableRawPointer?) -> Inbox {
        Unmanaged<Inbox>.fromOpaque(data!).takeUnretainedValue()
    }

    private static func text(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> String {
        String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
    }

    // MARK: - Requests

    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server.
    var streamLimit: UInt32 {
        nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
    }

    /// Bytes that the server still accepts on the connection.
    var sendWindow: Int32 { nghttp2_session_get_remote_window_size(session) }

    /// Sends what was submitted, and waits for nothing.
    func send() throws { try run { true } }

    func setting(_ identifier: nghttp2_settings_id) -> UInt32 {
        nghttp2_session_get_remote_settings(session, identifier)
    }

    /// Submits a request; it is sent with the next `run`.
    @discardableResult
    func submit(_ request: PushRequestTemplate) -> Int32 {
        let fields =
            [
                (":method", request.method), (":scheme", "https"), (":path", request.path),
                (":authority", "localhost"),
            ] + request.headers
        var texts: [UnsafeMutablePointer<UInt8>] = []
        func bytes(_ text: String) -> UnsafeMutablePointer<UInt8> {
            let copy = UnsafeMutablePointer<UInt8>.allocate(capacity: max(text.utf8.count, 1))
            copy.initialize(from: Array(text.utf8), count: text.utf8.count)
            texts.append(copy)
            return copy
        }
        defer { for text in texts { text.deallocate() } }
        let list = fields.map { name, value in
            nghttp2_nv(
                name: bytes(name), value: bytes(value), namelen: name.utf8.count, valuelen: value.utf8.count,
                flags: 0)
        }
        let body = Body(request.body)
        bodies.append(body)
        var provider = nghttp2_data_provider(
            source: nghttp2_data_source(ptr: Unmanaged.passUnretained(body).toOpaque())
        ) { _, _, buffer, length, flags, source, _ in
            let body = Unmanaged<Body>.fromOpaque(source!.pointee.ptr!).takeUnretainedValue()
            let count = min(length, body.rest.count)
            for index in 0..<count { buffer![index] = body.rest[body.rest.startIndex + index] }
            body.rest = body.rest.dropFirst(count)
            if body.rest.isEmpty { flags!.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
            return count
        }
        return request.body.isEmpty
            ? nghttp2_submit_request(session, nil, list, list.count, nil, nil)
            : nghttp2_submit_request(session, nil, list, list.count, &provider, nil)
    }

    private final class Body {
        var rest: ArraySlice<UInt8>
        init(_ text: String) { rest = Array(text.utf8)[...] }
    }
    /// Bodies for the callbacks, kept as long as the client lives.
    private var bodies: [Body] = []

    /// Sends one request and waits for its answer.
    func push(_ request: PushRequestTemplate) throws -> Response {
        let stream = submit(request)
        try run { self.inbox.closed[stream] != nil }
        return inbox.responses[stream] ?? Response()
    }

    func reset(_ stream: Int32) { nghttp2_submit_rst_stream(session, 0, stream, 8) }

    // MARK: - Bytes

    /// Sends and receives until the condition holds or the server has closed.
    func run(until condition: () -> Bool) throws {
        try flush()
        while !condition(), !isClosed {
            var bytes = [UInt8](repeating: 0, count: 16_384)
            switch bytes.withUnsafeMutableBytes({ transport.read(into: $0) }) {
            case .bytes(let count):
                guard nghttp2_session_mem_recv(session, bytes, count) >= 0 else {
                    isClosed = true
                    return
                }
                try flush()
            case .wantRead: try wait(POLLIN)
            case .wantWrite: try wait(POLLOUT)
            case .closed: isClosed = true
            case .failed(let error):
                isClosed = true
                throw error
            }
        }
    }

    private func flush() throws {
        while true {
            var data: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &data)
            guard count > 0 else { return }
            var rest = UnsafeRawBufferPointer(start: data, count: count)
            while rest.count > 0 {
                switch transport.write(rest) {
                case .bytes(let written): rest = UnsafeRawBufferPointer(rebasing: rest[written...])
                case .wantWrite: try wait(POLLOUT)
                case .wantRead: try wait(POLLIN)
                case .failed:
                    isClosed = true
                    return
                }
            }
        }
    }

    private func wait(_ events: Int32) throws {
        var poll = pollfd(fd: transport.fileDescriptor, events: Int16(events), revents: 0)
        guard Glibc.poll(&poll, 1, 30_000) > 0 else { throw SystemError(call: "poll", code: ETIMEDOUT) }
    }
}

/// A request that a test can change before sending.
struct PushRequestTemplate: Sendable {
    var method = "POST"
    var path = "/3/device/" + String(repeating: "0a", count: 32)
    var headers: [(String, String)] = []
    var body = #"{"aps":{"alert":"hello"}}"#

    subscript(name: String) -> String? {
        get { headers.first { $0.0 == name }?.1 }
        set {
            headers.removeAll { $0.0 == name }
            if let newValue { headers.append((name, newValue)) }
        }
    }

    var device: String {
        get { String(path.split(separator: "/", omittingEmptySubsequences: false).last!) }
        set { path = "/3/device/" + newValue }
    }

    /// A complete push that APNs accepts.
    static func good(token: String?) -> PushRequestTemplate {
        var request = PushRequestTemplate()
        request["authorization"] = token.map { "bearer \($0)" }
        request["apns-topic"] = "com.example.app"
        request["apns-push-type"] = "alert"
        request["apns-priority"] = "10"
        request["apns-expiration"] = "0"
        request["apns-id"] = "123e4567-e89b-12d3-a456-426614174000"
        request["apns-collapse-id"] = "order-1"
        return request
    }
}
