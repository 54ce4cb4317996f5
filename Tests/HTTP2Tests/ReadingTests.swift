import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Tests answers that arrive faster than the client reads.
@Suite(.serialized) struct ReadingTests {
    /// A server that answers while the client's loop is blocked, with a TLS record per answer.
    private func server(_ count: Int, blocked: BlockingFlag, written: BlockingFlag) throws -> ScriptedServer {
        try ScriptedServer { peer in
            var streams: [UInt32] = []
            while streams.count < count, let stream = peer.nextRequest() { streams.append(stream) }
            blocked.wait()
            for stream in streams { peer.frame(1, 5, stream, [0x88]) }
            written.set()
            while let stream = peer.nextRequest() { peer.frame(1, 5, stream, [0x88]) }
        }
    }

    /// The loop is blocked for longer than the request timeout, but the answers arrive in time.
    @Test func answersReceivedWhileBlockedAreNotExpired() throws {
        let blocked = BlockingFlag()
        let written = BlockingFlag()
        let server = try server(400, blocked: blocked, written: written)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: 10
        ) {
            // A busy machine needs seconds until all requests are in flight.
            $0.connection.requestTimeout = .seconds(5)
        }
        client.send(0..<400)
        try eventually("all are in flight") { client.read { $0.mostInFlight } == 400 }
        client.send(400..<401) {
            blocked.set()
            written.wait()
            // Blocks the loop for longer than the timeout.
            usleep(5_100_000)
        }
        try eventually("all have ended") { client.read { $0.ends.count } == 401 }
        // Request 400 may be late by the loop's own clock, and close the connection.
        #expect(client.read { client in (0..<400).allSatisfy { client.ends[$0] == [200] } })
        client.stop()
        server.stop()
    }

    /// Each turn leaves records unread, and a single timer reads the rest.
    @Test func repeatedPartialReadsLeaveNoTimersBehind() throws {
        let blocked = BlockingFlag()
        let written = BlockingFlag()
        let server = try server(800, blocked: blocked, written: written)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: 10)
        client.send(0..<800)
        try eventually("all are in flight") { client.read { $0.mostInFlight } == 800 }
        client.send(800..<801) {
            blocked.set()
            written.wait()
        }
        try eventually("all have ended") { client.read { $0.ends.count } == 801 }
        // Timers of the connection and the pool.
        #expect(client.read { $0.loop.timerCount } <= 3)
        client.stop()
        server.stop()
    }
}
