import EventLoop
import HTTP2
import Synchronization

/// A server for single requests, over real TCP and TLS. Records each request as a text.
final class RequestServer: Sendable {
    /// Events of the server's connections, for other threads.
    final class Log: Sendable {
        private let state = Mutex((requests: [String](), closed: 0))

        /// Texts of the requests: method, path, authority, headers by name, body.
        var requests: [String] { state.withLock { $0.requests } }
        /// Number of connections that have ended.
        var closed: Int { state.withLock { $0.closed } }

        fileprivate func add(_ request: String) { state.withLock { $0.requests.append(request) } }
        fileprivate func addClosed() { state.withLock { $0.closed += 1 } }
    }

    let log = Log()
    let authority: CertificateAuthority
    let port: UInt16
    private let loop: EventLoop
    private let listener: ServerListener

    init(
        tls change: (inout ServerTLSOptions, CertificateAuthority) -> Void = { _, _ in },
        respond: @escaping @Sendable (ServerRequest, ServerConnection) -> Void
    ) throws {
        authority = try CertificateAuthority()
        var tls = ServerTLSOptions(identity: try authority.issueServer(names: ["localhost"]).identity)
        change(&tls, authority)
        loop = try EventLoop(name: "test-apns")
        let log = log
        listener = try ServerListener(loop: loop, address: "127.0.0.1", port: 0, tls: .server(tls)) { _ in
            Handler(log: log, respond: respond)
        }
        port = listener.port
        try listener.start()
        loop.start()
    }

    deinit {
        loop.stop()
        loop.join()
    }

    private final class Handler: ServerRequestHandler {
        private let log: Log
        private let respond: (ServerRequest, ServerConnection) -> Void

        init(log: Log, respond: @escaping (ServerRequest, ServerConnection) -> Void) {
            self.log = log
            self.respond = respond
        }

        func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
            func text(_ bytes: UnsafeRawBufferPointer) -> String { String(decoding: bytes, as: UTF8.self) }
            var lines = ["\(text(request.method)) \(text(request.path)) \(text(request.authority))"]
            for index in 0..<request.headerCount {
                let (name, value) = request.header(index)
                lines.append("\(text(name)): \(text(value))")
            }
            log.add((lines + [text(request.body)]).joined(separator: "\n"))
            respond(request, connection)
        }

        func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) { log.addClosed() }
    }
}

extension ServerConnection {
    /// Answers with texts; the fields stay out of the header table.
    func answer(
        _ request: ServerRequest, _ status: UInt16, _ headers: [(StaticString, String)] = [],
        body: String = ""
    ) {
        let values = headers.map { Array($0.1.utf8) }
        var fields: [ResponseField] = []
        func write(_ index: Int) {
            guard index < headers.count else {
                fields.withUnsafeBufferPointer { fields in
                    Array(body.utf8).withUnsafeBytes {
                        respond(stream: request.stream, status: status, headers: fields, body: $0)
                    }
                }
                return
            }
            values[index].withUnsafeBytes {
                fields.append(ResponseField(headers[index].0, $0, isIndexed: false))
                write(index + 1)
            }
        }
        write(0)
    }
}
