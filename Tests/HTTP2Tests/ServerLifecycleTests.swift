import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

private typealias Frame = RawClient.Frame

@Suite struct ServerLifecycleTests {
    @Test func goAwayFinishesOpenStreamsBeforeClosing() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in held.hold(request, connection) })
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        server.loop.execute { held.all { $0.goAway(debugData: "{\"reason\":\"Shutdown\"}") } }
        let goAway = try #require(try client.next(Frame.goAway))
        #expect(goAway.errorCode == 0)
        #expect(goAway.number(0) == 1)
        #expect(goAway.debugData == "{\"reason\":\"Shutdown\"}")
        // A later stream isn't processed. The open stream is answered, then the connection ends.
        try client.send(RawClient.request(3, body: "{}"))
        server.loop.execute { held.answerAll() }
        #expect(try client.next(Frame.headers)?.status == 200)
        #expect(try client.next() == nil)
        #expect(server.log.requests.count == 1)
        try eventually("the close") { server.log.closed.count == 1 }
        guard case .byServer = server.log.closed[0] else {
            Issue.record("ended by \(server.log.closed[0])")
            return
        }
    }

    @Test func drainTimeoutClosesAConnectionWithOpenStreams() throws {
        let held = HeldStreams()
        let server = try ServerFixture(options: {
            $0.drainTimeout = .milliseconds(20)
        }) { request, connection in held.hold(request, connection) }
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        server.loop.execute { held.all { $0.goAway() } }
        #expect(try client.untilClosed() != nil)
    }

    @Test func idleConnectionIsClosedWithItsDebugData() throws {
        let server = try ServerFixture(options: {
            $0.idleTimeout = .milliseconds(30)
            $0.idleDebugData = "{\"reason\":\"IdleTimeout\"}"
        })
        let client = try server.connect()
        try client.begin()
        #expect(try client.untilClosed()?.debugData == "{\"reason\":\"IdleTimeout\"}")
    }

    @Test func silentClientIsClosedAtTheHandshakeTimeout() throws {
        let server = try ServerFixture(options: { $0.handshakeTimeout = .milliseconds(20) })
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        let address = SocketAddress("127.0.0.1", port: server.listener.port)!
        try #require(address.withPointer { connect(descriptor, $0, $1) } == 0)
        var byte: UInt8 = 0
        #expect(read(descriptor, &byte, 1) == 0)
        try eventually("the close") { server.log.closed.count == 1 }
        guard case .handshakeTimeout = server.log.closed[0] else {
            Issue.record("ended by \(server.log.closed[0])")
            return
        }
    }

    @Test func clientCloseIsReportedAsCleanOrCut() throws {
        let server = try ServerFixture()
        for clean in [true, false] {
            let before = server.log.closed.count
            let client = try server.connect()
            try client.begin()
            try client.send(RawClient.request(1, body: "{}"))
            #expect(try client.next(Frame.headers)?.status == 200)
            if !clean { shutdown(client.transport.fileDescriptor, Int32(SHUT_RDWR)) }
            client.transport.close()
            try eventually("the close") { server.log.closed.count == before + 1 }
            guard case .byClient(clean: clean) = server.log.closed[before] else {
                Issue.record("ended by \(server.log.closed[before]), clean was \(clean)")
                continue
            }
        }
    }

    @Test func stopEndsAllConnections() throws {
        let server = try ServerFixture()
        let clients = try (0..<3).map { _ in try server.connect() }
        for client in clients {
            try client.begin()
            try client.send(RawClient.request(1, body: "{}"))
            #expect(try client.next(Frame.headers)?.status == 200)
        }
        let stopped = BlockingFlag()
        server.loop.execute { server.listener.stop(debugData: "bye") { stopped.set() } }
        for client in clients { #expect(try client.untilClosed()?.debugData == "bye") }
        #expect(stopped.wait(seconds: 30))
        #expect(throws: (any Error).self) { try server.connect() }
    }

    @Test func invalidOrUsedListenAddressesAreRefused() throws {
        let loop = try EventLoop(name: "unused")
        let tls = try TLSContext.server(TLSFixture().serverOptions)
        func open(_ address: String, _ port: UInt16) throws -> ServerListener {
            try ServerListener(loop: loop, address: address, port: port, tls: tls) { _ in
                RecordingHandler(log: ServerLog()) { _, _ in }
            }
        }
        #expect(throws: ServerError.self) { try open("localhost.invalid", 0) }
        let first = try open("127.0.0.1", 0)
        let error = #expect(throws: ServerError.self) { try open("127.0.0.1", first.port) }
        #expect(error?.description.contains("127.0.0.1:\(first.port)") == true)
        #expect(try open("::1", 0).port != 0)
    }
}

/// Requests that a server holds until the test answers them. Used on the server's loop only, after creation.
final class HeldStreams: @unchecked Sendable {
    // Sendable because only the loop's thread uses `held`: the handler and the work given to `execute`.
    private var held: [(stream: Int32, connection: ServerConnection)] = []

    func hold(_ request: ServerRequest, _ connection: ServerConnection) {
        held.append((request.stream, connection))
    }

    func all(_ body: (ServerConnection) -> Void) {
        var seen: Set<ObjectIdentifier> = []
        for (_, connection) in held where seen.insert(ObjectIdentifier(connection)).inserted {
            body(connection)
        }
    }

    func answerAll() {
        for (stream, connection) in held { connection.respond(stream: stream, status: 200) }
        held = []
    }
}
