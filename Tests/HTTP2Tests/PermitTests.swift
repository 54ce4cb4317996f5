import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Tests that requests framed before the process was stopped never leave after the permit's end.
@Suite struct PermitTests {
    private let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    /// A server that answers everything with 200.
    private func server() throws -> (EventLoop, ServerLog, ServerListener) {
        let loop = try EventLoop(name: "test-server")
        let log = ServerLog()
        let listener = try ServerListener(
            loop: loop, address: "127.0.0.1", port: 0, tls: .server(fixture.serverOptions),
            options: ServerOptions()
        ) { _ in RecordingHandler(log: log) { $1.respond(stream: $0.stream, status: 200) } }
        try listener.start()
        loop.start()
        return (loop, log, listener)
    }

    /// - Parameter requests: Number of requests; 400 fill several gathered TLS records. The first full records show that
    ///   nothing may leave, so that later requests stay with the owner.
    @Test(arguments: [1, 400] as [UInt32])
    func requestsDoNotLeaveAfterThePermitEnds(requests: UInt32) throws {
        let (loop, log, listener) = try server()
        defer {
            loop.stop()
            loop.join()
        }
        let permit = SendPermit(until: .distantFuture)
        let connection = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: listener.port)!],
            context: .client(fixture.clientOptions)
        ) { $0.permit = permit }
        defer { connection.stop() }
        try connection.waitUntilOpen()
        let first = connection.send(0..<3)
        #expect(first.allSatisfy { $0 == .submitted })
        try eventually("three answers") { connection.read { $0.ends.count } == 3 }

        permit.extend(until: MonotonicTime.read())
        let sent = connection.send(3..<3 + requests).prefix { $0 == .submitted }
        let submitted = 3..<3 + UInt32(sent.count)
        #expect(requests == 1 ? sent.count == 1 : sent.count < 400)
        let reason = try connection.waitUntilClosed()
        guard case .permitEnded = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(reason.kind == .endedByUs)
        try eventually("the server sees the end") { !log.closed.isEmpty }
        #expect(log.requests.count == 3)
        let ends = connection.read { $0.ends }
        #expect(submitted.allSatisfy { ends[$0] == [0] })
        // Gathered records that were refused never left.
        #expect(connection.read { $0.notProcessed } == Set(submitted))
    }

    /// The content waits for the server's window when the permit ends.
    @Test func waitingContentDoesNotLeaveAfterThePermitEnds() throws {
        let hasHeader = BlockingFlag()
        let hasEnded = BlockingFlag()
        let server = try FaultServer { peer in
            peer.write(Raw.settings([(4, 10)]))
            var stream: UInt32?
            while stream == nil, let frame = peer.next() {
                if frame.type == 1 { stream = frame.stream }
            }
            hasHeader.set()
            hasEnded.wait()
            peer.write(Raw.windowUpdate(stream ?? 1, 1000))
            while peer.next() != nil {}
        }
        let permit = SendPermit(until: .distantFuture)
        let connection = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.port)!],
            context: .client(server.tls.clientOptions)
        ) { $0.permit = permit }
        defer {
            hasEnded.set()
            connection.stop()
            server.stop()
        }
        try connection.waitUntilOpen()
        #expect(connection.send(0..<1) == [.submitted])
        #expect(hasHeader.wait(seconds: 60))
        permit.extend(until: MonotonicTime.read())
        hasEnded.set()
        let reason = try connection.waitUntilClosed()
        guard case .permitEnded = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(connection.read { $0.notProcessed } == [0])
        try eventually("the server sees the end") { server.record.now.ended == 1 }
        #expect(server.record.now.received.isEmpty)
    }

    /// Frames other than requests are written without a permit.
    @Test func connectionWithoutRequestsStaysOpenWithoutAPermit() throws {
        let (loop, _, listener) = try server()
        defer {
            loop.stop()
            loop.join()
        }
        let permit = SendPermit(until: MonotonicTime(nanoseconds: 0))
        let connection = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: listener.port)!],
            context: .client(fixture.clientOptions)
        ) {
            $0.permit = permit
            $0.pingInterval = .milliseconds(20)
        }
        defer { connection.stop() }
        try connection.waitUntilOpen()
        try eventually("PINGs") { connection.statistics.pings >= 3 }
        #expect(connection.read { $0.closed.isEmpty })
        permit.extend(until: .distantFuture)
        let sent = connection.send(0..<1)
        #expect(sent == [.submitted])
        try eventually("an answer") { connection.read { $0.ends[0] } == [200] }
    }
}
