import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// A server on its own event loop, with its certificate in a directory for other programs.
final class ServerFixture: Sendable {
    let loop: EventLoop
    let listener: ServerListener
    let directory: TemporaryDirectory
    let tls: TLSFixture
    let log: ServerLog

    var authority: String { "localhost:\(listener.port)" }
    var url: String { "https://\(authority)" }
    var authorityFile: String { directory.file("ca.pem") }

    /// - Parameter demandsCertificate: the server refuses clients without a certificate.
    init(
        options change: (inout ServerOptions) -> Void = { _ in }, demandsCertificate: Bool = false,
        respond: @escaping @Sendable (ServerRequest, ServerConnection) -> Void = { request, connection in
            connection.respond(stream: request.stream, status: 200)
        }
    ) throws {
        tls = try TLSFixture()
        directory = try TemporaryDirectory("http2-server")
        try directory.write(tls.authority.certificatePEM, to: "ca.pem")
        loop = try EventLoop(name: "test-server")
        var options = ServerOptions()
        change(&options)
        var serverTLS = tls.serverOptions
        if demandsCertificate { serverTLS.clientCertificates = .require(.text(tls.authority.certificatePEM)) }
        let log = ServerLog()
        self.log = log
        listener = try ServerListener(
            loop: loop, address: "127.0.0.1", port: 0, tls: .server(serverTLS), options: options
        ) { _ in RecordingHandler(log: log, respond: respond) }
        try listener.start()
        loop.start()
    }

    deinit {
        loop.stop()
        loop.join()
    }

    /// A client of single frames (RFC 9113), for behaviour that other programs don't show.
    func connect(_ change: (inout ClientTLSOptions) -> Void = { _ in }) throws -> RawClient {
        var options = tls.clientOptions
        change(&options)
        return try RawClient(port: listener.port, context: .client(options))
    }
}

/// Records the events of a server's handlers, for tests on other threads.
final class ServerLog: Sendable {
    struct Request: Sendable, Equatable {
        var method = ""
        var path = ""
        var authority = ""
        var headers: [String: String] = [:]
        var body = ""
        var bodyLength = 0
        var isCutOff = false
    }

    struct Entries {
        var requests: [Request] = []
        var opened = 0
        var cancelled: [Int32] = []
        var closed: [ServerCloseReason] = []
    }

    private let entries = Mutex(Entries())

    func add(_ change: (inout Entries) -> Void) { entries.withLock { change(&$0) } }

    var requests: [Request] { entries.withLock { $0.requests } }
    var opened: Int { entries.withLock { $0.opened } }
    var cancelled: [Int32] { entries.withLock { $0.cancelled } }
    var closed: [ServerCloseReason] { entries.withLock { $0.closed } }
}

final class RecordingHandler: ServerRequestHandler {
    private let log: ServerLog
    private let respond: (ServerRequest, ServerConnection) -> Void

    init(log: ServerLog, respond: @escaping (ServerRequest, ServerConnection) -> Void) {
        self.log = log
        self.respond = respond
    }

    func connectionOpened(_ connection: ServerConnection) { log.add { $0.opened += 1 } }

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        func text(_ bytes: UnsafeRawBufferPointer) -> String { String(decoding: bytes, as: UTF8.self) }
        var entry = ServerLog.Request(
            method: text(request.method), path: text(request.path), authority: text(request.authority),
            body: text(request.body), bodyLength: request.bodyLength, isCutOff: request.isBodyCutOff)
        for index in 0..<request.headerCount {
            let (name, value) = request.header(index)
            entry.headers[text(name)] = text(value)
        }
        log.add { $0.requests.append(entry) }
        respond(request, connection)
    }

    func requestCancelled(stream: Int32, on connection: ServerConnection) {
        log.add { $0.cancelled.append(stream) }
    }

    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
        log.add { $0.closed.append(reason) }
    }
}
