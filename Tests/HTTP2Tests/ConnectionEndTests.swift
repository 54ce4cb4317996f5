import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Tests that nothing of a request arrives at the server after the request's end.
@Suite struct ConnectionEndTests {
    private func client(
        of server: FaultServer, _ change: (inout ClientConnection.Configuration) -> Void = { _ in }
    ) throws -> ConnectionClient {
        let client = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.port)!],
            context: .client(server.tls.clientOptions), change)
        try client.waitUntilOpen()
        return client
    }

    /// With a linger time of 0 the system resets the connection at the process's end too.
    private func resetsAtExit(_ client: ConnectionClient) -> Bool {
        client.read { record in
            var value = linger()
            var length = socklen_t(MemoryLayout<linger>.size)
            let descriptor = record.connection.transport?.fileDescriptor ?? -1
            return getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &value, &length) == 0
                && value.l_onoff != 0 && value.l_linger == 0
        }
    }

    @Test(arguments: [true, false]) func onlyAConnectionWithUnansweredRequestsIsReset(isAnswered: Bool) throws
    {
        let server = try FaultServer { peer in
            peer.limit(10)
            if let request = peer.request(), isAnswered { peer.accept(request) }
            peer.awaitEnd()
        }
        let client = try client(of: server)
        #expect(resetsAtExit(client))
        #expect(client.send(0..<1) == [.submitted])
        try eventually("the request arrives") { server.record.now.received[0] == 1 }
        if isAnswered { try eventually("the answer arrives") { client.read { $0.ends[0] } == [200] } }
        client.close()
        try eventually("the server sees the end") { server.record.now.ended == 1 }
        #expect(server.record.now.resets == (isAnswered ? [] : [0]))
        #expect(server.record.now.cleanEnds == (isAnswered ? [0] : []))
        client.stop()
        server.stop()
    }

    /// A server drains its clients. The last request is never answered.
    @Test func drainedConnectionIsResetAfterARequestExpired() throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            guard let request = peer.request() else { return }
            peer.write(Raw.goAway(request.stream, 0))
            peer.awaitEnd()
        }
        let client = try client(of: server) {
            $0.requestTimeout = .milliseconds(200)
            $0.pingTimeout = .seconds(3600)
        }
        #expect(client.send(0..<1) == [.submitted])
        guard case .drained = try client.waitUntilClosed() else {
            Issue.record("closed for another reason")
            return
        }
        try eventually("the server sees the end") { server.record.now.ended == 1 }
        #expect(server.record.now.resets == [0])
        client.stop()
        server.stop()
    }

    /// The server's system takes some requests, and the rest waits in this system.
    @Test func requestsThatExpireOnTheirWayNeverArrive() throws {
        let isOver = BlockingFlag()
        let server = try FaultServer(receiveBuffer: 4096) { peer in
            peer.limit(1000)
            isOver.wait()
            peer.awaitEnd()
        }
        let client = try client(of: server) {
            $0.requestTimeout = .seconds(1)
            $0.pingTimeout = .seconds(3600)
        }
        let sent = client.send(0..<600)
        #expect(sent.allSatisfy { $0 == .submitted })
        guard case .unresponsive(.requestsUnderWay) = try client.waitUntilClosed() else {
            Issue.record("closed for another reason")
            return
        }
        isOver.set()
        try eventually("the server sees the end") { server.record.now.ended == 1 }
        #expect(server.record.now.resets == [0])
        #expect(server.record.now.received.count < 600)
        client.stop()
        server.stop()
    }
}
